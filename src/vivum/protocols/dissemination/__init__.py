"""Dissemination: how frames get to the members of a group (`ways`), and where members listen (`channels`).

Design note: `docs/design/streams.md`. Knows nothing of numbering, loss or repair.
"""
