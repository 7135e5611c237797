"""Layers: what a guarantee adds to its transport, for one group.

A transport turns sends of a group into FIFO runs at its members, and installs views. A layer stands above it, or above
another layer, and sees the deliveries, views and events of its group on their way up and the messages on their way
down. It is driven by the calls of the machine contract, and by `on_effect` for what comes from below. It is made only
for groups that need it; the others pay nothing.

The code that enters a group makes its layers and passes them with `JoinGroup`. They outlive a group's id, which changes
when another service takes over, and a stay of this node in the group.
"""

from typing import ClassVar, Protocol

from vivum.core.ids import Endpoint, GroupId
from vivum.core.machine import Command, Datagram, Effect
from vivum.wire.codec import Frame
from vivum.wire.kinds import Kind


class Below(Protocol):
    """What a layer stands on: another layer, or the transport."""

    def submit(self, now_ns: int, command: Command) -> None:
        """Take messages. Raises `NotNowError` if they cannot be accepted now; then nothing changed."""
        ...


class Layer:
    """A layer that changes nothing: the base of those that do. Override what the guarantee needs."""

    kinds: frozenset[Kind] = frozenset()
    """Kinds of frames that it sends and takes. Their header names the group in `region`."""

    looks_at_views: ClassVar[bool] = True
    """Whether it needs views of the group. False if it passes over them, and hands all else up at once: a view of many
    groups then stays whole, unless another layer looks."""

    is_headed: ClassVar[bool] = False
    """Whether messages have heads (`SendMessages.heads`, `Delivery.heads`): readers do not see them, recorders put
    them before the payloads. Back copies pass a fresh layer of this kind on their way to a reader."""

    has_data = False
    """Whether frames wait for room."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.group = GroupId(0)
        self.below: Below | None = None

    def attach(self, group: GroupId, below: Below) -> None:
        """Stand in the stack of a group from now on."""
        self.group, self.below = group, below

    @staticmethod
    def head_bytes(payload: bytes) -> int:
        """Return how long the head before a recorded payload is."""
        raise AssertionError(f"payload of {len(payload)} bytes: the layer has no heads")

    def submit(self, now_ns: int, command: Command) -> None:
        """Take messages from above. Change nothing before the one below has accepted them."""
        assert self.below is not None, "a layer is attached before it is used"
        self.below.submit(now_ns, command)

    def on_effect(self, now_ns: int, effect: Effect) -> None:  # noqa: ARG002
        """Take a delivery, view or event of the group from below; append what goes on up to `effects`."""
        self.effects.append(effect)

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:  # noqa: ARG002
        """Take a frame of one of `kinds`."""
        raise AssertionError(f"{type(self).__name__} takes no frames")

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""

    def next_deadline_ns(self) -> int | None:
        """Return the earliest time at which something will be due, or None."""
        return None

    def make_frames(self, room_bytes: int) -> list[Datagram]:  # noqa: ARG002
        """Make the frames that are due."""
        return []
