"""The directory of topics: which group a name stands for, and what type and guarantee it has.

Design note: `docs/design/membership.md`. The leader of the configuration service answers, from the replicated state.
"""
