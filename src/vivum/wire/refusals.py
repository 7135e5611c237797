"""The wording of what the codec refuses, in one place for the compiled module and its twin.

`PeerError`s for bytes that arrived, `UsageError`s for arguments of our own callers. Functions make an
error and leave the raising to the caller, so that a traceback ends where the trouble was found.
"""

from enum import IntEnum

from vivum.core.errors import DecodeError, UsageError, VersionError
from vivum.wire.layout import FRAME_BYTES_MAX, HEADER_BYTES, VERSION


class BodyFault(IntEnum):
    """Why a body of messages is refused. The numbers are shared with the compiled codec."""

    TORN = 1
    FRAGMENT = 2
    SEQUENCE = 3
    PADDING = 4


_BODY_FAULTS = {
    BodyFault.TORN: "a run reaches past the end of its frame",
    BodyFault.FRAGMENT: "a fragment carries nothing of its message",
    BodyFault.SEQUENCE: "the sequence numbers of a run go past 2**64 - 2",
    BodyFault.PADDING: "what follows the last run is not zero",
}


def empty_buffer() -> DecodeError:
    """Refuse a buffer with nothing in it."""
    return DecodeError(f"empty buffer; expected at least one frame of {HEADER_BYTES} bytes or more")


def wrong_version(version: int, offset: int) -> VersionError:
    """Refuse a frame of another format, whatever follows."""
    return VersionError(f"frame at {offset} has format version {version}; this build speaks version {VERSION} only")


def torn_header(offset: int, left: int) -> DecodeError:
    """Refuse bytes that are too few for a header."""
    return DecodeError(f"frame at {offset} has {left} bytes; expected a header of {HEADER_BYTES}")


def unknown_kind(kind: int, offset: int) -> DecodeError:
    """Refuse a kind that is not in `wire/kinds.py`."""
    return DecodeError(f"frame at {offset} has unknown kind {kind}")


def wrong_length(length: int, offset: int, left: int) -> DecodeError:
    """Refuse a length that is too small, too large, or more than there is."""
    most = min(left, FRAME_BYTES_MAX)
    return DecodeError(f"frame at {offset} states a length of {length} bytes; expected {HEADER_BYTES} to {most}")


def frame_sequence(offset: int) -> DecodeError:
    """Refuse the one number behind which there is none."""
    return DecodeError(f"frame at {offset} has sequence 2**64 - 1; the highest is 2**64 - 2")


def bad_body(fault: int, offset: int) -> DecodeError:
    """Refuse a body of messages for a reason found at this offset."""
    return DecodeError(f"body of messages at {offset}: {_BODY_FAULTS[BodyFault(fault)]}")


def not_an_int(what: str, value: object) -> TypeError:
    """Refuse an argument of the wrong type."""
    return TypeError(f"{what} must be an int, not {type(value).__name__}")


def out_of_range(what: str, value: int, least: int, most: int) -> UsageError:
    """Refuse a number that the format has no place for."""
    return UsageError(f"{what} is {value}; expected {least} to {most}")


def not_bytes(what: str, value: object) -> TypeError:
    """Refuse a message that is not `bytes`: others could change after they were accepted."""
    return TypeError(f"{what} must be bytes, not {type(value).__name__}")


def not_bytes_like(what: str, value: object) -> TypeError:
    """Refuse what has no contiguous bytes."""
    return TypeError(f"{what} must be bytes, a bytearray or a contiguous memoryview, not {type(value).__name__}")


def not_a_list(value: object) -> TypeError:
    """Refuse payloads that cannot be indexed cheaply."""
    return TypeError(f"payloads must be a list or a tuple of bytes, not {type(value).__name__}")


def not_a_part(value: object) -> TypeError:
    """Refuse what does not tell whose messages they are."""
    fields = "group, first_sequence, payloads, start and cut"
    return TypeError(f"a part is a tuple of {fields}, not {type(value).__name__}")


def made_by_split() -> TypeError:
    """Refuse to make a frame that nothing validated."""
    return TypeError("a Frame is made by split(), which validates it; there is no other way to make one")


def no_part(start: object, stop: object) -> UsageError:
    """Refuse to take frames out of others that do not have them."""
    return UsageError(f"frames {start} to {stop} are not all here, or are none")


def made_by_take_runs() -> TypeError:
    """Refuse to make a run of messages of which nobody knows where they are."""
    return TypeError("a PackedRun is made by take_runs(); there is no other way to make one")


def made_by_seal_parts() -> TypeError:
    """Refuse to tell of frames that were not sealed."""
    return TypeError("Stops are made by seal_parts(); there is no other way to make them")


def wrong_kind(kind: int, carries_messages: bool) -> UsageError:
    """Refuse to seal a frame as a kind that has the other sort of body."""
    wanted = "carries messages" if carries_messages else "is a control kind"
    return UsageError(f"kind {kind} is unknown or of the other sort; expected one that {wanted}, see wire/kinds.py")


def wrong_flags(flags: int) -> UsageError:
    """Refuse flags of a fragment that say nothing or too much."""
    return UsageError(f"flags are {flags:#x}; a fragment has FLAG_MORE, FLAG_CONTINUES or both")


def wrong_total(is_first: bool) -> UsageError:
    """Refuse a total in the wrong fragment, or none in the first."""
    if is_first:
        return UsageError("the first fragment of a message needs `total`, the bytes of the whole")
    return UsageError("`total` belongs to the first fragment of a message alone")


def empty_fragment() -> UsageError:
    """Refuse a fragment without a byte: receivers would."""
    return UsageError("a fragment must carry at least one byte of its message")


def no_room(needed: int, left: int) -> UsageError:
    """Refuse a fragment that is larger than what is left of the frame."""
    return UsageError(f"the fragment needs {needed} bytes and the frame has {left} left; cut it smaller, or seal first")


def not_a_data_frame() -> UsageError:
    """Refuse to resend something else than a frame of messages."""
    return UsageError("only the bytes of one whole frame of messages, as seal() or to_bytes() gave them, can be resent")


def not_a_spread_frame() -> UsageError:
    """Refuse to relabel something else than a frame for several regions."""
    return UsageError("only the bytes of one whole SPREAD frame, as seal() or to_bytes() gave them, can be relabelled")
