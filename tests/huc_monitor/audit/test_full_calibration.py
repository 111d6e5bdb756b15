"""The exact test of full calibration."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.audit.full_calibration import calibration_p_value
from huc_monitor.errors import InvalidInputError

COIN = hm.LabelTree.flat(["no", "yes"])
PAY = hm.Payoff("pay", {"no": 0, "yes": 1})
TREE = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
UTILITIES = [hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2)]


def draw(rng, p):
    return (rng.random(len(p))[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, p.shape[1] - 1)


@pytest.mark.seconds
def test_the_p_value_of_coins_is_the_binomial_one():
    # One score only, so that HUC is |share of yes - 0.3| and the exact p-value is binomial.
    from scipy import stats

    n, yes = 40, 17
    k = np.arange(n + 1)
    as_far = np.abs(k / n - 0.3) >= abs(yes / n - 0.3) - 1e-12
    exact = stats.binom.pmf(k, n, 0.3)[as_far].sum()
    found = calibration_p_value(
        [[0.7, 0.3]] * n,
        ["yes"] * yes + ["no"] * (n - yes),
        tree=COIN,
        utilities=PAY,
        n_draws=4_000,
    )
    assert found == pytest.approx(exact, abs=4 * np.sqrt(exact / 4_000))


def test_the_smallest_p_value_counts_the_observed_window_itself():
    found = calibration_p_value(
        [[0.9, 0.1]] * 60, ["yes"] * 60, tree=COIN, utilities=PAY, n_draws=9
    )
    assert found == 0.1


def test_a_window_without_any_gap_has_p_value_one():
    found = calibration_p_value(
        [[0.5, 0.5]] * 10, ["yes", "no"] * 5, tree=COIN, utilities=PAY, n_draws=9
    )
    assert found == 1.0


def test_the_result_gives_the_same_p_value_as_the_function():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 150)
    labels, frame = draw(rng, p), pd.DataFrame({"g": rng.choice(["x", "y"], 150)})
    groups = hm.Subgroups.from_reference(frame, {"g": "each"})
    weights = rng.integers(1, 3, 150)
    options = {"tree": TREE, "utilities": UTILITIES, "subgroups": groups, "features": frame}
    result = hm.audit(p, labels, weights=weights, bounds="theorem", **options)
    draws = {"n_draws": 49, "rng": 3}
    found = result.p_value_calibrated(p, features=frame, weights=weights, **draws)
    assert found == calibration_p_value(p, labels, weights=weights, **options, **draws)
    assert 0.02 <= found <= 1


def test_the_p_value_does_not_depend_on_the_number_of_threads(monkeypatch):
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(4), 100)
    labels = draw(rng, p)
    found = set()
    for threads in ("1", "3"):
        monkeypatch.setenv("HUC_NUM_THREADS", threads)
        found.add(calibration_p_value(p, labels, tree=TREE, utilities=UTILITIES, n_draws=99))
    assert len(found) == 1


def test_other_rows_than_the_audited_ones_are_refused():
    result = hm.audit([[0.5, 0.5]] * 4, ["yes"] * 4, tree=COIN, utilities=PAY, bounds=None)
    with pytest.raises(InvalidInputError, match="must be the 4 rows of the audited window; got 3"):
        result.p_value_calibrated([[0.5, 0.5]] * 3)


@pytest.mark.parametrize(
    ("design", "told"),
    [
        ({"clusters": np.arange(100) // 4}, r"had clusters: rows that depend .* `huc_lower`"),
        ({"label_probability": np.linspace(0.1, 1, 100)}, r"had `label_probability`.*weights=1 /"),
        ({"labels": ["left"] + ["c"] * 99}, "had labels at inner nodes. Judge by its bounds"),
    ],
)
def test_an_audit_that_plain_draws_do_not_imitate_has_no_p_value(design, told):
    p = np.random.default_rng(5).dirichlet(np.ones(4), 100)
    given = {"labels": ["c"] * 100, **design}
    result = hm.audit(p, given.pop("labels"), tree=TREE, utilities=UTILITIES, **given)
    with pytest.raises(InvalidInputError, match=told):
        result.p_value_calibrated(p)


def test_weights_of_the_audit_cannot_be_left_out_though_they_sum_to_the_rows():
    rng = np.random.default_rng(6)
    p, weights = rng.dirichlet(np.ones(4), 100), np.tile([0.5, 1.5], 50)
    options = {"tree": TREE, "utilities": UTILITIES}
    result = hm.audit(p, draw(rng, p), weights=weights, **options)
    with pytest.raises(InvalidInputError, match="had rows of different weight"):
        result.p_value_calibrated(p)
    plain = hm.audit(p, draw(rng, p), **options)
    with pytest.raises(InvalidInputError, match="had no rows of different weight"):
        plain.p_value_calibrated(p, weights=weights)


def test_rows_of_weight_zero_and_a_factor_on_all_weights_have_the_p_value_of_the_other_rows():
    rng = np.random.default_rng(7)
    p, weights = rng.dirichlet(np.ones(4), 90), np.repeat([0.1, 0.0], [80, 10])
    result = hm.audit(p, draw(rng, p), tree=TREE, utilities=UTILITIES, weights=weights)
    found = result.p_value_calibrated(p, weights=weights, n_draws=19)
    assert 0.05 <= found <= 1
    others = np.full(80, 0.1)
    assert 0.05 <= result.p_value_calibrated(p[:80], weights=others, n_draws=19) <= 1


@pytest.mark.slow
def test_labels_chosen_by_the_prediction_are_rejected_as_often_as_the_level_says():
    rng = np.random.default_rng(3)
    found = []
    for k in range(400):
        p = rng.dirichlet(np.full(4, 0.7), 300)
        chance = 0.1 + 0.9 * p[:, 0]
        kept = rng.random(300) < chance
        p, weights = p[kept], 1 / chance[kept]
        options = {"tree": TREE, "utilities": UTILITIES, "weights": weights}
        found.append(calibration_p_value(p, draw(rng, p), n_draws=39, rng=k, **options))
    for level in (0.05, 0.25, 0.5):
        share = np.mean(np.array(found) <= level + 1e-12)
        assert share == pytest.approx(level, abs=3.5 * np.sqrt(level * (1 - level) / 400))


@pytest.mark.slow
def test_calibrated_windows_are_rejected_as_often_as_the_level_says():
    rng = np.random.default_rng(2)
    found = []
    for k in range(400):
        p = rng.dirichlet(np.full(4, 0.7), 120)
        found.append(
            calibration_p_value(p, draw(rng, p), tree=TREE, utilities=UTILITIES, n_draws=39, rng=k)
        )
    for level in (0.05, 0.1, 0.25, 0.5):
        share = np.mean(np.array(found) <= level + 1e-12)
        assert share == pytest.approx(level, abs=3.5 * np.sqrt(level * (1 - level) / 400))
