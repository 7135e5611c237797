"""Carries the configuration service in a node, or a standby's copy of it, and begins a new one.

The service, or a copy of its state that takes over when it dies, is in the `ServiceRole`; this adds what a live node
needs: beginning a service where there is none, and showing it to the directory and the beacon.
"""

from vivum.core.ids import Endpoint, Member, NodeId
from vivum.core.machine import Command, Datagram, Effect
from vivum.protocols.membership.client.allegiance import term_of
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.membership.service.machine import ServiceMachine
from vivum.protocols.membership.service.role import ServiceRole
from vivum.protocols.membership.service.state import ConfigurationService
from vivum.wire.codec import Frame
from vivum.wire.gate import Gate

SERVICE_NODE = NodeId(1_000_000)
"""The node id of a configuration service that began by itself and did not take over."""


class Carrier:
    """Carries the configuration service, a copy of it, or neither."""

    kinds = ServiceRole.kinds
    commands: frozenset[type[Command]] = frozenset()
    transport = ""
    has_data = False

    def __init__(self, gate: Gate, client: MembershipClient | None) -> None:
        """Prepare. Without a client the node cannot be a standby of a service elsewhere."""
        self._gate = gate
        self._place = ServiceRole(gate, client)
        self.effects: list[Effect] = self._place.effects

    @property
    def serving(self) -> ServiceMachine | None:
        """The service, while it is here."""
        return self._place.serving

    def begin(self, member: Member, round_: int, salt: int) -> None:
        """Carry a new service from now on: the first of a domain in round 0, later where one was lost with its state.

        Numbers of its round were never given before. `salt` keeps apart two that begin in one round, and histories of
        the domain that came before; 0 is none.
        """
        self._place.forget()
        service = ConfigurationService(self._place.settings)
        service.begin_anew(round_, salt)
        self._place.serving = ServiceMachine(
            member, self._gate, self._place.settings, term=term_of(round_, salt), service=service
        )

    def end(self) -> None:
        """Drop the service and any copy: the node follows a service of another history, whose terms do not compare."""
        self._place.forget()

    def on_service_ended(self) -> None:
        """Note that the service said farewell: a standby need not wait for its silence."""
        self._place.on_service_ended()

    def service(self) -> tuple[ConfigurationService, int] | None:
        """Return the carried service and its term, if there is one."""
        serving = self._place.serving
        return None if serving is None else (serving.service, serving.term)

    def heard_since(self, since_ns: int) -> int:
        """Return how many lives the service has heard from since then."""
        serving = self._place.serving
        return 0 if serving is None else serving.heard_since(since_ns)

    def rouse(self, since_ns: int) -> None:
        """Ask lives that were silent since then for a sign of life."""
        if self._place.serving is not None:
            self._place.serving.rouse(since_ns)

    def submit(self, now_ns: int, command: Command) -> None:
        """Refuse: the service takes its requests as frames."""
        self._place.submit(now_ns, command)

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Hand a frame to the role."""
        self._place.on_frame(now_ns, source, frame)

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        self._place.on_timer(now_ns)

    def next_deadline_ns(self) -> int | None:
        """Return the earliest deadline, or None."""
        return self._place.next_deadline_ns()

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the frames of the role."""
        return self._place.make_frames(room_bytes)
