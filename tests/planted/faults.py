"""Planted lives and messages that were lost for nothing, and a history in which a fault explains each."""

from planted.history import History, Planted, started
from vivum.observe.trace import ViewInstalled

DROPPED = "dropped by the configuration service"


def _together(*lives: str) -> History:
    history = started(*lives)
    for life in lives:
        history.view(life, 1, *lives)
    return history


# Lives explained.


def end_of_a_life_that_nobody_touched() -> Planted:
    """2 joins and leaves, the service dies, 3 of five is paused: no reason to drop 1."""
    history = _together("1.1", "2.1", "3.1", "4.1", "5.1")
    history.fault("leave of group 7", 1, 2, 3, 4, 5)
    history.fault("reorder")
    history.fault("service_crash")
    history.fault("pause", 3, seconds=1)
    end = history.stop("1.1", DROPPED)
    return Planted(history.records, "lives_explained", (end,))


def end_of_a_life_without_a_record() -> Planted:
    history = _together("1.1", "2.1")
    end = history.start("2.2")
    return Planted(history.records, "lives_explained", (end,))


def more_ends_than_faults() -> Planted:
    """One pause costs 2 its life. It comes back, and is dropped again."""
    history = _together("1.1", "2.1", "3.1", "4.1")
    fault = history.fault("pause", 2, seconds=3)
    history.wait(3)
    history.stop("2.1", DROPPED)
    history.start("2.2")
    history.join("2.2")
    again = history.stop("2.2", DROPPED)
    return Planted(history.records, "lives_explained", (fault, again))


# Failures explained.


def failure_in_a_group_that_nobody_touched() -> Planted:
    """The message reached everybody, and a node of another group crashed."""
    history = _together("1.1", "2.1")
    history.fault("crash", 3)
    history.everywhere(["1.1", "2.1"], "1.1", 1, view=1)
    told = history.failed("1.1", 1, 2)
    return Planted(history.records, "failures_explained", (told,))


def failure_of_a_message_that_was_long_out() -> Planted:
    """2 crashes long after it had the message."""
    history = _together("1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1, view=1)
    history.wait(5)
    history.fault("crash", 2)
    history.stop("2.1")
    told = history.failed("1.1", 1, 2)
    return Planted(history.records, "failures_explained", (told,))


def loss_on_a_link_that_only_repeats() -> Planted:
    history = _together("1.1", "2.1")
    history.fault("duplicate", 2)
    history.send("1.1", 1, view=1)
    history.deliver("1.1", "1.1", 1, view=1)
    told = history.lost("2.1", "1.1", 1, 2)
    return Planted(history.records, "failures_explained", (told,))


# Correct.


def end_and_losses_after_faults() -> Planted:
    """2 sleeps too long, and 3, of whose peers half are hit, cannot get what they had; 1 is told of both."""
    history = _together("1.1", "2.1", "3.1")
    history.fault("pause", 2, seconds=4)
    history.send("1.1", 1, view=1)
    history.deliver("1.1", "1.1", 1, view=1)
    history.wait(4)
    history.heal()
    history.wait(5)
    history.stop("2.1", DROPPED)
    history.start("2.2")
    history.stop("3.1", DROPPED)
    history.start("3.2")
    history.failed("1.1", 1, 2)
    return Planted(history.records)


# Lost with their sender.


def loss_of_a_message_whose_sender_is_there() -> Planted:
    """A fault explains that 2 lacks it; but 1 still has it."""
    history = _together("1.1", "2.1")
    history.fault("loss", 2, seconds=1)
    history.everywhere(["1.1"], "1.1", 1, view=1)
    told = history.lost("2.1", "1.1", 1, 2)
    view = next(each for each in reversed(history.records) if isinstance(each, ViewInstalled))
    return Planted(history.records, "lost_with_sender", (told, view))
