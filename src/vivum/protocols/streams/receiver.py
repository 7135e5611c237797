"""The FIFOs of all senders that a node hears: their shared state, and which of them have deliveries left over."""

from collections.abc import Callable, Collection, Iterable, Mapping, Set

from vivum.core.ids import Member
from vivum.core.limits import Limits
from vivum.core.machine import Effect
from vivum.observe.counters import Counters
from vivum.protocols.streams.sender_fifo import NEVER, SenderFifo
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.wire.fragments import Joiner


class Receiver:
    """One FIFO for each life of each sender."""

    def __init__(self, limits: Limits, counters: Counters, known_epoch: Callable[[], int] = lambda: NEVER) -> None:
        """Begin with nothing. `known_epoch` returns the number up to which this node has installed views."""
        self._known_epoch = known_epoch
        self._counters = counters
        self._joiner = Joiner(limits, counters)
        self._by_sender: dict[Member, SenderFifo] = {}
        # For each group that this node left: from which view on messages count again.
        self._barred: dict[int, int] = {}
        # Groups whose messages are not cut where that can be.
        self._packed: set[int] = set()
        self._behind: set[SenderFifo] = set()

    def of(self, sender: Member) -> SenderFifo:
        """Return the FIFO of a sender of which a stream was added."""
        return self._by_sender[sender]

    @property
    def are_behind(self) -> bool:
        """Whether more can be delivered as soon as the application has had its turn."""
        return bool(self._behind)

    @property
    def is_any_broken(self) -> bool:
        """Whether messages of a living sender are missing for good."""
        return any(fifo.is_broken for fifo in self._by_sender.values())

    def add(self, stream: StreamReceiver) -> None:
        """Add a new stream."""
        fifo = self._by_sender.get(stream.sender)
        if fifo is None:
            fifo = SenderFifo(
                stream.sender,
                self._joiner,
                self._counters,
                self._barred,
                self._behind,
                self._packed,
                self._known_epoch,
            )
            self._by_sender[stream.sender] = fifo
        fifo.add(stream)

    def deliver(self, senders: Iterable[Member], effects: list[Effect]) -> None:
        """Deliver what these senders have in order."""
        for sender in senders:
            self._by_sender[sender].deliver(effects)

    def go_on(self, effects: list[Effect]) -> None:
        """Deliver more from senders that had too much for one turn."""
        # In the order of their senders, since a set has none.
        for fifo in sorted(self._behind, key=lambda each: each.sender):
            fifo.deliver(effects)

    def on_views(self, effects: list[Effect]) -> None:
        """Deliver what waited for views that are now installed."""
        for fifo in list(self._by_sender.values()):
            if fifo.awaits_view:
                fifo.deliver(effects)

    def look_after(self, streams: Mapping[Member, StreamReceiver], effects: list[Effect]) -> None:
        """Continue delivery: the streams of a region view may be complete now, or known to be closed."""
        for sender, stream in streams.items():
            fifo = self._by_sender.get(sender)
            if fifo is not None and len(fifo.streams) > 1 and fifo.streams[0] is stream:
                fifo.deliver(effects)

    def pack(self, group: int, packed: bool) -> None:
        """From now on leave messages of a group uncut where possible, or cut them again."""
        if packed:
            self._packed.add(group)
        else:
            self._packed.discard(group)

    def leave_group(self, group: int) -> None:
        """Note that this node left a group: until it returns, the group's messages do not count."""
        self._barred[group] = NEVER
        for fifo in self._by_sender.values():
            fifo.forget_group(group)

    def enter_groups(self, groups: Iterable[int], view: int) -> None:
        """Note that this node is in these groups from a view on."""
        if self._barred:
            self._barred.update((group, view) for group in groups if group in self._barred)

    def is_barred(self, group: int, view: int) -> bool:
        """Return whether messages of a group do not count in a view, because this node had left and not returned."""
        return self._barred.get(group, 0) > view

    def remove(self, stream: StreamReceiver, effects: list[Effect]) -> None:
        """Remove a stream whose region view is over."""
        self._by_sender[stream.sender].remove(stream, effects)

    def note_present(self, present: Set[Member], epoch: int) -> None:
        """Learn who is left in a new configuration: the others have left us, or died, or were dropped."""
        for sender, fifo in self._by_sender.items():
            if sender in present:
                fifo.gone_since = None
            elif fifo.gone_since is None:
                fifo.gone_since = epoch

    def forget_gone(self, speaking: Collection[Member], oldest_view: int) -> None:
        """Forget who is gone, has no stream left, and was gone before the oldest region view that is left.

        In an older view its next stream may begin: who does not hear that it was dropped goes on. What is missing in
        front of that stream must be known then.
        """
        for sender, fifo in list(self._by_sender.items()):
            if fifo.gone_since is not None and fifo.gone_since <= oldest_view and sender not in speaking:
                self._forget(sender)

    def _forget(self, sender: Member) -> None:
        self._behind.discard(self._by_sender.pop(sender))
        self._joiner.forget(sender)

    def clear(self) -> None:
        """Forget everything: this life of the node is over."""
        for sender in list(self._by_sender):
            self._forget(sender)
        self._barred.clear()
