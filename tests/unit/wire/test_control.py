import msgspec
import pytest

from vivum.core.errors import DecodeError, UsageError
from vivum.core.limits import Limits
from vivum.wire.codec import FrameBuilder, seal_control, split
from vivum.wire.consensus import (
    TERM_MAX,
    AppendEntries,
    AppendReply,
    HeartbeatReply,
    InstallSnapshot,
    LeaderHeartbeat,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from vivum.wire.control import (
    CONTROL_TYPES,
    Ack,
    Heartbeat,
    Nak,
    decode_control,
    encode_control,
)
from vivum.wire.directory import (
    Beacon,
    Browse,
    Enter,
    Entered,
    Farewell,
    Listing,
    LoadQuery,
    LoadReport,
    NodeRecord,
    Roll,
    Roster,
    Seek,
    SendingQuery,
    SendingReport,
    TopicEntry,
    TopicLoad,
    TopicRecord,
)
from vivum.wire.fields import ControlMessage
from vivum.wire.kinds import KINDS, Kind
from vivum.wire.layout import GROUP_MAX
from vivum.wire.log_clients import (
    CommandAnswer,
    CommandRequest,
    FollowRequest,
    QueryAnswer,
    QueryRequest,
    Redirection,
    RequestRefused,
    SessionAnswer,
    SessionRequest,
)
from vivum.wire.membership import (
    SUBSCRIBE_RANGES_MAX,
    Alive,
    Configuration,
    ConfigurationAck,
    FailureReport,
    Join,
    Leave,
    Probe,
    Removal,
    Subscribe,
    Welcome,
)
from vivum.wire.rings import TokenReceipt
from vivum.wire.standby import (
    Candidacy,
    CopyAck,
    ServiceStatus,
    StandbyAddress,
    StateChanges,
    StateCopy,
    Succession,
    Support,
)
from vivum.wire.timely import NAME, LateralRepair, StreamState, TimelyAsk, TimelyNak, TimelyProgress, TimelyReport
from vivum.wire.tokens import (
    NO_VOTE,
    NOBODY,
    RateVote,
    RegionReport,
    RepairRequest,
    StreamProgress,
    StreamRecord,
    Token,
)

TOP = 2**64 - 1
RANGES = Limits().ranges_max
STATUS = StreamRecord(1, 2, 4, 3, 9, False, 5, 7, 6, NOBODY, delivered=4)
REQUEST = RepairRequest(3, 1, 2, (5, 6))


def token(records: tuple[StreamRecord, ...] = (), requests: tuple[RepairRequest, ...] = ()) -> Token:
    return Token(0, 1, 2, 3, 4, (5, 6), NO_VOTE, records, requests)


STANDING = ServiceStatus(2**32 - 1, "", 0, (StandbyAddress("10.0.0.1", 1),), (5, 1 << 20))

HEADER = (1, 2, 3, 4, 5, 6)  # domain, sender, incarnation, region, view, sent_ns

SAMPLES = [
    (Kind.NAK, Nak(3, (1, 2, 5, TOP))),
    (Kind.ACK, Ack(3, TOP)),
    (Kind.HEARTBEAT, Heartbeat(1, 1)),
    (Kind.HEARTBEAT, Heartbeat(0, TOP, 7)),
    (Kind.TOKEN, token((STATUS, STATUS), (REQUEST,))),
    (Kind.TOKEN, token()),
    (Kind.TOKEN, TokenReceipt(0, 1, 2, TOP, 4)),
    (Kind.ACK, RegionReport(1, TOP, 5, (1, 2), 0)),
    (Kind.HEARTBEAT, StreamProgress(TOP, True)),
    (Kind.MEMBERSHIP, Join("a process", 7, "10.0.0.1", 65535)),
    (Kind.MEMBERSHIP, Leave()),
    (Kind.MEMBERSHIP, Subscribe(1, (0, 8192, GROUP_MAX, GROUP_MAX + 1), ())),
    (Kind.MEMBERSHIP, Subscribe(TOP, (), tuple(range(2 * SUBSCRIBE_RANGES_MAX)))),
    (Kind.MEMBERSHIP, ConfigurationAck(3)),
    (Kind.MEMBERSHIP, FailureReport(1, 2, 3)),
    (Kind.MEMBERSHIP, Alive()),
    (Kind.CONFIGURATION, Welcome("ä process", 1, 2)),
    (Kind.CONFIGURATION, Removal("", 1, 2)),
    (Kind.CONFIGURATION, Probe(1, 2)),
    (Kind.CONFIGURATION, Configuration(1, 2, TOP, 0, 0, 0, 1, 2**32 - 1, b"")),
    (Kind.CONFIGURATION, Configuration(1, 2, 3, 4, 5, 65534, 65535, 7, b"content")),
    (Kind.CONFIGURATION, STANDING),
    (Kind.CONFIGURATION, Candidacy(1, 2**32 - 1)),
    (Kind.MEMBERSHIP, Support(1, True)),
    (Kind.REPLICA, StateCopy(TOP, 0, 1, 7, b"content")),
    (Kind.REPLICA, StateChanges(TOP, (b"", b"entry"))),
    (Kind.REPLICA, CopyAck(0)),
    (Kind.REPLICA, Succession(STANDING)),
    (Kind.DISCOVERY, Seek("10.0.0.1", 7000, TOP, True, False)),
    (Kind.DISCOVERY, Beacon("10.0.0.1", 7000, True, 3, 2, TOP)),
    (Kind.DISCOVERY, Farewell("10.0.0.1", 7000)),
    (Kind.DIRECTORY, Enter(TOP, (TopicEntry("/a", '"bytes"', "reliable"), TopicEntry("/b", "", "x", GROUP_MAX)))),
    (Kind.DIRECTORY, Browse(1, "/a/*", 2, True)),
    (Kind.DIRECTORY, Roll(1, 2)),
    (Kind.TOPICS, Entered(1, (TopicRecord("/a", 1, 2, "", "reliable", 0),), "refused")),
    (Kind.TOPICS, Listing(1, (TopicRecord("/a", 1, 2, "", "reliable", 3),), 1, 2, True)),
    (Kind.TOPICS, Roster(1, (NodeRecord(1, 2, "a process", "10.0.0.1", 7000, 3),), False)),
    (Kind.SURVEY, LoadQuery(TOP)),
    (Kind.SURVEY, LoadReport(1, 2, 3, "a process", 4, 5, 6, 7, 8, 9, (TopicLoad("/a", 1, TOP),))),
    (Kind.SURVEY, SendingQuery(1, "/a")),
    (Kind.SURVEY, SendingReport(1, 2, 3, 4, TOP)),
    (Kind.CONSENSUS, VoteRequest(TERM_MAX, 7, 6, True, False)),
    (Kind.CONSENSUS, Vote(3, False, True)),
    (Kind.CONSENSUS, LeaderHeartbeat(3, 9, 7)),
    (Kind.CONSENSUS, HeartbeatReply(3, 9, 0, 7)),
    (Kind.CONSENSUS, AppendReply(3, 9, 0, 8, 7, 0)),
    (Kind.CONSENSUS, SnapshotReply(3, 9, 8, 100)),
    (Kind.CONSENSUS, TimeoutNow(3)),
    (Kind.ENTRIES, AppendEntries(3, 9, 7, 3, 6, 0, 0, b"batches")),
    (Kind.ENTRIES, AppendEntries(3, 9, 7, 3, 6, 10, 15, b"batch")),
    (Kind.ENTRIES, InstallSnapshot(3, 9, 8, 0, 1000, b"part")),
    (Kind.REQUEST, SessionRequest(TERM_MAX)),
    (Kind.REQUEST, CommandRequest(1, 2, 3, 3, 65_535, 10, 15, b"whole")),
    (Kind.REQUEST, QueryRequest(1, True, b"query")),
    (Kind.REQUEST, FollowRequest(1, TERM_MAX, b"")),
    (Kind.ANSWER, SessionAnswer(1, 2)),
    (Kind.ANSWER, CommandAnswer(1, 2, 0, 6, b"answer")),
    (Kind.ANSWER, QueryAnswer(1, 2, 0, 0, b"")),
    (Kind.ANSWER, QueryAnswer(1, 2, 1, 7, b"answer")),
    (Kind.ANSWER, Redirection(1, 0, None)),
    (Kind.ANSWER, Redirection(1, 3, ("10.0.0.1", 65535))),
    (Kind.ANSWER, RequestRefused(1, "over a limit")),
    (Kind.LATERAL, LateralRepair(NAME.pack(1, 2, 3, 4, 5) + NAME.pack(1, 2, 3, 5, 5), b"xor")),
    (Kind.GROUP_WORD, TimelyNak(1, (TimelyAsk(GROUP_MAX, (0, TOP)), TimelyAsk(1)))),
    (Kind.GROUP_WORD, TimelyProgress(1, (StreamState(1, 2, 3, 4, 5),))),
    (Kind.GROUP_WORD, TimelyReport(1, ((1, TOP),))),
]


def frame_with(body, kind):
    return split(seal_control(kind, 1, 2, 3, 4, 5, 0, 6, body))[0]


@pytest.mark.parametrize(("kind", "message"), SAMPLES)
def test_a_message_comes_back_as_it_was(kind, message):
    (frame,) = split(encode_control(kind, *HEADER, message, sequence=7, key_epoch=8))
    assert decode_control(frame) == message
    assert (frame.kind, frame.domain, frame.sender, frame.incarnation) == (kind, 1, 2, 3)
    assert (frame.region, frame.view, frame.sent_ns, frame.sequence, frame.key_epoch) == (4, 5, 6, 7, 8)


def tagged_below(base):
    """All message types of ours; those of tests that happen to run in this process are not."""
    for each in base.__subclasses__():
        if each.__struct_config__.tag is not None and each.__module__.startswith("vivum."):
            yield each
        yield from tagged_below(each)


def test_a_token_is_its_envelope_and_then_its_payload():
    message = Token(0, 1, 2, 3, 4, (5, 6), RateVote(1, 2, 3, 4, 5), (STATUS,), (REQUEST,))
    expected = (
        "9a 04 00 01 02 03 04 920506 950102030405 "
        "919f0102040309c2050706cfffffffffffffffff0000900004 9196030102920506c200"
    )
    assert msgspec.msgpack.encode(message) == bytes.fromhex(expected)


def test_every_control_kind_and_every_type_is_covered():
    assert set(CONTROL_TYPES) == {kind for kind, info in KINDS.items() if not info.has_messages}
    listed = [each for types in CONTROL_TYPES.values() for each in types]
    assert sorted(map(repr, listed)) == sorted(map(repr, tagged_below(ControlMessage)))
    assert {type(message) for _, message in SAMPLES} == set(listed)
    tags = [each.__struct_config__.tag for each in listed]
    assert len(set(tags)) == len(tags), "tags are unique"


@pytest.mark.parametrize(("kind", "message"), SAMPLES)
def test_a_type_of_another_kind_is_refused_on_both_sides(kind, message):
    body = msgspec.msgpack.encode(message)
    for other in set(CONTROL_TYPES) - {kind}:
        with pytest.raises(DecodeError, match=f"body of {other.name}"):
            decode_control(frame_with(body, other))
        with pytest.raises(UsageError, match="carries"):
            encode_control(other, *HEADER, message)


@pytest.mark.parametrize(("kind", "message"), SAMPLES)
def test_a_body_cut_or_lengthened_at_any_byte_is_refused(kind, message):
    body = msgspec.msgpack.encode(message)
    # The long one is thousands of numbers alike: of those in its middle some are enough.
    end = max(len(body) - 1000, 1000)
    stops = [*range(min(len(body), 1000)), *range(1000, end, 29), *range(end, len(body))]
    for wrong in [body[:stop] for stop in stops] + [body + b"\0", body + body]:
        with pytest.raises(DecodeError):
            decode_control(frame_with(wrong, kind))


@pytest.mark.parametrize(
    ("kind", "message", "reason"),
    [
        (Kind.NAK, Nak(1, ()), "asks for nothing"),
        (Kind.NAK, Nak(1, (1, 2, 3)), "odd in number"),
        (Kind.NAK, Nak(1, (1, 1)), "do not increase"),
        (Kind.NAK, Nak(1, (1, 3, 3, 4)), "do not increase"),
        (Kind.NAK, Nak(1, (5, 6, 1, 2)), "do not increase"),
        (
            Kind.NAK,
            Nak(1, tuple(range(2 * RANGES + 2))),
            f"{RANGES + 1} ranges; at most ranges_max, {RANGES}",
        ),
        (Kind.HEARTBEAT, Heartbeat(2, 1), "stop is below first"),
        (Kind.TOKEN, token((StreamRecord(1, 1, 4, 5, 6, False, 4, 1, 4, 4),)), "do not increase"),
        (Kind.TOKEN, token((StreamRecord(1, 1, 7, 5, 6, False, 4, 1, 4, 4),)), "do not increase"),
        (Kind.TOKEN, token(requests=(RepairRequest(3, 1, 2, (1,)),)), "odd in number"),
        (Kind.TOKEN, token(requests=(RepairRequest(3, 1, 2, (2, 1)),)), "do not increase"),
        (Kind.TOKEN, token(requests=(RepairRequest(3, 1, 2, ()),)), "asks for nothing"),
        (Kind.ACK, RegionReport(1, 1, 1, (2, 1), 0), "do not increase"),
        (Kind.MEMBERSHIP, Subscribe(1, (1, 2, 3), ()), "odd in number"),
        (Kind.MEMBERSHIP, Subscribe(1, (), (1, 3, 3, 4)), "do not increase"),
        (Kind.MEMBERSHIP, Subscribe(1, (0, 1), tuple(range(2 * SUBSCRIBE_RANGES_MAX))), "4097 ranges of groups"),
        (Kind.CONFIGURATION, Configuration(1, 2, 3, 4, 5, 1, 1, 7, b""), "part 1 of 1"),
        (Kind.CONFIGURATION, Configuration(1, 2, 3, 0, 0, 0, 0, 7, b""), "part 0 of 0"),
        (Kind.CONFIGURATION, Configuration(1, 2, 3, 5, 4, 0, 1, 7, b""), "epoch is below base"),
    ],
)
def test_values_that_cannot_be_are_refused_on_both_sides(kind, message, reason):
    with pytest.raises(DecodeError, match=reason):
        decode_control(frame_with(msgspec.msgpack.encode(message), kind))
    with pytest.raises(UsageError, match=reason):
        encode_control(kind, *HEADER, message)


def test_the_limit_of_ranges_is_the_receivers():
    frame = frame_with(msgspec.msgpack.encode(Nak(1, (1, 2, 5, 6))), Kind.NAK)
    assert decode_control(frame, Limits(ranges_max=2))
    with pytest.raises(DecodeError, match="2 ranges"):
        decode_control(frame, Limits(ranges_max=1))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.NAK, b""),
        (Kind.NAK, b"\xc1"),
        (Kind.NAK, b"\xdd\xff\xff\xff\xff"),
        (Kind.NAK, msgspec.msgpack.encode([1, 1, [1, 2**63, -1]])),
        (Kind.NAK, msgspec.msgpack.encode([1, 65536, [1, 2]])),
        (Kind.NAK, msgspec.msgpack.encode([1, True, [1, 2]])),
        (Kind.NAK, msgspec.msgpack.encode([1, 1, [1.0, 2.0]])),
        (Kind.NAK, msgspec.msgpack.encode([1, 1, [1, 2], "more"])),
        (Kind.NAK, msgspec.msgpack.encode([99, 1, [1, 2]])),
        (Kind.NAK, msgspec.msgpack.encode({"incarnation": 1, "bounds": [1, 2]})),
        (Kind.ACK, b"\x91" * 60_000),
        (Kind.MEMBERSHIP, b"\x95\x05\xa2\xff\xfe\x00\xa1h\x01"),
        (Kind.MEMBERSHIP, msgspec.msgpack.encode([5, "", 0, "h", 1])),
        (Kind.MEMBERSHIP, msgspec.msgpack.encode([5, "n" * 256, 0, "h", 1])),
        (Kind.MEMBERSHIP, msgspec.msgpack.encode([8, 1, [0, GROUP_MAX + 2], []])),
    ],
)
def test_garbage_gives_a_decode_error_and_nothing_else(kind, body):
    with pytest.raises(DecodeError, match=f"^body of {kind.name}: "):
        decode_control(frame_with(body, kind))


def test_a_frame_of_messages_has_no_control_message():
    (frame,) = split(FrameBuilder(100).seal(Kind.DATA, 1, 2, 3, 4, 5, 6, 7))
    with pytest.raises(UsageError, match="kind DATA carries messages"):
        decode_control(frame)


def test_how_many_ranges_fit_one_frame_of_ethernet_at_worst():
    limits = Limits(ranges_max=100)
    worst = tuple(range(TOP - 2 * 79, TOP))
    assert len(encode_control(Kind.NAK, *HEADER, Nak(1, worst), limits=limits)) <= 1472
    one_more = (worst[0] - 2, worst[0] - 1, *worst)
    assert len(encode_control(Kind.NAK, *HEADER, Nak(1, one_more), limits=limits)) > 1472
