"""Nodes in processes with few descriptors, a port that is taken, calls that are forbidden, and in forked ones."""

import platform
import socket
import subprocess
import sys
import textwrap

import pytest

from vivum.runtime.udp import group_port
from vivum.wire.gate import domain_tag

TIMEOUT_S = 60

PAIR = """
import asyncio, sys, vivum

async def pair(domain, **options):
    async with vivum.connect(domain, **options) as one, vivum.connect(domain, **options) as two:
        topics = [await node.enter("/a", bytes) for node in (one, two)]
        await topics[0].wait_for_members(2)
        await topics[0].send_many([b"%d" % number for number in range(1000)])
        await topics[0].flush()
        got = [(await topics[1].receive()).value for _ in range(1000)]
        print("got", len(got), flush=True)
"""


def run(program: str, *words: str, prelude: str = PAIR) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(program), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def test_too_few_descriptors_are_told_by_a_host_error(domain_name: str) -> None:
    """R1: with `ulimit -n 12` connecting raised a raw `OSError`."""
    program = """
        import os, resource
        from vivum.core.errors import HostError
        import encodings.idna, vivum.live.connecting

        async def main():
            told = []
            # The list of what is open has one for itself.
            is_open = len(os.listdir("/proc/self/fd")) - 1
            for limit in range(is_open, is_open + 20):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 1000))
                try:
                    async with vivum.connect(sys.argv[1], timeout_s=5) as node:
                        topic = await node.enter("/a", bytes)
                        await topic.send(b"x")
                        await topic.flush()
                        print("multicast", node._host.options.multicast)
                        break
                except HostError as error:
                    told.append(str(error))
            assert all("Too many open files" in each and "ulimit -n" in each for each in told), told
            print("told", len(told))

        asyncio.run(main())
    """
    done = run(program, domain_name)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    multicast, told = done.stdout.splitlines()
    # Too few descriptors are no reason to do without multicast.
    assert multicast == "multicast True"
    # With none, one and two of the sockets that it needs.
    assert int(told.split()[1]) >= 3


@pytest.mark.parametrize("has_ears", [True, False])
def test_a_group_port_that_another_program_has(domain_name: str, has_ears: bool) -> None:
    """R1: it printed a traceback. Without multicast the port is not needed; with it, connecting fails and says why."""
    port = group_port(domain_tag(domain_name))
    program = """
        from vivum.core.errors import HostError
        try:
            asyncio.run(pair(sys.argv[1], multicast=eval(sys.argv[2])))
        except HostError as error:
            print(type(error).__name__, error)
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("0.0.0.0", port))
        done = run(program, domain_name, "True" if has_ears else "'probe'")
    assert (done.returncode, done.stderr) == (0, "")
    if has_ears:
        assert done.stdout.startswith(f"HostError cannot open UDP *:{port}: Address already in use")
    else:
        assert done.stdout == "got 1000\n"


SECCOMP = """
import ctypes, struct, sys

def forbid(*calls, error):
    # A filter that lets these system calls fail with an error, and all others through.
    steps = [(0x20, 0, 0, 0)]
    for call in calls:
        steps += [(0x15, 0, 1, call), (0x06, 0, 0, 0x00050000 | error)]
    steps.append((0x06, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    assert libc.prctl(38, ctypes.c_ulong(1), zero, zero, zero) == 0
    if libc.prctl(22, ctypes.c_ulong(2), program, zero, zero) != 0:
        print("no seccomp here")
        sys.exit(0)
"""

CALLS = {"x86_64": (299, 307), "aarch64": (243, 269)}
"""`recvmmsg` and `sendmmsg`."""

SENDMSG = {"x86_64": 46, "aarch64": 211}


@pytest.mark.skipif(platform.machine() not in CALLS, reason="numbers of system calls are not known")
@pytest.mark.parametrize(("error", "shared_memory"), [(1, True), (38, False)], ids=["EPERM", "ENOSYS"])
def test_a_system_without_calls_for_many_datagrams(domain_name: str, error: int, shared_memory: bool) -> None:
    """R1: without `recvmmsg` there was a misleading `NoServiceError`."""
    program = f"""
        forbid(*{CALLS[platform.machine()]}, error={error})
        asyncio.run(pair(sys.argv[1], timeout_s=5, shared_memory={shared_memory}))
    """
    done = run(program, domain_name, prelude=PAIR + SECCOMP)
    if done.stdout == "no seccomp here\n":
        pytest.skip("seccomp is not allowed here")
    assert (done.returncode, done.stdout, done.stderr) == (0, "got 1000\n", "")


@pytest.mark.skipif(platform.machine() not in CALLS, reason="numbers of system calls are not known")
@pytest.mark.parametrize("error", [1, 38], ids=["EPERM", "ENOSYS"])
@pytest.mark.parametrize("are_batches_forbidden", [False, True])
def test_a_sandbox_that_forbids_the_call_for_trains(error: int, are_batches_forbidden: bool) -> None:
    """Every train was counted as unsendable, for ever."""
    calls = (SENDMSG[platform.machine()], *(CALLS[platform.machine()] if are_batches_forbidden else ()))
    program = f"""
        import select
        from vivum.core.machine import Datagram
        from vivum.runtime.udp import UdpPort
        sender, receiver = UdpPort(7), UdpPort(7)
        if not sender.can_segment:
            print("no UDP_SEGMENT here")
            sys.exit(0)
        forbid(*{calls}, error={error})
        for number in range(40):
            train = Datagram(receiver.endpoint, bytes([number]) * 2500, segment=1000)
            assert not sender.send([train])
            heard = 0
            while heard < 2500:
                assert select.select(receiver.sockets, [], [], 10)[0]
                for _, data in receiver.receive(100):
                    assert set(data) == {{number}}
                    heard += len(data)
            assert heard == 2500, heard
        print(sender.can_segment, sender._batches, sender.unsendable)
        sender.close(), receiver.close()
    """
    done = run(program, prelude=SECCOMP)
    if done.stdout in ("no seccomp here\n", "no UDP_SEGMENT here\n"):
        pytest.skip(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    can_segment, _, unsendable = done.stdout.split()
    assert (can_segment, unsendable) == ("False", "0")


FORKED = """
import asyncio, os, sys, time, vivum, vivum.sync

def in_child(work):
    # Run it in a child that must end soon, and print how it ended.
    child = os.fork()
    if child == 0:
        began = time.monotonic()
        try:
            print(work(), flush=True)
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        print("at once" if time.monotonic() - began < 1 else "late", flush=True)
        os._exit(0)
    until = time.monotonic() + 10
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            os.kill(child, 9)
            os.waitpid(child, 0)
            print("hangs", flush=True)
            return
        time.sleep(0.01)
"""


def test_a_forked_child_cannot_use_a_node_of_threads_and_can_close_it(domain_name: str) -> None:
    """R1: `close()` hung in the child."""
    program = """
        node = vivum.sync.connect(sys.argv[1])
        topic = node.enter("/a", bytes)
        topic.send(b"before")
        topic.flush(5)
        in_child(lambda: topic.send(b"child"))
        in_child(node.topics)
        in_child(topic.leave)
        in_child(node.close)
        life = node.member
        topic.send(b"after")
        topic.flush(5)
        print([topic.receive(5).value for _ in range(2)], node.member == life)
        node.close()
    """
    done = run(program, domain_name, prelude=FORKED)
    assert (done.returncode, done.stderr) == (0, "")
    *children, parent = done.stdout.splitlines()
    assert parent == "[b'before', b'after'] True"
    assert children[1::2] == ["at once"] * 4
    assert [each.split(" ", 1)[0] for each in children[:4:2]] == ["UsageError"] * 2
    assert "forked" in children[0]
    assert children[4::2] == ["None", "None"]


def test_a_forked_child_cannot_use_a_node_of_a_loop_and_can_close_it(domain_name: str) -> None:
    """R1: `close()` hung in the child."""
    program = """
        async def main():
            async with vivum.connect(sys.argv[1]) as node:
                topic = await node.enter("/a", bytes)
                await topic.send(b"before")
                await topic.flush()
                await topic.send(b"under way")

                def anew(work):
                    # As a worker of multiprocessing would: on a loop of its own.
                    asyncio._set_running_loop(None)
                    return asyncio.run(work())

                in_child(lambda: anew(lambda: topic.send(b"child")))
                in_child(lambda: anew(topic.flush))
                in_child(lambda: anew(lambda: node.enter("/b", bytes)))
                in_child(lambda: anew(topic.receive) and anew(topic.receive) and anew(topic.receive))
                in_child(lambda: anew(topic.leave))
                in_child(lambda: anew(node.close))
                in_child(node.close_now)
                life = node.member
                await topic.send(b"after")
                await topic.flush()
                print([(await topic.receive()).value for _ in range(3)], node.member == life)

        asyncio.run(main())
    """
    done = run(program, domain_name, prelude=FORKED)
    assert (done.returncode, done.stderr) == (0, "")
    *children, parent = done.stdout.splitlines()
    assert parent == "[b'before', b'under way', b'after'] True"
    assert children[1::2] == ["at once"] * 7
    assert [each.split(" ", 1)[0] for each in children[:8:2]] == ["ClosedError"] * 4
    assert "forked" in children[0]
    assert children[8::2] == ["None"] * 3


def test_a_forked_child_can_connect_for_itself(domain_name: str) -> None:
    program = """
        node = vivum.sync.connect(sys.argv[1])

        def join():
            with vivum.sync.connect(sys.argv[1], timeout_s=5) as own:
                return own.member != node.member

        in_child(join)
        assert len(node.nodes()) >= 1
        node.close()
    """
    done = run(program, domain_name, prelude=FORKED)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "True"
