"""Dependent rows and chosen labels, in pieces: the numbers of rows in memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.audit.clusters import check_clusters
from huc_monitor.audit.compare import make_sample
from huc_monitor.audit.inputs import check_predictions
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.two_samples import compare_samples
from huc_monitor.detection.history import rounded
from huc_monitor.sources.large import Rows, audit_pieces, compare_pieces

TREE = hm.LabelTree.from_nested({"l": ["a", "b", "c"], "r": ["d", "e"]})
PAYS = [
    hm.Payoff("pay", {"a": 1, "b": -1, "c": 0.5, "d": 0.2, "e": -0.3}),
    hm.LevelCorrectness(level=1),
]
WHAT = {"tree": TREE, "utilities": PAYS}


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(5, 0.7), n)
    y = (p.cumsum(1) < rng.random(n)[:, None]).sum(1).clip(0, 4)
    more = {
        "clusters": rng.integers(0, n // 6, n),
        "label_probability": rng.choice([0.125, 0.25, 0.5, 1.0], n),
        "weights": rng.integers(1, 4, n),
    }
    return p, y, more


def cut(p, y, given, size):
    for lo in range(0, len(y), size):
        part = slice(lo, lo + size)
        yield Rows(p[part], y[part], **{name: value[part] for name, value in given.items()})


KINDS = [
    ("clusters",),
    ("label_probability",),
    ("clusters", "weights"),
    ("clusters", "label_probability"),
    ("clusters", "label_probability", "weights"),
]


@pytest.mark.parametrize("names", KINDS, ids="+".join)
@pytest.mark.parametrize("bounds", ["bootstrap", "sharp"])
def test_an_audit_in_pieces_is_that_of_all_rows(names, bounds):
    p, y, more = rows(900)
    given = {name: more[name] for name in names}
    options = {**WHAT, "bounds": bounds, "n_draws": 100}
    if bounds == "sharp" and "label_probability" in names:
        with pytest.raises(hm.InvalidInputError, match="`bounds` must be 'bootstrap' or None"):
            audit_pieces(lambda: cut(p, y, given, 250), **options)
        return
    whole = hm.audit(p, y, **given, **options)
    pieces = audit_pieces(lambda: cut(p, y, given, 250), **options)
    pd.testing.assert_frame_equal(
        whole.to_frame(all_columns=True), pieces.to_frame(all_columns=True), rtol=1e-12, atol=1e-12
    )
    assert whole.n == pieces.n
    assert whole.notes == pieces.notes
    for name in ("n_effective", "largest_share", "min_label_probability"):
        mine = getattr(whole.design, name)
        assert getattr(pieces.design, name) == (mine and pytest.approx(mine, rel=1e-12))


@pytest.mark.parametrize("names", [(), ("weights",), ("clusters",)], ids="+".join)
@pytest.mark.parametrize("bounds", ["bootstrap", "sharp"])
def test_labels_chosen_with_one_probability_are_all_labels_in_pieces_too(names, bounds):
    """Their bounds were wider, and closed forms were refused, other than in memory."""
    p, y, more = rows(900)
    given = {name: more[name] for name in names} | {"label_probability": np.full(900, 1 / 3)}
    if "weights" in given:  # rows that do not count may have been chosen otherwise
        given["weights"] = given["weights"] - 1
        given["label_probability"] = np.where(given["weights"], 1 / 3, 0.1)
    options = {**WHAT, "bounds": bounds, "n_draws": 100}
    whole = hm.audit(p, y, **given, **options)
    pieces = audit_pieces(lambda: cut(p, y, given, 250), **options)
    pd.testing.assert_frame_equal(
        whole.to_frame(all_columns=True), pieces.to_frame(all_columns=True), rtol=1e-9, atol=1e-12
    )
    plain = hm.audit(p, y, **{name: given[name] for name in names}, **options)
    for result in (whole, pieces):
        assert (result.n, result.notes) == (plain.n, plain.notes)
        assert result.huc_upper == pytest.approx(plain.huc_upper, rel=1e-9)


@pytest.mark.parametrize("names", KINDS, ids="+".join)
def test_a_comparison_in_pieces_is_that_of_all_rows(names):
    plan = AuditPlan.of(**WHAT, n_draws=100, confidence_level=0.9)
    samples, readers = [], []
    for seed in range(3):
        p, y, more = rows(400, seed)
        given = {name: more[name] for name in names}
        readers.append(lambda p=p, y=y, given=given: cut(p, y, given, 150))
        samples.append(rounded(make_sample(check_predictions(p, tree=TREE), y, plan, **given)))
    found = compare_pieces(readers, plan=plan, pools=(1, 2))
    reference, newest, before = samples
    for pool, windows in ((0, [newest]), (1, [newest, before])):
        whole = compare_samples(reference, type(newest).join(windows), plan)
        np.testing.assert_allclose(found[pool].difference, whole.difference, atol=1e-12)
        np.testing.assert_allclose(found[pool].upper, whole.upper, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(found[pool].n_in_after, whole.n_in_after)


def test_a_user_in_both_samples_has_one_multiplier():
    p, y, _ = rows(600)
    users = np.arange(600) // 10
    apart = hm.compare((p, y), (p, y), clusters=(users, users + 1000), n_draws=200, **WHAT)
    shared = hm.compare((p, y), (p, y), clusters=(users, users), n_draws=200, **WHAT)
    width = [float(np.mean(found.upper - found.lower)) for found in (apart, shared)]
    assert width[1] < 0.5 * width[0]
    assert check_clusters(users, 600).dtype == np.int64
