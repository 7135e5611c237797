"""Consensus: a replicated log after Raft, as a pure machine (`docs/design/consensus.md`)."""
