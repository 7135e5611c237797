"""The key-value store for programs: `vivum.kv`."""
