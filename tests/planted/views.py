"""Planted violations of what is promised of views, and one history that only looks like one."""

from planted.history import Planted, started

# View agreement.


def same_view_other_members() -> Planted:
    history = started("1.1", "2.1", "3.1")
    one = history.view("1.1", 1, "1.1", "2.1")
    two = history.view("2.1", 1, "1.1", "2.1", "3.1")
    return Planted(history.records, "view_agreement", (one, two))


def same_view_other_rank() -> Planted:
    history = started("1.1", "2.1")
    one = history.view("1.1", 1, "1.1", "2.1")
    two = history.view("2.1", 1, "2.1", "1.1")
    return Planted(history.records, "view_agreement", (one, two))


def view_number_goes_back() -> Planted:
    history = started("1.1")
    history.view("1.1", 1, "1.1")
    later = history.view("1.1", 3, "1.1")
    earlier = history.view("1.1", 2, "1.1")
    return Planted(history.records, "view_agreement", (later, earlier), frozenset({"views_first"}))


def view_without_its_own_member() -> Planted:
    history = started("1.2", "2.1")
    wrong = history.view("1.2", 1, "1.1", "2.1")
    return Planted(history.records, "view_agreement", (wrong,))


def delivery_as_one_of_another_view() -> Planted:
    lives = ["1.1", "2.1"]
    history = started(*lives)
    for life in lives:
        history.view(life, 1, *lives)
    sent = history.send("1.1", 1, view=1)
    history.deliver("1.1", "1.1", 1, view=1)
    for life in lives:
        history.view(life, 2, *lives)
    late = history.deliver("2.1", "1.1", 1, view=2)
    also = frozenset({"virtual_synchrony"})
    return Planted(history.records, "view_agreement", (sent, late), also)


def message_sent_in_a_view_that_is_over() -> Planted:
    lives = ["1.1", "2.1"]
    history = started(*lives)
    for life in lives:
        history.view(life, 1, *lives)
    for life in lives:
        installed = history.view(life, 2, *lives)
    sent = history.send("2.1", 1, view=1)
    for life in lives:
        history.deliver(life, "2.1", 1, view=1)
    return Planted(history.records, "view_agreement", (installed, sent), frozenset({"virtual_synchrony"}))


# Views first.


def message_that_overtakes_its_view() -> Planted:
    """1 knows of view 2 first and sends in it; 2 delivers that while it stands in view 1."""
    lives = ["1.1", "2.1"]
    history = started(*lives)
    for life in lives:
        before = history.view(life, 1, *lives)
    history.view("1.1", 2, *lives)
    history.send("1.1", 1, view=2)
    history.deliver("1.1", "1.1", 1, view=2)
    early = history.deliver("2.1", "1.1", 1, view=2)
    history.view("2.1", 2, *lives)
    return Planted(history.records, "views_first", (before, early), frozenset({"virtual_synchrony"}))


def message_before_the_first_view() -> Planted:
    lives = ["1.1", "2.1"]
    history = started(*lives)
    history.view("1.1", 1, *lives)
    history.send("1.1", 1, view=1)
    history.deliver("1.1", "1.1", 1, view=1)
    early = history.deliver("2.1", "1.1", 1, view=1)
    history.view("2.1", 1, *lives)
    return Planted(history.records, "views_first", (early,), frozenset({"virtual_synchrony"}))


def view_installed_again() -> Planted:
    history = started("1.1")
    first = history.view("1.1", 2, "1.1")
    again = history.view("1.1", 2, "1.1")
    return Planted(history.records, "views_first", (first, again), frozenset({"view_agreement"}))


def message_of_an_older_view_of_the_same_sender() -> Planted:
    """2 delivers of 1 a message of view 2 and then one of view 1, and a third of view 2 that makes it no better."""
    lives = ["1.1", "2.1"]
    history = started(*lives)
    for view in (1, 2):
        for life in lives:
            history.view(life, view, *lives)
    history.everywhere(lives, "1.1", 1, view=2)
    newest = history.records[-1]
    history.everywhere(lives, "1.1", 2, view=2)
    history.send("1.1", 3, view=1)
    late = history.deliver("2.1", "1.1", 3, view=1)
    history.deliver("1.1", "1.1", 3, view=1)
    also = frozenset({"view_agreement", "virtual_synchrony"})
    return Planted(history.records, "views_first", (newest, late), also)


def message_of_an_older_view_in_a_later_stay() -> Planted:
    """The same, but 2 left and joined again between the two."""
    lives = ["1.1", "2.1"]
    history = started(*lives)
    for life in lives:
        history.view(life, 2, *lives)
    history.everywhere(lives, "1.1", 1, view=2)
    newest = history.records[-1]
    history.leave("2.1")
    history.join("2.1")
    history.view("2.1", 3, *lives)
    history.send("1.1", 2, view=1)
    late = history.deliver("2.1", "1.1", 2, view=1)
    history.deliver("1.1", "1.1", 2, view=1)
    also = frozenset({"view_agreement", "virtual_synchrony"})
    return Planted(history.records, "views_first", (newest, late), also)


# Virtual synchrony.


def survivors_differ() -> Planted:
    """3 sends and crashes; its message reaches 1 but not 2, and both go on to the next view."""
    lives = ["1.1", "2.1", "3.1"]
    history = started(*lives)
    for life in lives:
        history.view(life, 1, *lives)
    history.everywhere(lives, "1.1", 1, view=1)
    history.send("3.1", 1, view=1)
    extra = history.deliver("1.1", "3.1", 1, view=1)
    history.stop("3.1")
    one = history.view("1.1", 2, "1.1", "2.1")
    two = history.view("2.1", 2, "1.1", "2.1")
    return Planted(history.records, "virtual_synchrony", (extra, one, two))


def reported_loss_is_no_excuse() -> Planted:
    lives = ["1.1", "2.1"]
    history = started(*lives)
    for life in lives:
        history.view(life, 1, *lives)
    history.fault("loss", 2)
    history.send("1.1", 1, view=1)
    extra = history.deliver("1.1", "1.1", 1, view=1)
    history.lost("2.1", "1.1", 1, 2)
    one = history.view("1.1", 2, *lives)
    two = history.view("2.1", 2, *lives)
    return Planted(history.records, "virtual_synchrony", (extra, one, two))


def delivery_in_a_view_that_ended() -> Planted:
    lives = ["1.1", "2.1"]
    history = started(*lives)
    for view in (1, 2):
        for life in lives:
            installed = history.view(life, view, *lives)
    history.send("1.1", 1, view=2)
    history.deliver("1.1", "1.1", 1, view=2)
    late = history.deliver("2.1", "1.1", 1, view=1)
    return Planted(history.records, "virtual_synchrony", (installed, late), frozenset({"view_agreement"}))


# All delivered.


def message_of_a_view_that_the_receiver_jumped_over() -> Planted:
    """2 joined in view 1 and never heard of it; 1 was in it, sent in it, and 2 began with view 2."""
    history = started("1.1")
    history.view("1.1", 1, "1.1", "2.1")
    joined = history.join("2.1")
    history.view("2.1", 2, "1.1", "2.1")
    vanished = history.send("1.1", 1, view=1)
    history.deliver("1.1", "1.1", 1, view=1)
    history.view("1.1", 2, "1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 2, view=2)
    # One who went the same way has what the other lacks; it is the beginning of a stay, so FIFO has no hole.
    return Planted(history.records, "all_delivered", (vanished, joined))


def message_of_a_view_that_nobody_installed() -> Planted:
    """2 stands in view 1. 1 sends in view 3, of which no record tells; 2 never has it."""
    history = started("1.1")
    joined = history.join("2.1")
    history.view("2.1", 1, "1.1", "2.1")
    vanished = history.send("1.1", 1, view=3)
    history.deliver("1.1", "1.1", 1, view=3)
    also = frozenset({"virtual_synchrony", "views_first"})
    return Planted(history.records, "all_delivered", (vanished, joined), also)


def joiner_that_lacks_what_its_view_was_sent_before_it_came() -> Planted:
    """B11: 2 is a member of view 5. The other knows it first, sends in it, and confirms; 2 has only what follows."""
    history = started("1.1")
    history.start("2.1")
    history.view("1.1", 5, "1.1", "2.1")
    vanished = history.send("1.1", 1, view=5)
    history.deliver("1.1", "1.1", 1, view=5)
    history.stable("1.1", 1, 2)
    joined = history.join("2.1")
    history.view("2.1", 5, "1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 2, view=5)
    return Planted(history.records, "all_delivered", (vanished, joined))


def failure_that_names_nobody_while_a_member_lacks_the_message() -> Planted:
    """1 delivers nothing to the other member of its view, and calls that a failure at nobody in particular."""
    lives = ["1.1", "2.1"]
    history = started("1.1")
    joined = history.join("2.1")
    for life in lives:
        history.view(life, 1, *lives)
    history.fault("loss", 2)
    vanished = history.send("1.1", 1, view=1)
    history.deliver("1.1", "1.1", 1, view=1)
    history.failed("1.1", 1, 2)
    return Planted(history.records, "all_delivered", (vanished, joined))


def member_dropped_after_the_confirmation_of_what_it_lacks() -> Planted:
    """1 confirms while 2 is in the view and lacks the message; only then 2 loses its life."""
    lives = ["1.1", "2.1"]
    history = started("1.1")
    joined = history.join("2.1")
    for life in lives:
        history.view(life, 1, *lives)
    history.fault("pause", 2)
    sent = history.send("1.1", 1, view=1)
    history.deliver("1.1", "1.1", 1, view=1)
    confirmed = history.stable("1.1", 1, 2)
    stopped = history.stop("2.1", "dropped by the configuration service")
    history.view("1.1", 2, "1.1")
    return Planted(history.records, "all_delivered", (sent, joined, confirmed, stopped))


# Correct.


def message_of_a_view_of_the_stay_before() -> Planted:
    """2 was in view 1, left, and came back in view 3; 1 did not know it and sent in view 1 to the stay before."""
    history = started("1.1", "2.1")
    for life in ("1.1", "2.1"):
        history.view(life, 1, "1.1", "2.1")
    history.leave("2.1")
    history.join("2.1")
    history.view("2.1", 3, "1.1", "2.1")
    history.send("1.1", 1, view=1)
    history.deliver("1.1", "1.1", 1, view=1)
    history.view("1.1", 3, "1.1", "2.1")
    history.everywhere(["1.1", "2.1"], "1.1", 2, view=3)
    return Planted(history.records)


def member_dropped_before_the_confirmation_of_what_it_lacks() -> Planted:
    """3 crashes and 2 sleeps; both are gone from the view when 1 confirms. That 2 learns it later changes nothing."""
    lives = ["1.1", "2.1", "3.1"]
    history = started(*lives)
    for life in lives:
        history.view(life, 1, *lives)
    history.fault("crash", 3)
    history.stop("3.1")
    history.fault("pause", 2)
    history.send("1.1", 1, view=1)
    history.deliver("1.1", "1.1", 1, view=1)
    history.view("1.1", 2, "1.1")
    history.stable("1.1", 1, 2)
    history.stop("2.1", "dropped by the configuration service")
    return Planted(history.records)
