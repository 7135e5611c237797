"""One frame for several streams: order, windows, rates, accounts, and what happens when views change."""

from typing import Any

import pytest

from loose_streams import ALICE, ONE, TWO, config, delivered, make_fifo, make_receiver
from vivum.core.errors import NotNowError
from vivum.core.ids import Channel, GroupId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Datagram, Effect
from vivum.observe.counters import Counters
from vivum.protocols.commands import SendConfirmed, SendFailed, SlowMembers
from vivum.protocols.dissemination.ways import Means
from vivum.protocols.qsm.send.hybrid import pick
from vivum.protocols.qsm.send.sender import Sender
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.streams.marks import END, MARKS, SLOW_MARK, slow_mark
from vivum.protocols.streams.region_sender import RegionSender
from vivum.wire.codec import Frame, resend, split
from vivum.wire.kinds import Kind
from vivum.wire.tokens import RegionReport

CHANNEL = Channel(65_000)
FAST = 0
"""A rate without limit."""

OPEN = 1 << 20
"""A window that need not open first."""


class Desk:
    """A sender with streams into some regions, and what it sent."""

    def __init__(self, regions: int = 3, rate: int = FAST, **settings: Any) -> None:
        self.counters = Counters()
        self.settings = QsmSettings(window_initial_frames=OPEN, **settings)
        self.effects: list[Effect] = []
        self.sending = Sender(self.settings, Limits(), self.counters, self.effects)
        self.streams = tuple(self.open(region) for region in range(1, regions + 1))
        self.frames: list[tuple[object, Frame]] = []
        for stream in self.streams:
            stream.pacer.set_rate(rate)

    def open(self, region: int, view: int = 1) -> RegionSender:
        return self.sending.open(config(region, view), (Channel(region),))

    def send(self, payloads: list[bytes], group: GroupId = ONE, hybrid: bool = True, streams: Any = None) -> None:
        channel = CHANNEL if hybrid else None
        size = sum(map(len, payloads))
        view = ViewNumber(1)
        self.sending.accept(group, payloads, size, self.streams if streams is None else streams, view, channel)

    def run(self, now_ns: int = 0, room: int = 1 << 40) -> list[Frame]:
        """Let it send what it can; return the frames for several streams."""
        datagrams: list[Datagram] = []
        while self.sending.has_data and room > 0:
            before = len(datagrams)
            self.sending.make_data(now_ns, 1, ALICE, datagrams, room)
            room -= sum(len(each.data) for each in datagrams[before:])
        made = [(each.destination, frame) for each in datagrams for frame in split(each.data)]
        self.frames += made  # type: ignore[arg-type]
        return [frame for _, frame in made if frame.kind is Kind.SPREAD]

    def report(self, stream: RegionSender, stable: int | None = None, floor: int | None = None, rate: int = 0) -> None:
        stable = stream.next_frame if stable is None else stable
        floor = stable if floor is None else floor
        self.sending.on_report(0, stream, RegionReport(1, stable, floor, (), rate, 1, confirmed=floor))

    def events(self, kind: type) -> list[Any]:
        return [event for event in self.effects if isinstance(event, kind)]

    def heard_by(self, region: int, *views: int) -> list[tuple[int, int]]:
        """What a member of these views of a region delivers."""
        fifo = make_fifo()
        effects: list[Effect] = []
        for view in views or (1,):
            stream = make_receiver(region, view)
            fifo.add(stream)
            for destination, frame in self.frames:
                mine: Frame | None = frame if (frame.region, frame.view) == (region, view) else None
                if frame.kind is Kind.SPREAD:
                    assert destination == CHANNEL
                    mine = pick(frame, [(region, view)])
                if mine is not None:
                    stream.on_data(0, mine)
        fifo.deliver(effects)
        return delivered(effects)


def in_order(count: int, group: int = ONE) -> list[tuple[int, int]]:
    return [(group, number) for number in range(count)]


def test_one_frame_goes_to_all_regions_and_each_has_a_number_for_it() -> None:
    desk = Desk()
    desk.send([b"a", b"b"])
    (frame,) = desk.run()
    assert [stream.next_frame for stream in desk.streams] == [2, 2, 2], "after the one with which each begins"
    desk.streams[1].feed(TWO, 0, [b"x"], ViewNumber(1))
    for region in (1, 2, 3):
        mine = pick(frame, [(region, 1)])
        assert mine is not None
        assert (mine.kind, mine.region, mine.view, mine.sequence) == (Kind.DATA, region, 1, 1)
        assert mine.sent_ns == frame.sent_ns
        assert desk.heard_by(region) == in_order(2)
    assert pick(frame, [(4, 1), (1, 2)]) is None


def test_groups_with_the_same_regions_share_frames() -> None:
    desk = Desk()
    desk.send([b"a"], ONE)
    desk.send([b"b"], TWO)
    (frame,) = desk.run()
    assert [group for group, _, _, _ in frame.messages()] == [MARKS, ONE, TWO]


def test_a_stream_begins_with_a_frame_of_its_own_that_names_those_before_it() -> None:
    desk = Desk(regions=2)
    desk.send([b"old"], hybrid=False)
    desk.run()
    for stream in desk.streams:
        desk.sending.close(stream.key, 0)
    desk.streams = (desk.open(1, 2), desk.open(2, 2))
    desk.send([b"new"])
    (frame,) = desk.run()
    assert all(pick(frame, [(region, 2)]).sequence == 1 for region in (1, 2))  # type: ignore[union-attr]
    assert desk.heard_by(1, 1, 2) == in_order(2)


def test_what_to_do_about_slow_members_is_told_by_each_stream_before_the_frame_for_all() -> None:
    desk = Desk()
    desk.send([b"a"], TWO)
    desk.run()
    desk.sending.slow[ONE] = SlowMembers.WAIT
    desk.send([b"b"], ONE)
    desk.run()
    kinds = [frame.kind for _, frame in desk.frames]
    assert kinds == [*[Kind.DATA] * 3, Kind.SPREAD, *[Kind.DATA] * 3, Kind.SPREAD]
    for _, frame in desk.frames[4:7]:
        assert frame.messages() == [(MARKS, SLOW_MARK, 0, [slow_mark(SlowMembers.WAIT)])]
    assert desk.heard_by(2) == [(TWO, 0), (ONE, 0)]


def test_windows_in_bytes_hold_for_frames_for_all() -> None:
    desk = Desk(window_bytes=4000)
    desk.send([bytes(1300)] * 9)
    assert len(desk.run()) == 3
    for stream in desk.streams[:2]:
        desk.report(stream)
    assert desk.run() == []
    desk.report(desk.streams[2])
    assert len(desk.run()) == 3


def test_messages_of_a_group_that_changes_its_way_do_not_overtake_each_other() -> None:
    desk = Desk(window_frames=4)
    desk.send([bytes(1300)] * 6, hybrid=False)
    desk.send([b"7", b"8"], hybrid=True)
    assert desk.run() == [], "older ones wait in the streams"
    for stream in desk.streams:
        desk.report(stream)
    assert desk.run()
    desk.send([bytes(1300)] * 6, hybrid=True)
    desk.run()
    desk.send([b"9"], hybrid=False)
    for _ in range(5):
        for stream in desk.streams:
            desk.report(stream)
        desk.run()
    for region in (1, 2, 3):
        assert desk.heard_by(region) == in_order(15)


@pytest.mark.parametrize("size", [10, 1300, 5000])
@pytest.mark.parametrize("room", [1, 3000, 1 << 40])
def test_what_waits_when_a_view_changes_goes_to_the_old_streams_before_their_end(size: int, room: int) -> None:
    desk = Desk(window_frames=8)
    desk.send([bytes(size)] * 12)
    desk.run(room=room)
    desk.sending.close(desk.streams[0].key, 0)
    new = (desk.open(1, 2), *desk.streams[1:])
    old, desk.streams = desk.streams[0], new
    for _ in range(20):
        desk.send([b"late"])
        desk.run()
        for stream in (old, *new):
            desk.report(stream)
    desk.run()
    assert old.closed
    assert desk.heard_by(1, 1, 2) == in_order(32)
    for region in (2, 3):
        assert desk.heard_by(region) == in_order(32)
    last = [frame for _, frame in desk.frames if (frame.region, frame.view) == (1, 1)][-1]
    assert last.messages()[-1][3][-1] == END


def test_a_frame_that_is_sent_again_is_that_of_the_region_which_lacks_it() -> None:
    desk = Desk()
    desk.send([b"a"])
    (frame,) = desk.run()
    stream = desk.streams[1]
    for data in stream.resend((1, 2), 0, 10):
        (repair,) = split(resend(data))
        assert (repair.kind, repair.region, repair.view, repair.sequence) == (Kind.RESENT, 2, 1, 1)
        assert repair.body() == frame.body()


def test_a_message_is_confirmed_when_every_region_has_it() -> None:
    desk = Desk()
    desk.send([b"a"])
    desk.run()
    for stream in desk.streams:
        assert desk.events(SendConfirmed) == []
        desk.report(stream)
    assert desk.events(SendConfirmed) == [SendConfirmed(ONE, 0, 1)]


def test_what_was_promised_to_a_region_that_is_given_up_is_reported_once() -> None:
    desk = Desk(window_frames=4)
    desk.send([bytes(1300)] * 9)
    desk.run()
    for stream in desk.streams[1:]:
        desk.report(stream)
    desk.sending.close(desk.streams[0].key, 0)
    desk.sending.forsake(desk.streams[0].key)
    (failed,) = desk.events(SendFailed)
    assert (failed.first, failed.stop) == (0, 9)
    for _ in range(4):
        desk.run()
        for stream in desk.streams[1:]:
            desk.report(stream)
    assert desk.sending._waiting_bytes == 0
    assert all(stream.waiting_bytes == 0 for stream in desk.streams[1:])
    assert desk.heard_by(2) == in_order(9)


def test_the_limit_of_what_waits_counts_messages_for_all_streams() -> None:
    desk = Desk(pending_bytes_max=5000, waiting_bytes_max=14_000)
    desk.send([bytes(3000)])
    with pytest.raises(NotNowError, match="pending_bytes_max=5000"):
        desk.send([bytes(3000)])
    with pytest.raises(NotNowError, match="waiting_bytes_max=14000"):
        desk.send([bytes(6000)], TWO)
    desk.run()
    assert desk.sending._waiting_bytes == 0
    desk.send([bytes(3000)])
    # The same when they go another way.
    with pytest.raises(NotNowError, match="pending_bytes_max=5000"):
        desk.send([bytes(3000)], hybrid=False)


def test_a_frame_waits_until_all_windows_have_room_and_busy_streams_leave_it_a_place() -> None:
    desk = Desk(regions=2, window_frames=8)
    one, two = desk.streams
    desk.send([bytes(1400)] * 20, TWO, hybrid=False, streams=(one,))
    desk.send([bytes(1400)] * 20, GroupId(3), hybrid=False, streams=(two,))
    desk.run()
    desk.send([b"a"])
    desk.run()
    assert not one.room()[0]
    assert not two.room()[0]
    # Each opens a little at a time, never both at once.
    for step in range(1, 9):
        stream = (one, two)[step % 2]
        desk.report(stream, stable=min(stream.next_frame, stream.first + 1), floor=0)
        desk.run()
    assert (ONE, 0) in desk.heard_by(1)
    assert (ONE, 0) in desk.heard_by(2)


def test_streams_that_are_busy_at_different_times_do_not_keep_a_frame_for_both_waiting() -> None:
    desk = Desk(regions=2, rate=1000, pacing_slack_ns=0)
    one, two = desk.streams
    now_ns, step_ns = 1_000_000_000, 500_000
    for number in range(80):
        stream, group = (one, TWO) if number % 2 else (two, GroupId(3))
        desk.send([bytes(1400)], group, hybrid=False, streams=(stream,))
        if number >= 10:
            desk.send([bytes(1400)])
        now_ns += step_ns
        desk.sending.on_timer(now_ns)
        desk.run(now_ns)
    kinds = [frame.kind for _, frame in desk.frames]
    assert Kind.SPREAD in kinds[:20]
    # Neither of the two keeps the other out, and rates are kept: one frame in a stream every millisecond, for 40.
    assert min(kinds.count(Kind.SPREAD), kinds.count(Kind.DATA)) >= 12
    assert max(one.next_frame, two.next_frame) <= 41


def test_what_is_paced_tells_when_it_goes_on() -> None:
    desk = Desk(rate=1000, pacing_slack_ns=0)
    desk.send([b"a"])
    now_ns = 1_000_000_000
    assert desk.run(now_ns) == [], "each stream has just sent its first frame"
    deadline_ns = desk.sending._spreading.deadlines_ns()
    assert list(deadline_ns) == [now_ns + 1_000_000]
    desk.sending.on_timer(now_ns + 1_000_000)
    assert len(desk.run(now_ns + 1_000_000)) == 1


def test_the_end_of_a_life_leaves_nothing_behind() -> None:
    desk = Desk()
    desk.send([b"a"])
    desk.sending.lose_everything()
    assert not desk.sending.has_data
    assert [(each.first, each.stop) for each in desk.events(SendFailed)] == [(0, 1)]
    assert desk.sending.next_deadline_ns() is None


def test_what_the_ways_are_chosen_by_is_in_the_settings() -> None:
    assert QsmSettings().means == Means(multicast=True, frame_bytes=1472, spread_channels=256, address_cost=2.0)
