"""Replay: a reader gets back copies from a recorder first, then the live stream."""
