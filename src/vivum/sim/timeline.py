"""A readable timeline: one line for each trace record. For people, and for golden traces in tests."""

from vivum.core.time import MICROSECOND
from vivum.observe.trace import (
    BatchAppended,
    BatchCommitted,
    CommandAnswered,
    CommandApplied,
    CommandIssued,
    FaultInjected,
    FrameDropped,
    FrameReceived,
    FrameSent,
    GroupJoined,
    GroupLeft,
    GroupNamed,
    KeyChangeSeen,
    KeyDelivered,
    KeyOperationAnswered,
    KeyOperationIssued,
    LeaderElected,
    LeaseAsked,
    LeaseKept,
    LeaseOver,
    LockReleased,
    LockTaken,
    MessageDelivered,
    MessageSent,
    MessagesFailed,
    MessagesLost,
    MessagesSkipped,
    MessagesStable,
    NodeMeasured,
    NodeStarted,
    NodeStopped,
    QueueMeasured,
    ReadAnswered,
    ReadIssued,
    StateRestored,
    StateSaved,
    TraceRecord,
    ViewInstalled,
    WatchBegan,
)


def line_of(record: TraceRecord) -> str:
    """Write one record as `time  node  what`; times in microseconds."""
    who = f"{record.node}.{record.incarnation}" if record.node else "-"
    return f"{record.time_ns / MICROSECOND:>14,.1f}  {who:<6} {_what(record)}"


def _span(first: int, stop: int) -> str:
    return f"{first}" if stop == first + 1 else f"{first}..{stop - 1}"


def _what(record: TraceRecord) -> str:
    match record:
        case MessageSent():
            return f"sends     g{record.group} #{record.sequence}"
        case MessageDelivered():
            sender = f"{record.sender}.{record.sender_incarnation}"
            return f"delivers  g{record.group} #{record.sequence} of {sender}"
        case MessagesStable():
            return f"stable    g{record.group} #{_span(record.sequence, record.stop)}"
        case MessagesFailed():
            return f"failed    g{record.group} #{_span(record.sequence, record.stop)}: {record.cause}"
        case MessagesLost():
            sender = f"{record.sender}.{record.sender_incarnation}"
            return f"lost      g{record.group} #{_span(record.sequence, record.stop)} of {sender}"
        case MessagesSkipped():
            sender = f"{record.sender}.{record.sender_incarnation}"
            return f"skips     g{record.group} #{_span(record.sequence, record.stop)} of {sender}"
        case KeyDelivered():
            return f"key       g{record.group} #{record.sequence}: {record.key:#018x}"
        case FrameSent():
            return f"-> {record.frame} {record.bytes} B to {record.destination}"
        case FrameReceived():
            return f"<- {record.frame} {record.bytes} B from {record.source}"
        case FrameDropped():
            return f"xx {record.frame} {record.bytes} B from {record.source}: {record.cause}"
        case ViewInstalled():
            return f"view      g{record.group} v{record.view}: {' '.join(record.members)}"
        case GroupJoined():
            return f"joins     g{record.group}"
        case GroupNamed():
            return f"named     g{record.group} {record.topic} ({record.guarantee})"
        case NodeMeasured():
            return f"measured  {record.datagrams} datagrams sent, {record.repairs} repairs"
        case GroupLeft():
            return f"leaves    g{record.group}"
        case NodeStarted():
            return "starts"
        case NodeStopped():
            return f"stops: {record.cause}"
        case FaultInjected():
            return f"** {record.cause}"
        case QueueMeasured():
            return f"queue     {record.queue} {record.depth} of {record.limit} {record.unit}"
        case LeaderElected():
            return f"leads     g{record.group} t{record.term}"
        case BatchAppended():
            return f"appends   g{record.group} @{_span(record.index, record.stop)} t{record.term} {record.digest:08x}"
        case BatchCommitted():
            return f"commits   g{record.group} @{_span(record.index, record.stop)} t{record.term} {record.digest:08x}"
        case StateSaved():
            return f"snapshot  g{record.group} @{record.index} t{record.term}"
        case StateRestored():
            return f"restores  g{record.group} @{record.index} t{record.term}"
        case CommandApplied():
            return f"applies   g{record.group} @{record.index}: #{record.sequence} of {record.client}"
        case CommandIssued():
            return f"issues    g{record.group} #{record.sequence} of {record.client}"
        case CommandAnswered():
            return f"answered  g{record.group} #{record.sequence} of {record.client}"
        case ReadIssued():
            return f"reads     g{record.group} #{record.sequence} of {record.client}"
        case ReadAnswered():
            return f"has read  g{record.group} #{record.sequence} of {record.client} @{record.index}"
        case KeyOperationIssued():
            return f"begins    g{record.group} #{record.sequence}: {record.operation} {record.key:x}"
        case KeyOperationAnswered():
            return (
                f"has       g{record.group} #{record.sequence}: {record.outcome}, {record.value:x} @{record.revision}"
            )
        case WatchBegan():
            return f"watches   g{record.group} from @{record.revision}"
        case KeyChangeSeen():
            return f"sees      g{record.group} @{record.revision}: {record.key:x} is {record.value:x}"
        case LeaseAsked() | LeaseKept() | LeaseOver():
            return f"lease     g{record.group} {record.lease} {type(record).__name__.removeprefix('Lease').lower()}"
        case LockTaken():
            return f"locks     g{record.group} {record.key:x} with token {record.token}"
        case LockReleased():
            return f"unlocks   g{record.group} {record.key:x} with token {record.token}"
