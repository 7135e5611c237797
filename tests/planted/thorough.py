"""How the checkers' property tests draw: the same examples in every run, many of them, as each takes a millisecond."""

from hypothesis import settings

thorough = settings(derandomize=True, database=None, deadline=None, max_examples=500)
