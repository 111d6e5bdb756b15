"""Run an experiment of the paper and write its table with the paper's figures beside ours.

python examples/paper/run.py toy --out out
python examples/paper/run.py support2 --data FOLDER --out out
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.methods import METHODS
from experiments.problem import BASES
from experiments.protocol import run_protocol
from experiments.tables import write_tables
from experiments.tabular import inaturalist, nbaiot, nsl_kdd, support2
from experiments.text import massive
from experiments.toy import SIZES, run_toy, write_toy

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA = {
    "support2": (support2, "support2.parquet"),
    "nsl_kdd": (nsl_kdd, "nsl_kdd_train20.parquet"),
    "massive": (massive, "massive_en.parquet"),
    "nbaiot": (nbaiot, "nbaiot_sample2000.parquet"),
    "inaturalist": (inaturalist, "inaturalist_features.parquet"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run one experiment."""
    options = parse(arguments)
    folder = Path(options.out) / ("quick" if options.quick else "full")
    if options.experiment == "toy":
        sizes = tuple(options.sizes or (SIZES[:3] if options.quick else SIZES))
        repetitions = options.repetitions or (20 if options.quick else 200)
        results = run_toy(folder, sizes=sizes, repetitions=repetitions, jobs=options.jobs)
        print(write_toy(results, folder))
        return
    load, name = DATA[options.experiment]
    if options.data is None:
        raise SystemExit(f"--data must be a folder that holds {name} (see README.md).")
    file = Path(options.data) / name
    if not file.exists():
        raise SystemExit(f"{name} is not in the folder given by --data (see README.md).")
    problem = load(file, quick=options.quick)
    bases = [base for base in chosen("bases", options.bases, BASES) if base in problem.bases]
    results = run_protocol(
        problem,
        folder,
        n_splits=options.splits or (1 if options.quick else 5),
        bases=bases,
        methods=chosen("methods", options.methods, METHODS),
        jobs=options.jobs,
    )
    print(write_tables(results, problem, folder))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("experiment", choices=["toy", *DATA])
    parser.add_argument("--data", help="folder with the data files")
    parser.add_argument("--out", default="out", help="folder for results; reused to resume")
    parser.add_argument("--quick", action="store_true", help="small sample, to see that it runs")
    parser.add_argument("--splits", type=int, help="number of data splits (default 5)")
    parser.add_argument("--bases", help=f"comma-separated, of {','.join(BASES)}")
    parser.add_argument("--methods", help="comma-separated, of " + ",".join(METHODS))
    parser.add_argument("--sizes", type=int, nargs="*", help="toy: calibration sample sizes")
    parser.add_argument("--repetitions", type=int, help="toy: repetitions (default 200)")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser.parse_args(arguments)


def chosen(option: str, text: str | None, known: Sequence[str]) -> list[str]:
    """Parse a comma-separated choice, in the order of the tables."""
    if text is None:
        return list(known)
    asked = [name.strip() for name in text.split(",")]
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise SystemExit(f"--{option} must be among {', '.join(known)}; got {unknown[0]!r}.")
    return [name for name in known if name in asked]


if __name__ == "__main__":
    main()
