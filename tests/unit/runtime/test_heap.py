"""Memory of messages stays with the process between two bursts, and leaves it with the node. No setting is changed."""

import platform
import subprocess
import sys

import pytest

# In a process of its own: what others allocated and freed before would be counted too.
SCRIPT = """
import resource
from pathlib import Path
from vivum.runtime.heap import HeapReserve

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    messages = [bytes(1000) for _ in range(15_000)]
    del messages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident_pages():
    return int(Path("/proc/self/statm").read_text().split()[1])

new_pages()
given_back, before = new_pages(), resident_pages()
reserve = HeapReserve()
idle = resident_pages() - before
new_pages()
kept = new_pages()
held = resident_pages() - before
reserve.release()
reserve.release()
left = resident_pages() - before
print(given_back, idle, kept, held, left, new_pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
def test_a_second_burst_of_messages_needs_no_new_pages_and_all_is_as_before_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    given_back, idle, kept, held, left, given_back_again = map(int, done.stdout.split())
    assert given_back > 1500, "what is to be avoided does not happen here: is `HeapReserve` still needed?"
    assert idle < 400, "a reserve that nobody needs takes little memory"
    assert kept < 100
    assert held > 1500
    assert left < 100
    assert given_back_again > 1500, "the C library's own limits have changed for good"
