"""A simulated computer: its buffer, its processor, its clock, its deaths."""

from collections.abc import Callable
from typing import Any

from vivum.core.ids import Channel, GroupId, NodeId
from vivum.core.time import MICROSECOND, MILLISECOND, SECOND
from vivum.observe.trace import FrameSent, NodeStarted, NodeStopped
from vivum.protocols.commands import JoinGroup, SendMessages
from vivum.protocols.reference.settings import ReferenceSettings
from vivum.sim.clock import DriftingClock
from vivum.wire.kinds import Kind

MakeRig = Callable[..., Any]
GROUP = GroupId(7)


def of_kind(kind: Kind, size: int = 40) -> bytes:
    """Bytes that look like a frame of a kind to the host; the node refuses them."""
    return bytes([1, kind]).ljust(size, b"\0")


def sent(rig: Any, node: int, kind: str) -> list[int]:
    return [
        record.time_ns
        for record in rig.trace.records
        if isinstance(record, FrameSent) and (record.node, record.frame) == (node, kind)
    ]


def join_all(rig: Any) -> None:
    for host in rig.hosts.values():
        assert host.submit(JoinGroup(GROUP, Channel(GROUP), list(rig.hosts)))
    rig.scheduler.run_until(rig.scheduler.now_ns + 1)


# The socket buffer.


def test_what_does_not_fit_the_socket_buffer_of_a_sleeping_host_is_lost(make_rig: MakeRig) -> None:
    rig = make_rig(socket_bytes_max=1000)
    rig.host(2).pause(SECOND)
    for _ in range(15):
        rig.send(1, 2, bytes(100))
    rig.scheduler.run_until(SECOND - 1)
    assert rig.received(2) == []
    assert rig.dropped("socket buffer full") == [100] * 5
    rig.scheduler.run_until(SECOND)
    assert rig.received(2) == [(SECOND, 100)] * 10


def test_what_does_not_fit_the_socket_buffer_of_a_busy_host_is_lost(make_rig: MakeRig) -> None:
    rig = make_rig(bandwidth_bps=1_000_000_000, receive_cost_ns=10 * MILLISECOND, socket_bytes_max=500)
    for _ in range(20):
        rig.send(1, 2, bytes(100))
    rig.scheduler.run_until(SECOND)
    # One is handled at once, five wait in the socket, the others find it full.
    assert len(rig.received(2)) == 6
    assert len(rig.dropped("socket buffer full")) == 14


def test_the_memory_into_which_a_socket_is_drained_has_an_end_too(make_rig: MakeRig) -> None:
    rig = make_rig(bandwidth_bps=1_000_000_000, receive_cost_ns=MILLISECOND, socket_bytes_max=1000, inbox_bytes_max=200)
    for number in range(40):
        rig.send(1, 2, bytes(100), at_ns=number * 100 * MICROSECOND)
    rig.scheduler.run_until(SECOND)
    assert rig.dropped("socket buffer full")
    assert len(rig.received(2)) + len(rig.dropped("socket buffer full")) == 40


# The processor.


def test_a_host_drains_its_socket_and_then_handles_control_before_repairs_before_data(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.host(2).pause(100 * MILLISECOND)
    for kind in (Kind.DATA, Kind.RESENT, Kind.ACK, Kind.DATA, Kind.NAK, Kind.RESENT, Kind.HEARTBEAT):
        rig.send(1, 2, of_kind(kind))
    rig.scheduler.run_until(SECOND)
    assert rig.kinds(2) == ["ACK", "NAK", "HEARTBEAT", "RESENT", "RESENT", "DATA", "DATA"]


def test_what_arrives_in_the_middle_of_much_work_is_looked_at_after_a_quantum(make_rig: MakeRig) -> None:
    rig = make_rig(receive_cost_ns=500 * MICROSECOND, bandwidth_bps=1_000_000_000)
    rig.host(2).pause(MILLISECOND)
    for _ in range(8):
        rig.send(1, 2, of_kind(Kind.DATA))
    rig.send(1, 2, of_kind(Kind.ACK), at_ns=1200 * MICROSECOND)
    rig.scheduler.run_until(SECOND)
    # A quantum of 1 ms is two of the eight; then the ACK that came meanwhile goes first.
    assert rig.kinds(2) == ["DATA"] * 2 + ["ACK"] + ["DATA"] * 6


def test_a_host_handles_about_one_datagram_for_each_processing_cost(make_rig: MakeRig) -> None:
    rig = make_rig(receive_cost_ns=100 * MICROSECOND, bandwidth_bps=1_000_000_000, socket_bytes_max=10_000)
    for number in range(20_000):
        rig.send(1, 2, bytes(40), at_ns=number * 50 * MICROSECOND)
    rig.scheduler.run_until(SECOND)
    assert 9_900 <= len(rig.received(2)) <= 10_100


def test_a_host_that_is_slow_by_a_factor_handles_so_many_times_less(make_rig: MakeRig) -> None:
    rig = make_rig(receive_cost_ns=100 * MICROSECOND, bandwidth_bps=1_000_000_000, socket_bytes_max=10_000)
    rig.host(2).slowness = 10
    for number in range(10_000):
        rig.send(1, 2, bytes(40), at_ns=number * 100 * MICROSECOND)
    rig.scheduler.run_until(SECOND)
    assert 990 <= len(rig.received(2)) <= 1_010


def test_new_data_is_not_sealed_while_the_interface_is_full(make_rig: MakeRig) -> None:
    # At 8 Mbit a frame of 1,000 bytes takes a millisecond; the interface queues four of them.
    rig = make_rig(egress_bytes_max=4_000)
    join_all(rig)
    payloads = [bytes(900)] * 100
    assert rig.host(1).submit(SendMessages(GROUP, payloads))
    high = 0
    for at_ms in range(1, 150):
        rig.scheduler.run_until(at_ms * MILLISECOND)
        backlog_ns = rig.port(1).egress_free_ns - rig.scheduler.now_ns
        high = max(high, backlog_ns)
    assert len(sent(rig, 1, "DATA")) == 100
    # It left at the pace of the link: four frames were queued, the one that filled the room, and their headers.
    assert high <= 5_300 * MICROSECOND
    assert sent(rig, 1, "DATA")[-1] > 90 * MILLISECOND


def test_a_host_with_room_for_one_byte_still_sends_everything(make_rig: MakeRig) -> None:
    rig = make_rig(egress_bytes_max=1, bandwidth_bps=1_000_000_000_000)
    join_all(rig)
    assert rig.host(1).submit(SendMessages(GROUP, [bytes(1400)] * 20))
    rig.scheduler.run_until(10 * MILLISECOND)
    assert len(sent(rig, 1, "DATA")) == 20


# Pauses.


def test_timers_of_a_sleeping_host_fire_when_it_wakes(make_rig: MakeRig) -> None:
    rig = make_rig()
    join_all(rig)
    assert rig.host(1).submit(SendMessages(GROUP, [b"x"]))
    rig.scheduler.run_until(5 * MILLISECOND)
    rig.host(2).pause(500 * MILLISECOND)
    rig.scheduler.run_until(500 * MILLISECOND)
    # The acknowledgement was due 20 ms after the frame.
    assert sent(rig, 2, "ACK") == []
    rig.scheduler.run_until(SECOND)
    assert sent(rig, 2, "ACK")[0] == 505 * MILLISECOND


def test_a_host_that_is_woken_early_does_what_is_due_then(make_rig: MakeRig) -> None:
    rig = make_rig()
    join_all(rig)
    assert rig.host(1).submit(SendMessages(GROUP, [b"x"]))
    rig.scheduler.run_until(5 * MILLISECOND)
    rig.host(2).pause(5 * SECOND)
    rig.send(1, 2, of_kind(Kind.DATA))
    rig.scheduler.run_until(300 * MILLISECOND)
    rig.host(2).wake_up()
    rig.scheduler.run_until(400 * MILLISECOND)
    assert rig.received(2)[-1][0] == 300 * MILLISECOND
    assert sent(rig, 2, "ACK")[0] == 300 * MILLISECOND


def test_waking_a_host_that_is_only_busy_does_not_free_its_processor(make_rig: MakeRig) -> None:
    rig = make_rig(receive_cost_ns=10 * MILLISECOND)
    rig.send(1, 2, bytes(10))
    rig.send(1, 2, bytes(10))
    rig.scheduler.run_until(MILLISECOND)
    rig.host(2).wake_up()
    rig.scheduler.run_until(SECOND)
    first, second = (at_ns for at_ns, _ in rig.received(2))
    assert second - first == 10 * MILLISECOND


def test_a_short_pause_inside_a_long_one_does_not_end_it(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.host(2).pause(100 * MILLISECOND)
    rig.scheduler.run_until(10 * MILLISECOND)
    rig.host(2).pause(10 * MILLISECOND)
    rig.send(1, 2, bytes(10))
    rig.scheduler.run_until(50 * MILLISECOND)
    assert rig.host(2).is_asleep
    assert rig.received(2) == []
    rig.scheduler.run_until(SECOND)
    assert [at_ns for at_ns, _ in rig.received(2)] == [100 * MILLISECOND]


def test_an_application_sleeps_with_its_host(make_rig: MakeRig) -> None:
    rig = make_rig()
    join_all(rig)
    rig.host(1).pause(100 * MILLISECOND)
    assert not rig.host(1).submit(SendMessages(GROUP, [b"x"]))
    rig.scheduler.run_until(rig.scheduler.now_ns + 100 * MILLISECOND)
    assert rig.host(1).submit(SendMessages(GROUP, [b"x"]))


# Life and death.


def test_what_waited_in_the_buffers_of_a_host_dies_with_it(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.host(2).pause(100 * MILLISECOND)
    for _ in range(5):
        rig.send(1, 2, bytes(100))
    rig.scheduler.run_until(50 * MILLISECOND)
    rig.host(2).crash()
    rig.host(2).start()
    rig.scheduler.run_until(SECOND)
    assert rig.received(2) == []
    assert rig.host(2)._socket_bytes == rig.host(2)._inbox_bytes == 0


def test_what_arrives_at_a_dead_host_is_lost_and_counted(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.host(2).crash()
    rig.send(1, 2, bytes(100))
    rig.send(1, None, bytes(100))
    rig.scheduler.run_until(SECOND)
    # The unicast finds the host down; the multicast is not even sent there, nobody listens.
    assert rig.dropped("host down") == [100]
    assert len(rig.received(3)) == 1


def test_a_host_that_starts_again_has_a_new_incarnation_and_knows_nothing(make_rig: MakeRig) -> None:
    rig = make_rig()
    join_all(rig)
    first = rig.host(2).node
    rig.host(2).crash()
    assert not rig.host(2).submit(SendMessages(GROUP, [b"x"]))
    rig.scheduler.run_until(MILLISECOND)
    rig.host(2).start()
    assert rig.host(2).node is not first
    assert rig.host(2).node.member == (2, 2)
    life = [
        (type(record), record.incarnation)
        for record in rig.trace.records
        if record.node == 2 and isinstance(record, NodeStarted | NodeStopped)
    ]
    assert life == [(NodeStarted, 1), (NodeStopped, 1), (NodeStarted, 2)]


def test_timers_and_wake_ups_of_a_former_life_do_not_reach_the_next(make_rig: MakeRig) -> None:
    rig = make_rig()
    join_all(rig)
    assert rig.host(1).submit(SendMessages(GROUP, [b"x"]))
    rig.scheduler.run_until(5 * MILLISECOND)
    rig.host(1).crash()
    rig.host(1).start()
    rig.scheduler.run_until(SECOND)
    # The former life had heartbeats to send; this one has sent nothing, so it has none.
    assert sent(rig, 1, "HEARTBEAT") == []


def test_a_crash_of_a_dead_host_is_nothing(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.host(2).crash()
    rig.host(2).crash()
    rig.host(2).pause(SECOND)
    assert not rig.host(2).is_asleep
    assert [type(record) for record in rig.trace.records if record.node == 2] == [NodeStarted, NodeStopped]


# The clock.


def test_a_node_lives_by_the_clock_of_its_host(make_rig: MakeRig) -> None:
    # Twice as fast a clock: an acknowledgement that is due after 20 ms comes after 10.
    settings = ReferenceSettings(ack_delay_ns=20 * MILLISECOND)
    rig = make_rig(clock=DriftingClock(offset_ns=SECOND, drift_ppm=1_000_000), settings=settings)
    join_all(rig)
    assert rig.host(1).submit(SendMessages(GROUP, [b"x"]))
    rig.scheduler.run_until(SECOND)
    assert rig.host(2).local_now_ns == 3 * SECOND
    arrived = rig.received(NodeId(2))[0][0]
    assert sent(rig, 2, "ACK")[0] == arrived + 10 * MILLISECOND


# Timers and load.


def test_timers_fire_between_quanta_on_a_host_that_always_has_more_to_read(make_rig: MakeRig) -> None:
    rig = make_rig(receive_cost_ns=100 * MICROSECOND, bandwidth_bps=1_000_000_000, socket_bytes_max=2_000)
    join_all(rig)
    assert rig.host(1).submit(SendMessages(GROUP, [b"x"]))
    # Twice as many as it can handle, for half a second.
    for number in range(10_000):
        rig.send(3, 2, of_kind(Kind.DATA), at_ns=rig.scheduler.now_ns + number * 50 * MICROSECOND)
    rig.scheduler.run_until(SECOND)
    arrived = next(at_ns for at_ns, size in rig.received(2) if size != 40)
    # The acknowledgement is due after 20 ms and comes at the next quantum, not when the load is over.
    assert arrived + 20 * MILLISECOND <= sent(rig, 2, "ACK")[0] <= arrived + 23 * MILLISECOND
