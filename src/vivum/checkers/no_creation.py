"""No creation: what is delivered was sent before, by that life, to that group, with that content.

Content is compared by `digest`. A life that numbers two messages alike is reported too: nobody could tell
any more which of the two a delivery means.

"Before" is by the order of the records. Traces of several clocks must go through `vivum.checkers.clocks`
first.

Cost: the record of every send is kept until the end, about 200 bytes a message.
"""

from vivum.checkers.checker import Checker, describe, message_of
from vivum.observe.trace import MessageDelivered, MessageSent


class NoCreation(Checker):
    """Finds deliveries of what was not sent. Witnesses: the send of that name, if any, the delivery."""

    name = "no_creation"

    def __init__(self) -> None:
        super().__init__()
        self._sent: dict[tuple[int, int, int], dict[int, MessageSent]] = {}

    def on_message_sent(self, record: MessageSent) -> None:
        """Remember what was sent."""
        stream = self._sent.setdefault((record.group, record.node, record.incarnation), {})
        earlier = stream.setdefault(record.sequence, record)
        if earlier is not record:
            self.report(
                f"{record.node}.{record.incarnation} sent two messages as {describe(message_of(record))}",
                earlier,
                record,
            )

    def on_message_delivered(self, record: MessageDelivered) -> None:
        """Compare a delivery with what was sent."""
        stream = self._sent.get((record.group, record.sender, record.sender_incarnation))
        sent = None if stream is None else stream.get(record.sequence)
        if sent is not None and sent.digest == record.digest:
            return
        who = f"{record.node}.{record.incarnation} delivered {describe(message_of(record))}"
        if sent is None:
            self.report(f"{who}, which had not been sent", record)
        else:
            self.report(
                f"{who} with digest {record.digest:#010x}, but it was sent with {sent.digest:#010x}",
                sent,
                record,
            )
