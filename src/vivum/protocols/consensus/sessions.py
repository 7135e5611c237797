"""Sessions: a command that is retried runs once and gets its first answer (thesis, section 6.3; paper, section 8).

A part of the replicated state: everything here happens in the order of the log, and by log time, so all replicas have
the same sessions. The id of a session is the index of the entry that opened it.

Limits act here, not at the leader: what one replica forgets, all forget.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from enum import IntEnum

import msgspec

from vivum.protocols.consensus.settings import ConsensusSettings

Apply = Callable[[Sequence[bytes]], list[bytes]]
"""Runs commands that are new, in their order, and returns their answers."""


class CommandStatus(IntEnum):
    """What became of a command."""

    DONE = 0
    SESSION_EXPIRED = 1
    """There is no such session, or not any more. It did not run; whether an earlier try ran is not known."""

    SEQUENCE_GAP = 2
    """A command of the session before it did not come. It did not run."""

    ANSWER_FORGOTTEN = 3
    """It ran once, and its answer is not kept any more."""


class _Session:
    """One client: what it comes to next, and the answers that it has not heard yet, as runs."""

    __slots__ = ("answers", "kept", "next_sequence", "used_ns")

    def __init__(self, used_ns: int, next_sequence: int = 0) -> None:
        self.used_ns = used_ns
        self.next_sequence = next_sequence
        self.answers: deque[tuple[int, list[bytes]]] = deque()
        self.kept = 0

    def forget_below(self, sequence: int) -> None:
        """Forget runs of answers that lie below a number as a whole."""
        answers = self.answers
        while answers and answers[0][0] + len(answers[0][1]) <= sequence:
            self.kept -= len(answers.popleft()[1])

    def answer(self, sequence: int) -> bytes | None:
        """Return the first answer of a command, or None if it is forgotten."""
        for first, run in self.answers:
            if first <= sequence < first + len(run):
                return run[sequence - first]
        return None


class Sessions:
    """All sessions of a log, the one that was not used for longest first."""

    def __init__(self, settings: ConsensusSettings) -> None:
        self._settings = settings
        self._sessions: OrderedDict[int, _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, client: int, time_ns: int) -> None:
        """Open a session with the index of its entry for an id; end what the limits end."""
        self.expire(time_ns)
        self._sessions[client] = _Session(time_ns)
        if len(self._sessions) > self._settings.sessions_max:
            self._sessions.popitem(last=False)

    def expire(self, time_ns: int) -> None:
        """End sessions that were not used for too long."""
        sessions, idle_ns = self._sessions, self._settings.session_idle_ns
        while sessions:
            client, session = next(iter(sessions.items()))
            if time_ns - session.used_ns < idle_ns:
                return
            del sessions[client]

    def run(
        self, client: int, sequence: int, heard: int, time_ns: int, commands: Sequence[bytes], apply: Apply
    ) -> tuple[list[bytes], list[CommandStatus] | None]:
        """Run those commands of a session that are new; return the answers of all, and what became of each.

        None in place of the latter says that all are done.
        """
        self.expire(time_ns)
        session = self._sessions.get(client)
        if session is None:
            return [b""] * len(commands), [CommandStatus.SESSION_EXPIRED] * len(commands)
        self._sessions.move_to_end(client)
        session.used_ns = time_ns
        if heard > 0:
            session.forget_below(heard)
        if sequence > session.next_sequence:
            return [b""] * len(commands), [CommandStatus.SEQUENCE_GAP] * len(commands)
        done = session.next_sequence - sequence
        if not done:
            answers = apply(commands)
            self._keep(session, sequence, answers)
            return answers, None
        found = [session.answer(number) for number in range(sequence, sequence + min(done, len(commands)))]
        statuses = [CommandStatus.ANSWER_FORGOTTEN if each is None else CommandStatus.DONE for each in found]
        answers = [each or b"" for each in found]
        if done < len(commands):
            fresh = apply(commands[done:])
            self._keep(session, session.next_sequence, fresh)
            answers += fresh
            statuses += [CommandStatus.DONE] * len(fresh)
        return answers, statuses

    def _keep(self, session: _Session, sequence: int, answers: list[bytes]) -> None:
        session.answers.append((sequence, answers))
        session.next_sequence = sequence + len(answers)
        session.kept += len(answers)
        while session.kept > self._settings.session_answers_max and len(session.answers) > 1:
            session.kept -= len(session.answers.popleft()[1])

    # Snapshots.

    def encode(self) -> bytes:
        """Make the part of a snapshot: the same bytes at all replicas."""
        return msgspec.msgpack.encode(
            [(client, each.used_ns, each.next_sequence, list(each.answers)) for client, each in self._sessions.items()]
        )

    def decode(self, data: bytes) -> None:
        """Replace all sessions by those of a snapshot."""
        self._sessions.clear()
        for client, used_ns, next_sequence, answers in msgspec.msgpack.decode(
            data, type=list[tuple[int, int, int, list[tuple[int, list[bytes]]]]]
        ):
            session = self._sessions[client] = _Session(used_ns, next_sequence)
            session.answers.extend(answers)
            session.kept = sum([len(run) for _, run in answers])
