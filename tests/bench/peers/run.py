"""The peer table: one command makes an environment per peer, runs the tasks, and writes the page.

``python tests/bench/peers/run.py DATA WORK [--quick] [--only NAMES] [--what ...]`` reads real data
from DATA, keeps environments and tasks in WORK, stores figures in ``tests/bench/peers/results`` and
writes ``docs/peers.md`` from them. Environments come from PyPI, pinned in ``PINS``; the second run
finds environments and tasks made. Environments are made while tasks are, since pip mostly waits;
then two parts run at a time, and speed last, one peer after the other. The whole is meant to take
less than forty minutes on two cores; clock and processor time of every part are stored.
``--quick`` runs one seed, three pairs and 10,000 rows; results and page are left in ``WORK/quick``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PINS = {  # what takes long first; mcgrad needs torch through ax-platform
    "mcgrad": ["mcgrad==0.1.5", "torch==2.13.0"],
    "netcal": ["netcal==1.4.0", "torch==2.13.0", "pandas"],
    "nannyml": ["nannyml==0.13.1", "pandas<3", "statsmodels", "plotly"],
    "evidently": ["evidently==0.7.23", "pandas<3"],
    "mapie": ["mapie==1.6.0", "pandas"],
    "river": ["river==0.26.1", "pandas"],
    "sklearn": ["scikit-learn==1.9.1", "pandas"],
}
PARTS = {  # and what a script that takes part in one defines
    "recalibrate": "RECALIBRATORS",
    "detect": "DETECTORS",
    "discover": "SEGMENTERS",
    "speed": "def speed",
}
LIBRARIES = ("HUC", "OMP", "OPENBLAS", "NUMBA")
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in LIBRARIES}


def environment(work: Path, name: str) -> tuple[str, float]:
    """The Python that runs a peer, and the seconds its installation took.

    huc-monitor is installed for the seconds alone: the run uses what it was started from.
    """
    folder, marker = work / "environments" / name, work / "environments" / f"{name}.seconds"
    if not marker.exists():
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin/pip"), "install", "--quiet", "--only-binary=:all:", "--no-compile"]
        subprocess.run([*pip, *PINS.get(name, [HERE.parents[2]])], check=True)
        seconds = time.perf_counter() - started
        marker.write_text(f"{seconds:.0f}", "utf-8")
        print(f"{name}: environment, {seconds:.0f} s", flush=True)
    python = sys.executable if name == "huc" else str(folder / "bin/python")
    return python, float(marker.read_text("utf-8"))


def make_tasks(given: argparse.Namespace, tasks: Path) -> None:
    """Write the tasks; what an interrupted run has left is not taken for all of them."""
    if tasks.exists():
        return
    started, unfinished = time.perf_counter(), tasks.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    quick = ["--quick"] if given.quick else []
    command = [sys.executable, HERE / "tasks.py", given.data, unfinished, *quick]
    subprocess.run(command, check=True)
    unfinished.rename(tasks)
    print(f"tasks, {time.perf_counter() - started:.0f} s", flush=True)


def make_all(given: argparse.Namespace, tasks: Path) -> dict[str, tuple[str, float]]:
    """Make tasks and environments at the same time."""
    with ThreadPoolExecutor(3) as pool:
        making = pool.submit(make_tasks, given, tasks)
        made = list(pool.map(partial(environment, given.work), given.only))
        making.result()
    return dict(zip(given.only, made, strict=True))


def run_part(command: list, out: Path, name: str, what: str) -> str | None:
    """One part of one peer, in a process of its own; what went wrong, if anything did."""
    (out / f"{name}_peer-{what}.json").unlink(missing_ok=True)
    began = time.perf_counter()
    quiet = {**os.environ, "NML_DISABLE_USAGE_LOGGING": "1", "DO_NOT_TRACK": "1", **ONE_THREAD}
    quiet.pop("PYTHONDONTWRITEBYTECODE", None)  # the first import compiles what pip did not
    with (out / f"{name}_peer-{what}.log").open("wb") as log:
        part = [*command, "--what", what]
        done = subprocess.run(part, check=False, env=quiet, stdout=log, stderr=log)
    print(f"{name}: {what}, {time.perf_counter() - began:.0f} s", flush=True)
    return f"{name}: {what} ended with code {done.returncode}" if done.returncode else None


def run_parts(given: argparse.Namespace, tasks: Path, out: Path, pythons: dict) -> list[str]:
    """Two parts at a time, and speed alone, afterwards; what went wrong."""
    sizes = ["--sizes", "10000"] if given.quick else []

    def run(name: str, what: str) -> str | None:
        script = [HERE / "peer.py", f"{name}_peer", tasks, out, *sizes]
        return run_part([pythons[name][0], *script], out, name, what)

    jobs = [
        (name, what)
        for what, marker in PARTS.items()
        for name in given.only
        if what in given.what and marker in (HERE / f"{name}_peer.py").read_text("utf-8")
    ]
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda job: run(*job), [job for job in jobs if job[1] != "speed"]))
    ended += [run(*job) for job in jobs if job[1] == "speed"]
    return [wrong for wrong in ended if wrong]


def store(
    out: Path, installed: dict[str, float], parts: list[str], results: Path
) -> dict[str, dict[str, float]]:
    """Put the parts into one file for each peer; give their processor seconds.

    A part that was to be run and has left nothing loses what an earlier run has stored; what was
    not to be run keeps it.
    """
    costs: dict[str, dict[str, float]] = {}
    results.mkdir(exist_ok=True)
    for name, seconds in installed.items():
        path = results / f"{name}_peer.json"
        found = json.loads(path.read_text("utf-8")) if path.exists() else {}
        found["install_seconds"] = seconds
        for what in parts:
            part = out / f"{name}_peer-{what}.json"
            found.pop(what, None)
            if part.exists():
                answer = json.loads(part.read_text("utf-8"))
                found[what] = answer["answers"]
                found.setdefault("lines", {}).update(answer["lines"])
                costs.setdefault(name, {})[what] = answer["processor_seconds"]
        path.write_text(rounded(found), "utf-8")
    if (out / "recalibration.json").exists():
        judged = json.loads((out / "recalibration.json").read_text("utf-8"))
        path = results / "recalibration.json"
        stored = json.loads(path.read_text("utf-8")) if path.exists() else {}
        for pair, figures in judged.items():
            others = {
                name: old
                for name, old in stored.get(pair, {}).items()
                if name.partition(":")[0] not in installed
            }
            judged[pair] = dict(sorted({**others, **figures}.items()))
        path.write_text(rounded(judged), "utf-8")
    return costs


def main() -> None:
    """Make, run, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--only", nargs="*", default=["huc", *PINS], choices=["huc", *PINS])
    parser.add_argument("--what", nargs="*", default=[*PARTS], choices=[*PARTS])
    parser.add_argument("--quick", action="store_true", help="a smoke test, kept in WORK")
    given = parser.parse_args()
    started = time.perf_counter()
    kept = given.work / ("quick" if given.quick else "whole")
    tasks, out = kept / "tasks", kept / "out"
    out.mkdir(parents=True, exist_ok=True)
    pythons = make_all(given, tasks)
    wrong = run_parts(given, tasks, out, pythons)
    from judge import judge_all
    from page import write_page

    if "recalibrate" in given.what:
        judge_all(tasks, out)
    results = kept / "results" if given.quick else RESULTS
    installed = {name: seconds for name, (_, seconds) in pythons.items()}
    costs = store(out, installed, given.what, results)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    whole = {
        "what": given.what,
        "peers": given.only,
        "wrong": wrong,
        "processor_seconds": costs,
        "clock_minutes": (time.perf_counter() - started) / 60,
        "processor_minutes": sum(one.ru_utime + one.ru_stime for one in used) / 60,
        "load": os.getloadavg()[2],
        "cores": os.cpu_count(),
    }
    (results / "run.json").write_text(rounded(whole), "utf-8")
    if set(given.only) >= {"huc", *PINS} and set(given.what) >= {*PARTS}:
        (results / "notes.json").unlink(missing_ok=True)  # all of it is of this run
    write_page(results, (kept if given.quick else HERE.parents[2] / "docs") / "peers.md")


def rounded(found: object) -> str:
    """JSON with five digits, so that stored results stay small."""
    text = json.dumps(found)
    return json.dumps(json.loads(text, parse_float=lambda t: float(f"{float(t):.5g}")), indent=1)


if __name__ == "__main__":
    main()
