"""Decide when a node that waits for the next datagram polls instead of sleeping.

Waking a process on an idle processor costs tens of microseconds, more than all the work for a small message. So a node
that got several small answers in quick succession polls for the next one, up to a limit. An unsuccessful poll ends
this, and the node rests, each time twice as long, until a run of polls has found something. It also rests after a long
turn of the loop: another process wants the processor, or the loop has other work. So idle nodes, slow trickles, bulk
traffic and crowded machines hardly ever poll.

Pure: the driver passes the time and turns the loop. The idea is that of the kernel's `halt_poll_ns` and of the idle
strategies of messaging systems.
"""

POLL_US_MAX = 10_000
"""The longest polling limit that may be set, in microseconds: after a longer wait the cost of waking is negligible."""

SHORT_WAITS = 4
"""Short waits in a row before a node polls: a single request and answer do not count as a run."""

SLEPT_FACTOR = 2
"""A wait counts as short up to this many limits, since both sides may have slept in it."""

NEAR_NS = 200_000
"""What counts as a short wait at a node that never polls."""

SMALL_BYTES = 4096
"""Larger messages count as bulk traffic, for which a wait costs little."""

QUEUED_NS = 20_000
"""A datagram read sooner than this after the last work had arrived during it, so more may be waiting."""

PROVEN_POLLS = 32
"""After this many successful polls in a row, an unsuccessful one ends the run without a rest."""

REST_NS_MIN = 1_000_000
REST_NS_MAX = 64_000_000
"""Rest after an unsuccessful poll, so that polling wastes at most one limit in this time."""

GAP_NS = 500_000
"""A turn of the loop takes microseconds; a gap of this length means that another process had the processor."""

CROWDED_REST_NS = 20_000_000
"""Rest after such a gap."""


class Polling:
    """Decides for one node, anew after each batch that it handles."""

    __slots__ = (
        "_has_spoken",
        "_limit_ns",
        "_rest_ns",
        "_rest_until_ns",
        "_short_ns",
        "_short_waits",
        "_since_ns",
        "_streak",
        "_turned_ns",
        "_turns",
        "_was_awaited",
        "is_on",
    )

    def __init__(self, limit_ns: int) -> None:
        """Begin without polling. `limit_ns` is how long to poll at most; 0 for never."""
        self.is_on = False
        self._limit_ns = limit_ns
        self._short_ns = SLEPT_FACTOR * (limit_ns or NEAR_NS)
        self._since_ns = 0
        self._has_spoken = False
        # Whether the last arrival probably came while we waited, and did not lie in the socket already.
        self._was_awaited = False
        self._short_waits = 0
        # Turns of the loop since the last arrival, and when the last one was.
        self._turns = 0
        self._turned_ns = 0
        # Polls in a row that found something.
        self._streak = 0
        self._rest_ns = REST_NS_MIN
        self._rest_until_ns = 0

    @property
    def expects_one(self) -> bool:
        """Whether the next datagram is likely to be alone.

        True while the node polls and the last turns of the loop found nothing. Otherwise, true if the last datagrams
        were small and close together, and the very last one did not lie in the socket already.
        """
        return self._turns > 1 if self.is_on else self._was_awaited and self._short_waits >= SHORT_WAITS

    @property
    def is_proven(self) -> bool:
        """Whether a run of polls has found something each time: the peer has a processor of its own."""
        return self._streak >= PROVEN_POLLS

    def on_arrival(self, now_ns: int, size: int) -> None:
        """Note that the wait ended at this time with the arrival of `size` bytes."""
        self._turns = 0
        self._has_spoken = False
        self._was_awaited = now_ns - self._since_ns >= QUEUED_NS
        if size > SMALL_BYTES:
            self._short_waits = 0
            self.is_on = False
        elif self.is_on:
            self._streak += 1
            if self._streak == PROVEN_POLLS:
                self._rest_ns = REST_NS_MIN
        elif now_ns - self._since_ns <= self._short_ns:
            self._short_waits += 1
        else:
            self._short_waits = 0

    def begin(self, now_ns: int, sent: int) -> None:
        """Begin a wait after sending `sent` bytes; `is_on` says whether to poll.

        Sending again before anything arrives does not restart the wait: for a pure sender it would never end.
        """
        if sent > SMALL_BYTES:
            self._short_waits = 0
            self.is_on = False
        if self._has_spoken:
            return
        self._has_spoken = sent > 0
        self._since_ns = self._turned_ns = now_ns
        if not self.is_on and self._short_waits >= SHORT_WAITS and now_ns >= self._rest_until_ns:
            self.is_on = self._limit_ns > 0
            self._streak = self._turns = 0

    def go_on(self, now_ns: int) -> bool:
        """Return whether to turn the loop once more instead of letting it sleep."""
        if not self.is_on:
            return False
        self._turns += 1
        if now_ns - self._turned_ns >= GAP_NS:
            self._rest(now_ns + CROWDED_REST_NS)
        elif now_ns - self._since_ns >= self._limit_ns:
            if self.is_proven:
                self._rest(now_ns)
            else:
                self._rest(now_ns + self._rest_ns)
                self._rest_ns = min(2 * self._rest_ns, REST_NS_MAX)
        self._turned_ns = now_ns
        return self.is_on

    def _rest(self, until_ns: int) -> None:
        self.is_on = False
        self._short_waits = self._turns = 0
        self._rest_until_ns = until_ns
