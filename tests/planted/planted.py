"""Planted violations, and correct histories full of the things that look like violations.

Each is a plain function that returns a `Planted`: the records in true order, the checker that is meant to
catch it, all others that must catch it too (one fault can break several promises), and the witnesses that
the first must show, in order. `VIOLATIONS` and `CORRECT` list them. Checkers that are not named must find
nothing.
"""

from collections.abc import Callable

from planted.faults import (
    end_and_losses_after_faults,
    end_of_a_life_that_nobody_touched,
    end_of_a_life_without_a_record,
    failure_in_a_group_that_nobody_touched,
    failure_of_a_message_that_was_long_out,
    loss_of_a_message_whose_sender_is_there,
    loss_on_a_link_that_only_repeats,
    more_ends_than_faults,
)
from planted.history import History, Planted, started
from planted.views import (
    delivery_as_one_of_another_view,
    delivery_in_a_view_that_ended,
    failure_that_names_nobody_while_a_member_lacks_the_message,
    joiner_that_lacks_what_its_view_was_sent_before_it_came,
    member_dropped_after_the_confirmation_of_what_it_lacks,
    member_dropped_before_the_confirmation_of_what_it_lacks,
    message_before_the_first_view,
    message_of_a_view_of_the_stay_before,
    message_of_a_view_that_nobody_installed,
    message_of_a_view_that_the_receiver_jumped_over,
    message_of_an_older_view_in_a_later_stay,
    message_of_an_older_view_of_the_same_sender,
    message_sent_in_a_view_that_is_over,
    message_that_overtakes_its_view,
    reported_loss_is_no_excuse,
    same_view_other_members,
    same_view_other_rank,
    survivors_differ,
    view_installed_again,
    view_number_goes_back,
    view_without_its_own_member,
)

# No duplicate.


def message_delivered_twice() -> Planted:
    history = started("1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1, 2)
    again = history.deliver("2.1", "1.1", 2)
    first = history.records[-2]
    return Planted(history.records, "no_duplicate", (first, again), frozenset({"fifo", "sender_order"}))


def old_message_delivered_again() -> Planted:
    history = started("1.1", "2.1")
    history.send("1.1", 1)
    history.deliver("1.1", "1.1", 1)
    first = history.deliver("2.1", "1.1", 1)
    history.everywhere(["1.1", "2.1"], "1.1", 2, 3)
    again = history.deliver("2.1", "1.1", 1)
    # One receiver that delivers 1, 2, 3, 1 fits no order, and delivers 1 after what was sent after it.
    also = frozenset({"fifo", "sender_order", "causal", "total_order"})
    return Planted(history.records, "no_duplicate", (first, again), also)


# No creation.


def message_never_sent() -> Planted:
    history = started("1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1)
    invented = history.deliver("2.1", "1.1", 2)
    return Planted(history.records, "no_creation", (invented,))


def content_changed() -> Planted:
    history = started("1.1", "2.1")
    sent = history.send("1.1", 1)
    history.deliver("1.1", "1.1", 1)
    changed = history.deliver("2.1", "1.1", 1, digest=12345)
    return Planted(history.records, "no_creation", (sent, changed))


def message_of_a_dead_life_under_the_new_one() -> Planted:
    history = started("1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1)
    history.stop("1.1")
    history.start("1.2")
    history.join("1.2")
    wrong = history.deliver("2.1", "1.2", 2)
    return Planted(history.records, "no_creation", (wrong,))


def two_messages_with_one_number() -> Planted:
    history = started("1.1", "2.1")
    first = history.send("1.1", 1)
    second = history.send("1.1", 1)
    history.deliver("1.1", "1.1", 1)
    history.deliver("2.1", "1.1", 1)
    return Planted(history.records, "no_creation", (first, second))


# FIFO.


def hole_in_a_stream() -> Planted:
    history = started("1.1", "2.1")
    history.everywhere(["1.1"], "1.1", 1, 2, 3)
    before = history.deliver("2.1", "1.1", 1)
    after = history.deliver("2.1", "1.1", 3)
    return Planted(history.records, "fifo", (before, after), frozenset({"all_delivered"}))


def hole_larger_than_reported() -> Planted:
    history = started("1.1", "2.1")
    history.fault("loss", 2)
    history.everywhere(["1.1"], "1.1", 1, 2, 3, 4)
    before = history.deliver("2.1", "1.1", 1)
    history.lost("2.1", "1.1", 2, 3)
    after = history.deliver("2.1", "1.1", 4)
    return Planted(history.records, "fifo", (before, after), frozenset({"all_delivered"}))


def message_overtaken() -> Planted:
    history = started("1.1", "2.1")
    history.everywhere(["1.1"], "1.1", 1, 2, 3)
    history.deliver("2.1", "1.1", 1)
    overtaking = history.deliver("2.1", "1.1", 3)
    late = history.deliver("2.1", "1.1", 2)
    also = frozenset({"sender_order", "causal", "total_order"})
    return Planted(history.records, "fifo", (overtaking, late), also)


def lost_message_delivered_after_all() -> Planted:
    history = started("1.1", "2.1")
    history.fault("loss", 2)
    history.everywhere(["1.1"], "1.1", 1, 2)
    history.deliver("2.1", "1.1", 1)
    lost = history.lost("2.1", "1.1", 2, 3)
    delivered = history.deliver("2.1", "1.1", 2)
    return Planted(history.records, "fifo", (lost, delivered), frozenset({"sender_order"}))


def delivery_after_leaving() -> Planted:
    history = started("1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1)
    left = history.leave("2.1")
    history.everywhere(["1.1"], "1.1", 2)
    delivered = history.deliver("2.1", "1.1", 2)
    return Planted(history.records, "fifo", (left, delivered), frozenset({"sender_order"}))


# Keys once.


def key_handed_over_twice() -> Planted:
    """2 sends again what 1 had sent; 3 does not notice."""
    history = started("1.1", "2.1", "3.1")
    history.everywhere(["3.1"], "1.1", 1)
    first = history.key("3.1", "1.1", 1, 77)
    history.everywhere(["3.1"], "2.1", 1)
    again = history.key("3.1", "2.1", 1, 77)
    for sender, receivers in (("1.1", ("1.1", "2.1")), ("2.1", ("2.1", "1.1"))):
        for receiver in receivers:
            history.deliver(receiver, sender, 1)
    return Planted(history.records, "keys_once", (first, again))


def repetition_delivered_after_it_was_left_out() -> Planted:
    history = started("1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1)
    history.everywhere(["1.1"], "1.1", 2)
    left_out = history.skipped("2.1", "1.1", 2, 3)
    late = history.deliver("2.1", "1.1", 2)
    return Planted(history.records, "fifo", (left_out, late), frozenset({"sender_order"}))


# Sender order.


def best_effort_out_of_order() -> Planted:
    history = started("1.1", "2.1")
    history.everywhere(["1.1"], "1.1", 1, 2, 3)
    overtaking = history.deliver("2.1", "1.1", 3)
    late = history.deliver("2.1", "1.1", 2)
    also = frozenset({"fifo", "causal", "total_order", "all_delivered"})
    return Planted(history.records, "sender_order", (overtaking, late), also)


# Causal order.


def answer_before_its_question() -> Planted:
    history = started("1.1", "2.1", "3.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1)
    history.everywhere(["1.1", "2.1"], "2.1", 1)
    answer = history.deliver("3.1", "2.1", 1)
    question = history.deliver("3.1", "1.1", 1)
    return Planted(history.records, "causal", (answer, question), frozenset({"total_order"}))


def answer_before_its_question_across_groups() -> Planted:
    """1 tells 2 in group 1, 2 tells 3 in group 2, 3 tells 4 in group 3; 4 is in 1 and 3 and hears 3 first."""
    history = History()
    for life, group in [("1.1", 1), ("2.1", 1), ("4.1", 1), ("2.1", 2), ("3.1", 2), ("3.1", 3), ("4.1", 3)]:
        history.join(life, group)
    history.everywhere(["1.1", "2.1"], "1.1", 1, group=1)
    history.everywhere(["2.1", "3.1"], "2.1", 1, group=2)
    history.everywhere(["3.1"], "3.1", 1, group=3)
    answer = history.deliver("4.1", "3.1", 1, group=3)
    question = history.deliver("4.1", "1.1", 1, group=1)
    return Planted(history.records, "causal", (answer, question))


# Total order.


def two_receivers_disagree() -> Planted:
    history = started("1.1", "2.1", "3.1", "4.1")
    history.send("1.1", 1)
    history.send("2.1", 1)
    one = history.deliver("1.1", "1.1", 1), history.deliver("1.1", "2.1", 1)
    two = history.deliver("2.1", "2.1", 1), history.deliver("2.1", "1.1", 1)
    for life in ("3.1", "4.1"):
        history.deliver(life, "1.1", 1)
        history.deliver(life, "2.1", 1)
    return Planted(history.records, "total_order", (*one, *two))


def three_receivers_in_a_circle() -> Planted:
    """No two disagree on a pair: each got two of three messages. Senders were told, so nothing is owed."""
    history = started("4.1", "5.1", "6.1")
    history.fault("loss", 4, 5, 6)
    for sender in ("1.1", "2.1", "3.1"):
        history.send(sender, 1)
        history.failed(sender, 1, 2)
    one = history.deliver("4.1", "1.1", 1), history.deliver("4.1", "2.1", 1)
    two = history.deliver("5.1", "2.1", 1), history.deliver("5.1", "3.1", 1)
    three = history.deliver("6.1", "3.1", 1), history.deliver("6.1", "1.1", 1)
    return Planted(history.records, "total_order", (*one, *two, *three))


def disagreement_of_a_life_that_crashed() -> Planted:
    history = started("1.1", "2.1", "3.1")
    history.send("1.1", 1)
    history.send("2.1", 1)
    one = history.deliver("3.1", "2.1", 1), history.deliver("3.1", "1.1", 1)
    history.stop("3.1")
    two = history.deliver("1.1", "1.1", 1), history.deliver("1.1", "2.1", 1)
    history.deliver("2.1", "1.1", 1)
    history.deliver("2.1", "2.1", 1)
    return Planted(history.records, "total_order", (*one, *two))


# Bounded queues.


def queue_over_its_limit() -> Planted:
    history = started("1.1")
    history.queue("1.1", 100, 100)
    over = history.queue("1.1", 101, 100)
    return Planted(history.records, "bounded_queues", (over,))


# All delivered.


def message_that_silently_vanished() -> Planted:
    history = started("1.1")
    joined = history.join("2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1, 2)
    vanished = history.send("1.1", 3)
    history.deliver("1.1", "1.1", 3)
    return Planted(history.records, "all_delivered", (vanished, joined))


def stable_message_of_a_dead_sender_missing() -> Planted:
    history = started("1.1")
    joined = history.join("2.1")
    sent = history.send("1.1", 1)
    history.deliver("1.1", "1.1", 1)
    history.stable("1.1", 1, 2)
    history.stop("1.1")
    return Planted(history.records, "all_delivered", (sent, joined))


# Correct histories.


def everything_in_order() -> Planted:
    lives = ["1.1", "2.1", "3.1"]
    history = started(*lives)
    for life in lives:
        history.view(life, 1, *lives)
    for sequence in range(1, 4):
        for sender in lives:
            history.everywhere(lives, sender, sequence, view=1)
    history.queue("1.1", 5, 100)
    return Planted(history.records)


def crash_and_new_life() -> Planted:
    """1.1 crashes with a message out; its new life numbers from 1 again and never sees what 1.1 was given."""
    history = started("1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1, 2)
    history.everywhere(["1.1", "2.1"], "2.1", 1, 2)
    history.send("1.1", 3)
    history.deliver("1.1", "1.1", 3)
    history.stop("1.1")
    history.start("1.2")
    history.join("1.2")
    history.everywhere(["1.2", "2.1"], "1.2", 1, 2)
    history.everywhere(["1.2", "2.1"], "2.1", 3)
    return Planted(history.records)


def new_life_is_given_the_messages_of_the_old_one_again() -> Planted:
    history = started("1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1, 2)
    history.stop("2.1")
    history.start("2.2")
    history.join("2.2")
    history.deliver("2.2", "1.1", 1)
    history.deliver("2.2", "1.1", 2)
    return Planted(history.records)


def late_joiner() -> Planted:
    history = started("1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1, 2, 3)
    history.start("3.1")
    history.join("3.1")
    history.deliver("3.1", "1.1", 3)
    history.everywhere(["1.1", "2.1", "3.1"], "1.1", 4)
    return Planted(history.records)


def leave_and_join_again() -> Planted:
    history = started("1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 1, 2, 3)
    history.leave("2.1")
    history.everywhere(["1.1"], "1.1", 4, 5)
    history.join("2.1")
    # May begin anywhere, also with what the stay before had.
    for sequence in (3, 4, 5):
        history.deliver("2.1", "1.1", sequence)
    history.everywhere(["1.1", "2.1"], "1.1", 6)
    return Planted(history.records)


def losses_reported() -> Planted:
    """Told before, after and at the end; and a sender that was told that its message failed."""
    history = started("1.1", "2.1", "3.1")
    history.fault("loss", 2, 3)
    history.everywhere(["1.1"], "1.1", 1, 2, 3, 4)
    history.deliver("2.1", "1.1", 1)
    history.lost("2.1", "1.1", 2, 4)
    history.deliver("2.1", "1.1", 4)
    history.deliver("3.1", "1.1", 1)
    history.deliver("3.1", "1.1", 4)
    history.lost("3.1", "1.1", 2, 4)
    history.everywhere(["1.1"], "1.1", 5)
    history.lost("2.1", "1.1", 5, 6)
    history.failed("1.1", 5, 6)
    return Planted(history.records)


def repetitions_left_out() -> Planted:
    """1 dies half-way, 2 sends all of it again under the same keys, and 1 in its next life once more."""
    history = started("1.1", "2.1", "3.1")
    history.everywhere(["1.1", "2.1", "3.1"], "1.1", 1, 2)
    for life in ("1.1", "2.1", "3.1"):
        for sequence in (1, 2):
            history.key(life, "1.1", sequence, sequence)
    history.stop("1.1")
    for sequence in (1, 2):
        history.send("2.1", sequence)
    history.everywhere(["2.1", "3.1"], "2.1", 3)
    for life in ("2.1", "3.1"):
        history.skipped(life, "2.1", 1, 3)
        history.key(life, "2.1", 3, 3)
    history.everywhere(["2.1", "3.1"], "2.1", 4)
    history.start("1.2")
    history.join("1.2")
    history.everywhere(["1.2"], "1.2", 1)
    # What another life of the node had does not count.
    history.key("1.2", "1.2", 1, 1)
    for life in ("2.1", "3.1"):
        history.skipped(life, "1.2", 1, 2)
    return Planted(history.records)


def survivors_agree() -> Planted:
    """3 crashes in view 1 with more delivered than the survivors; 4 joins in view 2; 2 leaves in view 2."""
    lives = ["1.1", "2.1", "3.1"]
    history = started(*lives)
    for life in lives:
        history.view(life, 1, *lives)
    history.everywhere(lives, "1.1", 1, view=1)
    history.send("3.1", 1, view=1)
    history.deliver("3.1", "3.1", 1, view=1)
    history.stop("3.1")
    history.join("4.1")
    second = ["1.1", "2.1", "4.1"]
    for life in second:
        history.view(life, 2, *second)
    history.everywhere(second, "1.1", 2, view=2)
    history.send("1.1", 3, view=2)
    history.deliver("1.1", "1.1", 3, view=2)
    history.leave("2.1")
    history.deliver("4.1", "1.1", 3, view=2)
    for life in ("1.1", "4.1"):
        history.view(life, 3, "1.1", "4.1")
    return Planted(history.records)


VIOLATIONS: list[Callable[[], Planted]] = [
    message_delivered_twice,
    old_message_delivered_again,
    message_never_sent,
    content_changed,
    message_of_a_dead_life_under_the_new_one,
    two_messages_with_one_number,
    hole_in_a_stream,
    hole_larger_than_reported,
    message_overtaken,
    lost_message_delivered_after_all,
    delivery_after_leaving,
    key_handed_over_twice,
    repetition_delivered_after_it_was_left_out,
    best_effort_out_of_order,
    answer_before_its_question,
    answer_before_its_question_across_groups,
    two_receivers_disagree,
    three_receivers_in_a_circle,
    disagreement_of_a_life_that_crashed,
    same_view_other_members,
    same_view_other_rank,
    view_number_goes_back,
    view_without_its_own_member,
    delivery_as_one_of_another_view,
    message_sent_in_a_view_that_is_over,
    message_that_overtakes_its_view,
    message_before_the_first_view,
    view_installed_again,
    message_of_an_older_view_of_the_same_sender,
    message_of_an_older_view_in_a_later_stay,
    survivors_differ,
    reported_loss_is_no_excuse,
    delivery_in_a_view_that_ended,
    queue_over_its_limit,
    message_that_silently_vanished,
    message_of_a_view_that_the_receiver_jumped_over,
    message_of_a_view_that_nobody_installed,
    joiner_that_lacks_what_its_view_was_sent_before_it_came,
    failure_that_names_nobody_while_a_member_lacks_the_message,
    member_dropped_after_the_confirmation_of_what_it_lacks,
    stable_message_of_a_dead_sender_missing,
    end_of_a_life_that_nobody_touched,
    end_of_a_life_without_a_record,
    more_ends_than_faults,
    failure_in_a_group_that_nobody_touched,
    failure_of_a_message_that_was_long_out,
    loss_on_a_link_that_only_repeats,
    loss_of_a_message_whose_sender_is_there,
]
"""Every planted violation."""

CORRECT: list[Callable[[], Planted]] = [
    everything_in_order,
    crash_and_new_life,
    new_life_is_given_the_messages_of_the_old_one_again,
    late_joiner,
    leave_and_join_again,
    message_of_a_view_of_the_stay_before,
    member_dropped_before_the_confirmation_of_what_it_lacks,
    losses_reported,
    repetitions_left_out,
    end_and_losses_after_faults,
    survivors_agree,
]
"""Every correct history. No checker may find anything in them."""
