"""The configuration service: its replicated state, its speaker at the leader, its replicas."""
