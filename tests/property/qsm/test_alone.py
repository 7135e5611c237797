"""What compiled code does for a message that is alone is what its twin does, and what the way of all others does."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live_wire.wired import Wire
from vivum.core.errors import NotNowError
from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import Delivery
from vivum.node.compose import MemberParts
from vivum.protocols.commands import LeaveGroup, SendMessages
from vivum.protocols.qsm import _alone_twin
from vivum.protocols.qsm.receive.stream_receiver import StreamReceiver
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.codec import FrameBuilder
from vivum.wire.kinds import Kind

GROUP = GroupId(5)
SOURCE = Endpoint("10.0.0.9", 9)
SENDER = Member(NodeId(3), Incarnation(2))
OTHERS = (GroupId(5), GroupId(6), GroupId((1 << 30) - 1))

# The compiled part and its twin.


def compiled() -> Any:
    """Find the compiled part, or skip: there is nothing to compare where it was not built."""
    return pytest.importorskip("vivum.protocols.qsm._alone")


def sealed(group: int, number: int, payload: bytes, kind: Kind, domain: int, sequence: int, sent_ns: int) -> bytes:
    builder = FrameBuilder(9000)
    builder.append(group, number, payload)
    return builder.seal(kind, domain, *SENDER, 4, 8, sequence, sent_ns)


ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from(OTHERS),
        st.integers(0, 3),
        st.binary(max_size=40),
        st.sampled_from([Kind.DATA, Kind.DATA, Kind.DATA, Kind.RESENT, Kind.SPREAD]),
        st.sampled_from([7, 7, 7, 8]),
        st.integers(0, 3),
        st.integers(0, (1 << 64) - 1),
        st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 99), st.integers(0, 255))),
        st.sampled_from(["whole", "whole", "whole", "cut", "joined", "padded"]),
        st.sampled_from(["noted", "noted", "noted", "unnoted", "disarm", "clear"]),
    ),
    max_size=12,
)


@given(ARRIVALS)
def test_the_compiled_reader_takes_what_its_twin_takes(arrivals: list[Any]) -> None:
    sides = []
    for module in (compiled(), _alone_twin):
        log: list[Any] = []
        expected = {5: 0, 6: 1}
        reader, told = module.AloneIn(7, log), []
        name = sealed(5, 0, b"", Kind.DATA, 7, 0, 0)[8:24]
        reader.arm(name, 0, SENDER, ViewNumber(8), expected, "lane")
        for group, number, payload, kind, domain, sequence, sent_ns, change, form, then in arrivals:
            data = bytearray(sealed(group, number, payload, kind, domain, sequence, sent_ns))
            if change is not None:
                data[change[0] % len(data)] ^= change[1]
            made = {"cut": bytes(data[:-1]), "joined": bytes(data) * 2, "padded": bytes(data) + b"\0"}
            heard = reader.hear(sequence, SOURCE, made.get(form, bytes(data)))
            told.append((heard, list(log), dict(expected), len(reader)))
            if then == "noted":
                log.clear()
            elif then == "disarm":
                reader.disarm(name)
            elif then == "clear":
                reader.clear()
        sides.append(told)
    assert sides[0] == sides[1]


@given(st.lists(st.binary(max_size=120), max_size=8))
def test_the_compiled_reader_refuses_random_bytes_as_its_twin_does(pieces: list[bytes]) -> None:
    for module in (compiled(), _alone_twin):
        reader = module.AloneIn(0, [])
        reader.arm(bytes(16), 0, SENDER, ViewNumber(0), {0: 0}, None)
        assert [reader.hear(1, SOURCE, each) for each in pieces] == [None] * len(pieces)


def test_a_reader_takes_the_next_message_and_not_the_same_again() -> None:
    for module in (compiled(), _alone_twin):
        log: list[Any] = []
        reader, expected = module.AloneIn(7, log), {5: 0}
        frames = [sealed(5, number, b"x", Kind.DATA, 7, number, 99) for number in range(3)]
        reader.arm(frames[0][8:24], 0, SENDER, ViewNumber(8), expected, "lane")
        assert reader.hear(1, SOURCE, frames[1]) is None, "a gap"
        assert reader.hear(1, SOURCE, frames[0]) == Delivery(GROUP, SENDER, 0, [b"x"], ViewNumber(8), 99)
        assert reader.hear(1, SOURCE, frames[1]) is None, "what came before is not noted yet"
        assert log == [("lane", 1, SOURCE, frames[0])]
        log.clear()
        assert reader.hear(1, SOURCE, frames[0]) is None, "twice"
        assert reader.hear(1, SOURCE, bytearray(frames[1])) is None  # type: ignore[arg-type]
        assert reader.hear(1, SOURCE, frames[1]) is not None
        assert expected == {5: 2}


SENDS = st.lists(
    st.tuples(
        st.sampled_from(OTHERS),
        st.one_of(
            st.binary(max_size=30).map(lambda payload: [payload]),
            st.binary(max_size=30).map(lambda payload: (payload,)),
            st.sampled_from([[], [b"a", b"b"], ["text"], [bytearray(b"x")], b"x"]),
        ),
        st.sampled_from(["", "", "", "arm", "clear"]),
    ),
    max_size=12,
)


@given(SENDS, st.integers(0, 4), st.integers(0, 300), st.integers(0, 30))
def test_the_compiled_sealer_makes_the_frames_of_its_twin(
    sends: list[Any], frames_left: int, bytes_left: int, payload_max: int
) -> None:
    sides = []
    for module in (compiled(), _alone_twin):
        log: list[Any] = []
        sealer, told = module.AloneOut(log), []
        for number, (group, payloads, then) in enumerate(sends):
            if then == "arm":
                frame = sealed(group, 3, b"last", Kind.DATA, 7, 10 + number, 1)
                sealer.arm(group, 4, frame, frames_left, bytes_left, payload_max, Channel(2), group)
            elif then == "clear":
                sealer.clear()
            told.append((sealer.seal(number, SendMessages(group, payloads)), list(log), len(sealer)))
        assert sealer.seal(1, LeaveGroup(GROUP)) is None
        sides.append(told)
    assert sides[0] == sides[1]


def test_a_sealed_frame_is_the_one_that_a_builder_makes() -> None:
    for module in (compiled(), _alone_twin):
        sealer = module.AloneOut([])
        sealer.arm(GROUP, 4, sealed(5, 3, b"", Kind.DATA, 7, 10, 1), 9, 999, 99, SOURCE, None)
        for number in range(3):
            (datagram,) = sealer.seal(50 + number, SendMessages(GROUP, [b"payload"]))
            assert datagram.destination == SOURCE
            assert datagram.data == sealed(5, 4 + number, b"payload", Kind.DATA, 7, 11 + number, 50 + number)


# Two worlds: in one the shortest way is tried first, in the other never.


class World:
    """Two or three nodes; what each of them was handed, in its order."""

    def __init__(self, nodes: int, is_short: bool) -> None:
        self.wire = Wire(nodes, GROUP, QsmSettings(rate_initial=0, window_frames=32))
        self.is_short = is_short
        self.shortest = 0
        self.handed: dict[Endpoint, list[Delivery]] = {place: [] for place in self.wire.members}
        for place, parts in self.wire.members.items():
            # Of a size that no single message here reaches: what is the most that ever waited is told.
            parts.node.submit(self.wire.now_ns, SendMessages(GROUP, [bytes(300)]))
            parts.node.take_deliveries()
            self.wire.delivered[place].clear()
        self.wire.advance(1_000_000_000)

    def send(self, sender: int, payload: bytes) -> list[tuple[Endpoint, bytes]]:
        """Send a message; return what goes out at once, and from where."""
        place = list(self.wire.members)[sender]
        node, command, datagrams = self.wire.members[place].node, SendMessages(GROUP, [payload]), None
        try:
            if self.is_short:
                datagrams = node.seal_now(self.wire.now_ns, command)
            if datagrams is None:
                datagrams = node.send_now(self.wire.now_ns, command)
            else:
                self.shortest += 1
        except NotNowError:
            return []
        return [(place, each.data) for each in datagrams]

    def hear(self, receiver: int, source: Endpoint, data: bytes) -> None:
        place = list(self.wire.members)[receiver]
        if place == source:
            return
        node = self.wire.members[place].node
        heard = node.hear_now(self.wire.now_ns, source, data) if self.is_short else None
        if heard is None:
            node.on_datagram(self.wire.now_ns, source, data)
        else:
            self.shortest += 1
            self.handed[place].append(heard)
        self.take(receiver)

    def take(self, number: int) -> None:
        place = list(self.wire.members)[number]
        self.handed[place] += self.wire.members[place].node.take_deliveries()

    def settle(self, duration_ns: int) -> None:
        self.wire.advance(duration_ns)
        for place, heard in self.wire.delivered.items():
            if place in self.handed:
                self.handed[place] += heard
                heard.clear()

    def told(self) -> tuple[object, ...]:
        """Tell all that was handed over and all that is kept."""
        return self.handed, self.wire.events, [state_of(parts) for parts in self.wire.members.values()]


def state_of(parts: MemberParts) -> tuple[object, ...]:
    qsm = parts.qsm
    deadline_ns = parts.node.next_deadline_ns()
    shared = ("window", "_placement", "_settings", "_counters", "held", "cache", "_asked", "_expected")
    streams = []
    for region in qsm.regions.values():
        for stream in region.streams.values():
            kept = {name: getattr(stream, name) for name in StreamReceiver.__slots__ if name not in shared}
            kept["_expected_before"] = list(stream._expected_before)
            window = (stream.window.prefix, stream.window.stop, stream.window.held)
            streams.append((kept, window, sorted(stream.held), sorted(stream.cache)))
    sending = [
        {name: value for name, value in vars(each).items() if name not in ("outboxes", "pacer", "_settings", "config")}
        for each in qsm.sending.streams.values()
    ]
    feeds = [(each.group, each.next_message, each.stable) for each in qsm.sending._feeds.values()]
    chains = [(each.expected, each.is_broken) for each in qsm._chains._by_sender.values()]
    return deadline_ns, streams, sending, feeds, chains, asdict(parts.counters), qsm.memory()


FATES: dict[str, Callable[[World, int, Endpoint, bytes], None]] = {
    "arrives": lambda world, to, source, data: world.hear(to, source, data),
    "is lost": lambda world, to, source, data: None,
    "comes twice": lambda world, to, source, data: [world.hear(to, source, data) for _ in range(2)] and None,
    "is torn": lambda world, to, source, data: world.hear(to, source, data[:-1]),
    "of another domain": lambda world, to, source, data: world.hear(to, source, data[:4] + b"\1\2\3\4" + data[8:]),
    "of another life": lambda world, to, source, data: world.hear(to, source, data[:12] + b"\7\0" + data[14:]),
    "of another view": lambda world, to, source, data: world.hear(to, source, data[:20] + b"\7\7\7\7" + data[24:]),
    "of another group": lambda world, to, source, data: world.hear(to, source, data[:40] + b"\6\0\0\0" + data[44:]),
    "of a stranger": lambda world, to, source, data: world.hear(to, SOURCE, data),
}

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"),
            st.integers(0, 2),
            st.integers(0, 250),
            st.sampled_from(["arrives"] * 9 + list(FATES)),
        ),
        st.tuples(st.just("many"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("pass"), st.sampled_from([1, 1_000, 50_000, 50_000_000])),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([2, 3]), STEPS)
def test_the_shortest_way_leaves_all_as_the_way_of_all_others(nodes: int, steps: list[Any]) -> None:
    told = []
    for is_short in (True, False):
        world = World(nodes, is_short)
        seen = []
        for number, step in enumerate(steps):
            world.wire.now_ns += 10_000
            if step[0] == "send":
                sender = step[1] % nodes
                for source, data in world.send(sender, bytes([number]) * step[2]):
                    for receiver in range(nodes):
                        FATES[step[3]](world, receiver, source, data)
                world.take(sender)
            elif step[0] == "many":
                place = list(world.wire.members)[step[1] % nodes]
                world.wire.members[place].node.submit(
                    world.wire.now_ns, SendMessages(GROUP, [b"%d" % number] * step[2])
                )
                world.settle(1)
            else:
                world.settle(step[1])
            seen.append({place: list(each) for place, each in world.handed.items()})
        seen.append(world.told())
        world.settle(2_000_000_000)
        told.append((seen, world.told()))
    assert told[0] == told[1]


def test_a_conversation_takes_the_shortest_way_from_its_third_message_on() -> None:
    world = World(2, True)
    for number in range(20):
        world.wire.now_ns += 10_000
        for source, data in world.send(number % 2, b"x"):
            world.hear(1 - number % 2, source, data)
        world.take(number % 2)
    assert world.shortest == 2 * 20 - 4
    for parts in world.wire.members.values():
        assert parts.counters.messages_accepted == 11
        assert parts.counters.messages_delivered == 22
