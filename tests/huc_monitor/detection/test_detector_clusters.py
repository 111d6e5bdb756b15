"""The e-detector on rows that depend on each other, and on labels that were chosen."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.detection._betting import SIDES, Clusters

TREE = hm.LabelTree.from_nested({"l": ["a", "b", "c"], "r": ["d", "e"]})
PAY = hm.Payoff("pay", {"a": 1, "b": -1, "c": 0.5, "d": 0.2, "e": -0.3})


def detector(tolerance=0.02):
    return hm.EDetector(tree=TREE, utilities=[PAY], tolerance=tolerance)


def batch(n, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(5, 0.7), n)
    return p, (p.cumsum(1) < rng.random(n)[:, None]).sum(1).clip(0, 4)


def values(step):
    return step.outcome.log_value


def test_clusters_of_one_row_each_are_no_clusters_bit_for_bit():
    plain, alone = detector(), detector()
    for seed in range(3):
        p, y = batch(300, seed)
        one, other = plain.update(p, y), alone.update(p, y, clusters=np.arange(300))
        np.testing.assert_array_equal(values(one), values(other))


@pytest.mark.seconds
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_copies_of_every_row_in_its_cluster_are_the_row_once(seed, times):
    plain, copied = detector(), detector()
    for k in range(3):
        p, y = batch(60, [seed, k])
        one = plain.update(p, y)
        clusters = np.repeat(np.arange(60), times)
        other = copied.update(np.repeat(p, times, 0), np.repeat(y, times), clusters=clusters)
        if k == 0:  # later batches choose their bins from other counts of rows
            np.testing.assert_allclose(values(one), values(other), rtol=1e-9, atol=1e-9)


def test_the_bet_that_is_told_is_that_of_the_richest_arm():
    watch = detector()
    bets = watch._bets[0]
    watch.update(*batch(300, 0))
    bets.sums[0] = 0.0
    bets.sums[0, 2], bets.sums[0, 5] = 1.0, -1.0
    told = []
    for side in range(2):
        for place in range(2):
            bets.wealth[:] = 0.0
            bets.wealth[0, side, place, 1] = 1e12
            p, y = batch(5, 1)
            (rows,) = hm.decompose(p, y, tree=TREE, utilities=[PAY])
            found = bets.bet(rows, np.ones((1, 5)), 1e15, 1.0, None)
            told.append((found.side[0], found.low[0], found.high[0]))
    everywhere = (-np.inf, np.inf)
    assert told == [
        (1, *everywhere),
        (1, bets.edges[1], bets.edges[2]),
        (-1, *everywhere),
        (-1, bets.edges[4], bets.edges[5]),
    ]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_a_batch_earns_what_a_plain_loop_over_clusters_earns(seed, chosen):
    rng = np.random.default_rng(seed)
    watch = detector()
    bets = watch._bets[0]
    watch.update(*batch(300, seed))
    p, y = batch(80, [seed, 1])
    codes = rng.integers(0, 9, 80)
    amounts = rng.uniform(0.1, 1, 80) if chosen else np.ones(80)
    (rows,) = hm.decompose(p, y, tree=TREE, utilities=[PAY])
    clusters = Clusters.of(codes, amounts)
    runs = bets.runs()
    found = bets.log_growth(rows, np.ones((1, 80)), runs, clusters)
    bins = np.searchsorted(bets.edges, rows.scores, side="right")
    frame = rows.to_frame()
    for j, v in enumerate(rows.relevant):
        terms = frame[TREE.branches[v]].to_numpy()
        for side, sign in enumerate(SIDES):
            inside = (bins >= runs[j, side, 0]) & (bins < runs[j, side, 1])
            for place, kept in enumerate((np.ones(80, bool), inside)):
                for k, stake in enumerate(bets.stakes[j]):
                    factors = [
                        1 + stake * (amounts * (sign * terms * kept - 0.02))[codes == c].mean()
                        for c in np.unique(codes)
                    ]
                    assert min(factors) >= 0.5
                    expected = np.log(factors).sum()
                    assert found[j, side, place, k] == pytest.approx(expected, abs=1e-9)


def test_a_detector_with_chosen_labels_sits_out_what_its_stakes_do_not_allow_for():
    watch = detector()
    p, y = batch(100, 0)
    first = watch.update(p, y, label_probability=np.linspace(0.4, 1, 100))
    assert (first.n_rows, watch.n_batches, watch.n_rows) == (0, 1, 100)
    assert watch.update(p, y, label_probability=np.linspace(0.22, 1, 100)).n_rows == 100
    assert watch.update(p, y, label_probability=np.linspace(0.05, 1, 100)).n_rows == 0
    again = hm.EDetector.from_dict(json.loads(json.dumps(watch.to_dict())))
    assert again.update(p, y, label_probability=np.linspace(0.03, 1, 100)).n_rows == 100
    assert "least_probability" not in detector().to_dict()


def test_a_wrong_model_is_named_from_chosen_labels_and_clusters():
    watch = detector(tolerance=0.01)
    for seed in range(6):
        p, _ = batch(400, seed)
        y = np.zeros(400, dtype=int)
        probability = np.where(np.arange(400) % 2, 0.3, 0.9)
        step = watch.update(p, y, clusters=np.arange(400) // 2, label_probability=probability)
    assert step.named
