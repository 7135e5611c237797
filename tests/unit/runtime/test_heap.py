"""Memory of messages stays with the process between two bursts."""

import platform
import subprocess
import sys

import pytest

# In a process of its own: the limit is raised for good.
SCRIPT = """
import resource
from vivum.runtime.heap import keep_heap

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    messages = [bytes(1000) for _ in range(5_000)]
    del messages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

new_pages()
given_back = new_pages()
keep_heap()
new_pages()
kept = new_pages()
print(given_back, kept)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
def test_a_second_burst_of_messages_needs_no_new_pages() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    given_back, kept = map(int, done.stdout.split())
    assert given_back > 500, "what is to be avoided does not happen here: is `keep_heap` still needed?"
    assert kept < 100
