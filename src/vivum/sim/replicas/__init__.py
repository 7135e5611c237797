"""Worlds of replicas: a log under faults, with clients that retry (`docs/design/consensus.md`)."""
