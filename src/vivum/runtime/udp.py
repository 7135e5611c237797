"""UDP for one node: a unicast socket, and multicast channels on one interface.

Datagrams go out in as few calls as the kernel allows: with `UDP_SEGMENT` one call carries a train, with `UDP_GRO` one
call returns what is left of it. Both are used where the kernel has them. Frames know their own length, so what the
kernel joined needs no cutting here.

Losses on one machine or a local network happen in the receive buffer, so the port asks for a large one and reads back
what was granted (`receive_buffer_bytes`): windows are sized by it.
"""

import asyncio
import contextlib
import ctypes
import errno
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from vivum.core.errors import HostError, UsageError, open_files_advice
from vivum.core.ids import Channel, Endpoint
from vivum.core.machine import Datagram, Priority
from vivum.runtime.port import Arrived
from vivum.runtime.shared_memory.notes import MARK
from vivum.runtime.shared_memory.shared_memory import SharedMemory
from vivum.wire.kinds import KINDS, priority_of

if TYPE_CHECKING:
    from vivum.runtime import _datagrams

    BATCHED: bool
else:
    try:
        from vivum.runtime import _datagrams
    except ImportError:
        _datagrams = None
    # Without it datagrams are read and sent one by one.
    BATCHED = _datagrams is not None

UDP_SEGMENT = 103
UDP_GRO = 104
IP_MULTICAST_ALL = 49
SO_RCVBUFFORCE = 33
SO_SNDBUFFORCE = 32

SO_ATTACH_FILTER = 26
SO_TIMESTAMPNS = 35

LARGE_BYTES = 32_500
"""Of two datagrams that are larger no train could be made. On loopback they go through shared memory."""

RECEIVE_BYTES = 65_536
MEMBERSHIPS_MAX = 20
"""Channels that one socket may join: the kernel's default igmp_max_memberships. Further ones get another socket."""

DATAGRAM_COST_BYTES = 256
"""Cost of a datagram besides its bytes, so that a flood of tiny ones is bounded too."""

SEND_MAX = 16
"""Datagrams that are handed to the kernel at once."""

JOINED = bytes(kind for kind, info in KINDS.items() if info.has_messages)
"""Kinds of frames that travel in trains."""

ENDPOINTS_MAX = 4096
"""Addresses that are cached; at the limit all are forgotten."""

FORBIDDEN = (errno.ENOSYS, errno.EPERM)
"""Errors of a system call that the kernel does not have, or that a sandbox (seccomp) forbids."""

REFUSALS_MAX = 16
"""Times in a row that a call for many datagrams is refused with EPERM, and the plain call taken, before it is given up.

A firewall that drops at random refuses with EPERM too. Even where it drops half of all datagrams, it looks like a
sandbox only once in four billion times (4 ** 16).
"""

_SEGMENT_SIZE = struct.Struct("=H")
_MEMBERSHIP = struct.Struct("=4s4s")
_HOST = struct.Struct("!I")
_ADDRESS = struct.Struct("=HH4s8x")
_FILTER_STEP = struct.Struct("=HBBI")
_FILTER = struct.Struct("@HP")


def group_port(domain: int) -> int:
    """Return the multicast port of a domain: below those that systems hand out, so that no other socket is there."""
    return 20_000 + domain % 12_000


class UdpPort:
    """The sockets of one node. Non-blocking; the driver waits."""

    def __init__(
        self,
        domain: int,
        interface: str = "127.0.0.1",
        *,
        port: int = 0,
        buffer_bytes: int = 8 * 1024 * 1024,
        ttl: int = 1,
        multicast: bool = True,
        shared_memory: bool | None = None,
    ) -> None:
        """Open the sockets on the interface with this IPv4 address.

        `port` is for unicast, 0 lets the system choose. `ttl` is how many routers a multicast passes, plus one. The
        multicast port and addresses follow from the domain's tag, so that two domains on one network do not even share
        them. A port without `multicast` still listens where it can. With `shared_memory` large frames on loopback are
        sent through it; if it is False they are only read, if None neither.
        """
        self._interface = packed_interface(interface)
        self._domain = domain
        self._buffer_bytes = buffer_bytes
        self._group_port = group_port(domain)
        self._needs_multicast = multicast
        self._channels: dict[Channel, socket.socket] = {}
        self._listeners: list[socket.socket] = []
        self._addresses: dict[Channel, tuple[str, int]] = {}
        self._endpoints: dict[tuple[str, int], Endpoint] = {}
        # The same for compiled code: by host and port in one number.
        self._places: dict[int, Endpoint] = {}
        # Addresses of destinations, in the forms of `socket` and of the kernel; None for what is no address.
        self._resolved: dict[Endpoint | Channel, tuple[tuple[str, int], bytes] | None] = {}
        # Cleared if the system turns out not to have the calls for many datagrams.
        self._batches = BATCHED
        # How often in a row the call for trains (True) and the one for many datagrams were refused.
        self._refusals = {True: 0, False: 0}
        self._receiver = _datagrams.Receiver() if BATCHED else None
        # Wall-clock time that never goes back: protocols compare it, people read it.
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_readable: Callable[[], None] | None = None
        # Frames of shared memory that was not mapped yet when their notes came.
        self._late: Arrived = []
        # Sockets that brought notes of late.
        self._noted: set[socket.socket] = set()
        self._closed = False
        self.waited_ns = 0
        """How long the data that was taken last had waited in the kernel; 0 where it does not tell."""

        self._socket = self._open((interface, port))
        try:
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, self._interface)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        except OSError as error:
            self._socket.close()
            raise HostError(f"interface {interface} takes no multicast: {error.strerror}") from error
        self.endpoint = Endpoint(*self._socket.getsockname())
        # Of all sockets, the one for unicast first.
        self._descriptors = [self._socket.fileno()]
        self._own_address = _HOST.unpack(socket.inet_aton(self.endpoint[0]))[0] << 16 | self.endpoint[1]
        self.unsendable = 0
        """Dropped datagrams that the system refused: too large, no route, no such address."""

        self.lost_on_purpose = 0
        """Arrived datagrams that were dropped on purpose (`lossy`)."""

        self.can_segment = _accepts(self._socket, UDP_SEGMENT)
        self.receive_buffer_bytes = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self.shared_memory: SharedMemory | None = None
        if shared_memory is not None and interface.startswith("127."):
            self.shared_memory = SharedMemory(
                self.endpoint, self.receive_buffer_bytes, self._send_quietly, writes=shared_memory
            )

    def _open(self, address: tuple[str, int]) -> socket.socket:
        try:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            raise no_socket_error(error) from error
        try:
            if address[1] == self._group_port:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                # Only what this socket joined, not what others on this computer did.
                made.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
            made.bind(address)
        except OSError as error:
            made.close()
            where = f"{address[0] or '*'}:{address[1]}"
            if error.errno != errno.EADDRINUSE:
                advice = "is it an address of this computer?"
            elif address[1] == self._group_port:
                advice = "another program has the port of this domain: choose another domain, or do without multicast"
            else:
                advice = "choose another port"
            raise HostError(f"cannot open UDP {where}: {error.strerror}; {advice}") from error
        _grow(made, SO_RCVBUFFORCE, socket.SO_RCVBUF, self._buffer_bytes)
        _grow(made, SO_SNDBUFFORCE, socket.SO_SNDBUF, self._buffer_bytes)
        _accepts(made, UDP_GRO, 1)
        with contextlib.suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        return made

    def now_ns(self) -> int:
        """Return the time since 1970; it never goes back."""
        return self._epoch_ns + time.monotonic_ns()

    def attach(self, on_readable: Callable[[], None]) -> None:
        """Call back, from the current event loop, whenever something can be read."""
        self._loop, self._on_readable = asyncio.get_running_loop(), on_readable
        for each in self.sockets:
            self._loop.add_reader(each, on_readable)
        if self.shared_memory is not None and self.shared_memory.local is not None:
            self._loop.add_reader(self.shared_memory.local, self._on_local_readable, self.shared_memory)

    def _on_local_readable(self, shared: SharedMemory) -> None:
        self._late += shared.on_local_readable()
        if self._late and self._on_readable is not None:
            self._on_readable()

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back once when the kernel has room again."""
        loop = self._loop
        assert loop is not None, "only an attached port can wait"

        def on_writable() -> None:
            loop.remove_writer(self._socket)
            callback()

        loop.add_writer(self._socket, on_writable)

    # Channels.

    def address_of(self, channel: Channel) -> tuple[str, int]:
        """Map a channel to its multicast address: 239/8 is for use inside an organisation (RFC 2365)."""
        known = self._addresses.get(channel)
        if known is None:
            if not 0 <= channel < 1 << 16:
                raise UsageError(f"channel {channel} has no multicast address; channels are 0 to 65535")
            known = (f"239.{self._domain % 254 + 1}.{channel >> 8}.{channel & 255}", self._group_port)
            self._addresses[channel] = known
        return known

    def listen(self, channel: Channel) -> None:
        """Listen on a channel. Without `multicast` this is an attempt that may fail silently."""
        if channel in self._channels:
            return
        try:
            self._listen(channel)
        except HostError:
            if self._needs_multicast:
                raise

    def _listen(self, channel: Channel) -> None:
        crowd = dict.fromkeys(self._listeners, 0)
        for listener in self._channels.values():
            crowd[listener] += 1
        free = next((listener for listener, count in crowd.items() if count < MEMBERSHIPS_MAX), None)
        if free is None:
            free = self._open(("", self._group_port))
            _ignore(free, self._own_address)
            self._listeners.append(free)
            if self._loop is not None and self._on_readable is not None:
                self._loop.add_reader(free, self._on_readable)
            self._descriptors.append(free.fileno())
        self._set_membership(free, socket.IP_ADD_MEMBERSHIP, channel)
        self._channels[channel] = free

    def unlisten(self, channel: Channel) -> None:
        """Stop listening on a channel."""
        listener = self._channels.pop(channel, None)
        if listener is not None:
            self._set_membership(listener, socket.IP_DROP_MEMBERSHIP, channel)

    def _set_membership(self, listener: socket.socket, option: int, channel: Channel) -> None:
        group = socket.inet_aton(self.address_of(channel)[0])
        try:
            listener.setsockopt(socket.IPPROTO_IP, option, _MEMBERSHIP.pack(group, self._interface))
        except OSError as error:
            raise HostError(f"channel {channel} cannot be joined or left: {error.strerror}") from error

    @property
    def sockets(self) -> list[socket.socket]:
        """All sockets that may have something to read."""
        return [self._socket, *self._listeners]

    # In and out.

    def receive(self, bytes_max: int) -> Arrived:
        """Drain all sockets, each up to about this many bytes: a token may wait in another than the one that woke us.

        Our own multicasts are left out; what we sent to ourselves is not.
        """
        taken, self._late = self._late, []
        brought: list[tuple[int, Arrived]] = []
        for each in self.sockets:
            if self._receiver is not None:
                self._receiver.waited_ns = 0
            arrived = self._receive_from(each, bytes_max)
            if arrived:
                brought.append((0 if self._receiver is None else self._receiver.waited_ns, arrived))
                taken += arrived
        self.waited_ns = _shortest_wait(brought)
        return taken

    def _receive_from(self, source: socket.socket, bytes_max: int) -> Arrived:
        shared = self.shared_memory
        if shared is None:
            return self._take(source, bytes_max)
        taken: Arrived = []
        while bytes_max > 0:
            # A note stands for up to half a megabyte: where notes come, take one datagram at a time.
            arrived = self._take(source, 1 if source in self._noted else bytes_max)
            if not arrived:
                break
            before, has_mark, has_note = len(taken), False, False
            for place, data in arrived:
                if data[:1] == MARK:
                    has_mark = True
                    has_note |= shared.read(place, data, taken)
                else:
                    taken.append((place, data))
            if has_note:
                self._noted.add(source)
            else:
                self._noted.discard(source)
            if not has_mark:
                break
            # `_take` ended with the mark, which may be a stranger's: there may be more.
            bytes_max -= sum([len(data) for _, data in taken[before:]]) + DATAGRAM_COST_BYTES * len(arrived)
        return taken

    def _take(self, source: socket.socket, bytes_max: int) -> Arrived:
        """Return datagrams up to about `bytes_max`, or up to those that were read together with a note."""
        own = None if source is self._socket else self.endpoint
        if self._receiver is not None:
            ours = -1 if own is None else self._own_address
            last = -1 if self.shared_memory is None else MARK[0]
            try:
                return self._receiver.receive(
                    source.fileno(), bytes_max, DATAGRAM_COST_BYTES, self._places, self._place_of, ours, JOINED, last
                )
            except OSError as error:
                if error.errno not in FORBIDDEN:
                    raise
                self._receiver = None
        known = self._endpoints
        taken: Arrived = []
        receive, append = source.recvfrom, taken.append
        while bytes_max > 0:
            try:
                data, address = receive(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionRefusedError:
                # An earlier datagram of ours met a closed port; this socket is fine.
                continue
            bytes_max -= len(data) + DATAGRAM_COST_BYTES
            endpoint = known.get(address)
            if endpoint is None:
                if len(known) >= ENDPOINTS_MAX:
                    known.clear()
                endpoint = known[address] = Endpoint(*address)
            if endpoint != own:
                append((endpoint, data))
        return taken

    def look(self, wait_ns: int) -> Arrived:
        """Return one datagram of any socket; if there is none, look again for at most `wait_ns`, without sleeping.

        Otherwise as `receive`. Looks only once where `_datagrams` is missing.
        """
        # Nobody looks for what has waited for long.
        self.waited_ns = 0
        if self._receiver is not None:
            arrived = self._receiver.look(self._descriptors, wait_ns, self._places, self._place_of, self._own_address)
            if self.shared_memory is None or not arrived or arrived[0][1][:1] != MARK:
                return arrived
            taken: Arrived = []
            self.shared_memory.read(*arrived[0], taken)
            return taken
        for each in [] if self._closed else self.sockets:
            taken = self._receive_from(each, 1)
            if taken:
                return taken
        return []

    def _place_of(self, address: int) -> Endpoint:
        """Make and cache the endpoint of an address."""
        if len(self._places) >= ENDPOINTS_MAX:
            self._places.clear()
        made = self._places[address] = Endpoint(socket.inet_ntoa(_HOST.pack(address >> 16)), address & 0xFFFF)
        return made

    def send(self, datagrams: Sequence[Datagram]) -> Sequence[Datagram]:
        """Hand datagrams to the kernel in their order; return those for which it had no room.

        A train that stopped in the middle comes back as the rest of it. What is too large, or has no route or address,
        is dropped as the network would: protocols repair or give up.
        """
        index = 0
        while index < len(datagrams):
            first = datagrams[index]
            resolved = self._resolve(first.destination)
            if resolved is None:
                self.unsendable += first.count
                index += 1
            elif first.segment:
                rest = self._send_train(first, *resolved)
                index += 1
                if rest is not None:
                    return [rest, *datagrams[index:]]
            else:
                taken = self._send_some(datagrams, index, *resolved)
                if not taken:
                    return datagrams[index:]
                index += taken
        return ()

    def _send_train(self, train: Datagram, address: tuple[str, int], packed: bytes) -> Datagram | None:
        """Send a train by one call, or its datagrams one by one where the kernel does not cut; return its rest."""
        if not self.can_segment:
            return self._send_cut(train)
        try:
            if BATCHED:
                _datagrams.send_train(self._socket.fileno(), train.data, UDP_SEGMENT, train.segment, packed)
            else:
                size = [(socket.IPPROTO_UDP, UDP_SEGMENT, _SEGMENT_SIZE.pack(train.segment))]
                self._socket.sendmsg((train.data,), size, 0, address)
        except OSError as error:
            if _has_no_room(error):
                return train
            if error.errno == errno.EINVAL:
                # This path does not take segments after all.
                self.can_segment = False
                return self._send_cut(train)
            if error.errno in FORBIDDEN:
                before = self.unsendable
                rest = self._send_cut(train)
                # A firewall refuses single datagrams too, a sandbox does not. ENOSYS needs no repetition.
                if self._is_refused_again(True, error, worked=self.unsendable == before):
                    self.can_segment = False
                return rest
            self.unsendable += train.count
        self._refusals[True] = 0
        return None

    def _send_cut(self, train: Datagram) -> Datagram | None:
        """Send the datagrams of a train; return the rest, as a train, if there was no room for it."""
        pieces = train.cut()
        left = len(self.send(pieces))
        if not left:
            return None
        rest = train.data[(len(pieces) - left) * train.segment :]
        return Datagram(train.destination, rest, train.priority, train.segment)

    def _send_some(self, datagrams: Sequence[Datagram], index: int, address: tuple[str, int], packed: bytes) -> int:
        """Send a datagram, and those behind it that can go with it; return how many, 0 if there was no room.

        One that the system refuses counts as sent.
        """
        refused: OSError | None = None
        if self._batches:
            try:
                taken = self._send_alike(datagrams, index, packed)
            except OSError as error:
                if _has_no_room(error):
                    return 0
                if error.errno not in FORBIDDEN:
                    self.unsendable += 1
                    self._refusals[False] = 0
                    return 1
                refused = error
            else:
                self._refusals[False] = 0
                return taken
        worked = True
        try:
            self._socket.sendto(bytes(datagrams[index].data), address)
        except OSError as error:
            if _has_no_room(error):
                return 0
            self.unsendable += 1
            worked = False
        if refused is not None and self._is_refused_again(False, refused, worked=worked):
            self._batches = False
        return 1

    def _is_refused_again(self, is_train: bool, error: OSError, *, worked: bool) -> bool:
        """Note that a call for trains, or for many datagrams, was refused; return whether to do without it.

        `worked` tells whether the plain call did what was refused.
        """
        if not worked:
            self._refusals[is_train] = 0
            return False
        self._refusals[is_train] += REFUSALS_MAX if error.errno == errno.ENOSYS else 1
        return self._refusals[is_train] >= REFUSALS_MAX

    def _resolve(self, where: Endpoint | Channel) -> tuple[tuple[str, int], bytes] | None:
        """Return the address of a destination in both forms; None if it is invalid, as a peer's claim may be."""
        try:
            return self._resolved[where]
        except KeyError:
            pass
        found = None
        with contextlib.suppress(UsageError, OSError, ValueError):
            host, port = where if type(where) is Endpoint else self.address_of(where)  # type: ignore[arg-type]
            if 0 < port < 1 << 16:
                # Numbers only: looking up a name would block the loop.
                numeric = socket.inet_pton(socket.AF_INET, host)
                found = (host, port), _ADDRESS.pack(socket.AF_INET, socket.htons(port), numeric)
        if len(self._resolved) >= ENDPOINTS_MAX:
            self._resolved.clear()
        self._resolved[where] = found
        return found

    def _send_alike(self, datagrams: Sequence[Datagram], start: int, packed: bytes) -> int:
        """Send datagrams to one destination by one call, or a note in place of large ones; return how many."""
        first = datagrams[start]
        where, priority, is_large = first.destination, first.priority, len(first.data) > LARGE_BYTES
        run: list[bytes] = []
        for each in datagrams[start : start + SEND_MAX]:
            if each.segment or each.destination != where or each.priority != priority:
                break
            if (len(each.data) > LARGE_BYTES) is not is_large:
                break
            run.append(each.data)
        if is_large and self.shared_memory is not None and priority is Priority.DATA:
            # Repairs go as datagrams: whoever asked may not be able to read shared memory.
            note, count = self.shared_memory.send(run)
            if count:
                _datagrams.send(self._socket.fileno(), [note], packed)
                return count
        # Copy: a frame may be sealed in shared memory.
        return _datagrams.send(self._socket.fileno(), [bytes(each) for each in run], packed)

    def _send_quietly(self, where: Endpoint, data: bytes) -> None:
        """Send a datagram; ignore errors."""
        with contextlib.suppress(OSError):
            self._socket.sendto(data, where)

    def close(self) -> None:
        """Close all sockets. May be called again."""
        if self._closed:
            return
        loop = self._loop
        for each in self.sockets:
            if loop is not None:
                loop.remove_reader(each)
                loop.remove_writer(each)
            each.close()
        if self.shared_memory is not None:
            if loop is not None and self.shared_memory.local is not None:
                loop.remove_reader(self.shared_memory.local)
            self.shared_memory.close()
        self._descriptors = []
        self._closed = True


def _shortest_wait(brought: list[tuple[int, Arrived]]) -> int:
    """Return the shortest wait of data, from how long the last datagram of each socket had waited and what that had.

    The shortest, so that no data looks as if it had come before it did. Tokens, which come by another socket than most
    data, do not count: data may have waited for longer.
    """
    if len(brought) > 1:
        brought = [each for each in brought if any(priority_of(data) is Priority.DATA for _, data in each[1])]
    return min((waited_ns for waited_ns, _ in brought), default=0)


def _has_no_room(error: OSError) -> bool:
    return error.errno in (errno.EAGAIN, errno.EINTR, errno.ENOBUFS)


def no_socket_error(error: OSError) -> HostError:
    """Return the error for a socket that could not be opened."""
    return HostError(f"cannot open a socket: {error.strerror}{open_files_advice(error)}")


def packed_interface(interface: str) -> bytes:
    """Return the address of an interface as the kernel has it, or raise a `UsageError`."""
    try:
        return socket.inet_pton(socket.AF_INET, interface)
    except (OSError, ValueError) as error:
        if _is_ipv6(interface):
            cause = f"interface {interface}: Vivum speaks IPv4 only; give the IPv4 address of the same interface"
            raise UsageError(cause) from error
        raise UsageError(f"{interface!r} is not an IPv4 address of an interface; try 127.0.0.1") from error


def _is_ipv6(interface: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, interface)
    except (OSError, ValueError):
        return False
    return True


def _accepts(made: socket.socket, option: int, value: int = 0) -> bool:
    try:
        made.setsockopt(socket.IPPROTO_UDP, option, value)
    except OSError:
        return False
    return True


def _ignore(made: socket.socket, sender: int) -> None:
    """Let the kernel drop what comes from one address (host and port in 48 bits), where it can.

    The kernel hands every multicast back to its sender, since others on the computer may want it. Each would wake the
    sender for nothing.
    """
    # A program of the classic packet filter (`linux/filter.h`); what is read begins with the UDP header.
    program = [
        (0x28, 0, 0, 0),  # source port
        (0x15, 0, 3, sender & 0xFFFF),
        (0x20, 0, 0, (-0x100000 + 12) & 0xFFFFFFFF),  # source address in the IP header
        (0x15, 0, 1, sender >> 16),
        (0x06, 0, 0, 0),  # drop
        (0x06, 0, 0, 0xFFFFFFFF),  # take
    ]
    code = ctypes.create_string_buffer(b"".join(_FILTER_STEP.pack(*step) for step in program))
    with contextlib.suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, _FILTER.pack(len(program), ctypes.addressof(code)))


def _grow(made: socket.socket, force: int, ask: int, size: int) -> None:
    """Ask for a large buffer: past the system's limit where we may, up to it otherwise."""
    try:
        made.setsockopt(socket.SOL_SOCKET, force, size)
    except OSError:
        made.setsockopt(socket.SOL_SOCKET, ask, size)
