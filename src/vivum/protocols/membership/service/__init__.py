"""The configuration service: its state, who speaks for it, and its standbys."""
