"""Confirmed means delivered: what a member has and holds back is not confirmed, and holds up nothing else."""

from collections.abc import Iterable

import pytest

from live_wire.wired import NO_CHANNEL, Wire
from vivum.core.ids import Endpoint, GroupId
from vivum.core.machine import Datagram
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.commands import JoinGroup, LeaveGroup, SendConfirmed, SendMessages
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.kinds import kind_name

GROUP, OTHER = GroupId(5), GroupId(6)


class Scene:
    """A group in two regions. The second changes, so the group's view does, and one member of the first is not told.

    The first region has `near` members of the group alone; the two others are in another group too.
    """

    def __init__(self, near: int = 2, **settings: int) -> None:
        self.wire = Wire(near + 2, GROUP, QsmSettings(**settings))
        *self.near, self.stays, self.leaves = self.wire.members
        for place in (self.stays, self.leaves):
            self.wire.members[place].node.submit(self.wire.now_ns, JoinGroup(OTHER, NO_CHANNEL, ()))
        self.wire.advance(5 * SECOND)

    def hold_back(self, sender: Endpoint, holder: Endpoint) -> None:
        """Let a member send in a view of which another one does not hear."""

        def keep_from_holder(sent: list[tuple[Endpoint, Datagram]]) -> Iterable[tuple[Endpoint, Datagram]]:
            return [each for each in sent if each[0] != holder or kind_name(each[1].data) != "CONFIGURATION"]

        self.send(sender, b"before")
        self.wire.advance(SECOND)
        assert self.confirmed(sender) == 1
        self.wire.fate = keep_from_holder
        for group in (GROUP, OTHER):
            self.wire.members[self.leaves].node.submit(self.wire.now_ns, LeaveGroup(group))
        self.wire.advance(SECOND // 2)
        self.send(sender, b"after")

    def tell(self, holder: Endpoint) -> None:
        """Let the holder hear of the view, and come to the moment at which it delivers."""
        self.wire.fate = lambda sent: sent
        for _ in range(2000):
            if self.got(holder)[-1:] == [b"after"]:
                return
            self.wire.advance(MILLISECOND)
        raise AssertionError("the holder never delivered")

    def send(self, place: Endpoint, payload: bytes) -> None:
        self.wire.members[place].node.submit(self.wire.now_ns, SendMessages(GROUP, [payload]))
        self.wire.settle()

    def got(self, place: Endpoint) -> list[bytes]:
        return [payload for run in self.wire.delivered[place] for payload in run.payloads]

    def confirmed(self, place: Endpoint) -> int:
        """How many messages a sender knows to be confirmed."""
        return max((each.stop for each in self.wire.events[place] if isinstance(each, SendConfirmed)), default=0)

    def terms(self) -> list[int]:
        """Return the terms of all rings, as all of the first region know them."""
        regions = [region for place in self.near for region in self.wire.members[place].qsm.regions.values()]
        return [ring.term for region in regions for ring in region.ladder.rings]


# Where rings are small there are two levels, and the last ring is not that of the leader of all.
SCENES = pytest.mark.parametrize(
    ("near", "ring_nodes_max", "sender", "holder"),
    [
        pytest.param(2, 25, 0, 1, id="a-member-holds"),
        pytest.param(2, 25, 1, 0, id="the-leader-holds"),
        pytest.param(6, 2, 0, 5, id="a-member-of-another-ring-holds"),
        pytest.param(6, 2, 5, 4, id="the-leader-of-another-ring-holds"),
        pytest.param(6, 2, 5, 0, id="the-leader-of-all-holds"),
    ],
)


@SCENES
def test_what_waits_for_a_view_at_a_member_is_confirmed_when_it_was_delivered_there_and_soon(
    near: int, ring_nodes_max: int, sender: int, holder: int
) -> None:
    """Live seed 795: it was confirmed when it came, and the member's life ended before it was delivered."""
    scene = Scene(near, ring_nodes_max=ring_nodes_max)
    talks, waits = scene.near[sender], scene.near[holder]
    scene.hold_back(talks, waits)
    terms = scene.terms()
    # Long enough for heartbeats to be a second apart.
    scene.wire.advance(4 * SECOND)
    assert scene.terms() == terms, "nobody doubts a leader that waits for the holder as all do"
    assert scene.got(waits) == [b"before"]
    assert [scene.got(place)[-1] for place in (*scene.near, scene.stays) if place != waits] == [b"after"] * near
    assert scene.confirmed(talks) == 1
    scene.tell(waits)
    scene.wire.advance(200 * MILLISECOND)
    assert scene.confirmed(talks) == 2


@SCENES
def test_a_member_that_holds_what_it_has_holds_up_neither_the_window_nor_its_own_life(
    near: int, ring_nodes_max: int, sender: int, holder: int
) -> None:
    scene = Scene(near, ring_nodes_max=ring_nodes_max, window_frames=8, cache_frames_max=32)
    talks, waits = scene.near[sender], scene.near[holder]
    life = scene.wire.members[waits].client.member
    scene.hold_back(talks, waits)
    for _ in range(24):
        scene.send(talks, b"more")
        scene.wire.advance(10 * MILLISECOND)
    for key, stream in scene.wire.members[talks].qsm.sending.streams.items():
        scene.wire.advance(100 * MILLISECOND)
        assert stream.first == stream.next_frame, f"all frames into {key} are stable"
    scene.wire.advance(4 * SECOND)
    assert scene.confirmed(talks) == 1
    assert scene.wire.members[waits].client.member == life
    scene.wire.fate = lambda sent: sent
    scene.wire.advance(3 * SECOND)
    assert scene.got(waits) == [b"before", b"after", *[b"more"] * 24]
    assert scene.confirmed(talks) == 26
