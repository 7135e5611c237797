"""Vivum at the level of its driver: QSM nodes over real sockets, a configuration service in a process of its own."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from vivum.bench.cell import Cell
from vivum.bench.counting import BATCH_MESSAGES, Source, resident_kb
from vivum.bench.crew import Crew
from vivum.bench.loops import run_fast
from vivum.bench.worker import Control, Meter, Window, report_sent
from vivum.core.errors import NotNowError
from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId
from vivum.core.machine import Delivery
from vivum.node.build import PROTOCOLS
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.protocols.commands import JoinGroup, SendMessages
from vivum.protocols.membership.client import MembershipClient
from vivum.protocols.membership.service_machine import ServiceMachine
from vivum.protocols.qsm.machine import QsmMachine
from vivum.runtime.driver import Driver
from vivum.runtime.udp import UdpPort
from vivum.wire.gate import Gate, domain_tag

LABEL = "Vivum, QSM at the driver"
BATCH_BYTES = 64 * 1024
ROOM_S = 0.001
"""How long a sender waits for room before it tries again: a queue of 1 MiB lasts about so long at 1 GB/s."""

GROUPS_LOOKED_AT = 64
"""Of many groups so many are asked, each time, whether all members are there."""


def prepare(crew: Crew, cell: Cell) -> dict[str, Any]:
    """Start the configuration service in a domain of our own."""
    domain = domain_tag(f"bench {time.monotonic_ns()}")
    prefix, where = cell.place(0)
    service = crew.start("service", f"{__name__}:serve", {"domain": domain, **where}, prefix)
    return {"domain": domain, "service": service.hear("ready")["endpoint"]}


def serve(control: Control, options: dict[str, Any]) -> None:
    """Be the configuration service until the parent is gone."""

    async def run() -> None:
        port = UdpPort(options["domain"], options.get("interface", "127.0.0.1"))
        member, counters = Member(NodeId(999_999), Incarnation(1)), Counters()
        gate = Gate(options["domain"], counters, member)
        driver = Driver(Node(member, gate, [ServiceMachine(member, gate)], counters), port, lambda _: None)
        driver.start()
        control.tell(ready=True, endpoint=list(port.endpoint))
        await asyncio.get_running_loop().run_in_executor(None, control.hear)
        driver.close()

    run_fast(run())


class BenchNode:
    """One node on the current loop."""

    def __init__(self, options: dict[str, Any], number: int) -> None:
        self.groups = [GroupId(group) for group in range(1, options["groups"] + 1)]
        self.inbox: list[Delivery] = []
        self.arrived = asyncio.Event()
        self.counters = Counters()
        port = UdpPort(options["domain"], options.get("interface", "127.0.0.1"))
        nobody = Member(NodeId(number), Incarnation(0))
        gate = Gate(options["domain"], self.counters, nobody)
        service = Endpoint(*options["service"])
        client = MembershipClient(
            f"process {number} {time.monotonic_ns()}",
            NodeId(number),
            port.endpoint,
            [service],
            gate,
            random.Random(number),
        )
        settings = PROTOCOLS["qsm"].make_settings(options.get("settings", {}))
        self.machine = QsmMachine(client, gate, settings)
        node = Node(nobody, gate, [self.machine], self.counters, identity=lambda: self.machine.identity or nobody)
        self.driver = Driver(node, port, self._on_delivery)
        self.own = NodeId(number)
        self.endpoint = port.endpoint
        self.on_delivery: Callable[[Delivery], None] = self._keep

    def _on_delivery(self, delivery: Delivery) -> None:
        if delivery.sender.node != self.own:
            self.on_delivery(delivery)

    def _keep(self, delivery: Delivery) -> None:
        self.inbox.append(delivery)
        self.arrived.set()

    async def join(self, members: int) -> dict[str, Any]:
        """Enter all groups, and wait until so many members are in each of them."""
        before_kb, began = resident_kb(), time.monotonic()
        self.driver.start()
        for group in self.groups:
            self.driver.submit(JoinGroup(group, Channel(0), ()))
        looked_at = [self.groups[-1], *self.groups[:: max(1, len(self.groups) // GROUPS_LOOKED_AT)]]
        client = self.machine.client
        while any(len(client.members_of(group)) < members for group in looked_at):
            await asyncio.sleep(0.005)
        return {
            "began": began,
            "rss_kb_before": before_kb,
            "rss_kb_joined": resident_kb(),
            "endpoint": list(self.endpoint),
            "channels": sorted({config.channel for config in client.regions.values()}),
        }

    async def send(self, group: GroupId, payloads: list[bytes]) -> None:
        """Hand messages over; wait while there is no room."""
        while True:
            try:
                self.driver.submit(SendMessages(group, payloads))
                return
            except NotNowError:
                # The driver tells nobody when a queue has room again.
                await asyncio.sleep(ROOM_S)


def send(control: Control, options: dict[str, Any]) -> None:
    """Send to every group in turn."""
    run_fast(_send(control, options))


async def _send(control: Control, options: dict[str, Any]) -> None:
    node = BenchNode(options, 1)
    control.tell(ready=True)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, control.wait_for, "meet")
    joined = await node.join(options["receivers"] + 1)
    control.tell(met=True, **joined)
    window = Window(await loop.run_in_executor(None, control.wait_for, "go"))
    source = Source(options["size"], options["groups"])
    groups = node.groups
    count = options.get("batch") or max(1, min(BATCH_MESSAGES, BATCH_BYTES // options["size"]))
    per_s, began = options.get("per_s", 0.0), time.monotonic()
    before = turn = 0
    while (now := time.monotonic()) < window.stop:
        if now < window.start:
            before = source.sent
        await node.send(groups[turn], source.batch(count, turn))
        turn = (turn + 1) % len(groups)
        # Sockets and timers have their turn too.
        await asyncio.sleep(max(0.0, began + source.sent / per_s - time.monotonic()) if per_s else 0)
    report_sent(control, source.sent, window, counted=source.sent - before, counters=node.counters.as_dict())
    await loop.run_in_executor(None, control.hear)


def receive(control: Control, options: dict[str, Any]) -> None:
    """Take what is delivered."""
    run_fast(_receive(control, options))


async def _receive(control: Control, options: dict[str, Any]) -> None:
    node = BenchNode(options, options["number"] + 2)
    joined = await node.join(1)
    control.tell(ready=True, **joined)
    loop = asyncio.get_running_loop()
    window = Window(await loop.run_in_executor(None, control.wait_for, "go"))
    meter = Meter(control, options["size"], options["groups"], window)
    while not meter.is_over():
        if not node.inbox:
            node.arrived.clear()
            try:
                async with asyncio.timeout(0.1):
                    await node.arrived.wait()
            except TimeoutError:
                continue
        deliveries, node.inbox = node.inbox, []
        for each in deliveries:
            meter.take(each.payloads, each.group - 1)  # type: ignore[arg-type]
    meter.report(counters=node.counters.as_dict())
    # The others may need us for repair until all have everything.
    await loop.run_in_executor(None, control.hear)


# Round trips.


def echo(control: Control, options: dict[str, Any]) -> None:
    """Send every message back to its group; `vivum.bench.latency` runs it."""

    async def run() -> None:
        node = BenchNode(options, 2)
        node.on_delivery = lambda delivery: node.driver.submit(SendMessages(delivery.group, delivery.payloads))
        await node.join(1)
        control.tell(ready=True)
        await asyncio.get_running_loop().run_in_executor(None, control.hear)

    run_fast(run())


def ping(control: Control, options: dict[str, Any]) -> None:
    """Send one message at a time, and wait for it to come back."""

    async def run() -> None:
        node = BenchNode(options, 1)
        await node.join(2)
        loop, clock = asyncio.get_running_loop(), time.perf_counter_ns
        times: list[int] = []
        done = loop.create_future()
        payload, group = bytes(options["size"]), node.groups[0]
        began = 0

        def on_delivery(_: Delivery) -> None:
            nonlocal began
            now = clock()
            times.append(now - began)
            if len(times) == options["warm"] + options["rounds"]:
                done.set_result(None)
            else:
                began = clock()
                node.driver.submit(SendMessages(group, [payload]))

        node.on_delivery = on_delivery
        began = clock()
        node.driver.submit(SendMessages(group, [payload]))
        async with asyncio.timeout(60.0):
            await done
        control.tell(times=times[options["warm"] :])

    run_fast(run())
