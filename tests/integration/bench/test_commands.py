"""`vivum bench` as people and programs call it: short runs over real sockets, with real processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vivum.bench.namespaces import why_impossible
from vivum.bench.peers import Row, median_row, ratios
from vivum.bench.plain import plain_ratios
from vivum.cli import main

TIMEOUT_S = 90
NO_HOSTS = why_impossible()
"""Why this machine cannot have hosts of network namespaces."""

KEYS = {
    "delivered_per_s_min",
    "delivered_per_s_mean",
    "sent_per_s",
    "lost",
    "duplicated",
    "out_of_order",
    "rss_mb_sender",
    "rss_mb_receiver_max",
}


def bench(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vivum.cli", "bench", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **environment},
    )


def result_of(*words: str, **environment: str) -> dict[str, Any]:
    done = bench(*words, "--json", **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_throughput_delivers_everything_once_and_in_order_to_all():
    result = result_of("throughput", "--size", "100", "--receivers", "2", "--groups", "3", "--seconds", "1")
    assert result.keys() >= KEYS
    assert (result["lost"], result["duplicated"], result["out_of_order"]) == (0, 0, 0)
    assert 0 < result["delivered_per_s_min"] <= result["delivered_per_s_mean"]
    assert result["rss_mb_sender"] > 1
    assert result["join_s"] > 0


@pytest.mark.slow
def test_a_receiver_that_was_stopped_gets_everything_or_is_told():
    result = result_of("throughput", "--receivers", "3", "--seconds", "1.5", "--stop-one", "0.3")
    effect = result["stop_one"]
    assert effect["stopped_caught_up"] or effect["stopped_was_told"]
    assert result["duplicated"] == result["out_of_order"] == 0


@pytest.mark.slow
def test_many_groups_are_compared_with_one_by_turns():
    result = result_of("groups", "--groups", "20", "--receivers", "1", "--seconds", "0.3", "--rounds", "1")
    assert (result["lost"], result["duplicated"], result["out_of_order"]) == (0, 0, 0)
    assert result["ratio"] == pytest.approx(result["rates_many"][0] / result["rates_one"][0], abs=0.001)
    assert result["rss_kb_per_group"] > 0


@pytest.mark.slow
def test_latency_tells_medians_of_vivum_and_of_raw_udp():
    result = result_of("latency", "--size", "64", "--rounds", "200")
    assert 0 < result["rtt_us_p50"] <= result["rtt_us_p99"]
    assert result["raw_udp_rtt_us_p50"] > 0


@pytest.mark.slow
def test_peers_compares_what_is_there_and_skips_the_rest_with_a_reason():
    words = ("--size", "1000", "--receivers", "1", "--seconds", "0.5")
    # Without a PATH there is no server; whether the library is there does not matter then.
    result = result_of("peers", *words, "--only", "raw", "--only", "vivum", "--only", "redis", PATH="/nowhere")
    by_system = {row["system"]: row for row in result["results"]}
    assert "not installed" in by_system["redis"]["skipped"]
    assert by_system["vivum"]["lost"] == 0
    (compared,) = result["ratios"]
    assert compared["best_peer"] is None
    assert compared["to_raw"] > 0


@pytest.mark.slow
def test_plain_compares_bytes_and_typed_messages_with_the_best_peer_and_loses_nothing():
    result = result_of("plain", "--size", "100", "--seconds", "0.5", "--rounds", "1")
    by_system = {row["system"]: row for row in result["results"]}
    assert list(by_system) == ["pyzmq", "zenoh", "vivum", "vivum typed"]
    for name in ("vivum", "vivum typed"):
        row = by_system[name]
        assert [row[key] for key in ("lost", "duplicated", "out_of_order")] == [0, 0, 0]
        assert row["delivered_per_s_min"] > 0
        assert row["cpu_ns_sender"] > 0
    of_bytes, of_typed = result["ratios"]
    assert (of_bytes["messages"], of_typed["messages"]) == ("bytes", "typed")
    peers = [row["delivered_per_s_min"] for row in (by_system["pyzmq"], by_system["zenoh"]) if "skipped" not in row]
    assert of_bytes["best_peer_per_s"] == (max(peers) if peers else None)


def test_plain_ratios_are_to_the_best_peer_that_was_measured():
    rows = [
        Row("pyzmq", 100, 1, 50),
        Row("zenoh", 100, 1, 100),
        Row("vivum", 100, 1, 150),
        Row("vivum typed", 100, 1, 70),
    ]
    assert [(each["best_peer"], each["to_best_peer"]) for each in plain_ratios(rows)] == [
        ("zenoh", 1.5),
        ("zenoh", 0.7),
    ]
    skipped = [Row(name, 100, 1, None, skipped="not installed") for name in ("pyzmq", "zenoh")]
    assert [each["to_best_peer"] for each in plain_ratios([*skipped, *rows[2:]])] == [None, None]


@pytest.mark.slow
@pytest.mark.skipif(bool(NO_HOSTS), reason=NO_HOSTS or "possible")
def test_peers_between_hosts_tells_when_the_rate_was_steady_and_the_longest_pause():
    words = ("--hosts", "--size", "1000", "--receivers", "2", "--seconds", "0.5", "--buffer-bytes", "212992")
    result = result_of("peers", *words, "--only", "vivum", "--only", "redis", "--only", "raw")
    by_system = {row["system"]: row for row in result["results"]}
    assert "not between hosts" in by_system["redis"]["skipped"]
    for name in ("raw", "vivum"):
        row = by_system[name]
        assert row["delivered_per_s_min"] > 0
        assert row["cpu_ns_sender"] > 0
        assert 0 <= row["settled_s"] < 1.5
        assert 0 < row["pause_s_max"] <= 0.5
    assert [by_system["vivum"][key] for key in ("lost", "duplicated", "out_of_order")] == [0, 0, 0]
    assert result["ratios"][0]["to_raw"] > 0


@pytest.mark.slow
@pytest.mark.skipif(bool(NO_HOSTS), reason=NO_HOSTS or "possible")
def test_vivum_is_measured_between_hosts_without_multicast_too():
    result = result_of("throughput", "--hosts", "--no-multicast", "--receivers", "2", "--seconds", "0.5")
    assert (result["lost"], result["duplicated"], result["out_of_order"]) == (0, 0, 0)
    assert result["delivered_per_s_min"] > 0


@pytest.mark.slow
@pytest.mark.skipif(bool(NO_HOSTS), reason=NO_HOSTS or "possible")
def test_senders_share_a_link_without_loss_and_with_it():
    result = result_of("link", "--rate", "250mbit", "--senders", "2", "--receivers", "2", "--seconds", "0.5")
    assert (result["rate_mbit"], result["capacity_per_s"]) == (250, 29990)
    for prefix in ("", "lossy_"):
        # A node that got no processor for seconds may be dropped, but not in silence.
        assert [result[prefix + key] for key in ("lost_in_silence", "duplicated", "out_of_order")] == [0, 0, 0]
        assert 0 < result[prefix + "fraction"] < 1.1
        assert len(result[prefix + "shares"]) == 2


@pytest.mark.slow
@pytest.mark.skipif(bool(NO_HOSTS), reason=NO_HOSTS or "possible")
def test_a_sleeper_gets_everything_or_is_told_and_the_healthy_get_everything():
    words = ("--receivers", "3", "--buffer-bytes", "212992", "--every", "2", "--periods", "2")
    result = result_of("sleeper", *words)
    assert [result[key] for key in ("lost_in_silence", "duplicated", "out_of_order")] == [0, 0, 0]
    assert (len(result["recovered_s"]), len(result["healthy_lives"])) == (2, 2)
    assert 0 < result["sleeper_share"] <= 1
    if result["sleeper_lives"] == 1:
        assert result["sleeper_lost"] == 0


@pytest.mark.parametrize("words", [["peers", "--hosts"], ["throughput", "--hosts"], ["link"], ["sleeper"]])
def test_an_ordinary_user_is_told_in_one_sentence_that_hosts_need_root(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["bench", *words]) == 1
    what = " ".join(words)
    assert capsys.readouterr().err == f"vivum: error: bench {what} cannot run here: network namespaces need root\n"


def test_ratios_are_to_the_best_peer_and_to_the_limit_of_the_same_cell():
    rows = [
        Row("raw", 100, 1, 1000),
        Row("pyzmq", 100, 1, 50),
        Row("zenoh", 100, 1, 100),
        Row("nats", 100, 1, None, skipped="not installed"),
        Row("vivum", 100, 1, 400),
        Row("pyzmq", 1000, 4, 10),
    ]
    first, second = ratios(rows)
    assert (first["best_peer"], first["to_best_peer"], first["to_raw"]) == ("zenoh", 4.0, 0.4)
    assert (second["best_peer"], second["to_best_peer"], second["to_raw"]) == ("pyzmq", None, None)


def test_of_several_rounds_the_median_counts_and_whatever_went_wrong():
    rounds = [
        Row("vivum", 100, 1, 300, lost=1, starved=0.1, settled_s=0.5, pause_s_max=0.01),
        Row("vivum", 100, 1, None, skipped="failed: no memory"),
        Row("vivum", 100, 1, 100, lost=2, starved=0.5, settled_s=0.1, pause_s_max=0.09),
        Row("vivum", 100, 1, 200, out_of_order=3, settled_s=0.9),
    ]
    row = median_row(rounds)
    assert (row.per_s_min, row.lost, row.out_of_order, row.starved) == (200, 3, 3, 0.5)
    assert row.rates == (300, 0, 100, 200)
    assert (row.settled_s, row.pause_s_max) == (0.5, 0.09)
    assert median_row(rounds[1:2]).skipped == "failed: no memory"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["peers", "--only", "kafka"], "no system is called 'kafka'; there are raw, pyzmq"),
        (["throughput", "--stop-one", "1"], "--stop-one needs at least two receivers"),
        (["throughput", "--receivers", "2", "--stop-one", "1", "--seconds", "2"], "needs --seconds 3 or more"),
        (["link", "--rate", "fast"], "--rate fast: write 100mbit"),
        (["throughput", "--set", "window_frames"], "write NAME=VALUE"),
        (["throughput", "--set", "no_such=1"], "no_such: unknown setting"),
        (["throughput", "--set", "window_frames=many"], "'many' is no whole number"),
    ],
)
def test_wrong_use_is_told_in_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1


@pytest.mark.slow
def test_ctrl_c_leaves_no_process_behind():
    run = subprocess.Popen(
        [sys.executable, "-m", "vivum.cli", "bench", "throughput", "--receivers", "2", "--seconds", "30"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        # There is no line to wait for: look for the workers themselves.
        while len(workers_of(run.pid)) < 4 and run.poll() is None:
            os.sched_yield()
        os.kill(run.pid, signal.SIGINT)
        assert run.wait(TIMEOUT_S) == 130
        assert workers_of(run.pid) == []
    finally:
        run.kill()
        run.communicate()


def workers_of(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"vivum.bench.worker" in words and b'"parent": %d}' % parent in words[-2]:
            found.append(int(path.parent.name))
    return found
