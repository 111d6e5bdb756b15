"""Benches of two checkouts in turn, in one sitting: medians of both, and new over old.

Run: python tests/bench/side_by_side.py OLD NEW [--rounds 3] [--only audit boost]

OLD and NEW are folders with a checkout each; the present environment must have what both need.
Each round runs a bench in one checkout and at once in the other, and every other round begins with
NEW. Sizes are reduced, so that a round takes minutes. Prints one JSON line per bench: for every
number that both print, ``[median of OLD, median of NEW, median of NEW / OLD]``.
``--new-only`` hands NEW options that OLD does not know: OLD has no change test, so
``--only check --new-only=--without-change`` compares the same work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BENCHES = {
    "audit": ["--quick"],
    "bootstrap": [],
    "boost": ["--quick", "--cpu"],
    "check": ["--days", "8", "--per-day", "10000", "--windows", "5"],
    "mlflow_cost": [],
    "spark": ["--rows", "100000", "400000"],
}


def measured(checkout: Path, bench: str, more: Sequence[str] = ()) -> dict[str, float]:
    """Run a bench in a checkout and return its numbers by place."""
    path = os.pathsep.join([str(checkout), str(checkout / "integrations")])
    done = subprocess.run(
        [sys.executable, f"tests/bench/{bench}.py", *BENCHES[bench], *more],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"{bench} failed in {checkout}: {done.stderr[-2000:]}", file=sys.stderr)
        return {}
    return dict(numbers(json.loads(done.stdout[done.stdout.index("{") :]), bench))


def numbers(found: Any, at: str) -> Iterator[tuple[str, float]]:
    """Walk through JSON data and yield every number with its place."""
    if isinstance(found, dict | list):
        items = found.items() if isinstance(found, dict) else enumerate(found)
        for name, item in items:
            yield from numbers(item, f"{at}.{name}")
    elif isinstance(found, int | float) and not isinstance(found, bool):
        yield at, float(found)


def main() -> None:
    """Print the medians of every bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=list(BENCHES))
    parser.add_argument("--new-only", nargs="*", default=())
    given = parser.parse_args()
    checkouts = [given.old.resolve(), given.new.resolve()]
    for bench in given.only:
        rounds = []
        for k in range(given.rounds):
            order = checkouts[:: 1 if k % 2 == 0 else -1]
            more = {checkouts[1]: given.new_only}
            found = {one: measured(one, bench, more.get(one, ())) for one in order}
            rounds.append([found[checkout] for checkout in checkouts])
        shared = [
            name for name in rounds[0][0] if all(name in one for both in rounds for one in both)
        ]
        table = {}
        for name in shared:
            old, new = ([both[side][name] for both in rounds] for side in (0, 1))
            ratios = [b / a for a, b in zip(old, new, strict=True) if a]
            middle = [statistics.median(values) for values in (old, new, ratios) if values]
            table[name] = [float(f"{value:.4g}") for value in middle]
        print(json.dumps(table), flush=True)


if __name__ == "__main__":
    main()
