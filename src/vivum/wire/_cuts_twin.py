"""Many frames of one group whose messages are cut so that each frame is full, in plain Python.

Same name as `_cuts.pyx` and same behaviour to the byte and to the error; change both or neither.
"""

from vivum.wire import refusals
from vivum.wire._arguments import require
from vivum.wire.layout import (
    CAPACITY_MIN,
    FLAG_CONTINUES,
    FLAG_MORE,
    FRAME_BYTES_MAX,
    GROUP_MAX,
    HEADER,
    HEADER_BYTES,
    LENGTH,
    LENGTH_BYTES,
    MESSAGE_KINDS,
    RUN_HEADER,
    RUN_HEADER_BYTES,
    SEQUENCE_MAX,
    TOTAL,
    TOTAL_BYTES,
    U16_MAX,
    U32_MAX,
    U64_MAX,
    VERSION,
)


def _is_cuttable(payload: object) -> bool:
    return type(payload) is bytes and len(payload) <= U32_MAX


def seal_cut(
    capacity: int,
    least: int,
    group: int,
    first_sequence: int,
    payloads: list[bytes],
    index: int,
    cut: int,
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
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Seal full frames of one group, and only such; return them, and where each of them ends."""
    require(capacity, "capacity", CAPACITY_MIN, FRAME_BYTES_MAX)
    require(least, "least", 0, FRAME_BYTES_MAX)
    require(group, "group", 0, GROUP_MAX)
    require(first_sequence, "first_sequence", 0, SEQUENCE_MAX)
    if type(payloads) is not list:
        raise refusals.not_a_list(payloads)
    stop = len(payloads)
    index = require(index, "index", 0, stop)
    if stop:
        require(first_sequence, "first_sequence", 0, SEQUENCE_MAX - (stop - 1))
    size = len(payloads[index]) if index < stop and _is_cuttable(payloads[index]) else 0
    cut = require(cut, "cut", 0, max(0, size - 1))
    require(frames_max, "frames_max", 0, U64_MAX)
    require(bytes_max, "bytes_max", 0, U64_MAX)
    require(kind, "kind", 0, 255)
    if kind not in MESSAGE_KINDS:
        raise refusals.wrong_kind(int(kind), True)
    require(domain, "domain", 0, U32_MAX)
    require(sender, "sender", 0, U32_MAX)
    require(incarnation, "incarnation", 0, U16_MAX)
    require(region, "region", 0, U32_MAX)
    require(view, "view", 0, U32_MAX)
    require(sequence, "sequence", 0, SEQUENCE_MAX)
    require(sent_ns, "sent_ns", 0, U64_MAX)
    frames: list[bytes] = []
    ends: list[tuple[int, int]] = []
    made = 0
    while len(frames) < frames_max and made < bytes_max and sequence <= SEQUENCE_MAX and index < stop:
        found = _full_frame(capacity, least, payloads, index, cut)
        if found is None:
            break
        flags, pieces, end = found
        body = b"".join(LENGTH.pack(len(piece)) + piece for piece in pieces)
        size = HEADER_BYTES + RUN_HEADER_BYTES + len(body)
        label = (VERSION, kind, size, domain, sender, incarnation, 0, region, view, sequence, sent_ns)
        run = RUN_HEADER.pack(group | flags, first_sequence + index, len(pieces))
        frames.append(HEADER.pack(*label) + run + body)
        ends.append(end)
        made += size
        sequence += 1
        index, cut = end
    return frames, ends


def _full_frame(
    capacity: int, least: int, payloads: list[bytes], index: int, cut: int
) -> tuple[int, list[bytes], tuple[int, int]] | None:
    """Find what goes into a frame that begins here: flags, pieces, and where it ends; None if it would not be full."""
    left = capacity - HEADER_BYTES - RUN_HEADER_BYTES
    flags, pieces = 0, []
    if cut:
        rest = payloads[index][cut:]
        if len(rest) > left - LENGTH_BYTES:
            piece = rest[: left - LENGTH_BYTES]
            return FLAG_CONTINUES | FLAG_MORE, [piece], (index, cut + len(piece))
        flags = FLAG_CONTINUES
        pieces.append(rest)
        left -= LENGTH_BYTES + len(rest)
        index += 1
    while index < len(payloads) and _is_cuttable(payloads[index]) and LENGTH_BYTES + len(payloads[index]) <= left:
        pieces.append(payloads[index])
        left -= LENGTH_BYTES + len(payloads[index])
        index += 1
    if index == len(payloads) or not _is_cuttable(payloads[index]):
        return None
    room = left - LENGTH_BYTES - TOTAL_BYTES
    if room <= 0 or (pieces and room < least):
        return flags, pieces, (index, 0)
    pieces.append(TOTAL.pack(len(payloads[index])) + payloads[index][:room])
    return flags | FLAG_MORE, pieces, (index, room)
