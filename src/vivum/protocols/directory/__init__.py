"""The directory of topics: which group a name stands for, and what type and guarantee it has.

Design note: `docs/design/runtime.md`, "Directory". It stands beside the configuration service, in the same node.
"""
