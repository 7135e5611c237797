"""Messages that come and go alone: read and sealed at once by compiled code, and written down.

While one answer follows the other, the time from the datagram in the socket to the datagram in the other socket is all
that counts. So a frame with one message that is next in its stream and in its group is handed over before anything is
noted of it, and a message that may leave is sealed before anything is noted of that. `AtOnce` carries out what was
written down, the way of all others, before anything else is done: nobody sees a difference.

Here is no judgement: who arms these parts has looked whether anything is in the way, and clears them whenever something
may have changed. What is not exactly as expected is left to the way of all others.
"""

import contextlib
from typing import TYPE_CHECKING

from vivum.protocols.qsm._alone_twin import AloneIn, AloneOut
from vivum.wire.codec import COMPILED

if not TYPE_CHECKING and COMPILED:
    with contextlib.suppress(ImportError):
        from vivum.protocols.qsm._alone import AloneIn, AloneOut

__all__ = ["AloneIn", "AloneOut"]
