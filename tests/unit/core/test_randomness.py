"""Randomness: one seed decides all, and parts do not disturb each other."""

import subprocess
import sys

from vivum.core.randomness import RandomSource


def _draws(source: RandomSource, count: int = 5) -> list[float]:
    return [source.random() for _ in range(count)]


def test_the_same_seed_gives_the_same_draws() -> None:
    assert _draws(RandomSource(7)) == _draws(RandomSource(7))
    assert _draws(RandomSource(7)) != _draws(RandomSource(8))


def test_a_fork_does_not_depend_on_what_was_drawn_before() -> None:
    fresh, used = RandomSource(7), RandomSource(7)
    _draws(used, 100)
    assert _draws(fresh.fork("network")) == _draws(used.fork("network"))


def test_forking_does_not_change_the_draws_of_the_parent() -> None:
    plain, forking = RandomSource(7), RandomSource(7)
    forking.fork("network")
    assert _draws(plain) == _draws(forking)


def test_forks_do_not_depend_on_the_order_of_forking() -> None:
    one, other = RandomSource(7), RandomSource(7)
    first = {name: _draws(one.fork(name)) for name in ("a", "b", "c")}
    second = {name: _draws(other.fork(name)) for name in ("c", "a", "b")}
    assert first == second


def test_forks_of_different_names_are_different_from_each_other_and_from_the_parent() -> None:
    root = RandomSource(7)
    sources = [root, *(root.fork(*names) for names in _NAMES)]
    assert len({tuple(_draws(source)) for source in sources}) == len(sources)


_NAMES: list[tuple[str | int, ...]] = [
    ("a",),
    ("b",),
    ("a", "b"),
    ("a/b",),
    ("ab",),
    ("a", ""),
    ("1:a",),
    ("a/1:b",),
    ("node", 1),
    ("node", 11),
    ("node1", 1),
]


def test_a_fork_of_a_fork_is_the_fork_of_both_names() -> None:
    root = RandomSource(7)
    assert _draws(root.fork("a").fork("b", 3)) == _draws(root.fork("a", "b", 3))


def test_forks_are_not_correlated() -> None:
    # 1,000 forks by number: the mean of their first draws is that of independent ones within four deviations.
    firsts = [RandomSource(7).fork("node", number).random() for number in range(1_000)]
    assert abs(sum(firsts) / 1_000 - 0.5) < 4 * (1 / 12 / 1_000) ** 0.5


def test_draws_are_the_same_in_another_process_with_another_hash_seed() -> None:
    program = "from vivum.core.randomness import RandomSource as R; print(R('s').fork('node', 3).getrandbits(128))"
    answers = set()
    for hash_seed in ("0", "1", "4242"):
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        answers.add(done.stdout.strip())
    assert answers == {str(RandomSource("s").fork("node", 3).getrandbits(128))}
