# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""Receive and send many datagrams with one system call: `recvmmsg` and `sendmmsg`. `udp.py` works without it.

Large datagrams are received in place: into a `bytes` object that nobody else has yet, whose length is set afterwards.
Shrinking it by `realloc` would leave a hole behind each, which the next messages would fill, so that no whole block
would ever be free for the next datagram.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from cpython.ref cimport PyObject
from libc.errno cimport EAGAIN, ECONNREFUSED, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/socket.h>
    #include <netinet/in.h>
    #include <arpa/inet.h>
    #include <string.h>
    #include <time.h>

    /* Whether nobody but one holder has an object: then it may be written. Without the lock of the interpreter others
       may take hold of it at any time. */
    static inline int is_ours_alone(PyObject* object)
    {
    #ifdef Py_GIL_DISABLED
        (void)object;
        return 0;
    #else
        return Py_REFCNT(object) == 1;
    #endif
    }

    /* Forget what an object with other contents had for a hash. */
    static inline void forget_hash(PyObject* object)
    {
    #ifdef __GNUC__
    #pragma GCC diagnostic push
    #pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    #endif
        ((PyBytesObject*)object)->ob_shash = -1;
    #ifdef __GNUC__
    #pragma GCC diagnostic pop
    #endif
    }

    /* Send a train: by this option (UDP_SEGMENT) the kernel cuts it into datagrams of so many bytes. */
    static inline ssize_t send_cut(
        int fd, const void* data, size_t size, int option, uint16_t segment, void* to, socklen_t to_size)
    {
        union { char room[CMSG_SPACE(sizeof(uint16_t))]; struct cmsghdr aligned; } control;
        struct iovec part = { (void*)data, size };
        struct msghdr header;
        struct cmsghdr* told;
        memset(&header, 0, sizeof(header));
        memset(&control, 0, sizeof(control));
        header.msg_name = to;
        header.msg_namelen = to_size;
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control.room;
        header.msg_controllen = sizeof(control.room);
        told = CMSG_FIRSTHDR(&header);
        told->cmsg_level = IPPROTO_UDP;
        told->cmsg_type = option;
        told->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        memcpy(CMSG_DATA(told), &segment, sizeof(segment));
        return sendmsg(fd, &header, MSG_DONTWAIT);
    }

    static inline int64_t now_ns(void)
    {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }

    static inline int64_t wall_ns(void)
    {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }

    /* When the kernel took a datagram in, by the wall clock (SO_TIMESTAMPNS); 0 if it did not say. */
    static inline int64_t came_ns(struct msghdr *m)
    {
        struct cmsghdr *c;
        for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
                struct timespec came;
                memcpy(&came, CMSG_DATA(c), sizeof came);
                return (int64_t)came.tv_sec * 1000000000 + came.tv_nsec;
            }
        return 0;
    }

    /* Pause briefly: let the sibling hyperthread run, and leave the lock of the socket's queue alone. */
    static inline void relax(void)
    {
    #if defined(__x86_64__) || defined(__i386__)
        int i;
        for (i = 0; i < 8; i++) __builtin_ia32_pause();
    #elif defined(__aarch64__)
        __asm__ __volatile__("isb");
    #endif
    }
    """
    int64_t now_ns() nogil
    int64_t wall_ns() nogil
    int64_t came_ns(msghdr*) nogil
    void relax() nogil
    bint is_ours_alone(PyObject*)
    void forget_hash(object)
    Py_ssize_t send_cut(int, const void*, size_t, int, uint16_t, void*, unsigned int) nogil

cdef extern from "sys/socket.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    struct msghdr:
        void* msg_name
        unsigned int msg_namelen
        iovec* msg_iov
        size_t msg_iovlen
        void* msg_control
        size_t msg_controllen
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    int MSG_DONTWAIT
    int recvmmsg(int, mmsghdr*, unsigned int, int, void*)
    int sendmmsg(int, mmsghdr*, unsigned int, int)

cdef extern from "netinet/in.h" nogil:
    struct in_addr:
        uint32_t s_addr
    struct sockaddr_in:
        uint16_t sin_port
        in_addr sin_addr

cdef extern from "sys/socket.h" nogil:
    Py_ssize_t recvfrom(int, void*, size_t, int, sockaddr_in*, unsigned int*)

cdef extern from "arpa/inet.h" nogil:
    uint16_t ntohs(uint16_t)
    uint32_t ntohl(uint32_t)

cdef extern from "Python.h":
    bytes PyBytes_FromStringAndSize(const char*, Py_ssize_t)
    void Py_SET_SIZE(object, Py_ssize_t)
    # Borrowed: nobody counts it.
    PyObject* PyList_GET_ITEM(list, Py_ssize_t)

cdef enum:
    BATCH = 32
    BUFFER = 65536
    # Shorter datagrams are copied: they should not each keep a block of 64 KiB.
    LARGE = 32768
    # Buffers that are used again when nobody has what was received in them: as much as is on its way at full rate.
    POOL = 64
    # Sockets that a polling node reads. The loop serves the others.
    LOOKED_AT = 8
    # After this many datagrams in a row from one socket, `look` begins with the next.
    IN_A_ROW = 16
    # What is joined has at most this length, as what the kernel joins.
    JOINED_MAX = 65000
    # Version and kind of a frame, and its length.
    BEGINNING = 4
    # Room for what the kernel tells beside a datagram: when it came, and how long its segments are.
    CONTROL = 64

SOCKETS_LOOKED_AT = LOOKED_AT


@cython.final
cdef class Emptied:
    """When a socket was last found empty, by both clocks."""

    cdef int64_t wall_ns
    cdef int64_t mono_ns

    def __cinit__(self):
        self.note()

    cdef void note(self) noexcept:
        self.wall_ns, self.mono_ns = wall_ns(), now_ns()


cpdef int64_t waited_since(
    int64_t came_wall_ns, int64_t now_wall_ns, int64_t now_mono_ns, int64_t empty_wall_ns, int64_t empty_mono_ns
) noexcept:
    """Return how long a datagram has waited that came at a time of the wall clock, after its socket was empty.

    The wall clock may have been set since then, the monotonic one has not. The smaller counts of what the two clocks
    say: one that is too long would make all later data look late.
    """
    cdef int64_t by_wall = now_wall_ns - came_wall_ns
    cdef int64_t by_mono = now_mono_ns - empty_mono_ns - max(came_wall_ns - empty_wall_ns, 0)
    return max(min(by_wall, by_mono), 0)


@cython.final
cdef class Receiver:
    """Drains sockets into `bytes` objects."""

    cdef mmsghdr _headers[BATCH]
    cdef iovec _parts[BATCH]
    cdef sockaddr_in _sources[BATCH]
    cdef char _controls[BATCH][CONTROL]
    cdef list _buffers
    # How long the last datagram had waited in the kernel.
    cdef public int64_t waited_ns
    # For each socket, and when there was none yet.
    cdef dict _emptied
    cdef Emptied _began
    # Those that were handed out, and which of the later ones was looked at last.
    cdef list _pool
    cdef Py_ssize_t _turn
    # Whether the last batch had small datagrams alone: then as many as there is room for are asked for.
    cdef bint _are_small
    # Which socket `look` begins with, and how often in a row that one had something.
    cdef int _begins_at
    cdef int _in_a_row

    def __cinit__(self):
        self._buffers = [None] * BATCH
        self._pool = []
        self._emptied, self._began = {}, Emptied()
        memset(self._headers, 0, sizeof(self._headers))

    cdef int _prepare(self, Py_ssize_t count) except -1:
        cdef Py_ssize_t index
        for index in range(count):
            if self._buffers[index] is None:
                self._buffers[index] = self._free_buffer()
            self._parts[index].iov_base = PyBytes_AS_STRING(self._buffers[index])
            self._parts[index].iov_len = BUFFER
            self._headers[index].msg_hdr.msg_iov = &self._parts[index]
            self._headers[index].msg_hdr.msg_iovlen = 1
            self._headers[index].msg_hdr.msg_name = &self._sources[index]
            self._headers[index].msg_hdr.msg_namelen = sizeof(sockaddr_in)
            self._headers[index].msg_hdr.msg_control = &self._controls[index]
            self._headers[index].msg_hdr.msg_controllen = CONTROL
        return 0

    cdef bytes _free_buffer(self):
        """Return a buffer of the pool that nobody has any more, or a new one.

        The heap would cut a block that is free into messages, and take the next from fresh memory.
        """
        cdef Py_ssize_t at, count = len(self._pool)
        cdef bytes buffer
        # The first ones first: they are in the processor's cache, if nobody keeps them.
        for at in range(min(count, BATCH)):
            if is_ours_alone(PyList_GET_ITEM(self._pool, at)):
                return self._again(at)
        for _ in range(BATCH, count):
            self._turn = self._turn + 1 if self._turn + 1 < count else BATCH
            if is_ours_alone(PyList_GET_ITEM(self._pool, self._turn)):
                return self._again(self._turn)
        buffer = PyBytes_FromStringAndSize(NULL, BUFFER)
        if count < POOL:
            self._pool.append(buffer)
        return buffer

    cdef bytes _again(self, Py_ssize_t at):
        cdef bytes buffer = <bytes>self._pool[at]
        Py_SET_SIZE(buffer, BUFFER)
        forget_hash(buffer)
        return buffer

    def receive(self, int fd, Py_ssize_t bytes_max, Py_ssize_t cost, dict known, make, own, bytes joins, int last=-1):
        cdef list taken = []
        cdef int got, index, stop
        cdef Py_ssize_t asked, size
        cdef bytes data
        cdef uint64_t address, ours = <uint64_t><long long>own
        cdef int64_t came
        cdef Emptied emptied = self._emptied.get(fd)
        if emptied is None:
            # It was opened after this receiver was made.
            emptied = self._emptied[fd] = Emptied()
            emptied.wall_ns, emptied.mono_ns = self._began.wall_ns, self._began.mono_ns
        while bytes_max > 0:
            # Each of them may have the largest size.
            asked = min(max(bytes_max // BUFFER, 1), BATCH)
            if self._are_small and asked > 1 and last < 0:
                # None of them stands for more than its own bytes.
                asked = BATCH
            self._prepare(asked)
            with nogil:
                got = recvmmsg(fd, self._headers, <unsigned int>asked, MSG_DONTWAIT, NULL)
            if got < 0:
                if errno == EAGAIN or errno == EINTR:
                    if errno == EAGAIN:
                        emptied.note()
                    break
                if errno == ECONNREFUSED:
                    # An earlier datagram of ours met a closed port; this socket is fine.
                    continue
                PyErr_SetFromErrno(OSError)
            if got:
                came = came_ns(&self._headers[got - 1].msg_hdr)
                self.waited_ns = 0 if came == 0 else waited_since(
                    came, wall_ns(), now_ns(), emptied.wall_ns, emptied.mono_ns
                )
            self._are_small = True
            index = 0
            while index < got:
                stop = self._joined_until(index, got, joins, &size)
                bytes_max -= size + cost * (stop - index)
                if size >= LARGE and stop == index + 1:
                    self._are_small = False
                if size and <unsigned char>PyBytes_AS_STRING(<bytes>self._buffers[index])[0] == last:
                    # This one stands for more than its own bytes.
                    bytes_max = 0
                address = self._address(index)
                if address != ours:
                    if stop == index + 1:
                        data = self._take_buffer(index, size)
                    else:
                        data = self._join(index, stop, size)
                    taken.append((self._place(address, known, make), data))
                index = stop
            if got < asked:
                emptied.note()
                break
        return taken

    def look(self, list fds, wait_ns, dict known, make, own):
        cdef int sockets[LOOKED_AT]
        cdef int count = <int>min(len(fds), LOOKED_AT), index, tried = 0
        cdef int64_t until_ns = now_ns() + <int64_t>wait_ns
        cdef uint64_t address, ours = <uint64_t><long long>own
        cdef unsigned int length
        cdef Py_ssize_t size = -1
        cdef bint fault = False
        cdef char* buffer
        for index in range(count):
            sockets[index] = fds[index]
        index = self._begins_at if self._begins_at < count else 0
        self._prepare(1)
        buffer = PyBytes_AS_STRING(self._buffers[0])
        # Other threads may run meanwhile, but only the loop's thread uses a node's sockets.
        with nogil:
            while count:
                length = sizeof(sockaddr_in)
                size = recvfrom(sockets[index], buffer, BUFFER, MSG_DONTWAIT, &self._sources[0], &length)
                if size >= 0:
                    address = ntohl(self._sources[0].sin_addr.s_addr)
                    address = (address << 16) | ntohs(self._sources[0].sin_port)
                    # Our own multicasts come back on the sockets of channels.
                    if index == 0 or address != ours:
                        break
                elif errno != EAGAIN and errno != EINTR and errno != ECONNREFUSED:
                    fault = True
                    break
                size = -1
                index += 1
                if index == count:
                    index = 0
                tried += 1
                if tried == count:
                    tried = 0
                    if now_ns() >= until_ns:
                        break
                    relax()
        if fault:
            PyErr_SetFromErrno(OSError)
        if size < 0:
            return []
        self._in_a_row = self._in_a_row + 1 if index == self._begins_at else 0
        self._begins_at = index if self._in_a_row < IN_A_ROW else index + 1
        return [(self._place(address, known, make), self._take_buffer(0, size))]

    cdef inline uint64_t _address(self, int index) noexcept nogil:
        cdef uint64_t host = ntohl(self._sources[index].sin_addr.s_addr)
        return (host << 16) | ntohs(self._sources[index].sin_port)

    cdef object _place(self, uint64_t address, dict known, make):
        cdef object place = known.get(address)
        return make(address) if place is None else place

    cdef bytes _take_buffer(self, int index, Py_ssize_t size):
        """Return the contents of a buffer: a copy of it if they are small, else the buffer itself."""
        cdef bytes data = <bytes>self._buffers[index]
        if size < LARGE:
            return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data), size)
        # Nobody else has it yet: its length may be set, with the zero byte that ends every `bytes` object.
        self._buffers[index] = None
        PyBytes_AS_STRING(data)[size] = 0
        Py_SET_SIZE(data, size)
        return data

    cdef int _joined_until(self, int first, int got, bytes joins, Py_ssize_t* total) noexcept:
        """Return one past the last datagram that is joined with this one, and the bytes of them all.

        As the kernel joins them (`UDP_GRO`), where it does not: whole frames of one source, one version and one of the
        kinds in `joins`, all as long as the first but the last, which may be shorter.
        """
        cdef const uint8_t* head = <const uint8_t*>PyBytes_AS_STRING(<bytes>self._buffers[first])
        cdef const uint8_t* data
        cdef Py_ssize_t segment = self._headers[first].msg_len, size
        cdef int stop = first + 1
        total[0] = segment
        if segment >= LARGE or not self._is_frame(head, segment):
            return stop
        if memchr(PyBytes_AS_STRING(joins), head[1], PyBytes_GET_SIZE(joins)) == NULL:
            return stop
        while stop < got:
            data = <const uint8_t*>PyBytes_AS_STRING(<bytes>self._buffers[stop])
            size = self._headers[stop].msg_len
            if (
                size > segment or total[0] + size > JOINED_MAX or not self._is_frame(data, size)
                or data[0] != head[0] or data[1] != head[1] or self._address(stop) != self._address(first)
            ):
                break
            total[0] += size
            stop += 1
            if size < segment:
                break
        return stop

    cdef inline bint _is_frame(self, const uint8_t* data, Py_ssize_t size) noexcept:
        """Return whether a datagram says that it is one frame. One that lies may not take others with it."""
        return size >= BEGINNING and (data[2] | <Py_ssize_t>data[3] << 8) == size

    cdef bytes _join(self, int index, int stop, Py_ssize_t size):
        cdef bytes joined = self._free_buffer() if size >= LARGE else PyBytes_FromStringAndSize(NULL, size)
        cdef char* to = PyBytes_AS_STRING(joined)
        for index in range(index, stop):
            memcpy(to, PyBytes_AS_STRING(<bytes>self._buffers[index]), self._headers[index].msg_len)
            to += self._headers[index].msg_len
        to[0] = 0
        Py_SET_SIZE(joined, size)
        return joined


def send_train(int fd, bytes data not None, int option, uint16_t segment, bytes address not None):
    cdef const char* start = PyBytes_AS_STRING(data)
    cdef char* to = PyBytes_AS_STRING(address)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data), to_size = PyBytes_GET_SIZE(address), sent
    with nogil:
        sent = send_cut(fd, start, size, option, segment, to, <unsigned int>to_size)
    if sent < 0:
        PyErr_SetFromErrno(OSError)


def send(int fd, list payloads, bytes address):
    cdef mmsghdr headers[BATCH]
    cdef iovec parts[BATCH]
    cdef Py_ssize_t index, count = len(payloads)
    cdef tuple held
    cdef bytes data
    cdef int sent
    if count > BATCH:
        count = BATCH
    # A tuple of its own: another thread may change the list meanwhile.
    held = tuple(payloads[:count])
    memset(headers, 0, sizeof(headers))
    for index in range(count):
        data = <bytes?>held[index]
        parts[index].iov_base = PyBytes_AS_STRING(data)
        parts[index].iov_len = PyBytes_GET_SIZE(data)
        headers[index].msg_hdr.msg_iov = &parts[index]
        headers[index].msg_hdr.msg_iovlen = 1
        headers[index].msg_hdr.msg_name = PyBytes_AS_STRING(address)
        headers[index].msg_hdr.msg_namelen = PyBytes_GET_SIZE(address)
    with nogil:
        sent = sendmmsg(fd, headers, <unsigned int>count, MSG_DONTWAIT)
    if sent < 0:
        PyErr_SetFromErrno(OSError)
    return sent
