"""Checks and recalibrations killed at random times on the MLflow tracker, then run again.

A real MLflow server over HTTP with PostgreSQL behind it. Every trial is a model of its own with
three days of log: the second day opens an alert, the third requests a recalibration that is
registered and promoted. A trial is killed with SIGKILL at a random time, most of them after the
first record was written, and run again; half-way through that it may be killed again, up to three
times. Then it runs to its end, and its records, metric points, versions, tags and aliases are
compared with those of a run that nobody killed. Prints one JSON line.

Run: python tests/bench/kills.py [--kills 200] [--seed 0]

Starting the servers takes a minute. To run in parts, keep them running elsewhere with ``--serve
FILE``, which writes their addresses to the file and serves until it is removed, and pass
``--servers FILE`` to every part, each with a seed of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import huc_mlflow
import mlflow
import psycopg
from support import mortal_check
from support.deployment import World
from support.forests import log_forest, make_story
from support.forked import Processes
from support.mlflow_servers import mlflow_server, postgres_server

from huc_monitor.config import load_config
from huc_monitor.config.opening import open_tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_KILLS_PER_WORLD = 3
_AFTER_THE_FIRST = 0.8  # of the kills wait for the first record
# Names and numbers that differ from run to run by design.
_VOLATILE = ("timings", "identity", "monitor", "model")


def make_world(story: Any, folder: Path, address: str, name: str, base: str) -> World:
    """Register the logged base model under a name of its own and write three days of log."""
    folder.mkdir()
    mlflow.register_model(base, name)
    world = World(story, folder, address, name=name)
    world.settings["sequential"] = {"enabled": False}
    world.settings["bounds"] = {"draws": 100}
    world.configure(critical_windows=2)
    for drift in (0.0, 1.0, 1.0):
        world.serve(drift=drift)
    return world


def count_records(world: World, database: str) -> int:
    """Return how many windows the server has a complete record of."""
    with psycopg.connect(plain(database)) as connection:
        row = connection.execute(
            "select count(*) from tags done join tags mine using (run_uuid) where done.key = "
            "'huc.complete' and mine.key = 'huc.monitor' and mine.value = %s",
            (world.name,),
        ).fetchone()
    return 0 if row is None else int(row[0])


def plain(database: str) -> str:
    return database.replace("postgresql+psycopg", "postgresql")


def wait_and_kill(child: Any, wait_for_record: Callable[[], bool], seconds: float) -> bool:
    """Kill a check some seconds after it wrote its first record; False if it was faster."""
    while not wait_for_record() and child.exitcode is None:
        child.join(0.2)
    child.join(seconds)
    if child.exitcode is None:
        os.kill(child.pid, signal.SIGKILL)
    child.join()
    return bool(child.exitcode == -signal.SIGKILL)


def points(database: str, runs: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """Return every metric point of these runs, by run and key, straight from the database."""
    found: dict[str, dict[str, list[Any]]] = {run: {} for run in runs}
    with psycopg.connect(plain(database)) as connection:
        rows = connection.execute(
            "select run_uuid, key, step, value, is_nan from metrics where run_uuid = any(%s) "
            "order by run_uuid, key, step, timestamp, value",
            (list(runs),),
        )
        for run, key, *point in rows:
            found[run].setdefault(key, []).append(point)
    return found


def outcome(world: World, database: str) -> dict[str, Any]:
    """Everything the server holds about one model, without what names it."""
    tracker = open_tracker(load_config(world.config))
    records = [record.to_dict() for record in tracker.records()]
    text = json.dumps(records)
    for record in records:  # ids of windows and triggers depend on the model's name
        text = text.replace(record["window_id"], f"window {record['ordinal']}")
        if record.get("retraining"):
            text = text.replace(record["retraining"]["id"], f"trigger {record['ordinal']}")
    records = json.loads(text)
    runs = {}
    for kind in ("monitor", "window", "retraining"):
        for run in tracker.runs.search(kind):
            label = str(run.info.run_name).replace(world.name, "model")
            runs[run.info.run_id] = f"{kind} {label}"
    metrics = {runs[run]: found for run, found in points(database, list(runs)).items()}
    registry = huc_mlflow.Registry(world.name)
    champion = registry.at("champion")
    return {
        "records": [{k: v for k, v in r.items() if k not in _VOLATILE} for r in records],
        "metrics": metrics,
        "versions": [str(version.version) for version in registry.versions()],
        "champion": None if champion is None else str(champion.version),
        "previous": None if champion is None else champion.tags.get("huc.previous_champion"),
        "lease": registry.lease._held() is not None,
        "open_trigger": (tracker.load_state() or {}).get("trigger") is not None,
    }


def differs(found: Any, expected: Any, path: str = "$") -> str | None:
    """Return where two outcomes first differ; identifiers of runs and models do not count."""
    if isinstance(expected, dict) and isinstance(found, dict) and found.keys() == expected.keys():
        parts = [(found[k], expected[k], f"{path}.{k}") for k in expected]
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        parts = [
            (a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(found, expected, strict=True))
        ]
    else:
        return None if found == expected else f"{path}: {found!r:.80} != {expected!r:.80}"
    return next((text for part in parts if (text := differs(*part)) is not None), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", type=Path, help="only keep servers running, named in this file")
    parser.add_argument("--servers", type=Path, help="use the servers that this file names")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if options.servers is not None:
            address, database = options.servers.read_text("utf-8").split()
            print(json.dumps(run(place, address, database, options.kills, options.seed)))
            return
        (place / "server").mkdir()
        with (
            postgres_server() as database,
            mlflow_server(database, place / "server") as address,
        ):
            if options.serve is None:
                print(json.dumps(run(place, address, database, options.kills, options.seed)))
                return
            options.serve.write_text(f"{address}\n{database}\n", "utf-8")
            while options.serve.exists():
                time.sleep(1)


def run(place: Path, address: str, database: str, n_kills: int, seed: int) -> dict[str, Any]:
    """Kill and repeat until so many were killed."""
    mlflow.set_tracking_uri(address)
    rng = random.Random(seed)  # noqa: S311 - not a secret
    story, processes = make_story(), Processes()
    base = log_forest(story).model_uri

    def arguments(world: World) -> tuple[Any, ...]:
        return mortal_check.check, str(world.config), world.now, str(world.folder / "told.json")

    warm = make_world(story, place / "warm", address, f"warm{seed}", base)
    assert processes.run(*arguments(warm)) == 0  # compiles kernels on a new machine
    calm = make_world(story, place / "calm", address, f"calm{seed}", base)
    started = time.monotonic()
    assert processes.run(*arguments(calm)) == 0
    seconds = time.monotonic() - started
    expected = outcome(calm, database)
    assert expected["versions"] == ["1", "2"], "a recalibration is part of it"
    assert expected["champion"] == "2"
    n_worlds = 0
    wrong: list[str] = []
    records_when_killed: list[int] = []
    while len(records_when_killed) < n_kills:
        n_worlds += 1
        assert n_worlds <= 3 * n_kills + 10, "checks finish before they can be killed"
        name = f"trial{seed}-{n_worlds}"
        world = make_world(story, place / name, address, name, base)
        kills = 0
        while kills < _KILLS_PER_WORLD:
            started, child = time.monotonic(), processes.start(*arguments(world))
            late = rng.random() < _AFTER_THE_FIRST
            killed = wait_and_kill(
                child,
                lambda: not late or count_records(world, database) > 0,  # noqa: B023
                rng.uniform(0.0, 0.8) * seconds,
            )
            if not killed:
                assert child.exitcode == 0
                break
            kills += 1
            records_when_killed.append(count_records(world, database))
        else:
            assert processes.run(*arguments(world)) == 0
        if not kills:
            seconds = time.monotonic() - started  # other work on the machine comes and goes
        place_of = differs(outcome(world, database), expected)
        if place_of is not None:
            wrong.append(f"trial {n_worlds}, {kills} kills: {place_of}")
            print(wrong[-1], file=sys.stderr, flush=True)
        print(
            name,
            records_when_killed[len(records_when_killed) - kills :],
            file=sys.stderr,
            flush=True,
        )
    after = sum(n > 0 for n in records_when_killed)
    return {
        "kills": len(records_when_killed),
        "worlds": n_worlds,
        "after_the_first_record": after,
        "by_records": [records_when_killed.count(n) for n in range(4)],
        "differences": len(wrong),
        "seconds_undisturbed": round(seconds, 1),
    }


if __name__ == "__main__":
    main()
