"""Best effort over the regions of QSM: each message is sent once to every region of its group, and never again.

Design note: `docs/design/runtime.md`, "Best effort".
"""
