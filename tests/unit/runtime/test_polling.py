"""When a node polls instead of sleeping: in virtual time, without sockets."""

from vivum.runtime.polling import (
    CROWDED_REST_NS,
    GAP_NS,
    PROVEN_POLLS,
    QUEUED_NS,
    REST_NS_MAX,
    REST_NS_MIN,
    SHORT_WAITS,
    SLEPT_FACTOR,
    SMALL_BYTES,
    Polling,
)

LIMIT_NS = 200_000
TURN_NS = 2_000
SMALL = 120


class Pair:
    """A node on a virtual clock: what it hears and says, and how long it polled and slept in between."""

    def __init__(self, limit_ns: int = LIMIT_NS) -> None:
        self.polling = Polling(limit_ns)
        self.now_ns = 1_000_000_000
        self.polled_ns = 0
        self.polling.begin(self.now_ns, sent=0)

    def wait(self, wait_ns: int) -> bool:
        """Let time pass until something arrives; tell whether the node polled all the time."""
        until_ns = self.now_ns + wait_ns
        while self.polling.is_on and self.now_ns < until_ns:
            self.now_ns += TURN_NS
            self.polled_ns += TURN_NS
            self.polling.go_on(self.now_ns)
        polled = self.polling.is_on
        self.now_ns = max(self.now_ns, until_ns)
        return polled

    def hear(self, wait_ns: int, size: int = SMALL, answer: bool = True) -> bool:
        """Wait, take what arrives and maybe answer; tell whether the node had polled all the time."""
        polled = self.wait(wait_ns)
        self.polling.on_arrival(self.now_ns, size)
        self.polling.begin(self.now_ns, sent=SMALL if answer else 0)
        return polled

    def hear_often(self, times: int, wait_ns: int, size: int = SMALL) -> int:
        """Do so again and again; tell how often the node had polled."""
        return sum(self.hear(wait_ns, size) for _ in range(times))


def polling_pair(proven: bool = False) -> Pair:
    """Make a node that polls."""
    pair = Pair()
    pair.hear_often(SHORT_WAITS, 100_000)
    if proven:
        pair.hear_often(PROVEN_POLLS, 100_000)
    assert pair.polling.is_on
    return pair


def test_a_node_polls_after_a_few_short_waits_and_goes_on_while_they_last() -> None:
    pair = Pair()
    assert pair.hear_often(SHORT_WAITS, 100_000) == 0
    assert pair.hear_often(1000, 100_000) == 1000


def test_a_wait_in_which_both_sides_slept_is_still_short() -> None:
    pair = Pair()
    pair.hear_often(SHORT_WAITS, SLEPT_FACTOR * LIMIT_NS)
    assert pair.polling.is_on


def test_idle_nodes_and_slow_trickles_never_poll() -> None:
    for wait_ns in (SLEPT_FACTOR * LIMIT_NS + 1, 1_000_000, 1_000_000_000):
        pair = Pair()
        pair.hear_often(1000, wait_ns)
        assert pair.polled_ns == 0


def test_a_request_and_its_answer_now_and_then_are_no_reason_to_poll() -> None:
    pair = Pair()
    for _ in range(1000):
        pair.hear(5_000_000)
        pair.hear(50_000)
    assert pair.polled_ns == 0


def test_bulk_traffic_is_not_polled_for() -> None:
    pair = Pair()
    pair.hear_often(1000, 50_000, SMALL_BYTES + 1)
    assert pair.polled_ns == 0


def test_bulk_ends_polling() -> None:
    pair = polling_pair()
    pair.hear(50_000, SMALL_BYTES + 1)
    assert not pair.polling.is_on


def test_who_sends_bulk_does_not_poll_for_the_small_reports_on_it() -> None:
    pair = Pair()
    for _ in range(1000):
        pair.hear(50_000, answer=False)
        pair.polling.begin(pair.now_ns, sent=60_000)
    assert pair.polled_ns == 0


def test_zero_turns_it_off() -> None:
    pair = Pair(0)
    pair.hear_often(1000, 1_000)
    pair.hear_often(1000, 100_000)
    assert pair.polled_ns == 0
    assert pair.polling.expects_one


def test_a_poll_in_vain_lasts_no_longer_than_the_limit() -> None:
    pair = polling_pair()
    before_ns = pair.polled_ns
    pair.wait(1_000_000_000)
    assert LIMIT_NS <= pair.polled_ns - before_ns <= LIMIT_NS + TURN_NS
    assert not pair.polling.is_on


def test_what_is_sent_while_nobody_answers_does_not_keep_a_node_awake() -> None:
    pair = polling_pair()
    for _ in range(1000):
        pair.wait(50_000)
        pair.polling.begin(pair.now_ns, sent=SMALL)
    assert pair.polled_ns <= LIMIT_NS + 50_000


def test_the_first_thing_sent_after_a_while_begins_a_wait_so_that_its_answer_counts() -> None:
    pair = Pair()
    for _ in range(SHORT_WAITS):
        pair.now_ns += 20_000_000
        pair.polling.begin(pair.now_ns, sent=SMALL)
        pair.hear(80_000, answer=False)
    assert pair.polling.is_on


def test_polls_in_vain_make_a_node_rest_longer_and_longer() -> None:
    pair = Pair()
    vain = 0
    began_ns = pair.now_ns
    while pair.now_ns - began_ns < 10_000_000_000:
        # Several short waits, then a long one: the worst pattern for who polls.
        pair.hear_often(SHORT_WAITS, 50_000)
        vain += pair.polling.is_on
        pair.hear(1_000_000)
    assert vain >= 10
    assert pair.polled_ns < 0.01 * (pair.now_ns - began_ns)
    assert vain <= 10 + 10_000_000_000 / REST_NS_MAX


def test_a_run_that_ends_costs_no_rest() -> None:
    pair = polling_pair(proven=True)
    pair.hear(1_000_000)
    assert not pair.polling.is_on
    pair.hear_often(SHORT_WAITS, 100_000)
    assert pair.polling.is_on


def test_a_short_run_that_ends_costs_a_rest() -> None:
    pair = polling_pair()
    pair.wait(LIMIT_NS + TURN_NS)
    pair.hear(1_000)
    rest_until_ns = pair.now_ns + REST_NS_MIN
    while pair.now_ns < rest_until_ns - 50_000:
        assert not pair.hear(50_000)
        assert not pair.polling.is_on
    pair.hear_often(SHORT_WAITS, 50_000)
    assert pair.polling.is_on


def test_who_was_kept_from_the_processor_does_not_poll_for_a_while() -> None:
    pair = polling_pair(proven=True)
    pair.now_ns += TURN_NS
    assert pair.polling.go_on(pair.now_ns)
    pair.now_ns += GAP_NS
    assert not pair.polling.go_on(pair.now_ns)
    crowded_until_ns = pair.now_ns + CROWDED_REST_NS
    while pair.now_ns < crowded_until_ns - 100_000:
        assert not pair.hear(100_000)
    pair.hear_often(SHORT_WAITS, 100_000)
    assert pair.polling.is_on


def test_who_polls_expects_one_only_after_the_loop_has_looked_in_vain() -> None:
    pair = polling_pair()
    assert not pair.polling.expects_one
    pair.polling.go_on(pair.now_ns + 1)
    assert not pair.polling.expects_one
    pair.polling.go_on(pair.now_ns + 2)
    assert pair.polling.expects_one
    pair.polling.on_arrival(pair.now_ns + 3, SMALL)
    assert not pair.polling.expects_one


def test_who_sleeps_expects_one_while_small_ones_come_one_by_one() -> None:
    pair = polling_pair()
    pair.wait(LIMIT_NS + TURN_NS)
    assert not pair.polling.is_on
    pair.hear_often(SHORT_WAITS + 1, 100_000)
    assert not pair.polling.is_on
    assert pair.polling.expects_one
    pair.hear(QUEUED_NS - 1)
    assert not pair.polling.expects_one, "it lay there already: so may others"
    pair.hear(100_000)
    assert pair.polling.expects_one
    pair.hear(100_000, SMALL_BYTES + 1)
    assert not pair.polling.expects_one
