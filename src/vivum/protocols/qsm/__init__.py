"""QSM: reliable multicast whose cost does not depend on the number of groups (seeds 001 and 004).

Design note: `docs/design/qsm.md`. Read `machine` first; then the way of a message out (`feeds`, `outgoing`), in
(`incoming`, `chain`), and around the rings (`region`, `ring`, `placement`).
"""
