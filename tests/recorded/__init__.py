"""Recorded logs for the tests of the pipeline."""
