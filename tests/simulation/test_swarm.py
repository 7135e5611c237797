"""The swarm holds, and it can fail: each broken variant of the protocol is caught by the right checker."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from vivum.cli import main
from vivum.core.ids import Endpoint, GroupId, Member, NodeId
from vivum.core.machine import ROOM_BYTES_UNLIMITED, Delivery, Output
from vivum.node.build import PROTOCOLS
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import Tracer
from vivum.protocols.commands import GapReported, QueueGrew, SendMessages
from vivum.protocols.reference.machine import ReferenceMachine
from vivum.protocols.reference.settings import ReferenceSettings
from vivum.sim import swarm
from vivum.sim.swarm import run_seed, run_swarm
from vivum.wire.gate import Gate, domain_tag


@pytest.mark.slow
def test_sixty_seeds_hold() -> None:
    verdicts = list(run_swarm(1, 60, jobs=2))
    assert [verdict.seed for verdict in verdicts] == list(range(1, 61))
    assert [verdict for verdict in verdicts if verdict.violations] == []


@pytest.mark.slow
def test_one_process_and_two_come_to_the_same_verdicts() -> None:
    assert list(run_swarm(5, 6, jobs=1)) == list(run_swarm(5, 6, jobs=2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2424])
def test_seeds_that_failed_once_hold(seed: int) -> None:
    assert run_seed(seed).violations == ()


# Broken on purpose. Each does one thing wrong, now and then.


class _Broken(ReferenceMachine):
    """Spoils the output of the reference protocol."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._made = 0

    def take_output(self, room_bytes: int = ROOM_BYTES_UNLIMITED) -> Output:
        output = super().take_output(room_bytes)
        if output:
            self._made += 1
            self.spoil(output)
        return output

    def spoil(self, output: Output) -> None:
        raise NotImplementedError

    def foreign(self, output: Output) -> list[int]:
        """Where deliveries of others are."""
        return [index for index, each in enumerate(output.deliveries) if each.sender != self.member]


class DeliversTwice(_Broken):
    def spoil(self, output: Output) -> None:
        if self._made % 20 == 0:
            output.deliveries += [output.deliveries[index] for index in self.foreign(output)[-1:]]


class DeliversOutOfOrder(_Broken):
    """Holds one delivery back until the next of the same stream has passed it."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._late: Delivery | None = None

    def spoil(self, output: Output) -> None:
        for index in self.foreign(output):
            each = output.deliveries[index]
            if self._late is None and self._made % 10 == 0:
                self._late = output.deliveries.pop(index)
                return
            late = self._late
            if late is not None and (late.group, late.sender) == (each.group, each.sender):
                output.deliveries.insert(index + 1, late)
                self._late = None
                return


class HidesGaps(_Broken):
    def spoil(self, output: Output) -> None:
        output.events = [event for event in output.events if not isinstance(event, GapReported)]


class CorruptsPayloads(_Broken):
    def spoil(self, output: Output) -> None:
        for index in self.foreign(output) if self._made % 20 == 0 else ():
            each = output.deliveries[index]
            payloads = [bytes([payload[0] ^ 1]) + payload[1:] if payload else b"?" for payload in each.payloads]
            output.deliveries[index] = Delivery(
                each.group, each.sender, each.first_sequence, payloads, each.view, each.sent_ns
            )


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
            for chunk in stream._outbox._chunks:
                chunk[-1] = chunk[-1][:-1] + b"!" if chunk[-1] else b"!"


class QueuesWithoutEnd(_Broken):
    def spoil(self, output: Output) -> None:
        if self._made == 50:
            output.events.append(QueueGrew("pending", 2_000_000, 1_000_000, "bytes"))


class Raises(_Broken):
    def spoil(self, output: Output) -> None:
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


def test_a_failing_seed_prints_the_command_that_replays_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with plugged_in(DeliversTwice) as name:
        monkeypatch.setattr(swarm.make_up, "__defaults__", (name,))
        monkeypatch.setattr(swarm.run_swarm, "__defaults__", (name,))
        monkeypatch.setattr(swarm.run_seed, "__defaults__", (name,))
        assert main(["sim", "swarm", "--seeds", "3", "--jobs", "1"]) == 1
        printed = capsys.readouterr().out
        commands = [line.partition("replay: ")[2] for line in printed.splitlines() if "replay: " in line]
        assert commands
        assert "no_duplicate" in printed
        # And that command shows the violation again.
        words = commands[0].split()
        assert words[0] == "vivum"
        assert main(words[1:]) == 1
        assert "no_duplicate" in capsys.readouterr().out
