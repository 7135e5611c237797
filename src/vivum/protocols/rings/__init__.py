"""Aggregation on token rings: tokens go round the members of a view, and collect what each has to say.

Design note: `docs/design/rings.md`. `placement` says who stands where, `ring` moves one token, `ladder` joins the rings
of one node. What a token carries is its host's business.
"""
