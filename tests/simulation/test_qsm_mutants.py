"""The swarm of QSM can fail: each bug planted here is found within a few seeds. Some were ours."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from planted.protocols import reports_everything_as_failed
from qsm_worlds.worlds import by_region, make_up_hybrid, run_checked
from vivum.core.ids import GroupId
from vivum.core.time import SECOND
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.qsm import machine, region
from vivum.protocols.qsm.recovery.repair import RepairDesk
from vivum.protocols.qsm.region import RegionMember
from vivum.protocols.qsm.send.hybrid import Spreading, SpreadSender
from vivum.protocols.qsm.send.sender import Sender
from vivum.protocols.rings.ring import Ring
from vivum.protocols.streams.region_sender import RegionSender, ViewKey
from vivum.protocols.streams.sender_fifo import BURST_BYTES, SenderFifo
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.sim.scenario import Scenario
from vivum.sim.swarm import make_up
from vivum.wire.codec import Frame
from vivum.wire.outboxes import Outboxes
from vivum.wire.tokens import NOBODY, StreamRecord

pytestmark = pytest.mark.plain

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
    patch.setattr(
        RegionSender,
        "on_report",
        lambda self, now_ns, report: right(
            self, now_ns, msgspec.structs.replace(report, floor=report.stable, confirmed=report.stable)
        ),
    )


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
    right = SenderFifo.deliver

    def deliver(self: SenderFifo, effects: Any) -> None:
        for stream in self.streams[1:]:
            self._deliver_from(stream, effects, BURST_BYTES)
        right(self, effects)

    patch.setattr(SenderFifo, "deliver", deliver)


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


def delivers_to_those_who_left(patch: Patch) -> None:
    """Ours: messages of old views were delivered in groups that had been left."""
    right = SenderFifo.__init__
    patch.setattr(
        SenderFifo,
        "__init__",
        lambda self, sender, joiner, counters, barred, *rest: right(self, sender, joiner, counters, {}, *rest),
    )


def confirms_what_it_was_given(patch: Patch) -> None:
    """The first word of a region confirms all that the stream was given, though frames go on as they should."""
    right = RegionSender.on_report

    def on_report(self: RegionSender, *report: Any) -> set[GroupId]:
        right(self, *report)
        for given in self.put.values():
            given[2] = given[1]
        return set(self.put)

    patch.setattr(RegionSender, "on_report", on_report)


def ends_a_life_for_nothing(patch: Patch) -> None:
    """Node 2 starts over after a second, though nothing is wrong."""
    right = MembershipClient.on_timer

    def on_timer(self: MembershipClient, now_ns: int) -> None:
        right(self, now_ns)
        if now_ns > SECOND and self.member == (2, 1):
            self.start_over(now_ns)

    patch.setattr(MembershipClient, "on_timer", on_timer)


def gives_a_stream_up_with_its_view(patch: Patch) -> None:
    """Nobody waits until a replaced view is quiet: what is not stable is reported as failed at once."""
    right, forsake = Sender.retire, Sender.forsake

    def retire(self: Sender, now_ns: int, kept: Iterable[ViewKey]) -> None:
        for key, stream in list(self.streams.items()):
            if stream.closing_since_ns is not None and not stream.is_done:
                self.forsake(key)
        right(self, now_ns, kept)

    patch.setattr(Sender, "retire", retire)
    # When the region view ends, its stream is long gone.
    patch.setattr(Sender, "forsake", lambda self, key: forsake(self, key) if key in self.streams else None)


def begins_with_what_it_hears(patch: Patch) -> None:
    """A receiver that hears of a stream late begins with the first frame that reaches it."""
    right, right_run = StreamReceiver.on_data, StreamReceiver.on_later_run

    def on_data(self: StreamReceiver, now_ns: int, frame: Frame) -> bool:
        if not self.window.prefix and not self.held:
            self.window.skip_to(frame.sequence)
        return right(self, now_ns, frame)

    def on_later_run(self: StreamReceiver, now_ns: int, frames: list[Frame]) -> bool:
        if not self.window.prefix and not self.held:
            self.window.skip_to(frames[0].sequence)
        return right_run(self, now_ns, frames)

    patch.setattr(StreamReceiver, "on_data", on_data)
    patch.setattr(StreamReceiver, "on_later_run", on_later_run)


MUTANTS: dict[Callable[[Patch], None], list[int]] = {
    caches_forget_what_is_stable: [52, 45],
    confirms_what_is_stable: [127],
    counts_only_who_knows_the_stream: [42, 60],
    waits_for_the_fastest: [16],
    skips_what_those_behind_lack: [14, 15],
    ignores_begin_marks: [28],
    never_asks: [3, 10],
    never_takes_a_sleeper_in_again: [5, 14],
    delivers_to_those_who_left: [1],
}
"""Each with seeds that found it last, so that the test is short. Any change of the protocol makes other worlds of
them; then the first seeds are searched."""

SEARCHED = range(1, 81)


def is_found(make: Callable[[int], Scenario], known: list[int], checker: str = "") -> bool:
    """Return whether a checker (or any) complains of a world: a known one, or one of the first."""
    return any(
        violation.startswith(checker) for seed in [*known, *SEARCHED] for violation in run_checked(make(seed), seed)[1]
    )


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    assert is_found(lambda seed: by_region(make_up(seed, "qsm")), MUTANTS[mutant])


EASY_WAYS_OUT: dict[Callable[[Patch], None], tuple[str, list[int]]] = {
    reports_everything_as_failed: ("failures_explained", [2, 5]),
    gives_a_stream_up_with_its_view: ("failures_explained", [283, 6]),
    ends_a_life_for_nothing: ("lives_explained", [3]),
    confirms_what_it_was_given: ("all_delivered", [141, 127]),
    begins_with_what_it_hears: ("lives_explained", [87]),
}
"""Protocols that spare themselves work, each with the checker that must notice."""


@pytest.mark.slow
@pytest.mark.parametrize("mutant", EASY_WAYS_OUT, ids=lambda mutant: mutant.__name__)
def test_an_easy_way_out_is_found_by_the_checker_that_forbids_it(
    mutant: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    mutant(monkeypatch)
    checker, known = EASY_WAYS_OUT[mutant]
    assert is_found(lambda seed: by_region(make_up(seed, "qsm")), known, checker)


def overtakes_what_waits_in_the_streams(patch: Patch) -> None:
    """A group that changes its way sends new messages in frames for all while older ones wait for one region."""
    patch.setattr(Outboxes, "has", lambda self, group: False)


def forgets_what_waits_when_a_stream_closes(patch: Patch) -> None:
    """What waited for several streams is dropped when one of them closes."""

    def dissolve(self: SpreadSender, group: GroupId) -> None:
        if self.outboxes.has(group):
            self.outboxes.take(group)

    patch.setattr(SpreadSender, "dissolve", dissolve)


def goes_on_with_a_stream_that_closes(patch: Patch) -> None:
    """Frames for several streams are numbered in one that has sent its end."""
    patch.setattr(Spreading, "close", lambda self, stream: None)


def forgets_to_label_what_it_sends_again(patch: Patch) -> None:
    """A frame for several streams is sent again as it was kept."""
    patch.setattr(RegionSender, "_frame", lambda self, number: self._frames.get(number))


HYBRID_MUTANTS: dict[Callable[[Patch], None], list[int]] = {
    overtakes_what_waits_in_the_streams: [10],
    forgets_what_waits_when_a_stream_closes: [19, 10],
    goes_on_with_a_stream_that_closes: [10],
    forgets_to_label_what_it_sends_again: [3],
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", HYBRID_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_bug_planted_in_the_hybrid_way_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    assert is_found(make_up_hybrid, HYBRID_MUTANTS[mutant])
