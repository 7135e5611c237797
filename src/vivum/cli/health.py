"""What `vivum doctor` looks at: the machine, part by part, each with a finding and what to do about it.

A check has two halves. Probes ask the machine; judges turn an answer into a `Finding` and are plain,
so that the tests can show them any machine. Nothing here changes the machine or sends beyond loopback.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from vivum.core.extras import EXTRAS

PYTHON_MIN = (3, 11)
JAVA_MIN = 17
# From <linux/udp.h>; the socket module has no names for them before Python 3.13.
_SOL_UDP = 17
_UDP_SEGMENT = 103
_UDP_GRO = 104
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_MULTICAST_GROUP = "239.255.118.118"
_TIMEOUT_S = 2.0


class Status(StrEnum):
    """How a finding is meant."""

    OK = "ok"
    HINT = "hint"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor: what was looked at, what was found, and what to do, if anything."""

    name: str
    status: Status
    found: str
    advice: str = ""
    essential: bool = False
    """Without it Vivum does not work at all."""


@dataclass(frozen=True, slots=True)
class SocketBuffer:
    """One of the two buffers of a socket, and how large it had better be."""

    name: str
    key: str
    """Kernel setting that bounds what an ordinary user is granted."""
    ask: int
    force: int
    wanted: int


# 13 ms at 10 Gbit/s: longer than a process usually waits for its core.
RECEIVE_BUFFER = SocketBuffer(
    "receive buffer", "net.core.rmem_max", socket.SO_RCVBUF, _SO_RCVBUFFORCE, 16 * 1024 * 1024
)
# Data is pulled when the socket has room; more would only let it grow stale there.
SEND_BUFFER = SocketBuffer("send buffer", "net.core.wmem_max", socket.SO_SNDBUF, _SO_SNDBUFFORCE, 4 * 1024 * 1024)


def examine() -> Iterator[Finding]:
    """Look at everything, in the order of importance."""
    yield judge_python(sys.version_info[:3])
    yield judge_udp(_probe_udp())
    yield judge_codec(_probe_codec(), _probe_compiler(), _probe_headers())
    yield judge_compiler(_probe_compiler(), _probe_headers())
    yield judge_buffer(RECEIVE_BUFFER, _probe_buffer(RECEIVE_BUFFER), _probe_kernel(RECEIVE_BUFFER.key))
    yield judge_buffer(SEND_BUFFER, _probe_buffer(SEND_BUFFER), _probe_kernel(SEND_BUFFER.key))
    yield judge_batching("UDP_SEGMENT", "send", _probe_segment())
    yield judge_batching("UDP_GRO", "receive", _probe_gro())
    yield judge_multicast(_probe_multicast())
    yield judge_sharing(_probe_sharing())
    yield judge_java(_probe_java())
    for library, purpose in (
        ("pyarrow", "recording, replay and traces"),
        ("pyspark", "the Spark pipeline"),
        ("uvloop", "a faster event loop"),
    ):
        yield judge_library(library, _probe_library(library), purpose, EXTRAS[library])


def judge_python(running: tuple[int, ...]) -> Finding:
    """Judge the interpreter."""
    shown = ".".join(map(str, running))
    if running >= PYTHON_MIN:
        return Finding("Python", Status.OK, shown, essential=True)
    wanted = ".".join(map(str, PYTHON_MIN))
    return Finding("Python", Status.MISSING, shown, f"install Python {wanted} or later", essential=True)


def judge_udp(error: str) -> Finding:
    """Judge whether a datagram can be sent at all."""
    if not error:
        return Finding("UDP on loopback", Status.OK, "works", essential=True)
    advice = "allow this process to use UDP sockets on 127.0.0.1 (sandbox, seccomp or firewall rules)"
    return Finding("UDP on loopback", Status.MISSING, error, advice, essential=True)


def judge_codec(compiled: bool | None, compiler: str, headers: bool) -> Finding:
    """Judge whether the compiled hot path is in use. `None`: it is there and was switched off."""
    name = "compiled codec"
    if compiled:
        return Finding(name, Status.OK, "in use")
    if compiled is None:
        return Finding(name, Status.HINT, "switched off by VIVUM_PURE", "unset it to use the compiled one")
    found = "not built: plain Python serves, several times slower"
    if compiler and headers:
        return Finding(name, Status.HINT, found, "build it: install Vivum again")
    return Finding(name, Status.HINT, found, "install a C compiler (see below), then Vivum again")


def judge_compiler(compiler: str, headers: bool) -> Finding:
    """Judge whether the codec could be built here."""
    if not compiler:
        advice = "needed only to build the codec (Debian, Ubuntu: apt-get install gcc python3-dev)"
        return Finding("C compiler", Status.HINT, "none", advice)
    if not headers:
        advice = "needed only to build the codec (Debian, Ubuntu: apt-get install python3-dev)"
        return Finding("C compiler", Status.HINT, f"{compiler}, but Python's headers are missing", advice)
    return Finding("C compiler", Status.OK, compiler)


def judge_buffer(buffer: SocketBuffer, granted: int | None, kernel: int | None) -> Finding:
    """Judge how much buffer this user is granted. `kernel` is what others are; privilege goes past it."""
    if granted is None:
        advice = "check that UDP sockets may be opened"
        return Finding(buffer.name, Status.MISSING, "could not be asked for", advice)
    found = f"{_mebibytes(granted)} granted of {_mebibytes(buffer.wanted)} recommended"
    if kernel is not None:
        found += f" ({buffer.key} is {_mebibytes(kernel)})"
    if granted >= buffer.wanted:
        return Finding(buffer.name, Status.OK, found)
    return Finding(buffer.name, Status.HINT, found, f"for high rates, as root: sysctl -w {buffer.key}={buffer.wanted}")


def judge_batching(option: str, direction: str, error: str) -> Finding:
    """Judge whether one call can move many frames."""
    if not error:
        return Finding(option, Status.OK, f"many frames in one {direction} call")
    advice = "use Linux 5.0 or later outside of sandboxes that hide it; without it each frame takes a call"
    return Finding(option, Status.HINT, error, advice)


def judge_multicast(error: str) -> Finding:
    """Judge whether IP multicast reaches this host itself."""
    name = "IP multicast on loopback"
    if not error:
        return Finding(name, Status.OK, "works")
    advice = "allow multicast on lo (as root: ip link set lo multicast on); without it each node gets a copy"
    return Finding(name, Status.MISSING, error, advice)


def judge_sharing(fault: str) -> Finding:
    """Judge whether large frames between processes of this machine can spare the kernel."""
    if not fault:
        return Finding("shared memory", Status.OK, "large frames between local processes pass the kernel by")
    advice = "use Linux 5.1 or later with a C compiler at installation; without it they go as datagrams, more slowly"
    return Finding("shared memory", Status.HINT, fault, advice)


def judge_java(text: str) -> Finding:
    """Judge what `java -version` printed, nothing when there is no Java. Java 8 calls itself 1.8."""
    match = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', text)
    advice = f"for Spark: Java {JAVA_MIN} or later (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)"
    if match is None:
        return Finding("Java", Status.HINT, "none", advice)
    if int(match[2]) < JAVA_MIN:
        return Finding("Java", Status.HINT, f"{match[1]}, too old", advice)
    return Finding("Java", Status.OK, match[1])


def judge_library(name: str, found: str | None, purpose: str, extra: str) -> Finding:
    """Judge an optional library."""
    if found is None:
        return Finding(name, Status.HINT, "not installed", f"for {purpose}: pip install 'vivum[{extra}]'")
    return Finding(name, Status.OK, found)


def _mebibytes(size: int) -> str:
    return f"{size / 1024 / 1024:.3g} MiB"


def _probe_codec() -> bool | None:
    from vivum.wire import codec

    if codec.COMPILED:
        return True
    return None if os.environ.get("VIVUM_PURE") == "1" else False


def _probe_compiler() -> str:
    wanted = [os.environ.get("CC", "").split(" ")[0], "cc", "gcc", "clang"]
    return next((path for name in wanted if name and (path := shutil.which(name))), "")


def _probe_headers() -> bool:
    return Path(sysconfig.get_path("include"), "Python.h").exists()


def _udp_socket() -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.settimeout(_TIMEOUT_S)
    opened.bind(("127.0.0.1", 0))
    return opened


def _probe_udp() -> str:
    try:
        with _udp_socket() as own:
            own.sendto(b"vivum", own.getsockname())
            return "" if own.recv(16) == b"vivum" else "a datagram came back changed"
    except OSError as error:
        return _reason(error)


def _probe_buffer(buffer: SocketBuffer) -> int | None:
    """Ask for what is recommended, with privilege and then without, and read back what came of it."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            for option in (buffer.force, buffer.ask):
                try:
                    own.setsockopt(socket.SOL_SOCKET, option, buffer.wanted)
                    break
                except OSError:
                    continue
            # The kernel doubles what was asked for, to pay for its own book-keeping, and tells the double.
            return own.getsockopt(socket.SOL_SOCKET, buffer.ask) // 2
    except OSError:
        return None


def _probe_kernel(key: str) -> int | None:
    try:
        return int(Path("/proc/sys", *key.split(".")).read_text())
    except (OSError, ValueError):
        return None


def _probe_segment() -> str:
    """Send three datagrams in one call to oneself."""
    try:
        with _udp_socket() as own:
            own.setsockopt(_SOL_UDP, _UDP_SEGMENT, 100)
            own.sendto(bytes(300), own.getsockname())
            sizes = [len(own.recv(1000)) for _ in range(3)]
            return "" if sizes == [100, 100, 100] else f"300 bytes were cut into {sizes}"
    except OSError as error:
        return _reason(error)


def _probe_gro() -> str:
    try:
        with _udp_socket() as own:
            own.setsockopt(_SOL_UDP, _UDP_GRO, 1)
            return ""
    except OSError as error:
        return _reason(error)


def _probe_multicast() -> str:
    """Send a datagram to a group that only this socket listens to, on loopback alone."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.settimeout(_TIMEOUT_S)
            own.bind((_MULTICAST_GROUP, 0))
            loopback = socket.inet_aton("127.0.0.1")
            member = socket.inet_aton(_MULTICAST_GROUP) + loopback
            own.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            own.sendto(b"vivum", (_MULTICAST_GROUP, own.getsockname()[1]))
            return "" if own.recv(16) == b"vivum" else "a datagram came back changed"
    except OSError as error:
        return _reason(error)


def _probe_sharing() -> str:
    from vivum.runtime.shared_memory.shared_memory import fault

    return fault()


def _reason(error: OSError) -> str:
    return "nothing came back" if isinstance(error, TimeoutError) else error.strerror or str(error)


def _probe_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    java = java or shutil.which("java")
    if java is None:
        return ""
    try:
        ended = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stderr + ended.stdout


def _probe_library(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
