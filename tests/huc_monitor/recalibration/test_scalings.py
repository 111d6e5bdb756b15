from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import softmax

import huc_monitor as hm
from huc_monitor.recalibration import _log_loss as fitting
from huc_monitor.recalibration._scalings import (
    DirichletScaling,
    TemperatureScaling,
    VectorScaling,
    fit_scaling,
    scaling_from_dict,
)

SCALINGS = (TemperatureScaling, VectorScaling, DirichletScaling)
MAPS = (fitting.TemperatureMap, fitting.VectorMap, fitting.DirichletMap)


def draw(n, k, *, seed=0, sharpness=2.0):
    """Predictions that are `sharpness` times too confident, and labels from the truth."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, k))
    truth = softmax(logits, axis=1)
    labels = np.array([rng.choice(k, p=row) for row in truth])
    return softmax(sharpness * logits, axis=1), labels


def log_loss(p, labels):
    return -np.log(p[np.arange(len(labels)), labels]).mean()


@pytest.fixture(scope="module")
def fitted():
    p, labels = draw(400, 4)
    return {cls.kind: cls().fit(p, labels) for cls in SCALINGS}


@pytest.mark.parametrize("strength", [0.0, 0.3])
@pytest.mark.parametrize("make", MAPS)
def test_gradients_agree_with_finite_differences(make, strength):
    rng = np.random.default_rng(1)
    p, labels = draw(30, 4, seed=2)
    sample = fitting.LossRows.of(np.log(p), (labels, labels + 1), rng.uniform(0.5, 2, size=30))
    logit_map = make(4)
    theta = logit_map.start() + rng.normal(scale=0.3, size=logit_map.start().size)

    def value(at):
        return fitting.objective(at, logit_map, sample, strength)[0]

    gradient = fitting.objective(theta, logit_map, sample, strength)[1]
    np.testing.assert_allclose(gradient, approx_fprime(theta, value, 1e-7), atol=1e-6)


@pytest.mark.parametrize("make", MAPS)
def test_the_objective_is_the_penalised_mean_log_loss(make):
    p, labels = draw(50, 3, seed=3)
    sample = fitting.LossRows.of(np.log(p), (labels, labels + 1), None)
    logit_map = make(3)
    theta = logit_map.start() + 0.2
    scaled = softmax(logit_map.logits(theta, np.log(p)), axis=1)
    penalty = 0.0
    if make is fitting.VectorMap:
        penalty = (3 + 0.01 * 3) * 0.2**2
    if make is fitting.DirichletMap:
        penalty = (9 + 0.01 * 3) * 0.2**2
    value = fitting.objective(theta, logit_map, sample, 0.7)[0]
    assert value == pytest.approx(log_loss(scaled, labels) + 0.35 * penalty)


def test_a_free_penalty_pulls_a_leafs_own_parameters_less():
    theta = fitting.DirichletMap(3).start() + 0.2
    pull = fitting.DirichletMap(3, free=True).pull_back()
    expected = (6 + 0.01 * 3 + 0.001 * 3) * 0.2**2
    assert (pull * (theta - fitting.DirichletMap(3).start()) ** 2).sum() == pytest.approx(expected)


def test_held_out_rows_choose_between_penalties():
    # Slopes and intercepts of a leaf's own are far off, and leaves say nothing of one another.
    p, _ = draw(4_000, 8, seed=11)
    rng = np.random.default_rng(12)
    truth = softmax(rng.uniform(0.3, 2.0, 8) * np.log(p) + rng.normal(0, 1, 8), axis=1)
    labels = (truth.cumsum(axis=1) < rng.random((4_000, 1))).sum(axis=1).clip(max=7)
    rows = slice(0, 400)
    sample = fitting.LossRows.of(np.log(p[rows]), (labels[rows], labels[rows] + 1), None)
    one, free = (
        fitting.choose_strength(penalty, sample, None).log_loss
        for penalty in fitting.DirichletMap.penalties(8)
    )
    found = DirichletScaling().fit(p[rows], labels[rows])
    assert free < one
    assert found.held_out_log_loss_ == free


@pytest.mark.parametrize("free", [False, True])
def test_fits_in_scaled_coordinates_end_where_those_in_plain_ones_do(free, monkeypatch):
    # Log probabilities down to -20, and a class that is nearly always predicted.
    p, labels = draw(800, 6, seed=21, sharpness=3.0)
    logs = np.log(np.maximum(p, 2e-9)) - np.array([0.0, 0.0, 2.0, 4.0, 6.0, 8.0])
    sample = fitting.LossRows.of(logs, (labels, labels + 1), None)
    penalty = fitting.DirichletMap(6, free=free)
    found = fitting.fit_map(penalty, sample, 1e-3)
    least, slope = fitting.objective(found, penalty, sample, 1e-3)
    monkeypatch.setattr(fitting, "_MOST_CURVED", 0)
    plain = fitting.fit_map(penalty, sample, 1e-3)
    assert least <= fitting.objective(plain, penalty, sample, 1e-3)[0] + 1e-9
    assert np.abs(slope).max() < 1e-4
    np.testing.assert_allclose(found, plain, atol=0.02)


@pytest.mark.parametrize("strength", [0.0, 1e-6])
def test_hardly_any_penalty_and_rows_that_do_not_count_are_fitted_too(strength):
    p, labels = draw(40, 8, seed=3, sharpness=9.0)
    weights = np.zeros(40)
    weights[[1, 7, 23]] = 1.0
    found = DirichletScaling(regularization=strength).fit(p, labels, weights=weights)
    q = found.predict_proba(p)[weights > 0]
    assert log_loss(q, labels[weights > 0]) < 0.1


def test_temperature_finds_the_sharpness_that_made_the_data():
    p, labels = draw(20_000, 4, sharpness=2.0)
    found = TemperatureScaling().fit(p, labels).inverse_temperature_
    assert found == pytest.approx(0.5, abs=0.02)


def test_vector_scaling_finds_slopes_and_intercepts_that_made_the_data():
    rng = np.random.default_rng(5)
    slope, intercept = np.array([0.5, 1.0, 1.5]), np.array([0.5, 0.0, -0.5])
    p = softmax(rng.normal(size=(40_000, 3)), axis=1)
    truth = softmax(slope * np.log(p) + intercept, axis=1)
    labels = (truth.cumsum(axis=1) < rng.random(40_000)[:, None]).sum(axis=1)
    scaling = VectorScaling(regularization=1e-4).fit(p, labels)
    np.testing.assert_allclose(scaling.predict_proba(p), truth, atol=0.02)


def test_dirichlet_scaling_finds_the_matrix_that_made_the_data():
    rng = np.random.default_rng(6)
    matrix = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [-0.5, 0.0, 1.0]])
    p = softmax(rng.normal(size=(40_000, 3)), axis=1)
    truth = softmax(np.log(p) @ matrix.T, axis=1)
    labels = (truth.cumsum(axis=1) < rng.random(40_000)[:, None]).sum(axis=1)
    scaling = DirichletScaling(regularization=1e-4).fit(p, labels)
    np.testing.assert_allclose(scaling.predict_proba(p), truth, atol=0.04)


@pytest.mark.parametrize("cls", SCALINGS)
def test_fitting_never_raises_the_calibration_log_loss(cls):
    p, labels = draw(300, 5, seed=7)
    scaling = cls().fit(p, labels)
    assert log_loss(scaling.predict_proba(p), labels) <= log_loss(p, labels)


@pytest.mark.parametrize("cls", [VectorScaling, DirichletScaling])
def test_a_huge_penalty_leaves_little_freedom(cls):
    p, labels = draw(300, 3, sharpness=1.0)
    scaling = cls(regularization=1e6).fit(p, labels)
    assert np.abs(scaling.intercept_).max() < 1e-4
    if cls is DirichletScaling:
        away = scaling.matrix_ - np.diag(np.diag(scaling.matrix_))
        assert np.abs(away).max() < 1e-4
    else:
        np.testing.assert_allclose(scaling.slope_, 1, atol=1e-4)


@pytest.mark.parametrize("cls", [VectorScaling, DirichletScaling])
def test_the_strength_is_the_one_of_least_validation_log_loss(cls):
    p, labels = draw(120, 4, seed=8)
    q, truth = draw(500, 4, seed=9)
    chosen = cls().fit(p, labels, validation=(q, truth, None))
    sample = fitting.LossRows.of(np.log(p), (labels, labels + 1), None)
    losses = [
        log_loss(softmax(penalty.logits(fitting.fit_map(penalty, sample, s), np.log(q)), 1), truth)
        for penalty in cls.make_map.penalties(4)
        for s in fitting.STRENGTHS
    ]
    assert chosen.regularization_ in fitting.STRENGTHS
    assert log_loss(chosen.predict_proba(q), truth) == pytest.approx(min(losses), abs=1e-6)


def test_without_validation_data_folds_choose_a_strong_penalty_for_pure_noise():
    rng = np.random.default_rng(10)
    p = softmax(rng.normal(size=(60, 5)), axis=1)
    labels = (p.cumsum(axis=1) < rng.random(60)[:, None]).sum(axis=1)
    assert DirichletScaling().fit(p, labels).regularization_ >= 0.1


@pytest.mark.parametrize("cls", SCALINGS)
def test_weights_equal_repetition(cls):
    p, labels = draw(60, 3, seed=11)
    times = np.random.default_rng(12).integers(0, 4, size=60)
    setting = {} if cls is TemperatureScaling else {"regularization": 0.01}
    weighted = cls(**setting).fit(p, labels, weights=times)
    repeated = cls(**setting).fit(np.repeat(p, times, axis=0), np.repeat(labels, times))
    np.testing.assert_allclose(weighted.predict_proba(p), repeated.predict_proba(p), atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 70), st.integers(0, 2**32 - 1), st.sampled_from(["temperature", "vector"]))
def test_a_row_gives_the_same_bits_alone_and_among_others(fitted, n, seed, kind):
    p = softmax(np.random.default_rng(seed).normal(scale=4, size=(n, 4)), axis=1)
    for scaling in (fitted[kind], fitted["dirichlet"]):
        together = scaling.predict_proba(p)
        alone = np.vstack([scaling.predict_proba(row[None, :]) for row in p])
        assert together.tobytes() == alone.tobytes()


@pytest.mark.parametrize("k", [2, 9, 33])
def test_chunks_do_not_change_bits(k):
    p, labels = draw(500, k, seed=13)
    scaling = DirichletScaling(regularization=1.0).fit(p, labels)
    big = np.tile(p, (40, 1))
    assert scaling.predict_proba(big)[:500].tobytes() == scaling.predict_proba(p).tobytes()


@pytest.mark.parametrize("kind", ["temperature", "vector", "dirichlet"])
def test_results_are_positive_and_sum_to_one_even_for_zeros_and_ones(fitted, kind):
    p = np.vstack([np.eye(4), np.full((1, 4), 0.25)])
    before = p.copy()
    scaled = fitted[kind].predict_proba(p)
    assert (scaled > 0).all()
    np.testing.assert_allclose(scaled.sum(axis=1), 1, atol=1e-12)
    assert np.array_equal(p, before)


def test_extreme_parameters_still_give_positive_probabilities():
    scaling = TemperatureScaling().fit(*draw(50, 3))
    scaling.theta_ = np.array([1e3])
    assert (scaling.predict_proba([[1.0, 0.0, 0.0]]) > 0).all()


def test_temperature_keeps_the_order_of_the_leaves(fitted):
    p = draw(200, 4, seed=14)[0]
    scaled = fitted["temperature"].predict_proba(p)
    assert np.array_equal(np.argsort(p, axis=1), np.argsort(scaled, axis=1))


@pytest.mark.seconds
def test_json_gives_the_same_bits_in_a_new_process(fitted, tmp_path):
    kinds = ("temperature", "vector", "dirichlet")
    p = draw(50, 4, seed=15)[0]
    given = [fitted[kind].to_dict() for kind in kinds]
    (tmp_path / "scalings.json").write_text(json.dumps(given))
    np.save(tmp_path / "p.npy", p)
    code = (
        "import json, sys, numpy as np\n"
        "from huc_monitor.recalibration._scalings import scaling_from_dict\n"
        "folder = sys.argv[1]\n"
        "p = np.load(folder + '/p.npy')\n"
        "for data in json.load(open(folder + '/scalings.json')):\n"
        "    print(scaling_from_dict(data).predict_proba(p).tobytes().hex())\n"
        "assert 'sklearn' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True
    )
    found = [bytes.fromhex(line) for line in done.stdout.splitlines()]
    assert found == [fitted[kind].predict_proba(p).tobytes() for kind in kinds]
    assert [scaling_from_dict(data).to_dict() for data in given] == given


@pytest.mark.parametrize("kind", ["temperature", "vector", "dirichlet"])
def test_a_file_gives_the_same_scaling(fitted, kind, tmp_path):
    fitted[kind].save(tmp_path / "scaling.json")
    assert type(fitted[kind]).load(tmp_path / "scaling.json").to_dict() == fitted[kind].to_dict()
    other = next(cls for cls in SCALINGS if cls.kind != kind)
    with pytest.raises(hm.InvalidInputError, match=rf"scaling\.json.* got '{kind}' of version 1"):
        other.load(tmp_path / "scaling.json")


def test_json_of_another_version_or_kind_is_refused(fitted):
    data = fitted["vector"].to_dict()
    with pytest.raises(hm.InvalidInputError, match="schema version 1; got 'vector' of version 2"):
        VectorScaling.from_dict({**data, "schema_version": 2})
    with pytest.raises(hm.InvalidInputError, match="must be a dirichlet scaling"):
        DirichletScaling.from_dict(data)


@pytest.mark.parametrize("parameters", [[1.0], [float("nan")] * 8])
def test_json_with_damaged_parameters_is_refused(fitted, parameters):
    data = {**fitted["vector"].to_dict(), "parameters": parameters}
    with pytest.raises(hm.InvalidInputError, match="must be 8 finite numbers for 4 leaves"):
        VectorScaling.from_dict(data)


@pytest.mark.parametrize("cls", SCALINGS)
def test_scikit_learn_can_clone_and_inspect(cls):
    from sklearn.base import clone, is_classifier
    from sklearn.utils import get_tags
    from sklearn.utils.validation import check_is_fitted

    scaling = cls(q_min=1e-9)
    copy = clone(scaling)
    assert copy is not scaling
    assert copy.get_params() == scaling.get_params()
    assert get_tags(copy).target_tags.required
    assert not is_classifier(copy)
    assert repr(copy) == f"{cls.__name__}(q_min=1e-09)"
    check_is_fitted(copy.fit(*draw(40, 3)))


def test_an_unknown_parameter_is_refused_with_a_suggestion():
    with pytest.raises(hm.UnknownNameError, match="Did you mean 'regularization'"):
        VectorScaling().set_params(regularisation=1.0)
    assert VectorScaling().set_params(regularization=2.0).regularization == 2.0


def test_columns_of_a_frame_are_matched_by_name():
    p, labels = draw(200, 3, seed=16)
    tree = hm.LabelTree.flat(["a", "b", "c"])
    names = np.array(["a", "b", "c"])[labels]
    frame = pd.DataFrame(p, columns=["a", "b", "c"])
    scaling = VectorScaling(regularization=0.1).fit(frame[["c", "a", "b"]], names, tree=tree)
    plain = VectorScaling(regularization=0.1).fit(p, labels)
    np.testing.assert_allclose(scaling.theta_, plain.theta_)
    assert scaling.predict_proba(frame[["b", "c", "a"]]).tobytes() == (
        scaling.predict_proba(p).tobytes()
    )
    unnamed = VectorScaling(regularization=0.1).fit(frame, names)
    assert unnamed.classes_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("value", [-1, float("inf"), "strong", None, True])
def test_a_strength_that_is_no_number_is_refused(value):
    with pytest.raises(hm.InvalidInputError, match="must be a number of at least 0 or 'auto'"):
        VectorScaling(regularization=value).fit(*draw(20, 3))


@pytest.mark.parametrize("q_min", [0.0, 1.0, -1.0, "small"])
def test_a_smallest_probability_outside_its_range_is_refused(q_min):
    with pytest.raises(hm.InvalidInputError, match="`q_min` must be a number above 0 and below 1"):
        TemperatureScaling(q_min=q_min).fit(*draw(20, 3))


@pytest.mark.parametrize("cls", SCALINGS)
def test_an_unfitted_scaling_says_so(cls):
    with pytest.raises(hm.InvalidInputError, match=f"This {cls.__name__} must be fitted first"):
        cls().predict_proba([[0.5, 0.5]])


def test_a_wrong_number_of_columns_is_refused(fitted):
    with pytest.raises(hm.InvalidInputError, match="one column per leaf"):
        fitted["vector"].predict_proba([[0.5, 0.5]])


def test_a_class_without_labels_keeps_a_small_positive_probability():
    p, labels = draw(300, 4, seed=17)
    seen = labels != 3
    for cls in SCALINGS:
        scaled = cls().fit(p[seen], labels[seen]).predict_proba(p)
        assert (scaled > 0).all()
        assert np.isfinite(scaled).all()


@pytest.mark.parametrize("rows", [7, ([[0.5, 0.5]],), ([[0.5, 0.5]], [0], None, None, None, 3)])
def test_validation_rows_of_another_form_are_refused(rows):
    """More than five parts were cut off, and fewer than two ended in errors of Python."""
    p, labels = draw(20, 2)
    with pytest.raises(hm.InvalidInputError, match=r"`validation` must be \(probabilities, labels"):
        VectorScaling().fit(p, labels, validation=rows)


def test_the_held_out_log_loss_is_that_of_the_validation_rows():
    p, labels = draw(300, 3, seed=1)
    q, truth = draw(300, 3, seed=101)
    for cls in SCALINGS:
        scaling = cls().fit(p, labels, validation=(q, truth))
        losses = -np.log(scaling.predict_proba(q)[np.arange(300), truth])
        assert scaling.held_out_log_loss_ == pytest.approx(losses.mean(), abs=1e-6)
    assert VectorScaling(regularization=1.0).fit(p, labels).held_out_log_loss_ is None


def scaled_by_leaf(p, slopes):
    """Predictions that are too confident about some leaves and too timid about others."""
    logits = np.log(p) * slopes
    return softmax(logits, axis=1)


def held_out_losses(scaling, p, labels, q, truth):
    """Log loss of a scaling on the rows that judge it; None leaves predictions as they are."""
    made = None if scaling is None else scaling().fit(p, labels, validation=(q, truth))
    scaled = q if made is None else made.predict_proba(q)
    return -np.log(scaled[np.arange(len(truth)), truth])


@pytest.mark.parametrize("seed", range(6))
def test_the_scaling_chosen_is_the_one_of_least_held_out_log_loss(seed):
    rng = np.random.default_rng(seed)
    p, labels = draw(400, 4, seed=seed, sharpness=1.0)
    q, truth = draw(400, 4, seed=seed + 50, sharpness=1.0)
    slopes = rng.uniform(0.4, 2.5, 4) if seed % 2 else np.full(4, 2.0)
    p, q = scaled_by_leaf(p, slopes), scaled_by_leaf(q, slopes)
    losses = {kind: held_out_losses(kind, p, labels, q, truth) for kind in (None, *SCALINGS)}
    best = min(losses, key=lambda kind: losses[kind].mean())
    gain = losses[None] - losses[best]
    assert gain.mean() > gain.std() / 20  # this case is beyond noise
    chosen = fit_scaling(
        "auto", p, labels, tree=hm.LabelTree.flat(["a", "b", "c", "d"]), validation=(q, truth)
    )
    assert chosen.kind == best.kind


@pytest.mark.seconds
def test_a_gain_within_one_standard_error_leaves_predictions_as_they_are():
    tree = hm.LabelTree.flat(["a", "b", "c", "d"])
    left_alone = 0
    for seed in range(20):
        p, labels = draw(600, 4, seed=seed, sharpness=1.0)
        q, truth = draw(600, 4, seed=seed + 50, sharpness=1.0)
        chosen = fit_scaling("auto", p, labels, tree=tree, validation=(q, truth))
        losses = {kind: held_out_losses(kind, p, labels, q, truth) for kind in (None, *SCALINGS)}
        gains = [losses[None] - losses[kind] for kind in SCALINGS]
        beyond = [gain.mean() > gain.std() / np.sqrt(600) for gain in gains]
        assert (chosen is None) == (not any(beyond))
        left_alone += chosen is None
    assert left_alone >= 14


def test_scalings_with_too_many_parameters_for_the_rows_are_not_tried(monkeypatch):
    tried = []
    for cls in SCALINGS:
        fit = cls.fit
        monkeypatch.setattr(
            cls, "fit", lambda self, *a, fit=fit, **o: tried.append(self.kind) or fit(self, *a, **o)
        )
    p, labels = draw(83, 20, seed=3)  # vector has 40 parameters, Dirichlet 420 > 5 * 83
    fit_scaling("auto", p, labels, tree=hm.LabelTree.flat([str(k) for k in range(20)]))
    assert tried == ["temperature", "vector"]


def test_boosting_from_predictions_that_no_scaling_improves_starts_from_them():
    p, labels = draw(600, 3, seed=0, sharpness=1.0)
    tree = hm.LabelTree.flat(["a", "b", "c"])
    boost = hm.HUCBoost(tree=tree, utilities=[hm.TopK(1)], initial="auto").fit(p, labels)
    assert boost.initial_ is None


def test_boosting_after_a_scaling_chosen_by_itself_survives_json():
    p, labels = draw(300, 3, seed=21)
    boost = hm.HUCBoost(
        tree=hm.LabelTree.flat(["a", "b", "c"]), utilities=[hm.TopK(1)], initial="auto"
    ).fit(p, labels)
    assert boost.initial_ is not None
    again = hm.HUCBoost.from_dict(json.loads(json.dumps(boost.to_dict())))
    assert again.predict_proba(p).tobytes() == boost.predict_proba(p).tobytes()


def test_folds_learn_from_rows_whose_prediction_is_tied():
    # Four predictions, each with labels of two leaves: a fold that kept equal rows together would
    # leave the other label alone to the rest.
    rng = np.random.default_rng(4)
    given = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1],
                      [0.1, 0.1, 0.7, 0.1], [0.1, 0.1, 0.1, 0.7]])  # fmt: skip
    truth = np.array([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.8, 0.2], [0, 0, 0.2, 0.8]])
    which = rng.integers(0, 4, 800)
    labels = (truth[which].cumsum(axis=1) < rng.random((800, 1))).sum(axis=1)
    scaling = fit_scaling("auto", given[which], labels, tree=hm.LabelTree.flat(list("abcd")))
    assert scaling.kind == "dirichlet"
    best = -np.log(truth[which, labels]).mean()
    assert scaling.held_out_log_loss_ == pytest.approx(best, abs=0.03)
    np.testing.assert_allclose(scaling.predict_proba(given), truth, atol=0.06)


def test_updates_after_a_scaling_are_kept_only_where_they_help_rows_left_out():
    # Many leaves and few rows: the Dirichlet map fits its own rows too well, and updates that
    # follow what it leaves there would make new rows worse.
    rng = np.random.default_rng(0)
    tree = hm.LabelTree.from_nested({f"n{k}": [f"l{k}{j}" for j in range(4)] for k in range(4)})
    truth = rng.dirichlet(np.full(16, 0.3), 3_000).clip(1e-6)
    truth /= truth.sum(axis=1, keepdims=True)
    labels = (truth.cumsum(axis=1) < rng.random((3_000, 1))).sum(axis=1).clip(max=15)
    p = np.roll(truth, 1, axis=1) ** 0.7 + 0.5 * truth
    p /= p.sum(axis=1, keepdims=True)
    asked = {"tree": tree, "utilities": [hm.LevelCorrectness(level=1), hm.TopK(1)]}
    boost = hm.HUCBoost(**asked, initial="dirichlet").fit(p[:500], labels[:500])
    regardless = hm.HUCBoost(**asked, initial=boost.initial_).fit(p[:500], labels[:500])
    assert regardless.updates_
    assert not boost.updates_
    assert log_loss(boost.predict_proba(p[500:]), labels[500:]) < log_loss(
        regardless.predict_proba(p[500:]), labels[500:]
    )


def test_an_unknown_scaling_is_refused_with_the_choices():
    with pytest.raises(hm.UnknownNameError, match="'dirichlet', 'auto', or a fitted scaling"):
        hm.HUCBoost(
            tree=hm.LabelTree.flat(["a", "b"]), utilities=[hm.TopK(1)], initial="platt"
        ).fit([[0.4, 0.6]] * 4, list("abab"))


@pytest.mark.parametrize("kind", ["temperature", "vector", "dirichlet", "auto"])
@pytest.mark.parametrize("n", [15, 60])
def test_folds_choose_the_same_strength_for_weights_as_for_repeated_rows(kind, n):
    rng = np.random.default_rng(n)
    p, labels = draw(n, 3, seed=n)
    times = rng.integers(0, 5, n)
    tree = hm.LabelTree.flat(["a", "b", "c"])
    one = fit_scaling(kind, p, labels, tree=tree, weights=times.astype(float))
    other = fit_scaling(kind, p.repeat(times, axis=0), labels.repeat(times), tree=tree)
    if one is None or other is None:
        assert one is other
        return
    assert one.kind == other.kind
    np.testing.assert_allclose(one.predict_proba(p), other.predict_proba(p), rtol=0, atol=1e-7)


@pytest.mark.parametrize("cls", SCALINGS)
def test_scalings_count_rows_by_the_inverse_of_their_label_probability(cls):
    p, labels = draw(200, 3, seed=4)
    chance = np.random.default_rng(4).uniform(0.1, 1, 200)
    ends = [
        cls().fit(p, labels, validation=(p, labels, None, *held), weights=held[0],
                  label_probability=held[1])
        for held in ((None, chance), (1 / chance, None))
    ]  # fmt: skip
    np.testing.assert_allclose(ends[0].theta_, ends[1].theta_, atol=1e-6)
    assert ends[0].held_out_log_loss_ == pytest.approx(ends[1].held_out_log_loss_)


def test_the_noise_of_a_mean_is_that_of_its_rows():
    p, labels = draw(50, 3, seed=4)
    terms, rng = np.random.default_rng(4).normal(size=50), np.random.default_rng(5)
    times, chance = rng.integers(0, 4, 50).astype(float), rng.uniform(0.01, 1, 50)
    label = labels, labels + 1
    counted = fitting.LossRows.of(np.log(p), label, times).mean(terms)
    again = np.repeat(terms, times.astype(int))
    assert counted == pytest.approx((again.mean(), again.std() / np.sqrt(again.size)))
    mean, noise = fitting.LossRows.of(np.log(p), label, None, chance).mean(terms)
    share = (1 / chance) / (1 / chance).sum()
    assert mean == pytest.approx(share @ terms)
    assert noise == pytest.approx(np.sqrt(np.sum(share**2 * (terms - mean) ** 2)))


def test_labels_above_the_leaves_count_with_the_probability_of_their_node():
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(4), 30)
    first = rng.integers(0, 4, 30)
    wide = rng.random(30) < 0.5
    label = np.where(wide, first // 2 * 2, first), np.where(wide, first // 2 * 2 + 2, first + 1)
    sample = fitting.LossRows.of(np.log(p), label, None)
    spans = list(zip(*label, strict=True))
    expected = [-np.log(p[i, lo:hi].sum()) for i, (lo, hi) in enumerate(spans)]
    vector = fitting.VectorMap(4)
    np.testing.assert_allclose(fitting.row_losses(vector.start(), vector, sample), expected)
    theta = rng.normal(1.0, 0.3, 8)
    _, gradient = fitting.objective(theta, vector, sample, 0.1)
    for k in range(8):
        step = np.zeros(8)
        step[k] = 1e-6
        up, down = (fitting.objective(theta + s, vector, sample, 0.1)[0] for s in (step, -step))
        assert gradient[k] == pytest.approx((up - down) / 2e-6, abs=1e-6)
