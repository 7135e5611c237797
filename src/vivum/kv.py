"""The key-value store: `vivum.kv.connect` reaches one, `vivum.kv.serve` runs a replica of one.

async with kv.connect(["10.0.0.1:7100", "10.0.0.2:7100", "10.0.0.3:7100"]) as store:
    await store.put("/config/rate", b"100")
"""

from vivum.live.failures import CompactedError, LeaseLostError, NoReplicaError, OutcomeUnknownError
from vivum.live.kv.client import KeyChange, KeyValue, KeyValueClient
from vivum.live.kv.connecting import connect, serve
from vivum.live.kv.leases import Election, Leader, Lease, Lock

__all__ = [
    "CompactedError",
    "Election",
    "KeyChange",
    "KeyValue",
    "KeyValueClient",
    "Leader",
    "Lease",
    "LeaseLostError",
    "Lock",
    "NoReplicaError",
    "OutcomeUnknownError",
    "connect",
    "serve",
]
