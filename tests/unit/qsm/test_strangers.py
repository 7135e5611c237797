"""What strangers and lying members can do to QSM: nothing but be counted."""

import pytest

from live_wire.wired import DOMAIN, Wire
from vivum.core.ids import Endpoint, GroupId, Incarnation, Member, NodeId
from vivum.core.time import SECOND
from vivum.protocols.commands import LeaveGroup, SendConfirmed, SendMessages
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.wire.codec import FrameBuilder
from vivum.wire.control import encode_control
from vivum.wire.fields import ControlMessage
from vivum.wire.kinds import Kind
from vivum.wire.membership import Removal
from vivum.wire.tokens import NO_VOTE, NOBODY, RegionReport, RepairRequest, StreamProgress, StreamRecord, Token

GROUP = GroupId(5)
STRANGER = Endpoint("6.6.6.6", 666)
FAR = 1 << 40


class Scene:
    """Three members; the first has sent three messages that all have."""

    def __init__(self) -> None:
        self.wire = Wire(3, GROUP)
        self.a, self.b, self.c = self.wire.members
        self.send(b"x", b"y", b"z")
        self.wire.advance(SECOND)
        ((self.region, self.view),) = self.wire.members[self.a].qsm.sending.streams

    def send(self, *payloads: bytes) -> None:
        self.wire.members[self.a].node.submit(self.wire.now_ns, SendMessages(GROUP, list(payloads)))
        self.wire.settle()

    def life(self, place: Endpoint) -> Member:
        member = self.wire.members[place].client.member
        assert member is not None
        return member

    def control(self, kind: Kind, speaker: Member, body: ControlMessage) -> bytes:
        return encode_control(kind, DOMAIN, *speaker, self.region, self.view, self.wire.now_ns, body)

    def throw(self, target: Endpoint, source: Endpoint, data: bytes) -> int:
        """Let a datagram arrive; return how many frames were refused because of it."""
        counters = self.wire.members[target].counters
        before = counters.frames_refused_state
        self.wire.members[target].node.on_datagrams(self.wire.now_ns, ((source, data),))
        self.wire.settle()
        return counters.frames_refused_state - before

    def stream_at(self, place: Endpoint) -> StreamReceiver:
        return self.wire.members[place].qsm.regions[self.region, self.view].streams[self.life(self.a)]

    def got(self, place: Endpoint) -> list[bytes]:
        return [payload for run in self.wire.delivered[place] for payload in run.payloads]

    def lives(self) -> list[Member]:
        return [self.life(place) for place in (self.a, self.b, self.c)]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_report_of_a_stranger_confirms_nothing(scene: Scene) -> None:
    """B3: a datagram from anywhere made a sender forget frames that nobody has."""
    scene.wire.fate = lambda sent: [each for each in sent if each[0].port == 1000]
    scene.send(b"not yet")
    stream = scene.wire.members[scene.a].qsm.sending.streams[scene.region, scene.view]
    stop = stream.next_frame
    report = RegionReport(scene.life(scene.a).incarnation, stop, stop, (), 0, confirmed=stop)
    before = len(scene.wire.events[scene.a])
    made_up = Member(77, 1)  # type: ignore[arg-type]
    for speaker, source in ((made_up, STRANGER), (scene.life(scene.b), STRANGER), (made_up, scene.b)):
        assert scene.throw(scene.a, source, scene.control(Kind.ACK, speaker, report)) == 1
    assert not [each for each in scene.wire.events[scene.a][before:] if isinstance(each, SendConfirmed)]
    assert stream.first < stop
    scene.wire.fate = lambda sent: sent
    scene.wire.advance(8 * SECOND)
    assert scene.got(scene.b) == scene.got(scene.c) == [b"x", b"y", b"z", b"not yet"]


def data_frame(
    scene: Scene, sequence: int, first: int, payload: bytes, kind: Kind = Kind.DATA, life: Member | None = None
) -> bytes:
    builder = FrameBuilder(1400)
    builder.append(GROUP, first, payload)
    sender = life or scene.life(scene.a)
    return builder.seal(kind, DOMAIN, *sender, scene.region, scene.view, sequence, scene.wire.now_ns)


@pytest.mark.parametrize("source", [STRANGER, Endpoint("10.0.0.1", 1002)])
def test_data_is_taken_from_the_endpoint_of_its_sender_alone(scene: Scene, source: Endpoint) -> None:
    """F4: the forged message was delivered, and the real one then taken for a duplicate."""
    stream = scene.stream_at(scene.c)
    assert scene.throw(scene.c, source, data_frame(scene, stream.window.prefix, 3, b"forged")) == 1
    scene.send(b"real")
    assert scene.got(scene.c)[-1] == b"real"


def test_a_repair_is_taken_from_members_alone(scene: Scene) -> None:
    stream = scene.stream_at(scene.c)
    again = data_frame(scene, stream.window.prefix, 3, b"forged", Kind.RESENT)
    assert scene.throw(scene.c, STRANGER, again) == 1
    scene.send(b"real")
    assert scene.got(scene.c)[-1] == b"real"


def test_a_heartbeat_of_a_stranger_says_nothing(scene: Scene) -> None:
    """F3."""
    progress = scene.control(Kind.HEARTBEAT, scene.life(scene.a), StreamProgress(FAR, False))
    assert scene.throw(scene.b, STRANGER, progress) == 1
    assert scene.stream_at(scene.b).window.stop < FAR


def test_a_sender_that_lies_of_how_far_it_is_freezes_nobody(scene: Scene) -> None:
    """F3, by the sender itself: what was never sent is skipped at once, not number by number."""
    progress = scene.control(Kind.HEARTBEAT, scene.life(scene.a), StreamProgress(FAR, False))
    assert scene.throw(scene.b, scene.a, progress) == 0
    stream = scene.stream_at(scene.b)
    assert stream.window.stop == FAR
    stream.sender_gone = True
    stream.give_up_next()
    scene.wire.members[scene.b].qsm._fifos.deliver((scene.life(scene.a),), [])
    assert stream.delivered == FAR


def token(scene: Scene, *, streams: tuple[StreamRecord, ...] = (), bounds: tuple[int, ...] = ()) -> Token:
    requests = (RepairRequest(99, *scene.life(scene.a), bounds),) if bounds else ()
    return Token(0, 0, 7, 1, scene.life(scene.a).node, (), NO_VOTE, streams, requests)


@pytest.mark.parametrize("source", [STRANGER, Endpoint("10.0.0.1", 1001)])
def test_a_request_for_all_numbers_that_there_are_freezes_nobody(scene: Scene, source: Endpoint) -> None:
    """F2: `split_by_partition` walked through 2**60 blocks."""
    body = token(scene, bounds=(0, (1 << 64) - 1))
    assert scene.throw(scene.b, source, scene.control(Kind.TOKEN, scene.life(scene.a), body)) == 1


def test_a_token_of_a_stranger_ends_no_life(scene: Scene) -> None:
    """F6: `stable` far beyond what came made members start over."""
    record = StreamRecord(*scene.life(scene.a), FAR, FAR, FAR, False, NOBODY, 0, NOBODY, NOBODY)
    forged = scene.control(Kind.TOKEN, scene.life(scene.a), token(scene, streams=(record,)))
    before = scene.lives()
    for target in (scene.b, scene.c):
        assert scene.throw(target, STRANGER, forged) == 1
    scene.wire.advance(5 * SECOND)
    assert scene.lives() == before


def test_a_token_cannot_tell_a_sender_of_frames_that_it_never_sent(scene: Scene) -> None:
    record = StreamRecord(*scene.life(scene.a), 0, 0, FAR, False, NOBODY, 0, NOBODY, NOBODY)
    forged = scene.control(Kind.TOKEN, scene.life(scene.b), token(scene, streams=(record,)))
    assert scene.throw(scene.a, scene.b, forged) == 1


GONE = Member(NodeId(99), Incarnation(3))
"""Left before all others came, and is in no configuration; a token told of its stream."""

GONE_HOME = Endpoint("10.0.0.9", 9)


@pytest.fixture
def vouched(scene: Scene) -> Scene:
    record = StreamRecord(*GONE, 0, 0, 4, False, NOBODY, 0, NOBODY, NOBODY)
    told = scene.control(Kind.TOKEN, scene.life(scene.a), token(scene, streams=(record,)))
    assert scene.throw(scene.c, scene.a, told) == 0
    assert GONE in scene.wire.members[scene.c].qsm.regions[scene.region, scene.view].streams
    return scene


def test_a_sender_that_left_before_we_came_is_heard_from_the_place_where_it_spoke_first(vouched: Scene) -> None:
    assert vouched.throw(vouched.c, GONE_HOME, data_frame(vouched, 0, 0, b"late", life=GONE)) == 0
    assert vouched.got(vouched.c)[-1] == b"late"
    assert vouched.throw(vouched.c, STRANGER, data_frame(vouched, 1, 1, b"forged", life=GONE)) == 1
    progress = vouched.control(Kind.HEARTBEAT, GONE, StreamProgress(FAR, True))
    assert vouched.throw(vouched.c, STRANGER, progress) == 1
    assert vouched.throw(vouched.c, GONE_HOME, data_frame(vouched, 2, 2, b"again", Kind.RESENT, life=GONE)) == 0
    assert vouched.throw(vouched.c, GONE_HOME, data_frame(vouched, 1, 1, b"later", life=GONE)) == 0
    assert vouched.got(vouched.c)[-3:] == [b"late", b"later", b"again"]


def test_a_stranger_that_is_first_to_claim_to_be_such_a_sender_gets_its_stream_and_nothing_else(vouched: Scene) -> None:
    """What it can until there are keys: forge what nobody here had of that one stream, if its own words come later."""
    assert vouched.throw(vouched.c, STRANGER, data_frame(vouched, 0, 0, b"forged", life=GONE)) == 0
    assert vouched.got(vouched.c)[-1] == b"forged"
    assert vouched.throw(vouched.c, GONE_HOME, data_frame(vouched, 1, 1, b"real", life=GONE)) == 1
    # It is no member: it repairs nobody's stream, speaks for no service, and sends nothing by best effort.
    stream, me = vouched.stream_at(vouched.c), vouched.life(vouched.c)
    assert vouched.throw(vouched.c, STRANGER, data_frame(vouched, stream.window.prefix, 3, b"no", Kind.RESENT)) == 1
    term = vouched.wire.members[vouched.c].client.term
    removal = encode_control(Kind.CONFIGURATION, DOMAIN, *GONE, 0, term, vouched.wire.now_ns, Removal("", *me))
    assert vouched.throw(vouched.c, STRANGER, removal) == 1
    assert vouched.life(vouched.c) == me
    assert vouched.throw(vouched.c, STRANGER, data_frame(vouched, 0, 0, b"no", Kind.UNREPAIRED, life=GONE)) == 1
    # Nor is it one by what a member then tells of the stream: its repairs count.
    assert vouched.throw(vouched.c, vouched.a, data_frame(vouched, 1, 1, b"real", Kind.RESENT, life=GONE)) == 0
    vouched.send(b"from a")
    assert vouched.got(vouched.c)[-2:] == [b"real", b"from a"]


@pytest.mark.parametrize("kind", [Kind.TOKEN, Kind.RESENT])
def test_only_own_words_show_where_such_a_sender_is(vouched: Scene, kind: Kind) -> None:
    word = vouched.control(kind, GONE, token(vouched)) if kind is Kind.TOKEN else data_frame(
        vouched, 0, 0, b"forged", kind, life=GONE
    )  # fmt: skip
    assert vouched.throw(vouched.c, STRANGER, word) == 1
    assert vouched.throw(vouched.c, GONE_HOME, data_frame(vouched, 0, 0, b"late", life=GONE)) == 0
    assert vouched.got(vouched.c)[-1] == b"late"


def test_where_such_a_sender_was_is_forgotten_with_its_streams(vouched: Scene) -> None:
    qsm = vouched.wire.members[vouched.c].qsm
    vouched.throw(vouched.c, GONE_HOME, data_frame(vouched, 0, 0, b"late", life=GONE))
    assert qsm.homes == {GONE: GONE_HOME}
    vouched.wire.members[vouched.c].node.submit(vouched.wire.now_ns, LeaveGroup(GROUP))
    vouched.wire.advance(120 * SECOND)
    assert not qsm.regions
    assert not qsm.homes


@pytest.mark.parametrize("host", ["a\0b", "", " ", "x" * 256, "ä", "a\n"])
def test_a_host_that_no_socket_could_be_given_does_not_decode(scene: Scene, host: str) -> None:
    """F5: a beacon with host "a\\0b" made sending raise, and took deliveries of the same output along."""
    from vivum.wire.directory import Beacon

    beacon = encode_control(Kind.DISCOVERY, DOMAIN, 0, 0, 0, 0, scene.wire.now_ns, Beacon(host, 7, True, 9, 9, 0))
    counters = scene.wire.members[scene.b].counters
    before = counters.frames_refused_decode
    scene.wire.members[scene.b].node.on_datagrams(scene.wire.now_ns, ((STRANGER, beacon),))
    assert counters.frames_refused_decode == before + 1
