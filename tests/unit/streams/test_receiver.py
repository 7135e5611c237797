"""What a node remembers of senders that are gone, and when it forgets them."""

from effects import events
from loose_streams import ALICE, ONE, delivered, frames_of, make_receiver
from vivum.core.limits import Limits
from vivum.core.machine import Effect
from vivum.observe.counters import Counters
from vivum.protocols.commands import GapReported
from vivum.protocols.streams.receiver import Receiver

GONE_SINCE = 8


def with_a_hole(effects: list[Effect]) -> Receiver:
    """Make a receiver of Alice's stream of view 3 which misses the second message: Alice is gone, the view is over."""
    receiver, stream = Receiver(Limits(), Counters()), make_receiver(view=3)
    receiver.add(stream)
    frames = frames_of(3, view=3)
    stream.on_data(0, frames[0])
    stream.on_data(0, frames[2])
    receiver.note_present(set(), GONE_SINCE)
    stream.sender_gone = True
    stream.give_up_next()
    receiver.deliver([ALICE], effects)
    receiver.remove(stream, effects)
    return receiver


def test_a_sender_that_has_not_heard_that_it_was_dropped_is_not_taken_for_a_new_one_behind_a_hole() -> None:
    """Long seed 84: what it sent in a later view was delivered, as if nothing had been missing before."""
    effects: list[Effect] = []
    receiver = with_a_hole(effects)
    receiver.forget_gone([], GONE_SINCE - 1)
    later = make_receiver(view=GONE_SINCE - 1)
    receiver.add(later)
    for frame in frames_of(2, view=GONE_SINCE - 1, first=5):
        later.on_data(0, frame)
    receiver.deliver([ALICE], effects)
    assert delivered(effects) == [(ONE, 0)]
    assert events(effects) == [GapReported(ONE, ALICE, 1, 3), GapReported(ONE, ALICE, 3, 7)]
    assert later.confirmable == 0, "it may live, and be told that all had it"
    assert not receiver.is_any_broken


def test_a_sender_that_came_back_behind_a_hole_breaks_the_chain() -> None:
    receiver = with_a_hole([])
    receiver.note_present({ALICE}, GONE_SINCE + 1)
    receiver.forget_gone([], GONE_SINCE + 1)
    later = make_receiver(view=GONE_SINCE + 1)
    receiver.add(later)
    later.on_data(0, frames_of(1, view=GONE_SINCE + 1, first=5)[0])
    receiver.deliver([ALICE], [])
    assert receiver.is_any_broken


def test_a_sender_that_is_gone_is_forgotten_with_the_last_view_that_it_may_know_and_its_last_stream() -> None:
    receiver = with_a_hole([])
    receiver.note_present(set(), GONE_SINCE + 5)
    receiver.forget_gone([ALICE], GONE_SINCE)
    assert receiver.of(ALICE).gone_since == GONE_SINCE
    receiver.forget_gone([], GONE_SINCE)
    receiver.add(make_receiver(view=GONE_SINCE))
    assert receiver.of(ALICE).expected == {}
