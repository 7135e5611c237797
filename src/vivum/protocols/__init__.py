"""Protocols as pure machines, one folder each.

`commands` holds what applications ask of any of them and what any of them tells; `reference` is the simplest complete
protocol and the one to read first.
"""
