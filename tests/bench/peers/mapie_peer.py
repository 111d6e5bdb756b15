"""MAPIE: a lower bound on the error rate that holds at every time, against the reference's.

Every update computes the bound after each row of the whole history again. So one update with all
rows gives what one a day would give, in a fraction of the time. A day's answer is the largest bound
of its rows, since the bound holds at every time.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from mapie.exchangeability_testing import RiskMonitoring


def detect(stream, tolerance=0.05):
    reference = stream.reference
    monitor = RiskMonitoring(risk="accuracy", tolerance=tolerance, warn=False)
    monitor.compute_threshold(np.ones(len(reference.right), dtype=int), reference.right.astype(int))
    days = [day.right.astype(int) for day in stream.days]
    right = np.concatenate(days)
    monitor.update(np.ones(len(right), dtype=int), right)
    ends = np.cumsum([len(day) for day in days])[:-1]
    parts = np.split(monitor.online_risk_lower_bound_sequence_history, ends)
    sizes = [float(part.max() - monitor.threshold) for part in parts]
    return [(size > 0, size, []) for size in sizes]


DETECTORS = {"error rate": detect, "error rate without tolerance": partial(detect, tolerance=0.0)}


def speed(n):
    """Updates of 100 rows, as they come; stopped after a minute, and told for so many rows."""
    right = (np.random.default_rng(0).random(n) < 0.8).astype(int)
    monitor = RiskMonitoring(risk="accuracy", threshold=0.5, warn=False)
    started, done = time.process_time(), 0
    while done < n and time.process_time() - started < 60:
        monitor.update(np.ones(100, dtype=int), right[done : done + 100])
        done += 100
    return {"sequential": (time.process_time() - started) * n / done, "rows_measured": done}
