"""The configuration service: its state, its speaker, and its standbys."""
