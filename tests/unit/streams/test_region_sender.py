"""The sender's side of a stream, and of a group over several streams."""

import pytest

from loose_streams import ONE, THREE, TWO, make_sender, seal, seal_all
from vivum.core.ids import ViewNumber
from vivum.core.time import SECOND
from vivum.protocols.streams.feed import Feed
from vivum.protocols.streams.marks import END, MARKS, streams_before
from vivum.wire.tokens import RegionReport


def groups_in(frame: object) -> list[int]:
    return [group for group, _, _, _ in frame.messages() if group != MARKS]  # type: ignore[attr-defined]


def report(stable: int, floor: int, beyond: tuple[int, ...] = ()) -> RegionReport:
    """What a region says in which nobody is behind."""
    return RegionReport(1, stable, floor, (), 0, beyond=beyond, confirmed=floor)


def test_messages_of_many_groups_share_a_frame() -> None:
    sender = make_sender()
    for group in (ONE, TWO, THREE):
        sender.feed(group, 0, [b"x", b"y"], ViewNumber(1))
    (frame,) = seal_all(sender)
    assert groups_in(frame) == [ONE, TWO, THREE]


def test_groups_take_turns_when_frames_are_full() -> None:
    sender = make_sender()
    for group in (ONE, TWO, THREE):
        sender.feed(group, 0, [bytes(400)] * 30, ViewNumber(1))
    shares = dict.fromkeys((ONE, TWO, THREE), 0)
    for frame in seal_all(sender)[:12]:
        for group, _, _, payloads in frame.messages():
            if group != MARKS:
                shares[group] += sum(map(len, payloads))
    assert max(shares.values()) <= 2 * min(shares.values())


def test_the_first_frame_names_the_streams_that_must_come_before() -> None:
    old, new = make_sender(region=1, view=3), make_sender(region=1, view=5)
    new.feed(ONE, 0, [b"x"], ViewNumber(1))
    first = seal(new, (old,))
    assert streams_before(first) == [(1, 3)]
    new.feed(ONE, 1, [b"y"], ViewNumber(1))
    assert streams_before(seal(new)) == []


def test_the_last_frame_says_that_it_is_the_last_and_may_carry_messages_too() -> None:
    sender = make_sender()
    sender.feed(ONE, 0, [b"x"], ViewNumber(1))
    sender.close(0)
    (frame,) = seal_all(sender)
    assert sender.closed
    assert [payloads[-1] for group, _, _, payloads in frame.messages() if group == MARKS][-1] == END
    assert not sender.can_seal


def test_a_stream_that_never_had_a_frame_needs_no_end() -> None:
    sender = make_sender()
    sender.close(0)
    assert not sender.can_seal
    assert sender.is_done


def test_the_window_is_counted_from_the_stable_point_and_frames_are_kept_to_the_floor() -> None:
    sender = make_sender(window_frames=4)
    for number in range(10):
        sender.feed(ONE, number, [bytes(1300)], ViewNumber(1))
    assert len(seal_all(sender)) == 4
    sender.on_report(0, report(2, 0))
    assert len(seal_all(sender)) == 2
    # Stable, not at every member: the application is not told, and who asks is served.
    assert (sender.first, sender.confirmed) == (2, 0)
    assert len(sender.resend((0, 3), 0, 10)) == 3
    assert sender.on_report(0, report(4, 2)) == {ONE}
    assert len(sender.resend((0, 6), SECOND, 10)) == 4


def test_reports_that_come_late_or_say_too_much_change_nothing() -> None:
    sender = make_sender()
    sender.feed(ONE, 0, [b"x"], ViewNumber(1))
    seal_all(sender)
    assert sender.on_report(0, report(1, 1)) == {ONE}
    assert sender.on_report(0, report(0, 0)) == set()
    assert (sender.first, sender.confirmed) == (1, 1)


def test_a_frame_is_not_sent_again_while_it_may_be_under_way() -> None:
    sender = make_sender(resend_ns_min=10)
    sender.feed(ONE, 0, [b"x"], ViewNumber(1))
    seal_all(sender)
    assert len(sender.resend((0, 1), 100, 64)) == 1
    assert sender.resend((0, 1), 105, 64) == []
    assert len(sender.resend((0, 1), 110, 64)) == 1
    assert sender.resend((5, 9), 200, 64) == []


def test_a_closed_stream_goes_on_where_it_was_when_its_view_concerns_the_sender_again() -> None:
    sender = make_sender()
    sender.feed(ONE, 0, [b"x"], ViewNumber(1))
    sender.close(0)
    seal_all(sender)
    sender.reopen()
    sender.feed(ONE, 7, [b"y"], ViewNumber(1))
    assert [frame.sequence for frame in seal_all(sender)] == [1]
    sender.on_report(0, report(2, 2))
    later = make_sender(next_frame=sender.next_frame)
    later.feed(ONE, 9, [b"z"], ViewNumber(1))
    assert [frame.sequence for frame in seal_all(later)] == [2]
    assert later.on_report(0, report(3, 3)) == {ONE}


def test_heartbeats_double_until_all_is_confirmed() -> None:
    sender = make_sender(heartbeat_ns_min=20, heartbeat_ns_max=100)
    sender.feed(ONE, 0, [b"x"], ViewNumber(1))
    seal(sender, now_ns=1000)
    assert sender.heartbeat_at_ns == 1020
    distances = []
    for _ in range(4):
        now_ns = sender.heartbeat_at_ns or 0
        sender.on_heartbeat_due(now_ns)
        distances.append((sender.heartbeat_at_ns or 0) - now_ns)
    assert distances == [40, 80, 100, 100]
    sender.on_report(0, report(1, 0))
    assert sender.heartbeat_at_ns is not None
    sender.on_report(0, report(1, 1))
    assert sender.heartbeat_at_ns is None


# Feeds.


def test_a_message_is_confirmed_when_every_region_that_it_went_to_has_it() -> None:
    feed, one, two = Feed(ONE), make_sender(region=1), make_sender(region=2)
    feed.send([b"a", b"b"], (one, two), ViewNumber(1))
    seal_all(one)
    seal_all(two)
    one.on_report(0, report(1, 1))
    assert feed.advance() == (0, 0)
    two.on_report(0, report(1, 1))
    assert feed.advance() == (0, 2)
    assert feed.advance() == (2, 2)


def test_messages_are_confirmed_in_order_though_a_later_view_is_faster() -> None:
    feed, old, new = Feed(ONE), make_sender(view=1), make_sender(view=2)
    feed.send([b"a"], (old,), ViewNumber(1))
    feed.send([b"b"], (new,), ViewNumber(1))
    for stream in (old, new):
        seal_all(stream)
    new.on_report(0, report(1, 1))
    assert feed.advance() == (0, 0)
    old.on_report(0, report(1, 1))
    assert feed.advance() == (0, 2)


@pytest.mark.parametrize("slow_first", [True, False])
def test_a_stream_that_was_given_up_is_not_waited_for(slow_first: bool) -> None:
    feed, one, two = Feed(ONE), make_sender(region=1), make_sender(region=2)
    feed.send([b"a"], (one, two) if slow_first else (two, one), ViewNumber(1))
    feed.forsake(one)
    seal_all(two)
    two.on_report(0, report(1, 1))
    assert feed.advance() == (0, 1)


def test_what_was_reported_as_failed_is_neither_confirmed_nor_reported_again() -> None:
    feed, one, two = Feed(ONE), make_sender(region=1), make_sender(region=2)
    feed.send([b"a"], (two,), ViewNumber(1))
    feed.send([b"b", b"c"], (one, two), ViewNumber(1))
    feed.send([b"d"], (two,), ViewNumber(1))
    assert feed.fail(1, 3) == [(1, 3)]
    feed.forsake(one)
    assert feed.confirm() == []
    assert feed.fail(2, 4) == [(3, 4)], "another region was given up too"
    seal_all(two)
    two.on_report(0, report(1, 1))
    assert feed.confirm() == [(0, 1)]
    assert feed.fail(0, 4) == []


def test_a_message_to_nobody_else_is_confirmed_at_once() -> None:
    feed = Feed(ONE)
    feed.send([b"a", b"b"], (), ViewNumber(1))
    assert feed.advance() == (0, 2)


def test_frames_that_everybody_has_behind_a_gap_leave_the_window_but_not_the_memory() -> None:
    sender = make_sender(window_frames=4, cache_frames_max=6)
    for number in range(10):
        sender.feed(ONE, number, [bytes(1300)], ViewNumber(1))
    assert len(seal_all(sender)) == 4
    sender.on_report(0, report(0, 0, beyond=(1, 4)))
    assert len(seal_all(sender)) == 2, "three places, but receivers hold no more than the caches"
    assert (sender.first, sender.confirmed, sender.next_frame) == (0, 0, 6)


def test_the_room_of_a_window_is_counted_in_frames_and_in_bytes() -> None:
    sender = make_sender(window_frames=8, window_bytes=10_000, frame_bytes_max=1472)
    assert sender.room() == (8, 10_000)
    sender.feed(ONE, 0, [bytes(1000)] * 4, ViewNumber(1))
    size = len(seal(sender).to_bytes())
    assert sender.room() == (7, 10_000 - size)
    # Claims of others reserve at most a quarter of the window; the caller's own claim does not count.
    sender.claims.update(range(5))
    assert sender.room() == (5, 10_000 - size)
    sender.claims.clear()
    sender.claims.add(sender)
    assert sender.room() == (6, 10_000 - size)
    assert sender.room(by=sender) == (7, 10_000 - size)


def test_a_frame_that_is_larger_than_the_window_goes_when_nothing_else_is_under_way() -> None:
    sender = make_sender(window_frames=8, window_bytes=1, frame_bytes_max=1472)
    sender.feed(ONE, 0, [bytes(1000)] * 4, ViewNumber(1))
    assert sender.room() == (8, 1)
    seal(sender)
    assert sender.room() == (0, 0)
    assert not sender.can_seal


def test_a_stream_whose_members_all_left_ends_with_nothing_open_and_without_another_frame() -> None:
    stream, feed = make_sender(), Feed(ONE)
    feed.send([b"sent", b"sent too"], (stream,), ViewNumber(1))
    seal(stream)
    feed.send([b"waits"], (stream,), ViewNumber(1))
    stream.close(0)
    assert stream.end_unheard() == {ONE}
    assert feed.confirm() == [(0, 3)]
    assert stream.is_done
    assert not stream.can_seal
    assert (stream.waiting_bytes, stream.window_bytes, stream.heartbeat_at_ns) == (0, 0, None)
