"""The swarm of QSM can fail: each bug planted here is found within a few seeds. Some were ours."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from qsm_worlds.worlds import run_checked
from vivum.protocols.qsm import machine, region
from vivum.protocols.qsm.chain import Chain
from vivum.protocols.qsm.incoming import StreamReceiver
from vivum.protocols.qsm.outgoing import RegionSender
from vivum.protocols.qsm.region import RegionMember
from vivum.protocols.qsm.repair import RepairDesk
from vivum.protocols.qsm.ring import Ring
from vivum.protocols.qsm.sending import Sending
from vivum.sim.swarm import make_up
from vivum.wire.tokens import NOBODY, StreamRecord

Patch = pytest.MonkeyPatch


def caches_forget_what_is_stable(patch: Patch) -> None:
    """The floor is where the stable point is, whoever is behind."""
    right = RegionMember._decide

    def decide(self: RegionMember, now_ns: int, record: StreamRecord) -> None:
        right(self, now_ns, msgspec.structs.replace(record, behind=NOBODY))

    patch.setattr(RegionMember, "_decide", decide)


def confirms_what_is_stable(patch: Patch) -> None:
    """The application is told at the stable point, not when every member has it."""
    right = RegionSender.on_report
    patch.setattr(RegionSender, "on_report", lambda self, stable, floor: right(self, stable, stable))


def counts_only_who_knows_the_stream(patch: Patch) -> None:
    """Ours: who passed the token before somebody told of a new stream was taken to have all of it."""
    patch.setattr(RegionMember, "_with_unaware", lambda self, record, begun: record)


def waits_for_the_fastest(patch: Patch) -> None:
    """The highest prefix counts, not the lowest."""
    right = region.merge

    def merge(one: StreamRecord, other: StreamRecord) -> StreamRecord:
        merged = right(one, other)
        known = [each.prefix for each in (one, other) if each.prefix != NOBODY]
        return msgspec.structs.replace(merged, prefix=max(known, default=NOBODY), behind=NOBODY)

    patch.setattr(region, "merge", merge)


def skips_what_those_behind_lack(patch: Patch) -> None:
    """Who is behind the stable point goes on there, without what it lacks."""
    right = StreamReceiver.on_status

    def on_status(self: StreamReceiver, stop: int, closed: bool, stable: int, floor: int, slow: int = 0) -> None:
        right(self, stop, closed, stable, floor, slow)
        self.window.skip_to(min(stable, self.window.stop))

    patch.setattr(StreamReceiver, "on_status", on_status)


def ignores_begin_marks(patch: Patch) -> None:
    """A new stream does not wait for the one before."""
    patch.setattr(machine, "streams_before", lambda frame: [])
    right = Chain.deliver

    def deliver(self: Chain, output: Any) -> None:
        for stream in self.streams[1:]:
            self._deliver_from(stream, output)
        right(self, output)

    patch.setattr(Chain, "deliver", deliver)


def never_asks(patch: Patch) -> None:
    """Nobody asks for what it lacks."""
    patch.setattr(RepairDesk, "ask", lambda self, now_ns, requests, streams: ([], 0))


def never_takes_a_sleeper_in_again(patch: Patch) -> None:
    """Who was passed over once stays out of the ring."""
    right = Ring._start_round

    def start_round(self: Ring, now_ns: int) -> None:
        self._awake.clear()
        right(self, now_ns)

    patch.setattr(Ring, "_start_round", start_round)


def numbers_a_stream_anew(patch: Patch) -> None:
    """Ours: a sender that came back to a region view that had not changed began with frame 0 again."""
    patch.setattr(Sending, "_end", lambda self, stream: None)


def delivers_to_those_who_left(patch: Patch) -> None:
    """Ours: messages of old views were delivered in groups that had been left."""
    right = Chain.__init__
    patch.setattr(
        Chain,
        "__init__",
        lambda self, sender, joiner, counters, barred: right(self, sender, joiner, counters, {}),
    )


MUTANTS: dict[Callable[[Patch], None], list[int]] = {
    caches_forget_what_is_stable: [20],
    confirms_what_is_stable: [7],
    counts_only_who_knows_the_stream: [218],
    waits_for_the_fastest: [16, 18],
    skips_what_those_behind_lack: [5, 11],
    ignores_begin_marks: [7, 10],
    never_asks: [3, 10],
    never_takes_a_sleeper_in_again: [5, 14],
    numbers_a_stream_anew: [67],
    delivers_to_those_who_left: [9, 10],
}
"""Each with seeds of which one at least finds it: the first few that do, so that the test is short."""


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    assert any(run_checked(make_up(seed, "qsm"), seed)[1] for seed in MUTANTS[mutant])
