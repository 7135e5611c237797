"""The client of the configuration service, one in every node."""
