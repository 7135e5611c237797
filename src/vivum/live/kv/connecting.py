"""Reaching a store, and running a replica of one."""

import os
from collections.abc import Callable, Mapping, Sequence

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, NodeId
from vivum.core.machine import Event
from vivum.core.text import check_text
from vivum.live.connecting import is_loopback, seed_endpoint
from vivum.live.kv.client import KV_GROUP, KeyValueClient
from vivum.protocols.consensus.client_settings import LogServerSettings
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration
from vivum.protocols.consensus.settings import ConsensusSettings
from vivum.protocols.kv.store import KeyValueStore
from vivum.runtime.defaults import read_defaults
from vivum.runtime.environment import current_environment
from vivum.runtime.replica_host import ReplicaHost
from vivum.runtime.udp import packed_interface
from vivum.wire.gate import domain_tag

TIMEOUT_S = 10.0
"""How long a call waits for its answer."""


def connect(
    replicas: Sequence[str], *, domain: str | None = None, interface: str | None = None, timeout_s: float = TIMEOUT_S
) -> KeyValueClient:
    """Reach the store of a domain: `async with vivum.kv.connect(["10.0.0.1:7100", …]) as kv:`.

    Some of its replicas are enough: they name the leader. `interface` is the IPv4 address of the network to use;
    `vivum.runtime.defaults` says what stands for it and for the domain if they are not given.
    """
    defaults = read_defaults()
    interface = interface or defaults.interface
    if isinstance(replicas, str) or not replicas:
        raise UsageError(f"replicas={replicas!r}; give a list of host:port, of at least one replica")
    if not timeout_s > 0:
        raise UsageError(f"timeout_s={timeout_s!r}; a call needs some time for its answer")
    packed_interface(interface)
    places = [_replica_endpoint(each) for each in replicas]
    for each in places:
        if is_loopback(interface) != is_loopback(each.host):
            raise UsageError(
                f"{each} cannot be reached from interface {interface}; give interface= an address of the network that "
                "the replicas are on"
            )
    tag = domain_tag(check_text(domain or defaults.domain, "domain"))
    return KeyValueClient(tag, places, interface, timeout_s)


def serve(
    replica: int,
    peers: Mapping[int, str],
    state_dir: str | os.PathLike[str],
    *,
    domain: str | None = None,
    fsync: str = "group",
    on_failed: Callable[[Exception], None] | None = None,
) -> ReplicaHost:
    """Run one replica of a store on the current event loop, until it is closed.

    `peers` has the addresses of all replicas by their numbers, this one's too: one, three or five, the same at all.
    They count when the store is founded; later the state knows. The state directory belongs to this replica for good:
    one that has lost it must come back under another number. `fsync="none"` leaves it to the kernel when to write.
    """
    if replica not in peers:
        raise UsageError(f"replica {replica} is not among the peers {', '.join(map(str, sorted(peers)))}; name it too")
    if any(not 0 < each < 1 << 16 for each in peers):
        raise UsageError("replicas have numbers from 1 to 65,535")
    if len(peers) % 2 == 0:
        raise UsageError(
            f"{len(peers)} replicas are an even number, which survives no more failures than {len(peers) - 1}; "
            f"run {len(peers) - 1} or {len(peers) + 1}"
        )
    places = {number: _replica_endpoint(each) for number, each in peers.items()}
    if len(set(places.values())) < len(places):
        raise UsageError("two replicas have the same address; each needs its own host:port")
    founders = ReplicaConfiguration(Replica(number, *place) for number, place in sorted(places.items()))
    tag, own = domain_tag(check_text(domain or read_defaults().domain, "domain")), places[replica]
    environment = current_environment()
    frame_bytes_max = environment.payload_bytes(own.host)
    port = environment.open_port(tag, own.host, port=own.port, multicast=False, shared_memory=False)
    return ReplicaHost(
        port,
        tag,
        KV_GROUP,
        NodeId(replica),
        KeyValueStore(),
        founders=founders,
        state_dir=state_dir,
        fsync=fsync,
        settings=ConsensusSettings(frame_bytes_max=frame_bytes_max),
        serves=LogServerSettings(frame_bytes_max=frame_bytes_max),
        on_event=_ignore,
        on_failed=on_failed,
    )


def _ignore(_: Event) -> None:
    """Take what a replica tells: nobody here wants to know."""


def _replica_endpoint(address: str) -> Endpoint:
    try:
        return seed_endpoint(address)
    except UsageError as error:
        raise UsageError(f"address of a replica: {error}") from None
