"""Vivum: live groups for Python.

Typed channels and replicated objects over reliable multicast. The parts live in the packages below this one; see
`docs/ARCHITECTURE.md` for the map.
"""

__version__ = "0.1.0"
