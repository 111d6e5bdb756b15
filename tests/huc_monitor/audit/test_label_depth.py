"""Labels that stop above the leaves: what is exact, what is estimated, and what is said."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.audit.label_depth import count_labels, coverage_of
from huc_monitor.audit.runs.pieces import PieceAudit, merge_runs
from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups import Memberships
from huc_monitor.tree.labels import LeafCodes

TREE = hm.LabelTree.from_nested(
    {"a": {"a1": ["p", "q", "r"], "a2": ["s", "t"]}, "b": ["u", "v"], "c": None}
)
PAY = hm.Payoff("pay", {"p": 1, "q": -0.5, "s": 0.4, "u": -1, "c": 0.2})
UTILITIES = [hm.LevelCorrectness(level=2), hm.LevelCorrectness(level=3), PAY]


def sample(n=600, seed=3):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(TREE.n_leaves), n)
    leaves = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1)
    return p, np.minimum(leaves, TREE.n_leaves - 1), rng


def stopped_at(names, leaves, chosen):
    """Cut the labels of chosen rows at the nearest of some nodes above them."""
    labels = np.array(TREE.leaves, dtype=object)[leaves]
    for i in np.flatnonzero(chosen):
        above = [node for node in TREE.ancestors(labels[i]) if node in names]
        labels[i] = above[-1] if above else labels[i]
    return labels


def test_branches_above_all_labels_equal_the_audit_with_full_labels_bit_for_bit():
    p, leaves, rng = sample()
    labels = stopped_at({"a1", "a2", "b"}, leaves, rng.random(600) < 0.6)
    full = hm.audit(p, leaves, tree=TREE, utilities=UTILITIES).to_frame(all_columns=True)
    part = hm.audit(p, labels, tree=TREE, utilities=UTILITIES).to_frame(all_columns=True)
    above = full["node"].isin(["root", "a"])
    kept = [name for name in full if name not in {"radius", "lower", "upper", "detectable"}]
    kept = [name for name in kept if not name.startswith("on_")]
    pd.testing.assert_frame_equal(full.loc[above, kept], part.loc[above, kept], check_exact=True)
    assert (part.loc[above, "label_coverage"] == 1).all()
    assert (part.loc[~above, "label_coverage"] < 1).all()


def test_a_branch_below_counts_the_rows_it_sees_divided_by_its_coverage():
    p = np.tile([0.25, 0.25, 0.5], (8, 1))
    tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    pay = hm.Payoff("pay", {"lion": 1})
    labels = ["lion", "lion", "cat", "cat", "dog", "dog", "dog", "dog"]
    table = (
        hm.audit(p, labels, tree=tree, utilities=[pay]).to_frame(all_columns=True).set_index("node")
    )
    # Both cats that are seen are lions: each contributes 1 - 1/2, and stands for two.
    assert table.loc["cat", "moment"] == pytest.approx(2 * 0.5 / 8 / 0.5)
    assert table.loc["cat", "label_coverage"] == 0.5
    # Four cats at 1/2 - 1/4, four dogs at 0 - 1/4.
    assert table.loc["root", "moment"] == 0


def test_coverage_multiplies_along_the_path_and_is_each_subgroups_own():
    labels = ["a", "a", "a1", "p", "q", "s", "c", "root"]
    codes = TREE.encode(labels, any_depth=True)
    weights = [np.ones(8), np.array([1, 0, 1, 1, 0, 0, 1, 0.0])]
    found = coverage_of(TREE, count_labels(TREE, codes, weights, np.empty(0)))
    branches = ["root", "a", "a1", "a2", "b"]
    whole = dict(zip(branches, found[0], strict=True))
    assert whole == pytest.approx(
        {"root": 7 / 8, "a": 7 / 8 * 4 / 6, "a1": 7 / 12 * 2 / 3, "a2": 7 / 12, "b": 7 / 8}
    )
    some = dict(zip(branches, found[1], strict=True))
    assert some == pytest.approx({"root": 1, "a": 2 / 3, "a1": 1 / 3, "a2": 2 / 3, "b": 1})


@given(st.integers(0, 2**32 - 1))
def test_moments_agree_with_a_sum_over_rows(seed):
    p, leaves, rng = sample(n=60, seed=seed)
    codes = np.where(rng.random(60) < 0.3, TREE.n_leaves + rng.integers(0, 5, 60), leaves)
    result = hm.audit(p, LeafCodes(codes), tree=TREE, utilities=[PAY], bounds=None)
    (rows,) = hm.decompose(p, LeafCodes(codes), tree=TREE, utilities=[PAY])
    frame = rows.to_frame()
    for row in result.to_frame(all_columns=True).itertuples():
        if np.isnan(row.interval_low):
            continue
        inside = frame["score"].between(row.interval_low, row.interval_high)
        seen = frame.loc[inside, row.node].sum() / 60 / row.label_coverage
        assert row.moment == pytest.approx(seen, abs=1e-12)


def test_a_branch_that_sees_no_row_has_no_moment_and_the_widest_bound():
    p, leaves, _ = sample()
    labels = stopped_at({"b"}, leaves, np.ones(600, dtype=bool))
    result = hm.audit(p, labels, tree=TREE, utilities=[PAY])
    row = result.to_frame(all_columns=True).set_index("node").loc["b"]
    assert (row["moment"], row["label_coverage"], row["lower"]) == (0, 0, 0)
    assert row["upper"] == PAY.spreads(TREE)[TREE.branch_index("b")]
    assert np.isfinite(result.huc_upper)


def test_a_branch_with_few_deep_labels_says_so_and_does_not_alarm():
    p, leaves, _ = sample(n=2_000)
    # Every deep label under "b" contradicts the predictions, but there are hardly any.
    deep = np.flatnonzero(leaves == TREE.leaf_index("u"))[:4]
    labels = stopped_at({"b"}, leaves, ~np.isin(np.arange(2_000), deep))
    result = hm.audit(p, labels, tree=TREE, utilities=[PAY])
    row = result.to_frame(all_columns=True).set_index("node").loc["b"]
    assert abs(row["moment"]) > 0.05
    assert row["lower"] == 0
    assert any("Few labels go below 'b' (4 of" in note for note in result.notes)


def test_the_result_says_how_many_labels_stop_and_reads_back():
    p, leaves, rng = sample()
    labels = stopped_at({"a"}, leaves, rng.random(600) < 0.5)
    result = hm.audit(p, labels, tree=TREE, utilities=UTILITIES)
    assert "of the labels stop above the leaves" in result.notes[0]
    assert hm.AuditResult.from_dict(result.to_dict()).to_dict() == result.to_dict()
    plain = hm.audit(p, leaves, tree=TREE, utilities=UTILITIES).to_dict()
    assert "label_coverage" not in plain["candidates"][0]
    read = hm.AuditResult.from_dict(plain)
    assert (read.candidates.label_coverage == 1).all()


@pytest.mark.parametrize("method", ["sharp", "theorem"])
def test_bounds_for_any_distribution_are_refused(method):
    p, leaves, _ = sample(n=20)
    labels = stopped_at({"a"}, leaves, np.ones(20, dtype=bool))
    with pytest.raises(InvalidInputError, match=f"`bounds` must be 'bootstrap' .* got '{method}'"):
        hm.audit(p, labels, tree=TREE, utilities=[PAY], bounds=method)


def test_rows_in_pieces_give_the_same_result():
    p, leaves, rng = sample()
    codes = TREE.encode(stopped_at({"a", "a1", "b"}, leaves, rng.random(600) < 0.5), any_depth=True)
    whole = hm.audit(p, LeafCodes(codes), tree=TREE, utilities=UTILITIES, n_draws=100)
    check = PieceAudit.of(tree=TREE, utilities=UTILITIES, n_draws=100)
    pieces = [
        check.check(p[part], LeafCodes(codes[part]), ids=np.arange(600)[part])
        for part in (slice(0, 200), slice(200, 600))
    ]
    facts = check.facts(pieces[0]) + check.facts(pieces[1])
    merged, within = [], []
    for u in range(len(UTILITIES)):
        rows = [list(check.rows(piece, facts))[u] for piece in pieces]
        joined = type(rows[0])(
            *(
                np.concatenate([getattr(r, name) for r in rows])
                for name in ("scores", "labels", "values")
            ),
            Memberships.joined([r.weights for r in rows]),
            rows[0].repeats,
            np.concatenate([r.ids for r in rows]),
        )
        run = merge_runs([check.summarise(u, joined, facts)])
        merged.append(run)
        within.append(check.within(u, joined, facts, run.scan.shown))
    found = check.merged_result(facts, merged, within)
    assert found.to_dict() == whole.to_dict()


def test_samples_whose_labels_stop_at_other_depths_do_not_differ_for_that():
    p, leaves, rng = sample(n=8_000)
    # Overconfident below "b" in both halves alike; the second is labelled less deeply.
    leaves = np.where((leaves == TREE.leaf_index("u")) & (rng.random(8_000) < 0.6), 6, leaves)
    half = np.arange(8_000) < 4_000
    labels = stopped_at({"b"}, leaves, ~half & (rng.random(8_000) < 0.7))
    sides = (p[half], labels[half]), (p[~half], labels[~half])
    found = hm.compare(*sides, tree=TREE, utilities=[PAY])
    frame = found.to_frame(all_columns=True).set_index("node")
    assert frame.loc["b", "lower"] < 0 < frame.loc["b", "upper"]
    assert frame.loc["b", "before"] == pytest.approx(frame.loc["b", "after"], rel=0.5)
    assert abs(frame.loc["b", "before"]) > 0.02


def test_two_predictors_on_partial_labels_are_compared_as_their_audits():
    p, leaves, rng = sample(n=1_000)
    labels = stopped_at({"b", "a1"}, leaves, rng.random(1_000) < 0.5)
    q = np.full_like(p, 1 / TREE.n_leaves)
    found = hm.compare((p, labels), (q, labels), tree=TREE, utilities=[PAY], paired=True)
    audits = [hm.audit(x, labels, tree=TREE, utilities=[PAY], bounds=None) for x in (p, q)]
    frame = found.to_frame(all_columns=True)
    np.testing.assert_allclose(frame["before"], np.abs(audits[0].candidates.moment), atol=1e-12)
    np.testing.assert_allclose(frame["after"], np.abs(audits[1].candidates.moment), atol=1e-12)


def test_an_exact_test_of_calibration_needs_leaves():
    from huc_monitor.audit.full_calibration import calibration_p_value

    p, _, _ = sample(n=10)
    with pytest.raises(InvalidInputError, match=r"reach a leaf here; got the inner node 'b'"):
        calibration_p_value(p, ["b"] * 10, tree=TREE, utilities=[PAY], n_draws=9)
