"""What a node has to say of region views, made into frames at the moment of sending: tokens, reports, heartbeats."""

from collections.abc import Iterable, Mapping

from vivum.core.ids import Channel, Endpoint, Member, NodeId
from vivum.core.limits import Limits
from vivum.core.machine import Datagram, Priority
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.qsm.region import RegionMember
from vivum.protocols.qsm.send.sender import Sender
from vivum.protocols.streams.region_sender import RegionSender
from vivum.wire.control import encode_control
from vivum.wire.fields import ControlMessage
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind
from vivum.wire.tokens import StreamProgress


class ControlFrames:
    """Makes the control frames of one node, and the repairs that tokens asked for."""

    def __init__(self, gate: Gate, limits: Limits, sending: Sender) -> None:
        self._gate = gate
        self._limits = limits
        self._sending = sending
        self._counters = gate.counters

    def speak_for(
        self,
        now_ns: int,
        me: Member,
        region: RegionMember,
        endpoints: Mapping[NodeId, Endpoint],
        homes: Mapping[Member, Endpoint],
        datagrams: list[Datagram],
    ) -> None:
        """Make the tokens and reports of a region; what is ours is taken at once. Repairs go to their own queue.

        Nodes are at their `endpoints`, senders that are no members at their `homes`.
        """
        for node, message in region.take_messages(now_ns):
            if node in endpoints:
                datagrams.append(self._frame(now_ns, me, Kind.TOKEN, region.config, message, endpoints[node]))
        for sender, report in region.reports:
            if sender == me:
                if region.own is not None:
                    self._sending.on_report(now_ns, region.own, report)
            elif (home := endpoints.get(sender.node) or homes.get(sender)) is not None:
                self._counters.acks_sent += 1
                datagrams.append(self._frame(now_ns, me, Kind.ACK, region.config, report, home))
        region.reports.clear()
        desk = region.desk
        wanted: dict[NodeId, list[bytes]] = {}
        for node, frame in desk.repairs:
            if node in endpoints:
                wanted.setdefault(node, []).append(frame.to_bytes())
        for node, frames in wanted.items():
            self._sending.repair(frames, [endpoints[node]])
        desk.repairs.clear()

    def tell_progress(
        self, now_ns: int, me: Member, streams: Iterable[RegionSender], datagrams: list[Datagram]
    ) -> None:
        """Make the heartbeats of streams."""
        for stream in streams:
            self._counters.heartbeats_sent += 1
            body = StreamProgress(stream.next_frame, stream.closed)
            for where in stream.destinations:
                datagrams.append(self._frame(now_ns, me, Kind.HEARTBEAT, stream.config, body, where))

    def _frame(
        self,
        now_ns: int,
        me: Member,
        kind: Kind,
        config: RegionConfig,
        body: ControlMessage,
        destination: Endpoint | Channel,
    ) -> Datagram:
        data = encode_control(
            kind, self._gate.domain, *me, config.region, config.view, now_ns, body, limits=self._limits
        )
        return Datagram(destination, data, Priority.CONTROL)
