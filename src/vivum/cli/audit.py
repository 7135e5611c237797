"""`vivum audit`: judge a recorded trace on Spark."""

import time
from pathlib import Path
from typing import Annotated

import typer

from vivum.cli.conventions import Failed, JsonOption, MasterOption, command_group, console, write_json
from vivum.pipeline.audit import CHECKS, AuditVerdict, audit
from vivum.pipeline.audit.verdict import chosen_checks
from vivum.pipeline.jobs.running import check_writable, spark_job
from vivum.sim.timeline import line_of

app = command_group("Check recorded traces for broken guarantees, on Spark.")


@app.command("audit")
def audit_trace(
    trace: Annotated[Path, typer.Argument(help="A folder of trace files, as `vivum sim run --trace` writes it.")],
    checks: Annotated[
        str | None,
        typer.Option(
            help=f"Only these, separated by commas, or 'all': {', '.join(CHECKS)}. Default: what the trace promises."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the table of violations here, as Parquet.")] = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a trace. Exit code 1 if a guarantee was broken."""
    wanted = None if checks is None else list(CHECKS) if checks == "all" else checks.split(",")
    # Before Spark starts, which takes long.
    chosen_checks(trace, wanted)
    if out is not None:
        check_writable(out)
    began = time.perf_counter()
    text = console(as_json)
    with spark_job("vivum audit", master, text) as spark, text.status("reading the trace") as status:
        verdict = audit(trace, spark, checks=wanted, out=out, progress=lambda name: status.update(f"checking {name}"))
    wall_s = time.perf_counter() - began
    if as_json:
        write_json(
            {
                "trace": str(trace),
                "records": verdict.records,
                "violations": verdict.violation_count,
                "checks": verdict.counts,
                "witnesses": [str(each) for each in verdict.violations],
                "verdict": "violated" if verdict.violation_count else "holds",
                "wall_s": round(wall_s, 3),
            }
        )
    else:
        _print(verdict, wall_s)
    if verdict.violation_count:
        raise Failed


def _print(verdict: AuditVerdict, wall_s: float) -> None:
    out = console()
    for name, count in verdict.counts.items():
        out.print(
            f"{'[red]violated[/]' if count else '[green]holds[/]   '} {name}" + (f": {count:,} times" if count else "")
        )
    for each in verdict.violations:
        out.print(f"\n{each}", markup=False)
        for witness in each.witnesses:
            out.print("   " + line_of(witness), markup=False)
    out.print(f"\n{verdict.records:,} records, {verdict.violation_count:,} violations, {wall_s:.1f} s")
