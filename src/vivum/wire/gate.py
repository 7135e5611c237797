"""The gate: the one place where remote frames are refused.

Every frame that a node receives goes through it, also those from shared memory; the notes that stand for these
are checked where they are read (`vivum.runtime.shared_memory`). What cannot be accepted is counted by cause, traced and
dropped here; nothing that a peer sends raises past it (`vivum.core.errors`, two families). One buffer, one
verdict: joined frames came from one sender, and a bad one says that the rest may not begin where it seems.

Knows the domain and the format. Whether a well-formed frame makes sense now is for its protocol to say, which
then calls `refuse_state`.
"""

from hashlib import blake2b

from vivum.core.errors import DecodeError, UsageError, VersionError
from vivum.core.ids import Endpoint, Member
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.observe.trace import FrameDropped, Tracer
from vivum.wire.codec import Frame, split_trains
from vivum.wire.control import decode_control
from vivum.wire.fields import ControlMessage
from vivum.wire.kinds import kind_name

_DEFAULT_LIMITS = Limits()


def domain_tag(name: str) -> int:
    """Turn the name of a domain into the 32 bits that frames carry: the same in every process and version.

    Two names may share a tag, by a chance of one in four thousand million; then they see each other's frames.
    """
    if not name:
        raise UsageError("a domain must have a name; the name is empty")
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "little")


class Gate:
    """Opens what a node receives, and refuses what it cannot accept."""

    __slots__ = ("_limits", "_member", "counters", "domain", "trace", "waited_ns")

    def __init__(
        self,
        domain: int,
        counters: Counters,
        member: Member,
        trace: Tracer | None = None,
        limits: Limits = _DEFAULT_LIMITS,
    ) -> None:
        self.domain = domain
        self.counters = counters
        self._member = member
        self._limits = limits
        self.trace = trace
        # How long what is opened now had waited in this host's buffers.
        self.waited_ns = 0

    def open(self, now_ns: int, source: Endpoint, data: bytes) -> list[Frame]:
        """Cut a datagram, or several that the kernel joined, into frames of this domain; none if refused.

        What follows each other in a train stays together.
        """
        counters = self.counters
        counters.datagrams_received += 1
        counters.bytes_received += len(data)
        try:
            frames = split_trains(data)
        except DecodeError as error:
            if isinstance(error, VersionError):
                counters.frames_refused_version += 1
            else:
                counters.frames_refused_decode += 1
            self._trace_drop(now_ns, source, kind_name(data), len(data), str(error))
            return []
        domain, count = self.domain, 0
        for frame in frames:
            count += frame.count
            if frame.domain != domain:
                counters.frames_refused_domain += sum([each.count for each in frames])
                cause = f"domain {frame.domain:08x}, ours is {domain:08x}"
                self._trace_drop(now_ns, source, kind_name(data), len(data), cause)
                return []
        counters.frames_received += count
        return frames

    def decode(self, now_ns: int, source: Endpoint, frame: Frame) -> ControlMessage | None:
        """Read the body of a control frame; None if refused."""
        try:
            return decode_control(frame, self._limits)
        except DecodeError as error:
            self.counters.frames_refused_decode += 1
            self._trace_drop(now_ns, source, frame.kind.name, frame.length, str(error))
            return None

    def refuse_kind(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Drop a frame of a kind that no machine of this node handles."""
        self.counters.frames_refused_kind += 1
        self._trace_drop(now_ns, source, frame.kind.name, frame.length, "no protocol here takes this kind")

    def refuse_state(self, now_ns: int, source: Endpoint, frame: Frame, cause: str) -> None:
        """Drop a frame that is well formed but impossible now, for the reason that its protocol tells."""
        self.counters.frames_refused_state += 1
        self._trace_drop(now_ns, source, frame.kind.name, frame.length, cause)

    def _trace_drop(self, now_ns: int, source: Endpoint, frame: str, size: int, cause: str) -> None:
        if self.trace is not None:
            node, incarnation = self._member
            self.trace(FrameDropped(now_ns, node, incarnation, str(source), frame, size, cause))
