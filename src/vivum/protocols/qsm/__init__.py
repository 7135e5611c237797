"""QSM: reliable multicast whose cost does not depend on the number of groups (seeds 001 and 004).

Design note: `docs/design/qsm.md`. Read `machine` first; then the way of a message out (`send`), and what goes round in
the rings (`region`, `recovery`). Stands on `protocols/streams`, `protocols/dissemination` and `protocols/rings`.
"""
