"""huc-monitor: `init`, then `check` every day; HUC-Boost with its defaults."""

from __future__ import annotations

import json
import tempfile
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
from peer import fastest, peak_mb

import huc_monitor as hm
from huc_monitor.config import init_config
from huc_monitor.config.opening import open_monitor
from huc_monitor.reporting import render_report

FIRST = datetime(2024, 1, 1, tzinfo=UTC)


def write_log(stream, folder):
    """The log as production would have written it."""
    table = stream.table
    log = pd.DataFrame(table.probabilities, columns=[f"p_{leaf}" for leaf in table.classes])
    log["id"], log["label"], log["channel"] = np.arange(len(log)), table.labels, table.group
    seconds = np.arange(len(log)) * (86_400 / (len(log) / (stream.day.max() + 1)))
    log["at"] = pd.Timestamp(FIRST) + pd.to_timedelta(seconds.round(3), unit="s")
    log.to_parquet(folder / "log.parquet")
    (folder / "tree.json").write_text(json.dumps(table.tree), "utf-8")


def detect(stream):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_log(stream, folder)
        text = init_config(folder / "log.parquet", folder / "tree.json", folder=folder)
        (folder / "huc.yaml").write_text(text, "utf-8")
        monitor = open_monitor(folder / "huc.yaml")
        ends = [FIRST + timedelta(days=k + 1, minutes=1) for k in range(stream.day.max() + 1)]
        return [answer(monitor.check(end).message) for end in ends][3:]


def answer(message):
    """Whether a branch changed, and its name and those of its narrowest subgroup."""
    found = [] if message is None else message.data.get("findings", [])
    groups = [str(group).partition("=")[2] for one in found for group in one["subgroups"][:1]]
    return bool(found), None, [*(one["node"] for one in found), *groups]


def recalibrate(known, new):
    tree = hm.LabelTree.from_nested(known.tree)
    utilities = [hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2), hm.TopK(1)]
    boost = hm.HUCBoost(tree=tree, utilities=utilities, initial="auto")
    boost.fit(full(known, tree), known.labels)
    found = pd.DataFrame(boost.predict_proba(full(new, tree)), columns=tree.leaves)
    return found[known.classes].to_numpy()


def full(table, tree):
    """Columns of all leaves; classes that the model never saw have probability 0."""
    named = pd.DataFrame(table.probabilities, columns=table.classes)
    return named.reindex(columns=list(tree.leaves), fill_value=0.0)


def discover(frame, p):
    nested = {"billing": ["a", "b"], "delivery": ["c", "d"], "account": ["e", "f"]}
    features = frame.drop(columns=["y", "score"])
    utility = hm.Payoff("billing", {"a": 1.0, "b": 1.0})
    tree = hm.LabelTree.from_nested(nested)
    found = hm.discover(p, frame["y"], tree=tree, utilities=[utility], features=features)
    chosen = found.make_subgroups(frame).weights(frame, len(frame))[1:]
    return [rows.astype(bool) for rows in chosen]


CONVERSIONS = ("write_log", "full")
DETECTORS = {"init and check": detect}
SEGMENTERS = {"discover": discover}
RECALIBRATORS = {"HUC-Boost": recalibrate}
AUDITS = {"plain": None, "sharp": "sharp", "calibration": "bootstrap"}  # the last has its page


def segments(frame):
    """Every conjunction of values of up to three columns: mcgrad's segments."""
    values = {name: [(name, value) for value in sorted(frame[name].unique())] for name in frame}
    chosen = chain.from_iterable(combinations(values.values(), depth + 1) for depth in range(3))
    predicates = {
        ", ".join(f"{name}={value}" for name, value in parts): {
            "and": [{"column": name, "op": "==", "value": value} for name, value in parts]
        }
        for columns in chosen
        for parts in product(*columns)
    }
    return hm.Subgroups.from_reference(frame, predicates=predicates)


def predictions(rng, tree, n):
    """Calibrated predictions and their labels."""
    n_leaves = tree.n_leaves
    p = rng.dirichlet(np.full(n_leaves, 3.5 / n_leaves), n).clip(1e-9)
    p /= p.sum(axis=1, keepdims=True)
    return p, (p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=n_leaves - 1)


def time_audits(seconds, p, y, frame, task, ending=""):
    """Add the seconds of audits in 64 segments, with each kind of bounds; return the last one."""
    asked = {**task, "subgroups": segments(frame)}
    for bounds in AUDITS.values():  # compiles
        hm.audit(p[:500], y[:500], **asked, features=frame[:500], bounds=bounds)
    for name, bounds in AUDITS.items():
        spent, result = fastest(partial(hm.audit, p, y, **asked, features=frame, bounds=bounds))
        seconds[name + ending] = spent
        seconds[f"{name}{ending}_per_candidate"] = spent / result.candidates.n
    return result


def speed(n):
    """The same rows: audits by their bounds, twenty windows, and updates of 100 rows.

    Then audits of a tree as large as MASSIVE's, whose memory is not counted.
    """
    rng = np.random.default_rng(0)
    tree = hm.LabelTree.from_nested({"one": ["a", "b"], "two": ["c", "d"], "e": None})
    p, y = predictions(rng, tree, n)
    frame = pd.DataFrame({name: rng.choice(list("uvw"), n) for name in "abc"})
    utilities = [hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2), hm.TopK(1)]
    task = {"tree": tree, "utilities": utilities}
    seconds = {}
    result = time_audits(seconds, p, y, frame, task)
    page = render_report(result)
    seconds["page_kb"] = len(page.encode()) // 1024
    seconds["outside"] = sum(page.count(mark) for mark in ('src="http', 'href="http', "url(http"))
    seconds["candidates"] = result.candidates.n
    windows = np.array_split(np.arange(n), 20)
    seconds["twenty_windows"], _ = fastest(
        lambda: [hm.audit(p[rows], y[rows], **task) for rows in windows]
    )
    detector = hm.EDetector(**task, tolerance=0.02)
    detector.update(p[:100], y[:100])
    started = time.process_time()
    done = 0
    while done < n and time.process_time() - started < 60:
        detector.update(p[done : done + 100], y[done : done + 100])
        done += 100
    seconds["sequential"] = (time.process_time() - started) * n / done
    seconds["peak_mb"] = peak_mb()
    nested = {f"{k}": [f"{k}-{j}" for j in range(4 if k < 6 else 3)] for k in range(18)}
    task["tree"] = hm.LabelTree.from_nested(nested)
    p, y = predictions(rng, task["tree"], n)
    large = time_audits(seconds, p, y, frame, task, ending="_large")
    seconds["candidates_large"] = large.candidates.n
    return seconds
