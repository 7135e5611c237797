"""What every token ring sends, whatever its tokens carry (`docs/design/rings.md`)."""

from vivum.wire.fields import U16, U32, U64, ControlMessage


class RingToken(ControlMessage, frozen=True):
    """The envelope of a token: which ring and round it belongs to. A protocol adds its payload in a subclass.

    `level` 0 is a ring of nodes, level 1 one of their leaders, and so on; `ring` is its number on that level. A token
    is newer if its term is higher, or its round in the same term. `skipped` are nodes that did not answer and are not
    waited for. On the wire the fields of the envelope come first, then those of the subclass.
    """

    level: U16
    ring: U32
    term: U32
    round: U64
    leader: U32
    skipped: tuple[U32, ...]


class TokenReceipt(ControlMessage, frozen=True, tag=20):
    """Confirms a token to the node that passed it on. `term` and `leader` are the latest that the receiver knows."""

    level: U16
    ring: U32
    term: U32
    round: U64
    leader: U32
