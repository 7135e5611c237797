"""The reference protocol: best-effort multicast, then negative acknowledgements to the sender.

Design note: `docs/design/reference.md`. Read `machine` first, then `outgoing` and `incoming`.
"""
