"""Detectors that share batches, as those of model versions that serve side by side."""

from __future__ import annotations

import numpy as np
import pytest

import huc_monitor as hm
from huc_monitor.audit.scan import Groups
from huc_monitor.detection.step import EDetectorStep

TREE = hm.LabelTree.from_nested({"a": ["a1", "a2"], "b": None})
UTILITIES = [hm.LevelCorrectness(level=1, name="top")]


def detector(tolerance=0.0, average_run_length=100.0):
    return hm.EDetector(
        tree=TREE,
        utilities=UTILITIES,
        tolerance=tolerance,
        average_run_length=average_run_length,
    )


def batch(rng, n):
    p = rng.dirichlet([2.0, 1.0, 2.0], size=n)
    labels = (p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1)
    rows = hm.decompose(p, labels, tree=TREE, utilities=UTILITIES)
    return rows, Groups.of([np.ones(n, dtype=np.uint8)], None)


def test_the_part_that_enters_replaces_the_unit():
    rng = np.random.default_rng(0)
    first, second = batch(rng, 50), batch(rng, 50)
    whole, half = detector(), detector()
    for rows in (first, second):
        one = whole.update_rows(*rows)
        other = half.update_rows(*rows, entering=0.5)
    # Wealth is linear in what entered, so half of every unit is half of the value.
    np.testing.assert_allclose(other.candidate_values, 0.5 * one.candidate_values, rtol=1e-12)
    np.testing.assert_allclose(other.e_values, one.e_values, rtol=1e-12)


def test_values_of_detectors_that_shared_a_batch_add_up():
    rng = np.random.default_rng(1)
    steps = [
        detector().update_rows(*batch(rng, n), entering=share)
        for n, share in ((30, 0.3), (70, 0.7))
    ]
    joint = EDetectorStep.joined(steps)
    total = steps[0].candidate_values + steps[1].candidate_values
    np.testing.assert_allclose(joint.candidate_values, total, rtol=1e-12)
    assert joint.n_rows == 100
    before = [step.candidate_values / step.e_values for step in steps]
    np.testing.assert_allclose(joint.e_values, total / (before[0] + before[1]), rtol=1e-12)
    richest = max(steps, key=lambda step: step.worst.value).worst
    assert (joint.worst.side, joint.worst.node) == (richest.side, richest.node)
    assert EDetectorStep.joined(steps[:1]) is steps[0]


@pytest.mark.slow
def test_false_alarms_of_two_versions_together_are_as_rare_as_those_of_one():
    rng = np.random.default_rng(2)
    n_batches, threshold, n_streams = 20, 40.0, 400
    alarms = 0
    for _ in range(n_streams):
        both = detector(0.0, threshold), detector(0.0, threshold)
        for _ in range(n_batches):
            share = rng.uniform(0.2, 0.8)
            sizes = round(60 * share), 60 - round(60 * share)
            steps = [
                one.update_rows(*batch(rng, n), entering=n / 60)
                for one, n in zip(both, sizes, strict=True)
            ]
            if EDetectorStep.joined(steps).alarm:
                alarms += 1
                break
    # P(alarm within T batches) <= T / A; three standard errors of the simulation.
    limit = n_batches / threshold
    assert alarms / n_streams <= limit + 3 * np.sqrt(limit * (1 - limit) / n_streams)
