"""Scenarios: what a simulation consists of, as data.

A scenario is a TOML file. This module says which keys there are, what they mean and what they may be, and turns any
mistake into one line that names the file, the key and what is allowed. `docs/design/simulator.md` explains by example.
"""

import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from vivum.checkers.registry import CHECKERS
from vivum.core.errors import UsageError
from vivum.core.time import parse_duration_ns
from vivum.node.build import PROTOCOLS, make_settings
from vivum.protocols.membership.settings import ServiceSettings

Probability = Annotated[float, Meta(ge=0, lt=1)]
Positive = Annotated[int, Meta(ge=1)]
BurstLength = Annotated[float, Meta(ge=1, le=1_000_000)]

DURATION_MAX_NS = 1 << 60
"""Some 36 years: two of them still fit the 64 bits that time has on the wire."""


class ScenarioError(UsageError):
    """A scenario that cannot be run; the message names file, key and what is allowed."""


class Duration(int):
    """Nanoseconds, written as `"10ms"`."""


class Bandwidth(int):
    """Bits a second, written as `"100Mbit"`."""


_BANDWIDTH_UNITS = {"kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}


class NetworkSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The network: the defaults are the testbed of seed 004, switched 100 Mb/s."""

    bandwidth: Bandwidth = Bandwidth(100_000_000)
    delay: Duration = Duration(50_000)
    jitter: Duration = Duration(10_000)
    egress_bytes: Positive = 131_072
    ingress_bytes: Positive = 131_072
    loss: Probability = 0.0
    burst_rate: Probability = 0.0
    burst_length: BurstLength = 10.0
    duplicate: Probability = 0.0
    reorder: Probability = 0.0
    reorder_delay: Duration = Duration(1_000_000)


class HostSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The computers: the defaults handle about 10,000 datagrams/s, as those of seed 004 did.

    `memory_cost` makes handling dearer by this share for each megabyte that the node holds, as allocators do.
    """

    receive_cost: Duration = Duration(90_000)
    send_cost: Duration = Duration(20_000)
    socket_bytes: Positive = 212_992
    inbox_bytes: Positive = 1_048_576
    memory_cost: Annotated[float, Meta(ge=0, le=10)] = 0.0
    clock_offset: Duration = Duration(0)
    clock_drift_ppm: Annotated[int, Meta(ge=0, le=10_000)] = 0


class GroupsSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """The groups, and how nodes overlap in them."""

    count: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    pattern: Literal["identical", "hierarchical", "random"] = "identical"
    members: Positive = 3
    slow: Literal["isolate", "drop", "wait"] = "isolate"


class TrafficSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """What applications send: each sender goes round its groups, or picks one at random."""

    senders: Positive | tuple[Positive, ...] = 1
    rate: Annotated[float, Meta(ge=0.001, le=10_000_000)] | Literal["max"] = 1000.0
    size: Annotated[int, Meta(ge=0, le=16 * 1024 * 1024)] = 1000
    arrival: Literal["constant", "poisson"] = "constant"
    choose: Literal["round_robin", "random"] = "round_robin"
    start: Duration = Duration(0)
    stop: Duration | None = None


FaultKind = Literal[
    "crash",
    "service_crash",
    "restart",
    "pause",
    "slow",
    "partition",
    "one_way",
    "loss",
    "burst",
    "duplicate",
    "reorder",
    "leave",
    "join",
]


class FaultSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """Something goes wrong at a time, for a time, perhaps again and again. No `nodes` means all of them.

    `leave` and `join` are no faults, but as hard: applications leave or join `groups`, for good or for a time.
    `service_crash` ends the host of the configuration service, whose state is lost; a standby must go on.
    """

    kind: FaultKind
    at: Duration
    lasts: Duration | None = None
    every: Duration | None = None
    nodes: tuple[Positive, ...] = ()
    groups: tuple[Positive, ...] = ()
    rate: Probability = 0.1
    length: BurstLength = 10.0
    factor: Positive = 10
    delay: Duration = Duration(1_000_000)
    after: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """How many more effects a host carries out before it crashes: it dies between two of them."""


class Scenario(Struct, forbid_unknown_fields=True, frozen=True):
    """A whole simulation, but for its seed."""

    nodes: Annotated[int, Meta(ge=1, le=10_000)]
    description: str = ""
    duration: Duration = Duration(1_000_000_000)
    settle: Duration = Duration(0)
    protocol: str = "reference"
    checkers: tuple[str, ...] = ("no_duplicate", "no_creation", "fifo", "bounded_queues")
    settings: dict[str, Any] = {}
    service: dict[str, Any] = {}
    network: NetworkSpec = NetworkSpec()
    host: HostSpec = HostSpec()
    groups: GroupsSpec = GroupsSpec()
    traffic: tuple[TrafficSpec, ...] = (TrafficSpec(),)
    faults: tuple[FaultSpec, ...] = ()


def load_scenario(path: Path) -> Scenario:
    """Read and check a scenario file."""
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: not a TOML file: {error}") from error
    except RecursionError as error:
        raise ScenarioError(f"{path}: not a scenario: nested too deeply") from error
    return parse_scenario(table, str(path))


def parse_scenario(table: Mapping[str, Any], name: str) -> Scenario:
    """Check a scenario that is already a table; `name` stands in error messages."""
    _check_keys(table, Scenario, name, "")
    try:
        scenario = msgspec.convert(table, Scenario, dec_hook=_decode_unit)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{name}: {_explain(str(error))}") from error
    _check_sense(scenario, name)
    return scenario


def _check_keys(table: Mapping[str, Any], struct: type[Struct], name: str, where: str) -> None:
    """Refuse unknown keys with the list of known ones, which msgspec alone does not give."""
    known = {each.name: each.type for each in msgspec.structs.fields(struct)}
    for key, value in table.items():
        if key not in known:
            raise ScenarioError(f"{name}: {where}{key}: unknown key; allowed here: {', '.join(sorted(known))}")
        inner = _struct_inside(known[key])
        if inner is None:
            continue
        for index, item in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(item, dict):
                step = f"{key}[{index}]." if isinstance(value, list) else f"{key}."
                _check_keys(item, inner, name, where + step)


def _explain(error: str) -> str:
    """Say in our words what msgspec found: the key, and what is allowed."""
    what, _, where = error.partition(" - at `$")
    key = where.strip(".`")
    if what.startswith("Object missing required field"):
        missing = what.split("`")[1]
        return f"{key}.{missing}: missing; it must be given".lstrip(".")
    if what.startswith("Invalid enum value"):
        annotation: Any = Scenario
        for step in key.split("."):
            struct = _struct_inside(annotation)
            assert struct is not None
            fields = {each.name: each.type for each in msgspec.structs.fields(struct)}
            annotation = fields[step.partition("[")[0]]
        what = f"{what.removeprefix('Invalid enum value ')} is unknown; allowed: {', '.join(_choices(annotation))}"
    return f"{key}: {what.replace('`object`', 'a table').replace('`array`', 'a list')}"


def _choices(annotation: Any) -> list[str]:
    """List the words that an annotation allows, a union of words and numbers at most."""
    if get_origin(annotation) is Literal:
        return [repr(each) for each in get_args(annotation)]
    if get_origin(annotation) is Annotated:
        return ["a number"]
    return [choice for each in get_args(annotation) for choice in _choices(each)]


def _struct_inside(annotation: Any) -> type[Struct] | None:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return annotation
    if get_origin(annotation) in (tuple, Union, types.UnionType):
        return next((found for each in get_args(annotation) if (found := _struct_inside(each))), None)
    return None


def _decode_unit(wanted: type, value: Any) -> Any:
    if wanted is Duration:
        if not isinstance(value, str):
            raise ValueError(f"Expected a duration such as '10ms', got {value!r}")
        try:
            duration_ns = parse_duration_ns(value)
        except UsageError as error:
            raise ValueError(str(error)) from error
        if duration_ns > DURATION_MAX_NS:
            raise ValueError(f"Expected a duration of at most {DURATION_MAX_NS} ns, got {value!r}")
        return Duration(duration_ns)
    if wanted is Bandwidth:
        for unit, size in _BANDWIDTH_UNITS.items():
            number = value.removesuffix(unit).strip() if isinstance(value, str) and value.endswith(unit) else ""
            if number.isdecimal() and int(number):
                return Bandwidth(int(number) * size)
        raise ValueError(f"Expected a bandwidth such as '100Mbit' (kbit, Mbit, Gbit), got {value!r}")
    # Unreachable: for a new unit whose decoder was forgotten.
    raise NotImplementedError(wanted)  # pragma: no cover


def _burst_rate_max(length: float) -> float:
    """Between two bursts at least one datagram arrives."""
    return length / (length + 1)


def _check_sense(scenario: Scenario, name: str) -> None:
    """Refuse what is well formed and cannot be."""

    def refuse(key: str, what: str) -> None:
        raise ScenarioError(f"{name}: {key}: {what}")

    if scenario.protocol not in PROTOCOLS:
        refuse("protocol", f"{scenario.protocol!r} is unknown; allowed: {', '.join(sorted(PROTOCOLS))}")
    for checker in scenario.checkers:
        if checker not in CHECKERS:
            refuse("checkers", f"{checker!r} is unknown; allowed: {', '.join(sorted(CHECKERS))}")
    if scenario.duration <= 0:
        refuse("duration", "must be longer than 0s")
    if scenario.groups.pattern == "random" and scenario.groups.members > scenario.nodes:
        refuse("groups.members", f"{scenario.groups.members} of {scenario.nodes} nodes; at most all of them")
    for index, traffic in enumerate(scenario.traffic):
        senders = [traffic.senders] if isinstance(traffic.senders, int) else traffic.senders
        if max(senders, default=0) > scenario.nodes:
            refuse(f"traffic[{index}].senders", f"{max(senders)}; nodes are 1 to {scenario.nodes}")
        if traffic.start >= scenario.duration:
            refuse(f"traffic[{index}].start", "must be before the end of the duration")
    for index, fault in enumerate(scenario.faults):
        if max(fault.nodes, default=0) > scenario.nodes:
            refuse(f"faults[{index}].nodes", f"{max(fault.nodes)}; nodes are 1 to {scenario.nodes}")
        if fault.kind in ("partition", "one_way") and not fault.nodes:
            refuse(f"faults[{index}].nodes", f"a {fault.kind} fault needs the nodes of one side")
        if fault.kind in ("pause", "slow") and fault.lasts is None:
            refuse(f"faults[{index}].lasts", f"a {fault.kind} fault needs a duration")
        if fault.kind in ("leave", "join") and not fault.groups:
            refuse(f"faults[{index}].groups", f"a {fault.kind} needs the groups")
        if fault.kind == "service_crash" and PROTOCOLS[scenario.protocol].make_service is None:
            refuse(f"faults[{index}].kind", f"protocol {scenario.protocol!r} has no configuration service")
        if max(fault.groups, default=0) > scenario.groups.count:
            refuse(f"faults[{index}].groups", f"{max(fault.groups)}; groups are 1 to {scenario.groups.count}")
        if fault.every is not None and fault.every <= 0:
            refuse(f"faults[{index}].every", "must be longer than 0s")
        if fault.at >= scenario.duration:
            refuse(f"faults[{index}].at", "must be before the end of the duration, when everything heals")
        if fault.kind == "burst" and fault.rate > _burst_rate_max(fault.length):
            refuse(f"faults[{index}].rate", f"at most {_burst_rate_max(fault.length):.3f} with bursts that short")
    network = scenario.network
    if network.burst_rate > _burst_rate_max(network.burst_length):
        refuse("network.burst_rate", f"at most {_burst_rate_max(network.burst_length):.3f} with bursts that short")
    try:
        PROTOCOLS[scenario.protocol].make_settings(scenario.settings)
    except UsageError as error:
        refuse("settings", str(error))
    if scenario.service and PROTOCOLS[scenario.protocol].make_service is None:
        refuse("service", f"protocol {scenario.protocol!r} has no configuration service on a host of its own")
    try:
        make_settings(ServiceSettings, scenario.service)
    except UsageError as error:
        refuse("service", str(error))
