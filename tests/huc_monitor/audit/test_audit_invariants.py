"""What must not change the answer: row order, threads, types, repetition; and what must hold."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import huc_monitor as hm

TREE = hm.LabelTree.from_nested(
    {"a": {"a1": ["x0", "x1", "x2"], "a2": ["x3", "x4"]}, "b": ["x5", "x6"], "x7": None}
)
UTILITIES = [
    hm.LevelCorrectness(level=1),
    hm.LevelCorrectness(level=2),
    hm.GreedyPathCorrectness(level=3),
    hm.Payoff("pay", dict(zip(TREE.leaves, np.linspace(-1, 1, 8), strict=True))),
    hm.BinaryAction("act", active=["a"], favours=["a2"], threshold=0.4),
    hm.SelectiveReport(0.4, 0.6),
    hm.TopK(2),
]


def window(seed, n=300, distinct=40):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(8), distinct)[rng.integers(0, distinct, n)]
    labels = rng.integers(0, 8, n)
    frame = pd.DataFrame({"g": rng.choice(["u", "v", "w"], n), "t": rng.uniform(-1, 1, n)})
    groups = hm.Subgroups.from_reference(frame, {"g": "each"}, weights={"tilt": "t"})
    return p, labels, frame, groups


def run(p, labels, frame, groups, **settings):
    return hm.audit(
        p,
        labels,
        tree=TREE,
        utilities=UTILITIES,
        subgroups=groups,
        features=frame,
        bounds="theorem",
        **settings,
    )


def differences(one, other):
    """Largest difference over every reported number."""
    pairs = [
        (one.to_frame(all_columns=True), other.to_frame(all_columns=True)),
        (one.uc_frame(), other.uc_frame()),
    ]
    largest = 0.0
    for left, right in pairs:
        a = left.select_dtypes("number").to_numpy(dtype=float)
        b = right.select_dtypes("number").to_numpy(dtype=float)
        assert np.array_equal(np.isnan(a), np.isnan(b))
        largest = max(largest, np.nanmax(np.abs(a - b)))
    return largest


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_permuting_rows_changes_no_reported_number(seed):
    p, labels, frame, groups = window(seed)
    order = np.random.default_rng(seed + 1).permutation(len(p))
    shuffled = run(p[order], labels[order], frame.iloc[order], groups)
    assert differences(run(p, labels, frame, groups), shuffled) <= 1e-15


def test_a_constant_score_with_sorted_labels_gives_the_same_answer_as_shuffled_rows():
    rng = np.random.default_rng(3)
    p = np.tile(rng.dirichlet(np.ones(8)), (100_000, 1))
    labels = np.sort(rng.integers(0, 8, len(p)))
    frame = pd.DataFrame({"g": rng.choice(["u", "v"], len(p)), "t": rng.uniform(-1, 1, len(p))})
    groups = hm.Subgroups.from_reference(frame, {"g": "each"}, weights={"tilt": "t"})
    order = rng.permutation(len(p))
    shuffled = run(p[order], labels[order], frame.iloc[order], groups)
    ordered = run(p, labels, frame, groups)
    assert differences(ordered, shuffled) <= 1e-15
    # One score, so every interval holds all rows or none.
    inside = (
        ordered.to_frame(all_columns=True).query("subgroup == 'all' and moment != 0").n_in_interval
    )
    assert set(inside) == {100_000}


@pytest.mark.parametrize("n", [1_000, 120_000])
def test_the_number_of_threads_changes_nothing(n, monkeypatch):
    p, labels, frame, groups = window(5, n=n, distinct=5_000)
    monkeypatch.setenv("HUC_NUM_THREADS", "1")
    alone = run(p, labels, frame, groups)
    monkeypatch.setenv("HUC_NUM_THREADS", "3")
    assert differences(alone, run(p, labels, frame, groups)) == 0


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_a_weight_equals_repeating_the_row(seed):
    p, labels, frame, groups = window(seed, n=60)
    times = np.random.default_rng(seed).integers(0, 4, len(p))
    times[0] = 1
    rows = np.repeat(np.arange(len(p)), times)
    repeated = run(p[rows], labels[rows], frame.iloc[rows], groups)
    weighted = run(p, labels, frame, groups, weights=times)
    assert weighted.n == repeated.n
    assert differences(weighted, repeated) <= 1e-14


@pytest.mark.seconds
@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_branches_add_up_to_the_residual_on_the_uc_interval(seed):
    result = run(*window(seed))
    frame = result.to_frame(all_columns=True)
    for row in result.uc_frame().itertuples():
        mine = frame[(frame.utility == row.utility) & (frame.subgroup == row.subgroup)]
        assert mine.on_uc_interval.sum() == pytest.approx(row.moment, abs=1e-15)
        relevant = len(mine)
        assert abs(row.moment) <= relevant * mine.moment.abs().max() + 1e-15


@pytest.mark.seconds
def test_every_row_decomposes_into_its_path():
    p, labels, _, _ = window(11)
    for rows in hm.decompose(p, labels, tree=TREE, utilities=UTILITIES):
        frame = rows.to_frame()
        values = rows.utility.values(p, tree=TREE)
        realised = values[np.arange(len(p)), labels]
        score = (p * values).sum(axis=1)
        assert np.abs(frame.score - score).max() < 1e-12
        assert np.abs(frame.residual - (realised - score)).max() < 1e-12
        bound = rows.utility.spreads(TREE)[rows.relevant]
        assert (frame.iloc[:, 2:].abs().max().to_numpy() <= bound + 1e-12).all()


def test_frames_in_any_column_order_arrays_names_and_codes_agree():
    p, labels, frame, groups = window(7)
    base = run(p, labels, frame, groups)
    names = np.array(TREE.leaves)[labels]
    columns = pd.DataFrame(p, columns=list(TREE.leaves)).iloc[:, ::-1]
    assert differences(base, run(columns, names, frame, groups)) == 0
    assert differences(base, run(np.asfortranarray(p), pd.Series(names), frame, groups)) == 0


def test_float32_input_gives_the_answer_of_its_own_values():
    p, labels, frame, groups = window(8)
    single = p.astype(np.float32)
    base = run(single.astype(np.float64), labels, frame, groups)
    assert differences(base, run(single, labels, frame, groups)) == 0


def test_the_input_is_left_alone():
    p, labels, frame, groups = window(9)
    p[0] = [1, 0, 0, 0, 0, 0, 0, 0]
    copies = p.copy(), labels.copy(), frame.copy()
    result = run(p, labels, frame, groups)
    assert result.interiorized
    assert np.array_equal(p, copies[0])
    assert np.array_equal(labels, copies[1])
    pd.testing.assert_frame_equal(frame, copies[2])


def test_zero_probabilities_are_mixed_and_positive_ones_are_not():
    p, labels, frame, groups = window(10)
    assert not run(p, labels, frame, groups).interiorized
    p[3] = [0, 0, 0, 0, 0.5, 0.5, 0, 0]
    mixed = p.copy()
    mixed[3] = (1 - 1e-10) * p[3] + 1e-10 / 8
    by_hand = run(mixed, labels, frame, groups)
    assert differences(run(p, labels, frame, groups), by_hand) == 0


def test_a_row_with_a_zero_changes_no_other_row():
    p, labels, _, _ = window(10)
    touched = p.copy()
    touched[3] = [0, 0, 0, 0, 0.5, 0.5, 0, 0]
    others = np.arange(len(p)) != 3
    for before, after in zip(
        hm.decompose(p, labels, tree=TREE, utilities=UTILITIES),
        hm.decompose(touched, labels, tree=TREE, utilities=UTILITIES),
        strict=True,
    ):
        assert np.array_equal(before.scores[others], after.scores[others])
        assert np.array_equal(before.contributions[others], after.contributions[others])


def test_a_window_of_one_class_and_a_window_without_a_leaf_simply_work():
    p, labels, frame, groups = window(12)
    one = run(p, np.full(len(p), 3), frame, groups)
    assert np.isfinite(one.to_frame(all_columns=True).moment).all()
    kept = labels != 6
    assert run(p[kept], labels[kept], frame[kept], groups).n == kept.sum()


def test_one_row_is_a_window():
    result = hm.audit(
        [[0.5, 0.5]], ["a"], tree=hm.LabelTree.flat(["a", "b"]), utilities=[hm.TopK(1)]
    )
    assert result.huc == pytest.approx(0.5)
    assert result.n == 1


def test_an_empty_subgroup_has_zero_moments():
    p, labels, frame, _ = window(13)
    groups = hm.Subgroups.from_reference(
        frame, predicates={"nobody": {"column": "g", "op": "==", "value": "z"}}
    )
    rows = run(p, labels, frame, groups).to_frame(all_columns=True).query("subgroup == 'nobody'")
    assert (rows.moment == 0).all()
    assert rows.interval_low.isna().all()
    assert (rows.moment_in_subgroup == 0).all()


def test_unary_nodes_change_nothing_but_the_levels():
    plain = hm.LabelTree.from_nested({"l": ["a", "b"], "r": ["c", "d"]})
    chain = hm.LabelTree.from_nested({"only": {"l": {"l2": ["a", "b"]}, "r": ["c", "d"]}})
    rng = np.random.default_rng(0)
    p, labels = rng.dirichlet(np.ones(4), 50), rng.integers(0, 4, 50)
    utility = hm.Payoff("pay", {"a": -1, "c": 0.5})
    one = hm.audit(p, labels, tree=plain, utilities=[utility], bounds="theorem")
    other = hm.audit(p, labels, tree=chain, utilities=[utility], bounds="theorem")
    assert (
        one.to_frame(all_columns=True).moment.tolist()
        == other.to_frame(all_columns=True).moment.tolist()
    )
    assert other.to_frame(all_columns=True).node.tolist() == ["only", "l2", "r"]
    assert hm.LevelCorrectness(level=1).relevant_branches(chain).size == 0


def test_twenty_thousand_leaves_fit():
    tree = hm.LabelTree.from_paths([f"g{k // 100}/y{k}" for k in range(20_000)])
    rng = np.random.default_rng(0)
    p = rng.standard_exponential((40, 20_000)).astype(np.float32)
    p /= p.sum(axis=1, keepdims=True, dtype=np.float64)
    result = hm.audit(
        p,
        rng.integers(0, 20_000, 40),
        tree=tree,
        utilities=[hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2)],
        bounds="theorem",
    )
    assert result.candidates.n == 1 + 201


def test_results_say_it_in_a_line_a_frame_and_json():
    result = run(*window(14))
    assert repr(result).startswith("AuditResult(n=300, huc=")
    assert "\n" not in repr(result)
    assert repr(result.worst).startswith("Candidate(")
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert data["schema_version"] == 1
    assert data["huc"] == result.huc
    assert len(data["candidates"]) == result.candidates.n
    frame = result.violations(result.huc / 2)
    assert frame.moment.abs().iloc[0] == result.huc
    assert frame.moment.abs().is_monotonic_decreasing
    assert (frame.moment.abs() > result.huc / 2).all()
    assert result.violations(1.0).empty


def test_money_comes_back_in_its_own_units():
    tree = hm.LabelTree.flat(["a", "b"])
    pay = hm.Payoff("pay", {"a": 200, "b": -100}, units="EUR", scale=200)
    result = hm.audit([[0.5, 0.5]] * 4, ["a"] * 4, tree=tree, utilities=[pay], bounds="theorem")
    row = result.to_frame(all_columns=True).iloc[0]
    assert row.moment == pytest.approx(1 - 0.25)
    assert row.moment_in_units == pytest.approx(150)
    assert row.units == "EUR"
