"""The experiments of the papers, run in the simulator. `docs/experiments/` says what came out.

    vivum sweep experiments/*.toml --master local[2]     # runs them; the same command goes on where it was
    python -m experiments                                # writes tables and pictures into docs/experiments

One TOML file for each experiment (`description`); one pure function for each point of it (`point`, `measuring`), which
sweeps run as Spark jobs (`vivum.pipeline.sweep`), the longest first (`cost`); what the seeds of a point say together
(`results`), as tables, pictures and pages (`tables`, `plotting`, `pages`).
"""
