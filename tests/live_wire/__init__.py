"""Live nodes on a wire that a test holds in its hands."""
