"""The numbers of the frame format: sizes, bounds and flag bits, as `docs/design/wire.md` has them.

The twin takes them from here. The compiled codec has them as C constants, which a test holds equal to these.
"""

from struct import Struct

from vivum.wire.kinds import KINDS

VERSION = 1
HEADER_BYTES = 40
RUN_HEADER_BYTES = 14
LENGTH_BYTES = 2
TOTAL_BYTES = 4
FRAME_BYTES_MAX = 65_507
"""The largest payload of a UDP datagram over IPv4."""

CAPACITY_MIN = 64
"""The smallest frame that a builder makes: enough for a header and a first fragment of a few bytes."""

WORTHWHILE_PART = 8
"""A frame that has messages already gets the beginning of another only if that fills this part of the frame: smaller
pieces cost a total, a join and a Python object on every receiver for little."""

COUNT_MAX = (1 << 16) - 1
GROUP_MAX = (1 << 30) - 1
FLAG_CONTINUES = 1 << 30
FLAG_MORE = 1 << 31
SEQUENCE_MAX = (1 << 64) - 2
"""The highest number of a frame or a message. One less than fits 64 bits, so that "one past" fits too."""

U16_MAX = (1 << 16) - 1
U32_MAX = (1 << 32) - 1
U64_MAX = (1 << 64) - 1

WINDOW_MAX = 1 << 24
"""The most frames that one `SequenceWindow` spans: 2 MiB of bits."""

NEW = 0
DUPLICATE = 1
BEYOND = 2

HEADER = Struct("<BBHIIHHIIQQ")
RUN_HEADER = Struct("<IQH")
LENGTH = Struct("<H")
TOTAL = Struct("<I")

KNOWN_KINDS = frozenset(int(kind) for kind in KINDS)
MESSAGE_KINDS = frozenset(int(kind) for kind, info in KINDS.items() if info.has_messages)
