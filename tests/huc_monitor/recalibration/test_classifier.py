from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import huc_monitor as hm
from huc_monitor.recalibration import HUCBoost, HUCCalibratedClassifier

pytestmark = pytest.mark.seconds

# scikit-learn skips this one unless an environment variable was set before scipy was imported.
SKIPPED = {"check_array_api_input"}


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(  # noqa: N806
        1_200, n_features=8, n_informative=6, n_classes=4, n_clusters_per_class=1, random_state=0
    )
    names = np.array(["d", "b", "a", "c"])[y]
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)])
    return frame.iloc[:600], names[:600], frame.iloc[600:], names[600:]


@pytest.fixture(scope="module")
def tree():
    return hm.LabelTree.from_nested({"high": ["d", "b"], "low": ["c", "a"]})


def log_loss(p, y, classes):
    return -np.log(p[np.arange(len(y)), np.searchsorted(classes, y)]).mean()


@parametrize_with_checks([HUCCalibratedClassifier(method="temperature")])
def test_scikit_learn_accepts_the_estimator(estimator, check):
    if check.func.__name__ not in SKIPPED:
        check(estimator)


@pytest.mark.slow
@parametrize_with_checks([HUCCalibratedClassifier()])
def test_scikit_learn_accepts_the_default_settings(estimator, check):
    if check.func.__name__ not in SKIPPED:
        check(estimator)


@pytest.mark.parametrize("method", ["noise_aware", "huc", "uc", "temperature", "vector"])
def test_columns_follow_the_classes_whatever_the_order_of_the_leaves(data, tree, method):
    X, y, X_new, y_new = data  # noqa: N806
    base = GaussianNB().fit(X[:300], y[:300])
    model = HUCCalibratedClassifier(base, tree=tree, method=method).fit(X[300:], y[300:])
    p = model.predict_proba(X_new)
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    assert tree.leaves == ("d", "b", "c", "a")
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    assert (p > 0).all()
    assert (model.predict(X_new) == model.classes_[p.argmax(axis=1)]).all()
    # A wrong order of columns would be no better than guessing.
    assert model.score(X_new, y_new) > 0.6
    if method in {"noise_aware", "temperature", "vector"}:
        raw = np.maximum(base.predict_proba(X_new), 1e-12)
        assert log_loss(p, y_new, base.classes_) < log_loss(raw, y_new, base.classes_)


def test_it_does_what_the_booster_alone_does(data, tree):
    X, y, X_new, _ = data  # noqa: N806
    base = GaussianNB().fit(X[:300], y[:300])
    model = HUCCalibratedClassifier(base, tree=tree, method="huc", initial=None)
    model.fit(X[300:], y[300:])

    def leaves(rows):
        return pd.DataFrame(base.predict_proba(rows), columns=base.classes_)

    boost = HUCBoost(tree=tree, utilities=[hm.LevelCorrectness(level=1)], mode="paper")
    boost.fit(leaves(X[300:]), y[300:])
    expected = boost.predict_proba(leaves(X_new))
    found = model.predict_proba(X_new)[:, [3, 1, 2, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_fitted_estimator_is_kept_and_an_unfitted_one_is_cloned(data):
    X, y, _, _ = data  # noqa: N806
    fitted = GaussianNB().fit(X, y)
    means = fitted.theta_.copy()
    assert HUCCalibratedClassifier(fitted, method="temperature").fit(X, y).estimator_ is fitted
    assert np.array_equal(fitted.theta_, means)
    unfitted = GaussianNB()
    model = HUCCalibratedClassifier(unfitted, method="temperature").fit(X, y)
    assert model.estimator_ is not unfitted
    assert not hasattr(unfitted, "theta_")


def test_a_frozen_estimator_is_prefit(data):
    from sklearn.frozen import FrozenEstimator

    X, y, _, _ = data  # noqa: N806
    frozen = FrozenEstimator(GaussianNB().fit(X, y))
    assert HUCCalibratedClassifier(frozen, method="temperature").fit(X, y).estimator_ is frozen


def test_prefit_needs_a_fitted_estimator(data):
    X, y, _, _ = data  # noqa: N806
    model = HUCCalibratedClassifier(GaussianNB(), cv="prefit")
    with pytest.raises(hm.InvalidInputError, match="must be fitted when cv='prefit'; got an unf"):
        model.fit(X, y)


@pytest.mark.parametrize("cv", [3, KFold(4)])
def test_folds_fit_the_estimator_again(data, cv):
    X, y, _, _ = data  # noqa: N806
    fitted = GaussianNB().fit(X[:10], y[:10])
    model = HUCCalibratedClassifier(fitted, method="temperature", cv=cv).fit(X, y)
    assert model.estimator_ is not fitted
    assert model.estimator_.class_count_.sum() == len(y)


def test_cross_fitting_sees_overconfidence_that_training_rows_hide(data):
    from sklearn.tree import DecisionTreeClassifier

    X, y, _, _ = data  # noqa: N806
    tree = DecisionTreeClassifier(random_state=0)
    crossed = HUCCalibratedClassifier(tree, method="temperature").fit(X, y)
    fooled = HUCCalibratedClassifier(clone(tree).fit(X, y), method="temperature").fit(X, y)
    assert crossed.recalibrator_.inverse_temperature_ < 0.3
    assert fooled.recalibrator_.inverse_temperature_ >= 1


def test_subgroups_are_read_from_the_frame(data, tree):
    X, y, X_new, _ = data  # noqa: N806
    base = GaussianNB().fit(X[:300], y[:300])
    model = HUCCalibratedClassifier(
        base, tree=tree, subgroups={"x0": "median"}, method="huc", initial=None
    ).fit(X[300:], y[300:])
    assert len(model.recalibrator_.subgroups) == 3
    assert {update.subgroup for update in model.recalibrator_.updates_} - {"all"}
    assert model.predict_proba(X_new).shape == (600, 4)
    with pytest.raises(hm.InvalidInputError, match="`X` must be a DataFrame when `subgroups`"):
        model.predict_proba(X_new.to_numpy())
    groups = hm.Subgroups.from_reference(X, {"x1": [0.0]})
    again = clone(model).set_params(subgroups=groups).fit(X[300:], y[300:])
    assert again.recalibrator_.subgroups == groups


def test_subgroups_that_nobody_named_are_discovered_in_the_frame(data, tree):
    X, y, X_new, _ = data  # noqa: N806
    base = GaussianNB().fit(X[:100], y[:100])
    options = {"utilities": [hm.LevelCorrectness(level=2)], "subgroups": "discover"}
    model = HUCCalibratedClassifier(base, tree=tree, **options).fit(X, y)
    p = base.predict_proba(X)
    leaves = pd.DataFrame(p / p.sum(axis=1, keepdims=True), columns=base.classes_)
    alone = HUCBoost(tree=tree, mode="noise_aware", initial="auto", **options)
    alone.fit(leaves, y, features=X)
    assert model.recalibrator_.discovery_.to_dict() == alone.discovery_.to_dict()
    assert model.predict_proba(X_new).shape == (600, 4)
    with pytest.raises(hm.InvalidInputError, match="`X` must be a DataFrame when `subgroups`"):
        clone(model).fit(X.to_numpy(), y)
    with pytest.raises(hm.HUCError, match="`subgroups` must be one of 'discover'; got 'find'"):
        clone(model).set_params(subgroups="find").fit(X, y)


def test_feature_names_and_counts_are_those_of_the_wrapped_estimator(data):
    X, y, _, _ = data  # noqa: N806
    model = HUCCalibratedClassifier(GaussianNB(), method="temperature").fit(X, y)
    assert model.n_features_in_ == 8
    assert model.feature_names_in_.tolist() == X.columns.tolist()
    plain = HUCCalibratedClassifier(GaussianNB(), method="temperature").fit(X.to_numpy(), y)
    assert not hasattr(plain, "feature_names_in_")


def test_it_works_in_a_pipeline_and_in_cross_validation(data):
    X, y, _, _ = data  # noqa: N806
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    model = HUCCalibratedClassifier(inner, method="vector", cv=2)
    assert is_classifier(model)
    scores = cross_val_score(make_pipeline(StandardScaler(), model), X, y, cv=2)
    assert scores.min() > 0.6


def test_numeric_classes_keep_their_values(data):
    X, y, X_new, _ = data  # noqa: N806
    codes = np.array([ord(name) for name in y])
    model = HUCCalibratedClassifier(GaussianNB(), method="noise_aware").fit(X, codes)
    assert model.classes_.dtype == codes.dtype
    assert set(model.predict(X_new)) <= {97, 98, 99, 100}
    assert model.tree_.leaves == ("97", "98", "99", "100")


def test_leaves_called_by_numbers_in_another_order_than_their_codes_start_from_a_scaling():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 400)
    labels = np.array([rng.choice(["7", "2", "0", "1"], p=row) for row in p])
    tree = hm.LabelTree.from_nested({"high": ["7", "2"], "low": ["0", "1"]})
    same = hm.LabelTree.from_nested({"high": ["h7", "h2"], "low": ["h0", "h1"]})
    utility = hm.LevelCorrectness(level=2)
    for validation in (False, True):
        fitted = []
        for shape, names in ((tree, labels), (same, np.char.add("h", labels))):
            held_out = (p[300:], names[300:]) if validation else None
            boost = HUCBoost(tree=shape, utilities=[utility], initial="auto")
            fitted.append(boost.fit(p[:300], names[:300], validation=held_out).predict_proba(p))
        np.testing.assert_array_equal(fitted[0], fitted[1])


def test_sample_weights_reach_the_correction(data):
    X, y, X_new, _ = data  # noqa: N806
    base = GaussianNB().fit(X[:300], y[:300])
    times = np.random.default_rng(0).integers(1, 4, size=300)
    model = HUCCalibratedClassifier(base, method="temperature")
    weighted = clone(model).set_params(estimator=base).fit(X[300:], y[300:], sample_weight=times)
    repeated = model.fit(X[300:].loc[X.index[300:].repeat(times)], np.repeat(y[300:], times))
    np.testing.assert_allclose(
        weighted.predict_proba(X_new), repeated.predict_proba(X_new), atol=1e-5
    )


@pytest.mark.parametrize("method", ["temperature", "noise_aware", "uc"])
def test_label_probabilities_reach_both_fits(data, method):
    X, y, X_new, _ = data  # noqa: N806
    chance = np.random.default_rng(0).uniform(0.02, 1, size=600)
    model = HUCCalibratedClassifier(GaussianNB(), method=method, initial=None)
    plain = model.fit(X, y).predict_proba(X_new)
    even = model.fit(X, y, label_probability=np.full(600, 0.02)).predict_proba(X_new)
    np.testing.assert_array_equal(even, plain)
    told = clone(model).fit(X, y, label_probability=chance)
    base = GaussianNB().fit(X, y, sample_weight=1 / chance)
    np.testing.assert_allclose(told.estimator_.theta_, base.theta_)
    twice = clone(model).fit(X, y, sample_weight=np.full(600, 1.0), label_probability=chance)
    np.testing.assert_array_equal(told.predict_proba(X_new), twice.predict_proba(X_new))
    assert np.abs(told.predict_proba(X_new) - plain).max() > 1e-3


def test_one_row_corrects_a_fitted_estimator_without_an_error(data):
    X, y, _, _ = data  # noqa: N806
    base = GaussianNB().fit(X[:300], y[:300])
    model = HUCCalibratedClassifier(base, initial="temperature").fit(X[300:301], y[300:301])
    assert model.recalibrator_.updates_ == []


def test_a_class_that_the_tree_does_not_have_is_refused(data):
    X, y, _, _ = data  # noqa: N806
    small = hm.LabelTree.flat(["a", "b", "c"])
    with pytest.raises(hm.InvalidInputError, match=r"'d' is no leaf\. Name the leaves as the lab"):
        HUCCalibratedClassifier(GaussianNB(), tree=small).fit(X, y)


@pytest.mark.parametrize("method", ["huc", "noise_aware", "temperature", "dirichlet"])
def test_leaves_of_no_row_have_probability_0(data, method):
    X, y, X_new, _ = data  # noqa: N806
    tree = hm.LabelTree.from_nested(
        {"high": ["d", "u2r", "b"], "low": ["c", "a"], "r2l": ["x", "y"]}
    )
    pay = hm.Payoff("pay", {"u2r": -1, "d": 1, "r2l": 0.5})
    model = HUCCalibratedClassifier(GaussianNB(), tree=tree, utilities=[pay], method=method)
    p = model.fit(X, y).predict_proba(X_new)
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    assert model.score(X_new, data[3]) > 0.6
    some = np.isin(y, ["a", "d"])
    assert model.fit(X[some], y[some]).predict_proba(X_new).shape == (600, 2)
    assert (model.fit(X[y == "a"], y[y == "a"]).predict_proba(X_new) == 1).all()


def test_a_rare_class_does_not_end_cross_validation(data):
    X, y, _, _ = data  # noqa: N806
    rare = np.where(np.arange(600) < 6, "u2r", y)
    tree = hm.LabelTree.from_nested({"high": ["d", "b", "u2r"], "low": ["c", "a"]})
    model = HUCCalibratedClassifier(GaussianNB(), tree=tree, method="temperature")
    assert cross_val_score(model, X, rare, cv=KFold(3), error_score="raise").min() > 0.6


@pytest.fixture(scope="module")
def numbered(tree):
    # "a" to "d" are numbered 0 to 3; the leaves of the tree have another order.
    return HUCCalibratedClassifier(
        GaussianNB(), tree=tree, classes=["a", "b", "c", "d"], method="vector"
    )


def test_predictions_across_folds_know_the_labels_behind_numbers(data, numbered):
    X, y, _, _ = data  # noqa: N806
    p = cross_val_predict(numbered, X, y, cv=3, method="predict_proba")
    assert (np.unique(y)[p.argmax(axis=1)] == y).mean() > 0.6
    for train, test in StratifiedKFold(3).split(X, y):
        alone = clone(numbered).fit(X.iloc[train], y[train])
        np.testing.assert_array_equal(alone.predict_proba(X.iloc[test]), p[test])


@pytest.mark.parametrize("many", [VotingClassifier, StackingClassifier])
def test_votes_and_stacks_know_the_labels_behind_numbers(data, numbered, many):
    X, y, X_new, y_new = data  # noqa: N806
    several = many([("huc", clone(numbered)), ("plain", GaussianNB())]).fit(X, y)
    assert several.score(X_new, y_new) > 0.6
    inner = several.estimators_[0]
    assert inner.classes_.tolist() == [0, 1, 2, 3]
    assert inner.tree_.leaves == ("d", "b", "c", "a")
    alone = clone(numbered).fit(X, y)
    np.testing.assert_array_equal(inner.predict_proba(X_new), alone.predict_proba(X_new))


def test_numbers_without_names_are_refused_with_the_remedy(data, tree, numbered):
    X, y, _, _ = data  # noqa: N806
    codes = np.unique(y, return_inverse=True)[1]
    model = HUCCalibratedClassifier(GaussianNB(), tree=tree)
    with pytest.raises(hm.InvalidInputError, match=r"'0' is no .* pass classes=np\.unique\(labels"):
        model.fit(X, codes)
    # Were the labels b, c, d numbered anew, or is d missing?
    for kept, given in ((codes < 3, codes), (codes >= 0, codes + 1), (codes >= 0, codes - 1)):
        with pytest.raises(hm.InvalidInputError, match="`classes` must name every number in y on"):
            clone(numbered).fit(X[kept], given[kept])
    with pytest.raises(hm.InvalidInputError, match="got 4 names for"):
        clone(numbered).set_params(classes=list("aacd")).fit(X, codes)
    # Here 0 and 3 can only be those of all four labels.
    ends = np.isin(codes, [0, 3])
    assert clone(numbered).fit(X[ends], codes[ends]).classes_.tolist() == [0, 3]


def test_a_label_that_the_estimator_never_saw_is_refused(data):
    X, y, _, _ = data  # noqa: N806
    base = GaussianNB().fit(X, y)
    with pytest.raises(hm.InvalidInputError, match=r"got .*'e'.* \(row 1\)"):
        HUCCalibratedClassifier(base).fit(X[:3], ["a", "e", "b"])


def test_an_unknown_method_is_refused_with_the_choices(data):
    X, y, _, _ = data  # noqa: N806
    with pytest.raises(hm.InvalidInputError, match="`method` must be one of 'noise_aware', 'huc'"):
        HUCCalibratedClassifier(GaussianNB(), method="magic").fit(X, y)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"boost_options": {"tol": 0.1}}, "of HUCBoost; got 'tol'. Did you mean 'tolerance'"),
        ({"method": "uc", "boost_options": {"mode": "paper"}}, "of UCBoost; got 'mode'. Choose"),
        (
            {"method": "vector", "boost_options": {"tolerance": 0.1}},
            "left out with method='vector', which does no boosting",
        ),
    ],
)
def test_boost_options_without_effect_are_refused_by_name(data, settings, told):
    X, y, _, _ = data  # noqa: N806
    with pytest.raises(hm.InvalidInputError, match=f"`boost_options` must be .*{told}"):
        HUCCalibratedClassifier(GaussianNB(), **settings).fit(X, y)


def test_an_unfitted_classifier_says_so(data):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        HUCCalibratedClassifier().predict_proba(data[0])


def test_one_utility_needs_no_list(data, tree):
    x, y = data[:2]
    model = hm.HUCCalibratedClassifier(GaussianNB(), tree=tree, utilities=hm.TopK(1)).fit(x, y)
    assert model.recalibrator_.utilities == hm.TopK(1)


def test_boost_options_reach_the_booster(data, tree):
    X, y, _, _ = data  # noqa: N806
    base = GaussianNB().fit(X[:300], y[:300])
    model = HUCCalibratedClassifier(
        base, tree=tree, method="huc", boost_options={"max_updates": 2, "tolerance": 0.0}
    ).fit(X[300:], y[300:])
    assert len(model.recalibrator_.updates_) == 2


def test_the_correction_survives_json(data, tree):
    X, y, X_new, _ = data  # noqa: N806
    model = HUCCalibratedClassifier(GaussianNB().fit(X[:300], y[:300]), tree=tree, method="huc")
    model.fit(X[300:], y[300:])
    again = HUCBoost.from_dict(json.loads(json.dumps(model.recalibrator_.to_dict())))
    p = model.estimator_.predict_proba(X_new)
    frame = pd.DataFrame(p / p.sum(axis=1, keepdims=True), columns=model.classes_)
    expected = model.recalibrator_.predict_proba(frame)
    assert again.predict_proba(frame).tobytes() == expected.tobytes()
