"""The command line of the experiments."""

import argparse
import json
import sys
from pathlib import Path

import msgspec

from experiments.description import FOLDER, Experiment, Point, load, names, points
from experiments.results import Outcome, ResultFile, code_identity, compared, outcomes_of, pending
from experiments.running import run_all
from experiments.tables import make_table, write_into
from vivum.core.errors import UsageError

PAGES = FOLDER.parent / "docs/experiments"


def main() -> int:
    """Run, or plot, what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description="The experiments of the papers.")
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"all, a TOML file, or one of {', '.join(names())}")
    parser.add_argument("--jobs", type=int, default=1, help="points that run at once (default: 1)")
    parser.add_argument("--quick", action="store_true", help="few and short points, to see that it runs")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON lines")
    parser.add_argument("--out", type=Path, default=Path("out/experiments"), help="folder of the results")
    parser.add_argument("--plot", action="store_true", help="run nothing: draw PNGs and write tables from the results")
    parser.add_argument("--pages", type=Path, default=PAGES, help="folder of pages and PNGs (docs/experiments)")
    options = parser.parse_args()
    wanted = names() if options.names == ["all"] else options.names
    try:
        return max([_do(name, load(name), options) for name in wanted])
    except UsageError as error:
        _say(f"experiments: {error}")
        return 2


def _do(name: str, experiment: Experiment, options: argparse.Namespace) -> int:
    stem = Path(name).stem + ("-quick" if options.quick else "")
    file = ResultFile(options.out / f"{stem}.jsonl")
    every = points(experiment, quick=options.quick)
    if options.plot:
        return _publish(stem, experiment, every, file, options.pages)
    commit, source = code_identity()
    todo = pending(every, file.read(), source)
    _say(f"{stem}: {len(every)} points, {len(every) - len(todo)} done before")
    failed = 0
    for count, (each, measured) in enumerate(run_all(todo, options.jobs), 1):
        where = f"{stem} {count}/{len(todo)} {_shown(each)}"
        if isinstance(measured, Exception):
            failed += 1
            _say(f"{where}: FAILED: {type(measured).__name__}: {measured}")
            continue
        numbers, wall_s, rss_mb = measured
        key = each.parameters.digest(each.seed)
        file.add(Outcome(key, each.axes, each.seed, commit, source, round(wall_s, 1), round(rss_mb, 1), numbers))
        told = f"{numbers['rate_median']:,.0f} messages/s, {100 * numbers['link_share']:.1f} % of the link"
        _say(f"{where}: {told}, ack {numbers['ack_ms_mean']:.1f} ms, took {wall_s:.0f} s")
    if options.json:
        for outcome in outcomes_of(every, file.read()):
            sys.stdout.write(json.dumps(msgspec.to_builtins(outcome)) + "\n")
    if failed:
        _say(f"{stem}: {failed} of {len(todo)} points failed; the same command tries them again")
    return 1 if failed else 0


def _publish(stem: str, experiment: Experiment, every: list[Point], file: ResultFile, pages: Path) -> int:
    from experiments.plotting import draw  # Only this step needs matplotlib.

    outcomes = compared(outcomes_of(every, file.read()), experiment.baseline)
    if not outcomes:
        _say(f"{stem}: no results in {file.path}; run it first")
        return 1
    for path in draw(experiment, outcomes, pages):
        _say(f"wrote {path}")
    table = make_table(experiment, outcomes)
    page = pages / f"{stem}.md"
    if page.exists():
        write_into(page, table)
        _say(f"wrote the table of {page}")
    else:
        sys.stdout.write(table + "\n")
    if len(outcomes) < len(every):
        _say(f"{stem}: {len(every) - len(outcomes)} points have no result yet")
    return 0


def _say(line: str) -> None:
    """Tell how it goes, beside the results on the standard output."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _shown(each: Point) -> str:
    return " ".join(f"{path.rpartition('.')[2]}={value}" for path, value in each.axes.items())


if __name__ == "__main__":
    sys.exit(main())
