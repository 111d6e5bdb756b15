"""MAPIE: a lower bound on the error rate that holds at every time, against the reference's."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from mapie.exchangeability_testing import RiskMonitoring


def detect(stream, tolerance=0.05):
    reference = stream.reference
    monitor = RiskMonitoring(risk="accuracy", tolerance=tolerance, warn=False)
    monitor.compute_threshold(np.ones(len(reference.right), dtype=int), reference.right.astype(int))
    answers = []
    for day in stream.days:
        monitor.update(np.ones(len(day.right), dtype=int), day.right.astype(int))
        size = float(monitor.online_risk_lower_bound_latest - monitor.threshold)
        answers.append((monitor.harmful_shift_detected, size, []))
    return answers


DETECTORS = {"error rate": detect, "error rate, no tolerance": partial(detect, tolerance=0.0)}


def speed(n):
    """Updates of 100 rows, as they come; stopped after a minute, and told for so many rows."""
    right = (np.random.default_rng(0).random(n) < 0.8).astype(int)
    monitor = RiskMonitoring(risk="accuracy", threshold=0.5, warn=False)
    started, done = time.process_time(), 0
    while done < n and time.process_time() - started < 60:
        monitor.update(np.ones(100, dtype=int), right[done : done + 100])
        done += 100
    return {"sequential": (time.process_time() - started) * n / done, "rows_measured": done}
