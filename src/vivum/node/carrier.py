"""A place in a node where the configuration service can be: nothing at first, then the service.

The seam for take-over: a machine that keeps a copy of the service's state goes here.
"""

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, Member
from vivum.core.machine import EMPTY_OUTPUT, ROOM_BYTES_UNLIMITED, Command, Output
from vivum.protocols.membership.service import ConfigurationService
from vivum.protocols.membership.service_machine import ServiceMachine
from vivum.wire.codec import Frame
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind
from vivum.wire.layout import U16_MAX

EPOCHS_BETWEEN = 1 << 16
LIVES_BETWEEN = 256
"""How far the numbers of a service are above those that are known of one before: it may have given some more."""


class Carrier:
    """Carries the configuration service, or does not."""

    kinds = frozenset({Kind.MEMBERSHIP})
    commands: frozenset[type[Command]] = frozenset()
    has_data = False

    def __init__(self, gate: Gate) -> None:
        self.serving: ServiceMachine | None = None
        self._gate = gate
        self._term = 0

    def begin(self, member: Member, term: int, epoch: int = 0) -> None:
        """Carry a new service from now on. `epoch` is one that the service before had, whose state is lost."""
        self.serving = ServiceMachine(member, self._gate)
        if term > 1:
            self.serving.service.begin_after(epoch + EPOCHS_BETWEEN, min(term * LIVES_BETWEEN, U16_MAX // 2))
        self._term = term

    def end(self) -> None:
        """Carry it no more."""
        self.serving = None

    def service(self) -> tuple[ConfigurationService, int] | None:
        """Tell the service that is carried and its term, if there is one."""
        return None if self.serving is None else (self.serving.service, self._term)

    def heard_since(self, since_ns: int) -> int:
        """Count the lives from which the service heard something since then."""
        return 0 if self.serving is None else self.serving.heard_since(since_ns)

    def submit(self, now_ns: int, command: Command) -> None:  # noqa: ARG002
        """Refuse: the service takes its requests as frames."""
        raise UsageError(f"the configuration service takes no commands; {type(command).__name__} is for a node")

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Hand it to the service."""
        if self.serving is None:
            self._gate.refuse_state(now_ns, source, frame, "the configuration service is not here")
        else:
            self.serving.on_frame(now_ns, source, frame)

    def on_timer(self, now_ns: int) -> None:
        """Let the service do what is due."""
        if self.serving is not None:
            self.serving.on_timer(now_ns)

    def next_deadline_ns(self) -> int | None:
        """Tell when something will be due."""
        return None if self.serving is None else self.serving.next_deadline_ns()

    def take_output(self, room_bytes: int = ROOM_BYTES_UNLIMITED) -> Output:
        """Hand over what the service has to say."""
        return EMPTY_OUTPUT if self.serving is None else self.serving.take_output(room_bytes)
