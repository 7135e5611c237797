"""The one list of counters: name, unit and meaning of each.

A node has one `Counters`. They only grow, they start at 0 with each incarnation, and reading them never disturbs
the node. Machines count with a plain `counters.frames_received += 1`, which costs one slot access. Gauges (what is held
now) are not here: they belong to `statistics()` of the part that holds it.

The reference page `docs/reference/counters.md` is generated from this file.
"""

from dataclasses import dataclass, field, fields
from typing import Any


def _counter(unit: str, meaning: str) -> Any:
    return field(default=0, metadata={"unit": unit, "meaning": meaning})


@dataclass(slots=True)
class Counters:
    """Everything that a node counts."""

    # Wire, in.
    datagrams_received: int = _counter("datagrams", "Buffers handed to the node by its driver, joined ones once")
    frames_received: int = _counter("frames", "Frames found in them and accepted by the gate")
    bytes_received: int = _counter("bytes", "Payload of those datagrams, without UDP and IP headers")
    frames_refused_decode: int = _counter("frames", "Refused: torn, overlong, overlapping or random bytes")
    frames_refused_version: int = _counter("frames", "Refused: a format version that this build does not speak")
    frames_refused_domain: int = _counter("frames", "Refused: of another domain on the same network")
    frames_refused_kind: int = _counter("frames", "Refused: of a kind that no machine of this node handles")
    frames_refused_state: int = _counter("frames", "Refused: well formed, but impossible now (stranger, old life)")
    # Wire, out.
    datagrams_sent: int = _counter("datagrams", "Datagrams handed to the driver")
    bytes_sent: int = _counter("bytes", "Payload of those datagrams, without UDP and IP headers")
    frames_spread: int = _counter("frames", "Data frames sent once for several regions: the hybrid way")
    frames_spread_streams: int = _counter("frames", "Streams that those were numbered in: what they stand for")
    # The computer that the node runs on; always 0 in simulations of nodes alone.
    datagrams_dropped: int = _counter("datagrams", "Not sent: more waited for the network than the queue takes")
    datagrams_unsendable: int = _counter("datagrams", "Not sent: the system refused them, as without a route")
    shared_notes_refused: int = _counter(
        "notes", "Notes and questions about shared memory, refused: malformed, not for us, or of a stranger"
    )
    # Messages.
    messages_accepted: int = _counter("messages", "Accepted from the application for sending")
    messages_rejected: int = _counter("messages", "Not accepted: a limit was reached; the caller was told")
    messages_delivered: int = _counter("messages", "Handed to the application")
    messages_stable: int = _counter("messages", "Own messages that every member is known to have")
    messages_failed: int = _counter("messages", "Own messages reported to the application as failed")
    messages_lost: int = _counter("messages", "Messages of others that can no longer be had; the application was told")
    messages_filtered: int = _counter(
        "messages", "Messages, or pieces of large ones, of groups that the node is not in; heard in a merged region"
    )
    joins_refused: int = _counter("messages", "Large messages refused: over a limit, or fragments out of order")
    # Reliability.
    frames_duplicate: int = _counter("frames", "Data frames that had been received before; dropped")
    frames_beyond_window: int = _counter("frames", "Data frames too far ahead to keep; dropped, asked for later")
    frames_unwanted: int = _counter("frames", "Data frames on a shared channel, for none of our regions; dropped")
    frames_late: int = _counter("frames", "Best-effort data frames that came after a later one; dropped")
    naks_sent: int = _counter("control frames", "Requests for missing frames")
    naks_received: int = _counter("control frames", "Requests for missing frames by others")
    acks_sent: int = _counter("control frames", "Reports of what has been received")
    acks_received: int = _counter("control frames", "Such reports by others")
    heartbeats_sent: int = _counter("control frames", "Announcements of the highest sequence while idle")
    repairs_sent: int = _counter("frames", "Frames sent again because somebody asked")
    repair_bytes_sent: int = _counter("bytes", "Bytes of those, for each place that they were sent to")
    repairs_received: int = _counter("frames", "Such frames that filled a gap here")
    repairs_wasted: int = _counter("frames", "Such frames that were not needed any more when they came")
    # Lateral error correction.
    lateral_sent: int = _counter("frames", "XORs of received frames sent to other receivers")
    lateral_bytes_sent: int = _counter("bytes", "Bytes of those")
    lateral_received: int = _counter("frames", "Such XORs by others")
    lateral_rebuilt: int = _counter("frames", "Data frames rebuilt from them, verified by their checksum")
    lateral_kept: int = _counter("frames", "Such XORs that lacked several frames and were kept until others came")
    lateral_wasted: int = _counter("frames", "Such XORs of which no frame was missing, or that came to nothing")
    lateral_refused: int = _counter("frames", "Such XORs whose result failed its checksum, or was not what they named")
    members_dropped: int = _counter("members", "Members that stayed silent too long and are no longer waited for")

    # Replicated logs and their clients.
    requests_dropped: int = _counter("requests", "Requests of clients that a replica could not take; they ask again")
    requests_repeated: int = _counter("requests", "Own requests to replicas that were asked again, for want of answers")
    answers_late: int = _counter("answers", "Answers of replicas to what was answered or given up before; dropped")

    def as_dict(self) -> dict[str, int]:
        """Return all counters by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def add(self, other: "Counters") -> None:
        """Add another node's counters."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def counter_list() -> list[tuple[str, str, str]]:
    """List name, unit and meaning of every counter, in order."""
    return [(each.name, each.metadata["unit"], each.metadata["meaning"]) for each in fields(Counters)]
