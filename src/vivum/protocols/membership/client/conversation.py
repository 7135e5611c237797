"""Schedule a client's requests to the service: what is due, what is repeated until it is answered, and to whom.

A request is kept as its name (`"join"`, `"ack"`); the message is made when it leaves. At most one request at a time
waits for an answer. It is repeated at growing, random intervals, to each service in turn.
"""

from collections.abc import Sequence
from random import Random

from vivum.core.deadlines import Deadlines
from vivum.core.ids import Endpoint
from vivum.protocols.membership.settings import ClientSettings


class Conversation:
    """One client's requests that are due or wait for an answer, and the services that it asks."""

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
        # Whether we were just told which service to ask.
        self._is_fresh = False
        self._service = 0
        self._rng = rng
        self._settings = settings
        self._asking: str | None = None
        # In order; a dictionary serves as an ordered set.
        self._due: dict[str, None] = {}

    def replace_services(self, services: Sequence[Endpoint]) -> None:
        """Use these services from now on."""
        self._seeds = self._services = tuple(services)
        self._is_fresh = False
        self._service = 0

    @property
    def has_services(self) -> bool:
        """Whether any service is known."""
        return bool(self._services)

    @property
    def destination(self) -> Endpoint:
        """The service that requests go to."""
        return self._services[self._service]

    def knows(self, source: Endpoint) -> bool:
        """Return whether this is the endpoint of a service."""
        return source in self._services

    def on_answer(self, source: Endpoint) -> None:
        """Stay with the service that answered."""
        if source in self._services:
            self._service = self._services.index(source)

    def learn(self, service: Endpoint, standbys: Sequence[Endpoint]) -> None:
        """Use this service from now on; if it does not answer, its standbys and the services known at the start."""
        self._is_fresh = self._is_fresh or service != self.destination
        self._services = tuple(dict.fromkeys((service, *standbys, *self._seeds)))
        self._service = 0

    def try_next(self) -> None:
        """Go to the next service, unless we were just told which one to ask."""
        if not self._is_fresh:
            self._service = (self._service + 1) % len(self._services)
        self._is_fresh = False

    def say(self, what: str) -> None:
        """Send this request once."""
        self._due[what] = None

    def ask(self, now_ns: int, what: str) -> None:
        """Send this request now, and again until `answered`."""
        assert self._asking in (None, what), "one request at a time waits for an answer"
        self._asking = what
        self._due[what] = None
        delay_ns = min(self._settings.retry_ns_min << min(self.attempts, 20), self._settings.retry_ns_max)
        self.attempts += 1
        self.timers.set(what, now_ns + self.spread(delay_ns))

    def ask_again(self, now_ns: int, *, elsewhere: bool = True) -> None:
        """Repeat the request, since no answer came in time; if the service is silent, to another endpoint."""
        assert self._asking is not None, "only a request that waits for an answer is repeated"
        if elsewhere:
            self.try_next()
        self.ask(now_ns, self._asking)

    def answered(self) -> None:
        """Stop repeating: the request was answered."""
        self.attempts = 0
        if self._asking is not None:
            self.timers.cancel(self._asking)
            self._due.pop(self._asking, None)
            self._asking = None

    def clear(self) -> None:
        """Forget all requests and timers: their life has ended."""
        self.answered()
        self._due.clear()
        for what in ("gather", "keepalive"):
            self.timers.cancel(what)

    def spread(self, delay_ns: int) -> int:
        """Lengthen a delay at random, so that nodes that were cut off together do not all return at once."""
        return delay_ns + int(delay_ns * self._rng.random() / 2)

    def take_due(self) -> list[str]:
        """Return the requests that are due, and forget them."""
        if not self._due:
            return []
        due = list(self._due)
        self._due.clear()
        return due
