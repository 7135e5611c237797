"""Lateral error correction: receivers repair each other before a sender could hear of a loss.

Design note: `docs/design/ricochet.md`. Seed 000, part A of section III.
"""
