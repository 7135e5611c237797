"""`vivum doctor`: what this machine has for Vivum, and what to do about the rest."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from vivum import __version__
from vivum.cli.conventions import Failed, JsonOption, command_group, console, write_json
from vivum.cli.health import Finding, Status, examine

app = command_group("Tell what this machine has for Vivum, and what to do about the rest.")

_STYLES = {Status.OK: "green", Status.HINT: "yellow", Status.MISSING: "red"}


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Show what this machine has for Vivum, and what to do about the rest.

    Exit code 1 only when something is broken without which nothing works.
    """
    findings = list(examine())
    if as_json:
        write_json(report(findings))
    else:
        out = console()
        out.print(drawn(findings))
        out.print(verdict(findings))
    if broken(findings):
        raise Failed


def broken(findings: Sequence[Finding]) -> list[Finding]:
    """Pick what is missing and cannot be done without."""
    return [each for each in findings if each.essential and each.status is Status.MISSING]


def report(findings: Sequence[Finding]) -> dict[str, object]:
    """Make the result for machines."""
    return {"ok": not broken(findings), "version": __version__, "checks": [asdict(each) for each in findings]}


def drawn(findings: Sequence[Finding]) -> Table:
    """Draw the findings as a table without lines, advice below what it is about."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for each in findings:
        text = Text(each.found)
        if each.advice:
            text.append(f"\n{each.advice}", style="dim")
        table.add_row(Text(each.status, style=_STYLES[each.status]), each.name, text)
    return table


def verdict(findings: Sequence[Finding]) -> Text:
    """Say in one sentence how it stands."""
    essential = broken(findings)
    if essential:
        names = ", ".join(each.name for each in essential)
        return Text(f"\nVivum cannot work here: {names}.", style="red")
    rest = sum(each.status is not Status.OK for each in findings)
    if rest:
        return Text(f"\nVivum works here. {rest} thing{'s' if rest > 1 else ''} could be better, see above.")
    return Text("\nVivum works here, and nothing could be better.")
