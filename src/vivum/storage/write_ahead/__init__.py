"""The write-ahead log of a replica: what it must never forget, on disk (`docs/design/consensus.md`)."""
