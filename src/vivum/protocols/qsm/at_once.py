"""The short way in and out of QSM: one message that comes or goes alone, as an answer does.

The same as the way of all others, in state, counters and bytes, for less work. Wherever anything is in the way of a
message, it takes the way of all others.
"""

from collections.abc import Mapping

from vivum.core.ids import GroupId
from vivum.core.limits import Limits
from vivum.core.machine import Command, Datagram, Delivery, Output
from vivum.observe.counters import Counters
from vivum.observe.trace import Tracer
from vivum.protocols.commands import SendMessages
from vivum.protocols.membership.client import MembershipClient
from vivum.protocols.qsm.lanes import Route
from vivum.protocols.qsm.outgoing import ViewKey
from vivum.protocols.qsm.region import RegionMember
from vivum.protocols.qsm.sending import Sending
from vivum.wire.gate import Gate


class AtOnce:
    """What a machine of QSM does at once; the machine has the rest."""

    client: MembershipClient
    counters: Counters
    limits: Limits
    regions: Mapping[ViewKey, RegionMember]
    sending: Sending
    trace: Tracer | None
    _gate: Gate
    _now_ns: int
    _output: Output
    _routes: Mapping[GroupId, Route]

    def submit(self, now_ns: int, command: Command) -> None:
        """Take a command, the way of all others: the machine's own, which stands before this one."""
        raise NotImplementedError

    def take_deliveries(self) -> list[Delivery]:
        """Hand over what to deliver, unless an event comes before it."""
        output = self._output
        if output.events or self.sending.events:
            return []
        deliveries, output.deliveries = output.deliveries, []
        return deliveries

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        """Take a command. Return the frame of a message that is alone and may leave now, for all destinations."""
        made = self._seal(now_ns, command) if type(command) is SendMessages and self.trace is None else None
        if made is None:
            self.submit(now_ns, command)
            return []
        return made

    def _seal(self, now_ns: int, command: SendMessages) -> list[Datagram] | None:
        """Seal a message that is alone; None, and nothing changed, if it is not, or may not leave now."""
        group, payloads = command.group, command.payloads
        route, me = self._routes.get(group), self.client.member
        if route is None or me is None or len(payloads) != 1:
            return None
        view, streams = route
        payload = payloads[0]
        if len(streams) != 1 or type(payload) is not bytes or len(payload) > self.limits.message_bytes_max:
            return None
        stream = streams[0]
        made = self.sending.send_now(now_ns, self._gate.domain, me, group, payload, view, stream)
        if made is None:
            return None
        number, data = made
        self._now_ns = now_ns
        self.counters.messages_accepted += 1
        self._output.deliveries.append(Delivery(group, me, number, payloads, view, now_ns))
        region = self.regions.get(stream.key)
        if region is not None:
            region.on_sent(now_ns)
        return [Datagram(where, data) for where in stream.destinations]
