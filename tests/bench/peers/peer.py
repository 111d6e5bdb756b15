"""Runs one peer's script over the tasks, in that peer's own environment; numpy is all it needs.

``python peer.py SCRIPT TASKS OUT --what detect`` (or ``recalibrate``, ``discover``, ``speed``)
writes ``OUT/SCRIPT-detect.json``. A task that takes more processor time than ``LIMITS`` is stopped,
and the rest of its data set left out. A script defines any of

* ``DETECTORS``: functions by name that take a stream and give ``(alarm, statistic, names)`` for
  every day after the reference;
* ``RECALIBRATORS``: functions by name that take rows to learn from and rows to mend, and give
  probabilities for the latter, which ``judge.py`` compares;
* ``SEGMENTERS``: functions by name that take a frame with ``score`` and ``y``, and give the rows of
  every segment they claim, the worst first;
* ``speed(n)``: seconds by name, for n rows;
* ``CONVERSIONS``: names of functions that are no user's code, since production has such rows.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import math
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

REFERENCE_DAYS, SPLITS = 3, 5
N_KNOWN = 2_000
LIMITS = {"streams": 30, "pairs": 240, "segments": 30}  # seconds of processor time for a task
SPEED_LIMIT = 200  # the same for one size of a speed measurement
BATCH = 0.25


class StoppedError(Exception):
    """A task took too long."""


@dataclass
class Table:
    """Rows with predictions, labels and one subgroup column."""

    probabilities: np.ndarray
    labels: np.ndarray
    group: np.ndarray
    classes: np.ndarray
    tree: dict

    @property
    def codes(self):
        return np.searchsorted(self.classes, self.labels)

    @property
    def right(self):
        return self.probabilities.argmax(axis=1) == self.codes

    def take(self, rows):
        arrays = (self.probabilities, self.labels, self.group)
        return Table(*(one[rows] for one in arrays), self.classes, self.tree)

    def frame(self):
        """What NannyML, Evidently and mcgrad read."""
        import pandas as pd

        frame = pd.DataFrame(self.probabilities, columns=[f"p_{name}" for name in self.classes])
        frame["y_pred"] = self.classes[self.probabilities.argmax(axis=1)]
        frame["y"], frame["group"] = self.labels, self.group
        frame["right"], frame["score"] = self.right.astype(int), self.probabilities.max(axis=1)
        return frame


@dataclass
class Stream:
    """Days of rows."""

    table: Table
    day: np.ndarray

    @property
    def reference(self):
        return self.table.take(self.day < REFERENCE_DAYS)

    @property
    def days(self):
        return [self.table.take(self.day == k) for k in range(REFERENCE_DAYS, self.day.max() + 1)]


def read(path):
    data = np.load(path)
    table = Table(
        *(data[key] for key in ("probabilities", "labels", "group", "classes")),
        json.loads(str(data["tree"])),
    )
    return data, table


def splits(table):
    """Rows to learn from and rows to be judged by, several times."""
    for k in range(SPLITS):
        order = np.random.default_rng([k, 3]).permutation(len(table.labels))
        n = min(N_KNOWN, len(order) // 2)
        yield table.take(order[:n]), table.take(order[n:])


def lines(function, conversions):
    """Lines of code of a function and of what it uses of its module, without docstrings.

    What turns the tasks' rows into what a library reads is left out, as `Table.frame` is.
    """
    module, seen, left = sys.modules[function.__module__], {}, [function.__code__]
    while left:
        code = left.pop()
        left += [part for part in code.co_consts if inspect.iscode(part)]
        for name in {code.co_name, *code.co_names} - {*conversions, *seen}:
            called = vars(module).get(name)
            if getattr(called, "__module__", None) == module.__name__:
                seen[name] = inspect.getsource(called).splitlines()[1:]
                left += [called.__code__] if inspect.isfunction(called) else []
    return sum(
        bool(line.strip()) and not line.strip().startswith(('"""', "#"))
        for source in seen.values()
        for line in source
    )


def plain(item):
    """JSON's own types."""
    return item.item() if hasattr(item, "item") else str(item)


def each(given, kind, functions, run):
    """Results by variant and file; what a peer cannot do is kept as its own words."""
    found = {}
    signal.signal(signal.SIGPROF, stop)
    for name, function in functions.items():
        found[name], stopped = {}, set()
        for path in sorted((given.tasks / kind).glob(given.files)):
            started, data = time.process_time(), path.stem.split("-")[0]
            try:
                if data in stopped:
                    raise StoppedError  # noqa: TRY301 - told alike
                signal.setitimer(signal.ITIMER_PROF, LIMITS[kind])
                answer = run(path, name, function)
            except StoppedError:
                stopped.add(data)
                answer = {"stopped": LIMITS[kind]}
            except Exception as error:  # noqa: BLE001 - a peer's refusal is a result
                traceback.print_exc()
                answer = {"refused": f"{type(error).__name__}: {error}"[:300]}
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            answer["seconds"] = round(time.process_time() - started, 3)
            found[name][path.stem] = answer
    return found


def stop(number, frame):  # noqa: ARG001 - called by the timer
    raise StoppedError


def detect(functions, given):
    """Every detector on every stream."""

    def run(path, _, function):
        data, table = read(path)
        days = function(Stream(table, data["day"]))
        return {"days": [[bool(a), size, sorted(set(names))] for a, size, names in days]}

    return each(given, "streams", functions, run)


def recalibrate(functions, given):
    """Every repair of every pair, kept as arrays."""
    shutil.rmtree(given.out / "recalibrated" / given.script, ignore_errors=True)

    def run(path, name, function):
        folder = given.out / "recalibrated" / given.script / name
        folder.mkdir(parents=True, exist_ok=True)
        for k, (known, new) in enumerate(splits(read(path)[1])):
            q = function(known, new)
            np.save(folder / f"{path.stem}-{k}.npy", np.asarray(q, dtype=np.float32))
        return {}

    return each(given, "pairs", functions, run)


def discover(functions, given):
    """Every search for segments: is anything claimed, and how well does it fit the planted one?"""
    import pandas as pd

    def run(path, _, function):
        data = np.load(path)
        more = {key: data[key] for key in data if key not in {"p", "inside"}}
        found = [np.asarray(rows) for rows in function(pd.DataFrame(more), data["p"])]
        inside = data["inside"]
        fits = [float((rows & inside).sum() / (rows | inside).sum()) for rows in found]
        first, best = fits[0] if fits else 0.0, max(fits, default=0.0)
        return {"claimed": len(found), "first": first, "best": best}

    return each(given, "segments", functions, run)


PARTS = {"detect": "DETECTORS", "recalibrate": "RECALIBRATORS", "discover": "SEGMENTERS"}


def fastest(function):
    """Processor seconds of a call: the least mean of three batches of calls.

    A batch takes a quarter of a second or one call, since the clock moves in steps of 4 ms while a
    limit on processor time runs. What takes long is called less often, within ten seconds or once.
    Returns what the last call answered as well.
    """
    spent, in_all, times = [], 0.0, 1
    while len(spent) < 3 and in_all < 10:
        started = time.process_time()
        for _ in range(times):
            answer = function()
        took = time.process_time() - started
        in_all += took
        if took < BATCH and times == 1 and not spent:
            times = math.ceil(BATCH / max(took, 0.004))
            continue
        spent.append(took / times)
    return min(spent), answer


def measure_speed(script, n):
    """In a process of its own, for its memory."""
    command = [sys.executable, __file__, script, ".", ".", "--what", "speed", "--speed-of", str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"refused": done.stderr.strip().splitlines()[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])


def speed_alone(module, n):
    """What `measure_speed` waits for."""
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SPEED_LIMIT)
    try:
        answer = module.speed(n)
    except StoppedError:
        return {"refused": f"stopped after {SPEED_LIMIT} s of processor time"}
    return {"peak_mb": peak_mb(), **answer}


def peak_mb():
    """The most memory that this process had so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script")
    parser.add_argument("tasks", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--what", choices=[*PARTS, "speed"], required=True)
    parser.add_argument("--sizes", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--files", default="*.npz", help="some of the tasks: a pattern")
    parser.add_argument("--speed-of", type=int)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).parent))
    module = importlib.import_module(given.script)
    if given.speed_of:
        print(json.dumps(speed_alone(module, given.speed_of)))
        return
    counted = {}
    if given.what == "speed":
        answers = {str(n): measure_speed(given.script, n) for n in given.sizes}
    else:
        functions = getattr(module, PARTS[given.what])
        answers = globals()[given.what](functions, given)
        used = list(functions.values())[-1]
        conversions = getattr(module, "CONVERSIONS", ())
        counted[given.what] = lines(getattr(used, "func", used), conversions)
    costs = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(one.ru_utime + one.ru_stime for one in costs)
    found = {"answers": answers, "lines": counted, "processor_seconds": round(seconds)}
    path = given.out / f"{given.script}-{given.what}.json"
    path.write_text(json.dumps(found, default=plain), "utf-8")


if __name__ == "__main__":
    main()
