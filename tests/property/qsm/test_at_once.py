"""A message that is sealed at once is sealed as it would be with all others, or goes their way."""

from dataclasses import asdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from qsm_worlds.streams import ALICE, ONE, TWO, config
from vivum.core.ids import Channel, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Datagram
from vivum.observe.counters import Counters
from vivum.protocols.commands import SlowMembers
from vivum.protocols.qsm.send.region_sender import RegionSender
from vivum.protocols.qsm.send.sender import Sender
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.tokens import RegionReport

Step = tuple[Any, list[int], int, int, int, int, bool]


class Side:
    """What one node sends into one region view, at once where it can or always with all others."""

    def __init__(self, settings: QsmSettings, at_once: bool, destinations: int) -> None:
        self.counters = Counters()
        self.sending = Sender(settings, Limits(), self.counters)
        self.sending.slow[TWO] = SlowMembers.WAIT
        self.stream = self.sending.open(config(), tuple(map(Channel, range(destinations))))
        self.at_once = at_once
        self.used = 0

    def send(self, now_ns: int, group: Any, payloads: list[bytes], view: ViewNumber, room_bytes: int) -> list[Datagram]:
        """Send messages, and carry out what follows; return what leaves."""
        datagrams: list[Datagram] = []
        if self.at_once and len(payloads) == 1 and room_bytes:
            made = self.sending.send_now(now_ns, 1, ALICE, group, payloads[0], view, self.stream)
            if made is not None:
                self.used += 1
                datagrams += [Datagram(where, made[1]) for where in self.stream.destinations]
                payloads = []
        if payloads:
            self.sending.accept(group, payloads, sum(map(len, payloads)), (self.stream,), view)
        self.sending.make_data(now_ns, 1, ALICE, datagrams, room_bytes)
        return datagrams

    def state(self) -> tuple[object, ...]:
        """Tell all that is kept."""
        stream, sending = self.stream, self.sending
        own = {name: value for name, value in vars(stream).items() if name not in ("outboxes", "pacer", "_settings")}
        feeds = {
            group: (feed.next_message, feed.stable, [(each.stop, len(each.streams)) for each in feed._segments])
            for group, feed in sending._feeds.items()
        }
        pace = (stream.pacer._next_ns, stream.pacer._rate)
        queues = (sending.waiting_bytes, sending.has_data, dict(sending._paced), stream.outboxes.groups())
        own.pop("config"), own.pop("_packed")
        return own, pace, feeds, queues, asdict(self.counters)


STEPS = st.lists(
    st.tuples(
        st.sampled_from([ONE, ONE, ONE, TWO]),
        st.one_of(st.integers(0, 300).map(lambda size: [size]), st.lists(st.integers(0, 3000), max_size=4)),
        st.sampled_from([0, 1, 1 << 20, 1 << 20, 1 << 20]),
        st.integers(0, 40),
        st.sampled_from([0, 0, 0, 1_000]),
        st.sampled_from([1, 1, 1, 1, 2]),
        st.booleans(),
    ),
    min_size=1,
    max_size=20,
)


@given(STEPS, st.sampled_from([2, 8, 512]), st.sampled_from([400, 50_000]), st.sampled_from([1, 2]))
def test_what_is_sealed_at_once_leaves_all_as_if_it_had_gone_with_all_others(
    steps: list[Step], window_frames: int, window_bytes: int, destinations: int
) -> None:
    settings = QsmSettings(frame_bytes_max=1400, rate_initial=0, window_frames=window_frames, window_bytes=window_bytes)
    sides = [Side(settings, at_once, destinations) for at_once in (True, False)]
    now_ns, view = 0, 1
    for number, (group, sizes, room_bytes, confirmed, rate, new_view, closes) in enumerate(steps):
        now_ns += 100_000
        view = max(view, new_view)
        told = []
        for side in sides:
            payloads = [bytes([number]) * size for size in sizes]
            sent = side.send(now_ns, group, payloads, ViewNumber(view), room_bytes)
            stable = min(confirmed, side.stream.next_frame)
            side.sending.on_report(now_ns, side.stream, RegionReport(1, stable, stable, (), rate))
            side.sending.on_timer(now_ns)
            if closes and number == len(steps) - 1:
                side.sending.close(side.stream.key, now_ns)
            told.append((sent, list(side.sending.events), side.state()))
            side.sending.events.clear()
        assert told[0] == told[1]


def quiet_side(**settings: Any) -> Side:
    """Make one whose stream has begun and of which all is stable."""
    side = Side(QsmSettings(rate_initial=0, **settings), True, 1)
    side.send(0, ONE, [bytes(100)], ViewNumber(1), 1 << 20)
    side.sending.on_report(0, side.stream, RegionReport(1, 1, 1, (), 0))
    assert side.used == 0, "the first frame of a stream tells how it begins"
    return side


def test_the_short_way_is_taken_where_nothing_is_in_the_way() -> None:
    side = quiet_side()
    for number in range(5):
        (datagram,) = side.send(number, ONE, [b"x"], ViewNumber(1), 1 << 20)
        assert b"x" in datagram.data
    assert side.used == 5


def test_a_message_does_not_overtake_those_that_wait() -> None:
    side = quiet_side()
    side.sending.accept(ONE, [b"first"], 5, (side.stream,), ViewNumber(1))
    (datagram,) = side.send(1, ONE, [b"second"], ViewNumber(1), 1 << 20)
    assert side.used == 0
    assert datagram.data.index(b"first") < datagram.data.index(b"second")


def test_a_full_window_and_a_rate_hold_back_who_is_in_a_hurry() -> None:
    side = quiet_side(window_frames=2)
    for _ in range(2):
        assert side.send(1, ONE, [b"x"], ViewNumber(1), 1 << 20)
    assert not side.send(1, ONE, [b"x"], ViewNumber(1), 1 << 20)
    side = quiet_side()
    side.stream.pacer.set_rate(1)
    sent = sum(len(side.send(1, ONE, [b"x"], ViewNumber(1), 1 << 20)) for _ in range(5))
    assert sent <= 1


def test_what_is_too_large_for_a_frame_or_for_another_stream_goes_the_way_of_all_others() -> None:
    side = quiet_side(frame_bytes_max=1400)
    side.send(1, ONE, [bytes(3000)], ViewNumber(1), 1 << 20)
    other = RegionSender(config(2), (Channel(2),), QsmSettings())
    assert side.sending.send_now(1, 1, ALICE, ONE, b"x", ViewNumber(1), other) is None
    assert side.used == 0
