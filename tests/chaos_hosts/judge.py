"""Judge a run by what its programs wrote down; knows nothing of the protocol, and shares no code with it.

Each start of a program is a *run*, with a log of its own: records in the order in which the program acted or was told.

    ["life", life]                                          its node has this place in the domain
    ["view", topic, number, [lives]]                        a view, at its place between messages
    ["send", topic, number, digest]                         about to send the message that has this number in the run
    ["confirmed", topic, first, stop]                       messages `first <= n < stop` of the run are everywhere
    ["unconfirmed", topic, first, stop, cause]              nobody knows
    ["got", topic, life, sequence, view, run, number, digest]   a message, by what the node said and by its content
    ["missed", topic, life, first, count, text]             told that messages are missing, null for what is not known
    ["end"]                                                 it ended in order and has read all that came

A *stay* is what a run read in a topic during one life. `missed` without a count ends it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Record = Sequence[Any]
Logs = Mapping[str, Sequence[Record]]

TOLD_SHARE_MAX = 0.05
"""Of all messages that were read, so many may be reported as missing within a stay: the last of senders that died or
were dropped, where the reader slept meanwhile and is alone in its region, so that nobody else had them for it."""

UNCONFIRMED_SHARE_MAX = 0.25
"""Of all messages of runs that ended in order, so many may stay unconfirmed: what was sent while a host was cut off."""

VIOLATIONS_SHOWN = 40


@dataclass
class Stay:
    """What one run read in one topic during one life."""

    run: str
    topic: str
    views: dict[int, tuple[str, ...]] = field(default_factory=dict)
    read: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    """The messages, in order: life and sequence, and with that run and number."""
    told: set[tuple[str, int]] = field(default_factory=set)
    told_of_nobody: int = 0
    """How many more are known to be missing, of whichever sender."""
    is_whole: bool = False
    """Its life went on until the run ended in order: whatever is confirmed must be here."""
    life: str | None = None

    def lacks(self, message: tuple[str, int]) -> bool:
        return message not in self.read and message not in self.told


@dataclass
class Verdict:
    """What is wrong, and what happened."""

    violations: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)

    def blame(self, text: str) -> None:
        self.figures["violations"] += 1
        if len(self.violations) < VIOLATIONS_SHOWN:
            self.violations.append(text)


def judge(logs: Logs, disturbed: Mapping[str, int] | None = None) -> Verdict:
    """Judge the logs of all runs. `disturbed`: how often each run was stopped or cut off; others may lose no life."""
    return _Case(logs, disturbed or {}).judge()


class _Case:
    def __init__(self, logs: Logs, disturbed: Mapping[str, int]) -> None:
        self.logs = logs
        self.disturbed = disturbed
        self.verdict = Verdict()
        self.stays: list[Stay] = []
        # What runs were about to send: digest by run, topic and number.
        self.sent: dict[tuple[str, str, int], str] = {}
        # What nodes numbered: by topic, life and sequence, the run, the number and the view; and the other way round.
        self.numbered: dict[tuple[str, str, int], tuple[str, int, int]] = {}
        self.places: dict[tuple[str, str, int], tuple[str, int]] = {}
        self.views: dict[tuple[str, int], tuple[str, ...]] = {}
        self.runs_of_lives: dict[str, str] = {}
        self.ended = {run for run, records in logs.items() if records and records[-1][0] == "end"}

    def judge(self) -> Verdict:
        for run, records in self.logs.items():
            self._note_own(run, records)
        for run, records in self.logs.items():
            self._read(run, records)
        for stay in self.stays:
            self._check_gaps(stay)
        self._check_confirmed()
        self._check_use()
        return self.verdict

    # What each run did by itself.

    def _note_own(self, run: str, records: Sequence[Record]) -> None:
        for record in records:
            match record:
                case ["life", life]:
                    if self.runs_of_lives.setdefault(life, run) != run:
                        self.verdict.blame(f"life {life} was given to {self.runs_of_lives[life]} and to {run}")
                case ["send", topic, number, digest]:
                    self.sent[run, topic, number] = digest
                    self.verdict.figures["sent"] += 1

    # What it read.

    def _read(self, run: str, records: Sequence[Record]) -> None:
        stays: dict[str, Stay] = {}
        for record in records:
            match record:
                case ["view", topic, number, members]:
                    self._on_view(stays.setdefault(topic, Stay(run, topic)), number, tuple(members))
                case ["got", topic, *message]:
                    self._on_message(stays.setdefault(topic, Stay(run, topic)), *message)
                case ["missed", topic, life, first, count, _]:
                    stay = stays.setdefault(topic, Stay(run, topic))
                    if count is None:
                        self.stays.append(stays.pop(topic))
                        self.verdict.figures["stays ended"] += 1
                    elif life is None:
                        stay.told_of_nobody += count
                        self.verdict.figures["told"] += count
                    else:
                        stay.told.update((life, first + each) for each in range(count))
                        self.verdict.figures["told"] += count
        for stay in stays.values():
            stay.is_whole = run in self.ended
            self.stays.append(stay)

    def _on_view(self, stay: Stay, number: int, members: tuple[str, ...]) -> None:
        before = self.views.setdefault((stay.topic, number), members)
        if sorted(before) != sorted(members):
            self.verdict.blame(f"view {number} of {stay.topic} has members {members} at {stay.run}, elsewhere {before}")
        if stay.views and number <= max(stay.views):
            self.verdict.blame(f"{stay.run} was told of view {number} of {stay.topic} after view {max(stay.views)}")
        stay.views[number] = members
        mine = [life for life in members if self.runs_of_lives.get(life) == stay.run]
        if mine:
            stay.life = mine[0]

    def _on_message(self, stay: Stay, life: str, sequence: int, view: int, run: str, number: int, digest: str) -> None:
        verdict, topic = self.verdict, stay.topic
        verdict.figures["read"] += 1
        what = f"message {number} of {run} in {topic} (sequence {sequence} of life {life}) at {stay.run}"
        key = (life, sequence)
        if self.sent.get((run, topic, number)) != digest:
            verdict.blame(f"{what}: nobody sent it so")
        if key in stay.read:
            verdict.blame(f"{what}: twice in one life")
        if not stay.views or view > max(stay.views):
            verdict.blame(f"{what}: came before its view {view}")
        if self.numbered.setdefault((topic, life, sequence), (run, number, view)) != (run, number, view):
            verdict.blame(f"{what}: elsewhere this sequence is {self.numbered[topic, life, sequence]}")
        if self.places.setdefault((run, topic, number), key) != key:
            verdict.blame(f"{what}: elsewhere it has the sequence {self.places[run, topic, number]}")
        stay.read[key] = (run, number)

    # What is missing.

    def _check_gaps(self, stay: Stay) -> None:
        """Check order and gaps: before each message came all that this life sent in views with the reader."""
        last: dict[str, int] = {}
        last_number: dict[str, int] = {}
        lacking = 0
        for (life, sequence), (run, number) in stay.read.items():
            before = last.get(life, -1)
            if sequence <= before or number <= last_number.get(run, -1):
                self.verdict.blame(
                    f"{stay.run} read message {number} of {run} in {stay.topic} (sequence {sequence} of life {life}) "
                    f"after {last_number.get(run)} (sequence {before})"
                )
            for passed in range(before + 1, sequence):
                if self._is_due(stay, life, passed) and stay.lacks((life, passed)):
                    lacking += 1
                    if lacking > stay.told_of_nobody:
                        self.verdict.blame(
                            f"{stay.run} as {stay.life} read sequence {sequence} of life {life} in {stay.topic} "
                            f"without {passed}, and was not told"
                        )
            last[life] = max(before, sequence)
            last_number[run] = number

    def _is_due(self, stay: Stay, life: str, sequence: int) -> bool:
        """Return whether a message was sent in a view with the reader. One that nobody has read is due to nobody."""
        known = self.numbered.get((stay.topic, life, sequence))
        if known is None:
            # Nobody has it, so nobody knows its view; but numbers do not jump.
            return any(each_life == life and each < sequence for each_life, each in stay.read)
        return stay.life in self.views.get((stay.topic, known[2]), ())

    # What was confirmed.

    def _check_confirmed(self) -> None:
        whole: dict[tuple[str, str], Stay] = {}
        for stay in self.stays:
            if stay.is_whole and stay.life is not None:
                whole[stay.topic, stay.life] = stay
        last_lives = {
            run: [record[1] for record in records if record[0] == "life"][-1:] for run, records in self.logs.items()
        }
        for run, records in self.logs.items():
            for record in records:
                match record:
                    case ["confirmed", topic, first, stop]:
                        self.verdict.figures["confirmed"] += stop - first
                        for number in range(first, stop):
                            self._check_one(run, topic, number, whole, last_lives)
                    case ["unconfirmed", _, first, stop, _]:
                        self.verdict.figures["unconfirmed"] += stop - first

    def _check_one(
        self,
        run: str,
        topic: str,
        number: int,
        whole: Mapping[tuple[str, str], Stay],
        last_lives: Mapping[str, list[str]],
    ) -> None:
        place = self.places.get((run, topic, number))
        if place is None:
            if run in self.ended:
                self.verdict.blame(f"message {number} of {run} in {topic} was confirmed, and nobody has read it")
            return
        view = self.numbered[topic, place[0], place[1]][2]
        members = self.views.get((topic, view))
        if members is None:
            if run in self.ended:
                self.verdict.blame(f"message {number} of {run} in {topic} was sent in view {view}, which nobody knows")
            return
        for life in members:
            stay = whole.get((topic, life))
            reader = self.runs_of_lives.get(life)
            if stay is not None:
                if place not in stay.read and place not in stay.told and not stay.told_of_nobody:
                    self.verdict.blame(
                        f"message {number} of {run} in {topic} (sequence {place[1]} of life {place[0]}, view {view}) "
                        f"was confirmed, and {stay.run}, in the topic as {life} throughout, has not read it"
                    )
            elif reader in self.ended and last_lives[reader] == [life]:
                self.verdict.blame(f"{reader} is in view {view} of {topic} as {life}, and read nothing there")

    # Whether it was worth something.

    def _check_use(self) -> None:
        """Bound what is told: a system that reports everything as missing keeps every other promise."""
        figures, blame = self.verdict.figures, self.verdict.blame
        for run, records in self.logs.items():
            lives = sum(record[0] == "life" for record in records)
            figures["lives"] += lives
            figures["lives lost"] += max(0, lives - 1)
            if lives - 1 > self.disturbed.get(run, 0):
                blame(f"{run} lost {lives - 1} lives, and was disturbed {self.disturbed.get(run, 0)} times")
        if figures["told"] > TOLD_SHARE_MAX * figures["read"]:
            blame(f"{figures['told']} messages were reported as missing, and {figures['read']} read")
        if figures["unconfirmed"] > UNCONFIRMED_SHARE_MAX * (figures["unconfirmed"] + figures["confirmed"]):
            blame(f"{figures['unconfirmed']} messages stayed unconfirmed, and {figures['confirmed']} were confirmed")
        if not figures["confirmed"]:
            blame("nothing was confirmed")
