"""Counters: one list, each with a unit and a meaning."""

from dataclasses import fields

from vivum.observe.counters import Counters, counter_list


def test_every_counter_starts_at_0_and_says_its_unit_and_meaning() -> None:
    listed = counter_list()
    assert [name for name, _, _ in listed] == [each.name for each in fields(Counters)]
    for name, unit, meaning in listed:
        assert unit, name
        assert meaning, name
        assert meaning[0].isupper(), name
        assert not meaning.endswith("."), name
    assert set(Counters().as_dict().values()) == {0}


def test_no_two_counters_have_the_same_meaning() -> None:
    meanings = [meaning for _, _, meaning in counter_list() if not meaning.startswith("Such")]
    alike = {each for each in meanings if meanings.count(each) > 1}
    assert alike <= {"Payload of those datagrams, without UDP and IP headers"}  # Of those received, of those sent.


def test_adding_adds_every_counter_and_leaves_the_other_alone() -> None:
    one, other = Counters(), Counters()
    for number, each in enumerate(fields(Counters)):
        setattr(one, each.name, number)
        setattr(other, each.name, 100)
    one.add(other)
    assert list(one.as_dict().values()) == [100 + number for number in range(len(fields(Counters)))]
    assert set(other.as_dict().values()) == {100}


def test_a_copy_does_not_change_any_more() -> None:
    counters = Counters()
    before = counters.as_dict()
    counters.frames_received += 1
    assert before["frames_received"] == 0
    assert counters.as_dict()["frames_received"] == 1


def test_a_counter_that_is_not_in_the_list_cannot_be_counted() -> None:
    assert not hasattr(Counters(), "__dict__")
