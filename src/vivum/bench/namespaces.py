"""Computers made of network namespaces: each has its own network stack and a link to one switch.

The switch is a bridge in a namespace of its own, so nothing is added to the network of the machine itself. Links are
veth pairs, shaped on both ends by `tc tbf`: what a host sends and what it gets are limited alike. Segments that the
kernel joined are cut on their way (`gso_max_segs 1`), so that loss hits single datagrams as on a wire.

Needs root, `ip` and `tc` (Debian: iproute2) and `nft` (nftables). What is left of a run that was killed is removed by
the next one: names carry the process that made them.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Self

from vivum.core.errors import HostError

PREFIX = "vivum"
SUBNET = "10.99.7"
BRIDGE = "switch0"
INTERFACE = "eth0"
HOSTS_MAX = 200

TABLE = "vivum"
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}

ETHERNET_BYTES = 14
"""What `tc tbf` counts of a frame besides the IP packet; preamble, checksum and gap of a real wire are not in it."""

IP_UDP_BYTES = 28


def why_impossible() -> str:
    """Say in a sentence why this machine cannot have such hosts; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program, package in PROGRAMS.items():
        if _program(program) is None:
            return f"{program} is not installed (Debian: apt-get install {package})"
    name = f"{PREFIX}-{os.getpid()}-probe"
    try:
        _run("ip", "netns", "add", name)
    except HostError as error:
        return f"the kernel makes no network namespace: {error}"
    try:
        _run("ip", "-n", name, "link", "add", "probe0", "type", "veth", "peer", "name", "probe1")
        _run("ip", "-n", name, "link", "add", "probe2", "type", "bridge")
        _run("tc", "-n", name, "qdisc", "add", "dev", "probe0", "root", "tbf", "rate", "1mbit", *_burst(1))
        _run("ip", "netns", "exec", name, "nft", _loss_rules(1))
    except HostError as error:
        return f"the kernel lacks a part: {error}"
    finally:
        _run("ip", "netns", "delete", name)
    return ""


def require_hosts(what: str) -> None:
    """Raise a `HostError` that says why something cannot run, where there can be no such hosts."""
    cause = why_impossible()
    if cause:
        raise HostError(f"{what} cannot run here: {cause}")


class Cut(Enum):
    """Where segments that the kernel joined are cut into single datagrams."""

    HOST = auto()
    """Before they leave their host: what passes the switch is as on a wire."""

    SWITCH = auto()
    """Behind the queues of the switch, which costs the processor less where links are fast; a train is limited as what
    it is cut into."""

    NOWHERE = auto()
    """They stay whole, as with network cards that cut and join. Loss would hit all of them."""


class NetnsHost:
    """One computer: a name, an address, and how to run something there."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.prefix = ("ip", "netns", "exec", name)
        self._lossy = 0
        self._cut_from: list[str] = []

    def lose(self, percent: int) -> None:
        """Drop this percentage of arriving packets, chosen at random."""
        self._lossy = percent
        self._apply()

    def cut_from(self, others: Iterable["NetnsHost"]) -> None:
        """Hear nothing of these any more; of nobody cut off, if there are none."""
        self._cut_from = [each.address for each in others]
        self._apply()

    def _apply(self) -> None:
        rules = _loss_rules(self._lossy, self._cut_from)
        _run("ip", "netns", "exec", self.name, "nft", rules)


class NetnsNetwork:
    """Some hosts at one switch. Use it in a `with`: at its end all of it goes away."""

    def __init__(self, count: int, rate_mbit: int = 0, cut: Cut = Cut.HOST) -> None:
        """Describe it: the number of hosts, and the rate of each one's link in Mbit/s, 0 for no limit."""
        if not 1 <= count <= HOSTS_MAX:
            raise HostError(f"{count} hosts do not fit the switch; 1 to {HOSTS_MAX} do")
        run = f"{PREFIX}-{os.getpid()}"
        self._switch = f"{run}-switch"
        self._rate_mbit = rate_mbit
        self._cut = cut
        self.hosts = [NetnsHost(f"{run}-h{number}", f"{SUBNET}.{number}") for number in range(1, count + 1)]
        self._made: list[str] = []

    @property
    def places(self) -> list[tuple[Sequence[str], str]]:
        """Where a cell's processes run, each on a host of its own."""
        return [(host.prefix, host.address) for host in self.hosts]

    def __enter__(self) -> Self:
        sweep()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> None:
        self._add(self._switch)
        _run("ip", "-n", self._switch, "link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0")
        _run("ip", "-n", self._switch, "link", "set", BRIDGE, "up")
        for number, host in enumerate(self.hosts, 1):
            self._add(host.name)
            port = f"port{number}"
            link = ("link", "add", INTERFACE, "netns", host.name, "type", "veth")
            _run("ip", *link, "peer", "name", port, "netns", self._switch)
            _run("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", INTERFACE)
            _run("ip", "-n", self._switch, "link", "set", port, "master", BRIDGE, "up")
            for name, device, cuts in (
                (host.name, INTERFACE, self._cut is Cut.HOST),
                (self._switch, port, self._cut is not Cut.NOWHERE),
            ):
                if cuts:
                    _run("ip", "-n", name, "link", "set", device, "gso_max_segs", "1")
                if self._rate_mbit:
                    shape = ("root", "tbf", "rate", f"{self._rate_mbit}mbit", *_burst(self._rate_mbit))
                    _run("tc", "-n", name, "qdisc", "add", "dev", device, *shape)
            _run("ip", "-n", host.name, "link", "set", "lo", "up")
            _run("ip", "-n", host.name, "link", "set", INTERFACE, "up")
            _run("ip", "-n", host.name, "route", "add", "224.0.0.0/4", "dev", INTERFACE)

    def _add(self, name: str) -> None:
        self._made.append(name)
        _run("ip", "netns", "add", name)

    def partition(self, *sides: Sequence[NetnsHost]) -> None:
        """Let hosts hear their own side alone."""
        for side in sides:
            others = [host for other in sides if other is not side for host in other]
            for host in side:
                host.cut_from(others)

    def heal(self) -> None:
        """Let all hear all again."""
        for host in self.hosts:
            host.cut_from(())

    def close(self) -> None:
        """Remove everything. May be called again."""
        while self._made:
            with contextlib.suppress(HostError):
                _run("ip", "netns", "delete", self._made[-1])
            self._made.pop()


def sweep() -> None:
    """Remove what runs left behind whose process is gone."""
    for line in _run("ip", "netns", "list").splitlines():
        name = line.split()[0] if line else ""
        made = re.fullmatch(rf"{PREFIX}-(\d+)-\w+", name)
        if made and not os.path.exists(f"/proc/{made[1]}"):
            with contextlib.suppress(HostError):
                _run("ip", "netns", "delete", name)


def capacity_per_s(rate_mbit: int, size: int) -> float:
    """Return how many messages a link carries in a second, each in a datagram of its own, with all its headers."""
    return rate_mbit * 1e6 / 8 / (size + IP_UDP_BYTES + ETHERNET_BYTES)


def _burst(rate_mbit: int) -> tuple[str, ...]:
    # 5 ms at the rate, and at least some frames; a queue of 50 ms, as a switch has.
    burst = max(15_140, rate_mbit * 625)
    return ("burst", str(burst), "latency", "50ms")


def _loss_rules(percent: int, cut_from: Sequence[str] = ()) -> str:
    lines = [f"add table ip {TABLE}", f"delete table ip {TABLE}", f"add table ip {TABLE}"]
    chain = f"ip {TABLE} arrivals"
    lines.append(f"add chain {chain} {{ type filter hook prerouting priority -300; policy accept; }}")
    if cut_from:
        lines.append(f"add rule {chain} iifname {INTERFACE} ip saddr {{ {', '.join(cut_from)} }} drop")
    if percent:
        lines.append(f"add rule {chain} iifname {INTERFACE} numgen random mod 100 < {percent} drop")
    # In one transaction: there is no moment without rules.
    return "\n".join(lines)


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _run(program: str, *words: str) -> str:
    path = _program(program)
    if path is None:
        raise HostError(f"{program} is not installed (Debian: apt-get install {PROGRAMS[program]})")
    done = subprocess.run([path, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        cause = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise HostError(f"{program} {' '.join(words)}: {cause}")
    return done.stdout
