from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.audit.scan import Groups, second_moments
from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.recalibration import Update, _rules
from huc_monitor.recalibration._history import update_bound
from huc_monitor.recalibration._pack import CompiledTree, CompiledUtility
from huc_monitor.recalibration._replay import Replayer
from huc_monitor.recalibration._window import BoostWindow

TREE = hm.LabelTree.from_nested(
    {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}, "died": None}
)
UTILITIES = [
    hm.LevelCorrectness(level=1),
    hm.LevelCorrectness(level=3),
    hm.BinaryAction("icu", active=["survived"], favours=["major"], threshold=0.3),
    hm.TopK(2),
]


def sample(n, seed=0, sharpness=3.0):
    """Overconfident predictions, and a group of rows for whom one branch is wrong."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(5), n)
    labels = (rng.random((n, 1)) > np.cumsum(truth, axis=1)).sum(axis=1).clip(max=4)
    features = pd.DataFrame({"age": rng.uniform(20, 90, n)})
    p = truth**sharpness
    p[features["age"] > 65, 0] *= 3
    return p / p.sum(axis=1, keepdims=True), labels, features


P, LABELS, FEATURES = sample(1_500)
GROUPS = hm.Subgroups.from_reference(FEATURES, {"age": [65]})


def fitted(**changes):
    options = {"tree": TREE, "utilities": UTILITIES, "subgroups": GROUPS, "mode": "paper"}
    options |= {"max_updates": 30} | changes
    return hm.HUCBoost(**options).fit(P, LABELS, features=FEATURES)


@pytest.fixture(scope="module")
def boost():
    return fitted()


def huc(p, labels=LABELS, features=FEATURES):
    return hm.audit(
        p,
        labels,
        tree=TREE,
        utilities=UTILITIES,
        subgroups=GROUPS,
        features=features,
        bounds="theorem",
    ).huc


def test_boosting_lowers_huc_on_its_own_rows_and_on_new_ones(boost):
    assert huc(boost.predict_proba(P, features=FEATURES)) < 0.3 * huc(P)
    p, labels, features = sample(4_000, seed=1)
    after = boost.predict_proba(p, features=features)
    assert huc(after, labels, features) < 0.6 * huc(p, labels, features)


def test_the_history_agrees_with_an_audit_of_the_replayed_rows(boost):
    last = boost.history_.iloc[-1]
    assert huc(boost.predict_proba(P, features=FEATURES)) == pytest.approx(last["huc"], abs=1e-9)
    assert list(boost.history_["update"]) == list(range(31))
    assert boost.history_["kept"].all()


def test_the_guard_rails_hold_on_every_kind_of_path(boost):
    for found in (boost, fitted(traversal="largest"), fitted(mode="noise_aware")):
        checks = found.checks_
        assert checks.hold
        assert checks.log_loss_fell
        assert checks.n_updates <= checks.update_bound
        assert checks.locality_error <= 1e-12
        assert found.history_["log_loss"].is_monotonic_decreasing


def test_a_fixed_step_keeps_the_limit_of_the_fixed_step_theorem():
    epsilon = 0.04
    found = fitted(step=epsilon / 2, tolerance=0.75 * epsilon, max_updates=None)
    start = found.history_["log_loss"].iloc[0]
    assert found.checks_.update_bound == int(np.ceil(4 * start / epsilon**2))
    assert found.checks_.hold
    assert found.history_["huc"].iloc[-1] <= 0.75 * epsilon
    assert set(np.abs(found.history_["step"].iloc[1:])) == {epsilon / 2}


def test_a_step_too_long_for_its_tolerance_has_no_limit():
    assert update_bound(1.0, 0.001, 0.05) is None


def test_a_path_ends_when_no_violation_is_left():
    found = fitted(tolerance=0.02, max_updates=None)
    assert found.history_["huc"].iloc[-1] <= 0.02
    assert fitted(tolerance=0.5).updates_ == []


def test_every_window_state_equals_a_fresh_audit_after_each_update():
    """Only changed rows are scored again; the table must be what scoring all of them gives."""
    tree = CompiledTree.of(TREE)
    utilities = [CompiledUtility.of(u, TREE) for u in UTILITIES]
    weights = GROUPS.weights(FEATURES, len(P))
    groups = Groups.of(weights, None)
    window = BoostWindow(P, 0.0, LABELS, groups, tree=tree, utilities=utilities)
    rng = np.random.default_rng(5)
    for _ in range(25):
        u, c = rng.integers(len(UTILITIES)), rng.integers(len(weights))
        node = int(rng.choice(utilities[u].relevant))
        found = window.found(int(u), int(c), node)
        assert abs(found.moment) == pytest.approx(window.sizes[u, c, node], abs=1e-15)
        rows, h = window.directions(found)
        window.apply(rows, h, node, 0.3 * found.moment / window.curvature(rows, h, node))
        now = window.leaf_probabilities()
        fresh = hm.audit(
            now,
            LABELS,
            tree=TREE,
            utilities=UTILITIES,
            subgroups=GROUPS,
            features=FEATURES,
            bounds="theorem",
        )
        assert window.huc == pytest.approx(fresh.huc, abs=1e-12)
        assert window.uc == pytest.approx(fresh.uc, abs=1e-12)


def test_the_order_of_rows_changes_nothing(boost):
    order = np.random.default_rng(2).permutation(len(P))
    again = hm.HUCBoost(**boost.get_params()).fit(
        P[order], LABELS[order], features=FEATURES.iloc[order]
    )
    assert again.updates_ == boost.updates_


def test_a_weight_of_two_is_the_row_twice():
    small = slice(0, 200)
    weights = np.where(np.arange(200) < 100, 2.0, 1.0)
    twice = np.concatenate([np.arange(200), np.arange(100)])
    options = {"tree": TREE, "utilities": UTILITIES, "mode": "paper", "max_updates": 10}
    one = hm.HUCBoost(**options).fit(P[small], LABELS[small], weights=weights)
    two = hm.HUCBoost(**options).fit(P[twice], LABELS[twice])
    for a, b in zip(one.updates_, two.updates_, strict=True):
        assert (a.node, a.utility) == (b.node, b.utility)
        assert a.step == pytest.approx(b.step, rel=1e-9)


def test_a_row_gets_the_same_bits_alone_and_in_a_batch(boost):
    whole = boost.predict_proba(P, features=FEATURES)
    for i in (0, 7, 1_499):
        alone = boost.predict_proba(P[i : i + 1], features=FEATURES.iloc[i : i + 1])
        assert np.array_equal(alone[0], whole[i])
    part = boost.predict_proba(P[100:777], features=FEATURES.iloc[100:777])
    assert np.array_equal(part, whole[100:777])


def test_replay_gives_the_same_bits_with_any_number_of_threads(boost, monkeypatch):
    whole = boost.predict_proba(P, features=FEATURES)
    monkeypatch.setenv("HUC_NUM_THREADS", "1")
    assert np.array_equal(boost.predict_proba(P, features=FEATURES), whole)


@pytest.mark.seconds
def test_a_recalibrator_from_json_gives_the_same_bits_in_a_new_process(boost, tmp_path):
    (tmp_path / "boost.json").write_text(json.dumps(boost.to_dict()))
    np.save(tmp_path / "p.npy", P)
    FEATURES.to_csv(tmp_path / "x.csv", index=False, float_format="%.17g")
    code = (
        "import json, sys, numpy as np, pandas as pd, huc_monitor as hm\n"
        "boost = hm.HUCBoost.from_dict(json.load(open('boost.json')))\n"
        "x = pd.read_csv('x.csv', float_precision='round_trip')\n"
        "np.save('out.npy', boost.predict_proba(np.load('p.npy'), features=x))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=os.environ)
    out = np.load(tmp_path / "out.npy")
    assert np.array_equal(out, boost.predict_proba(P, features=FEATURES))


@pytest.mark.parametrize("initial", ["temperature", "vector", "dirichlet"])
def test_an_initial_scaling_travels_with_the_json(initial):
    found = fitted(initial=initial, max_updates=3)
    again = hm.HUCBoost.from_dict(json.loads(json.dumps(found.to_dict())))
    here = found.predict_proba(P, features=FEATURES)
    assert np.array_equal(again.predict_proba(P, features=FEATURES), here)
    start = found.initial_.predict_proba((1 - 1e-10) * P + 1e-10 / 5)
    losses = -np.log(start[np.arange(len(P)), LABELS])
    assert found.history_["log_loss"].iloc[0] == pytest.approx(losses.mean(), abs=1e-9)


def test_files_with_settings_of_the_paper_s_runs_are_still_read():
    found = fitted(initial="vector", max_updates=3)
    data = json.loads(json.dumps(found.to_dict()))
    data["settings"] |= {"perturbation": 1e-3, "checkpoints": "passes"}
    data["initial"]["perturbation_width"] = 1e-7
    again = hm.HUCBoost.from_dict(data)
    here = found.predict_proba(P, features=FEATURES)
    assert np.array_equal(again.predict_proba(P, features=FEATURES), here)


def test_probabilities_stay_positive_and_sum_to_one_after_ten_thousand_updates():
    rng = np.random.default_rng(3)
    updates = [
        Update(
            subgroup="all",
            utility=str(rng.choice([u.name for u in UTILITIES])),
            interval_low=-2.0,
            interval_high=2.0,
            node=str(rng.choice(TREE.branches)),
            step=float(rng.normal() * 50),
        )
        for _ in range(10_000)
    ]
    replayer = Replayer(
        updates, tree=TREE, utilities=UTILITIES, subgroups=hm.Subgroups.whole(), initial=None
    )
    boost = hm.HUCBoost(tree=TREE, utilities=UTILITIES)
    boost.initial_, boost._ready = None, replayer
    before = P[:50].copy()
    out = boost.predict_proba(P[:50])
    assert np.array_equal(P[:50], before)
    assert (out > 0).all()
    np.testing.assert_allclose(out.sum(axis=1), 1.0, rtol=0, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), min_size=1, max_size=20),
    step=st.floats(-1e4, 1e4),
)
def test_any_prediction_and_any_step_give_a_distribution(rows, step):
    p = np.array(rows) + 1e-12
    p /= p.sum(axis=1, keepdims=True)
    data = fitted_once().to_dict()
    data["updates"] = [u | {"step": step} for u in data["updates"][:5]]
    features = pd.DataFrame({"age": np.linspace(20, 90, len(p))})
    out = hm.HUCBoost.from_dict(data).predict_proba(p, features=features)
    assert (out > 0).all()
    np.testing.assert_allclose(out.sum(axis=1), 1.0, rtol=0, atol=1e-12)


_ONCE = {}


def fitted_once():
    return _ONCE.setdefault("boost", fitted(max_updates=5))


def test_a_dataframe_with_columns_in_any_order_is_the_same_prediction(boost):
    frame = pd.DataFrame(P[:20], columns=TREE.leaves)[list(TREE.leaves)[::-1]]
    one = boost.predict_proba(frame, features=FEATURES.iloc[:20])
    assert np.array_equal(one, boost.predict_proba(P[:20], features=FEATURES.iloc[:20]))


def test_validation_keeps_the_best_prefix_and_the_shortest_of_equals():
    p, labels, features = sample(300, seed=9)
    options = {"tree": TREE, "utilities": UTILITIES, "subgroups": GROUPS, "mode": "paper"}
    for measure in ("huc", "uc", "log_loss"):
        found = hm.HUCBoost(**options, selection=measure, max_updates=40).fit(
            P[:300], LABELS[:300], features=FEATURES[:300], validation=(p, labels, features)
        )
        column = found.history_[f"validation_{measure}"]
        assert len(found.updates_) == int(column.argmin())
        assert found.history_["kept"].sum() == len(found.updates_) + 1
    if len(found.updates_):
        after = found.predict_proba(p, features=features)
        losses = -np.log(after[np.arange(300), labels])
        assert losses.mean() == pytest.approx(column.min(), abs=1e-9)


@pytest.mark.parametrize("initial", [None, "temperature", "dirichlet", "auto"])
@pytest.mark.parametrize("weights", [None, [1, 0, 0, 0, 0]])
def test_one_row_that_counts_is_no_error(initial, weights):
    n = 1 if weights is None else len(weights)
    boost = hm.HUCBoost(tree=TREE, utilities=UTILITIES, initial=initial)
    assert boost.fit(P[:n], LABELS[:n], weights=weights).updates_ == []


@pytest.mark.parametrize("initial", ["temperature", "auto"])
def test_weights_of_any_size_can_be_fitted(initial):
    boost = hm.HUCBoost(tree=TREE, utilities=UTILITIES, initial=initial, max_updates=1)
    starts = [
        boost.fit(P[:500], LABELS[:500], weights=np.full(500, size)).initial_.predict_proba(P)
        for size in (1e15, 1e19, 1e300)
    ]
    np.testing.assert_allclose(starts[1:], [starts[0]] * 2, rtol=0, atol=1e-6)


def chosen(n, seed, *, swapped):
    """Rows of three classes, and the probability with which each label was chosen."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([2, 2, 2], 60 * n)
    truth = p[:, [1, 0, 2]] if swapped else p
    labels = (truth.cumsum(axis=1) < rng.random((60 * n, 1))).sum(axis=1).clip(max=2)
    chance = rng.uniform(0.01, 0.04, 60 * n)
    kept = np.flatnonzero(rng.random(60 * n) < chance)[:n]
    return p[kept], labels[kept], chance[kept]


CATS = {
    "tree": hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None}),
    "utilities": [hm.LevelCorrectness(level=2)],
}


def test_equal_label_probabilities_change_nothing():
    p, labels, _ = chosen(1_000, 0, swapped=False)
    boost = hm.HUCBoost(**CATS, initial="auto", confidence_level=0.95, max_updates=3)
    plain = boost.fit(p, labels).to_dict()
    held = p[:200], labels[:200], None, None, np.full(200, 0.02)
    told = boost.fit(p, labels, label_probability=np.full(1_000, 0.02)).to_dict()
    assert told == plain
    assert plain["updates"] == []
    repeated = boost.fit(p, labels, weights=np.full(1_000, 50.0))  # fifty times the evidence
    assert len(repeated.updates_) == 3
    judged = boost.fit(p, labels, validation=held).to_dict()
    assert judged == boost.fit(p, labels, validation=held[:2]).to_dict()


def test_rows_count_by_the_inverse_of_their_label_probability():
    chance = np.random.default_rng(0).uniform(0.1, 0.9, 300)
    options = {"tree": TREE, "utilities": UTILITIES, "mode": "paper", "max_updates": 10}
    ends = []
    for held in ((None, chance), (1 / chance, None)):
        boost = hm.HUCBoost(**options, selection="last")
        boost.fit(
            P[:300],
            LABELS[:300],
            weights=held[0],
            label_probability=held[1],
            validation=(P[:300], LABELS[:300], None, *held),
        )
        ends.append(boost.history_.drop(columns=["node", "subgroup", "utility"]).to_numpy(float))
    np.testing.assert_allclose(*ends, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("times", [None, np.arange(300) % 3])
@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("parts_of_rows", [True, False])
def test_the_noise_of_a_window_is_that_of_the_audit(times, chosen, parts_of_rows):
    rng = np.random.default_rng(1)
    repeats = None if times is None else times.astype(float)
    members = list(GROUPS.weights(FEATURES.iloc[:300], 300))
    if parts_of_rows:
        members.append(rng.random(300))
    chance = rng.uniform(0.01, 1, 300) if chosen else None
    groups = Groups.of(members, repeats, chance)
    utilities = [CompiledUtility.of(u, TREE) for u in UTILITIES]
    what = {"tree": CompiledTree.of(TREE), "utilities": utilities, "squares": True}
    window = BoostWindow(P[:300], 0.0, LABELS[:300], groups, **what)
    for u, item in enumerate(utilities):
        expected = second_moments(window.sorted_rows(u, np.arange(300)), groups)
        np.testing.assert_allclose(window.second[u][:, item.relevant], expected, atol=1e-9)
    assert chosen == (window.sized.n < 290)


def labelled_window(n, weights, chance):
    """Rows of calibrated predictions, as a boost holds them."""
    p, labels, _ = sample(n, seed=5, sharpness=1.0)
    groups = Groups.of([np.ones(n, dtype=np.uint8)], weights, chance)
    utilities = [CompiledUtility.of(u, TREE) for u in UTILITIES]
    what = {"tree": CompiledTree.of(TREE), "utilities": utilities, "squares": True}
    return BoostWindow(p, 0.0, labels, groups, **what)


def test_the_quantile_of_a_part_of_chosen_labels_is_that_of_all(monkeypatch):
    """A part as large as of plain rows was worth few of them: its quantile was a sixth less."""
    chance = np.where(np.arange(20_000) % 50 == 0, 0.01, 1.0)
    window = labelled_window(20_000, None, chance)
    options = {"tolerance": 1e-3, "confidence_level": 0.5, "shrinkage": "none", "n_draws": 400}
    monkeypatch.setattr(_rules, "_GATE_ROWS", 600)
    part = _rules.evidence_rule(window, **options, seed=0).quantile
    monkeypatch.setattr(_rules, "_GATE_ROWS", 20_000)
    assert part == pytest.approx(_rules.evidence_rule(window, **options, seed=0).quantile, rel=0.05)


@pytest.mark.parametrize("chance", [None, np.where(np.arange(5_000) % 2, 0.2, 0.9)])
def test_few_rows_that_count_among_many_can_be_fitted(chance, monkeypatch):
    """The quantile was drawn from rows of weight zero alone, which is none."""
    monkeypatch.setattr(_rules, "_GATE_ROWS", 100)
    p, labels, _ = sample(5_000)
    weights = np.zeros(5_000)
    weights[:3] = 1.0
    boost = hm.HUCBoost(tree=TREE, utilities=UTILITIES)
    assert boost.fit(p, labels, weights=weights, label_probability=chance).updates_ == []


def test_weights_of_zero_leave_out_rows_of_chosen_labels():
    p, labels, chance = chosen(400, 3, swapped=True)
    weights = np.arange(400) % 4 > 0
    boost = hm.HUCBoost(**CATS, initial="temperature")
    boost.fit(p, labels, weights=weights.astype(float), label_probability=chance)
    assert boost.updates_
    held = p, labels, None, weights.astype(float), chance
    left = tuple(None if part is None else part[weights] for part in held[:3]), chance[weights]
    one, other = (
        hm.HUCBoost(**CATS, initial="vector").fit(p, labels, validation=rows)
        for rows in (held, (*left[0], None, left[1]))
    )
    q = [boost.predict_proba(p) for boost in (one, other)]
    np.testing.assert_allclose(*q, atol=1e-9)


def test_discovery_while_boosting_weighs_labels_by_their_probability():
    """Those that surprise were chosen more often where the colour is red: that is no segment."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet([2, 2, 2], 6000)
    labels = (p.cumsum(axis=1) < rng.uniform(size=(6000, 1))).sum(axis=1)
    frame = pd.DataFrame({"colour": rng.choice(["red", "blue"], 6000)})
    surprised = (p[np.arange(6000), labels] < 0.3) & (frame["colour"] == "red").to_numpy()
    chance = np.where(surprised, 0.9, 0.4)
    kept = np.flatnonzero(rng.random(6000) < chance)
    found = [
        hm.HUCBoost(**CATS, subgroups="discover").fit(
            p[kept], labels[kept], features=frame.iloc[kept], label_probability=known
        )
        for known in (None, chance[kept])
    ]
    assert [bool(boost.discovery_.predicates) for boost in found] == [True, False]


def test_rows_in_another_order_are_refused_when_predicting_and_holding_out():
    rows = [f"row {k}" for k in range(len(P))]
    named = pd.DataFrame(P, columns=list(TREE.leaves), index=rows)
    features = FEATURES.set_axis(named.index)
    boost = hm.HUCBoost(tree=TREE, utilities=UTILITIES)
    with pytest.raises(InvalidInputError, match=r"`validation\[2\]` must be in the order of"):
        boost.fit(P, LABELS, validation=(named, LABELS, features[::-1]))
    boost.fit(P, LABELS)
    with pytest.raises(InvalidInputError, match="`features` must be in the order of"):
        boost.predict_proba(named, features=features[::-1])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"label_probability": np.zeros(len(P))}, "above 0 and at most 1; got 0.0"),
        ({"label_probability": [0.5]}, "`label_probability` must be one number per row"),
        ({"validation": (P, LABELS) * 3}, "may end with features, weights and label_probability"),
    ],
)
def test_wrong_label_probabilities_are_refused(given, told):
    with pytest.raises(InvalidInputError, match=told):
        hm.HUCBoost(tree=TREE, utilities=UTILITIES).fit(P, LABELS, **given)


@pytest.mark.slow
def test_chosen_labels_leave_calibrated_predictions_alone_and_repair_others():
    """Weighted by 1 / pi as if rows were repeated, all twenty fits made 200 updates."""
    boost = hm.HUCBoost(**CATS, initial="auto", confidence_level=0.95)
    changed = scaled = 0
    for seed in range(20):
        p, labels, chance = chosen(1_000, seed, swapped=False)
        boost.fit(p, labels, label_probability=chance)
        changed += bool(boost.updates_)
        scaled += boost.initial_ is not None
    assert changed <= 3
    assert scaled <= 3
    p, labels, _ = chosen(5_000, 100, swapped=True)
    before = hm.audit(p, labels, **CATS, bounds=None).huc
    for initial in ("auto", None):
        for seed in range(20):
            boost = hm.HUCBoost(**CATS, initial=initial)
            found, y, chance = chosen(1_000, seed, swapped=True)
            boost.fit(found, y, label_probability=chance)
            after = hm.audit(boost.predict_proba(p), labels, **CATS, bounds=None).huc
            assert after < before / 2


def test_validation_rows_of_weight_two_count_like_two_rows():
    p, labels, features = sample(300, seed=9)
    weights = np.random.default_rng(1).integers(0, 3, 300)
    again = np.repeat(np.arange(300), weights)
    held = [(p, labels, features, weights), (p[again], labels[again], features.iloc[again])]
    options = {"tree": TREE, "utilities": UTILITIES, "subgroups": GROUPS, "mode": "paper"}
    one, two, alike = (
        hm.HUCBoost(**options, initial="vector", selection="log_loss", max_updates=20).fit(
            P[:300], LABELS[:300], features=FEATURES[:300], validation=rows
        )
        for rows in (*held, (p, labels, features))
    )
    for measure in ("validation_huc", "validation_log_loss"):
        np.testing.assert_allclose(one.history_[measure], two.history_[measure], rtol=1e-9)
        assert not np.allclose(one.history_[measure], alike.history_[measure], rtol=1e-3)
    assert len(one.updates_) == len(two.updates_)


def test_early_stopping_ends_the_path_soon_after_the_best_prefix():
    p, labels, features = sample(300, seed=9)
    options = {"tree": TREE, "utilities": UTILITIES, "subgroups": GROUPS, "mode": "paper"}
    found = hm.HUCBoost(**options, early_stopping=5, max_updates=500).fit(
        P[:300], LABELS[:300], features=FEATURES[:300], validation=(p, labels, features)
    )
    assert len(found.history_) - 1 == len(found.updates_) + 5


def test_the_noise_aware_mode_leaves_calibrated_predictions_alone():
    rng = np.random.default_rng(11)
    made = 0
    for _ in range(10):
        p = rng.dirichlet(np.ones(5), 800)
        labels = (rng.random((800, 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(max=4)
        boost = hm.HUCBoost(tree=TREE, utilities=UTILITIES, confidence_level=0.95)
        made += bool(boost.fit(p, labels).updates_)
    assert made <= 2


def test_the_noise_aware_mode_corrects_what_is_real_with_shorter_steps():
    careful = fitted(mode="noise_aware", confidence_level=0.95, max_updates=None)
    bold = fitted(max_updates=300)
    assert 0 < len(careful.updates_) < len(bold.updates_)
    line = careful.history_.iloc[1]
    assert abs(line["moment"]) - line["radius"] > careful.tolerance
    assert huc(careful.predict_proba(P, features=FEATURES)) < huc(P)
    full = fitted(mode="noise_aware", confidence_level=0.95, shrinkage="none").history_.iloc[1]
    share = line["step"] / full["step"]
    assert share == pytest.approx(1 - (line["radius"] / line["moment"]) ** 2)
    assert bold.history_["radius"].iloc[1] == 0


def test_uc_boost_lowers_uc_and_keeps_the_guard_rails():
    found = hm.UCBoost(tree=TREE, utilities=UTILITIES, subgroups=GROUPS, max_updates=20)
    found.fit(P, LABELS, features=FEATURES)
    assert found.checks_.hold
    assert found.history_["uc"].iloc[-1] < 0.3 * found.history_["uc"].iloc[0]
    assert all(update.node is None for update in found.updates_)
    again = hm.UCBoost.from_dict(json.loads(json.dumps(found.to_dict())))
    here = found.predict_proba(P, features=FEATURES)
    assert np.array_equal(again.predict_proba(P, features=FEATURES), here)


def test_boosters_can_be_cloned_and_set(boost):
    from sklearn.base import clone

    twin = clone(boost)
    assert twin.get_params()["tolerance"] == boost.tolerance
    assert not hasattr(twin, "updates_")
    assert twin.set_params(tolerance=0.5).fit(P, LABELS, features=FEATURES).updates_ == []


def test_zeros_are_mixed_unless_forbidden():
    p = np.tile([0.0, 0.25, 0.25, 0.25, 0.25], (50, 1))
    labels = np.zeros(50, dtype=int)
    out = hm.HUCBoost(tree=TREE, utilities=UTILITIES, mode="paper").fit(p, labels).predict_proba(p)
    assert (out > 0).all()
    with pytest.raises(InvalidInputError, match="must be positive when `interior` is 0"):
        hm.HUCBoost(tree=TREE, utilities=UTILITIES, interior=0.0).fit(p, labels)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"mode": "bold"}, UnknownNameError, "`mode` must be one of 'noise_aware', 'paper'"),
        ({"traversal": "up"}, UnknownNameError, "`traversal` must be one of"),
        ({"shrinkage": "some"}, UnknownNameError, "`shrinkage` must be one of"),
        ({"selection": "auc"}, UnknownNameError, "`selection` must be one of"),
        ({"rng": "a"}, InvalidInputError, "`rng` must be a whole number of at least 0; got 'a'"),
        ({"early_stopping": 5}, InvalidInputError, "must come with `validation` rows; got 5"),
        ({"step": -1}, InvalidInputError, "`step` must be a number above 0 or 'adaptive'; got -1"),
        ({"tolerance": -1}, InvalidInputError, "`tolerance` must be a number of at least 0"),
        ({"max_updates": 0}, InvalidInputError, "`max_updates` must be a positive whole number"),
        (
            {"interior": 1},
            InvalidInputError,
            "at least 0 and below 1; got 1",
        ),
        ({"initial": "isotonic"}, UnknownNameError, "`initial` must be None, one of"),
        ({"tree": None}, InvalidInputError, "`tree` must be a LabelTree"),
    ],
)
def test_a_wrong_setting_is_named(changes, error, message):
    with pytest.raises(error, match=message):
        fitted(**changes)


def test_an_unfitted_booster_and_foreign_json_are_refused(boost):
    with pytest.raises(InvalidInputError, match="needs a fitted HUCBoost"):
        hm.HUCBoost(tree=TREE, utilities=UTILITIES).predict_proba(P)
    with pytest.raises(InvalidInputError, match="schema version 1; got 'HUCBoost', version 2"):
        hm.HUCBoost.from_dict(boost.to_dict() | {"schema_version": 2})
    with pytest.raises(InvalidInputError, match="must be a UCBoost"):
        hm.UCBoost.from_dict(boost.to_dict())
    bad = boost.to_dict()
    bad["updates"] = [bad["updates"][0] | {"step": float("nan")}]
    with pytest.raises(InvalidInputError, match="`step` of an update must be a finite number"):
        hm.HUCBoost.from_dict(bad)
    bad["updates"] = [boost.to_dict()["updates"][0] | {"utility": "profit"}]
    with pytest.raises(UnknownNameError, match="must name a known utility; got 'profit'"):
        hm.HUCBoost.from_dict(bad)


@pytest.mark.parametrize("kind", [hm.HUCBoost, hm.UCBoost])
def test_a_file_gives_the_same_recalibrator(kind, tmp_path):
    path = tmp_path / "new" / "repair.json"
    options = {"tree": TREE, "utilities": UTILITIES, "initial": "vector", "max_updates": 3}
    found = kind(**options).fit(P, LABELS)
    for _ in range(2):  # a file that is there is replaced
        found.save(path)
    assert path.stat().st_mode & 0o077 == 0
    assert [one.name for one in path.parent.iterdir()] == ["repair.json"]
    again = kind.load(str(path))
    assert again.to_dict() == found.to_dict()
    assert again.checks_ == found.checks_
    assert np.array_equal(again.predict_proba(P), found.predict_proba(P))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Expecting property name"),
        ("[1]", "got 'list'"),
        ('{"schema_version": 1, "type": "HUCBoost"}', "KeyError"),
        ('{"schema_version": 1, "type": "UCBoost"}', "got 'UCBoost', version 1"),
        ("[" * 200_000, "RecursionError"),
        ("\xff", "decode"),
    ],
)
def test_a_file_that_is_no_recalibrator_is_named(content, reason, tmp_path):
    (tmp_path / "repair.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(InvalidInputError, match=rf"(?s)`path` .* HUCBoost .*repair.json.*{reason}"):
        hm.HUCBoost.load(tmp_path / "repair.json")
    with pytest.raises(FileNotFoundError, match=r"other\.json"):
        hm.HUCBoost.load(tmp_path / "other.json")


def test_nothing_is_written_of_what_is_not_fitted(tmp_path):
    with pytest.raises(InvalidInputError, match="`to_dict` needs a fitted HUCBoost"):
        hm.HUCBoost(tree=TREE, utilities=UTILITIES).save(tmp_path / "repair.json")
    assert list(tmp_path.iterdir()) == []


def test_settings_that_are_numbers_of_numpy_are_saved_as_plain_ones(tmp_path):
    """A file of them ended in "Object of type int64 is not JSON serializable", after the fit."""
    boost = fitted(
        rng=np.int64(3),
        max_updates=np.int32(2),
        tolerance=np.float32(1e-3),
        interior=np.float32(1e-6),
        initial="vector",
    )
    scaling = hm.VectorScaling(regularization=np.float32(0.1), q_min=np.float32(1e-6))
    for model in (boost, scaling.fit(P, LABELS, tree=TREE)):
        model.save(tmp_path / "repair.json")
        again = type(model).load(tmp_path / "repair.json")
        assert again.to_dict() == model.to_dict()
        features = {"features": FEATURES} if model is boost else {}
        np.testing.assert_array_equal(
            again.predict_proba(P, **features), model.predict_proba(P, **features)
        )


def test_features_that_an_update_needs_are_asked_for(boost):
    with pytest.raises(InvalidInputError, match="`features` must have the columns 'age'"):
        boost.predict_proba(P)


def test_no_progress_bar_is_drawn_where_nobody_looks(capfd):
    fitted(progress=True, max_updates=1)
    assert capfd.readouterr() == ("", "")


def test_windows_of_weighed_and_of_plain_rows_agree():
    ones = np.ones(300)
    options = {"tree": TREE, "utilities": UTILITIES, "mode": "paper", "max_updates": 8}
    plain = hm.HUCBoost(**options).fit(P[:300], LABELS[:300])
    weighed = hm.HUCBoost(**options).fit(P[:300], LABELS[:300], weights=ones)
    assert plain.updates_ == weighed.updates_


def test_more_subgroups_than_bits_fall_back_to_weights():
    cuts = np.linspace(21, 89, 70).round(2).tolist()
    groups = hm.Subgroups.from_reference(FEATURES, {"age": cuts})
    assert len(groups) > 42
    boost = hm.HUCBoost(
        tree=TREE, utilities=UTILITIES, subgroups=groups, mode="paper", max_updates=3
    ).fit(P, LABELS, features=FEATURES)
    after = boost.predict_proba(P, features=FEATURES)
    result = hm.audit(
        after,
        LABELS,
        tree=TREE,
        utilities=UTILITIES,
        subgroups=groups,
        features=FEATURES,
        bounds="theorem",
    )
    assert boost.history_["huc"].iloc[-1] == pytest.approx(result.huc, abs=1e-9)


@pytest.mark.parametrize("kind", [hm.HUCBoost, hm.UCBoost])
def test_without_utilities_correctness_at_every_level_is_corrected(kind, tmp_path):
    levels = [hm.LevelCorrectness(level=k) for k in range(1, TREE.height + 1)]
    told = kind(tree=TREE, utilities=levels, max_updates=3).fit(P, LABELS)
    plain = kind(tree=TREE, max_updates=3)
    assert plain.get_params()["utilities"] is None
    plain.fit(P, LABELS)
    assert plain.updates_
    assert plain.to_dict() == told.to_dict()
    plain.save(tmp_path / "repair.json")
    read = kind.load(tmp_path / "repair.json")
    np.testing.assert_array_equal(read.predict_proba(P), told.predict_proba(P))
