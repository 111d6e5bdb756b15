"""Comparisons of rows in pieces against those of rows in memory: equal to the last bits."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest
from support.random_cases import random_tree, random_utilities

import huc_monitor as hm
from huc_monitor.audit.compare import make_sample
from huc_monitor.audit.inputs import check_predictions
from huc_monitor.audit.runs.changes import PieceChange, compare_pools
from huc_monitor.audit.runs.packing import Packing
from huc_monitor.audit.runs.pieces import RunSummary, merge_runs
from huc_monitor.audit.two_samples import Sample, compare_samples
from huc_monitor.detection.history import rounded

SIZES = (120, 90, 60, 150, 40)  # the reference, the newest window, the one before, ...
POOLS = (1, 3, 4)
COLUMNS = ("difference", "before", "after", "interval_low", "interval_high", "n_in_before")


class Engine:
    """Holds rows in memory, and cuts and shuffles them as engines do."""

    def __init__(self, check, pieces, rng, *, weighted):
        self.check, self.rng = check, rng
        self.facts = functools.reduce(operator.add, map(check.facts, pieces), check.no_facts)
        self.packings = [
            Packing.of(check, u, weighted=weighted, sampled=True)
            for u in range(len(check.utilities))
        ]
        scored = [list(check.rows(piece)) for piece in pieces]
        self.records = [
            np.concatenate([packing.pack(found[u]) for found in scored])
            for u, packing in enumerate(self.packings)
        ]
        self.drawn_for = []

    def _cut(self, u):
        records = self.records[u]
        cuts = np.unique(self.rng.choice(records["score"], 6))
        place = np.searchsorted(cuts, records["score"])
        for k in self.rng.permutation(np.unique(place)):
            yield self.packings[u].unpack(self.rng.permutation(records[place == k]))

    def multipliers(self):
        return sum(self.check.add_multipliers(rows, self.facts) for rows in self._cut(0))

    def summaries(self, pools, sums):
        self.drawn_for += [] if sums is None else list(pools)
        found = []
        for pool in pools:
            found.append([])
            for u in range(len(self.check.utilities)):
                runs = [
                    self.check.summarise_pool(u, rows, self.facts, pool, sums)
                    for rows in self._cut(u)
                ]
                runs = [RunSummary.from_bytes(run.to_bytes()) for run in runs if run is not None]
                found[-1].append(merge_runs(runs))
        return found

    def after(self, pools, intervals):
        return [
            [
                functools.reduce(
                    operator.add,
                    (
                        self.check.after_sums(u, rows, self.facts, pool, intervals[i][u])
                        for rows in self._cut(u)
                    ),
                )
                for u in range(len(self.check.utilities))
            ]
            for i, pool in enumerate(pools)
        ]


def case(seed, *, weighted=False, shift=0.0):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    utilities = random_utilities(rng, tree)[:2]
    distinct = rng.dirichlet(np.full(tree.n_leaves, 0.7), 60)
    samples = []
    for k, n in enumerate(SIZES):
        p = distinct[rng.integers(0, 60, n)]
        labels = np.where(rng.random(n) < shift * (k == 1), 0, rng.integers(0, tree.n_leaves, n))
        frame = {"g": rng.choice(["x", "y"], n), "w": rng.uniform(-1, 1, n)}
        weights = rng.integers(0, 4, n) * 0.5 if weighted else None
        samples.append((p, labels, frame, weights))
    groups = hm.Subgroups.from_reference(samples[0][2], {"g": "each"}, weights={"tilt": "w"})
    options = {"confidence_level": 0.9, "n_draws": 64, "rng": seed}
    what = {"tree": tree, "utilities": utilities, "subgroups": groups, **options}
    return rng, PieceChange.of(**what, n_samples=len(SIZES)), samples


def pieces_of(check, samples):
    done = 0
    for k, (p, labels, frame, weights) in enumerate(samples):
        kept = np.ones(len(p)) if weights is None else weights
        ids = done + np.cumsum(kept > 0) - 1
        done += int((kept > 0).sum())
        yield check.check(p, labels, frame, weights, ids, np.full(len(p), k))


def in_memory(check, samples, pool, *, screen):
    made = [
        rounded(make_sample(check_predictions(p, tree=check.tree), y, check, features=f, weights=w))
        for p, y, f, w in samples
    ]
    return compare_samples(made[0], Sample.join(made[1 : pool + 1]), check, screen=screen)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_any_cut_of_any_rows_gives_the_comparison_in_memory(seed, weighted):
    rng, check, samples = case(seed, weighted=weighted)
    engine = Engine(check, list(pieces_of(check, samples)), rng, weighted=weighted)
    found = compare_pools(check, engine, POOLS, screen=False)
    for pool, one in zip(POOLS, found, strict=True):
        expected = in_memory(check, samples, pool, screen=False)
        for name in COLUMNS:
            np.testing.assert_allclose(getattr(one, name), getattr(expected, name), atol=1e-13)
        # Multipliers are 32 bits wide: weights that are counted in another unit move the last.
        slack = {"rtol": 1e-5} if weighted else {"rtol": 1e-12}
        np.testing.assert_allclose(one.upper, expected.upper, **slack)
        assert (one.n_before, one.n_after) == pytest.approx((expected.n_before, expected.n_after))
        assert one.n_draws == expected.n_draws


def test_draws_are_made_only_for_pools_with_a_large_change():
    rng, check, samples = case(3, shift=0.9)
    engine = Engine(check, list(pieces_of(check, samples)), rng, weighted=False)
    found = compare_pools(check, engine, POOLS)
    expected = [in_memory(check, samples, pool, screen=True) for pool in POOLS]
    assert [one.method for one in found] == [one.method for one in expected]
    assert engine.drawn_for == [p for p, one in zip(POOLS, found, strict=True) if one.method]
    assert 1 in engine.drawn_for


def test_a_sample_without_rows_gives_no_comparison():
    rng, check, samples = case(1)
    engine = Engine(check, list(pieces_of(check, samples[:-1])), rng, weighted=False)
    assert compare_pools(check, engine, POOLS) is None
