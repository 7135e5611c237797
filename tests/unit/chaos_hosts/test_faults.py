"""The faults of chaos between hosts: drawn from a seed alone, and such that a heal can follow."""

from collections import Counter
from itertools import pairwise

from chaos_hosts.faults import draw_faults

SECONDS = 25.0


def test_the_same_seed_draws_the_same_faults_and_another_draws_others() -> None:
    assert draw_faults(1, 5, 7, SECONDS) == draw_faults(1, 5, 7, SECONDS)
    assert draw_faults(1, 5, 7, SECONDS) != draw_faults(2, 5, 7, SECONDS)


def test_all_kinds_come_and_all_are_over_before_the_end() -> None:
    drawn = [fault for seed in range(50) for fault in draw_faults(seed, 5, 7, SECONDS)]
    assert min(Counter(fault.kind for fault in drawn).values()) > 100
    assert max(fault.at_s + fault.lasts_s for fault in drawn) <= SECONDS


def test_a_program_is_not_stopped_while_it_is_down_nor_killed_while_it_is_stopped() -> None:
    for seed in range(50):
        faults = [each for each in draw_faults(seed, 5, 7, SECONDS) if each.kind in ("kill", "stop")]
        for program in range(7):
            mine = [each for each in faults if each.target == program]
            assert all(one.at_s + one.lasts_s <= other.at_s for one, other in pairwise(mine))
