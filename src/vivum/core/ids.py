"""Names of things that travel between nodes.

At run time all are plain integers: they are dictionary keys in hot paths and columns in Parquet files. The types let
the type checker catch a group that is passed where a node was meant.
"""

from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
"""Small integer that membership gives to a node; unique in a domain, reused only with a new incarnation."""

Incarnation = NewType("Incarnation", int)
"""Number of a life of one node id; a node that was dropped or restarted comes back with a higher one."""

GroupId = NewType("GroupId", int)
"""A group in the protocols, which is a topic in the API."""

RegionId = NewType("RegionId", int)
"""A set of nodes with the same groups (seed 001, section 2)."""

ViewNumber = NewType("ViewNumber", int)
"""Counts the views of one group or one region; the first view is 1, and 0 means "no view yet"."""

Channel = NewType("Channel", int)
"""A multicast address by its number in the domain; a driver maps it to a real one."""


class Member(NamedTuple):
    """One life of one node: what a view lists, and what a message's sender is."""

    node: NodeId
    incarnation: Incarnation

    def __str__(self) -> str:
        return f"{self.node}.{self.incarnation}"


class Endpoint(NamedTuple):
    """Where a node takes unicast datagrams: host and port on a network, made-up ones in the simulator."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
