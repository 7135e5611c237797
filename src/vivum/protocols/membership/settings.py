"""Settings of membership: of the configuration service, and of its client in every node."""

from dataclasses import dataclass

from vivum.core.settings import setting
from vivum.core.time import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of the configuration service."""

    batch_ns: int = setting(
        20 * MILLISECOND,
        unit="ns",
        why="Longer than a burst of subscriptions needs to arrive, shorter than a person notices.",
        effect="More makes fewer and larger view changes; less makes a subscription take effect sooner.",
    )
    frame_bytes_max: int = setting(
        60_000,
        unit="bytes",
        why="What one UDP datagram carries, less a margin; configurations are rare, so IP may cut them up.",
        effect="A larger configuration goes in parts. Less survives a lossy path better: parts are not resent singly.",
    )
    parts_max: int = setting(
        256,
        unit="frames",
        why="15 MB of configuration: some 500,000 members seen by one node.",
        effect="A configuration of more parts is not sent and the node stays behind; clients refuse one too.",
    )
    resend_ns_min: int = setting(
        100 * MILLISECOND,
        unit="ns",
        why="Several round trips of a local network, and the time to apply a large configuration.",
        effect="Less repairs a lost configuration sooner and repeats more that were only late.",
    )
    resend_ns_max: int = setting(
        2 * SECOND,
        unit="ns",
        why="Repetitions double their distance up to this while a node does not acknowledge.",
        effect="More spares the network while a node is cut off; less reaches it sooner when it is back.",
    )
    probe_interval_ns: int = setting(
        200 * MILLISECOND,
        unit="ns",
        why="Ten probes within the default of suspect_timeout_ns: loss of 20 % does not hide a live node.",
        effect="Less finds a live suspect sooner and costs two frames for each probe.",
    )
    probes_needed: int = setting(
        3,
        unit="probes",
        why="One or two may be lost on a network that works.",
        effect="A suspect is not dropped before this many stayed unanswered, however late the service runs.",
    )
    suspect_timeout_ns: int = setting(
        2 * SECOND,
        unit="ns",
        why="Four times the pauses of a managed runtime that seed 004 has (0.5 s).",
        effect="A node paused for less is never dropped; a dead one is dropped this long after the first report.",
    )
    silence_ns_max: int = setting(
        10 * SECOND,
        unit="ns",
        why="Five signs of life of an idle client (keepalive_ns): a node that nobody watches is noticed too.",
        effect="A node silent towards the service for this long is tested as if somebody suspected it.",
    )
    nodes_max: int = setting(
        65_536,
        unit="nodes",
        why="Far more than one service can keep informed.",
        effect="At the limit a Join is refused and counted; the process asks again.",
    )
    names_max: int = setting(
        65_536,
        unit="names",
        why="Former lives whose late Join must not be taken for a new process.",
        effect="The oldest are forgotten; a Join delayed for longer makes a ghost, which is found by its silence.",
    )
    tombstones_max: int = setting(
        4096,
        unit="regions",
        why="Regions that went lately, so that a node a little behind gets changes and not everything.",
        effect="A node further behind than the oldest gets the whole of what concerns it.",
    )
    passed_max: int = setting(
        64,
        unit="region views",
        why="Views that were over before a member acknowledged them; at one change in 20 ms more than a second's.",
        effect="A member for which more had to be kept is dropped, and comes back as a new life.",
    )
    standbys: int = setting(
        2,
        unit="nodes",
        why="One may be gone when the service goes; each waits for its word before anything is published.",
        effect="This many of the oldest members keep a copy of the state; 0 keeps none. At most 8.",
    )
    standby_beat_ns: int = setting(
        500 * MILLISECOND,
        unit="ns",
        why="A standby hears so often from the service while nothing changes.",
        effect="Less costs frames; takeover_after_ns must be several times as long.",
    )
    standby_timeout_ns: int = setting(
        2 * SECOND,
        unit="ns",
        why="Four beats: a standby that does not acknowledge delays every publication.",
        effect="A standby silent for this long no longer counts, and another one is chosen.",
    )
    standby_rest_ns: int = setting(
        10 * SECOND,
        unit="ns",
        why="Longer than a pause, so that a standby that stays slow is not chosen again and again.",
        effect="A standby that fell silent is not chosen again within this time.",
    )
    log_entries_max: int = setting(
        4096,
        unit="entries",
        why="What a standby may be behind and still catch up by entries.",
        effect="One further behind gets a copy of the whole state.",
    )
    takeover_after_ns: int = setting(
        4 * SECOND,
        unit="ns",
        why="Eight beats: a service that is paused or cut off for less goes on.",
        effect="A standby that hears nothing from the service for this long asks the members for support.",
    )
    minority_after_ns: int = setting(
        10 * SECOND,
        unit="ns",
        why="Long enough for a larger side to go on without this one; a dead half is dropped all the same.",
        effect="A service that hears less than half of its members for this long drops the rest and keeps no standbys.",
    )
    candidacy_ns: int = setting(
        400 * MILLISECOND,
        unit="ns",
        why="Several round trips.",
        effect="A candidate asks again after this time; it waits as long for each standby that comes before it.",
    )
    group_ranges_max: int = setting(
        16_384,
        unit="ranges",
        why="8,192 groups of which no two are neighbours, twice.",
        effect="A request that would go past it is refused and counted. A client raises LimitError before it asks.",
    )
    regions_max: int = setting(
        1024,
        unit="regions",
        why="Above it, regions are too small to share anything, and multicast channels too many for a network.",
        effect="With more exact regions, those most alike are merged as far as waste_max allows.",
    )
    waste_max: float = setting(
        0.25,
        unit="share",
        why="Dropping a quarter of what arrives costs less than sending most frames twice.",
        effect="More allows fewer regions; members of a merged one drop up to this share on the average.",
    )


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of the client of the configuration service, one in every node."""

    gather_ns: int = setting(
        1 * MILLISECOND,
        unit="ns",
        why="An application that enters thousands of topics in a loop makes one request.",
        effect="More makes fewer requests; less sends the first one sooner.",
    )
    retry_ns_min: int = setting(
        100 * MILLISECOND,
        unit="ns",
        why="The service answers within its batch time, 20 ms, and a round trip.",
        effect="Less repairs a lost request sooner and repeats more that were only late.",
    )
    retry_ns_max: int = setting(
        2 * SECOND,
        unit="ns",
        why="Requests double their distance up to this while the service does not answer.",
        effect="More spares a service in trouble; less notices its recovery sooner.",
    )
    keepalive_ns: int = setting(
        2 * SECOND,
        unit="ns",
        why="A node that was dropped while it was cut off learns so from the answer, even if it is idle.",
        effect="Less learns sooner and costs the service a frame from each node. Keep far below silence_ns_max.",
    )
    ping_ns: int = setting(
        500 * MILLISECOND,
        unit="ns",
        why="A few of them fit within service_silence_ns, after a sign of life stayed unanswered.",
        effect="Less finds sooner that the service is gone, or where it went, and costs frames.",
    )
    service_silence_ns: int = setting(
        4 * SECOND,
        unit="ns",
        why="The longest time between two signs of life, 3 s, and two pings. As takeover_after_ns of the service.",
        effect="A node that has heard nothing from the service for this long supports a standby that asks for it.",
    )
    report_interval_ns: int = setting(
        200 * MILLISECOND,
        unit="ns",
        why="The time between two probes; the ring reports for as long as the silence lasts.",
        effect="Further reports of the same member are left out. More spares the service.",
    )
    leave_attempts_max: int = setting(
        5,
        unit="attempts",
        why="A process that ends cannot wait for a service that is not there.",
        effect="Then the client stops; the service finds the node by its silence.",
    )
    group_ranges_max: int = setting(
        16_384,
        unit="ranges",
        why="As for the service: it would refuse more.",
        effect="Subscribing to more scattered groups raises LimitError. Choose neighbouring ids.",
    )
    parts_max: int = setting(
        256,
        unit="frames",
        why="As for the service: 15 MB of configuration.",
        effect="A configuration that claims more parts is refused and counted.",
    )
    gone_endpoints_max: int = setting(
        1024,
        unit="nodes",
        why="Protocols in old region views still talk to members that left, for a moment.",
        effect="The endpoints of those longest gone are forgotten.",
    )
