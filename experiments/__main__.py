"""Writes what sweeps gave into the pages: tables, pictures, targets. Runs nothing."""

import argparse
import sys
from pathlib import Path

from experiments.description import FOLDER, Experiment, names
from experiments.pages import RESULTS, TARGETS, make_results, make_targets, write_between
from experiments.plotting import draw
from experiments.results import Outcome, code_identity, compared, outcomes_of
from vivum.core.errors import UsageError, VivumError
from vivum.pipeline.sweep import Sweep

PAGES = FOLDER.parent / "docs/experiments"


def main() -> int:
    """Publish the results of the experiments that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments", description="Write the results of `vivum sweep` into docs/experiments."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(names())}; default: all")
    parser.add_argument("--sweeps", type=Path, default=Path("out/sweeps"), help="folder of the results (out/sweeps)")
    parser.add_argument("--pages", type=Path, default=PAGES, help="folder of the pages (docs/experiments)")
    parser.add_argument("--partial", action="store_true", help="also if points are missing, or not all of one code")
    options = parser.parse_args()
    try:
        publish(options.names or names(), options.sweeps, options.pages, is_partial=options.partial)
    except VivumError as error:
        _say(f"experiments: {error}")
        return 2 if isinstance(error, UsageError) else 1
    return 0


def publish(wanted: list[str], sweeps: Path, pages: Path, *, is_partial: bool) -> None:
    """Write pictures and tables of some experiments; of all of them also the targets."""
    found: list[tuple[str, Experiment, list[Outcome]]] = []
    for name in wanted:
        sweep = Sweep(FOLDER / f"{name}.toml", sweeps)
        outcomes = outcomes_of(sweep.points, sweep.done())
        missing = len(sweep.points) - len(outcomes)
        if missing and not (is_partial and outcomes):
            raise UsageError(f"{name}: {missing} of {len(sweep.points)} points have no result; run vivum sweep first")
        found.append((name, sweep.experiment, compared(outcomes, sweep.experiment.baseline)))
    sources = {each.source for _, _, outcomes in found for each in outcomes}
    if len(sources) > 1 and not is_partial:
        raise UsageError(f"results are of several codes ({', '.join(sorted(sources))}); run vivum sweep first")
    if code_identity()[1] not in sources:
        _say("the code has changed since: the pages will name the code that was measured")
    for name, experiment, outcomes in found:
        pictures = draw(experiment, outcomes, pages)
        write_between(pages / f"{name}.md", RESULTS, make_results(experiment, outcomes))
        _say(f"wrote {pages / name}.md and {len(pictures)} pictures")
    if set(wanted) >= set(names()):
        write_between(pages / "README.md", TARGETS, make_targets([(each, outcomes) for _, each, outcomes in found]))
        _say(f"wrote the targets of {pages / 'README.md'}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
