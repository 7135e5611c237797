"""Real processes for integration tests: an actor that a test directs by lines of JSON, and the one who directs it."""
