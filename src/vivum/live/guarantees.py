"""What a topic promises, by name."""

from enum import Enum


class Guarantee(Enum):
    """An entry of the guarantee library. The value travels to the directory of topics."""

    BEST_EFFORT = "best effort"
    """Each message is sent once, never again: FIFO for each sender, with gaps. Confirmed when handed to the network."""

    RELIABLE = "reliable"
    """No message twice, none made up, FIFO for each sender without a gap, to all members of the view in which it was
    sent. What cannot be delivered is reported to the sender."""

    KEYED = "reliable, keyed"
    """As RELIABLE; and a message that has a key is given once to each node, also if a sender that died half-way is
    replaced by another that sends the same keys again. The Spark sink publishes so."""


BEST_EFFORT = Guarantee.BEST_EFFORT
RELIABLE = Guarantee.RELIABLE
KEYED = Guarantee.KEYED
