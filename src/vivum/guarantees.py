"""The registry of guarantees: what a topic can promise, and what keeps the promise.

One entry a name: the transport, the layers above it from the bottom up, the promises by the names of their checkers,
and what it costs. Traces, the swarm and the audit take a topic's promises from its entry and from nowhere else. A new
guarantee is a layer, an entry here, a checker and a page.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vivum.core.errors import UsageError
from vivum.protocols.keyed.layer import KeyedLayer
from vivum.protocols.layer import Layer

QSM = "qsm"
UNREPAIRED = "unrepaired"
"""Names of transports."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a topic promises. Compare by identity: there is one of each name."""

    name: str
    """As it travels to the directory of topics, and as `guarantee=` takes it."""

    transport: str
    layers: tuple[Callable[[], Layer], ...]
    """Makers of the layers, from the bottom up."""

    promises: tuple[str, ...]
    """Names of the checkers that must hold (`vivum.checkers`)."""

    meaning: str
    cost: str

    def __repr__(self) -> str:
        return f"vivum.{self.name.upper()}"

    def make_layers(self) -> tuple[Layer, ...]:
        """Make the layers for one topic at one node."""
        return tuple(make() for make in self.layers)


RELIABLE_PROMISES = ("no_duplicate", "no_creation", "fifo", "view_agreement", "views_first")

BEST_EFFORT = Guarantee(
    "best_effort",
    UNREPAIRED,
    (),
    (),
    "Each message is sent once and never again: FIFO for each sender, with gaps. Confirmed when handed to the network.",
    "One datagram for each frame and region; nothing is kept.",
)
RELIABLE = Guarantee(
    "reliable",
    QSM,
    (),
    RELIABLE_PROMISES,
    "No message twice, none made up, FIFO for each sender without a gap, to all members of the view in which it was "
    "sent. What cannot be delivered is reported to the sender.",
    "Frames are kept until every member has them; one token round for all groups of a region.",
)
KEYED = Guarantee(
    "keyed",
    QSM,
    (KeyedLayer,),
    RELIABLE_PROMISES,
    "As RELIABLE; and a message that has a key is given once to each node, also if a sender that died half-way is "
    "replaced by another that sends the same keys again. The Spark sink publishes so.",
    "As RELIABLE; 1 byte a message, 33 with a key, and a look at each message at the receiver.",
)

GUARANTEES: dict[str, Guarantee] = {each.name: each for each in (BEST_EFFORT, RELIABLE, KEYED)}
"""Every guarantee by name."""


_FORMER_NAMES = {"best effort": BEST_EFFORT, "reliable, keyed": KEYED}
"""As logs of earlier versions have them."""


def recorded_guarantee(name: str | None) -> Guarantee:
    """Return the guarantee that a log names; RELIABLE where an old one does not."""
    return RELIABLE if name is None else _FORMER_NAMES.get(name) or guarantee_of(name)


def guarantee_of(name: Guarantee | str) -> Guarantee:
    """Return the entry of a name, or raise a `UsageError` that lists those that there are."""
    if isinstance(name, Guarantee):
        return name
    found = GUARANTEES.get(name) if isinstance(name, str) else None
    if found is None:
        raise UsageError(f"{name!r} is no guarantee; there are {', '.join(map(repr, GUARANTEES))}")
    return found
