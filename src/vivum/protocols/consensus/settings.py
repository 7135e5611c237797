"""Settings and limits of a replica. The same at all replicas of a log, where they decide what is applied (sessions)."""

from dataclasses import dataclass

from vivum.core.settings import setting
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.framing import frame_bytes_setting


@dataclass(frozen=True, slots=True)
class ConsensusSettings:
    """All that can be set of a replica."""

    election_ns: int = setting(
        400 * MILLISECOND,
        unit="ns",
        why="Eight heartbeats: none of the usual pauses of a Python process looks like death.",
        effect="A leader that dies is replaced after one to two of these. Less elects sooner, and for nothing.",
    )
    heartbeat_ns: int = setting(
        50 * MILLISECOND,
        unit="ns",
        why="Cheap, and several fit one election timeout.",
        effect="Less notices lost entries at the end of a burst sooner; more saves datagrams.",
    )
    resend_ns: int = setting(
        100 * MILLISECOND,
        unit="ns",
        why="Longer than a slow disk takes to force a batch.",
        effect="A peer that acknowledges nothing for so long gets again what it lacks.",
    )
    frame_bytes_max: int = frame_bytes_setting()
    batch_bytes_max: int = setting(
        60_000,
        unit="bytes",
        why="About what one datagram on loopback carries.",
        effect="Commands that come together share a batch up to this size. A single larger one has its own.",
    )
    command_bytes_max: int = setting(
        1024 * 1024,
        unit="bytes",
        why="State belongs into the log in small steps; large contents belong elsewhere.",
        effect="A larger command is refused with a LimitError.",
    )
    pending_bytes_max: int = setting(
        8 * 1024 * 1024,
        unit="bytes",
        why="Some windows: enough that a disk never waits for commands.",
        effect="Proposals that are not committed. At the limit further ones are refused for now (NotNowError).",
    )
    window_bytes_max: int = setting(
        1024 * 1024,
        unit="bytes",
        why="Fits the receive buffer of a port, twice.",
        effect="Bytes under way to one peer. At the limit sending waits for its acknowledgements.",
    )
    window_messages_max: int = setting(
        256,
        unit="messages",
        why="With frames of 1,472 bytes a third of a megabyte: a millisecond of a fast link.",
        effect="The same, counted in messages.",
    )
    reads_max: int = setting(
        65_536,
        unit="reads",
        why="All reads that come within one round trip share a round.",
        effect="At the limit further reads are refused for now (NotNowError).",
    )
    snapshot_log_bytes: int = setting(
        32 * 1024 * 1024,
        unit="bytes",
        why="A restart reads it in well under a second.",
        effect="So much applied log makes a snapshot. Less restarts sooner and takes snapshots more often.",
    )
    log_tail_bytes: int = setting(
        4 * 1024 * 1024,
        unit="bytes",
        why="Who was away for seconds should not need a snapshot.",
        effect="Applied log that stays in memory in front of a snapshot.",
    )
    snapshot_bytes_max: int = setting(
        256 * 1024 * 1024,
        unit="bytes",
        why="State that a replica holds in memory anyway.",
        effect="A larger snapshot is not sent, and refused where it comes.",
    )
    sessions_max: int = setting(
        4096,
        unit="sessions",
        why="One for each node of a domain, several times over.",
        effect="Opening one more ends the one that was not used for longest.",
    )
    session_answers_max: int = setting(
        65_536,
        unit="answers",
        why="What a client may have under way without hearing an answer.",
        effect="Past it the oldest answers of a session are forgotten; a retry of those is told so.",
    )
    session_idle_ns: int = setting(
        3600 * SECOND,
        unit="ns of log time",
        why="Nobody retries a command after an hour.",
        effect="A session that was not used for so long ends.",
    )
    promote_lag_max: int = setting(
        4096,
        unit="entries",
        why="A tenth of a second of traffic: a new voter does not hold commits up.",
        effect="A learner that lacks more is not promoted yet (NotNowError).",
    )
    replicas_max: int = setting(
        15,
        unit="replicas",
        why="Seven voters survive three deaths; the rest are learners.",
        effect="The change that adds one more is refused.",
    )
