"""Frames that receivers read where their sender made them: kept there while anybody may need them, lost otherwise."""

import mmap

import pytest

from effects import deliveries
from qsm_worlds.streams import ALICE, ONE, config, make_chain, make_receiver
from vivum.core.ids import Channel, Endpoint, Incarnation, Member, NodeId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Datagram, Effect
from vivum.core.time import SECOND
from vivum.observe.counters import Counters
from vivum.protocols.qsm.lanes import take_run
from vivum.protocols.qsm.region import RegionMember
from vivum.protocols.qsm.send.sender import Sender
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire import codec
from vivum.wire.codec import Frame, FrameBuilder, split
from vivum.wire.tokens import RegionReport

_board = pytest.importorskip("vivum.runtime._board", reason="the compiled part was not built")
_slots = pytest.importorskip("vivum.wire._slots", reason="the compiled part was not built")
pytestmark = pytest.mark.skipif(not codec.COMPILED, reason="the compiled part is turned off")

SETTINGS = QsmSettings(rate_initial=0, frame_bytes_max=60_000)
PAYLOAD = bytes(1_000)
PER_FRAME = 59
SLOTS = 64

HOME = Endpoint("alice", 1)


class World:
    """A sender with a board, and one that reads it."""

    def __init__(self) -> None:
        memory = mmap.mmap(-1, SLOTS * _slots.SLOT_BYTES)
        self.board = _board.Board(memory, 5)
        self.pool = _slots.SlotPool(memory)
        self.sending = Sender(SETTINGS, Limits(), Counters(), [], FrameBuilder(60_000, self.pool))
        self.stream = self.sending.open(config(1, 1, 3), (Channel(1),))

    def send(self, count: int) -> list[Frame]:
        """Send so many frames; return them as they are lent."""
        datagrams: list[Datagram] = []
        self.sending.accept(ONE, [PAYLOAD] * (count * PER_FRAME), count * 59_000, (self.stream,), ViewNumber(1))
        self.sending.make_data(0, 1, ALICE, datagrams, 1 << 30)
        taken: list[tuple[Endpoint, bytes]] = []
        frames = [each.data for each in datagrams]
        while frames:
            note, shown = _board.write(self.pool, 5, frames)
            assert shown
            assert self.board.read(note, Endpoint("127.0.0.1", 7), taken) == 0
            del frames[:shown]
        return [frame for _, data in taken if type(data) is _slots.Lent for frame in split(data)]

    def confirm(self, stable: int) -> None:
        self.sending.on_report(0, self.stream, RegionReport(1, stable, stable, (), 0, confirmed=stable))


def test_frames_are_there_until_the_region_has_them_and_no_longer() -> None:
    world = World()
    frames = world.send(6)
    world.confirm(3)
    world.send(6)
    assert all(frame.keep() for frame in frames[3:])
    assert sum(frame.keep() for frame in frames[:3]) < 3


@pytest.mark.parametrize("give_up", [Sender.lose_everything, lambda sending: sending.forsake((1, 1))])
def test_frames_of_a_stream_that_was_given_up_stay_for_the_others_for_as_long_as_they_may_ask(give_up) -> None:
    world = World()
    frames = world.send(6)
    unused = world.pool.unused
    give_up(world.sending)
    world.stream = world.sending.open(config(1, 2, 3), (Channel(1),))
    for second in (1, 2, 15):
        world.sending.retire(second * SECOND, [world.stream.key])
        assert all(type(each) is _slots.Slot for each in world.stream.lent)
        world.send(2)
    assert world.pool.unused < unused
    copies = [each for each in frames[:3] if each.keep()]
    assert len(copies) == 3
    world.sending.retire(17 * SECOND, [world.stream.key])
    world.send(8)
    assert not all(frame.keep() for frame in frames[3:])


def reader() -> tuple[RegionMember, tuple]:
    me = Member(NodeId(2), Incarnation(1))
    region = RegionMember(config(1, 1, 3), me, SETTINGS, Limits(), Counters(), lambda stream: None, 0)
    stream = region.stream_of(ALICE, 0)
    assert stream is not None
    chain = make_chain()
    chain.add(stream)
    return region, (region, stream, chain, HOME)


def test_a_run_ends_before_a_frame_that_is_gone_which_is_lost_as_one_that_never_came() -> None:
    world = World()
    frames = world.send(7)
    region, lane = reader()
    _, stream, chain, _ = lane
    lanes = {frames[0].stream: lane}
    effects: list[Effect] = []
    first = frames[0]
    assert first.keep()
    region.on_data(0, stream, first)
    chain.deliver(effects)
    # Frame 3 is written over: its sender thought that all had it.
    world.stream._frames[3] = b""
    world.send(2)
    assert take_run(lanes, 0, HOME, frames, 1, effects) == 3
    assert (stream.window.prefix, stream.delivered) == (3, 3)
    assert chain.counters.frames_gone == 1
    assert sum(len(each.payloads) for each in deliveries(effects)) >= 3 * PER_FRAME - 2
    assert take_run(lanes, 0, HOME, frames, 4, effects) == 0, "what is behind it is not next"
    for frame in frames[4:]:
        assert frame.keep()
        assert region.on_data(0, stream, frame)
    assert stream.window.missing(8) == [3, 4]
    assert stream.delivered == 3


def test_a_cache_gives_what_it_was_lent_and_only_as_it_was() -> None:
    world = World()
    frames = world.send(6)
    stream = make_receiver()
    assert stream.is_next(0, 6)
    stream.on_run(0, frames)
    assert sum(frame.length for frame in stream.cache.values()) > 6 * 59_000
    before = [bytes(each) for each in world.stream.lent]
    assert [frame.to_bytes() for frame in stream.serve((1, 2), 8)] == before[1:2]
    world.stream._frames[4] = b""
    world.send(2)
    assert [frame.sequence for frame in stream.serve((0, 6), 8)] == [0, 1, 2, 3, 5]
    assert [frame.to_bytes() for frame in stream.serve((0, 6), 8)] == before[:4] + before[5:]
