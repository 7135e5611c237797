"""What a client has to say to the service: what is due, what is said again until it is answered, and to whom.

An errand is a word (`"join"`, `"ack"`) and not a message: that is made when it leaves. At most one errand at a time
waits for an answer; it is repeated with growing, random distance and goes to each service in turn.
"""

from collections.abc import Sequence
from random import Random

from vivum.core.deadlines import Deadlines
from vivum.core.ids import Endpoint
from vivum.protocols.membership.settings import ClientSettings


class Conversation:
    """What one client has to say to the service, and to whom."""

    __slots__ = (
        "_asking",
        "_due",
        "_is_fresh",
        "_rng",
        "_seeds",
        "_service",
        "_services",
        "_settings",
        "attempts",
        "timers",
    )

    def __init__(self, services: Sequence[Endpoint], rng: Random, settings: ClientSettings) -> None:
        self.timers: Deadlines[str] = Deadlines()
        self.attempts = 0
        self._seeds = tuple(services)
        self._services = self._seeds
        # Somebody just told us whom to ask.
        self._is_fresh = False
        self._service = 0
        self._rng = rng
        self._settings = settings
        self._asking: str | None = None
        # In order; a dictionary serves as an ordered set.
        self._due: dict[str, None] = {}

    def replace_services(self, services: Sequence[Endpoint]) -> None:
        """Speak with these from now on."""
        self._seeds = self._services = tuple(services)
        self._is_fresh = False
        self._service = 0

    @property
    def has_services(self) -> bool:
        """Whether there is anybody to speak with."""
        return bool(self._services)

    @property
    def destination(self) -> Endpoint:
        """The service that is spoken to."""
        return self._services[self._service]

    def knows(self, source: Endpoint) -> bool:
        """Return whether this is the endpoint of a service."""
        return source in self._services

    def on_answer(self, source: Endpoint) -> None:
        """Stay with the service that answers."""
        if source in self._services:
            self._service = self._services.index(source)

    def learn(self, service: Endpoint, standbys: Sequence[Endpoint]) -> None:
        """Speak to this service from now on; if it does not answer, to its standbys and those known at the start."""
        self._is_fresh = self._is_fresh or service != self.destination
        self._services = tuple(dict.fromkeys((service, *standbys, *self._seeds)))
        self._service = 0

    def try_next(self) -> None:
        """Speak to the next one, unless we were just told whom to ask."""
        if not self._is_fresh:
            self._service = (self._service + 1) % len(self._services)
        self._is_fresh = False

    def say(self, what: str) -> None:
        """Say it once."""
        self._due[what] = None

    def ask(self, now_ns: int, what: str) -> None:
        """Say it now, and again until `answered`."""
        assert self._asking in (None, what), "one errand at a time waits for an answer"
        self._asking = what
        self._due[what] = None
        delay_ns = min(self._settings.retry_ns_min << min(self.attempts, 20), self._settings.retry_ns_max)
        self.attempts += 1
        self.timers.set(what, now_ns + self.spread(delay_ns))

    def ask_again(self, now_ns: int, *, elsewhere: bool = True) -> None:
        """Ask again, since no answer came in time; if the service is silent, ask another endpoint."""
        assert self._asking is not None, "only what was asked is asked again"
        if elsewhere:
            self.try_next()
        self.ask(now_ns, self._asking)

    def answered(self) -> None:
        """Stop asking."""
        self.attempts = 0
        if self._asking is not None:
            self.timers.cancel(self._asking)
            self._due.pop(self._asking, None)
            self._asking = None

    def clear(self) -> None:
        """Forget all errands and all timers: the life that had them has ended."""
        self.answered()
        self._due.clear()
        for what in ("gather", "keepalive"):
            self.timers.cancel(what)

    def spread(self, delay_ns: int) -> int:
        """Lengthen a delay at random, so that nodes that were cut off together do not come back in one instant."""
        return delay_ns + int(delay_ns * self._rng.random() / 2)

    def take_due(self) -> list[str]:
        """Hand over, and forget, what is to be said now."""
        if not self._due:
            return []
        due = list(self._due)
        self._due.clear()
        return due
