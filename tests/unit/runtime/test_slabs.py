"""Blocks of 513 to 4,096 bytes come from slabs, hold what is written to them, and come back from any thread.

Each test has a process of its own: what stands between interpreter and C library stays, and a mistake is a crash.
"""

import os
import subprocess
import sys
import sysconfig

import pytest

pytest.importorskip("vivum.runtime._slabs", reason="the compiled part was not built")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="no slabs are used here"
)

WATCHERS = ("PYTHONMALLOC", "PYTHONTRACEMALLOC", "PYTHONDEVMODE")
PLAIN = {name: value for name, value in os.environ.items() if name not in WATCHERS}

RAW = """
import ctypes, random, sys
from vivum.runtime import _slabs

def declare(name, result, *arguments):
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, arguments
    return function

malloc = declare("PyMem_RawMalloc", ctypes.c_void_p, ctypes.c_size_t)
calloc = declare("PyMem_RawCalloc", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
realloc = declare("PyMem_RawRealloc", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
free = declare("PyMem_RawFree", None, ctypes.c_void_p)
held = _slabs.holds
"""


def run(script: str, *options: str, **variables: str) -> None:
    done = subprocess.run(
        [sys.executable, *options, "-c", script],
        env={**PLAIN, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr}"


def test_blocks_between_the_borders_come_from_slabs() -> None:
    run(
        RAW
        + """
before = malloc(1000)
assert _slabs.count() == 0 and not held(before)
assert _slabs.keep(64)
for size, ours in ((0, False), (1, False), (512, False), (513, True), (1033, True), (4096, True), (4097, False)):
    block, zeros = malloc(size), calloc(1, size)
    assert block and zeros and block != zeros
    assert held(block) is held(zeros) is ours, size
    assert block % 16 == zeros % 16 == 0
    free(block), free(zeros)
    assert malloc(size) == zeros or not ours, "the last that was given back comes first"
grown = realloc(before, 2000)
assert not held(grown), "what was made before stays with the system"
free(grown)
free(None)
assert not calloc(1 << 33, 1 << 33), "not the product without its high bits"
assert held(id(bytes(1000))) and not held(id(bytes(100)))
for count in (-1, 513):
    try:
        _slabs.keep(count)
    except ValueError:
        pass
    else:
        raise AssertionError(count)
"""
    )


@pytest.mark.parametrize("slabs", [0, 3, 64])
def test_no_byte_is_lost_whatever_is_asked_for(slabs: int) -> None:
    run(
        RAW
        + f"""
random = random.Random({slabs})
BORDERS = [0, 1, 300, 512, 513, 576, 577, 1033, 2048, 2049, 4032, 4033, 4096, 4097, 9000]
blocks = {{}}

def some_size():
    return max(0, random.choice(BORDERS) + random.choice((0, 0, random.randrange(-40, 40))))

def write(block, size):
    content = random.randbytes(size)
    ctypes.memmove(block, content, size)
    assert block not in blocks
    blocks[block] = content

def read(block, size):
    return ctypes.string_at(block, size)

def check_apart():
    end = 0
    for block in sorted(blocks):
        assert block >= end
        end = block + len(blocks[block])

for _ in range(50):
    write((block := malloc(size := some_size())), size)
assert _slabs.keep({slabs})
for step in range(30_000):
    deed = random.random()
    # In turns it grows and shrinks: all kinds are used, emptied, and change.
    if deed < (0.4 if step // 3000 % 2 else 0.25) or not blocks:
        write(malloc(size := some_size()), size)
    elif deed < 0.45:
        size = some_size()
        each = random.choice([1, 2, size or 1])
        block = calloc(size // each, each)
        assert read(block, size // each * each) == bytes(size // each * each)
        write(block, size // each * each)
    else:
        block = random.choice(list(blocks)) if step % 8 == 0 else next(reversed(blocks))
        content = blocks.pop(block)
        assert read(block, len(content)) == content
        if deed < 0.6:
            size = some_size()
            other = realloc(block, size)
            assert read(other, min(size, len(content))) == content[:size]
            write(other, size)
        elif deed < 0.62 and content:
            assert not realloc(block, 1 << 62)
            blocks[block] = content
        else:
            free(block)
    if step % 1000 == 0:
        check_apart()
assert _slabs.count() <= {slabs}
assert not {slabs} or any(map(held, blocks))
for block, content in blocks.items():
    assert read(block, len(content)) == content
    free(block)
"""
    )


def test_past_the_limit_the_system_serves_and_slabs_stay() -> None:
    run(
        RAW
        + """
_slabs.keep(1)
_slabs.keep(2)
_slabs.keep(1)
per_slab = 65536 // 1088
# Made before, and of no size that is ours: the list takes no slab.
blocks = [0] * (10 * per_slab)
for _ in range(3):
    for number in range(len(blocks)):
        blocks[number] = malloc(1033)
        ctypes.memmove(blocks[number], number.to_bytes(2) * 500, 1000)
    assert sum(map(held, blocks)) == 2 * per_slab
    assert _slabs.count() == 2
    for number, block in enumerate(blocks):
        assert ctypes.string_at(block, 1000) == number.to_bytes(2) * 500
        free(block)
"""
    )


def test_slabs_of_which_nothing_is_in_use_serve_other_sizes() -> None:
    run(
        RAW
        + """
# Lists of no size that is ours, and made before: they take no slab.
small, large, more = [0] * 8192, [0] * 8192, [0] * 8192

def make(blocks, size):
    for number in range(len(blocks)):
        blocks[number] = malloc(size)
    return sum(map(held, blocks))

_slabs.keep(4)
assert make(small, 1000) == 4 * (65536 // 1024)
last = small.pop(70)
for each in small:
    free(each)
assert make(large, 4000) == 3 * 16, "all but the slab of which one block is in use"
free(last)
assert make(more, 3000) == 65536 // 3008
assert len({*large, *more}) == 2 * 8192
assert _slabs.count() == 4
"""
    )


def test_only_the_owner_uses_the_stacks_and_what_others_give_back_comes_to_it() -> None:
    run(
        RAW
        + """
import threading

def elsewhere(function, *arguments):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments)))
    thread.start()
    thread.join()
    return results[0]

elsewhere(malloc, 3000)
_slabs.keep(1)
blocks = [malloc(3000) for _ in range(65536 // 3008)]
assert all(map(held, blocks)) and not held(malloc(3000))
for _ in range(3):
    mine, theirs, *rest = blocks
    free(mine)
    elsewhere(free, theirs)
    assert malloc(3000) == mine, "what another gave back is not on the stack"
    assert malloc(3000) == theirs, "and is taken when the stack is empty"
    free(mine)
    for take in ((malloc, 3000), (calloc, 1, 3000), (realloc, None, 3000)):
        assert not held(elsewhere(*take)), "others take from the system"
    for block in (theirs, *rest):
        elsewhere(free, block)
    blocks = [malloc(3000) for _ in blocks]
    assert all(map(held, blocks))
block = blocks.pop()
ctypes.memset(block, 7, 3000)
moved = elsewhere(realloc, block, 4000)
assert not held(moved) and ctypes.string_at(moved, 3000) == bytes([7]) * 3000
assert malloc(3000) == block
"""
    )


def test_many_threads_give_back_what_others_made() -> None:
    run(
        RAW
        + """
import queue, threading
_slabs.keep(16)
sys.setswitchinterval(1e-5)
# Not through `pythonapi`: calls that run at the same time, without the interpreter's lock.
library = ctypes.CDLL(None)
library.PyMem_RawMalloc.restype = ctypes.c_void_p
library.PyMem_RawFree.argtypes = [ctypes.c_void_p]
THREADS = 4
inboxes = [queue.Queue() for _ in range(THREADS)]
faults = []

def work(number):
    source = random.Random(number)
    try:
        for step in range(4000):
            content = bytes([source.randrange(256)])
            size = source.randrange(480, 4200)
            raw = library.PyMem_RawMalloc(ctypes.c_size_t(size))
            ctypes.memset(raw, content[0], size)
            inboxes[source.randrange(THREADS)].put((content, size, raw, content * size, bytearray(content * size)))
            if step % 3:
                while not inboxes[number].empty():
                    content, size, raw, message, changed = inboxes[number].get()
                    changed += content * source.randrange(2000)
                    assert ctypes.string_at(raw, size) == message == content * size == changed[:size]
                    assert changed == content * len(changed)
                    library.PyMem_RawFree(raw)
    except BaseException as error:
        faults.append(repr(error))

threads = [threading.Thread(target=work, args=(number,)) for number in range(1, THREADS)]
for each in threads:
    each.start()
work(0)
for each in threads:
    each.join()
assert not faults, faults
assert _slabs.count() > 0
"""
    )


def test_when_the_owner_ends_another_takes_over() -> None:
    run(
        RAW
        + """
import os, threading
kept = []
def own():
    assert _slabs.keep(4)
    kept.append(bytes([97]) * 1000)
thread = threading.Thread(target=own)
thread.start()
thread.join()
assert held(id(kept[0])) and not held(id(bytes(1000)))
# To have joined a thread is not to know that the system has ended it.
while not held(id(bytes(1000))):
    os.sched_yield()
    assert _slabs.keep(4)
assert kept[0] == b"a" * 1000
"""
    )


def test_a_child_of_the_owner_goes_on_and_one_of_another_thread_begins_anew() -> None:
    run(
        RAW
        + """
import os, threading
_slabs.keep(64)
kept = [bytes([i]) * 1000 for i in range(50)]

def check(expected):
    assert held(id(bytes(1000))) is expected
    assert all(each == bytes([i]) * 1000 for i, each in enumerate(kept))
    kept[10:20] = [bytes([i]) * 1000 for i in range(10, 20)]
    assert _slabs.keep(64)
    more = [bytes([i]) * 1000 for i in range(100)]
    assert sum(held(id(each)) for each in more) > 50
    kept.clear()
    assert all(each == bytes([i]) * 1000 for i, each in enumerate(more))
    more = [bytes(size) for size in range(500, 4200)]

def fork(expected):
    child = os.fork()
    if not child:
        try:
            check(expected)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

fork(True)
is_over = False
def other():
    global is_over
    for _ in range(20):
        fork(False)
    is_over = True
thread = threading.Thread(target=other)
thread.start()
while not is_over and thread.is_alive():
    [bytes(size) for size in range(600, 1200)]
thread.join()
assert is_over
fork(True)
"""
    )


def test_tracemalloc_may_come_and_go_before_us_and_after_us() -> None:
    run(
        RAW
        + """
import tracemalloc
tracemalloc.start()
assert not _slabs.keep(8)
old = [bytes(1000) for _ in range(100)]
tracemalloc.stop()
assert not any(held(id(each)) for each in old)
assert _slabs.keep(8)
ours = [bytes(1000) for _ in range(100)]
tracemalloc.start()
assert _slabs.keep(8)
traced = [bytes(1000) for _ in range(100)]
assert all(held(id(each)) for each in ours + traced)
assert tracemalloc.get_traced_memory()[0] > 100 * 1000
del old, ours[50:]
tracemalloc.stop()
del traced, ours
assert held(id(bytes(1000)))
"""
    )


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ([], {"PYTHONMALLOC": "malloc"}),
        ([], {"PYTHONMALLOC": "debug"}),
        ([], {"PYTHONTRACEMALLOC": "1"}),
        (["-X", "dev"], {}),
    ],
)
def test_who_wants_to_see_every_block_does(options: list[str], variables: dict[str, str]) -> None:
    run(RAW + "assert not _slabs.keep(8)\nassert not held(id(bytes(1000)))", *options, **variables)


@pytest.mark.parametrize("pure", ["0", "1"])
def test_a_node_uses_slabs_unless_it_is_pure(pure: str) -> None:
    run(
        f"""
import sys
from vivum.runtime.heap import keep_heap
keep_heap()
assert ("vivum.runtime._slabs" in sys.modules) is {pure == "0"}
if {pure == "0"}:
    assert sys.modules["vivum.runtime._slabs"].holds(id(bytes(1000)))
""",
        VIVUM_PURE=pure,
    )
