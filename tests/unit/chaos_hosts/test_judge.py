"""The judge of chaos between hosts: a clean history passes, and each planted violation is found."""

from collections.abc import Callable
from typing import Any

import pytest

from chaos_hosts.judge import judge

Log = list[list[Any]]
Logs = dict[str, Log]

TOPIC = "/a"
LIVES = {"p0.1": "1.1", "p1.1": "2.1", "p2.1": "3.1"}
EVERYBODY = sorted(LIVES.values())
COUNT = 10


def got(run: str, number: int, sequence: int | None = None, view: int = 1, text: str | None = None) -> list[Any]:
    place = number if sequence is None else sequence
    return ["got", TOPIC, LIVES[run], place, view, run, number, text or f"{run} {number}"]


def clean() -> Logs:
    """Three runs, of which each sends ten messages that all read and that are confirmed."""
    logs: Logs = {}
    for run, life in LIVES.items():
        log: Log = [["life", life], ["view", TOPIC, 1, EVERYBODY]]
        log += [["send", TOPIC, number, f"{run} {number}"] for number in range(COUNT)]
        log += [got(sender, number) for number in range(COUNT) for sender in LIVES]
        logs[run] = [*log, ["confirmed", TOPIC, 0, COUNT], ["end"]]
    return logs


def drop(log: Log, run: str, *numbers: int) -> None:
    log[:] = [each for each in log if not (each[0] == "got" and each[5] == run and each[6] in numbers)]


def at(log: Log, run: str, number: int) -> int:
    return log.index(got(run, number))


def test_a_clean_history_has_no_violation() -> None:
    verdict = judge(clean())
    assert verdict.violations == []
    assert verdict.figures["read"] == 3 * 3 * COUNT
    assert verdict.figures["confirmed"] == 3 * COUNT


# What is wrong, and a part of what the judge must say of it.


def twice(logs: Logs) -> str:
    logs["p1.1"].insert(-2, got("p0.1", COUNT - 1))
    return "twice in one life"


def made_up(logs: Logs) -> str:
    logs["p1.1"].insert(-2, got("p0.1", COUNT))
    return "nobody sent it so"


def changed_on_the_way(logs: Logs) -> str:
    log = logs["p1.1"]
    log[at(log, "p0.1", 4)] = got("p0.1", 4, text="else")
    return "nobody sent it so"


def of_another_topic(logs: Logs) -> str:
    logs["p1.1"].insert(3, ["view", "/b", 1, EVERYBODY])
    logs["p1.1"].insert(4, ["got", "/b", "1.1", 0, 1, "p0.1", 4, "p0.1 4"])
    return "nobody sent it so"


def out_of_order(logs: Logs) -> str:
    log = logs["p1.1"]
    one, other = at(log, "p0.1", 3), at(log, "p0.1", 4)
    log[one], log[other] = log[other], log[one]
    return "after 4 (sequence 4)"


def a_silent_gap(logs: Logs) -> str:
    drop(logs["p1.1"], "p0.1", 4)
    logs["p0.1"].remove(["confirmed", TOPIC, 0, COUNT])
    return "without 4, and was not told"


def a_silent_gap_at_the_beginning(logs: Logs) -> str:
    drop(logs["p1.1"], "p0.1", 0, 1)
    logs["p0.1"].remove(["confirmed", TOPIC, 0, COUNT])
    return "without 0, and was not told"


def a_gap_that_nobody_has(logs: Logs) -> str:
    # The sender was killed before it could read its own message.
    logs["p0.1"][-2:] = []
    for log in logs.values():
        drop(log, "p0.1", 4)
    return "without 4, and was not told"


def a_gap_larger_than_told(logs: Logs) -> str:
    drop(logs["p1.1"], "p0.1", 4, 5)
    logs["p1.1"].insert(at(logs["p1.1"], "p0.1", 6), ["missed", TOPIC, "1.1", 4, 1, ""])
    return "without 5, and was not told"


def confirmed_but_not_read(logs: Logs) -> str:
    drop(logs["p1.1"], "p0.1", COUNT - 1)
    return "in the topic as 2.1 throughout, has not read it"


def confirmed_but_read_by_nobody(logs: Logs) -> str:
    for log in logs.values():
        drop(log, "p0.1", COUNT - 1)
    return "nobody has read it"


def confirmed_though_a_member_read_nothing(logs: Logs) -> str:
    logs["p1.1"] = [["life", "2.1"], ["end"]]
    return "and read nothing there"


def confirmed_after_a_new_life_that_lacks_it(logs: Logs) -> str:
    # It is told of the end of its first life, and is in the view with the second when the message is sent.
    logs["p1.1"][-2:-2] = [["missed", TOPIC, None, None, None, "dropped"], ["life", "2.2"]]
    logs["p1.1"][-2:-2] = [["view", TOPIC, 2, ["1.1", "2.2", "3.1"]]]
    for run in ("p0.1", "p2.1"):
        logs[run][-2:-2] = [["view", TOPIC, 2, ["1.1", "2.2", "3.1"]], got("p0.1", COUNT, view=2)]
    logs["p0.1"].insert(3, ["send", TOPIC, COUNT, f"p0.1 {COUNT}"])
    logs["p0.1"].insert(-1, ["confirmed", TOPIC, COUNT, COUNT + 1])
    return "in the topic as 2.2 throughout, has not read it"


def one_sequence_for_two_messages(logs: Logs) -> str:
    log = logs["p1.1"]
    drop(log, "p0.1", COUNT - 1)
    log.insert(-2, got("p0.1", COUNT, sequence=COUNT - 1))
    logs["p0.1"].insert(3, ["send", TOPIC, COUNT, f"p0.1 {COUNT}"])
    return "elsewhere this sequence is"


def two_views_of_one_number(logs: Logs) -> str:
    logs["p1.1"][1] = ["view", TOPIC, 1, ["1.1", "2.1"]]
    return "has members"


def views_that_go_back(logs: Logs) -> str:
    logs["p1.1"].insert(-2, ["view", TOPIC, 2, EVERYBODY])
    logs["p1.1"].insert(-2, ["view", TOPIC, 1, EVERYBODY])
    return "after view 2"


def a_message_before_its_view(logs: Logs) -> str:
    log = logs["p1.1"]
    log[at(log, "p0.1", 3)] = got("p0.1", 3, view=2)
    return "came before its view 2"


def one_life_for_two(logs: Logs) -> str:
    logs["p1.1"].insert(0, ["life", "1.1"])
    return "life 1.1 was given to"


def a_life_lost_for_nothing(logs: Logs) -> str:
    logs["p1.1"][-2:-2] = [["missed", TOPIC, None, None, None, "dropped"], ["life", "2.2"]]
    return "p1.1 lost 1 lives, and was disturbed 0 times"


def everything_reported_as_missing(logs: Logs) -> str:
    drop(logs["p1.1"], "p0.1", *range(COUNT))
    logs["p1.1"].insert(2, ["missed", TOPIC, "1.1", 0, COUNT, ""])
    return "were reported as missing"


def nothing_confirmed(logs: Logs) -> str:
    for log in logs.values():
        log[-2] = ["unconfirmed", TOPIC, 0, COUNT, "why"]
    return "nothing was confirmed"


def too_little_confirmed(logs: Logs) -> str:
    logs["p1.1"][-2] = ["unconfirmed", TOPIC, 0, COUNT, "why"]
    return "stayed unconfirmed"


@pytest.mark.parametrize(
    "plant",
    [
        twice,
        made_up,
        changed_on_the_way,
        of_another_topic,
        out_of_order,
        a_silent_gap,
        a_silent_gap_at_the_beginning,
        a_gap_that_nobody_has,
        a_gap_larger_than_told,
        confirmed_but_not_read,
        confirmed_but_read_by_nobody,
        confirmed_though_a_member_read_nothing,
        confirmed_after_a_new_life_that_lacks_it,
        one_sequence_for_two_messages,
        two_views_of_one_number,
        views_that_go_back,
        a_message_before_its_view,
        one_life_for_two,
        a_life_lost_for_nothing,
        everything_reported_as_missing,
        nothing_confirmed,
        too_little_confirmed,
    ],
    ids=lambda plant: plant.__name__,
)
def test_what_was_planted_is_found(plant: Callable[[Logs], str]) -> None:
    logs = clean()
    expected = plant(logs)
    violations = judge(logs).violations
    assert any(expected in text for text in violations), violations


# What is allowed.


def test_a_killed_run_need_not_have_read_what_was_confirmed() -> None:
    logs = clean()
    logs["p1.1"] = logs["p1.1"][:-2]
    drop(logs["p1.1"], "p0.1", *range(5, COUNT))
    assert judge(logs).violations == []


def test_a_life_that_ended_after_a_disturbance_need_not_have_read_what_was_confirmed() -> None:
    logs = clean()
    drop(logs["p1.1"], "p0.1", *range(5, COUNT))
    logs["p1.1"][-2:-2] = [["missed", TOPIC, None, None, None, "dropped"], ["life", "2.2"]]
    logs["p1.1"].insert(-2, ["view", TOPIC, 2, ["1.1", "2.2", "3.1"]])
    assert judge(logs, {"p1.1": 1}).violations == []


def test_who_joins_later_need_not_have_what_was_sent_before() -> None:
    logs = clean()
    logs["p1.1"] = [["life", "2.2"], ["view", TOPIC, 2, ["1.1", "2.2", "3.1"]], ["send", TOPIC, 0, "p1.1 0"]]
    logs["p1.1"] += [["got", TOPIC, "2.2", 0, 2, "p1.1", 0, "p1.1 0"], ["end"]]
    for run in ("p0.1", "p2.1"):
        drop(logs[run], "p1.1", *range(COUNT))
    assert judge(logs).violations == []


def test_a_gap_of_which_the_reader_was_told_is_allowed() -> None:
    logs = clean()
    for run in LIVES:
        logs[run][2:2] = [["send", TOPIC, number, f"{run} {number}"] for number in range(COUNT, 20 * COUNT)]
        for sender in LIVES:
            logs[run][-2:-2] = [got(sender, number) for number in range(COUNT, 20 * COUNT)]
    drop(logs["p1.1"], "p0.1", 4)
    logs["p1.1"].insert(at(logs["p1.1"], "p0.1", 5), ["missed", TOPIC, "1.1", 4, 1, ""])
    assert judge(logs).violations == []
