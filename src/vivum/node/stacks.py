"""Stacks: which transport each group uses, and the layers above it.

A group without a stack uses the default transport and has no layers; routing it costs one failed look-up. Knows no
layer by name.

A group that is being left may still deliver: its layers stay until `GroupsLeft`, or the end of the life, ends it.

Invariant: what comes from below passes all layers of its group, bottom up, before it is handed on, and keeps its place
among the effects of other groups.
"""

from collections.abc import Iterable, Mapping, Sequence

from vivum.core.deadlines import Deadlines
from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, GroupId
from vivum.core.machine import Command, Datagram, Effect, InstallView
from vivum.core.ranges import RangeSet
from vivum.protocols.commands import GroupsLeft, JoinGroup, LifeEnded
from vivum.protocols.contract import ProtocolMachine, TakesTuning
from vivum.protocols.layer import Below, Layer
from vivum.wire.codec import Frame


class Stack:
    """One group's transport and the layers above it."""

    __slots__ = ("layers", "transport")

    def __init__(self, group: GroupId, transport: ProtocolMachine, layers: Sequence[Layer]) -> None:
        self.transport = transport
        self.layers = tuple(layers)
        below: Below = transport
        for layer in layers:
            layer.attach(group, below)
            below = layer

    def submit(self, now_ns: int, command: Command) -> None:
        """Hand messages to the top layer, or to the transport if there is none."""
        top: Below = self.layers[-1] if self.layers else self.transport
        top.submit(now_ns, command)


class Stacks:
    """The stacks of all groups of one node that need one."""

    def __init__(self, transports: Mapping[str, ProtocolMachine]) -> None:
        self._transports = transports
        self._by_group: dict[GroupId, Stack] = {}
        self._layered = RangeSet()
        # Groups with a layer that looks at views.
        self._view_watchers = RangeSet()
        # Groups with layers that the application has left but the transport has not.
        self._leaving: set[GroupId] = set()
        self.have_layers = False
        """Whether any group has layers. If none has, effects need no inspection."""

        self._deadlines: Deadlines[GroupId] = Deadlines()
        # Groups whose layers may have frames to send.
        self._may_send: dict[GroupId, None] = {}

    def get(self, group: GroupId) -> Stack | None:
        """Return the stack of a group; None if it has the default transport and no layers."""
        return self._by_group.get(group)

    def join(self, command: JoinGroup) -> None:
        """Note the stack that a group was entered with."""
        if not command.transport:
            if command.tuning is not None:
                raise UsageError(f"the default transport takes no wishes for single groups: {command.tuning}")
            return
        transport = self._transports.get(command.transport)
        if transport is None:
            known = ", ".join(sorted(self._transports)) or "none"
            raise UsageError(f"this node has no transport {command.transport!r}; it has {known}")
        group = command.group
        if isinstance(transport, TakesTuning):
            transport.tune(group, command.tuning)
        elif command.tuning is not None:
            raise UsageError(f"transport {command.transport!r} takes no wishes for single groups: {command.tuning}")
        self._leaving.discard(group)
        known_stack = self._by_group.get(group)
        if known_stack is not None and known_stack.layers == command.layers:
            return
        self._by_group[group] = Stack(group, transport, command.layers)
        if command.layers:
            self._layered.add(group)
            self.have_layers = True
        if any(layer.looks_at_views for layer in command.layers):
            self._view_watchers.add(group)

    def leave(self, group: GroupId) -> None:
        """Forget the stack of a group: at once if it has no layers, else when the group is left."""
        stack = self._by_group.get(group)
        if stack is not None and stack.layers:
            self._leaving.add(group)
        else:
            self._by_group.pop(group, None)

    def _forget(self, group: GroupId) -> None:
        """Forget a stack with layers that application and transport have left."""
        self._leaving.discard(group)
        del self._by_group[group]
        for groups in (self._layered, self._view_watchers):
            groups.discard_range(group, group + 1)
        self.have_layers = bool(self._layered)
        self._deadlines.cancel(group)
        self._may_send.pop(group, None)

    # Up.

    def lift(self, now_ns: int, effects: Iterable[Effect]) -> list[Effect]:
        """Pass effects through the layers of their groups; all others keep their place."""
        lifted: list[Effect] = []
        for effect in effects:
            if isinstance(effect, InstallView):
                self._lift_view(now_ns, effect, lifted)
                continue
            if self._leaving and isinstance(effect, GroupsLeft | LifeEnded):
                over = RangeSet.from_bounds(effect.groups) if isinstance(effect, GroupsLeft) else self._leaving
                for each in [each for each in self._leaving if each in over]:
                    self._forget(each)
            group = getattr(effect, "group", None)
            stack = None if group is None else self._by_group.get(group)
            if stack is None or not stack.layers or group is None:
                lifted.append(effect)
            else:
                lifted += self._pass_up(now_ns, group, stack, 0, [effect])
        return lifted

    def _lift_view(self, now_ns: int, install: InstallView, lifted: list[Effect]) -> None:
        groups = RangeSet.from_bounds(install.groups)
        through = groups.intersection(self._view_watchers)
        if not through:
            lifted.append(install)
            return
        groups.difference_update(through)
        if groups:
            lifted.append(InstallView(tuple(groups.bounds()), install.number, install.members))
        for number in through:
            group = GroupId(number)
            view = InstallView((number, number + 1), install.number, install.members)
            lifted += self._pass_up(now_ns, group, self._by_group[group], 0, [view])

    def _pass_up(self, now_ns: int, group: GroupId, stack: Stack, start: int, effects: list[Effect]) -> list[Effect]:
        """Pass effects through the layers from an index up to the top; return what comes out."""
        for layer in stack.layers[start:]:
            for effect in effects:
                layer.on_effect(now_ns, effect)
            effects = layer.effects[:]
            layer.effects.clear()
        self.after(group, stack)
        return effects

    def after(self, group: GroupId, stack: Stack) -> None:
        """Update deadlines after a call to layers, and remember that they may have frames to send."""
        times = [each for layer in stack.layers if (each := layer.next_deadline_ns()) is not None]
        if times:
            self._deadlines.set(group, min(times))
        else:
            self._deadlines.cancel(group)
        self._may_send[group] = None

    # Frames and time.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> list[Effect] | None:
        """Hand a frame to the layer of its group that takes its kind; return what goes up; None if none takes it."""
        group = GroupId(frame.region)
        stack = self._by_group.get(group)
        for index, layer in enumerate(() if stack is None else stack.layers):
            if frame.kind in layer.kinds:
                assert stack is not None
                layer.on_frame(now_ns, source, frame)
                effects = layer.effects[:]
                layer.effects.clear()
                return self._pass_up(now_ns, group, stack, index + 1, effects)
        return None

    def next_deadline_ns(self) -> int | None:
        """Return the earliest deadline of any layer, or None."""
        return self._deadlines.next_ns()

    def on_timer(self, now_ns: int) -> list[Effect]:
        """Let layers do what is due; return what goes up."""
        lifted: list[Effect] = []
        for group in self._deadlines.take_due(now_ns):
            stack = self._by_group[group]
            for index, layer in enumerate(stack.layers):
                layer.on_timer(now_ns)
                effects = layer.effects[:]
                layer.effects.clear()
                lifted += self._pass_up(now_ns, group, stack, index + 1, effects)
        return lifted

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the frames that layers have due."""
        made: list[Datagram] = []
        for group in list(self._may_send):
            layers = self._by_group[group].layers
            for layer in layers:
                made += layer.make_frames(room_bytes)
            if not any(layer.has_data for layer in layers):
                del self._may_send[group]
        return made
