import json

import pytest

from vivum.cli import health, main
from vivum.cli.doctor import broken, drawn, report, verdict
from vivum.cli.health import Finding, Status


def test_every_check_is_reported_to_machines_with_status_and_advice(capsys):
    assert main(["doctor", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["ok"] is True
    names = [check["name"] for check in result["checks"]]
    assert {
        "Python",
        "compiled codec",
        "UDP_SEGMENT",
        "UDP_GRO",
        "IP multicast on loopback",
        "shared memory",
        "Java",
    } <= set(names)
    for check in result["checks"]:
        assert (check["status"] == "ok") == (check["advice"] == ""), check


def test_every_check_is_shown_to_people(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "receive buffer" in out
    assert "Vivum works here" in out


def test_only_something_essential_makes_the_doctor_fail():
    optional = Finding("pyspark", Status.MISSING, "none", "install it")
    essential = Finding("Python", Status.MISSING, "3.8", "install a later one", essential=True)
    assert broken([optional]) == []
    assert broken([optional, essential]) == [essential]
    assert report([essential])["ok"] is False
    assert "cannot work here: Python" in verdict([essential]).plain


def test_the_verdict_counts_what_could_be_better():
    fine, hint = Finding("a", Status.OK, "x"), Finding("b", Status.HINT, "y", "do z")
    assert "nothing could be better" in verdict([fine]).plain
    assert "1 thing could" in verdict([fine, hint]).plain
    assert "2 things could" in verdict([hint, hint]).plain
    assert drawn([fine, hint]).row_count == 2


def test_an_old_python_is_missing_and_a_new_one_is_not():
    assert health.judge_python((3, 10, 13)).status is Status.MISSING
    assert health.judge_python((3, 11, 0)).status is Status.OK
    assert health.judge_python((4, 0, 0)).status is Status.OK


@pytest.mark.parametrize(
    ("text", "status", "found"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', Status.OK, "17.0.15"),
        ('openjdk version "21" 2023-09-19', Status.OK, "21"),
        ('java version "1.8.0_402"', Status.HINT, "1.8.0_402, too old"),
        ('openjdk version "11.0.22"', Status.HINT, "11.0.22, too old"),
        ("", Status.HINT, "none"),
        ("Unable to locate a Java Runtime.", Status.HINT, "none"),
    ],
)
def test_java_is_judged_by_what_it_prints(text, status, found):
    finding = health.judge_java(text)
    assert (finding.status, finding.found) == (status, found)


def test_a_small_socket_buffer_comes_with_the_command_that_widens_it():
    finding = health.judge_buffer(health.RECEIVE_BUFFER, 212_992, 212_992)
    assert finding.status is Status.HINT
    assert "sysctl -w net.core.rmem_max=16777216" in finding.advice
    assert health.judge_buffer(health.SEND_BUFFER, 4 * 1024 * 1024, None).status is Status.OK
    assert health.judge_buffer(health.SEND_BUFFER, None, None).status is Status.MISSING


def test_a_codec_that_was_not_built_comes_with_what_is_missing_to_build_it():
    assert health.judge_codec(True, "", False).status is Status.OK
    assert "VIVUM_PURE" in health.judge_codec(None, "/usr/bin/cc", True).found
    assert "C compiler" in health.judge_codec(False, "", False).advice
    assert "C compiler" not in health.judge_codec(False, "/usr/bin/cc", True).advice
    assert health.judge_compiler("", True).status is Status.HINT
    assert "headers are missing" in health.judge_compiler("/usr/bin/cc", False).found
    assert health.judge_compiler("/usr/bin/cc", True).status is Status.OK


@pytest.mark.parametrize(
    "finding",
    [
        health.judge_udp("not permitted"),
        health.judge_multicast("no such device"),
        health.judge_batching("UDP_GRO", "receive", "protocol not available"),
        health.judge_sharing("the compiled part was not built"),
        health.judge_library("pyspark", None, "the Spark pipeline", "spark"),
    ],
)
def test_what_does_not_work_comes_with_advice(finding):
    assert finding.status is not Status.OK
    assert finding.advice
