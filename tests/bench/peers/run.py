"""The peer table: one command makes an environment per peer, runs the tasks, and writes the page.

``python tests/bench/peers/run.py DATA WORK [--quick] [--only NAMES] [--what ...]`` reads real data
from DATA, keeps environments and tasks in WORK, stores figures in ``tests/bench/peers/results`` and
writes ``docs/peers.md`` from them. Environments come from PyPI, pinned in ``PINS``; the second run
finds environments and tasks made. Two processes run at a time, speed one after the other. The whole
is meant to take less than forty minutes on two cores; its clock and processor time are stored.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PINS = {
    "nannyml": ["nannyml==0.13.1", "pandas<3", "statsmodels", "plotly"],
    "evidently": ["evidently==0.7.23", "pandas<3"],
    "mcgrad": ["mcgrad==0.1.5"],
    "mapie": ["mapie==1.6.0", "pandas"],
    "river": ["river==0.26.1", "pandas"],
    "netcal": ["netcal==1.4.0", "pandas"],
    "sklearn": ["scikit-learn==1.9.1", "pandas"],
}
PARTS = ["recalibrate", "detect", "discover", "speed"]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def environment(work: Path, name: str) -> tuple[str, float]:
    """The peer's Python, and the seconds its installation took."""
    if name == "huc":
        return sys.executable, 0.0
    folder, marker = work / "environments" / name, work / "environments" / f"{name}.seconds"
    if not marker.exists():
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin/pip"), "install", "--quiet", "--only-binary=:all:"]
        subprocess.run([*pip, *PINS[name]], check=True)
        marker.write_text(f"{time.perf_counter() - started:.0f}", "utf-8")
    return str(folder / "bin/python"), float(marker.read_text("utf-8"))


def main() -> None:
    """Make, run, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--only", nargs="*", default=["huc", *PINS])
    parser.add_argument("--what", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="one seed, eight pairs, 10,000 rows")
    given = parser.parse_args()
    started = time.perf_counter()
    tasks, out = given.work / "tasks", given.work / "out"
    out.mkdir(parents=True, exist_ok=True)
    quick = ["--quick"] if given.quick else []
    if not tasks.exists():
        subprocess.run([sys.executable, HERE / "tasks.py", given.data, tasks, *quick], check=True)
    quiet = {**os.environ, "NML_DISABLE_USAGE_LOGGING": "1", "DO_NOT_TRACK": "1", **ONE_THREAD}
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda name: environment(given.work, name), given.only)
        pythons = dict(zip(given.only, made, strict=True))
    installed = {name: seconds for name, (_, seconds) in pythons.items()}
    sizes = ["--sizes", "10000"] if given.quick else []

    def run(name: str, what: str) -> None:
        began = time.perf_counter()
        command = [pythons[name][0], HERE / "peer.py", f"{name}_peer", tasks, out, "--what", what]
        subprocess.run([*command, *sizes], check=True, env=quiet)
        print(f"{name}: {what}, {time.perf_counter() - began:.0f} s", flush=True)

    jobs = [(name, what) for what in PARTS[:-1] if what in given.what for name in given.only]
    with ThreadPoolExecutor(2) as pool:  # two at a time; speed alone, afterwards
        list(pool.map(lambda job: run(*job), jobs))
    for name in given.only if "speed" in given.what else ():
        run(name, "speed")
    from judge import judge_all
    from page import write_page

    if "recalibrate" in given.what:
        judge_all(tasks, out)
    RESULTS.mkdir(exist_ok=True)
    for path in [*out.glob("*_peer.json"), *out.glob("recalibration.json")]:
        found = json.loads(path.read_text("utf-8"))
        if path.stem.removesuffix("_peer") in installed:
            found["install_seconds"] = installed[path.stem.removesuffix("_peer")]
        (RESULTS / path.name).write_text(rounded(found), "utf-8")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    whole = {
        "what": given.what,
        "peers": given.only,
        "clock_minutes": (time.perf_counter() - started) / 60,
        "processor_minutes": sum(one.ru_utime + one.ru_stime for one in used) / 60,
        "load": os.getloadavg()[2],
        "cores": os.cpu_count(),
    }
    (RESULTS / "run.json").write_text(rounded(whole), "utf-8")
    if set(given.only) >= {"huc", *PINS} and set(given.what) >= {*PARTS}:
        (RESULTS / "notes.json").unlink(missing_ok=True)  # all of it is of this run
    write_page(RESULTS, HERE.parents[2] / "docs" / "peers.md")


def rounded(found: object) -> str:
    """JSON with five digits, so that stored results stay small."""
    text = json.dumps(found)
    return json.dumps(json.loads(text, parse_float=lambda t: float(f"{float(t):.5g}")), indent=1)


if __name__ == "__main__":
    main()
