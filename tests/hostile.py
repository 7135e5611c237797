"""Hostile traffic: random and broken datagrams at every open port of running nodes, while real traffic flows.

What is thrown: random bytes; frames of ours torn, lengthened or with lengths that lie; frames of other domains and
versions; well-formed frames of every kind, of this domain, from senders that are not in any view, with random fields
and bodies; and real frames, overheard on the multicast channels, with bytes of their body or their structure changed.
"""

import random
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from vivum.bench.cell import Cell, Outcome, measure
from vivum.bench.crew import Crew, Worker
from vivum.bench.throughput import our_system
from vivum.bench.worker import Control
from vivum.core.ids import Channel
from vivum.protocols.discovery.finder import BEACON_CHANNEL
from vivum.runtime.udp import UdpPort
from vivum.wire.codec import HEADER_BYTES, FrameBuilder, seal_control
from vivum.wire.gate import domain_tag
from vivum.wire.kinds import KINDS, Kind

BURST = 64
"""Datagrams between two looks at the clock and at the network."""

OVERHEARD_MAX = 256
OVERHEARD_BYTES = 1 << 16
"""What is read of each channel between two bursts."""

CHANNELS = [*range(8), BEACON_CHANNEL]
"""Multicast channels that are thrown at: the first ones, which a small domain uses, and that of beacons."""

STRANGER_MIN = 500_000
"""Node ids from here on are in no view of a benchmark."""


def attack(cell: Cell, datagrams: int, seed: int) -> Outcome:
    """Measure a cell while so many hostile datagrams go to all its ports; all are thrown when it returns."""
    attackers: list[Worker] = []

    def begin(crew: Crew, options: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
        endpoints = [options["service"], *(node["endpoint"] for node in nodes)]
        domain = domain_tag(options["domain"])
        order = {"domain": domain, "endpoints": endpoints, "channels": CHANNELS, "seed": seed}
        order |= {"datagrams": datagrams, "seconds": cell.seconds}
        attackers.append(crew.start("attacker", f"{__name__}:throw", order))
        attackers[0].hear("ready")

    is_thrown = False

    def during(_crew: Crew, _receivers: list[Worker], since_s: float) -> None:
        nonlocal is_thrown
        if not is_thrown and since_s >= 0:
            attackers[0].tell(go=True)
            is_thrown = True

    def end() -> None:
        attackers[0].hear("thrown", cell.seconds)

    return measure(our_system(), cell, during, on_met=begin, on_stop=end)


class Hostility:
    """Makes hostile datagrams from a seed and from what it overhears."""

    def __init__(self, domain: int, rng: random.Random) -> None:
        self._domain = domain
        self._rng = rng
        self._builder = FrameBuilder(1472)
        self.overheard: list[bytes] = []
        self._makers: Sequence[Callable[[], bytes]] = (
            self._noise,
            self._headed_noise,
            self._stranger,
            self._stranger_control,
            self._torn,
            self._foreign,
            self._changed_body,
        )

    def next(self) -> bytes:
        """Make the next one."""
        return self._rng.choice(self._makers)()

    def _noise(self) -> bytes:
        return self._rng.randbytes(self._rng.randrange(1, 1500))

    def _headed_noise(self) -> bytes:
        """Make a header that begins like ours, and nonsense behind it."""
        kind = self._rng.randrange(256)
        return bytes((1, kind)) + self._rng.randbytes(self._rng.randrange(0, 200))

    def _fields(self, domain: int) -> tuple[int, int, int, int, int, int, int]:
        rng = self._rng
        sender = rng.randrange(STRANGER_MIN, 1 << 32)
        region, view, sequence = (rng.randrange(8) for _ in range(3))
        return domain, sender, rng.randrange(1 << 16), region, view, sequence, rng.randrange(1 << 40)

    def _data(self, domain: int) -> bytes:
        rng = self._rng
        for _ in range(rng.randrange(1, 4)):
            self._builder.append(rng.randrange(4), rng.randrange(1 << 20), rng.randbytes(rng.randrange(200)))
        return self._builder.seal(rng.choice((Kind.DATA, Kind.RESENT)), *self._fields(domain))

    def _stranger(self) -> bytes:
        return self._data(self._domain)

    def _stranger_control(self) -> bytes:
        kinds = [kind for kind, info in KINDS.items() if not info.has_messages]
        body = self._rng.randbytes(self._rng.randrange(0, 120))
        return seal_control(self._rng.choice(kinds), *self._fields(self._domain), body)

    def _foreign(self) -> bytes:
        return self._data(self._domain ^ self._rng.randrange(1, 1 << 32))

    def _real(self) -> bytes:
        return self._rng.choice(self.overheard) if self.overheard else self._stranger()

    def _torn(self) -> bytes:
        data = self._real()
        if self._rng.random() < 0.5:
            return data[: self._rng.randrange(1, max(2, len(data)))]
        return data + self._rng.randbytes(self._rng.randrange(1, 100))

    def _changed_body(self) -> bytes:
        """Change bytes behind the header of a frame of messages, and let a stranger have sent it.

        Not of a control frame: one that still decodes is a forgery, which nothing but keys can tell from the truth.
        """
        data = bytearray(self._real() if self._rng.random() < 0.5 else self._stranger())
        if data[1] not in (Kind.DATA, Kind.RESENT):
            return self._torn()
        for _ in range(self._rng.randrange(1, 8)):
            if len(data) > HEADER_BYTES:
                data[self._rng.randrange(HEADER_BYTES, len(data))] = self._rng.randrange(256)
        data[8:12] = self._rng.randrange(STRANGER_MIN, 1 << 32).to_bytes(4, "little")
        return bytes(data)


def throw(control: Control, options: dict[str, Any]) -> None:
    """Throw hostile datagrams at all endpoints and channels, spread over the time that is measured."""
    port = UdpPort(options["domain"])
    for channel in options["channels"]:
        port.listen(Channel(channel))
    targets = [tuple(each) for each in options["endpoints"]]
    real = set(targets)
    targets += [port.address_of(Channel(channel)) for channel in options["channels"]]
    # Mutants of the group port's other users too: every socket of a node is a target.
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    rng = random.Random(options["seed"])
    hostility = Hostility(options["domain"], rng)
    control.tell(ready=True)
    control.wait_for("go")
    began, count = time.monotonic(), 0
    pause_s = options["seconds"] * 0.9 * BURST / options["datagrams"]
    while count < options["datagrams"]:
        for _ in range(min(BURST, options["datagrams"] - count)):
            own.sendto(hostility.next(), rng.choice(targets))
            count += 1
        # Not what this process threw itself.
        hostility.overheard += [data for source, data in port.receive(OVERHEARD_BYTES) if source in real]
        del hostility.overheard[:-OVERHEARD_MAX]
        time.sleep(max(0.0, began + count / BURST * pause_s - time.monotonic()))
    control.tell(thrown=count, took_s=time.monotonic() - began, overheard=len(hostility.overheard))
    control.hear()
