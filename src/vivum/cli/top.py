"""`vivum top`: what the nodes and topics of a domain do, live."""

import asyncio
import time
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vivum.cli import joining
from vivum.cli.conventions import JsonOption, command_group, console, write_json
from vivum.cli.running import run_until_stopped
from vivum.live.connecting import Connecting
from vivum.wire.directory import LoadReport

TOPICS_SHOWN = 20

app = command_group("Watch the rates of nodes and topics.")


@app.command()
def top(
    domain: joining.DomainOption = joining.DEFAULT_DOMAIN,
    interface: joining.InterfaceOption = joining.DEFAULT_INTERFACE,
    seeds: joining.SeedsOption = None,
    unicast: joining.UnicastOption = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two pictures.")] = 1.0,
    count: Annotated[int, typer.Option(min=0, help="End after this many pictures; 0: at Ctrl-C.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show messages and bytes a second of every node, and of the busiest topics. Ctrl-C ends it."""
    connecting = joining.prepare(domain, interface, seeds, unicast, embedded=False, timeout_s=3.0)
    run_until_stopped(_watch(connecting, interval, count or (1 if as_json else 0), as_json))


class _Rates:
    """Rates between two reports of each node."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], LoadReport] = {}
        self._before_s = 0.0
        self.nodes: list[dict[str, object]] = []
        self.topics: list[dict[str, object]] = []

    def update(self, reports: list[LoadReport]) -> None:
        now_s = time.monotonic()
        seconds = max(now_s - self._before_s, 1e-3)
        self.nodes = []
        topics: dict[str, list[float]] = {}
        for report in reports:
            old = self._before.get((report.node, report.incarnation))
            if old is None:
                continue
            self.nodes.append(
                {
                    "node": f"{report.node}.{report.incarnation}",
                    "name": report.name,
                    "sent_per_s": round((report.messages_sent - old.messages_sent) / seconds),
                    "delivered_per_s": round((report.messages_delivered - old.messages_delivered) / seconds),
                    "out_bytes_per_s": round((report.bytes_sent - old.bytes_sent) / seconds),
                    "in_bytes_per_s": round((report.bytes_received - old.bytes_received) / seconds),
                    "repairs_per_s": round((report.repairs_received - old.repairs_received) / seconds, 1),
                    "failed": report.messages_failed,
                }
            )
            known = {each.name: each for each in old.topics}
            for each in report.topics:
                before = known.get(each.name)
                if before is not None:
                    rates = topics.setdefault(each.name, [0.0, 0.0, 0])
                    rates[0] += (each.sent - before.sent) / seconds
                    rates[1] += (each.delivered - before.delivered) / seconds
                    rates[2] += 1
        busiest = sorted(topics.items(), key=lambda item: (-item[1][0] - item[1][1], item[0]))[:TOPICS_SHOWN]
        self.topics = [
            {"topic": name, "sent_per_s": round(sent), "delivered_per_s": round(delivered), "nodes": int(nodes)}
            for name, (sent, delivered, nodes) in busiest
        ]
        self._before = {(each.node, each.incarnation): each for each in reports}
        self._before_s = now_s


async def _watch(connecting: Connecting, interval: float, count: int, as_json: bool) -> None:
    rates = _Rates()
    out = console(as_json)
    async with connecting as node:
        rates.update([each for each in await node.loads() if each.node != (node.member or (0, 0))[0]])
        with Live("measuring …", console=out, auto_refresh=False, transient=not out.is_terminal) as live:
            shown = 0
            while not count or shown < count:
                await asyncio.sleep(interval)
                own = node.member or (0, 0)
                rates.update([each for each in await node.loads() if each.node != own[0]])
                shown += 1
                live.update(_picture(node.domain, rates), refresh=out.is_terminal)
        if not out.is_terminal:
            out.print(_picture(node.domain, rates))
    if as_json:
        write_json({"domain": node.domain, "nodes": rates.nodes, "topics": rates.topics})


def _picture(domain: str, rates: _Rates) -> RenderableType:
    nodes = Table(box=None, pad_edge=False)
    for title in ("node", "name"):
        nodes.add_column(title)
    for title in ("sent/s", "delivered/s", "MB/s out", "MB/s in", "repairs/s", "failed"):
        nodes.add_column(title, justify="right")
    for each in rates.nodes:
        nodes.add_row(
            str(each["node"]),
            str(each["name"]),
            f"{each['sent_per_s']:,}",
            f"{each['delivered_per_s']:,}",
            f"{_number(each['out_bytes_per_s']) / 1e6:,.1f}",
            f"{_number(each['in_bytes_per_s']) / 1e6:,.1f}",
            f"{each['repairs_per_s']:,}",
            f"{each['failed']:,}",
        )
    topics = Table(box=None, pad_edge=False)
    topics.add_column("topic")
    for title in ("sent/s", "delivered/s", "nodes"):
        topics.add_column(title, justify="right")
    for each in rates.topics:
        topics.add_row(
            str(each["topic"]), f"{each['sent_per_s']:,}", f"{each['delivered_per_s']:,}", str(each["nodes"])
        )
    head = Text(f"domain {domain}: {len(rates.nodes)} nodes\n", style="bold")
    return Group(head, nodes, Text(""), topics)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
