# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: auto_pickle=False
"""The compiled scheduler, network and processors of the simulator.

The twins are `scheduler.py`, `network.py` and `processor.py`: same names, same events in the same order, same draws from
the same random sources. What the parts are for, and why they do what they do, is written there; change both or neither.

Times are 64-bit nanoseconds here, so a run ends before 292 simulated years.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.stdlib cimport realloc as c_realloc

from vivum.core.ids import Endpoint
from vivum.core.machine import Datagram, Delivery
from vivum.core.time import SECOND
from vivum.observe.trace import FrameDropped, FrameReceived, QueueMeasured
from vivum.sim.network import ETHERNET_BYTES, PACKET_BYTES_MAX, UDP_HEADER_BYTES
from vivum.sim.processor import QUANTUM_NS, WEIGH_NS
from vivum.wire.kinds import kind_name, priority_of

cdef extern from *:
    """
    /* Return factor * rate / divisor, rounded down; the product may need more than 64 bits. */
    static int64_t vivum_scaled(int64_t factor, int64_t rate, int64_t divisor) {
        int64_t product, quotient;
        if (!__builtin_mul_overflow(factor, rate, &product)) {
            quotient = product / divisor;
            return quotient - (product % divisor < 0);
        }
        __int128 wide = (__int128)factor * rate;
        return (int64_t)(wide / divisor) - (wide % divisor < 0);
    }
    """
    int64_t vivum_scaled(int64_t factor, int64_t rate, int64_t divisor) noexcept

cdef object ENDPOINT = Endpoint
cdef object ROUND = round
cdef object DATAGRAM = Datagram
cdef object DELIVERY = Delivery
cdef int64_t C_SECOND = SECOND
cdef int64_t C_QUANTUM = QUANTUM_NS
cdef int64_t C_WEIGH = WEIGH_NS
cdef int64_t C_UDP = UDP_HEADER_BYTES
cdef int64_t C_PACKET = PACKET_BYTES_MAX
cdef int64_t C_ETHERNET = ETHERNET_BYTES

cdef enum:
    # What an entry of the agenda is: anything to call, or one of our own, called without the interpreter.
    CALL = 0
    CROSS = 1
    ARRIVE = 2
    WAKE = 3
    KINDS = 4

    CONTROL = 0
    REPAIR = 1
    # No time to wake up, no timer: all times that are set are at least 0.
    UNSET = -1

# By the kind byte of a datagram that nobody has checked yet.
cdef uint8_t[256] PRIORITY_OF
cdef list NAME_OF = [kind_name(bytes((0, _kind))) for _kind in range(256)]
for _kind in range(256):
    PRIORITY_OF[_kind] = priority_of(bytes((0, _kind)))


cdef struct Entry:
    int64_t at_ns
    uint64_t order
    # Place of action and argument, and the kind, in one number.
    Py_ssize_t what


cdef inline bint is_before(Entry* one, Entry* other) noexcept:
    return one.at_ns < other.at_ns or (one.at_ns == other.at_ns and one.order < other.order)


@cython.final
cdef class Scheduler:
    """See the twin."""

    cdef readonly int64_t now_ns
    cdef readonly int64_t events
    cdef uint64_t _order
    # The heap itself has no objects, so that the garbage collector sees them all: they lie in a list, by place.
    cdef Entry* _heap
    cdef Py_ssize_t _count
    cdef Py_ssize_t _capacity
    cdef list _objects
    cdef Py_ssize_t* _free
    cdef Py_ssize_t _free_count

    def __cinit__(self):
        self._objects = []

    def __dealloc__(self):
        free(self._heap)
        free(self._free)

    def at(self, int64_t at_ns, action, argument=None):
        """Run `action(argument)` at a time, which is not in the past."""
        self.add(at_ns, CALL, action, argument)

    cdef int add(self, int64_t at_ns, Py_ssize_t kind, object action, object argument) except -1:
        cdef Py_ssize_t place, hole, parent
        cdef Entry made
        assert at_ns >= self.now_ns, f"scheduled {self.now_ns - at_ns} ns into the past"
        if self._count == self._capacity:
            self._grow()
        if self._free_count:
            self._free_count -= 1
            place = self._free[self._free_count]
            self._objects[place] = action
            self._objects[place + 1] = argument
        else:
            place = len(self._objects)
            self._objects.append(action)
            self._objects.append(argument)
        self._order += 1
        made.at_ns, made.order, made.what = at_ns, self._order, place * KINDS + kind
        hole = self._count
        self._count += 1
        while hole:
            parent = (hole - 1) >> 1
            if not is_before(&made, &self._heap[parent]):
                break
            self._heap[hole] = self._heap[parent]
            hole = parent
        self._heap[hole] = made
        return 0

    cdef int _grow(self) except -1:
        cdef Py_ssize_t capacity = max(64, 2 * self._capacity)
        cdef void* heap = c_realloc(self._heap, capacity * sizeof(Entry))
        if heap == NULL:
            raise MemoryError
        self._heap = <Entry*> heap
        cdef void* places = c_realloc(self._free, capacity * sizeof(Py_ssize_t))
        if places == NULL:
            raise MemoryError
        self._free = <Py_ssize_t*> places
        self._capacity = capacity
        return 0

    cdef void _take_first(self) noexcept:
        """Remove the first entry from the heap: the last one goes down from its place."""
        cdef Entry* heap = self._heap
        cdef Entry last
        cdef Py_ssize_t hole = 0, child = 1, count
        self._count -= 1
        count = self._count
        last = heap[count]
        while child < count:
            if child + 1 < count and is_before(&heap[child + 1], &heap[child]):
                child += 1
            if not is_before(&heap[child], &last):
                break
            heap[hole] = heap[child]
            hole = child
            child = 2 * hole + 1
        heap[hole] = last

    def run_until(self, int64_t stop_ns):
        """Do everything that is due before or at a time, then stand at that time."""
        cdef int64_t events = 0
        cdef Py_ssize_t kind, place
        cdef list objects = self._objects
        cdef object action, argument
        while self._count and self._heap[0].at_ns <= stop_ns:
            self.now_ns = self._heap[0].at_ns
            kind = self._heap[0].what % KINDS
            place = self._heap[0].what // KINDS
            self._take_first()
            action, argument = objects[place], objects[place + 1]
            objects[place] = objects[place + 1] = None
            self._free[self._free_count] = place
            self._free_count += 1
            events += 1
            if kind == ARRIVE:
                (<Processor> action).arrive(<Packet> argument)
            elif kind == WAKE:
                (<Processor> action).wake(argument)
            elif kind == CROSS:
                (<Network> action).cross(<Packet> argument)
            else:
                action(argument)
        self.events += events
        if self.now_ns < stop_ns:
            self.now_ns = stop_ns

    @property
    def idle(self):
        """Nothing will ever happen any more."""
        return not self._count


@cython.final
@cython.freelist(256)
cdef class Packet:
    """See the twin."""

    cdef readonly object source_node
    cdef readonly object source
    cdef readonly object destination
    cdef readonly object data
    cdef readonly int64_t wire_ns
    cdef Py_ssize_t size
    cdef object source_name

    def __init__(self, source_node, source, destination, data, int64_t wire_ns, source_name=None):
        self.source_node = source_node
        self.source = source
        self.destination = destination
        self.data = data
        self.wire_ns = wire_ns
        self.size = len(data)
        self.source_name = str(source) if source_name is None else source_name


cdef object kind_of(Packet packet):
    if PyBytes_CheckExact(packet.data) and packet.size > 1:
        return NAME_OF[<uint8_t> PyBytes_AS_STRING(packet.data)[1]]
    return kind_name(packet.data)


@cython.final
cdef class SimPort:
    """See the twin."""

    cdef readonly object host
    cdef readonly object rng
    cdef public int64_t egress_free_ns
    cdef public int64_t ingress_free_ns
    cdef readonly int64_t lost
    cdef readonly list loss
    cdef readonly list duplicates
    cdef readonly list reorders
    cdef readonly list blocks
    cdef readonly bint disturbed
    cdef object _random
    cdef object _name
    cdef bint _has_processor

    def __init__(self, host, rng):
        self.host = host
        self.rng = rng
        self.loss = []
        self.duplicates = []
        self.reorders = []
        self.blocks = []
        self._random = rng.random
        # For traces: naming a sender anew for each arrival costs more than the arrival.
        self._name = str(host.endpoint)
        # A host that takes arrivals in its own way is called by the interpreter.
        self._has_processor = isinstance(host, Processor) and type(host).on_arrival is Processor.on_arrival

    def update(self):
        """Note whether any fault is on, so that a healthy link pays one test for all of them."""
        self.disturbed = bool(self.loss or self.blocks or self.duplicates or self.reorders)

    def heal(self):
        """End all faults of the link."""
        for faults in (self.loss, self.duplicates, self.reorders, self.blocks):
            faults.clear()
        self.update()


@cython.final
cdef class Network:
    """See the twin."""

    cdef readonly object profile
    cdef readonly int64_t arrivals
    cdef readonly dict losses
    cdef Scheduler _scheduler
    cdef dict _ports
    cdef dict _by_endpoint
    cdef dict _listeners
    cdef int64_t _bandwidth_bps
    cdef int64_t _delay_ns
    cdef int64_t _jitter_ns
    cdef int64_t _egress_bytes_max
    cdef int64_t _ingress_bytes_max

    def __init__(self, Scheduler scheduler not None, profile):
        self.profile = profile
        self.losses = {}
        self._scheduler = scheduler
        self._ports = {}
        self._by_endpoint = {}
        self._listeners = {}
        self._bandwidth_bps = profile.bandwidth_bps
        self._delay_ns = profile.delay_ns
        self._jitter_ns = profile.jitter_ns
        self._egress_bytes_max = profile.egress_bytes_max
        self._ingress_bytes_max = profile.ingress_bytes_max

    def attach(self, host, rng):
        """Plug a host in."""
        port = SimPort(host, rng)
        self._ports[host.node_id] = port
        self._by_endpoint[host.endpoint] = port
        return port

    def port(self, node):
        """Return the link of a host."""
        return self._ports[node]

    def listen(self, channel, node):
        """Let a host hear a channel."""
        self._listeners.setdefault(channel, {})[node] = self._ports[node]

    def unlisten(self, channel, node):
        """Let a host no longer hear a channel."""
        self._listeners.get(channel, {}).pop(node, None)

    def unlisten_all(self, node):
        """A host went down: it hears nothing."""
        for listeners in self._listeners.values():
            listeners.pop(node, None)

    def wire_time_ns(self, payload_bytes):
        """Return how long a datagram occupies a link."""
        return self._wire_time(payload_bytes)

    cdef int64_t _wire_time(self, int64_t payload_bytes) noexcept:
        cdef int64_t total = payload_bytes + C_UDP
        cdef int64_t packets = (total + C_PACKET - 1) // C_PACKET
        return vivum_scaled(8 * (total + packets * C_ETHERNET), C_SECOND, self._bandwidth_bps)

    def egress_room_bytes(self, SimPort port not None):
        """Return how many bytes the sender's interface would still queue: what a non-blocking socket would take."""
        return self.egress_room(port)

    cdef int64_t egress_room(self, SimPort port) noexcept:
        cdef int64_t backlog_ns = port.egress_free_ns - self._scheduler.now_ns
        if backlog_ns <= 0:
            return self._egress_bytes_max
        return self._egress_bytes_max - vivum_scaled(backlog_ns, self._bandwidth_bps, 8 * C_SECOND)

    def send(self, SimPort port not None, int64_t at_ns, destination, data):
        """Queue a datagram at the sender's interface at a time that is not in the past."""
        cdef int64_t wire_ns = self._wire_time(len(data))
        if port.egress_free_ns > at_ns:
            at_ns = port.egress_free_ns
        port.egress_free_ns = at_ns + wire_ns
        host = port.host
        packet = Packet(host.node_id, host.endpoint, destination, data, wire_ns, port._name)
        self._scheduler.add(port.egress_free_ns, CROSS, self, packet)

    cdef int cross(self, Packet packet) except -1:
        """The datagram has left the sender: schedule its arrivals."""
        cdef dict listeners
        cdef SimPort port
        if type(packet.destination) is ENDPOINT:
            port = self._by_endpoint.get(packet.destination)
            if port is not None:
                self._arrive_at(port, packet)
            return 0
        listeners = self._listeners.get(packet.destination)
        if listeners is None:
            return 0
        source_node = packet.source_node
        for node, each in listeners.items():
            if node is not source_node and node != source_node:
                self._arrive_at(<SimPort> each, packet)
        return 0

    cdef int _arrive_at(self, SimPort port, Packet packet) except -1:
        cdef int64_t now_ns, free_ns, queued_bytes
        if port.disturbed and self._disturb(port, packet):
            return 0
        now_ns = self._scheduler.now_ns + self._delay_ns
        if self._jitter_ns:
            now_ns += <int64_t> (<double> port._random() * <double> self._jitter_ns)
        free_ns = port.ingress_free_ns
        if free_ns > now_ns:
            # Arrivals keep their order, so one that is late by jitter makes others late: that much is no queue.
            queued_bytes = vivum_scaled(free_ns - now_ns - self._jitter_ns, self._bandwidth_bps, 8 * C_SECOND)
            if queued_bytes + packet.size > self._ingress_bytes_max:
                self.drop(port, packet, "switch queue full")
                return 0
            now_ns = free_ns
        port.ingress_free_ns = now_ns + packet.wire_ns
        return self._hand_over(port, packet, port.ingress_free_ns)

    cdef int _hand_over(self, SimPort port, Packet packet, int64_t at_ns) except -1:
        self.arrivals += 1
        if port._has_processor:
            return self._scheduler.add(at_ns, ARRIVE, port.host, packet)
        return self._scheduler.add(at_ns, CALL, port.host.on_arrival, packet)

    cdef bint _disturb(self, SimPort port, Packet packet) except? True:
        """Apply the faults of a link; return whether the datagram was lost or is taken care of."""
        for sources in port.blocks:
            if packet.source_node in sources:
                self.drop(port, packet, "partition")
                return True
        rng = port.rng
        for model in port.loss:
            if model.loses(rng):
                self.drop(port, packet, "link")
                return True
        for probability in port.duplicates:
            if rng.random() < probability:
                self._late_arrival(port, packet, int(rng.random() * self._delay_ns * 4))
        for probability, delay_ns in port.reorders:
            if rng.random() < probability:
                self._late_arrival(port, packet, int(rng.random() * delay_ns))
                return True
        return False

    cdef int _late_arrival(self, SimPort port, Packet packet, int64_t extra_ns) except -1:
        return self._hand_over(port, packet, self._scheduler.now_ns + self._delay_ns + packet.wire_ns + extra_ns)

    def drop(self, SimPort port not None, Packet packet not None, cause):
        """Count, trace and forget a datagram that did not make it to a host."""
        self.losses[cause] = self.losses.get(cause, 0) + 1
        port.lost += 1
        host = port.host
        if host.frame_trace is not None:
            host.frame_trace(
                FrameDropped(
                    self._scheduler.now_ns,
                    host.node_id,
                    host.incarnation,
                    packet.source_name,
                    kind_of(packet),
                    packet.size,
                    cause,
                )
            )


@cython.final
cdef class Queue:
    """Packets in the order of their coming."""

    cdef list _packets
    cdef Py_ssize_t _first
    cdef Py_ssize_t count

    def __cinit__(self):
        self._packets = []

    cdef int add(self, Packet packet) except -1:
        self._packets.append(packet)
        self.count += 1
        return 0

    cdef Packet take(self):
        cdef Packet packet = <Packet> self._packets[self._first]
        self._packets[self._first] = None
        self._first += 1
        self.count -= 1
        if not self.count:
            self.clear()
        elif self._first >= 64 and self._first > self.count:
            del self._packets[: self._first]
            self._first = 0
        return packet

    cdef int clear(self) except -1:
        self._packets.clear()
        self._first = self.count = 0
        return 0


cdef class Processor:
    """See the twin."""

    cdef readonly object node_id
    cdef readonly object endpoint
    cdef readonly object incarnation
    cdef readonly object profile
    cdef readonly object clock
    cdef readonly object frame_trace
    cdef public object node
    cdef public int64_t slowness
    cdef public object on_room
    cdef public object on_delivery
    cdef public object _effects_left
    cdef readonly SimPort port
    cdef readonly Scheduler _scheduler
    cdef readonly Network _network
    # A clock that does not drift is a sum; one that does is asked.
    cdef bint _drifts
    cdef int64_t _offset_ns
    cdef int64_t _receive_cost_ns
    cdef int64_t _send_cost_ns
    cdef int64_t _socket_bytes_max
    cdef int64_t _inbox_bytes_max
    cdef double _memory_cost
    cdef int64_t _busy_until_ns
    cdef int64_t _asleep_until_ns
    cdef int64_t _wake_ns
    cdef int64_t _timer_ns
    cdef int64_t _timer_deadline_ns
    cdef Queue _socket
    cdef readonly int64_t _socket_bytes
    cdef int64_t _socket_bytes_high
    cdef Queue _controls
    cdef Queue _repairs
    cdef Queue _datas
    cdef readonly int64_t _inbox_bytes
    cdef double _weight
    cdef int64_t _weighed_ns

    def __init__(self, node_id, Scheduler scheduler not None, Network network not None, profile, clock, rng, frame_trace):
        self.node_id = node_id
        self.endpoint = ENDPOINT(f"node-{node_id}", 1)
        self.incarnation = 0
        self.profile = profile
        self.clock = clock
        self.frame_trace = frame_trace
        self.slowness = 1
        self._scheduler = scheduler
        self._network = network
        self._drifts = clock.drift_ppm != 0
        self._offset_ns = clock.offset_ns
        self._receive_cost_ns = profile.receive_cost_ns
        self._send_cost_ns = profile.send_cost_ns
        self._socket_bytes_max = profile.socket_bytes_max
        self._inbox_bytes_max = profile.inbox_bytes_max
        self._memory_cost = profile.memory_cost
        self._wake_ns = self._timer_ns = UNSET
        self._socket, self._controls, self._repairs, self._datas = Queue(), Queue(), Queue(), Queue()
        self._weight = 1.0
        self._weighed_ns = -C_WEIGH
        self.port = network.attach(self, rng)

    # Life and sleep.

    def _begin(self):
        self.incarnation += 1
        self._busy_until_ns = self._asleep_until_ns = self._scheduler.now_ns

    def _end(self):
        self.node = None
        self._socket.clear()
        self._socket_bytes = 0
        self._controls.clear()
        self._repairs.clear()
        self._datas.clear()
        self._inbox_bytes = 0
        self._timer_ns = self._wake_ns = UNSET

    def pause(self, int64_t duration_ns):
        """Sleep, as a process does that is not scheduled: arrivals pile up in the socket buffer."""
        if self.node is None:
            return
        self._asleep_until_ns = max(self._asleep_until_ns, self._scheduler.now_ns + duration_ns)
        self._busy_until_ns = max(self._busy_until_ns, self._asleep_until_ns)

    @property
    def is_asleep(self):
        """Return whether a pause is on."""
        return self.node is not None and self._asleep_until_ns > self._scheduler.now_ns

    def wake_up(self):
        """End a pause before its time."""
        if self.is_asleep:
            self._busy_until_ns = self._asleep_until_ns = self._scheduler.now_ns
            # A timer that came due meanwhile waits for the end of the pause: set it anew.
            self._timer_ns = UNSET
            self._wake_at(self._scheduler.now_ns)

    # Arrivals.

    def on_arrival(self, Packet packet not None):
        """Take a datagram from the link: handle it if the processor is free, else let it wait in the socket."""
        self.arrive(packet)

    cdef int arrive(self, Packet packet) except -1:
        cdef int64_t now_ns
        if self.node is None:
            self._network.drop(self.port, packet, "host down")
            return 0
        now_ns = self._scheduler.now_ns
        if now_ns >= self._busy_until_ns and not self._inbox_bytes and not self._socket.count:
            self.go_on(self._handle(packet))
            return 0
        if self._socket_bytes + packet.size > self._socket_bytes_max:
            self._network.drop(self.port, packet, "socket buffer full")
            return 0
        self._socket.add(packet)
        self._socket_bytes += packet.size
        if self._socket_bytes > self._socket_bytes_high:
            self._measure_socket()
        return self._wake_at(max(self._busy_until_ns, now_ns))

    cdef int _measure_socket(self) except -1:
        self._socket_bytes_high = self._socket_bytes
        if self.frame_trace is not None:
            self.frame_trace(
                QueueMeasured(
                    self._scheduler.now_ns,
                    self.node_id,
                    self.incarnation,
                    "socket",
                    self._socket_bytes,
                    self._socket_bytes_max,
                    "bytes",
                )
            )
        return 0

    # Handling.

    cdef int _wake_at(self, int64_t at_ns) except -1:
        if self._wake_ns == UNSET or at_ns < self._wake_ns:
            self._wake_ns = at_ns
            self._scheduler.add(at_ns, WAKE, self, self.incarnation)
        return 0

    def _wake_now(self):
        self._wake_at(max(self._busy_until_ns, self._scheduler.now_ns))

    cdef int wake(self, incarnation) except -1:
        cdef int64_t cost_ns = 0, now_ns = self._scheduler.now_ns
        if self.node is None or incarnation != self.incarnation or self._wake_ns != now_ns:
            return 0
        self._wake_ns = UNSET
        if now_ns < self._busy_until_ns:
            return self._wake_at(self._busy_until_ns)
        self._drain()
        cost_ns = self._handle_all(self._controls, cost_ns)
        cost_ns = self._handle_all(self._repairs, cost_ns)
        cost_ns = self._handle_all(self._datas, cost_ns)
        if self._timer_ns != UNSET and self._timer_ns <= now_ns:
            # Between two quanta of input, or a host with always more to read would never get to its timers.
            self._timer_ns = UNSET
            self.node.on_timer(self._local(now_ns))
        self.go_on(cost_ns)
        return 0

    cdef int64_t _handle_all(self, Queue queue, int64_t cost_ns) except -1:
        cdef Packet packet
        while queue.count and cost_ns < C_QUANTUM:
            packet = queue.take()
            self._inbox_bytes -= packet.size
            cost_ns += self._handle(packet)
        return cost_ns

    cdef int _drain(self) except -1:
        """Empty the socket into the host's own memory, by priority, as far as that may grow."""
        cdef Packet packet
        cdef int priority
        while self._socket.count and self._inbox_bytes < self._inbox_bytes_max:
            packet = self._socket.take()
            self._socket_bytes -= packet.size
            self._inbox_bytes += packet.size
            if PyBytes_CheckExact(packet.data) and packet.size > 1:
                priority = PRIORITY_OF[<uint8_t> PyBytes_AS_STRING(packet.data)[1]]
            else:
                priority = priority_of(packet.data)
            if priority == CONTROL:
                self._controls.add(packet)
            elif priority == REPAIR:
                self._repairs.add(packet)
            else:
                self._datas.add(packet)
        return 0

    cdef object _local(self, int64_t now_ns):
        return self.clock.local_ns(now_ns) if self._drifts else now_ns + self._offset_ns

    cdef int64_t _handle(self, Packet packet) except -1:
        cdef int64_t now_ns = self._scheduler.now_ns
        if self.frame_trace is not None:
            self.frame_trace(
                FrameReceived(
                    now_ns, self.node_id, self.incarnation, packet.source_name, kind_of(packet), packet.size
                )
            )
        self.node.on_datagrams(self._local(now_ns), ((packet.source, packet.data),))
        return self.dearer(self._receive_cost_ns)

    cdef int64_t dearer(self, int64_t cost_ns) except -1:
        cdef int64_t now_ns
        cost_ns *= self.slowness
        if not self._memory_cost:
            return cost_ns
        now_ns = self._scheduler.now_ns
        if now_ns - self._weighed_ns >= C_WEIGH:
            self._weighed_ns = now_ns
            self._weight = 1.0 + self._memory_cost * <double> self.node.held_bytes / 1e6
        # As Python rounds, to even: C does not.
        return ROUND(<double> cost_ns * self._weight)

    # After handling.

    # What hosts call has two forms: a C function that is also a Python method would look for one of a subclass first.

    def _go_on(self, int64_t cost_ns):
        """Let the node say what it has to say, be busy for as long as all this takes, and see when to go on."""
        self.go_on(cost_ns)

    cdef int go_on(self, int64_t cost_ns) except -1:
        node = self.node
        cdef int64_t now_ns = self._scheduler.now_ns
        cdef int64_t done_ns = now_ns + cost_ns
        cdef int64_t room_bytes = self._network.egress_room(self.port)
        cdef int64_t sent_bytes
        cdef bint hurried = False
        while output := node.take_output(room_bytes):
            sent_bytes = self._carry_out(output, &done_ns)
            if self.node is not node:
                return 0
            if not sent_bytes:
                break
            room_bytes = max(0, room_bytes - sent_bytes)
            if done_ns - now_ns > C_QUANTUM:
                hurried = True
                break
        if self._busy_until_ns < done_ns:
            self._busy_until_ns = done_ns
        # With room and time left the node has sealed all that it could: no need to ask.
        if self._socket.count or self._inbox_bytes or ((hurried or room_bytes <= 0) and node.has_data):
            self._wake_when_able(room_bytes)
        self._arm_timer(node)
        if self.on_room is not None:
            self.on_room(self)
        return 0

    cdef int64_t _carry_out(self, list effects, int64_t* done_ns) except -1:
        cdef int64_t cost_ns = self.dearer(self._send_cost_ns), sent_bytes = 0
        node = self.node
        for effect in effects:
            kind = type(effect)
            if kind is DELIVERY:
                if self.on_delivery is not None:
                    self.on_delivery(self, effect)
            elif kind is DATAGRAM:
                sent_bytes += len(effect.data)
                if self.frame_trace is not None:
                    self._trace_sent(effect)
                for each in effect.cut():
                    done_ns[0] += cost_ns
                    self._network.send(self.port, done_ns[0], each.destination, each.data)
            else:
                self._do(effect)
            if self._effects_left is not None:
                self.crash_after(self._effects_left - 1)
            if self.node is not node:
                break
        return sent_bytes

    cdef int _wake_when_able(self, int64_t room_bytes) except -1:
        cdef int64_t able_ns = max(self._busy_until_ns, self._scheduler.now_ns)
        if room_bytes <= 0 and not self._socket.count and not self._inbox_bytes:
            # Only new data waits: come back when half of the interface's queue has gone out.
            # Rounded up: a wake-up at this very instant would find no more room, for ever.
            able_ns = max(able_ns, (self._scheduler.now_ns + self.port.egress_free_ns + 1) // 2)
        return self._wake_at(able_ns)

    # Timers.

    cdef int _arm_timer(self, node) except -1:
        cdef int64_t deadline_ns
        due = node.next_deadline_ns()
        if due is None:
            return 0
        deadline_ns = due
        if self._timer_ns != UNSET and deadline_ns >= self._timer_deadline_ns:
            return 0
        self._timer_deadline_ns = deadline_ns
        self._timer_ns = self.clock.true_ns(due) if self._drifts else deadline_ns - self._offset_ns
        if self._timer_ns < self._scheduler.now_ns:
            self._timer_ns = self._scheduler.now_ns
        self._scheduler.add(self._timer_ns, CALL, self._on_timer, (self.incarnation, self._timer_ns))
        return 0

    def _on_timer(self, tuple armed):
        cdef int64_t now_ns
        incarnation, at_ns = armed
        if self.node is None or incarnation != self.incarnation or at_ns != self._timer_ns:
            return
        now_ns = self._scheduler.now_ns
        if now_ns < self._busy_until_ns:
            # Timers fire late on a busy or sleeping host (seed 004, Figures 30 and 31).
            self._timer_ns = self._busy_until_ns
            self._scheduler.add(self._timer_ns, CALL, self._on_timer, (incarnation, self._timer_ns))
            return
        self._timer_ns = UNSET
        self.node.on_timer(self._local(now_ns))
        self.go_on(0)
