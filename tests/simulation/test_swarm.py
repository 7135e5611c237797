"""The swarm holds, and it can fail: each broken variant of the protocol is caught by the right checker."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from vivum.cli import main
from vivum.core.ids import Endpoint, GroupId, Member, NodeId
from vivum.core.machine import Command, Delivery, Effect
from vivum.node.build import PROTOCOLS
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import Tracer
from vivum.protocols.commands import GapReported, QueueGrew, SendMessages
from vivum.protocols.reference.machine import ReferenceMachine
from vivum.protocols.reference.settings import ReferenceSettings
from vivum.sim.swarm import run_seed, run_swarm
from vivum.wire.codec import Frame
from vivum.wire.gate import Gate, domain_tag


@pytest.mark.slow
def test_sixty_seeds_hold() -> None:
    verdicts = list(run_swarm(1, 60, jobs=2, protocol="reference"))
    assert [verdict.seed for verdict in verdicts] == list(range(1, 61))
    assert [verdict for verdict in verdicts if verdict.violations] == []


@pytest.mark.slow
def test_one_process_and_two_come_to_the_same_verdicts() -> None:
    assert list(run_swarm(5, 6, jobs=1)) == list(run_swarm(5, 6, jobs=2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2424])
def test_seeds_that_failed_once_hold(seed: int) -> None:
    assert run_seed(seed, "reference").violations == ()


# Broken on purpose. Each does one thing wrong, now and then.


class _Broken(ReferenceMachine):
    """Spoils the output of the reference protocol."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._made = 0

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        super().on_frame(now_ns, source, frame)
        self.spoil_any()

    def submit(self, now_ns: int, command: Command) -> None:
        super().submit(now_ns, command)
        self.spoil_any()

    def on_timer(self, now_ns: int) -> None:
        super().on_timer(now_ns)
        self.spoil_any()

    def spoil_any(self) -> None:
        if self.effects:
            self._made += 1
            self.spoil(self.effects)

    def spoil(self, effects: list[Effect]) -> None:
        """Break the promise: each broken machine below in its own way."""
        # Abstract: this base only finds the moment.
        raise NotImplementedError

    def foreign(self, effects: list[Effect]) -> list[tuple[int, Delivery]]:
        """Where deliveries of others are."""
        return [
            (index, each)
            for index, each in enumerate(effects)
            if isinstance(each, Delivery) and each.sender != self.member
        ]


class DeliversTwice(_Broken):
    def spoil(self, effects: list[Effect]) -> None:
        if self._made % 20 == 0:
            effects += [each for _, each in self.foreign(effects)[-1:]]


class DeliversOutOfOrder(_Broken):
    """Holds one delivery back until the next of the same stream has passed it."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._late: Delivery | None = None

    def spoil(self, effects: list[Effect]) -> None:
        for index, each in self.foreign(effects):
            if self._late is None and self._made % 10 == 0:
                self._late = each
                del effects[index]
                return
            late = self._late
            if late is not None and (late.group, late.sender) == (each.group, each.sender):
                effects.insert(index + 1, late)
                self._late = None
                return


class HidesGaps(_Broken):
    def spoil(self, effects: list[Effect]) -> None:
        effects[:] = [each for each in effects if not isinstance(each, GapReported)]


class CorruptsPayloads(_Broken):
    def spoil(self, effects: list[Effect]) -> None:
        for index, each in self.foreign(effects) if self._made % 20 == 0 else ():
            payloads = [bytes([payload[0] ^ 1]) + payload[1:] if payload else b"?" for payload in each.payloads]
            effects[index] = Delivery(each.group, each.sender, each.first_sequence, payloads, each.view, each.sent_ns)


class ForgetsToAsk(ReferenceMachine):
    """Never asks for what is missing, and does not give up either."""

    def _on_nak_due(self, key: tuple[int, int]) -> None:
        pass

    def _on_give_up_due(self, key: tuple[int, int]) -> None:
        pass


class DropsWithoutAWord(ReferenceMachine):
    """Loses a message of its application now and then."""

    def _send(self, command: SendMessages) -> None:
        super()._send(command)
        if self.counters.messages_accepted % 25 == 0:
            stream = self._outgoing[GroupId(command.group)]
            for chunk in stream._outboxes._outboxes[command.group]._chunks:
                chunk[-1] = chunk[-1][:-1] + b"!" if chunk[-1] else b"!"


class QueuesWithoutEnd(_Broken):
    def spoil(self, effects: list[Effect]) -> None:
        if self._made == 50:
            effects.append(QueueGrew("pending", 2_000_000, 1_000_000, "bytes"))


class Raises(_Broken):
    def spoil(self, effects: list[Effect]) -> None:
        assert self._made < 50, "a bug of our own"


@contextmanager
def plugged_in(machine: type[ReferenceMachine]) -> Iterator[str]:
    """Register a broken protocol for a while."""

    def make(
        member: Member,
        endpoints: Mapping[NodeId, Endpoint],
        settings: ReferenceSettings,
        rng: Random,
        trace: Tracer | None,
    ) -> Node:
        counters = Counters()
        gate = Gate(domain_tag("sim"), counters, member, trace)
        return Node(member, gate, [machine(member, endpoints, gate, rng, settings, trace=trace)], counters, trace)

    name = machine.__name__
    PROTOCOLS[name] = replace(PROTOCOLS["reference"], make_node=make, meaning="broken on purpose")
    try:
        yield name
    finally:
        del PROTOCOLS[name]


@pytest.mark.parametrize(
    ("machine", "checker"),
    [
        (DeliversTwice, "no_duplicate"),
        (DeliversOutOfOrder, "fifo"),
        pytest.param(HidesGaps, "fifo", marks=pytest.mark.slow),
        (CorruptsPayloads, "no_creation"),
        (ForgetsToAsk, "all_delivered"),
        (DropsWithoutAWord, "no_creation"),
        (QueuesWithoutEnd, "bounded_queues"),
        (Raises, "crash"),
    ],
)
def test_a_broken_protocol_is_caught_within_a_few_seeds(machine: type[ReferenceMachine], checker: str) -> None:
    with plugged_in(machine) as name:
        found = (violation for verdict in run_swarm(1, 8, jobs=1, protocol=name) for violation in verdict.violations)
        assert any(violation.startswith(f"{checker}: ") for violation in found)


def test_a_protocol_that_is_not_broken_is_not_caught() -> None:
    with plugged_in(ReferenceMachine) as name:
        assert all(not verdict.violations for verdict in run_swarm(1, 3, jobs=1, protocol=name))


def test_a_failing_seed_prints_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    with plugged_in(DeliversTwice) as name:
        assert main(["sim", "swarm", "--protocol", name, "--seeds", "3", "--jobs", "1"]) == 1
        printed = capsys.readouterr().out
        commands = [line.partition("replay: ")[2] for line in printed.splitlines() if "replay: " in line]
        assert commands
        assert "no_duplicate" in printed
        # And that command shows the violation again.
        words = commands[0].split()
        assert words[0] == "vivum"
        assert main(words[1:]) == 1
        assert "no_duplicate" in capsys.readouterr().out
