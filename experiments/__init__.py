"""The experiments of the papers, run in the simulator. `docs/experiments/` says what came out.

    python -m experiments NAME [--jobs 2] [--quick] [--json] [--out DIR]
    python -m experiments NAME --plot

One TOML file for each experiment (`description`), one pure function for each point of it (`point`), results as JSON
lines (`results`), plots and tables from those (`plotting`, `tables`).
"""
