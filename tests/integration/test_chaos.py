"""Processes that are stopped at random while all of them send: they come together again, and nothing is out of order.

Most faults of discovery and of catching up were found this way, and hardly any other: a process that stops for a moment
is late for everything at once. For `make soak`, since it takes minutes; the seed decides who stops and for how long.
"""

import signal
import time
from random import Random

import pytest

from live_processes.director import Cast, Process

TOPIC = "/chaos/one"
PROCESSES = 4
ROUNDS = 12
STOPPED_S_MAX = 1.2
MESSAGES = 2000


def disturb(random: Random, everybody: list[Process]) -> None:
    """Stop some processes, each for a while of its own."""
    chosen = random.sample(everybody, random.randrange(1, PROCESSES))
    stopped = [(random.random() ** 3 * STOPPED_S_MAX, each) for each in chosen]
    for _, each in stopped:
        each.signal(signal.SIGSTOP)
    began = time.monotonic()
    for until_s, each in sorted(stopped, key=lambda pair: pair[0]):
        time.sleep(max(0.0, began + until_s - time.monotonic()))
        each.signal(signal.SIGCONT)


def come_together(everybody: list[Process]) -> None:
    views: set[tuple[str, ...]] = set()
    while len(views) != 1:
        for each in everybody:
            each.tell("members", topic=TOPIC, count=PROCESSES)
        views = {tuple(each.answer()) for each in everybody}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 21))
def test_processes_that_are_stopped_at_random_come_together_again(cast: Cast, seed: int) -> None:
    random = Random(seed)
    everybody = cast.start(PROCESSES)
    for each in everybody:
        each.ask("enter", topics=[TOPIC])
    come_together(everybody)
    for turn in range(ROUNDS):
        for number, each in enumerate(everybody):
            each.tell("send", topic=TOPIC, tag=f"{turn}-{number}", count=MESSAGES)
        disturb(random, everybody)
        for each in everybody:
            assert each.answer() == MESSAGES
        # Whoever was dropped meanwhile is told, and is back; from here on everybody gets everything.
        come_together(everybody)
        for number, each in enumerate(everybody):
            each.ask("send", topic=TOPIC, tag=f"{turn}-{number}-again", count=100)
        for number in range(PROCESSES):
            for each in everybody:
                assert each.ask("expect", topic=TOPIC, tag=f"{turn}-{number}-again", count=100) == 100
    reports = [each.ask("report") for each in everybody]
    assert sum(report["carries"] for report in reports) == 1
    # Where messages are missing, which is told, numbers jump.
    assert not any(report["out_of_order"] for report in reports if not report["missed"])
