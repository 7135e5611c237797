"""What can be seen from outside: counters, and typed trace records.

Pure, like all below the drivers: this package makes records; `vivum.storage` writes them to files.
"""
