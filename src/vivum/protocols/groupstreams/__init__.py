"""Streams by group: all frames of one life into one group are numbered, whatever the regions of their receivers.

Design note: `docs/design/ricochet.md`. Knows nothing of how frames are repaired.
"""
