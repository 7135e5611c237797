"""Histories with planted violations, shared by the tests of the checkers and of the audit on Spark."""
