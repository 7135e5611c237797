"""A key-value store of real processes under faults, and the record of what its clients saw."""
