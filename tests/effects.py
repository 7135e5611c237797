"""Parts of a list of effects, each in its order."""

from collections.abc import Iterable

from vivum.core.machine import Datagram, Delivery, Effect, Event


def deliveries(effects: Iterable[Effect]) -> list[Delivery]:
    """Return what was delivered."""
    return [effect for effect in effects if isinstance(effect, Delivery)]


def events(effects: Iterable[Effect]) -> list[Event]:
    """Return what was told."""
    return [effect for effect in effects if isinstance(effect, Event)]


def datagrams(effects: Iterable[Effect]) -> list[Datagram]:
    """Return what was sent."""
    return [effect for effect in effects if isinstance(effect, Datagram)]
