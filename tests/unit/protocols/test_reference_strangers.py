"""What a peer may send without doing harm: garbage, frames of strangers, wild claims. Never raised, all counted."""

from random import Random

import pytest

from duo import ALICE, BOB, DOMAIN, GROUP, Duo
from effects import datagrams, deliveries, events
from vivum.core.ids import Endpoint, NodeId
from vivum.core.time import SECOND
from vivum.protocols.commands import GapReported
from vivum.wire.codec import FrameBuilder
from vivum.wire.control import Ack, ControlMessage, Heartbeat, Nak, encode_control
from vivum.wire.kinds import Kind

MALLORY = Endpoint("mallory", 666)
HUGE = (1 << 64) - 2


def data(
    sequence: int = 0,
    *,
    sender: int = ALICE,
    incarnation: int = 1,
    group: int = GROUP,
    inner_group: int | None = None,
    message: int = 0,
    domain: int = DOMAIN,
) -> bytes:
    builder = FrameBuilder(1472)
    builder.append(group if inner_group is None else inner_group, message, b"payload")
    return builder.seal(Kind.DATA, domain, sender, incarnation, group, 0, sequence, 0)


def control(
    kind: Kind, body: ControlMessage, *, sender: int = ALICE, incarnation: int = 1, group: int = GROUP
) -> bytes:
    return encode_control(kind, DOMAIN, sender, incarnation, group, 0, 0, body)


REFUSED: dict[str, tuple[bytes, str]] = {
    "garbage": (b"hello, world" * 10, "frames_refused_version"),
    "nothing": (b"", "frames_refused_decode"),
    "torn": (data()[:-1], "frames_refused_decode"),
    "another version": (b"\x63" + data()[1:], "frames_refused_version"),
    "another domain": (data(domain=DOMAIN ^ 1), "frames_refused_domain"),
    "a stranger": (data(sender=99), "frames_refused_state"),
    "the node itself": (data(sender=BOB), "frames_refused_state"),
    "another group": (data(group=8), "frames_refused_state"),
    "another group inside": (data(inner_group=8), "frames_refused_state"),
    "an answer to a stream that does not exist": (control(Kind.ACK, Ack(1, 5)), "frames_refused_state"),
    "a request to a stream that does not exist": (control(Kind.NAK, Nak(1, (0, 5))), "frames_refused_state"),
    "a heartbeat of a stranger": (control(Kind.HEARTBEAT, Heartbeat(0, 5, 0), sender=99), "frames_refused_state"),
    "a body that is no message": (data()[:1] + bytes([Kind.ACK]) + data()[2:], "frames_refused_decode"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_accepted_is_counted_once_and_changes_nothing(case: str) -> None:
    duo = Duo()
    bob = duo.node(duo.b)
    hostile, counter = REFUSED[case]
    bob.on_datagrams(duo.pair.clock.now_ns, [(MALLORY, hostile)])
    assert getattr(bob.counters, counter) == 1
    refused = sum(value for name, value in bob.counters.as_dict().items() if name.startswith("frames_refused"))
    assert refused == 1
    assert deliveries(bob.take_output()) == []
    # The real Alice is heard as if nothing had happened, but for a frame 0 that was taken from "her".
    duo.send(duo.a, b"hello")
    duo.pair.run_for(SECOND)
    if case != "another group inside":
        assert duo.got(duo.b, ALICE) == [b"hello"]


def test_a_kind_that_no_protocol_takes_is_refused() -> None:
    duo = Duo()
    bob = duo.node(duo.b)
    frame = bytearray(data())
    for kind in Kind:
        if kind in (Kind.DATA, Kind.RESENT, Kind.NAK, Kind.ACK, Kind.HEARTBEAT):
            continue
        frame[1] = kind
        bob.on_datagrams(duo.pair.clock.now_ns, [(MALLORY, bytes(frame))])
    assert bob.counters.frames_refused_kind == len(Kind) - 5
    assert bob.take_output() == []


def test_nobody_can_acknowledge_what_was_never_sent() -> None:
    duo = Duo()
    duo.drop_all()
    duo.send(duo.a, b"x")
    alice = duo.node(duo.a)
    alice.on_datagrams(duo.pair.clock.now_ns, [(duo.b, control(Kind.ACK, Ack(1, 2), sender=BOB))])
    assert alice.counters.frames_refused_state == 1
    assert alice.counters.messages_stable == 0


@pytest.mark.parametrize("bounds", [(0, HUGE), (5, 6), (0, 1, 2, 3, HUGE - 1, HUGE)])
def test_a_request_for_anything_gets_at_most_what_is_kept(bounds: tuple[int, ...]) -> None:
    duo = Duo(repairs_per_nak_max=3)
    duo.drop_all()
    for number in range(5):
        duo.send(duo.a, b"%d" % number)
    alice = duo.node(duo.a)
    alice.on_datagrams(duo.pair.clock.now_ns, [(duo.b, control(Kind.NAK, Nak(1, bounds), sender=BOB))])
    assert len(datagrams(alice.take_output())) <= 3


CLAIMS: list[bytes] = [
    data(HUGE),
    data(HUGE, message=HUGE),
    data(0, message=HUGE),
    data(5, message=5),
    control(Kind.HEARTBEAT, Heartbeat(0, HUGE, 0)),
    control(Kind.HEARTBEAT, Heartbeat(HUGE, HUGE, HUGE)),
    control(Kind.HEARTBEAT, Heartbeat(0, 0, HUGE)),
    control(Kind.ACK, Ack(1, HUGE)),
    control(Kind.NAK, Nak(1, (0, HUGE))),
    data(0, incarnation=65_535),
    data(0, incarnation=0),
]


@pytest.mark.parametrize("reliable", [True, False])
def test_no_sequence_of_wild_claims_of_a_member_raises_or_grows_without_end(reliable: bool) -> None:
    rng = Random(1)
    for _ in range(100):
        duo = Duo(reliable=reliable, window_frames=64)
        duo.send(duo.b, b"x")
        bob = duo.node(duo.b)
        for claim in rng.choices(CLAIMS, k=8):
            bob.on_datagrams(duo.pair.clock.now_ns, [(duo.a, claim)])
            duo.pair.run_for(rng.randrange(SECOND))
        duo.send(duo.a, b"still here")
        duo.pair.run_for(30 * SECOND)
        (machine,) = bob._protocols
        assert all(len(stream._held) <= 64 for stream in machine._incoming.values())


def test_random_bytes_and_random_changes_of_good_frames_never_raise() -> None:
    rng = Random(2)
    duo = Duo()
    bob = duo.node(duo.b)
    for _ in range(3000):
        frame = bytearray(rng.choice(CLAIMS))
        for _ in range(rng.randrange(4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        bob.on_datagrams(duo.pair.clock.now_ns, [(MALLORY, bytes(frame[: rng.randrange(len(frame) + 1) or None]))])
        duo.pair.clock.advance(rng.randrange(1000))
        bob.on_timer(duo.pair.clock.now_ns)
        bob.take_output()


def test_new_streams_beyond_the_limit_are_refused_and_counted() -> None:
    duo = Duo(streams_max=1, nodes=(NodeId(1), NodeId(2), NodeId(3)))
    bob = duo.node(duo.b)
    bob.on_datagrams(duo.pair.clock.now_ns, [(duo.a, data(sender=1))])
    bob.on_datagrams(duo.pair.clock.now_ns, [(duo.a, data(sender=3))])
    assert bob.counters.frames_refused_state == 1
    assert len(deliveries(bob.take_output())) == 1


def test_a_gap_that_a_heartbeat_claims_is_reported_once() -> None:
    duo = Duo()
    bob = duo.node(duo.b)
    for _ in range(3):
        bob.on_datagrams(duo.pair.clock.now_ns, [(duo.a, control(Kind.HEARTBEAT, Heartbeat(10, 10, 30)))])
    gaps = [event for event in events(bob.take_output()) if isinstance(event, GapReported)]
    assert [(gap.first, gap.stop) for gap in gaps] == [(0, 30)]
