"""Three replicas of a key-value store, for tests with real sockets."""
