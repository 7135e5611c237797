"""The wire: frames, packed messages, fragments, control messages, and the gate that refuses bad bytes.

The layout is described in `docs/design/wire.md`. The hot functions exist twice, compiled and as plain Python.
"""
