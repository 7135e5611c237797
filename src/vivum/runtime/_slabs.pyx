# cython: language_level=3
# cython: auto_pickle=False
"""Makes blocks of 513 to 4,096 bytes for the interpreter, in place of the C library. `heap.py` tells why.

One range of addresses is reserved once and never given back: a block is ours if it lies in it, so what was made before,
or by the system, goes to the system. The range is cut into slabs of 64 KiB, each of one size of blocks. Free blocks of
a size are on a stack beside the range, the last one on top, so that neither taking nor giving back touches a block.

Calls come without the interpreter's lock, from any thread. One thread owns the stacks; it alone takes blocks. What
others give back is chained up without a lock until the owner needs it; what others take comes from the system.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #include <pthread.h>
    #if defined(__linux__) && !defined(Py_GIL_DISABLED)
        #include <sys/mman.h>
        #define SLABS_CAN_BE 1
        /* The quick way to it; a program that has no room left for such variables cannot load this module. */
        static __thread int is_owner __attribute__((tls_model("initial-exec"))) = 0;
        static void* slabs_reserve(size_t size) {
            void* range = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            return range == MAP_FAILED ? NULL : range;
        }
    #else
        #define SLABS_CAN_BE 0
        static int is_owner = 0;
        static void* slabs_reserve(size_t size) { return NULL; }
    #endif
    #define slabs_likely(x) __builtin_expect(!!(x), 1)
    #define slabs_swap(where, what) __atomic_exchange_n(where, what, __ATOMIC_ACQ_REL)
    #define slabs_swap_if(where, seen, what) \\
        __atomic_compare_exchange_n(where, seen, what, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)
    #define slabs_look(where) __atomic_load_n(where, __ATOMIC_RELAXED)
    static pthread_key_t slabs_key;
    """
    const int SLABS_CAN_BE
    int is_owner
    void* slabs_reserve(size_t size) noexcept nogil
    bint slabs_likely(bint) noexcept nogil
    void* swap "slabs_swap"(void** where, void* what) noexcept nogil
    int swap_int "slabs_swap"(int* where, int what) noexcept nogil
    bint swap_if "slabs_swap_if"(void** where, void** seen, void* what) noexcept nogil
    void* look "slabs_look"(void** where) noexcept nogil
    ctypedef int pthread_key_t
    pthread_key_t slabs_key
    int pthread_key_create(pthread_key_t*, void (*)(void*) noexcept nogil) nogil
    int pthread_setspecific(pthread_key_t, const void*) nogil
    int pthread_atfork(void (*)() noexcept nogil, void (*)() noexcept nogil, void (*)() noexcept nogil) nogil

cdef extern from "Python.h":
    ctypedef enum PyMemAllocatorDomain:
        PYMEM_DOMAIN_RAW
    ctypedef struct PyMemAllocatorEx:
        void* ctx
        void* (*malloc)(void*, size_t) noexcept nogil
        void* (*calloc)(void*, size_t, size_t) noexcept nogil
        void* (*realloc)(void*, void*, size_t) noexcept nogil
        void (*free)(void*, void*) noexcept nogil
    void PyMem_GetAllocator(PyMemAllocatorDomain, PyMemAllocatorEx*)
    void PyMem_SetAllocator(PyMemAllocatorDomain, PyMemAllocatorEx*)

cdef enum:
    SIZE_MIN = 513
    SIZE_MAX = 4096
    STEP_BITS = 6
    SLAB_BITS = 16
    SLABS_MAX = 1024
    CLASSES = (SIZE_MAX - SIZE_MIN + 1) >> STEP_BITS
    REACH = SLABS_MAX << SLAB_BITS

cdef PyMemAllocatorEx system
cdef bint is_between = False
cdef int has_owner = 0
cdef int wanted = 0
cdef int taken = 0
cdef char* base = NULL
cdef uint8_t class_of[SLABS_MAX]
cdef uint32_t* free_blocks[CLASSES]
cdef uint32_t free_count[CLASSES]
# Blocks that other threads gave back: the first, each of which holds the address of the next.
cdef void* returned = NULL


cdef inline size_t size_of(size_t kind) noexcept nogil:
    return (kind + 9) << STEP_BITS


cdef inline bint is_ours(void* block) noexcept nogil:
    return <size_t>(<char*>block - base) < <size_t>REACH


cdef inline bint is_fit(size_t size) noexcept nogil:
    return size - SIZE_MIN <= <size_t>(SIZE_MAX - SIZE_MIN)


cdef inline void put(void* block) noexcept nogil:
    cdef size_t at = <size_t>(<char*>block - base)
    cdef size_t kind = class_of[at >> SLAB_BITS]
    free_blocks[kind][free_count[kind]] = <uint32_t>(at >> STEP_BITS)
    free_count[kind] += 1


cdef bint fill(size_t kind) noexcept nogil:
    """Find free blocks of a size that has none: what others gave back, else a new slab. The owner alone calls it."""
    global taken
    cdef void* block
    cdef void* following
    cdef size_t size = size_of(kind)
    cdef size_t at, start
    cdef uint32_t count
    if look(&returned) != NULL:
        block = swap(&returned, NULL)
        while block != NULL:
            following = (<void**>block)[0]
            put(block)
            block = following
        if free_count[kind]:
            return True
    if taken >= wanted:
        return False
    # In this order: who forks in between finds a slab that nobody uses.
    start = <size_t>taken << SLAB_BITS
    taken += 1
    class_of[start >> SLAB_BITS] = <uint8_t>kind
    count = 0
    at = start + (1 << SLAB_BITS)
    at = start
    while at + size <= start + (1 << SLAB_BITS):
        at += size
    # The lowest comes out first.
    while at > start:
        at -= size
        free_blocks[kind][count] = <uint32_t>(at >> STEP_BITS)
        count += 1
    free_count[kind] = count
    return True


cdef void* take(void* context, size_t size) noexcept nogil:
    cdef size_t kind
    if is_fit(size) and is_owner:
        kind = ((size - 1) >> STEP_BITS) - 8
        if slabs_likely(free_count[kind] != 0) or fill(kind):
            free_count[kind] -= 1
            return base + (<size_t>free_blocks[kind][free_count[kind]] << STEP_BITS)
    return system.malloc(system.ctx, size)


cdef void* take_zeros(void* context, size_t count, size_t each) noexcept nogil:
    cdef void* block
    if count <= SIZE_MAX and each <= SIZE_MAX and is_fit(count * each) and is_owner:
        block = take(context, count * each)
        if block != NULL:
            memset(block, 0, count * each)
        return block
    return system.calloc(system.ctx, count, each)


cdef void give_back(void* context, void* block) noexcept nogil:
    cdef void* first
    if not is_ours(block):
        system.free(system.ctx, block)
    elif slabs_likely(is_owner):
        put(block)
    else:
        first = look(&returned)
        (<void**>block)[0] = first
        while not swap_if(&returned, &first, block):
            (<void**>block)[0] = first


cdef void* change(void* context, void* block, size_t size) noexcept nogil:
    cdef size_t room
    cdef void* other
    if not is_ours(block):
        if block == NULL:
            return take(context, size)
        return system.realloc(system.ctx, block, size)
    room = size_of(class_of[<size_t>(<char*>block - base) >> SLAB_BITS])
    if size <= room and size > room >> 1:
        return block
    other = take(context, size)
    if other == NULL:
        # One that should only become smaller is large enough.
        return block if size <= room else NULL
    memcpy(other, block, min(size, room))
    give_back(context, block)
    return other


cdef void owner_ends(void* value) noexcept nogil:
    global is_owner
    is_owner = 0
    swap_int(&has_owner, 0)


cdef void child_begins() noexcept nogil:
    # If another thread than the owner forked, the owner may have been in the middle of something: its stacks are
    # forgotten with all that was free, and whoever asks next owns new ones.
    if not is_owner:
        memset(free_count, 0, sizeof(free_count))
        swap_int(&has_owner, 0)


cdef bint prepare() noexcept:
    """Reserve addresses and learn of threads that end and processes that begin; False if the system does not let us."""
    global base
    cdef size_t total = 0
    cdef size_t kind
    cdef uint32_t* stacks
    if not SLABS_CAN_BE:
        return False
    for kind in range(CLASSES):
        total += <size_t>SLABS_MAX << SLAB_BITS >> STEP_BITS
    stacks = <uint32_t*>slabs_reserve(total)
    if stacks == NULL:
        return False
    base = <char*>slabs_reserve(REACH)
    if base == NULL or pthread_key_create(&slabs_key, owner_ends) or pthread_atfork(NULL, NULL, child_begins):
        return False
    for kind in range(CLASSES):
        free_blocks[kind] = stacks + (kind * (<size_t>SLABS_MAX << SLAB_BITS >> STEP_BITS) >> 2)
    return True


def keep(int count):
    global is_between, is_owner, wanted
    cdef PyMemAllocatorEx ours
    if not 0 <= count <= SLABS_MAX:
        raise ValueError(f"0 to {SLABS_MAX} slabs can be used, not {count}")
    if not is_between:
        if not prepare():
            return False
        is_between = True
        PyMem_GetAllocator(PYMEM_DOMAIN_RAW, &system)
        # A thread may read the table while it is written: either context serves all functions.
        ours.ctx = system.ctx
        ours.malloc = take
        ours.calloc = take_zeros
        ours.realloc = change
        ours.free = give_back
        PyMem_SetAllocator(PYMEM_DOMAIN_RAW, &ours)
    wanted = max(wanted, count)
    if not is_owner and not swap_int(&has_owner, 1):
        is_owner = 1
        pthread_setspecific(slabs_key, <void*>1)
    return True


def count():
    return taken
