"""The audit: the definitions of `vivum.checkers` as Spark programs over the traces of all nodes.

`docs/design/audit.md` tells how each works. The planted violations of `tests/planted` are judged by both.
"""

from vivum.pipeline.audit.verdict import CHECKS, AuditVerdict, audit

__all__ = ["CHECKS", "AuditVerdict", "audit"]
