"""What machines caused: parts of a list of effects, each in its order, and trace records."""

from collections.abc import Iterable

from vivum.core.machine import ROOM_BYTES_UNLIMITED, Datagram, Delivery, Effect, Event
from vivum.observe.trace import TraceRecord
from vivum.protocols.contract import ProtocolMachine


def deliveries(effects: Iterable[Effect]) -> list[Delivery]:
    """Return what was delivered."""
    return [effect for effect in effects if isinstance(effect, Delivery)]


def events(effects: Iterable[Effect]) -> list[Event]:
    """Return what was told."""
    return [effect for effect in effects if isinstance(effect, Event)]


def datagrams(effects: Iterable[Effect]) -> list[Datagram]:
    """Return what was sent."""
    return [effect for effect in effects if isinstance(effect, Datagram)]


def take(protocol: ProtocolMachine) -> list[Effect]:
    """Take what a protocol caused, then the frames that are due, as a node does."""
    frames = protocol.make_frames(ROOM_BYTES_UNLIMITED)
    taken = [*protocol.effects, *frames]
    protocol.effects.clear()
    return taken


class MemoryTrace:
    """A tracer that keeps all records."""

    def __init__(self) -> None:
        self.records: list[TraceRecord] = []

    def __call__(self, record: TraceRecord) -> None:
        """Keep one record."""
        self.records.append(record)
