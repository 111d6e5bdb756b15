"""What pages of `huc-monitor ui` cost: with ten times the history, and beside `status`.

Processor time, so that other work on the machine matters little. A page is asked for the first
time (cold: configuration, state and records are read) and again (warm). `status` is run in the
same process for the same monitors, without the start of Python, but with making its commands,
which every process does once.

Run: python tests/bench/ui.py [monitors]
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.production_log import after, make_log, write_project
from support.ui_server import CHANGES, copies

from huc_monitor import cli
from huc_monitor.cli import main
from huc_monitor.cli.ui import _open
from huc_monitor.config.opening import open_monitor
from huc_monitor.reporting.ui import Fleet
from huc_monitor.reporting.ui._pages import Pages

REPEATS = 5


def watched(folder: Path, n_windows: int) -> Path:
    """Check a log of so many days."""
    log, labels = make_log(n_windows, 120, broken_from=n_windows - 8, seed=5)
    config = write_project(folder, log, labels, draws=30, more=CHANGES)
    open_monitor(config).check(now=after(n_windows + 0.6).isoformat())
    return config


def timed(ask) -> float:
    start = time.process_time()
    ask()
    return time.process_time() - start


def pages(paths) -> dict[str, float]:
    """Return the median processor time of pages, cold and warm, in seconds."""
    found: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        for name in ("fleet", "model", "older"):
            fleet = Fleet(paths, _open)
            made = Pages(fleet)
            ask = {
                "fleet": made.overview,
                "model": lambda made=made: made.model("model-00"),
                "older": lambda made=made: made.model("model-00", 12),
            }[name]
            found.setdefault(f"{name} cold", []).append(timed(ask))
            found.setdefault(f"{name} warm", []).append(timed(ask))
            found[f"{name} kB"] = [len(ask().encode()) / 1000]
            fleet.close()
    return {name: median(values) for name, values in found.items()}


def status(paths) -> float:
    """Return the processor time of one `status` of all monitors."""
    given = [text for path in paths for text in ("--config", str(path))]
    cli._command.cache_clear()
    with contextlib.redirect_stdout(io.StringIO()):
        return timed(lambda: main(["status", *given]))


def bench(n_monitors: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, found, told = Path(name), {}, {}
        for n in (20, 200):
            config = watched(folder / f"one-{n}" / "intrusion", n)
            paths = copies(config, folder / f"fleet-{n}", n_monitors)
            found[n] = pages(paths)
            told[n] = median([status(paths) for _ in range(3)]), status(paths[:1])
            print(f"{n} windows, {n_monitors} monitors: status {told[n][0]:.3f} s", flush=True)
            for key, value in found[n].items():
                print(f"  {key} {value:.4f}", flush=True)
        for key in found[20]:
            print(f"{key}: 200 against 20 windows {found[200][key] / found[20][key]:.2f}")
        for n in (20, 200):
            for page, beside in (("fleet", told[n][0]), ("model", told[n][1])):
                for when in ("cold", "warm"):
                    ratio = found[n][f"{page} {when}"] / beside
                    print(f"{n} windows: {page} page {when} / status of the same {ratio:.2f}")


if __name__ == "__main__":
    bench(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
