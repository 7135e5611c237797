"""The header of a frame, from arguments to bytes."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from vivum.wire._arguments cimport whole
from vivum.wire._layout cimport *


cdef inline bint is_kind(uint64_t kind, uint64_t mask) noexcept nogil:
    return kind < 64 and (mask >> kind) & 1


cdef struct Header:
    uint8_t kind
    uint32_t domain
    uint32_t sender
    uint16_t incarnation
    uint16_t key_epoch
    uint32_t region
    uint32_t view
    uint64_t sequence
    uint64_t sent_ns


cdef inline int read_header(
    Header* header,
    uint64_t mask,
    bint has_messages,
    kind,
    domain,
    sender,
    incarnation,
    region,
    view,
    sequence,
    sent_ns,
    key_epoch,
) except -1:
    """Check all fields of a header before a byte is written; `mask` has the kinds that are right."""
    cdef uint64_t number = whole(kind, "kind", 0, 255)
    if not is_kind(number, mask):
        from vivum.wire import refusals
        raise refusals.wrong_kind(number, has_messages)
    header.kind = <uint8_t>number
    header.domain = <uint32_t>whole(domain, "domain", 0, U32)
    header.sender = <uint32_t>whole(sender, "sender", 0, U32)
    header.incarnation = <uint16_t>whole(incarnation, "incarnation", 0, U16)
    header.region = <uint32_t>whole(region, "region", 0, U32)
    header.view = <uint32_t>whole(view, "view", 0, U32)
    header.sequence = whole(sequence, "sequence", 0, C_SEQUENCE_MAX)
    header.sent_ns = whole(sent_ns, "sent_ns", 0, U64)
    header.key_epoch = <uint16_t>whole(key_epoch, "key_epoch", 0, U16)
    return 0


cdef inline void write_header(uint8_t* p, const Header* header, Py_ssize_t length) noexcept:
    p[0] = C_VERSION
    p[1] = header.kind
    store16(p + 2, <uint32_t>length)
    store32(p + 4, header.domain)
    store32(p + 8, header.sender)
    store16(p + 12, header.incarnation)
    store16(p + 14, header.key_epoch)
    store32(p + 16, header.region)
    store32(p + 20, header.view)
    store64(p + 24, header.sequence)
    store64(p + 32, header.sent_ns)
