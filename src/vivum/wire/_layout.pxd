"""The numbers of `layout.py` as C constants, and little-endian integers at any address. A test holds both equal."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    C_VERSION = 1
    C_HEADER = 40
    C_RUN_HEADER = 14
    C_LENGTH = 2
    C_TOTAL = 4
    C_WORTHWHILE = 8
    C_FRAME_MAX = 65507
    C_CAPACITY_MIN = 64
    C_COUNT_MAX = 65535
    C_WINDOW_MAX = 1 << 24
    C_NEW = 0
    C_DUPLICATE = 1
    C_BEYOND = 2
    # `refusals.BodyFault`
    FAULT_NONE = 0
    FAULT_TORN = 1
    FAULT_FRAGMENT = 2
    FAULT_SEQUENCE = 3
    FAULT_PADDING = 4

cdef extern from *:
    # Wider than the int of a C enum.
    """
    #include <stdint.h>
    #define VIVUM_GROUP_MAX UINT32_C(0x3FFFFFFF)
    #define VIVUM_CONTINUES UINT32_C(0x40000000)
    #define VIVUM_MORE UINT32_C(0x80000000)
    #define VIVUM_U16 UINT64_C(0xFFFF)
    #define VIVUM_U32 UINT64_C(0xFFFFFFFF)
    #define VIVUM_U64 UINT64_C(0xFFFFFFFFFFFFFFFF)
    #define VIVUM_SEQUENCE_MAX UINT64_C(0xFFFFFFFFFFFFFFFE)
    """
    const uint32_t C_GROUP_MAX "VIVUM_GROUP_MAX"
    const uint32_t C_CONTINUES "VIVUM_CONTINUES"
    const uint32_t C_MORE "VIVUM_MORE"
    const uint64_t U16 "VIVUM_U16"
    const uint64_t U32 "VIVUM_U32"
    const uint64_t U64 "VIVUM_U64"
    const uint64_t C_SEQUENCE_MAX "VIVUM_SEQUENCE_MAX"


cdef inline uint16_t load16(const uint8_t* p) noexcept nogil:
    return <uint16_t>(p[0] | (<uint32_t>p[1] << 8))


cdef inline uint32_t load32(const uint8_t* p) noexcept nogil:
    return p[0] | (<uint32_t>p[1] << 8) | (<uint32_t>p[2] << 16) | (<uint32_t>p[3] << 24)


cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    return load32(p) | (<uint64_t>load32(p + 4) << 32)


cdef inline void store16(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>value
    p[1] = <uint8_t>(value >> 8)


cdef inline void store32(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>value
    p[1] = <uint8_t>(value >> 8)
    p[2] = <uint8_t>(value >> 16)
    p[3] = <uint8_t>(value >> 24)


cdef inline void store64(uint8_t* p, uint64_t value) noexcept nogil:
    store32(p, <uint32_t>value)
    store32(p + 4, <uint32_t>(value >> 32))
