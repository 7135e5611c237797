"""Nodes over real sockets on this machine: the driver, multicast, segmentation, timers."""

import asyncio
import errno
import random
import select
import socket
import time
import types
from collections import defaultdict
from collections.abc import Sequence

import pytest

from vivum.core.errors import HostError, UsageError
from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId
from vivum.core.machine import Datagram, Delivery
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.protocols.commands import JoinGroup, SendMessages
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.membership.service.machine import ServiceMachine
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.reference.machine import ReferenceMachine
from vivum.runtime import udp
from vivum.runtime.driver import Driver
from vivum.runtime.udp import UdpPort
from vivum.wire.codec import FrameBuilder, seal_control
from vivum.wire.gate import Gate, domain_tag
from vivum.wire.kinds import Kind

TIMEOUT_S = 20
GROUP = GroupId(7)


@pytest.fixture
def domain(request: pytest.FixtureRequest) -> int:
    """A domain of its own for each test: what one test sends no other hears."""
    return domain_tag(request.node.nodeid)


class Inbox:
    """Collects payloads by sender, and wakes who waits for so many of them."""

    def __init__(self) -> None:
        self.payloads: dict[NodeId, list[bytes]] = defaultdict(list)
        self._changed = asyncio.Event()

    def __call__(self, delivery: Delivery) -> None:
        self.payloads[delivery.sender.node] += delivery.payloads
        self._changed.set()

    async def wait_for(self, sender: int, count: int) -> list[bytes]:
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.payloads[NodeId(sender)]) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.payloads[NodeId(sender)]


def test_two_nodes_exchange_messages_over_real_multicast(domain: int) -> None:
    async def scenario() -> None:
        ports = {NodeId(number): UdpPort(domain) for number in (1, 2, 3)}
        endpoints = {node: port.endpoint for node, port in ports.items()}
        inboxes, drivers = {}, {}
        for node, port in ports.items():
            member, counters = Member(node, Incarnation(1)), Counters()
            gate = Gate(domain, counters, member)
            machine = ReferenceMachine(member, endpoints, gate, random.Random(node))
            inboxes[node] = Inbox()
            drivers[node] = Driver(Node(member, gate, [machine], counters), port, on_delivery=inboxes[node])
            drivers[node].start()
            drivers[node].submit(JoinGroup(GROUP, Channel(7), frozenset(ports)))
        sent = [bytes([number % 256]) * (number % 3000) for number in range(300)]
        try:
            for start in range(0, len(sent), 30):
                drivers[NodeId(1)].submit(SendMessages(GROUP, sent[start : start + 30]))
            for node in ports:
                assert await inboxes[node].wait_for(1, len(sent)) == sent
        finally:
            for driver in drivers.values():
                driver.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("hybrid", [False, True], ids=["each region", "hybrid"])
def test_qsm_joins_by_its_service_and_delivers_to_all_over_real_sockets(domain: int, hybrid: bool) -> None:
    settings = QsmSettings(spread_address_cost=0.0, spread_delay_ns=0)

    async def scenario() -> None:
        service_port = UdpPort(domain)
        service_member, service_counters = Member(NodeId(999), Incarnation(1)), Counters()
        service_gate = Gate(domain, service_counters, service_member)
        service = Node(service_member, service_gate, [ServiceMachine(service_member, service_gate)], service_counters)
        drivers = [Driver(service, service_port)]
        machines, inboxes = [], []
        for number in (1, 2, 3, 4):
            port, counters = UdpPort(domain), Counters()
            nobody = Member(NodeId(number), Incarnation(0))
            gate = Gate(domain, counters, nobody)
            rng = random.Random(number)
            client = MembershipClient(
                f"process {number}", NodeId(number), port.endpoint, [service_port.endpoint], gate, rng
            )
            machines.append(QsmMachine(client, gate, settings))
            inboxes.append(Inbox())
            drivers.append(Driver(Node(nobody, gate, [machines[-1]], counters), port, on_delivery=inboxes[-1]))
        try:
            for driver in drivers:
                driver.start()
            for number, driver in enumerate(drivers[1:]):
                driver.submit(JoinGroup(GROUP, Channel(0), ()))
                if hybrid:
                    # A group of its own makes each node a region of its own.
                    driver.submit(JoinGroup(GroupId(100 + number), Channel(0), ()))
            async with asyncio.timeout(TIMEOUT_S):
                # Virtual time cannot serve here: these are real sockets.
                while any(
                    len(machine.client.members_of(GROUP)) < 4
                    or len(machine.client.regions_of(GROUP)) != (4 if hybrid else 1)
                    for machine in machines
                ):
                    await asyncio.sleep(0.01)
            sent = [f"message {number}".encode() * 50 for number in range(500)]
            drivers[1].submit(SendMessages(GROUP, sent))
            drivers[2].submit(SendMessages(GROUP, sent[:100]))
            for inbox in inboxes:
                assert await inbox.wait_for(1, len(sent)) == sent
                assert await inbox.wait_for(2, 100) == sent[:100]
            assert all((machine.counters.frames_spread > 0) == hybrid for machine in machines[:2])
        finally:
            for driver in drivers:
                driver.close()

    asyncio.run(scenario())


def hear(port: UdpPort, last: bytes) -> list[bytes]:
    """Take what comes, until a datagram ends with `last`: the kernel may deliver a moment after the send."""
    heard: list[bytes] = []
    while not b"".join(heard[-len(last) :]).endswith(last):
        readable, _, _ = select.select(port.sockets, [], [], TIMEOUT_S)
        assert readable, f"{last!r} did not come; heard {heard!r}"
        heard += [data for _, data in port.receive(100)]
    return heard


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("can_segment", [True, False])
def test_a_train_arrives_as_its_datagrams_whatever_the_kernel_can(
    domain: int, batched: bool, can_segment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp, "BATCHED", batched and udp.BATCHED)
    sender, receiver = UdpPort(domain), UdpPort(domain)
    try:
        sender.can_segment = sender.can_segment and can_segment
        target = receiver.endpoint
        made = [bytes([number]) * 1472 for number in range(40)] + [b"rest"]
        train = Datagram(target, b"".join(made), segment=1472)
        sent = [Datagram(target, b"before"), train, Datagram(target, b"end")]
        assert not sender.send(sent)
        assert b"".join(hear(receiver, b"end")) == b"before" + train.data + b"end"
        assert sender.unsendable == 0
    finally:
        for port in (sender, receiver):
            port.close()


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EPERM])
def test_a_train_that_the_kernel_does_not_cut_goes_by_single_calls(
    domain: int, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device without checksums refuses segments, a sandbox the calls for many datagrams: nothing may be lost."""
    sender, receiver = UdpPort(domain), UdpPort(domain)
    try:
        if error == errno.EPERM:
            if not udp.BATCHED:
                pytest.skip("the compiled way in and out was not built, or VIVUM_PURE=1 is set")
            sender.can_segment = False
            forbidden = types.SimpleNamespace(send=Forbidden(error))
            monkeypatch.setattr(udp, "_datagrams", forbidden)
        else:
            monkeypatch.setattr(udp, "UDP_SEGMENT", 0x7FFF)
        target = receiver.endpoint
        train = Datagram(target, bytes(1000) + b"." * 1000 + b"end", segment=1000)
        assert not sender.send([train])
        heard = [data for data in hear(receiver, b"end") if data]
        assert [data for number, data in enumerate(heard) if data not in heard[:number]] == [
            each.data for each in train.cut()
        ]
        assert not sender.can_segment
    finally:
        for port in (sender, receiver):
            port.close()


@pytest.mark.parametrize("allowed_every", [0, 3])
def test_a_refusal_now_and_then_turns_no_call_off(
    domain: int, allowed_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall that drops at random refuses with EPERM as a sandbox does, but not 16 times in a row."""
    if not udp.BATCHED:
        pytest.skip("the compiled way in and out was not built, or VIVUM_PURE=1 is set")
    sender, receiver = UdpPort(domain), UdpPort(domain)
    try:
        forbidden = types.SimpleNamespace(send=Forbidden(errno.EPERM, allowed_every))
        monkeypatch.setattr(udp, "_datagrams", forbidden)
        made = [Datagram(receiver.endpoint, b"%d end" % number) for number in range(3 * udp.REFUSALS_MAX)]
        for each in made:
            assert not sender.send([each])
        assert b"".join(hear(receiver, made[-1].data)) == b"".join([each.data for each in made])
        assert sender.unsendable == 0
        assert sender._batches == bool(allowed_every)
        assert forbidden.send.calls == (len(made) if allowed_every else udp.REFUSALS_MAX)
    finally:
        for port in (sender, receiver):
            port.close()


class Narrow:
    """A socket whose send buffer takes so many datagrams and no more, and that refuses every so manyth."""

    def __init__(self, real: socket.socket, refuses_every: int = 0) -> None:
        self._real, self._refuses_every = real, refuses_every
        self._real_call = udp._datagrams.send if udp.BATCHED else None
        self.room, self.calls = 0, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def _is_refused(self) -> bool:
        return bool(self._refuses_every) and (self.calls + 1) % self._refuses_every == 0

    def _take(self) -> None:
        if not self.room:
            raise BlockingIOError(errno.EAGAIN, "no room")
        is_refused = self._is_refused()
        self.room -= 1
        self.calls += 1
        if is_refused:
            raise OSError(errno.EHOSTUNREACH, "refused")

    def sendto(self, data: bytes, address: tuple[str, int]) -> int:
        self._take()
        return self._real.sendto(data, address)

    def send_many(self, descriptor: int, datagrams: list[bytes], packed: bytes) -> int:
        """Stand in for `sendmmsg`: return how many were sent; raise only if it was none."""
        assert self._real_call is not None
        for index, each in enumerate(datagrams):
            if index and (not self.room or self._is_refused()):
                return index
            self._take()
            self._real_call(descriptor, [each], packed)
        return len(datagrams)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("refuses_every", [0, 4])
def test_a_train_that_finds_no_room_in_its_middle_goes_on_there_and_loses_only_what_is_refused(
    domain: int, batched: bool, refuses_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began anew each time, and never ended; the first refused datagram was counted for all 44, and ended it."""
    if batched and not udp.BATCHED:
        pytest.skip("the compiled way in and out was not built, or VIVUM_PURE=1 is set")
    monkeypatch.setattr(udp, "BATCHED", batched)
    sender, receiver = UdpPort(domain), UdpPort(domain)
    narrow = Narrow(sender._socket, refuses_every)
    try:
        sender.can_segment = False
        monkeypatch.setattr(sender, "_socket", narrow)
        if batched:
            monkeypatch.setattr(udp, "_datagrams", types.SimpleNamespace(send=narrow.send_many))
        pieces = [bytes([number]) * 1472 for number in range(40)] + [b"rest"]
        end = Datagram(receiver.endpoint, b"end")
        waiting: Sequence[Datagram] = [Datagram(receiver.endpoint, b"".join(pieces), segment=1472), end, end]
        for _ in range(9):
            narrow.room = 5
            waiting = waiting and sender.send(waiting)
        assert not waiting
        refused = pieces[refuses_every - 1 :: refuses_every] if refuses_every else []
        assert sender.unsendable == len(refused)
        expected = b"".join(each for each in pieces if each not in refused) + b"endend"
        narrow.room = 0
        assert b"".join(hear(receiver, b"endend")) == expected
    finally:
        monkeypatch.undo()
        sender.close()
        receiver.close()


class Forbidden:
    """A system call that a sandbox forbids, or a firewall that lets every so manyth call through."""

    def __init__(self, error: int, allowed_every: int = 0) -> None:
        self.error, self.allowed_every, self.calls = error, allowed_every, 0
        self.real_call = udp._datagrams.send

    def __call__(self, descriptor: int, datagrams: list[bytes], packed: bytes) -> int:
        self.calls += 1
        if self.allowed_every and self.calls % self.allowed_every == 0:
            return self.real_call(descriptor, datagrams, packed)
        raise OSError(self.error, "forbidden")


def test_data_is_never_told_to_have_waited_for_longer_than_it_did(domain: int) -> None:
    """The wait of the last socket counted for all, and that of an earlier read where nothing was read."""
    if not udp.BATCHED:
        pytest.skip("the compiled way in and out was not built, or VIVUM_PURE=1 is set")
    sender, receiver = UdpPort(domain), UdpPort(domain)
    try:
        receiver.listen(Channel(5))
        direct, listening = receiver.sockets

        def send_and_wait(where: Endpoint | Channel, data: bytes) -> int:
            sender.send([Datagram(where, data)])
            came = listening if where == Channel(5) else direct
            assert select.select([came], [], [], TIMEOUT_S)[0]
            return time.monotonic_ns()

        # The socket for channels is read last, and had data for longer.
        first_ns = send_and_wait(Channel(5), b"data 1")
        second_ns = send_and_wait(receiver.endpoint, b"data 2")
        assert len(receiver.receive(1 << 20)) == 2
        assert 0 < receiver.waited_ns < time.monotonic_ns() - first_ns
        # A token that came later says nothing about data.
        send_and_wait(Channel(5), b"data 3")
        token_ns = send_and_wait(receiver.endpoint, bytes([1, Kind.TOKEN]) + b"token")
        before_ns = time.monotonic_ns()
        assert len(receiver.receive(1 << 20)) == 2
        assert before_ns - token_ns < receiver.waited_ns < time.monotonic_ns() - second_ns
        assert receiver.receive(1 << 20) == []
        assert receiver.waited_ns == 0
    finally:
        sender.close()
        receiver.close()


def test_small_datagrams_to_one_destination_go_by_one_call_in_their_order(
    domain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not udp.BATCHED:
        pytest.skip("the compiled way in and out was not built, or VIVUM_PURE=1 is set")
    sender, receiver, other = UdpPort(domain), UdpPort(domain), UdpPort(domain)
    narrow = Narrow(sender._socket)
    narrow.room = 100
    calls: list[int] = []

    def count(descriptor: int, datagrams: list[bytes], packed: bytes) -> int:
        calls.append(len(datagrams))
        return narrow.send_many(descriptor, datagrams, packed)

    try:
        monkeypatch.setattr(udp, "_datagrams", types.SimpleNamespace(send=count))
        made = [Datagram(receiver.endpoint, b"%d." % number) for number in range(20)]
        last = [Datagram(other.endpoint, b"elsewhere"), Datagram(receiver.endpoint, b"end")]
        assert not sender.send([*made, *last])
        assert calls == [16, 4, 1, 1]
        assert b"".join(hear(receiver, b"end")) == b"".join(each.data for each in made) + b"end"
        assert hear(other, b"elsewhere") == [b"elsewhere"]
    finally:
        monkeypatch.undo()
        for port in (sender, receiver, other):
            port.close()


@pytest.mark.parametrize("batched", [True, False])
def test_datagrams_of_all_sizes_arrive_whole_and_stay_so(
    domain: int, batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones are received where they stay: nothing that comes later may be written over them."""
    if batched and not udp.BATCHED:
        pytest.skip("the compiled way in and out was not built, or VIVUM_PURE=1 is set")
    monkeypatch.setattr(udp, "BATCHED", batched)
    sender, receiver = UdpPort(domain), UdpPort(domain)
    try:
        sizes = [65_507, 1, 40_000, 32_767, 32_768, 0, 1472, 64_000] * 6
        datagrams = [Datagram(receiver.endpoint, bytes([number]) * size) for number, size in enumerate(sizes)]
        heard: list[bytes] = []
        for start in range(0, len(sizes), 16):
            part = [*datagrams[start : start + 16], Datagram(receiver.endpoint, b"end of part")]
            assert not sender.send(part)
            while not (heard and heard[-1] == b"end of part"):
                assert select.select([receiver.sockets[0]], [], [], TIMEOUT_S)[0]
                heard += [data for _, data in receiver.receive(1 << 20)]
            heard.pop()
        assert heard == [each.data for each in datagrams]
        assert all(data + b"" == bytes(memoryview(data)) for data in heard)
    finally:
        sender.close()
        receiver.close()


@pytest.mark.skipif(not udp.BATCHED, reason="the compiled way in was not built, or VIVUM_PURE=1 is set")
def test_frames_that_come_one_by_one_are_joined_and_what_is_no_whole_frame_is_not(domain: int) -> None:
    """As behind a switch that cut a train. A datagram that lies about its length takes no others with it."""
    builder = FrameBuilder(1472)

    def frame(number: int, size: int, kind: Kind = Kind.DATA) -> bytes:
        builder.append(1, number, bytes(size))
        return builder.seal(kind, domain, 2, 3, 4, 5, number, 7)

    first, liar = [frame(number, 1400) for number in range(5)], bytearray(frame(5, 1400))
    liar[2:4] = (2).to_bytes(2, "little")
    behind = [frame(6, 1400), frame(7, 100), frame(8, 1400), frame(9, 1400, Kind.RESENT)]
    control = seal_control(Kind.HEARTBEAT, domain, 2, 3, 4, 5, 0, 7, b"")
    sender, receiver = UdpPort(domain), UdpPort(domain)
    try:
        for data in [*first, bytes(liar), *behind, control, control]:
            assert not sender.send([Datagram(receiver.endpoint, data)])
        assert [data for _, data in receiver.receive(1 << 20)] == [
            b"".join(first),
            bytes(liar),
            b"".join(behind[:2]),
            *behind[2:],
            control,
            control,
        ]
    finally:
        sender.close()
        receiver.close()


def test_of_several_datagrams_that_fail_only_those_are_dropped(domain: int) -> None:
    sender, receiver = UdpPort(domain), UdpPort(domain)
    try:
        target = receiver.endpoint
        too_large = Datagram(target, bytes(65_508))
        large = [Datagram(target, bytes([number]) * 40_000) for number in range(3)]
        sent = [large[0], too_large, large[1], large[2], Datagram(target, b"end")]
        assert not sender.send(sent)
        assert sender.unsendable == 1
        assert hear(receiver, b"end") == [*(each.data for each in large), b"end"]
    finally:
        sender.close()
        receiver.close()


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("can_segment", [True, False])
@pytest.mark.parametrize(
    "where",
    [
        pytest.param(Endpoint("a\0b", 1), id="null"),
        pytest.param(Endpoint("\ud800", 1), id="surrogate"),
        pytest.param(Endpoint("", 1), id="empty"),
        pytest.param(Endpoint("localhost", 1), id="name"),
        pytest.param(Endpoint("127.0.0.1", 0), id="port 0"),
        pytest.param(Endpoint("127.0.0.1", -1), id="port below 0"),
        pytest.param(Endpoint("127.0.0.1", 1 << 16), id="port too large"),
        pytest.param(Channel(1 << 16), id="channel too large"),
    ],
)
def test_what_goes_to_no_address_is_dropped_and_counted_and_nothing_else(
    domain: int, where: Endpoint | Channel, batched: bool, can_segment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a host in a forged beacon lost all that was to be sent and delivered with it."""
    monkeypatch.setattr(udp, "BATCHED", batched and udp.BATCHED)
    sender, receiver = UdpPort(domain), UdpPort(domain)
    try:
        sender.can_segment = could_segment = sender.can_segment and can_segment
        target = receiver.endpoint
        bad = [Datagram(where, b"nobody")] * 3
        sent = [Datagram(target, b"1"), *bad, Datagram(target, b"2"), bad[0], Datagram(target, b"end")]
        assert not sender.send(sent)
        assert sender.unsendable == 4
        assert sender.can_segment == could_segment
        assert b"".join(hear(receiver, b"end")) == b"12end"
    finally:
        sender.close()
        receiver.close()


def test_a_port_hears_only_the_channels_that_it_joined_and_not_itself(domain: int) -> None:
    sender, listener = UdpPort(domain), UdpPort(domain)
    try:
        sender.listen(Channel(5))
        listener.listen(Channel(5))
        sender.send([Datagram(Channel(6), b"six"), Datagram(Channel(5), b"five")])
        assert hear(listener, b"five") == [b"five"]
        listener.listen(Channel(8))
        listener.unlisten(Channel(5))
        sender.send([Datagram(Channel(5), b"five"), Datagram(Channel(8), b"eight")])
        assert hear(listener, b"eight") == [b"eight"]
        listener.send([Datagram(Channel(5), b"from another")])
        assert hear(sender, b"from another") == [b"from another"]
    finally:
        sender.close()
        listener.close()


def test_more_channels_than_one_socket_may_join_get_another_socket(domain: int) -> None:
    sender, listener = UdpPort(domain), UdpPort(domain)
    try:
        for number in range(50):
            listener.listen(Channel(number))
        for number in range(50):
            sender.send([Datagram(Channel(number), b"channel %d" % number)])
            assert hear(listener, b"channel %d" % number) == [b"channel %d" % number]
        assert len(listener.sockets) == 4
    finally:
        sender.close()
        listener.close()


def test_a_port_in_use_and_a_foreign_interface_are_told_in_one_sentence(domain: int) -> None:
    holder = UdpPort(domain)
    try:
        with pytest.raises(
            HostError, match=r"cannot open UDP 127.0.0.1:\d+: Address already in use; choose another port"
        ):
            UdpPort(domain, port=holder.endpoint.port)
        with pytest.raises(HostError, match="is it an address of this computer"):
            UdpPort(domain, "192.0.2.1")
        with pytest.raises(UsageError, match="not an IPv4 address"):
            UdpPort(domain, "localhost")
        with pytest.raises(UsageError, match="channels are 0 to 65535"):
            holder.address_of(Channel(1 << 16))
    finally:
        holder.close()


def test_the_granted_buffer_is_read_back(domain: int) -> None:
    port = UdpPort(domain, buffer_bytes=1 << 16)
    try:
        assert port.receive_buffer_bytes >= 1 << 16
        assert port.endpoint == Endpoint("127.0.0.1", port.endpoint.port)
    finally:
        port.close()
        port.close()
