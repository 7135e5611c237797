"""A client of a replicated log on sockets, on the current event loop."""

from collections.abc import Callable, Sequence

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.machine import Command, Event
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.protocols.consensus.client import LogClient
from vivum.protocols.consensus.client_settings import LogClientSettings
from vivum.runtime.driver import Driver
from vivum.runtime.environment import current_environment
from vivum.wire.gate import Gate

CLIENT_NUMBERS = 1 << 31
"""Clients draw their numbers above this one; replicas are numbered by hand."""


class LogClientHost:
    """Runs one client."""

    def __init__(
        self,
        domain: int,
        group: int,
        replicas: Sequence[Endpoint],
        *,
        interface: str,
        on_event: Callable[[Event], None],
        on_failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Open a port and begin. Nothing is sent before there is something to ask."""
        environment = current_environment()
        rng = environment.random()
        settings = LogClientSettings(frame_bytes_max=environment.payload_bytes(interface))
        member = Member(NodeId(rng.randrange(CLIENT_NUMBERS, 2 * CLIENT_NUMBERS)), Incarnation(0))
        self.counters = Counters()
        port = environment.open_port(domain, interface, multicast=False, shared_memory=False)
        try:
            gate = Gate(domain, self.counters, member)
            self.machine = LogClient(member.node, group, replicas, gate, rng, settings, now_ns=port.now_ns())
            node = Node(member, gate, [self.machine], self.counters)
            self._driver = Driver(node, port, on_event=on_event, on_failed=on_failed)
        except BaseException:
            port.close()
            raise
        self._driver.start()

    def submit(self, command: Command) -> None:
        """Hand a command to the client; raises what it raises (`NotNowError`, `LimitError`)."""
        self._driver.submit(command)

    def close(self) -> None:
        """Stop, and let go of the port. May be called again."""
        self._driver.close()
