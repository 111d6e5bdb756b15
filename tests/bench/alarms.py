"""How often alarms are false, how soon they come, and what they cost. Prints one JSON line each.

Streams come from a five-leaf tree like SUPPORT2's, nine decision utilities and four subgroups: 84
candidates. Branch logits are normal, the deep branch 'major' is reached by 29 % of the rows, and
labels are drawn from the predictions, or from predictions whose logit in 'major' is shifted.

Run: python tests/bench/alarms.py [--streams 300] [--runs 200] [--draws 200] [--only power,...]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import huc_monitor as hm
from huc_monitor.audit import audit_rows
from huc_monitor.audit.scan import Groups

if TYPE_CHECKING:
    from collections.abc import Callable

TREE = hm.LabelTree.from_nested(
    {"survived": {"milder": ["y1", "y2"], "major": ["y3", "y4"]}, "died": None}
)
# eq:support2-decision-sets-v20: leaves on which a decision is active, leaves that favour action 1.
DECISIONS = (
    (["y1", "y2", "y3", "y4", "died"], ["died"]),
    (["y1", "y2"], ["y2"]),
    (["y3", "y4"], ["y4"]),
)
UTILITIES = [
    hm.BinaryAction(f"d{j}_{tau}", active=active, favours=favours, threshold=tau)
    for j, (active, favours) in enumerate(DECISIONS, start=1)
    for tau in (0.25, 0.5, 0.75)
]
SUBGROUPS = hm.Subgroups.from_reference({"age": [50.0, 70.0, 90.0]}, {"age": [65, 80]})
# Logits of died, major | survived, y2 | milder, y4 | major.
MEANS = np.array([-0.9, -0.3, -0.2, -0.4])
DEVIATIONS = np.array([1.2, 0.9, 0.9, 0.9])
TOLERANCE = 0.01
ARL = 100.0


@dataclass(frozen=True)
class Rows:
    """Predictions, labels and features of some rows."""

    p: np.ndarray
    labels: np.ndarray
    features: pd.DataFrame

    def batch(self, t: int, size: int) -> tuple[Any, Any, Any]:
        part = slice(t * size, (t + 1) * size)
        return self.p[part], self.labels[part], self.features.iloc[part]


def leaf_probabilities(logits: np.ndarray) -> np.ndarray:
    died, major, assisted, coma = (1 / (1 + np.exp(-logits))).T
    low, high = (1 - died) * (1 - major), (1 - died) * major
    parts = [low * (1 - assisted), low * assisted, high * (1 - coma), high * coma, died]
    return np.stack(parts, axis=1)


def draw(rng: np.random.Generator, n: int, shift: float = 0.0, slope: float = 1.0) -> Rows:
    """Rows whose true logit in 'major' is slope * predicted + shift."""
    logits = rng.normal(MEANS, DEVIATIONS, size=(n, 4))
    p = leaf_probabilities(logits)
    true = logits.copy()
    true[:, 3] = slope * true[:, 3] + shift
    below = np.cumsum(leaf_probabilities(true), axis=1)
    labels = np.minimum((rng.random((n, 1)) > below).sum(axis=1), 4)
    return Rows(p, labels, pd.DataFrame({"age": rng.uniform(30, 95, n)}))


def detector(tolerance: float = TOLERANCE, **settings: Any) -> hm.EDetector:
    return hm.EDetector(
        tree=TREE,
        utilities=UTILITIES,
        subgroups=SUBGROUPS,
        tolerance=tolerance,
        average_run_length=ARL,
        **settings,
    )


def windows(stream: Rows, n_batches: int, size: int) -> list[tuple[list[hm.UtilityRows], Groups]]:
    """Cut a stream into batches; it is decomposed once."""
    rows = hm.decompose(stream.p, stream.labels, tree=TREE, utilities=UTILITIES)
    weights = SUBGROUPS.weights(stream.features, len(stream.p))
    parts = [np.arange(t * size, (t + 1) * size) for t in range(n_batches)]
    return [
        ([row.take(part) for row in rows], Groups.of([weight[part] for weight in weights], None))
        for part in parts
    ]


def mean_and_error(stream: Rows, n_batches: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole-window mean of every candidate and its standard error, shape (batches, candidates)."""
    means, errors = [], []
    weights = np.array(SUBGROUPS.weights(stream.features, len(stream.p)), dtype=float)
    for row in hm.decompose(stream.p, stream.labels, tree=TREE, utilities=UTILITIES):
        dense = row.to_frame().iloc[:, 2:].to_numpy()
        cells = (weights[:, :, None] * dense).reshape(len(weights), n_batches, size, -1)
        means.append(np.moveaxis(cells.mean(axis=2), 0, 1).reshape(n_batches, -1))
        spread = cells.std(axis=2, ddof=1) / math.sqrt(size)
        errors.append(np.moveaxis(spread, 0, 1).reshape(n_batches, -1))
    return np.concatenate(means, axis=1), np.concatenate(errors, axis=1)


def bootstrap_lower(batch: Any, seed: int, n_draws: int) -> float:
    """Lower bound of HUC by a window's own bootstrap, as if it were the only window."""
    result = audit_rows(
        *batch,
        subgroups=SUBGROUPS,
        bounds="bootstrap",
        confidence_level=0.95,
        n_draws=n_draws,
        rng=seed,
    )
    return float(result.huc_lower)


def rate(alarms: list[np.ndarray]) -> dict[str, Any]:
    """Alarms per batch, with the standard error between streams."""
    per_stream = np.array([alarm.mean() for alarm in alarms])
    error = per_stream.std(ddof=1) / math.sqrt(per_stream.size)
    # Without a single alarm the error is 0 too, and the rule of three says how little that means.
    at_most = max(per_stream.mean() + 2 * error, 3 / sum(map(len, alarms)))
    return {
        "per_batch": round(float(per_stream.mean()), 5),
        "error": round(float(error), 5),
        "at_most": round(min(1.0, float(at_most)), 5),
        "streams_with_any": round(float(np.mean([alarm.any() for alarm in alarms])), 4),
        "streams": int(per_stream.size),
    }


def false_alarms(n_streams: int, n_bootstrap: int, n_draws: int) -> dict[str, Any]:
    """Calibrated streams, judged in every way."""
    n_batches, size = 200, 250
    found: dict[str, list[np.ndarray]] = {}

    def note(name: str, alarms: Any) -> None:
        found.setdefault(name, []).append(np.array(alarms))

    for seed in range(n_streams):
        stream = draw(np.random.default_rng([1, seed]), n_batches * size)
        batches = windows(stream, n_batches, size)
        for name, tolerance in (("e_detector", TOLERANCE), ("e_detector_tolerance_0", 0.0)):
            watch = detector(tolerance)
            note(name, [watch.update_rows(*batch).alarm for batch in batches])
        plain = [audit_rows(*batch, subgroups=SUBGROUPS, bounds=None) for batch in batches]
        note("point_estimate_above_tolerance", [result.huc > TOLERANCE for result in plain])
        mean, error = mean_and_error(stream, n_batches, size)
        note("mean_beyond_3_se", (np.abs(mean) > 3 * error).any(axis=1))
        above = np.abs(mean) > TOLERANCE + 3 * error
        note("mean_beyond_tolerance_and_3_se", above.any(axis=1))
        if seed < n_bootstrap:
            lower = np.array([bootstrap_lower(batch, seed, n_draws) for batch in batches])
            note("bootstrap_95_lower_above_0", lower > 0)
            note("bootstrap_95_lower_above_tolerance", lower > TOLERANCE)
    return {
        "claim": f"e_detector per_batch <= {1 / ARL}",
        "batches": n_batches,
        "rows": size,
        **{name: rate(alarms) for name, alarms in found.items()},
    }


def power(shift: float, size: int, n_runs: int, *, slope: float = 1.0) -> dict[str, Any]:
    """Batches from the change to the alarm, and who stands first then."""
    before, most = 20, 60
    delays, first, named, early = [], [], [], 0
    for seed in range(n_runs):
        rng = np.random.default_rng([2, seed, size])
        watch = detector()
        calm = draw(rng, before * size)
        early += sum(watch.update(*calm.batch(t, size)).alarm for t in range(before))
        for t in range(1, most + 1):
            rows = draw(rng, size, shift, slope)
            step = watch.update(rows.p, rows.labels, rows.features)
            if step.alarm or t == most:
                delays.append(t)
                first.append(step.alarm and step.worst.node == "major")
                named.append(any(item.node == "major" for item in step.named))
                break
    share = float(np.mean(first))
    return {
        "shift": shift,
        "slope": slope,
        "rows": size,
        "runs": n_runs,
        "median_delay": float(np.median(delays)),
        "mean_delay": round(float(np.mean(delays)), 2),
        "mean_delay_error": round(float(np.std(delays, ddof=1) / math.sqrt(n_runs)), 2),
        "delay_95_percent": float(np.quantile(delays, 0.95)),
        "guilty_node_first": round(share, 4),
        "guilty_node_first_error": round(math.sqrt(share * (1 - share) / n_runs), 4),
        "guilty_node_above_its_own_threshold": round(float(np.mean(named)), 4),
        "alarms_before_the_change": int(early),
    }


def moment_of(shift: float, slope: float = 1.0, n: int = 400_000) -> dict[str, float]:
    """How large the change is: share of rows in 'major', and its largest moment."""
    rows = draw(np.random.default_rng(3), n, shift, slope)
    result = hm.audit(
        rows.p, rows.labels, tree=TREE, utilities=UTILITIES, bounds="theorem", confidence_level=0.95
    )
    frame = result.to_frame(all_columns=True)
    major = frame[frame["node"] == "major"]
    return {
        "share_reaching_branch": round(float(rows.p[:, 2:4].sum(axis=1).mean()), 3),
        "largest_moment": round(float(major["moment"].abs().max()), 4),
        "largest_moment_elsewhere": round(
            float(frame[frame["node"] != "major"]["moment"].abs().max()), 4
        ),
    }


def cost(repeats: int = 7) -> dict[str, Any]:
    """Seconds per batch over a stream; each batch's fastest of several passes."""
    n_batches, size = 50, 1_000
    stream = draw(np.random.default_rng(4), n_batches * size)
    passes = []
    for _ in range(repeats):
        watch = detector()
        times = []
        for t in range(n_batches):
            batch = stream.batch(t, size)
            start = time.perf_counter()
            watch.update(*batch)
            times.append(time.perf_counter() - start)
        passes.append(times)
    seconds = np.array(passes).min(axis=0)
    tenth = n_batches // 10
    return {
        "batches": n_batches,
        "rows": size,
        "candidates": len(watch.candidates),
        "milliseconds_per_batch": round(float(seconds.mean()) * 1e3, 3),
        "last_tenth_over_first": round(float(seconds[-tenth:].mean() / seconds[:tenth].mean()), 3),
        "state_bytes": len(json.dumps(watch.to_dict())),
    }


def resume() -> dict[str, Any]:
    """Save and restore after every batch; the values must be the same bits."""
    stream = draw(np.random.default_rng(5), 40 * 250, shift=0.3)
    straight, saved = detector(), detector()
    same = True
    for t in range(40):
        batch = stream.batch(t, 250)
        saved = hm.EDetector.from_dict(json.loads(json.dumps(saved.to_dict(), allow_nan=False)))
        a, b = straight.update(*batch), saved.update(*batch)
        same &= bool((a.candidate_values == b.candidate_values).all()) and a.alarm == b.alarm
    return {"identical": same and straight.to_dict() == saved.to_dict()}


def main() -> None:
    # A neighbour of this file has the name of a package that numba looks for.
    here = Path(__file__).parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here.resolve()]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--bootstrap-streams", type=int, default=300)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--only", default="cost,resume,power,false_alarms")
    given = parser.parse_args()
    calls: dict[str, list[Callable[[], dict[str, Any]]]] = {
        "cost": [cost],
        "resume": [resume],
        "power": [
            lambda: power(1.0, 250, given.runs) | moment_of(1.0),
            lambda: power(0.5, 1_000, given.runs) | moment_of(0.5),
            lambda: power(0.0, 1_000, given.runs, slope=0.3) | moment_of(0.0, 0.3),
        ],
        "false_alarms": [lambda: false_alarms(given.streams, given.bootstrap_streams, given.draws)],
    }
    for name in given.only.split(","):
        for call in calls[name]:
            start = time.perf_counter()
            answer = call()
            answer["seconds"] = round(time.perf_counter() - start, 1)
            print(json.dumps({"measured": name, **answer}), flush=True)


if __name__ == "__main__":
    main()
