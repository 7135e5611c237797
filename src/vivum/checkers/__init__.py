"""Checkers: one file for each guarantee, fed with trace records, reporting violations with witnesses.

Shared by the simulator, the tests and (as the same definitions, repeated as Spark jobs) the audit. Pure:
imports `vivum.core` and `vivum.observe` alone. `docs/design/checkers.md` has the exact definition of each
guarantee.
"""
