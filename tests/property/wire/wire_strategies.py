"""Buffers for the codec: good ones, almost good ones, and noise; and how two forms of it are compared."""

import struct

from hypothesis import strategies as st

from vivum.wire import _codec_twin
from vivum.wire.layout import FLAG_CONTINUES, FLAG_MORE, HEADER, HEADER_BYTES, KNOWN_KINDS, MESSAGE_KINDS

U16, U32, U64 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
GROUPS = st.one_of(st.integers(0, 3), st.integers(0, 2**30 - 1))
SEQUENCES = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 2), st.integers(2**64 - 6, 2**64 - 2))
PAYLOADS = st.one_of(st.binary(max_size=8), st.binary(max_size=60))
FLAGS = st.sampled_from([FLAG_MORE, FLAG_CONTINUES, FLAG_MORE | FLAG_CONTINUES])
# Mostly bytes that mean something in a header or a run.
NOISE = st.one_of(st.sampled_from([0, 0, 1, 2, 14, 40, 0x40, 0x80, 0xC0, 0xFF]), st.integers(0, 255))


def outcome(call, *arguments):
    """What a call did, so that two forms can be compared: its result, or the type and text of its error."""
    try:
        return "returned", call(*arguments)
    except Exception as error:
        return type(error), str(error)


def describe(frame):
    """All that can be seen of a frame."""
    return (
        *(
            frame.kind,
            frame.length,
            frame.domain,
            frame.sender,
            frame.incarnation,
            frame.key_epoch,
            frame.region,
        ),
        *(frame.view, frame.sequence, frame.sent_ns, frame.start, frame.body_start, frame.body_stop),
        *(frame.stream, frame.data, frame.messages(), frame.body(), frame.to_bytes(), repr(frame)),
    )


def split_outcome(module, data):
    """What `split` did with a buffer, down to the last message."""
    verdict, value = outcome(module.split, data)
    return verdict, [describe(frame) for frame in value] if verdict == "returned" else value


@st.composite
def run_bytes(draw):
    """A run, most often one that is right."""
    payloads = draw(st.lists(PAYLOADS, min_size=1, max_size=4))
    flags = draw(st.one_of(st.just(0), FLAGS))
    if flags and draw(st.booleans()):
        payloads = payloads[:1]
    if flags and draw(st.booleans()):
        # Right at both ends, or one byte short of it.
        payloads[0] += draw(st.sampled_from([b"", b"f"]))
        payloads[-1] += draw(st.sampled_from([b"tota", b"total"]))
    count = draw(st.one_of(st.just(len(payloads)), st.just(len(payloads)), st.integers(0, 6), U16))
    body = struct.pack("<IQH", draw(GROUPS) | flags, draw(st.one_of(SEQUENCES, U64)), count)
    return body + b"".join(struct.pack("<H", len(payload)) + payload for payload in payloads)


@st.composite
def loose_frames(draw):
    """A frame that has the right shape and anything in it."""
    kind = draw(
        st.one_of(st.sampled_from(sorted(MESSAGE_KINDS)), st.sampled_from(sorted(KNOWN_KINDS)), st.integers(0, 255))
    )
    parts = st.one_of(run_bytes(), run_bytes(), st.binary(max_size=20), st.integers(0, 40).map(bytes))
    body = b"".join(draw(st.lists(parts, max_size=4)))
    right = HEADER_BYTES + len(body)
    length = draw(st.one_of(st.just(right), st.just(right), st.just(right), st.integers(0, right + 2), U16))
    version = draw(st.sampled_from([1, 1, 1, 1, 1, 0, 2]))
    sequence = draw(st.one_of(SEQUENCES, U64))
    header = HEADER.pack(
        version,
        kind,
        length,
        draw(U32),
        draw(U32),
        draw(U16),
        draw(U16),
        draw(U32),
        draw(U32),
        sequence,
        draw(U64),
    )
    return header + body


@st.composite
def good_frames(draw):
    """A frame as our own builder makes it."""
    builder = _codec_twin.FrameBuilder(draw(st.sampled_from([64, 100, 300, 1472])))
    group, sequence = 1, 0
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            group, sequence = draw(GROUPS), draw(st.one_of(SEQUENCES, st.integers(0, 2**64 - 60)))
        match draw(st.sampled_from(["append", "extend", "fragment", "fragment"])):
            case "append":
                sequence += builder.append(group, sequence, draw(PAYLOADS))
            case "extend" if sequence < 2**64 - 10:
                sequence += builder.extend(group, sequence, draw(st.lists(PAYLOADS, max_size=5)))
            case "fragment" if builder.capacity - builder.size > 30:
                flags, piece = draw(FLAGS), draw(st.binary(min_size=1, max_size=10))
                builder.append_fragment(group, sequence, flags, piece, total=500 if flags == FLAG_MORE else None)
                sequence += 1
        sequence = min(sequence, 2**64 - 2)
    pad_to = draw(st.sampled_from([0, 0, 64, builder.capacity]))
    kind = draw(st.sampled_from(sorted(MESSAGE_KINDS)))
    header = (draw(U32), draw(U32), draw(U16), draw(U32), draw(U32), draw(SEQUENCES), draw(U64), draw(U16))
    return builder.seal(kind, *header, pad_to)


@st.composite
def damaged(draw, sources):
    """A buffer with a few bytes changed, cut out, doubled or put in."""
    data = bytearray(draw(sources))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["set", "set", "cut", "insert", "truncate", "double"])):
            case "set":
                if place < len(data):
                    data[place] = draw(NOISE)
            case "cut":
                del data[place : place + draw(st.integers(1, 20))]
            case "insert":
                data[place:place] = bytes(draw(st.lists(NOISE, min_size=1, max_size=20)))
            case "truncate":
                del data[place:]
            case "double":
                data += data[place:]
    return bytes(data)


GOOD_BUFFERS = st.lists(good_frames(), min_size=1, max_size=4).map(b"".join)
LOOSE_BUFFERS = st.lists(loose_frames(), min_size=1, max_size=3).map(b"".join)
NOISE_BUFFERS = st.lists(NOISE, max_size=120).map(bytes)
BUFFERS = st.one_of(GOOD_BUFFERS, LOOSE_BUFFERS, damaged(GOOD_BUFFERS), damaged(LOOSE_BUFFERS), NOISE_BUFFERS)
