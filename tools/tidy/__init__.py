"""The tidy rules: functions that look at a tree of files and return what is wrong with it, one line each.

A rule takes the root of a repository, so that the tests can plant a violation in a small tree and see it
caught. An empty list means tidy. The tables that the rules read are in `tools/layers.py`.
"""
