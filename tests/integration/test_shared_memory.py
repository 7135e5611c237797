"""Large frames through shared memory, over real sockets and between real processes."""

import asyncio
import contextlib
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from random import Random
from typing import Any

import pytest

import vivum
from live_processes.director import Cast
from vivum.core.ids import Channel, Endpoint
from vivum.core.machine import Datagram, Priority
from vivum.runtime.shared_memory import memory
from vivum.runtime.shared_memory.notes import (
    COMPLAINT_MARK,
    MARK,
    NOTE_MARK,
    local_address,
    pack_complaint,
    pack_note,
    unpack_complaint,
    unpack_note,
)
from vivum.runtime.shared_memory.other_memories import ASK_S
from vivum.runtime.shared_memory.shared_memory import SharedMemory
from vivum.runtime.udp import UdpPort
from vivum.wire.gate import domain_tag

pytestmark = pytest.mark.skipif(not memory.IS_AVAILABLE, reason="the compiled part was not built")

CHANNEL = Channel(3)
PATIENCE_S = 5.0


def frames(count: int, seed: int = 1) -> list[bytes]:
    """Make large buffers that no note could be taken for."""
    random = Random(seed)
    return [b"\1" + random.randbytes(50_000) for _ in range(count)]


def send(port: UdpPort, where: Endpoint | Channel, data: list[bytes], priority: Priority = Priority.DATA) -> None:
    datagrams: Sequence[Datagram] = [Datagram(where, each, priority) for each in data]
    while datagrams:
        datagrams = port.send(datagrams)


def shared(port: UdpPort) -> SharedMemory:
    assert port.shared_memory is not None
    return port.shared_memory


def take(port: UdpPort, owner: UdpPort | None, count: int) -> list[bytes]:
    """Take so many datagrams, and let the owner of memory answer meanwhile; fewer if they do not come."""
    taken: list[bytes] = []
    until = time.monotonic() + PATIENCE_S
    while len(taken) < count and time.monotonic() < until:
        taken += [data for _, data in port.receive(1 << 19)]
        for each in (port, owner):
            if each is not None:
                taken += [data for _, data in shared(each).on_local_readable()]
    return taken


@pytest.fixture
def domain() -> int:
    return domain_tag(f"shared memory {time.monotonic_ns()}")


@pytest.fixture
def pair(domain: int) -> Iterator[tuple[UdpPort, UdpPort]]:
    sender, listener = UdpPort(domain, shared_memory=True), UdpPort(domain, shared_memory=True)
    listener.listen(CHANNEL)
    yield sender, listener
    sender.close()
    listener.close()


@pytest.mark.parametrize("mark", [MARK, COMPLAINT_MARK])
def test_what_only_looks_like_a_note_ends_no_drain(pair: tuple[UdpPort, UdpPort], mark: bytes) -> None:
    """Else a stranger with one byte of payload makes turns of the loop of a few datagrams each."""
    sender, listener = pair
    small = [b"\1%d" % number for number in range(30)]
    for each in small:
        send(sender, listener.endpoint, [each])
        send(sender, listener.endpoint, [mark])
    taken = [data for _, data in listener.receive(1 << 19)]
    assert [data for data in taken if data != mark] == small
    flood = [mark] * 64
    send(sender, listener.endpoint, flood)
    assert len(listener.receive(16 * 256)) <= 32, "bounded all the same"


@pytest.mark.parametrize("is_multicast", [True, False])
def test_large_frames_go_through_shared_memory(pair: tuple[UdpPort, UdpPort], is_multicast: bool) -> None:
    sender, listener = pair
    where = CHANNEL if is_multicast else listener.endpoint
    for seed in range(3):
        send(sender, where, frames(20, seed))
        assert take(listener, sender, 20) == frames(20, seed)
    assert shared(sender).frames_sent == 60


def test_only_notes_go_through_the_kernel(domain: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.bind(("127.0.0.1", 0))
        plain.settimeout(PATIENCE_S)
        sender = UdpPort(domain, shared_memory=True)
        send(sender, Endpoint(*plain.getsockname()), frames(3))
        note = plain.recv(65_536)
        found = unpack_note(note)
        assert found is not None
        assert len(found[1]) == 3 * 8
        # What is sent again, and what is small, goes as it is.
        send(sender, Endpoint(*plain.getsockname()), frames(1), Priority.REPAIR)
        send(sender, Endpoint(*plain.getsockname()), [b"\1small"])
        assert [plain.recv(65_536), plain.recv(65_536)] == [*frames(1), b"\1small"]
        sender.close()


def test_what_a_receiver_is_too_slow_for_is_lost_and_counted(domain: int) -> None:
    sender, listener = UdpPort(domain, shared_memory=True, buffer_bytes=1 << 20), UdpPort(domain, shared_memory=True)
    slots = sender.receive_buffer_bytes >> 16
    send(sender, listener.endpoint, frames(1))
    take(listener, sender, 1)
    send(sender, listener.endpoint, frames(2 * slots))
    assert take(listener, sender, slots) == frames(2 * slots)[slots:]
    assert shared(listener).frames_missed == slots
    sender.close()
    listener.close()


def test_a_turn_takes_a_bounded_part_of_what_waits_whatever_comes_by_other_sockets(
    pair: tuple[UdpPort, UdpPort],
) -> None:
    """Who had slept took a thousand frames at once: for 0.2 s it answered no token, and was taken for dead."""
    sender, listener = pair
    send(sender, CHANNEL, frames(1))
    assert take(listener, sender, 1) == frames(1)
    some = frames(8)
    for _ in range(20):
        send(sender, CHANNEL, some)
    turns = 0
    until, got = time.monotonic() + PATIENCE_S, 0
    while got < 160 and time.monotonic() < until:
        # As tokens come, while the notes wait.
        send(sender, listener.endpoint, [b"\1small"])
        taken = [data for _, data in listener.receive(1 << 19) if data != b"\1small"]
        assert len(taken) <= 24, "half a megabyte, and what the last note of it has"
        got, turns = got + len(taken), turns + 1
    assert got == 160
    assert turns >= 7


def test_a_first_turn_with_notes_is_bounded_too(pair: tuple[UdpPort, UdpPort]) -> None:
    sender, listener = pair
    send(sender, listener.endpoint, frames(1))
    assert take(listener, sender, 1) == frames(1)
    # Nothing but small ones for a while: it is not known any more that notes come by this socket.
    send(sender, listener.endpoint, [b"\1small"])
    assert take(listener, sender, 1) == [b"\1small"]
    some = frames(8)
    for _ in range(20):
        send(sender, listener.endpoint, some)
    assert len(listener.receive(1 << 19)) <= 64, "notes that one call of the kernel gives"


def test_a_listener_without_the_compiled_part_complains_and_is_sent_datagrams(
    pair: tuple[UdpPort, UdpPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, listener = pair
    monkeypatch.setattr(memory, "IS_AVAILABLE", False)
    send(sender, CHANNEL, frames(2))
    until = time.monotonic() + PATIENCE_S
    while shared(sender).is_open and time.monotonic() < until:
        assert take(listener, None, 0) == []
        for port in pair:
            assert port.receive(1 << 19) == []
    send(sender, CHANNEL, frames(2))
    assert take(listener, None, 2) == frames(2)
    assert shared(listener).frames_missed == 2


# Other users, and others who mean no good.

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


def as_another_user(act: Callable[[], None]) -> None:
    """Do something as another user of this machine, in a process of its own; see that it went well."""
    assert os.waitpid(start_as_another_user(act), 0)[1] == 0


def start_as_another_user(act: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        # Whatever happens here must not come back into the test runner.
        status = 1
        try:
            os.setuid(65_534)
            act()
            status = 0
        finally:
            os._exit(status)
    return child


def overheard_note(sender: UdpPort) -> bytes:
    """Return a note of the sender's memory, as any listener on the same channel gets it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.bind(("127.0.0.1", 0))
        plain.settimeout(PATIENCE_S)
        send(sender, Endpoint(*plain.getsockname()), frames(1))
        return plain.recv(65_536)


def key_of(sender: UdpPort) -> int:
    found = unpack_note(overheard_note(sender))
    assert found is not None
    return found[0]


def local_addresses() -> list[bytes]:
    """Return the local sockets of this process, out of the table in which everybody sees those of all nodes.

    Nodes of programs that run beside the test are left in peace: they would answer, or have no room.
    """
    own = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            own.add(str(os.fstat(int(descriptor)).st_ino))
    with open("/proc/net/unix") as table:
        rows = [line.split() for line in table if "@vivum-memory-" in line]
    return [b"\0" + name[1:].encode() for *_, inode, name in rows if inode in own]


@as_root
def test_another_user_gets_no_memory_and_is_sent_datagrams(domain: int) -> None:
    sender = UdpPort(domain, shared_memory=True)
    told, tell = os.pipe()

    def listen() -> None:
        listener = UdpPort(domain, shared_memory=True)
        listener.listen(CHANNEL)
        os.write(tell, b"+")
        assert take(listener, None, 4) == frames(4)

    child = start_as_another_user(listen)
    assert os.read(told, 1) == b"+"
    send(sender, CHANNEL, frames(2, 9))
    until = time.monotonic() + PATIENCE_S
    while shared(sender).is_open and time.monotonic() < until:
        assert take(sender, None, 0) == sender.receive(1 << 19) == shared(sender).on_local_readable() == []
    assert not shared(sender).is_open
    send(sender, CHANNEL, frames(4))
    assert os.waitpid(child, 0)[1] == 0
    os.close(told)
    os.close(tell)
    sender.close()


@as_root
def test_another_user_who_sends_the_first_note_shuts_nobody_out(pair: tuple[UdpPort, UdpPort]) -> None:
    """F9: memory was taken for that of whoever sent its first note, and the owner's notes were refused."""
    sender, listener = pair
    note = overheard_note(sender)

    def squat() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for _ in range(100):
                stranger.sendto(note, listener.endpoint)

    as_another_user(squat)
    assert take(listener, None, 0) == listener.receive(1 << 19) == []
    for seed in range(3):
        send(sender, listener.endpoint, frames(8, seed))
        assert take(listener, sender, 8) == frames(8, seed)
    assert shared(listener).strangers_refused > 0
    as_another_user(squat)
    assert listener.receive(1 << 19) == [], "nor later"


@as_root
def test_another_user_who_asks_for_memory_gets_none_and_turns_nothing_off(pair: tuple[UdpPort, UdpPort]) -> None:
    """F10: one empty datagram made a sender go back to datagrams for ten seconds."""
    sender, listener = pair

    def ask() -> None:
        addresses = local_addresses()
        assert len(addresses) >= 2
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.bind(b"\0stranger-%d" % os.getpid())
            for address in addresses:
                for question in (b"", b"?", b"-", bytes(6)):
                    stranger.sendto(question, address)

    as_another_user(ask)
    assert shared(sender).on_local_readable() == shared(listener).on_local_readable() == []
    assert shared(sender).is_open
    assert shared(sender).strangers_refused == 4
    send(sender, listener.endpoint, frames(8))
    assert take(listener, sender, 8) == frames(8)
    assert shared(sender).frames_sent == 8


@as_root
def test_another_user_is_handed_no_descriptor(pair: tuple[UdpPort, UdpPort]) -> None:
    sender, _ = pair
    address, told, tell = local_address(key_of(sender)), *os.pipe()

    def ask() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.bind(b"\0stranger-%d" % os.getpid())
            stranger.settimeout(PATIENCE_S)
            stranger.sendto(b"?", address)
            os.write(tell, b"+")
            data, ancillary, _, _ = stranger.recvmsg(64, 64)
            assert (data, ancillary) == (b"-", [])

    child = start_as_another_user(ask)
    assert os.read(told, 1) == b"+"
    assert shared(sender).on_local_readable() == []
    assert os.waitpid(child, 0)[1] == 0
    os.close(told)
    os.close(tell)


@as_root
def test_another_user_who_fills_the_local_socket_only_puts_things_off(pair: tuple[UdpPort, UdpPort]) -> None:
    sender, listener = pair

    def flood() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as stranger:
            for address in local_addresses():
                with contextlib.suppress(BlockingIOError):
                    while True:
                        stranger.sendto(b"?", address)

    as_another_user(flood)
    send(sender, listener.endpoint, frames(1))
    assert take(listener, None, 0) == listener.receive(1 << 19) == [], "its question finds no room"
    turns = 0
    while not (shared(sender).on_local_readable() or turns == 64):
        turns += 1
    assert sender.receive(1 << 19) == []
    assert shared(sender).is_open, "nobody complained"
    time.sleep(ASK_S)
    send(sender, listener.endpoint, frames(2, 3))
    assert take(listener, sender, 3) == [*frames(1), *frames(2, 3)]


def test_only_who_was_sent_a_note_can_complain(pair: tuple[UdpPort, UdpPort]) -> None:
    sender, _ = pair
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        # What can be seen of it: the address of its local socket.
        seen = int(local_address(key_of(sender)).split(b"-")[-1], 16)
        for key in (seen, 0, 1, (1 << 64) - 1):
            stranger.sendto(pack_complaint(key), sender.endpoint)
        assert sender.receive(1 << 19) == []
        assert shared(sender).is_open
        assert shared(sender).strangers_refused == 4
        stranger.sendto(pack_complaint(key_of(sender)), sender.endpoint)
        assert sender.receive(1 << 19) == []
        assert not shared(sender).is_open


class Impostor:
    """Answers for memory of its own making."""

    def __init__(self, listener: UdpPort) -> None:
        self.key = 77 + time.monotonic_ns()
        self.listener = listener
        self.local = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.local.bind(local_address(self.key))
        self.local.settimeout(PATIENCE_S)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.udp.settimeout(PATIENCE_S)

    def note(self, count: int = 1) -> None:
        self.udp.sendto(pack_note(self.key, bytes(8 * count)), self.listener.endpoint)
        self.listener.receive(1 << 19)

    def answer(self, *descriptors: int) -> None:
        question, address = self.local.recvfrom(64)
        assert question == b"?"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"={len(descriptors)}i", *descriptors))]
        host, port = self.udp.getsockname()
        endpoint = struct.pack("!4sH", socket.inet_aton(host), port)
        self.local.sendmsg([endpoint], rights if descriptors else [], 0, address)

    def __enter__(self) -> "Impostor":
        return self

    def __exit__(self, *_: object) -> None:
        self.local.close()
        self.udp.close()


@pytest.mark.parametrize("what", ["nothing", "a file that can shrink", "two", "odd size"])
def test_memory_that_could_end_the_process_is_not_mapped(domain: int, what: str) -> None:
    listener = UdpPort(domain, shared_memory=True)
    open_before = len(os.listdir("/proc/self/fd"))
    with Impostor(listener) as impostor:
        made = [os.memfd_create("impostor", os.MFD_ALLOW_SEALING) for _ in range(2 if what == "two" else 1)]
        for each in made:
            os.ftruncate(each, mmap.PAGESIZE if what == "odd size" else 1 << 20)
        impostor.note()
        impostor.answer(*([] if what == "nothing" else made))
        assert shared(listener).on_local_readable() == []
        assert unpack_complaint(impostor.udp.recv(64)) == impostor.key
        for each in made:
            os.close(each)
    assert shared(listener).frames_missed == 1
    assert len(os.listdir("/proc/self/fd")) == open_before
    listener.close()


def test_an_answer_from_elsewhere_does_not_take_the_place_of_the_right_one(pair: tuple[UdpPort, UdpPort]) -> None:
    sender, listener = pair
    send(sender, listener.endpoint, frames(1))
    assert take(listener, None, 0) == listener.receive(1 << 19) == []
    with Impostor(listener) as impostor:
        for address in local_addresses():
            for answer in (b"-", bytes(6), bytes(8)):
                impostor.local.sendto(answer, address)
        assert shared(listener).on_local_readable() == []
    assert shared(listener).strangers_refused == 3
    assert take(listener, sender, 1) == frames(1)


def test_made_up_notes_answers_and_complaints_are_counted_and_dropped(pair: tuple[UdpPort, UdpPort]) -> None:
    sender, listener = pair
    send(sender, CHANNEL, frames(1))
    assert take(listener, sender, 1) == frames(1)
    random = Random(5)
    with Impostor(listener) as stranger:
        stolen = overheard_note(sender)
        bad = (stolen, NOTE_MARK, NOTE_MARK + bytes(100), stolen[:-1])
        made_up = [pack_note(random.getrandbits(64), bytes(8)) for _ in range(500)]
        for data in (*bad, *made_up):
            stranger.udp.sendto(data, listener.endpoint)
            assert listener.receive(1 << 19) == []
        stranger.local.sendto(b"what?", local_address(key_of(listener)))
        assert shared(listener).on_local_readable() == []
    assert shared(listener).strangers_refused == 5
    assert shared(listener).frames_missed == 500
    # The memory still serves.
    send(sender, CHANNEL, frames(3, 8))
    assert take(listener, sender, 3) == frames(3, 8)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(timed())


async def read_all(topic: vivum.Topic[bytes], count: int) -> list[bytes]:
    taken: list[bytes] = []
    async for batch in topic.batches():
        taken += batch.values()
        if len(taken) >= count:
            break
    return taken


LISTENER = """
import asyncio, sys, vivum
async def main():
    async with vivum.connect(sys.argv[1]) as node, await node.enter("/large", bytes) as topic:
        print("ready", flush=True)
        count = 0
        async for batch in topic.batches():
            count += len(batch)
            if count == 4000:
                break
        print("all", flush=True)
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, {"VIVUM_PURE": "1"}])
def test_processes_with_and_without_the_compiled_part_get_everything(environment: dict[str, str]) -> None:
    async def scenario() -> None:
        name = f"shared memory {time.monotonic_ns()}"
        payloads = [number.to_bytes(4, "big") * 250 for number in range(4000)]
        async with vivum.connect(name) as node, await node.enter("/large", bytes, own=False) as topic:
            other = await asyncio.create_subprocess_exec(
                sys.executable, "-c", LISTENER, name, stdout=subprocess.PIPE, env={**os.environ, **environment}
            )
            assert other.stdout is not None
            try:
                assert await other.stdout.readline() == b"ready\n"
                await topic.wait_for_members(2)
                await topic.send_many(payloads)
                await topic.flush()
                assert await other.stdout.readline() == b"all\n"
                assert node.statistics().shared_frames_sent > 0
            finally:
                if other.returncode is None:
                    other.send_signal(signal.SIGKILL)
                await other.wait()

    play(scenario())


def test_many_listeners_of_one_process_read_one_memory(domain: int) -> None:
    async def scenario() -> None:
        name = f"shared memory {domain}"
        payloads = [number.to_bytes(4, "big") * 250 for number in range(2000)]
        async with vivum.connect(name) as sender, vivum.connect(name) as first, vivum.connect(name) as second:
            topics = [await each.enter("/large", bytes, own=False) for each in (sender, first, second)]
            await topics[0].wait_for_members(3)
            readers = [asyncio.create_task(read_all(each, len(payloads))) for each in topics[1:]]
            await topics[0].send_many(payloads)
            assert await asyncio.gather(*readers) == [payloads, payloads]
            assert sender.statistics().shared_frames_sent > 0
            assert first.statistics().shared_frames_sent == 0

    play(scenario())


@pytest.mark.parametrize("is_sender_off", [True, False])
def test_it_can_be_turned_off_for_what_a_node_sends(domain: int, is_sender_off: bool) -> None:
    async def scenario() -> None:
        name = f"shared memory {domain}"
        async with (
            vivum.connect(name, shared_memory=not is_sender_off) as sender,
            vivum.connect(name, shared_memory=is_sender_off) as other,
        ):
            out, back = [await each.enter("/large", bytes, own=False) for each in (sender, other)]
            await out.wait_for_members(2)
            await out.send_many([bytes(1000)] * 1000)
            assert await read_all(back, 1000) == [bytes(1000)] * 1000
            assert (sender.statistics().shared_frames_sent == 0) == is_sender_off
            assert other.statistics().counters["repairs_received"] == 0

    play(scenario())


def test_without_a_local_socket_nobody_writes_and_others_are_told(domain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = UdpPort(domain, shared_memory=True)
    with monkeypatch.context() as patch:
        # As a sandbox would: other sockets work.
        patch.setattr(socket, "AF_UNIX", 12345)
        listener = UdpPort(domain, shared_memory=True)
    assert not shared(listener).is_open
    send(sender, listener.endpoint, frames(1))
    until = time.monotonic() + PATIENCE_S
    while shared(sender).is_open and time.monotonic() < until:
        assert listener.receive(1 << 19) == []
        assert sender.receive(1 << 19) == []
    send(sender, listener.endpoint, frames(2))
    assert take(listener, None, 2) == frames(2)
    sender.close()
    listener.close()


def test_what_a_receiver_lost_comes_from_others_that_read_it() -> None:
    async def scenario() -> None:
        name = f"shared memory {time.monotonic_ns()}"
        payloads = [number.to_bytes(4, "big") * 250 for number in range(20_000)]

        async with (
            vivum.connect(name) as sender,
            vivum.connect(name, loss=0.1) as first,
            vivum.connect(name, loss=0.1) as second,
            vivum.connect(name) as third,
        ):
            nodes = (sender, first, second, third)
            topics = [await each.enter("/large", bytes, own=False) for each in nodes]
            await topics[0].wait_for_members(4)
            readers = [asyncio.create_task(read_all(each, len(payloads))) for each in topics[1:]]
            await topics[0].send_many(payloads)
            for taken in await asyncio.gather(*readers):
                assert taken == payloads
            await topics[0].flush()
            assert sender.statistics().shared_frames_sent > 200
            counts = [each.statistics().counters for each in nodes]
            assert counts[1]["repairs_received"] > 0
            assert sum(each["repairs_sent"] for each in counts[1:]) > 0

    play(scenario())


@pytest.mark.slow
def test_what_one_read_of_a_sender_that_is_killed_the_other_gets_from_it(cast: Cast) -> None:
    (carrier,) = cast.start()
    (other,) = cast.start(loss=0.1)
    (sender,) = cast.start()
    for each in (carrier, other, sender):
        each.ask("enter", topics=["/large"])
    sender.ask("members", topic="/large", count=3)
    sender.tell("send", topic="/large", tag="dead", count=10_000_000, size=1_000)
    carrier.ask("expect", topic="/large", tag="dead", count=10_000)
    sender.kill()
    for each in (carrier, other):
        each.ask("members", topic="/large", count=2)
    reached = carrier.ask("expect", topic="/large", tag="dead", count=10_000)
    # It lost a tenth of all frames, and has all that the carrier has: nobody else could give them.
    assert other.ask("expect", topic="/large", tag="dead", count=reached) == reached
    for each in (carrier, other):
        report = each.ask("report")
        assert (report["out_of_order"], report["missed"]) == ([], [])
