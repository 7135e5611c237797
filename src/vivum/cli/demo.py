"""`vivum demo`: the whole path on one computer, told in plain words."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from vivum.cli.conventions import Failed, JsonOption, Terminated, command_group, console, write_json
from vivum.demo.stage import PUBLISHERS, SUBSCRIBERS, Play, Stage, check_needs

app = command_group("Watch a market go from publishers to subscribers, to Spark and back.")

ROUNDS_SHOWN = 1
"""Tables of bars that are shown in full; later ones would push the alerts off the screen."""

NEXT = """
What to try next:
  vivum sub '/hello/**'             in one terminal, and in another:  vivum pub /hello/world 'first message'
  vivum top                         what the nodes and topics of a domain do, live
  vivum sim watch                   a small cluster that survives loss, a sleeping node and a crash
  python examples/quotes.py         a typed topic in thirty lines; README.md goes on from there
(`make demo` installed vivum and python into .venv/bin.)"""


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(min=1.0, max=3600.0, help="How long the market is open.")] = 30.0,
    symbols: Annotated[int, typer.Option(min=30, max=5000, help="Symbols; each has a topic of its own.")] = 240,
    rate: Annotated[float, typer.Option(min=10.0, max=20_000.0, help="Messages a second, in all.")] = 1500.0,
    loss: Annotated[float, typer.Option(min=0.0, max=20.0, help="Percent of packets lost on purpose.")] = 2.0,
    seed: Annotated[int, typer.Option(min=0, help="Decides the market, and what is planted in it.")] = 1,
    keep: Annotated[
        Path | None, typer.Option(help="Keep log, traces and tables in this new folder; else all is deleted.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Watch a market: publishers, subscribers, a recorder, bars and alerts by Spark, and an audit of every delivery.

    Exit code 1 if a message is missing or the audit finds a guarantee broken.
    """
    check_needs()
    play = Play(seconds, symbols, rate, loss / 100, seed, keep)
    out = console(as_json)
    with _Telling(out, play) as telling:
        try:
            with Stage(play, telling) as stage:
                summary = stage.run()
        except (KeyboardInterrupt, Terminated):
            telling.say("[yellow]Stopped.[/] All processes have ended; nothing is left behind.")
            raise
    if as_json:
        write_json(summary)
    else:
        _print_summary(out, summary)
    if not _is_good(summary):
        raise Failed


def _is_good(summary: dict[str, Any]) -> bool:
    messages = summary["messages"]
    return bool(summary["audit"]["verdict"] == "holds" and messages["expected"] == messages["received"])


class _Telling:
    """Prints the demo's progress: lines to read, and a status line at the end."""

    def __init__(self, out: Console, play: Play) -> None:
        self._out = out
        self._play = play
        self._alerts = 0
        self._tables = 0
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=out, transient=True
        )
        self._task = self._progress.add_task("starting processes")

    def __enter__(self) -> "_Telling":
        self.say(
            f"[bold]Vivum demo[/]: a market of {self._play.symbols} symbols on this computer, a topic for each.\n"
            f"{PUBLISHERS} publishers, {SUBSCRIBERS} subscribers, a recorder, a surveillance desk: each a process of "
            "its own. Spark starts meanwhile.\n"
        )
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line above the one that moves."""
        self._progress.console.print(text, soft_wrap=True)

    def __call__(self, what: str, **values: Any) -> None:
        """Show one piece of news."""
        tell = getattr(self, f"_tell_{what}", None)
        if tell is not None:
            tell(**values)

    def _show(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    def _tell_ready(self, name: str) -> None:
        if name == "spark":
            self.say("Spark is ready. It reads what the recorder writes.")
        else:
            self._show(f"{name} is in the domain")

    def _tell_open(self, topics: int, nodes: int, loss: float) -> None:
        self.say(
            f"[green]The market is open[/] for {self._play.seconds:g} s: {nodes} nodes, {topics} topics. Every node "
            f"loses {loss:.1%} of what arrives, on purpose."
        )

    def _tell_seen(self, sent: int, delivered: int, lost_on_purpose: int, repaired: int, **_: int) -> None:
        self._show(
            f"{sent:,} messages sent, {delivered:,} deliveries, {lost_on_purpose:,} packets lost on purpose, "
            f"{repaired:,} frames repaired"
        )

    def _tell_bars(self, latest: list[dict[str, Any]], bars: int, trades: int) -> None:
        if not latest or self._tables >= ROUNDS_SHOWN:
            return
        self._tables += 1
        self.say(f"\n[bold]First bars[/] by Spark: {bars:,} so far, of {trades:,} trades. The latest:")
        table = Table(box=None, pad_edge=False)
        for title in ("second", "symbol"):
            table.add_column(title)
        for title in ("open", "high", "low", "close", "volume"):
            table.add_column(title, justify="right")
        for bar in latest:
            prices = [f"{bar[key]:.2f}" for key in ("open", "high", "low", "close")]
            table.add_row(bar["start"], bar["symbol"], *prices, f"{bar['volume']:,}")
        self._progress.console.print(table)
        self.say("")

    def _tell_round(self, number: int, alerts: int, took_s: float) -> None:
        self._show(f"round {number} of Spark took {took_s:g} s and found {alerts} new alerts")

    def _tell_alert(self, pattern: str, symbol: str, who: str, evidence: str) -> None:
        if not self._alerts:
            self.say("Alerts of the surveillance, as they come back in the topic /surveillance/alerts:")
        self._alerts += 1
        self.say(f"  [red]{pattern.replace('_', ' '):15}[/] {symbol}  {who}: {evidence}")

    def _tell_closed(self, sent: int) -> None:
        self.say(f"The market is closed: {sent:,} messages were sent. Spark makes its last round.")

    def _tell_judging(self) -> None:
        self.say("All nodes have left. Spark audits the traces that each of them wrote.")
        self._show("reading the traces")

    def _tell_checking(self, check: str) -> None:
        self._show(f"checking {check.replace('_', ' ')}")


def _print_summary(out: Console, summary: dict[str, Any]) -> None:
    messages, network, alerts, audit = (summary[key] for key in ("messages", "network", "alerts", "audit"))
    missing = sum(messages["expected"].values()) - sum(messages["received"].values())
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("messages", f"{messages['sent']:,} sent, {messages['deliveries']:,} deliveries, {missing:,} missing")
    table.add_row(
        "network",
        f"{network['datagrams_lost_on_purpose']:,} packets of all kinds lost on purpose, "
        f"{network['frames_repaired']:,} frames of data repaired",
    )
    table.add_row("recorder", f"{summary['recorder']['recorded']:,} recorded, {summary['recorder']['missed']:,} missed")
    first = summary["first_bars_s"]
    since = "" if first is None else f"; the first after {first:g} s"
    table.add_row("bars", f"{summary['bars']['made']:,} of {summary['bars']['trades']:,} trades{since}")
    table.add_row(
        "alerts",
        f"{alerts['found']} of {alerts['planted']} planted patterns found, {len(alerts['not_planted'])} others, "
        f"{alerts['decoys_reported']} of {alerts['decoys']} decoys taken for real",
    )
    table.add_row("memory", f"{summary['memory_mb']:,} MB at most, all {summary['processes'] + 1} processes together")
    out.print("")
    out.print(table)
    for pattern, symbol, who in alerts["not_found"]:
        out.print(f"  planted but not found: {pattern} in {symbol} by {who}", markup=False)
    for pattern, symbol, who in alerts["not_planted"]:
        out.print(f"  found but not planted: {pattern} in {symbol} by {who}", markup=False)
    for witness in audit["witnesses"]:
        out.print(f"  {witness}", markup=False)
    held = ", ".join(name.replace("_", " ") for name, count in audit["checks"].items() if not count)
    if _is_good(summary):
        out.print(f"[green]Audit: every guarantee held[/] in {audit['records']:,} records of all nodes ({held}).")
    else:
        broken = ", ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in audit["checks"].items() if count)
        out.print(f"[red]Broken:[/] {broken or 'messages are missing'}; {audit['records']:,} records were looked at.")
    out.print(NEXT, markup=False, soft_wrap=True)
    if summary["folder"] is not None:
        out.print(f"Kept in {summary['folder']}: vivum audit {summary['folder']}/trace", markup=False)
