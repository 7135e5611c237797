"""The checkers of key-value stores, by name. A list of their own: topics promise none of them."""

from vivum.checkers.checker import Checker
from vivum.checkers.kv.key_linearizable import KeyLinearizable
from vivum.checkers.kv.locks import LeaseTime, LockExclusion
from vivum.checkers.kv.watch_order import WatchOrder

KV_CHECKERS: dict[str, type[Checker]] = {
    each.name: each for each in (KeyLinearizable, WatchOrder, LockExclusion, LeaseTime)
}
"""Every checker of a key-value store by name."""
