# cython: language_level=3
# cython: auto_pickle=False
"""Makes blocks of 513 to 4,096 bytes for the interpreter, in place of the C library. `heap.py` tells why.

One range of addresses is reserved once and never given back: a block is ours if it lies in it, so what the system made,
before or beside us, goes to the system. The range is cut into slabs of 64 KiB, each of one kind of blocks. Free blocks
of a kind are on a stack beside the range, the last one on top, so that neither taking nor giving back touches a block.

Calls come without the interpreter's lock, from any thread. One thread owns the stacks and all else that changes here;
it alone takes blocks. What others give back is chained up without a lock until the owner needs it. What others take
comes from the system.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #include <pthread.h>
    #if defined(__linux__) && !defined(Py_GIL_DISABLED)
        #include <dlfcn.h>
        #include <sys/mman.h>
        /* This model is the quick one; where no room for such variables is left, the module cannot be imported. */
        static __thread int is_owner __attribute__((tls_model("initial-exec"))) = 0;

        static void* slabs_reserve(size_t size) {
            void* range = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            return range == MAP_FAILED ? NULL : range;
        }
        static int slabs_from_interpreter(void* function) {
            Dl_info there, interpreter;
            return dladdr(function, &there) && dladdr((void*)PyMem_RawMalloc, &interpreter)
                && there.dli_fbase == interpreter.dli_fbase;
        }
    #else
        static int is_owner = 0;
        static void* slabs_reserve(size_t size) { return NULL; }
        static int slabs_from_interpreter(void* function) { return 0; }
    #endif
    static pthread_key_t slabs_key;
    #define slabs_swap(where, what) __atomic_exchange_n(where, what, __ATOMIC_ACQ_REL)
    #define slabs_swap_if(where, seen, what) \\
        __atomic_compare_exchange_n(where, seen, what, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)
    #define slabs_look(where) __atomic_load_n(where, __ATOMIC_RELAXED)
    """
    int is_owner
    void* reserve "slabs_reserve"(size_t size) noexcept nogil
    bint is_of_interpreter "slabs_from_interpreter"(void* function) noexcept nogil
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
        PYMEM_DOMAIN_OBJ
    ctypedef struct PyMemAllocatorEx:
        void* ctx
        void* (*malloc)(void*, size_t) noexcept nogil
        void* (*calloc)(void*, size_t, size_t) noexcept nogil
        void* (*realloc)(void*, void*, size_t) noexcept nogil
        void (*free)(void*, void*) noexcept nogil
    void PyMem_GetAllocator(PyMemAllocatorDomain, PyMemAllocatorEx*)
    void PyMem_SetAllocator(PyMemAllocatorDomain, PyMemAllocatorEx*)

# Blocks of a kind are a multiple of 64 bytes: they begin with a line of the cache.
cdef enum:
    LARGER_THAN = 512
    LARGEST = 4096
    STEP_BITS = 6
    KINDS = (LARGEST - LARGER_THAN) >> STEP_BITS
    SLAB_BITS = 16
    SLAB = 1 << SLAB_BITS
    SLABS_MAX = 512
    REACH = SLABS_MAX << SLAB_BITS
    SEARCH_EVERY = 1024

cdef PyMemAllocatorEx system
cdef bint is_between = False
cdef int has_owner = 0
cdef int wanted = 0
cdef int slab_count = 0
cdef uint32_t refusals = 0
cdef char* base = NULL
cdef uint8_t kind_of[SLABS_MAX]
cdef uint32_t* free_blocks[KINDS]
cdef uint32_t free_count[KINDS]
# The first of the blocks that other threads gave back; each holds the address of the next.
cdef void* returned = NULL


cdef inline size_t size_of(size_t kind) noexcept nogil:
    return LARGER_THAN + ((kind + 1) << STEP_BITS)


cdef inline bint is_fit(size_t size) noexcept nogil:
    return size - (LARGER_THAN + 1) < <size_t>(LARGEST - LARGER_THAN)


cdef inline size_t place_of(void* block) noexcept nogil:
    """Tell how far from the start of the range it is; `REACH` or more: it is not ours."""
    return <size_t>block - <size_t>base


cdef inline void put(size_t place) noexcept nogil:
    cdef size_t kind = kind_of[place >> SLAB_BITS]
    free_blocks[kind][free_count[kind]] = <uint32_t>(place >> STEP_BITS)
    free_count[kind] += 1


cdef void cut(size_t slab, size_t kind) noexcept nogil:
    """Make the slab, of which nothing is in use, one of this kind. The lowest block comes out first."""
    cdef size_t size = size_of(kind)
    cdef size_t start = slab << SLAB_BITS
    cdef size_t left = SLAB - SLAB % size
    kind_of[slab] = <uint8_t>kind
    while left:
        left -= size
        put(start + left)


cdef bint convert(size_t kind) noexcept nogil:
    """Make a slab of this kind from one of which nothing is in use. Looks at the kind that has the most bytes free."""
    cdef uint32_t free_in[SLABS_MAX]
    cdef size_t each, size
    cdef size_t other = 0
    cdef size_t most = 0
    cdef size_t slab
    cdef uint32_t at, kept
    for each in range(KINDS):
        if free_count[each] * size_of(each) > most:
            most = free_count[each] * size_of(each)
            other = each
    size = size_of(other)
    memset(free_in, 0, sizeof(free_in))
    for at in range(free_count[other]):
        slab = free_blocks[other][at] >> (SLAB_BITS - STEP_BITS)
        free_in[slab] += 1
        if free_in[slab] == SLAB // size:
            break
    else:
        return False
    kept = 0
    for at in range(free_count[other]):
        if free_blocks[other][at] >> (SLAB_BITS - STEP_BITS) != slab:
            free_blocks[other][kept] = free_blocks[other][at]
            kept += 1
    free_count[other] = kept
    cut(slab, kind)
    return True


cdef bint fill(size_t kind) noexcept nogil:
    """Find free blocks of a kind that has none; False: there are none."""
    global slab_count, refusals
    cdef void* block
    cdef void* following
    cdef int slab = slab_count
    if look(&returned) != NULL:
        block = swap(&returned, NULL)
        while block != NULL:
            following = (<void**>block)[0]
            put(place_of(block))
            block = following
        if free_count[kind]:
            return True
    if slab < wanted:
        # Counted first: a child of another thread, forked in between, then has a slab that nobody uses.
        slab_count = slab + 1
        cut(slab, kind)
        return True
    refusals += 1
    return refusals % SEARCH_EVERY == 0 and convert(kind)


cdef void* take(void* context, size_t size) noexcept nogil:
    cdef size_t kind
    if is_fit(size) and is_owner:
        kind = (size - LARGER_THAN - 1) >> STEP_BITS
        if free_count[kind] or fill(kind):
            free_count[kind] -= 1
            return base + (<size_t>free_blocks[kind][free_count[kind]] << STEP_BITS)
    return system.malloc(system.ctx, size)


cdef void* take_zeros(void* context, size_t count, size_t each) noexcept nogil:
    cdef void* block
    if count <= LARGEST and each <= LARGEST and is_fit(count * each) and is_owner:
        block = take(context, count * each)
        if block != NULL:
            memset(block, 0, count * each)
        return block
    return system.calloc(system.ctx, count, each)


cdef void give_back(void* context, void* block) noexcept nogil:
    cdef size_t place = place_of(block)
    cdef void* first
    if place >= <size_t>REACH:
        system.free(system.ctx, block)
    elif is_owner:
        put(place)
    else:
        first = look(&returned)
        (<void**>block)[0] = first
        while not swap_if(&returned, &first, block):
            (<void**>block)[0] = first


cdef void* change(void* context, void* block, size_t size) noexcept nogil:
    cdef size_t place = place_of(block)
    cdef size_t room
    cdef void* other
    if block == NULL:
        return take(context, size)
    if place >= <size_t>REACH:
        return system.realloc(system.ctx, block, size)
    room = size_of(kind_of[place >> SLAB_BITS])
    if room >> 1 < size <= room:
        return block
    other = take(context, size)
    if other == NULL:
        # One that was to become smaller is large enough.
        return block if size <= room else NULL
    memcpy(other, block, min(size, room))
    give_back(context, block)
    return other


cdef void end_owner(void* value) noexcept nogil:
    global is_owner
    is_owner = 0
    swap_int(&has_owner, 0)


cdef void begin_child() noexcept nogil:
    # The owner forked: its copy goes on. Another thread did: the owner, which is not here, may have been in the middle
    # of something. What was free is forgotten, and whoever asks next is the owner.
    if not is_owner:
        memset(free_count, 0, sizeof(free_count))
        swap_int(&has_owner, 0)


cdef bint prepare() noexcept:
    """Reserve what is needed, or tell that the system does not let us."""
    global base
    cdef size_t kind
    cdef size_t total = 0
    cdef uint32_t* stacks
    for kind in range(KINDS):
        total += SLABS_MAX * (SLAB // size_of(kind))
    stacks = <uint32_t*>reserve(total * sizeof(uint32_t))
    if stacks == NULL:
        return False
    for kind in range(KINDS):
        free_blocks[kind] = stacks
        stacks += SLABS_MAX * (SLAB // size_of(kind))
    base = <char*>reserve(REACH)
    return base != NULL and not pthread_key_create(&slabs_key, end_owner) and not pthread_atfork(NULL, NULL, begin_child)


cdef bint step_between() noexcept:
    """Stand between the interpreter and the C library, unless somebody else does."""
    cdef PyMemAllocatorEx ours
    cdef PyMemAllocatorEx objects
    PyMem_GetAllocator(PYMEM_DOMAIN_RAW, &system)
    PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &objects)
    # Who came before us may go before us, and leave the C library with blocks of ours. tracemalloc does, and profilers.
    # The interpreter's own functions have no context; its debug hooks and tracemalloc have one.
    if system.ctx != NULL or not is_of_interpreter(<void*>system.malloc):
        return False
    # PYTHONMALLOC=malloc: who wants that wants to see every block.
    if objects.malloc == system.malloc or not prepare():
        return False
    # A thread may read the table while it is written: old functions and ours have the same context.
    ours.ctx = system.ctx
    ours.malloc = take
    ours.calloc = take_zeros
    ours.realloc = change
    ours.free = give_back
    PyMem_SetAllocator(PYMEM_DOMAIN_RAW, &ours)
    return True


def keep(int count):
    global is_between, is_owner, wanted
    if not 0 <= count <= SLABS_MAX:
        raise ValueError(f"0 to {SLABS_MAX} slabs can be used, not {count}")
    if not is_between:
        is_between = step_between()
        if not is_between:
            return False
    wanted = max(wanted, count)
    if not is_owner and not swap_int(&has_owner, 1):
        is_owner = 1
        pthread_setspecific(slabs_key, <void*>1)
    return True


def count():
    return slab_count


def holds(size_t address):
    return base != NULL and address - <size_t>base < <size_t>REACH
