"""Taps see what QSM takes, and what others rebuild is taken as a repair (`docs/design/streams.md`, "Taps")."""

from collections.abc import Callable, Iterable

import pytest

from live_wire.wired import Wire
from vivum.core.ids import Endpoint, GroupId
from vivum.core.machine import Datagram
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.commands import SendMessages
from vivum.protocols.qsm.machine import QsmMachine
from vivum.wire.codec import Frame, split
from vivum.wire.kinds import Kind

GROUP = GroupId(5)
STRANGER = Endpoint("6.6.6.6", 666)

Sent = list[tuple[Endpoint, Datagram]]


class Scene:
    """Three members; the first sends, and the two others tap what they take of it."""

    def __init__(self) -> None:
        self.wire = Wire(3, GROUP)
        self.a, self.b, self.c = self.wire.members
        self.send(b"first")
        self.runs: dict[Endpoint, list[list[Frame]]] = {}
        for place in self.wire.members:
            self.runs[place] = []
            self.qsm(place).taps = (self.tap_of(place),)

    def tap_of(self, place: Endpoint) -> Callable[[int, list[Frame]], None]:
        return lambda now_ns, frames: self.runs[place].append(frames)

    def qsm(self, place: Endpoint) -> QsmMachine:
        return self.wire.members[place].qsm

    def send(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.wire.members[self.a].node.submit(self.wire.now_ns, SendMessages(GROUP, [payload]))
            self.wire.settle()

    def lose_data_at(self, place: Endpoint) -> None:
        """Let all frames that the sender sends pass by a member until further notice; repairs come."""
        kinds = (Kind.DATA, Kind.RESENT)

        def fate(sent: Sent) -> Iterable[tuple[Endpoint, Datagram]]:
            return [each for each in sent if each[0] != place or each[1].data[1] not in kinds]

        self.wire.fate = fate

    def lose_nothing(self) -> None:
        self.wire.fate = lambda sent: sent

    def got(self, place: Endpoint) -> list[bytes]:
        return [payload for run in self.wire.delivered[place] for payload in run.payloads]

    def seen(self, place: Endpoint) -> list[int]:
        return [frame.sequence for run in self.runs[place] for frame in run]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_tap_sees_each_new_frame_once_and_none_of_its_own_node(scene: Scene) -> None:
    scene.send(b"x", b"y", b"z")
    scene.wire.advance(SECOND)
    first = scene.seen(scene.b)[0]
    assert scene.seen(scene.b) == scene.seen(scene.c) == [first, first + 1, first + 2]
    assert scene.seen(scene.a) == []
    (message,) = [run for _, _, _, run in scene.runs[scene.b][0][0].messages()]
    assert message == [b"x"]


def test_frames_that_are_taken_together_are_shown_together(scene: Scene) -> None:
    scene.lose_data_at(scene.c)
    scene.send(b"x", b"y", b"z")
    frames = [frame for run in scene.runs[scene.b] for frame in run]
    joined = b"".join(frame.to_bytes() for frame in frames)
    for _ in range(2):
        scene.wire.members[scene.c].node.on_datagrams(scene.wire.now_ns, [(scene.a, joined)])
    scene.wire.settle()
    assert [[frame.sequence for frame in run] for run in scene.runs[scene.c]] == [[each.sequence for each in frames]]
    assert scene.got(scene.c) == [b"first", b"x", b"y", b"z"]


def test_a_tap_sees_repairs_too(scene: Scene) -> None:
    scene.lose_data_at(scene.c)
    scene.send(b"lost")
    scene.lose_nothing()
    scene.wire.advance(SECOND)
    assert [frame.kind for run in scene.runs[scene.c] for frame in run] == [Kind.RESENT]
    assert scene.seen(scene.c) == scene.seen(scene.b)


def test_every_tap_is_called(scene: Scene) -> None:
    more: list[list[Frame]] = []
    scene.qsm(scene.b).taps += (lambda now_ns, frames: more.append(frames),)
    scene.send(b"x")
    assert more == scene.runs[scene.b] != []


def test_a_frame_that_is_not_taken_is_not_shown(scene: Scene) -> None:
    scene.send(b"x")
    (run,) = scene.runs[scene.b]
    for source in (scene.a, STRANGER):
        scene.wire.members[scene.c].node.on_datagrams(scene.wire.now_ns, [(source, run[0].to_bytes())])
    assert len(scene.runs[scene.c]) == 1


def test_a_rebuilt_frame_is_delivered_at_once_and_nobody_asks_for_it(scene: Scene) -> None:
    scene.lose_data_at(scene.c)
    scene.send(b"lost")
    ((frame,),) = scene.runs[scene.b]
    assert frame.kind is Kind.DATA
    scene.qsm(scene.c).on_rebuilt(scene.wire.now_ns, scene.b, split(frame.to_bytes())[0])
    scene.lose_nothing()
    scene.wire.settle()
    assert scene.got(scene.c) == [b"first", b"lost"]
    assert scene.seen(scene.c) == [frame.sequence], "other taps see it as well"
    scene.wire.advance(SECOND)
    assert [scene.wire.members[place].counters.repairs_sent for place in (scene.a, scene.b)] == [0, 0]
    assert scene.wire.members[scene.c].counters.repairs_received == 1


def test_a_frame_that_is_rebuilt_twice_counts_as_a_repair_in_vain(scene: Scene) -> None:
    scene.send(b"x")
    ((frame,),) = scene.runs[scene.b]
    scene.qsm(scene.c).on_rebuilt(scene.wire.now_ns, scene.b, frame)
    assert scene.wire.members[scene.c].counters.repairs_wasted == 1
    assert len(scene.runs[scene.c]) == 1


def test_what_a_stranger_let_us_rebuild_is_refused_as_its_repairs_are(scene: Scene) -> None:
    scene.lose_data_at(scene.c)
    scene.send(b"lost")
    ((frame,),) = scene.runs[scene.b]
    scene.qsm(scene.c).on_rebuilt(scene.wire.now_ns, STRANGER, frame)
    scene.wire.settle()
    assert scene.wire.members[scene.c].counters.frames_refused_state == 1
    assert scene.got(scene.c) == [b"first"]


def test_what_is_no_frame_of_messages_cannot_be_rebuilt(scene: Scene) -> None:
    controls: list[bytes] = []

    def fate(sent: Sent) -> Sent:
        controls.extend(each.data for _, each in sent if each.data[1] == Kind.TOKEN)
        return sent

    scene.wire.fate = fate
    scene.wire.advance(2 * SECOND)
    (token, *_) = split(controls[0])
    before = scene.wire.members[scene.c].counters.frames_refused_state
    scene.qsm(scene.c).on_rebuilt(scene.wire.now_ns, scene.b, token)
    assert scene.wire.members[scene.c].counters.frames_refused_state == before + 1


def test_a_tap_may_hand_in_what_it_rebuilds_from_the_frame_that_it_sees(scene: Scene) -> None:
    scene.lose_data_at(scene.c)
    scene.send(b"lost")
    ((lost,),) = scene.runs[scene.b]
    scene.lose_nothing()
    qsm = scene.qsm(scene.c)

    def rebuild(now_ns: int, frames: list[Frame]) -> None:
        if frames[0].sequence > lost.sequence:
            qsm.on_rebuilt(now_ns, scene.b, lost)

    qsm.taps += (rebuild,)
    scene.send(b"next")
    assert scene.got(scene.c) == [b"first", b"lost", b"next"]
    assert sorted(scene.seen(scene.c)) == [lost.sequence, lost.sequence + 1]
    scene.wire.advance(100 * MILLISECOND)
    assert scene.wire.members[scene.b].counters.repairs_sent == 0
