"""The commands of examples/deploy, on hosts made of network namespaces: Docker itself is not there."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vivum.bench.namespaces import NetnsHost, NetnsNetwork, why_impossible

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why := why_impossible()), reason=why or "possible")]

DEPLOY = Path(__file__).parents[3] / "examples/deploy"
TIMEOUT_S = 60
SERVICE = re.compile(r"^  (\w+):$.*?^    command: (\[.*?\])$.*?\"CMD\", (.*?)\]", re.DOTALL | re.MULTILINE)
FIXED = ("172.30.0.2", "172.30.0.3")


def compose_services(name: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return the words of each service's command, and of its health check."""
    text = (DEPLOY / name).read_text()
    return {
        service: (["vivum", *json.loads(words)], json.loads(f"[{check}]"))
        for service, words, check in SERVICE.findall(text)
    }


def unit_services() -> dict[str, tuple[list[str], list[str]]]:
    """Return the same of the units of systemd; the health check is that of the page."""
    found = {}
    for service, unit, port in (("service", "vivum", "9100"), ("recorder", "vivum-recorder", "9101")):
        (line,) = re.findall(r"^ExecStart=(.*)$", (DEPLOY / f"{unit}.service").read_text(), re.MULTILINE)
        found[service] = (["vivum", *shlex.split(line)[1:]], ["vivum", "health", "--metrics", port])
    return found


SETS = {
    "compose.yaml": lambda: compose_services("compose.yaml"),
    "compose.unicast.yaml": lambda: compose_services("compose.unicast.yaml"),
    "systemd": unit_services,
}


def placed(words: list[str], place: NetnsHost, service: NetnsHost, folder: Path, domain: str) -> list[str]:
    """Return a command for one of our hosts: its address, its folder, a domain of its own."""
    made = [sys.executable, "-m", "vivum.cli", *words[1:]]
    for number, word in enumerate(made):
        before = made[number - 1]
        if before == "--interface":
            made[number] = place.address
        elif before == "--seed":
            made[number] = word.replace(FIXED[0], service.address)
        elif before == "--to":
            made[number] = str(folder)
        elif before == "--domain":
            made[number] = domain
    return [*place.prefix, *made]


@pytest.mark.parametrize("name", SETS)
def test_what_is_deployed_serves_records_and_ends_in_order(name: str, tmp_path: Path) -> None:
    services = SETS[name]()
    assert set(services) == {"service", "recorder"}
    domain = f"deployed-{os.getpid()}"
    started: list[subprocess.Popen[str]] = []
    with NetnsNetwork(3) as network:
        host, recorder, guest = network.hosts
        try:
            for each, place in (("service", host), ("recorder", recorder)):
                words = placed(services[each][0], place, host, tmp_path / "log", domain)
                process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                started.append(process)
                told = process.stdout if each == "service" else process.stderr
                assert told is not None
                assert ("service of domain" if each == "service" else f"joined {domain}") in told.readline()
                check = placed(services[each][1], place, host, tmp_path, domain)
                asked = subprocess.run(check, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
                assert asked.returncode == 0, asked.stdout + asked.stderr
            words = ["vivum", "pub", "/a", "one", "two", "--json", "--domain", domain, "--interface", "x"]
            if "--unicast" in services["recorder"][0]:
                words += ["--seed", f"{FIXED[0]}:7000", "--unicast"]
            sent = subprocess.run(
                placed(words, guest, host, tmp_path, domain),
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )
            assert sent.returncode == 0, sent.stderr
            assert json.loads(sent.stdout) == {"topic": "/a", "sent": 2, "receivers": 1}
            # The recorder first, as `systemctl stop` does with what comes after another unit.
            ends = []
            for process in reversed(started):
                process.send_signal(signal.SIGTERM)
                ends.append("".join(process.communicate(timeout=TIMEOUT_S)))
                assert process.returncode == 0, ends[-1]
            assert "2 messages of 1 topics recorded, 0 missed" in ends[0]
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                process.communicate()
