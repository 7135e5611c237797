"""Discovery at a node that may carry the service itself: a finder and a beaconer that hear the same frames."""

from vivum.core.ids import Endpoint
from vivum.core.machine import Command, Datagram, Effect
from vivum.protocols.discovery.beaconer import Beaconer
from vivum.protocols.discovery.finder import Finder
from vivum.protocols.discovery.rank import is_own_word
from vivum.wire.codec import Frame
from vivum.wire.directory import Beacon, Farewell, Seek
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind


class Discovery:
    """Both sides of discovery as one protocol that a node can compose."""

    kinds = frozenset({Kind.DISCOVERY})
    commands: frozenset[type[Command]] = Finder.commands | Beaconer.commands
    transport = ""
    has_data = False

    def __init__(self, finder: Finder, beaconer: Beaconer, gate: Gate) -> None:
        self.finder = finder
        self.beaconer = beaconer
        # One list for both, so that the order of causes holds between them.
        self.effects: list[Effect] = []
        finder.effects = beaconer.effects = self.effects
        self._gate = gate

    def submit(self, now_ns: int, command: Command) -> None:
        """Hand a command to the side that takes it."""
        (self.finder if type(command) in Finder.commands else self.beaconer).submit(now_ns, command)

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Let both sides hear."""
        body = self._gate.decode(now_ns, source, frame)
        if isinstance(body, Seek | Beacon | Farewell):
            own = is_own_word(source, body)
            if not own and not isinstance(body, Beacon):
                self._gate.refuse_state(now_ns, source, frame, "speaks for another place")
                return
            self.finder.on_message(now_ns, body, own)
            if not isinstance(body, Farewell):
                self.beaconer.on_message(now_ns, body, own)

    def next_deadline_ns(self) -> int | None:
        """Return when something will be due."""
        find_ns, tell_ns = self.finder.next_deadline_ns(), self.beaconer.next_deadline_ns()
        if find_ns is None or tell_ns is None:
            return tell_ns if find_ns is None else find_ns
        return min(find_ns, tell_ns)

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        self.finder.on_timer(now_ns)
        self.beaconer.on_timer(now_ns)

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the frames of both sides."""
        return self.finder.make_frames(room_bytes) + self.beaconer.make_frames(room_bytes)
