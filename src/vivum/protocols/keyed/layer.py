"""The layer of the guarantee KEYED: a message that has a key is handed over once.

On the way down every message gets a head: its key, or none. On the way up heads come off, and what came before under
the same key is left out, as is what has no head that can be read (`MessagesLeftOut`); the rest keeps its numbers, so
that runs may have holes.
"""

from vivum.core.errors import UsageError
from vivum.core.machine import Command, Delivery, Effect
from vivum.protocols.commands import SendMessages
from vivum.protocols.keyed.keys import PLAIN_HEAD, SeenKeys, head_bytes
from vivum.protocols.layer import Layer


class KeyedLayer(Layer):
    """One keyed group at one node."""

    looks_at_views = False
    is_headed = True
    head_bytes = staticmethod(head_bytes)

    def __init__(self) -> None:
        super().__init__()
        self._seen = SeenKeys()

    def submit(self, now_ns: int, command: Command) -> None:
        """Put heads before messages: the keys that came with them, else none."""
        assert isinstance(command, SendMessages)
        payloads, heads = command.payloads, command.heads
        if heads is None:
            headed = [PLAIN_HEAD + payload for payload in payloads]
        elif len(heads) != len(payloads):
            raise UsageError(f"{len(payloads)} messages with {len(heads)} keys; each needs one")
        else:
            headed = [head + payload for head, payload in zip(heads, payloads, strict=True)]
        super().submit(now_ns, SendMessages(command.group, headed))

    def on_effect(self, now_ns: int, effect: Effect) -> None:
        """Take the heads off messages, and leave out those whose keys were seen before."""
        if isinstance(effect, Delivery):
            self.effects += self._seen.sift(effect)
        else:
            super().on_effect(now_ns, effect)
