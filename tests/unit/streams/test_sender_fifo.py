"""FIFO across views, and what happens when it cannot be kept."""

import pytest

from effects import deliveries, events
from loose_streams import (
    ALICE,
    ONE,
    THREE,
    TWO,
    again,
    delivered,
    frames_of,
    make_fifo,
    make_receiver,
    make_sender,
    seal,
    seal_all,
)
from vivum.core.ids import GroupId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Delivery, Effect
from vivum.protocols.commands import GapReported
from vivum.protocols.streams import sender_fifo as fifo_module
from vivum.protocols.streams.marks import VIEW_MARK, view_mark
from vivum.protocols.streams.sender_fifo import NEVER, SenderFifo
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.wire.codec import GROUP_MAX, Frame, FrameBuilder, PackedRun, split, take_runs
from vivum.wire.kinds import Kind


def test_frames_of_a_stream_are_delivered_in_order_whatever_the_order_they_came_in() -> None:
    fifo, stream = make_fifo(), make_receiver()
    effects: list[Effect] = []
    fifo.add(stream)
    frames = frames_of(4)
    for number in (2, 0, 3, 1):
        stream.on_data(0, frames[number])
        fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0), (ONE, 1), (ONE, 2), (ONE, 3)]


def test_a_stream_waits_for_the_end_of_the_one_before() -> None:
    fifo = make_fifo()
    effects: list[Effect] = []
    new, old = make_receiver(view=5), make_receiver(view=3)
    fifo.add(new)
    fifo.add(old)
    old_frames, new_frames = frames_of(2, view=3), frames_of(2, view=5, first=2)
    for frame in new_frames[:2]:
        new.on_data(0, frame)
    fifo.deliver(effects)
    assert delivered(effects) == []
    old.on_data(0, old_frames[0])
    old.on_data(0, old_frames[1])
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0), (ONE, 1)], "the end mark has not come"
    old.on_data(0, old_frames[2])
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0), (ONE, 1), (ONE, 2), (ONE, 3)]


def test_a_token_that_tells_the_end_is_as_good_as_the_mark() -> None:
    fifo = make_fifo()
    effects: list[Effect] = []
    old, new = make_receiver(view=3), make_receiver(view=5)
    fifo.add(old)
    fifo.add(new)
    old.on_data(0, frames_of(1, view=3)[0])
    new.on_data(0, frames_of(1, view=5, first=1)[0])
    old.on_status(1, True, 1, 1)
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0), (ONE, 1)]


def test_a_view_that_is_over_takes_the_older_ones_with_it_and_delivers_what_they_hold() -> None:
    fifo = make_fifo()
    effects: list[Effect] = []
    old, new = make_receiver(view=3), make_receiver(view=5)
    fifo.add(old)
    fifo.add(new)
    # The end of the old stream is not known here.
    for frame in frames_of(2, view=3)[:2]:
        old.on_data(0, frame)
    new.on_data(0, frames_of(1, view=5, first=2)[0])
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0), (ONE, 1)]
    fifo.remove(new, effects)
    assert delivered(effects) == [(ONE, 0), (ONE, 1), (ONE, 2)]
    assert fifo.streams == []


def test_behind_a_hole_in_what_a_dead_sender_sent_all_is_reported() -> None:
    fifo, stream = make_fifo(), make_receiver()
    effects: list[Effect] = []
    fifo.add(stream)
    stream.sender_gone = True
    frames = frames_of(3)
    stream.on_data(0, frames[0])
    stream.on_data(0, frames[2])
    stream.give_up_next()
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0)]
    assert events(effects) == [GapReported(ONE, ALICE, 1, 3)]
    assert not fifo.is_broken


def test_a_hole_before_the_first_message_of_a_group_is_noticed() -> None:
    """The frame that is missing may have told in which view the messages behind it were accepted (seed 700081)."""
    fifo, stream = make_fifo(), make_receiver()
    effects: list[Effect] = []
    fifo.add(stream)
    stream.on_data(0, frames_of(2)[1])
    stream.sender_gone = True
    stream.give_up_next()
    fifo.deliver(effects)
    assert delivered(effects) == []
    assert events(effects) == [GapReported(ONE, ALICE, 1, 2)]


def test_a_sender_that_comes_back_behind_a_hole_breaks_the_chain() -> None:
    fifo, old, new = make_fifo(), make_receiver(view=3), make_receiver(view=5)
    effects: list[Effect] = []
    fifo.add(old)
    old.on_status(1, True, 0, 0)
    old.sender_gone = True
    old.give_up_next()
    fifo.deliver(effects)
    assert not fifo.is_broken
    fifo.add(new)
    new.on_data(0, frames_of(1, view=5, first=9)[0])
    fifo.deliver(effects)
    assert fifo.is_broken
    assert delivered(effects) == []


def test_a_view_that_is_over_with_frames_of_a_living_sender_missing_breaks_the_chain() -> None:
    fifo, stream = make_fifo(), make_receiver()
    effects: list[Effect] = []
    fifo.add(stream)
    stream.on_data(0, frames_of(2)[0])
    stream.on_status(2, True, 0, 0)
    fifo.remove(stream, effects)
    assert delivered(effects) == [(ONE, 0)]
    assert fifo.is_broken


def test_a_hole_in_what_a_living_sender_sent_breaks_the_chain() -> None:
    fifo, stream = make_fifo(), make_receiver(view=5)
    effects: list[Effect] = []
    fifo.add(stream)
    older = make_receiver(view=3)
    fifo.add(older)
    older.on_data(0, frames_of(1, view=3)[0])
    older.closed = True
    # A view in between, of which we never heard, had message 1.
    stream.on_data(0, frames_of(1, view=5, first=2)[0])
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0)]
    assert events(effects) == []
    assert fifo.is_broken


def test_messages_of_views_before_the_group_was_entered_again_are_not_delivered() -> None:
    barred: dict[int, int] = {}
    fifo = make_fifo(barred)
    effects: list[Effect] = []
    old, new = make_receiver(view=3), make_receiver(view=7)
    fifo.add(old)
    sender = make_sender(view=3)
    sender.feed(ONE, 0, [b"a"], ViewNumber(1))
    sender.feed(TWO, 0, [b"b"], ViewNumber(1))
    barred[ONE] = 7
    fifo.forget_group(ONE)
    old.on_data(0, seal(sender))
    fifo.deliver(effects)
    assert delivered(effects) == [(TWO, 0)]
    old.closed = True
    fifo.add(new)
    new.on_data(0, frames_of(1, view=7, first=5)[0])
    fifo.deliver(effects)
    assert delivered(effects) == [(TWO, 0), (ONE, 5)]
    assert events(effects) == []


def test_streams_of_a_view_whose_groups_were_all_left_hold_nothing_up() -> None:
    fifo = make_fifo()
    effects: list[Effect] = []
    old, new = make_receiver(view=3), make_receiver(view=7)
    fifo.add(old)
    fifo.add(new)
    old.on_status(9, False, 0, 0)
    new.on_data(0, frames_of(1, view=7)[0])
    fifo.deliver(effects)
    assert delivered(effects) == []
    old.is_unwanted = True
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0)]


def test_a_message_that_comes_again_in_a_later_stream_is_dropped() -> None:
    fifo = make_fifo()
    effects: list[Effect] = []
    old, new = make_receiver(view=3), make_receiver(view=5)
    fifo.add(old)
    fifo.add(new)
    for frame in frames_of(2, view=3):
        old.on_data(0, frame)
    for frame in frames_of(2, view=5, first=1):
        new.on_data(0, frame)
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0), (ONE, 1), (ONE, 2)]


def test_marks_of_views_that_do_not_rise_are_refused_and_nothing_comes_twice() -> None:
    fifo, stream = make_fifo(), make_receiver()
    effects: list[Effect] = []
    fifo.add(stream)
    builder = FrameBuilder(1472)
    for start in (4, 2, 4):
        builder.append(GROUP_MAX, VIEW_MARK, view_mark((ONE, start, ViewNumber(9))))
    builder.extend(ONE, 0, [b"%d" % number for number in range(6)])
    header = (stream.sender.node, stream.sender.incarnation, stream.region, stream.view)
    stream.on_data(0, split(builder.seal(Kind.DATA, 1, *header, 0, 0))[0])
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, number) for number in range(6)]
    assert [len(each.payloads) for each in deliveries(effects)] == [4, 2]
    assert fifo.counters.frames_refused_state == 2


def test_messages_of_a_view_wait_with_all_that_follows_until_the_view_is_installed() -> None:
    epoch = 5
    fifo, stream = make_fifo(known_epoch=lambda: epoch), make_receiver(view=3)
    effects: list[Effect] = []
    fifo.add(stream)
    builder = FrameBuilder(1472)
    header = (stream.sender.node, stream.sender.incarnation, stream.region, stream.view)
    builder.extend(ONE, 0, [b"before"])
    builder.append(GROUP_MAX, VIEW_MARK, view_mark((ONE, 1, ViewNumber(9))))
    builder.extend(ONE, 1, [b"in view 9"])
    stream.on_data(0, split(builder.seal(Kind.DATA, 1, *header, 0, 0))[0])
    fifo.deliver(effects)
    builder.extend(ONE, 2, [b"later"])
    stream.on_data(0, split(builder.seal(Kind.DATA, 1, *header, 1, 0))[0])
    assert not fifo.is_ready(stream)
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0)]
    epoch = 9
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0), (ONE, 1), (ONE, 2)]
    assert [each.view for each in deliveries(effects)] == [3, 9, 9]
    assert fifo.is_ready(stream)


def frames_of_views(*views: int, bytes_max: int = 1472) -> list[Frame]:
    """Make a frame of two messages of each view: one before its mark, one behind it; then one of the last view."""
    builder, frames = FrameBuilder(bytes_max), []
    header = (ALICE.node, ALICE.incarnation, 1, 3)
    for number, view in enumerate(views):
        builder.extend(ONE, 2 * number, [b"before"])
        builder.append(GROUP_MAX, VIEW_MARK, view_mark((ONE, 2 * number + 1, ViewNumber(view))))
        builder.extend(ONE, 2 * number + 1, [b"in view"])
        frames.append(split(builder.seal(Kind.DATA, 1, *header, number, 0))[0])
    builder.extend(ONE, 2 * len(views), [b"last"])
    return [*frames, split(builder.seal(Kind.DATA, 1, *header, len(views), 0))[0]]


@pytest.mark.parametrize("together", [False, True])
def test_what_waits_for_a_view_is_not_confirmable(together: bool) -> None:
    """Live seed 795: it was confirmed, and this life ended before the view came."""
    epoch = 3
    fifo, stream = make_fifo(known_epoch=lambda: epoch), make_receiver(view=3)
    effects: list[Effect] = []
    fifo.add(stream)
    frames = frames_of_views(3, 7, 9)
    stream.on_data(0, frames[0])
    fifo.deliver(effects)
    assert stream.confirmable == 1
    if together:
        stream.on_run(0, frames[1:])
        fifo.deliver_run(stream, frames[1:], take_runs(frames[1:], 1000), effects)
    else:
        for frame in frames[1:]:
            stream.on_data(0, frame)
            fifo.deliver(effects)
    found = []
    for installed in (6, 7, 8, 9):
        epoch = installed
        fifo.deliver(effects)
        found.append((len(delivered(effects)), stream.confirmable))
    assert found == [(3, 1), (5, 2), (5, 2), (7, 4)]
    assert delivered(effects) == [(ONE, number) for number in range(7)]


def test_a_mark_of_a_view_with_nothing_behind_it_is_confirmable_at_once() -> None:
    fifo, stream = make_fifo(known_epoch=lambda: 5), make_receiver(view=3)
    fifo.add(stream)
    builder = FrameBuilder(1472)
    builder.append(GROUP_MAX, VIEW_MARK, view_mark((ONE, 0, ViewNumber(9))))
    stream.on_data(0, split(builder.seal(Kind.DATA, 1, *ALICE, 1, 3, 0, 0))[0])
    fifo.deliver([])
    assert fifo.awaits_view
    assert stream.confirmable == 1


def test_what_waits_behind_an_earlier_stream_is_not_confirmable() -> None:
    fifo, old, new = make_fifo(), make_receiver(view=3), make_receiver(view=5)
    effects: list[Effect] = []
    fifo.add(old)
    fifo.add(new)
    for frame in frames_of(2, view=5, first=1):
        new.on_data(0, frame)
        fifo.deliver(effects)
    assert (new.window.prefix, new.confirmable) == (3, 0)
    for frame in frames_of(1, view=3):
        old.on_data(0, frame)
    fifo.deliver(effects)
    assert (old.confirmable, new.confirmable) == (2, 3)


def test_what_is_given_up_of_a_sender_that_left_is_never_confirmable() -> None:
    """It may live, and be told that all had it."""
    fifo, stream = make_fifo(), make_receiver()
    fifo.add(stream)
    stream.sender_gone = True
    frames = frames_of(3)
    stream.on_data(0, frames[0])
    stream.on_data(0, frames[2])
    stream.give_up_next()
    fifo.deliver([])
    assert (stream.delivered, stream.confirmable) == (3, 1)


@pytest.mark.parametrize("together", [False, True])
def test_what_a_broken_chain_does_not_deliver_is_not_confirmable(together: bool) -> None:
    fifo, stream = make_fifo(), make_receiver()
    fifo.add(stream)
    sender, frames = make_sender(), []
    # Message 2 is missing, though no frame is.
    for number in (0, 1, 3, 4):
        sender.feed(ONE, number, [b"x"], ViewNumber(1))
        frames.append(seal(sender, now_ns=number))
    stream.on_data(0, frames[0])
    fifo.deliver([])
    if together:
        stream.on_run(0, frames[1:])
        fifo.deliver_run(stream, frames[1:], take_runs(frames[1:], 1000), [])
    else:
        for frame in frames[1:]:
            stream.on_data(0, frame)
        fifo.deliver([])
    assert fifo.is_broken
    assert (stream.window.prefix, stream.confirmable) == (4, 2)


def test_a_hole_in_what_a_living_sender_sent_is_not_confirmable() -> None:
    fifo, stream = make_fifo(), make_receiver()
    fifo.add(stream)
    frames = frames_of(3)
    for frame in (frames[0], frames[2]):
        stream.on_data(0, frame)
    stream.window.skip_to(2)
    fifo.deliver([])
    assert fifo.is_broken
    assert (stream.window.prefix, stream.confirmable) == (3, 1)


def test_behind_a_hole_nothing_passes_what_waits_for_a_view() -> None:
    """Found by reading: what came behind the hole was delivered before what waited, or in its place."""
    epoch = 3
    fifo, stream = make_fifo(known_epoch=lambda: epoch), make_receiver(view=3)
    effects: list[Effect] = []
    fifo.add(stream)
    stream.sender_gone = True
    frames = frames_of_views(7, 9)
    stream.on_data(0, frames[0])
    stream.on_data(0, frames[2])
    stream.give_up_next()
    fifo.deliver(effects)
    assert (delivered(effects), stream.confirmable) == ([(ONE, 0)], 0)
    epoch = 9
    fifo.deliver(effects)
    assert delivered(effects) == [(ONE, 0), (ONE, 1)]
    assert events(effects) == [GapReported(ONE, ALICE, 2, 5)]


@pytest.mark.parametrize("burst_bytes", [1, 1 << 20])
def test_of_a_stream_that_is_over_all_is_delivered_in_order_whatever_views_it_waits_for(
    burst_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fifo_module, "BURST_BYTES", burst_bytes)
    fifo, stream = make_fifo(known_epoch=lambda: 3), make_receiver(view=3)
    effects: list[Effect] = []
    fifo.add(stream)
    for frame in frames_of_views(7, 8, 9):
        stream.on_data(0, frame)
    fifo.deliver(effects)
    fifo.remove(stream, effects)
    assert delivered(effects) == [(ONE, number) for number in range(7)]
    assert not fifo.is_broken


def test_what_a_filled_gap_sets_free_is_delivered_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = frames_of(10)
    monkeypatch.setattr(fifo_module, "BURST_BYTES", 3 * frames[1].length)
    behind: set[fifo_module.SenderFifo] = set()
    fifo, stream = make_fifo(behind=behind), make_receiver()
    effects: list[Effect] = []
    fifo.add(stream)
    for frame in reversed(frames):
        stream.on_data(0, frame)
    parts = []
    fifo.deliver(effects)
    while behind:
        parts.append(len(delivered(effects)))
        assert stream.confirmable == parts[-1] < stream.window.prefix
        fifo.deliver(effects)
    assert parts == [3, 6, 9]
    assert delivered(effects) == [(ONE, number) for number in range(10)]


def test_what_was_held_behind_a_gap_is_delivered_in_as_few_parts_as_if_it_had_come_in_order() -> None:
    fifo, stream = make_fifo(), make_receiver()
    effects: list[Effect] = []
    fifo.add(stream)
    for frame in reversed(frames_of(10)):
        stream.on_data(0, frame)
    fifo.deliver(effects)
    assert [(each.first_sequence, len(each.payloads)) for each in deliveries(effects)] == [(0, 10)]


def test_a_stream_that_is_over_is_delivered_at_once_however_much_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fifo_module, "BURST_BYTES", 1)
    fifo, stream = make_fifo(), make_receiver()
    effects: list[Effect] = []
    fifo.add(stream)
    for frame in reversed(frames_of(10)):
        stream.on_data(0, frame)
    fifo.remove(stream, effects)
    assert delivered(effects) == [(ONE, number) for number in range(10)]


def test_groups_that_are_wanted_uncut_are_delivered_so_and_with_the_same_numbers() -> None:
    runs = {}
    for packed in (frozenset(), frozenset([ONE])):
        fifo, stream = make_fifo(packed=packed), make_receiver()
        effects: list[Effect] = []
        fifo.add(stream)
        sender = make_sender()
        frames = []
        for number in range(0, 40, 4):
            sender.feed(ONE, number, [b"%d" % each * 50 for each in range(number, number + 4)], ViewNumber(1))
            sender.feed(TWO, number // 4, [b"two" * 50], ViewNumber(1)) if number == 20 else None
            frames.append(seal(sender))
        stream.on_data(0, frames[0])
        fifo.deliver(effects)
        for part in (frames[1:4], frames[4:]):
            assert stream.is_next(part[0].sequence, part[-1].stop)
            assert fifo.is_ready(stream)
            stream.on_run(0, part)
            fifo.deliver_run(stream, part, take_runs(part, 1000, packed), effects)
        runs[packed] = deliveries(effects)
        assert delivered(effects)[:5] == [(ONE, 0), (ONE, 1), (ONE, 2), (ONE, 3), (ONE, 4)]
        assert any(isinstance(each.payloads, PackedRun) for each in deliveries(effects)) == bool(packed)
        assert all(each.group == ONE or isinstance(each.payloads, list) for each in deliveries(effects))

    def messages(runs: list[Delivery]) -> list[tuple[int, int, bytes]]:
        return [
            (each.group, each.first_sequence + place, payload)
            for each in runs
            for place, payload in enumerate(each.payloads)
        ]

    assert messages(runs[frozenset([ONE])]) == messages(runs[frozenset()])


def behind_a_hole(
    barred: dict[int, int], old_frames: list[Frame], new_frames: list[Frame]
) -> tuple[SenderFifo, StreamReceiver, StreamReceiver, list[Effect]]:
    """Let all come of an old and of a new stream but the second frame of the old one."""
    fifo, old, new = make_fifo(barred), make_receiver(view=3), make_receiver(view=5)
    effects: list[Effect] = []
    fifo.add(old)
    fifo.add(new)
    for stream, frame in ((old, old_frames[0]), (old, old_frames[2]), (new, new_frames[0])):
        stream.on_data(0, frame)
        fifo.deliver(effects)
    return fifo, old, new, effects


@pytest.mark.parametrize(
    ("barred", "named", "held_up"),
    [
        pytest.param({TWO: 4}, [], False, id="left-and-came-back"),
        pytest.param({TWO: 4}, [(1, 3)], True, id="its-sender-still-has-it"),
        pytest.param({}, [], True, id="never-left"),
        pytest.param({TWO: 2}, [], True, id="left-before"),
    ],
)
def test_who_left_and_came_back_does_not_wait_for_what_its_sender_has_seen_through(
    barred: dict[int, int], named: list[tuple[int, int]], held_up: bool
) -> None:
    """Live seed 177: a frame that nobody had any more held up all later streams, until this life ended."""
    fifo, _, new, effects = behind_a_hole(barred, frames_of(2, view=3, group=TWO), frames_of(1, view=5))
    fifo.on_begin(new, named)
    fifo.deliver(effects)
    assert ((ONE, 0) in delivered(effects)) is not held_up
    assert not fifo.is_broken


@pytest.mark.parametrize("group", [ONE, TWO])
def test_a_view_that_is_over_with_frames_missing_of_groups_that_were_left_is_no_loss(group: GroupId) -> None:
    """Live seed 226: the sender owed nothing to a node that had left, and had nothing new to say to it."""
    sent_before, sent_now = frames_of(2, view=3, group=group), frames_of(1, view=5, group=group, first=2)
    fifo, old, _, effects = behind_a_hole({TWO: 4}, sent_before, sent_now)
    fifo.remove(old, effects)
    if group == TWO:
        assert not fifo.is_broken
        assert (TWO, 2) in delivered(effects)
    else:
        assert fifo.is_broken, "the second message of a group that was not left is missing"


def test_a_hole_in_what_a_sender_sent_before_this_node_left_does_not_break_a_later_stay() -> None:
    """Live seed 327: out of the group nobody repaired the old stream; the first word of the new one ended this life."""
    barred: dict[int, int] = {}
    fifo, old, new = make_fifo(barred), make_receiver(view=3), make_receiver(view=5)
    effects: list[Effect] = []
    fifo.add(old)
    old.on_data(0, frames_of(2, view=3)[1])
    barred[ONE] = NEVER
    fifo.forget_group(ONE)
    old.sender_gone = True
    old.give_up_next()
    fifo.deliver(effects)
    barred[ONE] = 5
    old.sender_gone = False
    fifo.add(new)
    new.on_data(0, frames_of(1, view=5, first=9)[0])
    fifo.on_begin(new, [])
    fifo.deliver(effects)
    assert not fifo.is_broken
    assert delivered(effects) == [(ONE, 9)]
    assert events(effects) == []


@pytest.mark.parametrize("group", [ONE, TWO])
def test_a_group_is_left_after_a_hole_was_found_and_others_are_not_spared_for_it(group: GroupId) -> None:
    barred: dict[int, int] = {}
    fifo, old, new = make_fifo(barred), make_receiver(view=3), make_receiver(view=5)
    effects: list[Effect] = []
    fifo.add(old)
    old.on_status(1, True, 0, 0)
    old.sender_gone = True
    old.give_up_next()
    fifo.deliver(effects)
    barred[ONE] = NEVER
    fifo.forget_group(ONE)
    barred[ONE] = 5
    fifo.add(new)
    new.on_data(0, frames_of(1, view=5, group=group, first=9)[0])
    fifo.on_begin(new, [])
    fifo.deliver(effects)
    assert fifo.is_broken is (group == TWO)
    assert delivered(effects) == ([(ONE, 9)] if group == ONE else [])


def test_a_hole_tells_nothing_of_groups_that_its_region_did_not_have() -> None:
    fifo, old, new = make_fifo(), make_receiver(view=3), make_receiver(view=5)
    old.groups, old.lacks = (ONE, THREE), (TWO, THREE)
    effects: list[Effect] = []
    fifo.add(old)
    old.on_status(1, True, 0, 0)
    old.sender_gone = True
    old.give_up_next()
    fifo.deliver(effects)
    fifo.add(new)
    new.on_data(0, frames_of(1, view=5, group=TWO)[0])
    new.on_data(0, again(frames_of(2, view=5, group=THREE)[1]))
    fifo.deliver(effects)
    assert delivered(effects) == [(TWO, 0), (THREE, 1)]
    assert not fifo.is_broken


LARGE = 5000
"""A message of so many bytes takes several frames, and is over the limit of these receivers."""


def deliver_each(fifo: SenderFifo, stream: StreamReceiver, frames: list[Frame], together: bool) -> list[list[Effect]]:
    """Let frames come one by one, as runs or through the window; return what each of them caused."""
    found = []
    for frame in frames:
        effects: list[Effect] = []
        if together:
            stream.on_run(0, [frame])
            fifo.deliver_run(stream, [frame], take_runs([frame], 1000), effects)
        else:
            stream.on_data(0, frame)
            fifo.deliver(effects)
        found.append(effects)
    return found


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("before", [0, 2])
def test_a_message_over_a_limit_is_reported_as_soon_as_its_last_piece_came(before: int, together: bool) -> None:
    """It was reported when the next message of the group came, and not at all if none did: confirmed, never told."""
    fifo, stream, sender = make_fifo(limits=Limits(message_bytes_max=LARGE - 1)), make_receiver(), make_sender()
    fifo.add(stream)
    sender.feed(ONE, 7, [*[b"small"] * before, b"x" * LARGE], ViewNumber(1))
    caused = deliver_each(fifo, stream, seal_all(sender), together)
    large = 7 + before
    assert len(caused) > 2
    assert [events(each) for each in caused] == [*[[]] * (len(caused) - 1), [GapReported(ONE, ALICE, large, large + 1)]]
    assert stream.confirmable == len(caused)

    sender.feed(ONE, large + 1, [b"y" * LARGE, b"next"], ViewNumber(1))
    more = [effect for each in deliver_each(fifo, stream, seal_all(sender), together) for effect in each]
    assert events(more) == [GapReported(ONE, ALICE, large + 1, large + 2)]
    assert delivered(more) == [(ONE, large + 2)]
    assert more.index(events(more)[0]) < more.index(deliveries(more)[0])
    assert (fifo.counters.messages_lost, fifo.counters.joins_refused, fifo.counters.frames_refused_state) == (2, 2, 0)
    assert not fifo.is_broken


def test_a_message_that_came_before_and_comes_again_in_pieces_excuses_no_hole() -> None:
    fifo, old, new = make_fifo(), make_receiver(view=3), make_receiver(view=5)
    fifo.add(old)
    fifo.add(new)
    older, newer = make_sender(view=3), make_sender(view=5)
    older.feed(ONE, 0, [b"x" * LARGE], ViewNumber(3))
    older.close(0)
    newer.feed(ONE, 0, [b"x" * LARGE, b"next"], ViewNumber(5))
    frames = seal_all(newer)
    # Message 2 is missing, though no frame is.
    newer.feed(ONE, 3, [b"behind"], ViewNumber(5))
    caused = deliver_each(fifo, old, seal_all(older), False) + deliver_each(fifo, new, [*frames, seal(newer)], False)
    effects = [effect for each in caused for effect in each]
    assert delivered(effects) == [(ONE, 0), (ONE, 1)]
    assert events(effects) == []
    assert fifo.is_broken
