"""Scenario files: what they may say, and the one line that a mistake gets."""

from pathlib import Path

import pytest

from vivum.cli import main
from vivum.core.time import MILLISECOND, SECOND
from vivum.sim.library import built_in_names, find_scenario
from vivum.sim.scenario import Scenario, ScenarioError, load_scenario
from vivum.sim.swarm import make_up
from vivum.sim.world import World

TOP = (
    "checkers, description, duration, faults, groups, host, network, nodes, protocol, service, settings, settle, "
    "traffic"
)
CRASH = '[[faults]]\nkind = "crash"\nat = "0s"\n'

# What the file says, and what the message must name: the key, then what is allowed.
BAD: dict[str, tuple[str, str, str]] = {
    "no nodes": ('duration = "1s"', "nodes", "must be given"),
    "text for a number": ('nodes = "three"', "nodes", "Expected `int`"),
    "no node": ("nodes = 0", "nodes", ">= 1"),
    "too many nodes": ("nodes = 10001", "nodes", "<= 10000"),
    "a number beyond 64 bits": ("nodes = 99999999999999999999999999", "nodes", "<= 10000"),
    "unknown key": ("nodes = 3\nnode = 4", "node", f"allowed here: {TOP}"),
    "unknown key in a table": (
        "nodes = 3\n[network]\nlos = 0.1",
        "network.los",
        "allowed here: bandwidth, burst_length",
    ),
    "unknown key in a list": (f"nodes = 3\n{CRASH}node = 1", "faults[0].node", "allowed here: after, at, delay, every"),
    "unknown key in the second of a list": (
        f"nodes = 3\n{CRASH}{CRASH}wat = 1",
        "faults[1].wat",
        "allowed here: after, at, delay",
    ),
    "number for a duration": ("nodes = 3\nduration = 5", "duration", "such as '10ms'"),
    "duration without a unit": ('nodes = 3\nsettle = "5"', "settle", "such as '10ms'"),
    "negative duration": ('nodes = 3\nduration = "-1s"', "duration", "such as '10ms'"),
    "no duration": ('nodes = 3\nduration = "0s"', "duration", "longer than 0s"),
    "endless duration": ('nodes = 3\nduration = "9999999999999min"', "duration", "at most"),
    "clock beyond the wire": ('nodes = 3\n[host]\nclock_offset = "9999999999999min"', "host.clock_offset", "at most"),
    "unknown checker": ('nodes = 3\ncheckers = ["fifoo"]', "checkers", "allowed: all_delivered, bounded_queues"),
    "checkers not a list": ('nodes = 3\ncheckers = "fifo"', "checkers", "Expected a list"),
    "unknown protocol": ('nodes = 3\nprotocol = "smoke"', "protocol", "allowed: "),
    "unknown setting": ("nodes = 3\n[settings]\nwindow = 3", "settings: window", "allowed: reliable, frame_bytes_max"),
    "text for a setting": ('nodes = 3\n[settings]\nwindow_frames = "a"', "settings: window_frames", "Expected `int`"),
    "setting of nothing": ("nodes = 3\n[settings]\nwindow_frames = 0", "settings: window_frames", "at least 1"),
    "negative time": ("nodes = 3\n[settings]\nack_delay_ns = -1", "settings: ack_delay_ns", "at least 1"),
    "window too large": ("nodes = 3\n[settings]\nwindow_frames = 100000000", "settings: window_frames", "at most"),
    "frame too small": ("nodes = 3\n[settings]\nframe_bytes_max = 10", "settings: frame_bytes_max", "64 to 65507"),
    "frame too large": ("nodes = 3\n[settings]\nframe_bytes_max = 70000", "settings: frame_bytes_max", "64 to 65507"),
    "least above most": (
        "nodes = 3\n[settings]\nnak_delay_ns_min = 9000000000",
        "settings: nak_delay_ns_min",
        "at most nak_delay_ns_max",
    ),
    "settings not a table": ("nodes = 3\nsettings = 3", "settings", "Expected a table"),
    "bandwidth without a unit": ("nodes = 3\n[network]\nbandwidth = 100", "network.bandwidth", "such as '100Mbit'"),
    "no bandwidth": ('nodes = 3\n[network]\nbandwidth = "0Mbit"', "network.bandwidth", "such as '100Mbit'"),
    "odd digits": ('nodes = 3\n[network]\nbandwidth = "²Mbit"', "network.bandwidth", "such as '100Mbit'"),
    "everything lost": ("nodes = 3\n[network]\nloss = 1.0", "network.loss", "< 1"),
    "not a number": ("nodes = 3\n[network]\nloss = nan", "network.loss", ">= 0"),
    "bursts too short": (
        "nodes = 3\n[network]\nburst_rate = 0.9\nburst_length = 1",
        "network.burst_rate",
        "at most 0.5",
    ),
    "endless bursts": ("nodes = 3\n[network]\nburst_length = inf", "network.burst_length", "<= 1000000"),
    "wild clocks": ("nodes = 3\n[host]\nclock_drift_ppm = 20000", "host.clock_drift_ppm", "<= 10000"),
    "unknown pattern": (
        'nodes = 3\n[groups]\npattern = "star"',
        "groups.pattern",
        "allowed: 'identical', 'hierarchical', 'random'",
    ),
    "members that are not there": (
        'nodes = 3\n[groups]\npattern = "random"\nmembers = 4',
        "groups.members",
        "at most all",
    ),
    "groups without number": ("nodes = 3\n[groups]\ncount = 2000000", "groups.count", "<= 1000000"),
    "a sender that is not there": ("nodes = 3\n[[traffic]]\nsenders = 4", "traffic[0].senders", "1 to 3"),
    "node 0": ("nodes = 3\n[[traffic]]\nsenders = [0]", "traffic[0].senders[0]", ">= 1"),
    "rate of nothing": ("nodes = 3\n[[traffic]]\nrate = 0", "traffic[0].rate", ">= 0.001"),
    "endless rate": ("nodes = 3\n[[traffic]]\nrate = inf", "traffic[0].rate", "<= 10000000"),
    "a rate in words": ('nodes = 3\n[[traffic]]\nrate = "fast"', "traffic[0].rate", "allowed: a number, 'max'"),
    "negative size": ("nodes = 3\n[[traffic]]\nsize = -1", "traffic[0].size", ">= 0"),
    "a message over the limit": ("nodes = 3\n[[traffic]]\nsize = 16777217", "traffic[0].size", "<= 16777216"),
    "traffic after the end": ('nodes = 3\n[[traffic]]\nstart = "1s"', "traffic[0].start", "before the end"),
    "table for a list": ("nodes = 3\n[traffic]\nrate = 5", "traffic", "Expected a list"),
    "unknown fault": (
        'nodes = 3\n[[faults]]\nkind = "fire"\nat = "0s"',
        "faults[0].kind",
        "allowed: 'crash', 'service_crash', 'restart'",
    ),
    "a fault without time": ('nodes = 3\n[[faults]]\nkind = "crash"', "faults[0].at", "must be given"),
    "a fault after the end": ('nodes = 3\n[[faults]]\nkind = "crash"\nat = "5s"', "faults[0].at", "before the end"),
    "a fault elsewhere": (f"nodes = 3\n{CRASH}nodes = [4]", "faults[0].nodes", "1 to 3"),
    "a partition of nobody": (
        'nodes = 3\n[[faults]]\nkind = "partition"\nat = "0s"',
        "faults[0].nodes",
        "needs the nodes of one side",
    ),
    "a pause without end": ('nodes = 3\n[[faults]]\nkind = "pause"\nat = "0s"', "faults[0].lasts", "needs a duration"),
    "again at once": (f'nodes = 3\n{CRASH}every = "0s"', "faults[0].every", "longer than 0s"),
    "a factor of nothing": (
        'nodes = 3\n[[faults]]\nkind = "slow"\nat = "0s"\nlasts = "1s"\nfactor = 0',
        "faults[0].factor",
        ">= 1",
    ),
    "a rate above one": ('nodes = 3\n[[faults]]\nkind = "loss"\nat = "0s"\nrate = 2', "faults[0].rate", "< 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_gets_one_line_that_names_file_key_and_what_is_allowed(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, key, allowed = BAD[case]
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    assert main(["sim", "run", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith(f"vivum: error: {path}: {key}: "), line
    assert allowed in line


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"nodes = ", "not a TOML file"),
        (b"\x89PNG\r\n", "not a TOML file"),
        ("beschreibung = 'grün'".encode("latin-1"), "not a TOML file"),
        (b"nodes = 3\nnodes = 4", "not a TOML file"),
        (b"a = " + b"[" * 5000, "nested too deeply"),
    ],
    ids=["torn", "binary", "latin-1", "twice", "deep"],
)
def test_a_file_that_is_not_toml_gets_one_line(
    content: bytes, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    assert main(["sim", "run", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"vivum: error: {path}: {wrong}") or wrong in line


def test_a_file_that_cannot_be_read_gets_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        assert main(["sim", "run", str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert str(path) in line
        assert "cannot be read" in line


@pytest.mark.parametrize("name", ["quickstrat", "x" * 5000], ids=["typo", "too long for a name"])
def test_an_unknown_name_gets_the_list_of_known_ones(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "run", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no such scenario" in line
    assert "quickstart" in line


@pytest.mark.parametrize(
    "words",
    [
        ["sim", "runn"],
        ["sim", "run"],
        ["sim", "run", "quickstart", "--sed", "1"],
        ["sim", "run", "quickstart", "--seed", "x"],
        ["sim", "run", "quickstart", "--seed", "-1"],
        ["sim", "swarm", "--seeds", "0"],
        ["sim", "swarm", "--jobs", "-1"],
        ["sim", "show", "quickstart", "--limit", "0"],
        ["sim", "show", "quickstart", "--node", "99"],
    ],
)
def test_unknown_words_on_the_command_line_are_wrong_use(words: list[str]) -> None:
    assert main(words) == 2


def test_a_scenario_says_what_it_needs_and_the_rest_has_defaults(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(
        'nodes = 2\nduration = "1.5 s"\n[network]\nbandwidth = "10 Mbit"\n[[traffic]]\nsenders = [2]\nrate = "max"\n'
    )
    scenario = load_scenario(path)
    assert scenario.duration == 1500 * MILLISECOND
    assert scenario.network.bandwidth == 10_000_000
    assert scenario.traffic[0].senders == (2,)
    assert scenario.settle == 0
    assert scenario.protocol == "reference"


@pytest.mark.parametrize("name", built_in_names())
def test_every_built_in_scenario_can_be_read_and_tells_what_it_shows(name: str) -> None:
    scenario = find_scenario(name, 1)
    assert scenario.description
    assert "all_delivered" in scenario.checkers
    assert scenario.settle >= 5 * SECOND


def test_worlds_that_are_made_up_differ_by_seed_and_make_sense() -> None:
    worlds = [make_up(seed) for seed in range(50)]
    assert len(set(map(str, worlds))) == 50
    for world in worlds:
        assert isinstance(world, Scenario)
        assert all(fault.at < world.duration for fault in world.faults)


def test_a_scenario_error_is_the_callers_fault() -> None:
    with pytest.raises(ScenarioError, match="no such scenario"):
        find_scenario("nothing", 1)


@pytest.mark.parametrize(
    ("size", "bandwidth"), [(0, "10Mbit"), (1, "10Mbit"), (1_000_000, "1Gbit"), (2_000_000, "1Gbit")]
)
def test_a_greedy_sender_of_any_size_waits_for_room_and_gets_its_messages_out(
    size: int, bandwidth: str, tmp_path: Path
) -> None:
    path = tmp_path / "greedy.toml"
    path.write_text(
        'nodes = 2\nduration = "100ms"\nsettle = "2s"\ncheckers = ["fifo", "bounded_queues", "all_delivered"]\n'
        "[settings]\npending_bytes_max = 50000\nwindow_frames = 100\n"
        f'[network]\nbandwidth = "{bandwidth}"\n[[traffic]]\nrate = "max"\nsize = {size}\n'
    )
    result = World(load_scenario(path), 1).run()
    assert result.violations == []
    assert result.accepted >= 1
    assert result.delivered == 2 * result.accepted
    assert result.refused > 0


def test_latency_is_measured_in_true_time_whatever_the_clocks_say(tmp_path: Path) -> None:
    path = tmp_path / "clocks.toml"
    path.write_text(
        'nodes = 3\nduration = "200ms"\n[host]\nclock_offset = "10s"\nclock_drift_ppm = 1000\n[[traffic]]\nrate = 100\n'
    )
    result = World(load_scenario(path), 1).run()
    assert result.latency_us_p50 is not None
    assert 100 < result.latency_us_p50 < 1000
