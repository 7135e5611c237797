"""The registry of guarantees: what a topic can promise, and what keeps the promise.

Each entry has the transport, the layers above it from the bottom up, the promises by the names of their checkers, and
the cost. Traces name a topic's guarantee; `vivum.testing`, the swarm and the audit take its promises from its entry and
from nowhere else. A new guarantee is a layer, an entry here, a checker and a page.
"""

from dataclasses import dataclass

from vivum.core.errors import UsageError
from vivum.protocols.keyed.layer import KeyedLayer
from vivum.protocols.layer import Layer

QSM = "qsm"
UNREPAIRED = "unrepaired"
RICOCHET = "ricochet"
"""Names of transports."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a topic promises. Compare by identity: there is one object for each name."""

    name: str
    """The name in the directory of topics, and for `guarantee=`."""

    transport: str
    layers: tuple[type[Layer], ...]
    """The layers, from the bottom up."""

    promises: tuple[str, ...]
    """Names of the checkers that must hold at any time (`vivum.checkers`)."""

    liveness: tuple[str, ...]
    """Names of the checkers that must also hold at the end of a run that ends quietly."""

    meaning: str
    cost: str

    def __repr__(self) -> str:
        return f"vivum.{self.name.upper()}"

    def make_layers(self) -> tuple[Layer, ...]:
        """Make the layers for one topic at one node."""
        return tuple(make() for make in self.layers)

    @property
    def is_gap_free(self) -> bool:
        """Whether every missing message is reported, so that sequence numbers show where back copies fit in."""
        return "fifo" in self.promises

    @property
    def is_tunable(self) -> bool:
        """Whether a topic may have a deadline and an (r, c) of its own."""
        return self.transport == RICOCHET

    @property
    def is_headed(self) -> bool:
        """Whether messages have heads, which recorders keep."""
        return any(layer.is_headed for layer in self.layers)


BEST_EFFORT = Guarantee(
    "best_effort",
    UNREPAIRED,
    (),
    ("no_duplicate", "no_creation", "sender_order"),
    (),
    "Each message is sent once and never again: FIFO for each sender, with gaps. Confirmed when handed to the network.",
    "One datagram for each frame and region; nothing is kept.",
)
"""Each message is sent once and never again: FIFO for each sender, with gaps.

For values of which only the newest counts, such as positions: `await node.enter("/gps", Fix, guarantee=BEST_EFFORT)`.
"""

RELIABLE = Guarantee(
    "reliable",
    QSM,
    (),
    ("no_duplicate", "no_creation", "fifo", "view_agreement", "views_first"),
    ("all_delivered",),
    "No message twice, none made up, FIFO for each sender without a gap, to all members of the view in which it was "
    "sent. What cannot be delivered is reported to the sender.",
    "Frames are kept until every member has them; one token round for all groups of a region.",
)
"""No message twice, none made up, FIFO for each sender without a gap, to all members of the view. The default.

What a reader cannot have raises `MissedMessages`, what cannot be delivered `SendFailedError` at the sender's `flush`.
"""

KEYED = Guarantee(
    "keyed",
    QSM,
    (KeyedLayer,),
    (*RELIABLE.promises, "keys_once"),
    RELIABLE.liveness,
    "As RELIABLE; and a message that has a key is given once to each node, also if a sender that died half-way is "
    "replaced by another that sends the same keys again. The Spark sink publishes so.",
    "As RELIABLE; 1 byte a message, 33 with a key, and a look at each message at the receiver.",
)
"""As `RELIABLE`; and a message that has a key is given once to each node, whoever sends it again.

For results of Spark: `await node.enter("/alerts", Alert, guarantee=KEYED)` sees each once, also after a restart.
"""

TIMELY = Guarantee(
    "timely",
    RICOCHET,
    (),
    ("no_duplicate", "no_creation", "fifo"),
    ("all_delivered",),
    "No message twice, none made up, FIFO for each sender without a gap that is not reported. Sent at once; what is "
    "lost is repaired by other receivers within milliseconds, or by the sender while it lives. Confirmed when every "
    "member of the view has reported.",
    "Receivers send each other c/r of what they receive, 5/8 by default; senders keep frames until all have reported.",
)
"""FIFO for each sender; what is lost is repaired by other receivers within milliseconds. For what is of no use later.

There is no window and no rate: where links are slower than senders, use `RELIABLE`.

`await node.enter("/ticks", Tick, guarantee=TIMELY, deadline_ms=200)` reports what took longer.
"""

DEFAULT = RELIABLE
"""The guarantee of a topic for which none is named."""

GUARANTEES: dict[str, Guarantee] = {each.name: each for each in (BEST_EFFORT, RELIABLE, KEYED, TIMELY)}
"""Every guarantee by name."""


def guarantee_of(name: Guarantee | str) -> Guarantee:
    """Return the entry of a name, or raise a `UsageError` that lists the known names."""
    if isinstance(name, Guarantee):
        return name
    found = GUARANTEES.get(name) if isinstance(name, str) else None
    if found is None:
        raise UsageError(f"{name!r} is no guarantee; there are {', '.join(map(repr, GUARANTEES))}")
    return found


def bare_guarantee(transport: str) -> Guarantee:
    """Return the entry with this transport and no layers: the guarantee of groups that no trace record names."""
    return next(each for each in GUARANTEES.values() if each.transport == transport and not each.layers)


def all_promises() -> tuple[str, ...]:
    """Return every promise that some guarantee makes."""
    return tuple(dict.fromkeys(name for each in GUARANTEES for name in final_promises_of(each)))


def promises_of(name: str) -> tuple[str, ...]:
    """Return the promises of a guarantee that can be judged at any time."""
    return guarantee_of(name).promises


def final_promises_of(name: str) -> tuple[str, ...]:
    """Return the promises of a guarantee for judging a run that ended quietly."""
    entry = guarantee_of(name)
    return entry.promises + entry.liveness
