import pytest

from effects import MemoryTrace
from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.observe.trace import FrameDropped
from vivum.wire.codec import FrameBuilder, seal_control
from vivum.wire.control import Ack, Nak, encode_control
from vivum.wire.gate import Gate, domain_tag
from vivum.wire.kinds import Kind

OURS, FOREIGN = domain_tag("ours"), domain_tag("foreign")
SOURCE = Endpoint("10.0.0.1", 7000)
ME = Member(NodeId(9), Incarnation(3))


class Scene:
    def __init__(self, limits=None):
        self.counters = Counters()
        self.trace = MemoryTrace()
        self.gate = Gate(OURS, self.counters, ME, self.trace, limits or Limits())

    def refusals(self):
        return {
            name.removeprefix("frames_refused_"): value
            for name, value in self.counters.as_dict().items()
            if name.startswith("frames_refused_") and value
        }


@pytest.fixture
def scene():
    return Scene()


def data_frame(domain=OURS, sequence=0):
    builder = FrameBuilder(200)
    builder.append(1, 0, b"abc")
    return builder.seal(Kind.DATA, domain, 2, 3, 4, 5, sequence, 6)


def test_good_frames_pass_and_are_counted(scene):
    data = data_frame(sequence=1) + data_frame(sequence=2)
    (train,) = scene.gate.open(100, SOURCE, data)
    assert [frame.sequence for frame in train.cut()] == [1, 2]
    assert (scene.counters.datagrams_received, scene.counters.frames_received) == (1, 2)
    assert scene.counters.bytes_received == len(data)
    assert scene.refusals() == {}
    assert scene.trace.records == []


@pytest.mark.parametrize(
    ("data", "cause", "name", "told"),
    [
        (b"", "decode", "empty", "empty buffer"),
        (b"\x01\x04", "decode", "NAK", "expected a header"),
        (b"\x01\x63" + bytes(38), "decode", "kind 99", "unknown kind 99"),
        (b"\x02\x01" + bytes(100), "version", "DATA", "format version 2"),
        (data_frame()[:-1], "decode", "DATA", "states a length"),
        (data_frame() + b"\x01", "decode", "DATA", "expected a header"),
        (data_frame(FOREIGN), "domain", "DATA", f"domain {FOREIGN:08x}, ours is {OURS:08x}"),
    ],
)
def test_a_bad_buffer_is_counted_by_cause_traced_and_dropped(scene, data, cause, name, told):
    assert scene.gate.open(100, SOURCE, data) == []
    assert scene.refusals() == {cause: 1}
    assert (scene.counters.datagrams_received, scene.counters.frames_received) == (1, 0)
    assert scene.counters.bytes_received == len(data)
    (record,) = scene.trace.records
    assert isinstance(record, FrameDropped)
    assert (record.time_ns, record.node, record.incarnation) == (100, 9, 3)
    assert (record.source, record.frame, record.bytes) == ("10.0.0.1:7000", name, len(data))
    assert told in record.cause


def test_one_foreign_frame_refuses_the_whole_buffer(scene):
    assert scene.gate.open(100, SOURCE, data_frame() + data_frame(FOREIGN)) == []
    assert scene.refusals() == {"domain": 2}


def test_a_gate_without_a_trace_refuses_as_well():
    counters = Counters()
    gate = Gate(OURS, counters, ME)
    assert gate.open(0, SOURCE, b"junk") == []
    assert counters.frames_refused_version == 1


def test_control_messages_are_read_through_the_gate(scene):
    (frame,) = scene.gate.open(0, SOURCE, encode_control(Kind.ACK, OURS, 2, 3, 4, 5, 6, Ack(1, 7)))
    assert scene.gate.decode(0, SOURCE, frame) == Ack(1, 7)
    assert scene.refusals() == {}


def test_a_bad_control_message_is_counted_traced_and_dropped(scene):
    (frame,) = scene.gate.open(0, SOURCE, seal_control(Kind.ACK, OURS, 2, 3, 4, 5, 0, 6, b"junk"))
    assert scene.gate.decode(5, SOURCE, frame) is None
    assert scene.refusals() == {"decode": 1}
    (record,) = scene.trace.records
    assert (record.time_ns, record.frame, record.bytes) == (5, "ACK", 44)
    assert record.cause.startswith("body of ACK: ")


def test_the_gate_applies_the_limits_of_its_node():
    scene = Scene(Limits(ranges_max=1))
    data = encode_control(Kind.NAK, OURS, 2, 3, 4, 5, 6, Nak(1, (1, 2, 5, 6)))
    (frame,) = scene.gate.open(0, SOURCE, data)
    assert scene.gate.decode(0, SOURCE, frame) is None


def test_protocols_refuse_through_the_gate_too(scene):
    (frame,) = scene.gate.open(0, SOURCE, data_frame())
    scene.gate.refuse_kind(1, SOURCE, frame)
    scene.gate.refuse_state(2, SOURCE, frame, "unknown sender")
    assert scene.refusals() == {"kind": 1, "state": 1}
    assert [record.cause for record in scene.trace.records] == [
        "no protocol here takes this kind",
        "unknown sender",
    ]


def test_a_domains_tag_never_changes():
    assert domain_tag("demo") == 0x79EFE15B
    assert domain_tag("demo") != domain_tag("demo2")
    assert 0 <= domain_tag("ä" * 100) < 2**32


def test_a_domain_has_a_name():
    with pytest.raises(UsageError, match="name is empty"):
        domain_tag("")
