"""What the codec offers: the description of `_codec.pyx` and `_codec_twin.py`. Import from `vivum.wire.codec`."""

from collections.abc import Iterator, Sequence, Set
from typing import final, overload

from vivum.wire._frame_bytes import FrameMemory
from vivum.wire.kinds import Kind

VERSION: int
HEADER_BYTES: int
RUN_HEADER_BYTES: int
FRAME_BYTES_MAX: int
CAPACITY_MIN: int
COUNT_MAX: int
GROUP_MAX: int
FLAG_CONTINUES: int
FLAG_MORE: int
SEQUENCE_MAX: int
WINDOW_MAX: int
NEW: int
DUPLICATE: int
BEYOND: int

@final
class Frame:
    """One frame inside a received buffer, made and validated by `split`. Immutable; compared by identity."""

    @property
    def kind(self) -> Kind:
        """What the frame is; an entry of `wire/kinds.py`."""
    @property
    def length(self) -> int:
        """Bytes of the whole frame, header and padding included."""
    @property
    def domain(self) -> int:
        """Tag of the domain's name; the gate compares it."""
    @property
    def sender(self) -> int:
        """Node id of the sender that numbered the frame."""
    @property
    def incarnation(self) -> int:
        """Life of that sender."""
    @property
    def key_epoch(self) -> int:
        """0: not sealed."""
    @property
    def region(self) -> int:
        """Region of the stream, or the group where a protocol numbers by group."""
    @property
    def view(self) -> int:
        """View of that region."""
    @property
    def sequence(self) -> int:
        """Number of the frame in its stream."""
    @property
    def sent_ns(self) -> int:
        """Sender's clock when the frame was sealed."""
    @property
    def stream(self) -> tuple[int, int, int, int]:
        """Name of the stream: sender, incarnation, region, view."""
    @property
    def data(self) -> bytes:
        """The whole buffer that the frame is in. Holding a frame holds all of it."""
    @property
    def start(self) -> int:
        """Offset of the frame in `data`."""
    @property
    def body_start(self) -> int:
        """Offset of the body in `data`."""
    @property
    def body_stop(self) -> int:
        """Offset of the first byte of `data` behind this frame."""
    def messages(self) -> list[tuple[int, int, int, list[bytes]]]:
        """Copy out all runs: group, sequence of the first, flags, payloads. Cannot fail.

        With `FLAG_CONTINUES` the first payload is not the beginning of its message, with `FLAG_MORE` the last is not
        its end: a `Joiner` takes such runs.
        """
    def body(self) -> bytes:
        """Copy the body out, padding included."""
    def to_bytes(self) -> bytes:
        """Return the whole frame, without a copy when it is all of `data`."""

def split(data: bytes | bytearray | memoryview) -> list[Frame]:
    """Cut a received buffer into its frames, all of them checked to the last byte.

    Raises `VersionError` or another `DecodeError` for the whole buffer if any frame in it is bad. What is not
    `bytes` is copied once, since callers use their receive buffers again.
    """

def consecutive(frames: list[Frame], start: int = 0) -> int:
    """Count the frames from index `start` on that follow each other in one stream, all of one kind; 0 past the end."""

def take_runs(
    frames: list[Frame], messages_max: int, packed: Set[int] = frozenset()
) -> list[tuple[int, int, int, int, list[bytes] | PackedRun]]:
    """Take the messages of frames out, in runs, each with the index of its first frame before it.

    Runs are as `Frame.messages` gives them, but the list with which a SPREAD frame begins is left out. Where the first
    run of a frame goes on with the last of the frame before, both without flags and sealed at the same time, they are
    one, of no more than `messages_max` messages if it is of several. Runs of group `GROUP_MAX` are never joined.
    Messages of a group in `packed` are not cut where frames have nothing else in them, unless that would hold on to
    more than twice their bytes. Of such a group, frames that have nothing else are not joined with others.
    """

@final
class PackedRun(Sequence[bytes]):
    """Messages that were not cut, for code that keeps them as they are and needs no object for each.

    A sequence of payloads like any other, which cuts anew for every look: who wants to have the messages calls `cut`
    once. It keeps what was received in memory. Only `take_runs` makes one.
    """

    @property
    def pieces(self) -> list[tuple[bytes, int, int]]:
        """For each frame: what was received, where the length of its first message is in there, how many it has.

        They lie one behind the other, each behind its length of two bytes, and were checked by `split`.
        """
    @property
    def payload_bytes(self) -> int:
        """Bytes of all messages."""
    @property
    def held_bytes(self) -> int:
        """Bytes that are kept in memory by this."""
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...
    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def cut(self) -> list[bytes]:
        """Copy the messages out."""
    def extend(self, other: PackedRun) -> None:
        """Add the messages of another run behind those of this."""

@final
class FrameBuilder:
    """A frame of messages under construction, used again for the next one after `seal`.

    A method that raises leaves it as it was. Payloads may be any bytes-like object and are copied at once.
    """

    def __init__(self, capacity: int, memory: FrameMemory | None = None) -> None:
        """Prepare for frames of up to `capacity` bytes. Large ones are sealed in the memory, while it has room."""
    @property
    def capacity(self) -> int:
        """Bytes that the frame may have: the path's datagram payload; `CAPACITY_MIN` to `FRAME_BYTES_MAX`."""
    @property
    def size(self) -> int:
        """Bytes that the frame has now, header included."""
    @property
    def count(self) -> int:
        """Messages and fragments in the frame."""
    @property
    def empty(self) -> bool:
        """Whether there is no message yet."""
    def append(self, group: int, sequence: int, payload: bytes | bytearray | memoryview) -> bool:
        """Put one message in; False, and nothing changed, if it does not fit (now, or ever).

        It continues the open run if it is the next message of the same group, else it opens a run. A run is open
        until another opens or it ends with the beginning of a message.
        """
    def extend(self, group: int, first_sequence: int, payloads: list[bytes] | tuple[bytes, ...], start: int = 0) -> int:
        """Put in as many as fit, from index `start` on; return the index of the first that did not.

        `payloads[i]` has sequence `first_sequence + i`, whatever `start` is: go on with the returned index.
        """
    def append_fragment(
        self,
        group: int,
        sequence: int,
        flags: int,
        payload: bytes | bytearray | memoryview,
        total: int | None = None,
    ) -> None:
        """Put in one piece of a message that is cut. The first, and only it, needs `total`.

        The first (`FLAG_MORE` alone) continues the open run as `append` does, and ends it. Any other opens a run.
        Raises `UsageError` if there is no room: `vivum.wire.fragments` cuts to measure.
        """
    def room(self, group: int, sequence: int) -> int:
        """Return the largest payload that `append` would take now, or -1 if not even an empty one."""
    def seal(
        self,
        kind: int,
        domain: int,
        sender: int,
        incarnation: int,
        region: int,
        view: int,
        sequence: int,
        sent_ns: int,
        key_epoch: int = 0,
        pad_to: int = 0,
    ) -> bytes:
        """Return the frame, zero-padded to `pad_to` bytes if it is shorter, and begin the next one.

        `pad_to` is at most the capacity. A frame without messages is allowed: it fills a number.
        """
    def seal_parts(
        self,
        parts: list[tuple[int, int, list[bytes], int, int]],
        begin_parts: int,
        cut_to_fill: bool,
        frames_max: int,
        bytes_max: int,
        kind: int,
        domain: int,
        sender: int,
        incarnation: int,
        region: int,
        view: int,
        sequence: int,
        sent_ns: int,
    ) -> tuple[list[bytes], list[list[tuple[int, int]]], tuple[int, int, int], int]:
        """Seal parts in turn into frames of rising `sequence`, the last of them partly filled if the parts end.

        A part is a group, the number of the first message of a list, the list, the index of the first message to seal,
        and how many bytes of that one are in frames already. What was appended before begins the first frame. A message
        that is larger than a frame is cut; with `cut_to_fill` also one that does not fit the rest of a frame, if its
        beginning fills an eighth of it.

        Make at most `frames_max` frames, none once they have `bytes_max` bytes, and begin none behind the first
        `begin_parts` parts. Return the frames; for each the groups that are in it, with the number of the first message
        that is not wholly in frames; where to go on: index of a part, of a message in it, and the bytes of it that are
        in frames; and the bytes of messages that were taken from that part.

        A message that is not bytes raises `TypeError` if it would be in the first frame, else it ends the run.
        """

def seal_control(
    kind: int,
    domain: int,
    sender: int,
    incarnation: int,
    region: int,
    view: int,
    sequence: int,
    sent_ns: int,
    body: bytes | bytearray | memoryview,
    key_epoch: int = 0,
) -> bytes:
    """Make a control frame around an encoded body; `vivum.wire.control` encodes bodies."""

def resend(frame: bytes | bytearray | memoryview) -> bytes:
    """Return the same frame of messages with kind RESENT: same sender, same number, same bytes."""

def relabel(frame: bytes | bytearray | memoryview, region: int, view: int) -> bytes | None:
    """Return a SPREAD frame as the frame of one region view: kind DATA, with that region, view and its number there.

    None if the list with which the frame begins does not have the region view, or is torn before it.
    """

@final
class SequenceWindow:
    """Which frames of one stream were received: a prefix, and any of the `capacity` numbers from there on.

    Invariants: `prefix` itself was not received; `prefix <= stop`; `held < capacity`.
    Numbers go to `SEQUENCE_MAX`, 2**64 - 2; the one number above is always `BEYOND`.
    """

    def __init__(self, first: int, capacity: int) -> None: ...
    @property
    def capacity(self) -> int:
        """How many numbers from `prefix` on can be kept; 1 to `WINDOW_MAX`."""
    @property
    def prefix(self) -> int:
        """Every number below was received or skipped."""
    @property
    def stop(self) -> int:
        """One past the highest number that is known to exist, by `add` or `announce`."""
    @property
    def held(self) -> int:
        """How many were received beyond the prefix."""
    def add(self, sequence: int) -> int:
        """Note one frame as received: `NEW`, `DUPLICATE`, or `BEYOND` if `sequence >= prefix + capacity`.

        Only `NEW` changes anything. After `BEYOND`, `announce(sequence + 1)` lets the frame be asked for.
        """
    def announce(self, stop: int) -> None:
        """Note that the sender has come this far. Never lowers `stop`, and may raise it past the window.

        More than 64 bits are cut to 2**64 - 1. A lying sender can make a window expect much, but only in its
        own stream, and a gap costs one range however long it is.
        """
    def missing(self, ranges_max: int) -> list[int]:
        """List the gaps in `prefix <= n < stop`, lowest first, as flat bounds (`RangeSet.from_bounds`)."""
    def skip_to(self, sequence: int) -> int:
        """Give up every number below `sequence`; return how many were never received. Never goes back."""
    def __contains__(self, sequence: int) -> bool:
        """Return whether a number is done: received, skipped, or before the first."""

def xor_into(target: bytearray, source: bytes | bytearray | memoryview, offset: int = 0) -> None:
    """XOR the source into the target from an offset on. Raises `UsageError` if it does not fit."""

def measure(payloads: list[bytes] | tuple[bytes, ...], start: int = 0, stop: int | None = None) -> tuple[int, int]:
    """Add up the sizes of messages `start <= n < stop` and find the largest. Refuses what is not `bytes`."""
