"""Settings and limits of what lies between a replicated log and its clients, for both sides."""

from dataclasses import dataclass

from vivum.core.settings import setting
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.framing import frame_bytes_setting


@dataclass(frozen=True, slots=True)
class LogServerSettings:
    """What a replica sets of the clients that it serves."""

    frame_bytes_max: int = frame_bytes_setting()
    clients_max: int = setting(
        4096,
        unit="clients",
        why="As many as there are sessions.",
        effect="At the limit the one that asked least recently is forgotten; it gets its answers when it asks again.",
    )
    requests_open_max: int = setting(
        16_384,
        unit="requests",
        why="Sessions and reads that wait for the log, of all clients.",
        effect="At the limit a further one is dropped and counted; its client asks again.",
    )
    uploads_max: int = setting(
        64,
        unit="clients",
        why="Clients that send a request in parts at the same time.",
        effect="At the limit the oldest is forgotten, and its client sends it again.",
    )
    request_bytes_max: int = setting(
        1024 * 1024,
        unit="bytes",
        why="As large as a command of the log may be.",
        effect="A larger request is refused. Times `uploads_max`, this bounds the memory for requests in parts.",
    )
    follows_max: int = setting(
        4096,
        unit="requests",
        why="One for each watch; each is looked at whenever something is applied.",
        effect="A further one is refused, and its client told so.",
    )
    follow_ns_max: int = setting(
        1 * SECOND,
        unit="ns",
        why="Far below what a client waits before it asks another replica, and no burden.",
        effect="So long a watch waits for a change before it is answered that there was none.",
    )
    advance_ns: int = setting(
        20 * MILLISECOND,
        unit="ns",
        why="An entry that ends leases should be committed before the next one is proposed.",
        effect="The least time between entries that only carry the time. Leases that end meanwhile end a little later.",
    )


@dataclass(frozen=True, slots=True)
class LogClientSettings:
    """What a client sets."""

    frame_bytes_max: int = frame_bytes_setting()
    patience_ns: int = setting(
        150 * MILLISECOND,
        unit="ns",
        why="Longer than a commit takes on a busy machine, shorter than an election.",
        effect="After this time without any answer it asks another replica; then after twice that, and so on.",
    )
    patience_ns_max: int = setting(
        1200 * MILLISECOND,
        unit="ns",
        why="Without the doubling, a slow log gets every command again before it can answer.",
        effect="It never waits longer than this before it asks again.",
    )
    retry_ns: int = setting(
        20 * MILLISECOND,
        unit="ns",
        why="An election takes some tenths of a second; a round trip far less.",
        effect="How soon it asks again where no leader is known, or two replicas point at each other.",
    )
    follow_ns: int = setting(
        2500 * MILLISECOND,
        unit="ns",
        why="More than twice `follow_ns_max` of a replica.",
        effect="A watch that nobody answers for so long is asked of another replica.",
    )
    request_bytes_max: int = setting(
        60_000,
        unit="bytes",
        why="One frame on loopback; a command that is larger goes alone.",
        effect="Commands that wait share a request up to this size.",
    )
    command_bytes_max: int = setting(
        1024 * 1024 - 64,
        unit="bytes",
        why="What a replica takes in one request.",
        effect="A larger command is refused with a LimitError.",
    )
    requests_flying_max: int = setting(
        8,
        unit="requests",
        why="Enough to fill the way to the leader and back.",
        effect="Commands beyond it wait for answers.",
    )
    commands_open_max: int = setting(
        16_384,
        unit="commands",
        why="A quarter of the answers that a session keeps.",
        effect="At the limit a further command is refused for now (NotNowError).",
    )
    queries_open_max: int = setting(
        4096,
        unit="queries",
        why="Reads and watches of one process.",
        effect="At the limit a further one is refused for now (NotNowError).",
    )
    answer_bytes_max: int = setting(
        2 * 1024 * 1024,
        unit="bytes",
        why="Several of the largest pages.",
        effect="A larger answer is refused and counted.",
    )
    replicas_max: int = setting(
        64,
        unit="replicas",
        why="Several times as many as a log has.",
        effect="Leaders that are named beyond it are not followed.",
    )
