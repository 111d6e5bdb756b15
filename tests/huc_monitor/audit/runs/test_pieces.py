"""Summaries of runs against the scan of all rows in memory: equal to the last bit."""

from __future__ import annotations

import functools
import operator
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from support.random_cases import random_rows, random_tree, random_utilities

import huc_monitor as hm
from huc_monitor.audit.decomposition import sort_rows
from huc_monitor.audit.runs.packing import Packing
from huc_monitor.audit.runs.pieces import PieceAudit, RunSummary, ScoredRows, merge_runs
from huc_monitor.audit.runs.summaries import ScanSummary, merge_summaries
from huc_monitor.audit.scan import Groups
from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups import Memberships

# Labels are drawn at random, and some windows have hardly any right.
pytestmark = pytest.mark.filterwarnings("ignore:accuracy is:huc_monitor.errors.HUCWarning")
SAME = {"rtol": 0, "atol": 1e-14}


def case(seed, *, larger=False):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    utilities = random_utilities(rng, tree)
    p, labels, frame = random_rows(rng, tree)
    if larger:
        n = int(rng.integers(100, 400))
        rows = rng.integers(0, len(p), n)
        p, labels = p[rows], labels[rng.integers(0, len(labels), n)]
        frame = frame.iloc[rows].reset_index(drop=True)
    if seed % 5 == 0:
        p = p.copy()
        p[0] = np.eye(len(p[0]))[0]
    groups = hm.Subgroups.from_reference(frame, {"g": "each"}, weights={"tilt": "w"})
    weights = rng.integers(0 if larger else 1, 4, len(p)) * 1.0 if seed % 2 else None
    return (
        rng,
        {"tree": tree, "utilities": utilities, "subgroups": groups},
        (p, labels, frame, weights),
    )


def pieces_of(audit, rows, rng):
    p, labels, frame, weights = rows
    kept = np.arange(len(p)) if weights is None else np.flatnonzero(weights)
    ids = np.zeros(len(p), dtype=int)
    ids[kept] = np.arange(len(kept))
    cuts = sorted({0, len(p), *rng.integers(1, len(p) + 1, 3).tolist()})
    for lo, hi in pairwise(cuts):
        part = slice(lo, hi)
        features = frame.iloc[part].reset_index(drop=True)
        yield audit.check(
            p[part], labels[part], features, None if weights is None else weights[part], ids[part]
        )


def in_pieces(audit, rows, rng, n_runs):
    """Audit pieces as an engine would, with random cuts and in random order."""
    pieces = [piece for piece in pieces_of(audit, rows, rng) if piece.labels.size]
    facts = functools.reduce(operator.add, map(audit.facts, pieces), audit.no_facts)
    scored = [list(audit.rows(piece, facts)) for piece in pieces]
    merged, within = [], []
    for u in range(len(audit.utilities)):
        packing = Packing.of(audit, u, weighted=rows[3] is not None)
        records = np.concatenate([packing.pack(found[u]) for found in scored])
        cuts = np.unique(rng.choice(records["score"], n_runs - 1))
        place = np.searchsorted(cuts, records["score"])
        runs = [
            audit.summarise(u, packing.unpack(rng.permutation(records[place == k])), facts)
            for k in np.unique(place)
        ]
        runs = [RunSummary.from_bytes(run.to_bytes()) for run in rng.permutation(runs)]
        merged.append(merge_runs(runs))
        shown = merged[-1].scan.shown
        within.append(sum(audit.within(u, found[u], facts, shown) for found in scored))
    return audit.merged_result(facts, merged, within)


def assert_same(found, expected, tolerance):
    pd.testing.assert_frame_equal(
        found.to_frame(all_columns=True), expected.to_frame(all_columns=True), **tolerance
    )
    pd.testing.assert_frame_equal(found.uc_frame(), expected.uc_frame(), rtol=0, atol=0)
    np.testing.assert_array_equal(found.candidates.moment, expected.candidates.moment)
    np.testing.assert_array_equal(found.candidates.interval_low, expected.candidates.interval_low)
    np.testing.assert_array_equal(found.candidates.interval_high, expected.candidates.interval_high)
    for name in ("n", "interiorized", "method", "confidence_level", "n_draws"):
        assert getattr(found, name) == getattr(expected, name)


@pytest.mark.parametrize("bounds", [None, "theorem", "sharp", "bootstrap"])
@pytest.mark.parametrize("seed", range(25))
def test_any_cut_of_any_rows_gives_the_audit_in_memory(seed, bounds):
    rng, what, rows = case(seed, larger=seed % 3 == 0)
    options = {**what, "bounds": bounds, "confidence_level": 0.9, "n_draws": 40, "rng": seed}
    found = in_pieces(PieceAudit.of(**options), rows, rng, int(rng.integers(2, 40)))
    p, labels, frame, weights = rows
    expected = hm.audit(p, labels, features=frame, weights=weights, **options)
    assert_same(found, expected, SAME)


def test_bootstrap_radii_of_two_cuts_agree():
    rng, what, rows = case(3, larger=True)
    options = {**what, "bounds": "bootstrap", "confidence_level": 0.9, "n_draws": 64, "rng": 1}
    audit = PieceAudit.of(**options)
    one, other = (in_pieces(audit, rows, rng, n_runs) for n_runs in (2, 40))
    np.testing.assert_allclose(one.radii, other.radii, rtol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_merging_is_associative(seed):
    rng, what, (p, labels, frame, _) = case(seed, larger=True)
    groups = Groups.of(what["subgroups"].weights(frame, len(p)), None)
    (rows,) = hm.decompose(p, labels, tree=what["tree"], utilities=what["utilities"][:1])
    ordered = sort_rows(rows, groups.scale)
    ends = np.flatnonzero(np.diff(ordered.scores)) + 1
    if len(ends) < 2:
        return
    first, second = np.sort(rng.choice(ends, 2, replace=False))

    def run(lo, hi):
        # Rows outside keep their places, since subgroup weights are read through `order`.
        part = {
            name: getattr(ordered, name)[lo:hi] for name in ("order", "scores", "values", "labels")
        }
        return ScanSummary.of(
            type(ordered)(
                ordered.utility,
                ordered.relevant,
                part["order"],
                part["scores"],
                part["values"],
                part["labels"],
                ordered.paths,
                ordered.scale,
            ),
            groups,
        )

    a, b, c = run(0, first), run(first, second), run(second, len(p))
    left, right = a.merge(b).merge(c), a.merge(b.merge(c))
    whole = run(0, len(p))
    for found in (left, right, merge_summaries([c, a, b])):
        np.testing.assert_array_equal(found.sums, whole.sums)
        np.testing.assert_array_equal(found.intervals, whole.intervals)
        np.testing.assert_array_equal(found.squares, whole.squares)
        np.testing.assert_array_equal(found.size, whole.size)


def test_of_equal_intervals_the_one_that_ends_first_is_kept_across_runs():
    # Contributions +1 at three scores, apart by -1: four intervals attain the maximum.
    tree = hm.LabelTree.flat(["a", "b"])
    utility = hm.Payoff("pay", {"a": 1.0, "b": -1.0})
    audit = PieceAudit.of(
        tree=tree, utilities=[utility], subgroups=None, bounds=None, confidence_level=0.95,
        n_draws=1, rng=0,
    )  # fmt: skip
    p = np.array([[k, 16 - k] for k in (3, 5, 7, 9, 11)]) / 16
    scores = p @ [1.0, -1.0]
    values = np.array([[1], [-1], [1], [-1], [1]], dtype=np.int64)

    def rows(chosen):
        labels = np.zeros(len(chosen), dtype=np.int64)
        ones = Memberships.of([np.ones(len(chosen), dtype=np.uint8)])
        return ScoredRows(scores[chosen], labels, values[chosen], ones, np.empty(0), labels[:0])

    facts = audit.facts(audit.check(p, [0] * 5))
    for cut in range(1, 5):
        runs = [audit.summarise(0, rows(np.arange(5)[part]), facts).scan
                for part in (slice(cut), slice(cut, None))]  # fmt: skip
        assert merge_summaries(runs).intervals[0, 0].tolist() == [scores[0], scores[0]]


def test_records_have_the_size_that_is_written_down():
    _, what, _ = case(2)
    tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    common = {"confidence_level": 0.95, "n_draws": 10, "rng": 0}
    utilities = [hm.LevelCorrectness(level=2)]
    plain = PieceAudit.of(tree=tree, utilities=utilities, subgroups=None, bounds="sharp", **common)
    # A score, a label of one byte, two contributions, one byte for up to eight indicators.
    assert Packing.of(plain, 0, weighted=False).bytes_per_row == 8 + 1 + 2 * 8 + 1
    full = PieceAudit.of(
        tree=tree, utilities=utilities, subgroups=what["subgroups"], bounds="bootstrap", **common
    )
    # Besides: one real weight, the row's weight, its id.
    assert Packing.of(full, 0, weighted=True).bytes_per_row == 26 + 8 + 8 + 8


def test_a_tree_without_branches_is_refused():
    with pytest.raises(InvalidInputError, match="a single class leaves nothing to audit"):
        PieceAudit.of(
            tree=hm.LabelTree.flat(["a"]), utilities=[hm.TopK(1)], subgroups=None, bounds=None,
            confidence_level=0.9, n_draws=1, rng=0,
        )  # fmt: skip
