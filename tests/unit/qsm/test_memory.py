"""What is kept is measured, bounded and told."""

from loose_streams import ALICE, ONE, config, frames_of, make_sender, seal_all
from vivum.core.ids import Incarnation, Member, NodeId, ViewNumber
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.protocols.qsm.memory import MemoryWatch, measure_memory
from vivum.protocols.qsm.region import RegionMember
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.tokens import RegionReport

BOB = Member(NodeId(2), Incarnation(1))


def make_region(nodes: int = 3, **settings: int) -> RegionMember:
    made = QsmSettings(**settings)
    return RegionMember(config(nodes=nodes), BOB, made, Limits(), Counters(), lambda stream: None, 0)


def test_what_is_sent_cached_and_held_is_added_up_and_forgotten() -> None:
    sender, region = make_sender(), make_region()
    for number in range(3):
        sender.feed(ONE, number, [bytes(1000)], ViewNumber(1))
    sealed = seal_all(sender)
    stream = region.stream_of(ALICE, 0)
    assert stream is not None
    for frame in frames_of(5)[1:]:
        region.on_data(0, stream, frame)
    held = measure_memory(7, [sender], [region])
    assert held.waiting_bytes == 7
    assert held.sent_bytes == sum(frame.length for frame in sealed)
    assert held.cached_bytes == held.held_bytes > 0
    assert held.total_bytes == 7 + held.sent_bytes + 2 * held.held_bytes
    sender.on_report(0, RegionReport(1, len(sealed), len(sealed), (), 0, confirmed=len(sealed)))
    assert measure_memory(0, [sender], []).total_bytes == 0


def test_new_highs_are_told_once_with_their_limit() -> None:
    settings = QsmSettings()
    watch, region = MemoryWatch(settings), make_region()
    stream = region.stream_of(ALICE, 0)
    assert stream is not None
    for frame in frames_of(5)[1:]:
        region.on_data(0, stream, frame)
    grown = {each.queue: (each.depth, each.limit) for each in watch.look([], [region])}
    limit = settings.cache_frames_max + settings.window_frames
    assert grown == {"cached frames of a stream": (5, limit), "held frames of a stream": (5, limit)}
    assert watch.look([], [region]) == []


def test_who_takes_a_ring_over_takes_the_ring_above_too_if_the_old_leader_led_it() -> None:
    """Ours: the ring of leaders had no leader for 400 ms after a take-over below."""
    region = make_region(nodes=4, ring_nodes_max=2)
    below, above = region.ladder.rings
    assert (below.leader, above.leader) == (1, 1)
    below.become_leader(0)
    assert above.leader == BOB.node
    assert above.is_leader
