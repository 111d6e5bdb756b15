"""A scikit-learn classifier that wraps another one and recalibrates its probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import assert_all_finite, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, indexable

from huc_monitor._common.frames import to_frame
from huc_monitor.audit.clusters import check_uneven
from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration._log_loss import shares
from huc_monitor.recalibration._scalings import Scaling, scaling_class
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import LevelCorrectness, Utility
from huc_monitor.utilities.program import Floats, Ints

_SCALINGS = ("temperature", "vector", "dirichlet")
_METHODS = ("noise_aware", "huc", "uc", *_SCALINGS)


class HUCCalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Predict probabilities whose utility can be trusted branch by branch.

    Wraps any classifier with ``predict_proba`` and corrects its probabilities on the data given
    to `fit`. A fitted classifier is kept as it is, and that data should be new to it; an unfitted
    one is fitted, and corrected by predictions made for each fold without it.

    Parameters
    ----------
    estimator : classifier, optional
        A logistic regression when left out.
    tree : LabelTree, optional
        Tree over the classes, whose names are the leaves; leaves of no row of `fit` are classes
        of probability 0. Flat when left out.
    classes : sequence of str, optional
        ``np.unique(labels)``, where scikit-learn hands numbers to `fit` in the place of labels, as
        in `cross_val_predict`, `VotingClassifier` and `StackingClassifier`: the leaf of number k
        is ``classes[k]``.
    utilities : list of Utility, optional
        What predictions are used for; correctness at the first level when left out.
    subgroups : Subgroups, mapping or "discover", optional
        A mapping is a specification for `Subgroups.from_reference`, read from the data of `fit`,
        which must then be a DataFrame; so it must for "discover" (see `HUCBoost`).
    method : {"noise_aware", "huc", "uc", "temperature", "vector", "dirichlet"}
        ``"noise_aware"`` updates a branch only where its violation is statistically real;
        ``"huc"`` and ``"uc"`` are the paper's boosting; the others scale and do no boosting.
    initial : {"auto", None, "temperature", "vector", "dirichlet"} or scaling, default "auto"
        Scaling that boosting starts from; ``"auto"`` is the one of least held-out log
        loss, or none where none is better beyond noise.
    cv : None, "prefit", int, or splitter, default None
        None keeps a fitted estimator and cross-fits an unfitted one in five folds; ``"prefit"``
        insists on a fitted one; a number or splitter fits a clone in any case.
    boost_options : mapping, optional
        Further settings of `HUCBoost` or `UCBoost`, for example ``{"tolerance": 0.01}``.

    Attributes
    ----------
    classes_ : (K,) array
        Sorted as scikit-learn sorts them; the columns of `predict_proba`, whatever the order of
        the tree's leaves.
    estimator_ : fitted classifier
    tree_ : LabelTree
    recalibrator_ : fitted HUCBoost, UCBoost or scaling
    n_features_in_, feature_names_in_
        As the wrapped classifier saw them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> base = GaussianNB().fit(X[::2], y[::2])
    >>> model = HUCCalibratedClassifier(base, method="temperature").fit(X[1::2], y[1::2])
    >>> model.predict_proba(X[:1]).round(2)
    array([[1., 0., 0.]])
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        tree: LabelTree | None = None,
        classes: Sequence[str] | None = None,
        utilities: Sequence[Utility] | None = None,
        subgroups: Subgroups | Mapping[str, Any] | str | None = None,
        method: str = "noise_aware",
        initial: str | Scaling | None = "auto",
        cv: Any = None,
        boost_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.estimator = estimator
        self.tree = tree
        self.classes = classes
        self.utilities = utilities
        self.subgroups = subgroups
        self.method = method
        self.initial = initial
        self.cv = cv
        self.boost_options = boost_options

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any = None,
        *,
        label_probability: Any = None,
    ) -> Self:
        """Fit the correction, and the classifier itself unless it is fitted already.

        Parameters
        ----------
        X : (n, d) array or DataFrame
            DataFrame columns are read by the subgroups too.
        y : (n,) class labels
        sample_weight : (n,) array, optional
            How often each row counts, in both fits: 2 is the row twice.
        label_probability : (n,) numbers above 0 and at most 1, optional
            With which each label was chosen, as in `audit`: rows count by the inverse of it, in
            both fits, and are the evidence of at most as many rows as there are. An unfitted
            estimator is given the inverse as `sample_weight`.
        """
        if self.method not in _METHODS:
            choices = ", ".join(map(repr, _METHODS))
            msg = f"`method` must be one of {choices}; got {self.method!r}."
            raise InvalidInputError(msg)
        self._check_options()
        if y is None:
            msg = "This HUCCalibratedClassifier requires y to be passed, but the target y is None."
            raise InvalidInputError(msg)
        X, y = indexable(X, y)  # noqa: N806
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = _column_to_row(y)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")  # before NumPy casts infinity to a class
        check_classification_targets(y)
        weights = _check_sample_weight(sample_weight, X)
        chance = check_uneven(label_probability, len(y))
        amounts = weights
        if chance is not None:  # adding up to the rows: penalties of a base are relative to them
            times = np.ones(len(y)) if weights is None else weights
            amounts = shares(times, chance) * times.sum()
        self.estimator_, probabilities = self._base(X, y, amounts)
        self.classes_ = self.estimator_.classes_
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        self.tree_, self._leaves = _tree_of_classes(self.tree, self.classes_, self.classes)
        labels = np.array(self.tree_.leaves)[self._leaves[_places(y, self.classes_)]]
        self.recalibrator_ = self._recalibrator(X)
        if len(self.classes_) > 1:
            given = {"weights": weights, "label_probability": chance}
            self._fit_recalibrator(self._by_leaf(probabilities), labels, X, given)
        return self

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Corrected probabilities, columns in the order of ``classes_``; shape (n, K)."""
        check_is_fitted(self)
        features = self._features(X)
        raw = np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)
        if len(self.classes_) < 2:
            return raw
        inputs = self._by_leaf(_normalised(raw))
        if isinstance(self.recalibrator_, Scaling):
            leaves = self.recalibrator_.predict_proba(inputs)
        else:
            leaves = self.recalibrator_.predict_proba(inputs, features=features)
        out: Floats = leaves[:, self._leaves]
        return out if out.shape == leaves.shape else _normalised(out)

    def predict(self, X: Any) -> np.ndarray[Any, Any]:  # noqa: N803
        """Most probable class of every row; shape (n,)."""
        check_is_fitted(self)
        return np.asarray(self.classes_[np.argmax(self.predict_proba(X), axis=1)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._estimator())
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
        return tags

    def _by_leaf(self, probabilities: Floats) -> Floats:
        out = np.zeros((len(probabilities), self.tree_.n_leaves))
        out[:, self._leaves] = probabilities
        return out

    def _estimator(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression()

    def _base(self, X: Any, y: Any, weights: Any) -> tuple[Any, Floats]:  # noqa: N803
        """Fitted classifier, and its predictions for rows it was not fitted on."""
        estimator = self._estimator()
        prefit = isinstance(self.cv, str) and self.cv == "prefit"
        if prefit or (self.cv is None and _is_fitted(estimator)):
            if not _is_fitted(estimator):
                msg = (
                    "`estimator` must be fitted when cv='prefit'; got an unfitted "
                    f"{type(estimator).__name__}. Fit it, or leave `cv` out."
                )
                raise InvalidInputError(msg)
            return estimator, _normalised(np.asarray(estimator.predict_proba(X), dtype=np.float64))
        given = {} if weights is None else {"sample_weight": weights}
        fitted = clone(estimator).fit(X, y, **given)
        if len(fitted.classes_) < 2:
            return fitted, np.ones((len(y), 1))
        smallest = int(np.unique(y, return_counts=True)[1].min())
        folds = check_cv(self._folds(smallest, len(y)), y, classifier=True)
        raw = cross_val_predict(
            clone(estimator), X, y, cv=folds, method="predict_proba", params=given
        )
        return fitted, _normalised(np.asarray(raw, dtype=np.float64))

    def _folds(self, smallest: int, n: int) -> Any:
        if self.cv is not None:
            return self.cv
        from sklearn.model_selection import KFold

        # Stratified folds need a row of every class in each.
        return min(5, smallest) if smallest > 1 else KFold(min(5, n))

    def _recalibrator(self, X: Any) -> Any:  # noqa: N803
        if self.method in _SCALINGS:
            return scaling_class(self.method)()
        from huc_monitor.recalibration import HUCBoost, UCBoost

        utilities = self.utilities
        options = {
            "tree": self.tree_,
            "utilities": [LevelCorrectness(level=1)] if utilities is None else utilities,
            "subgroups": self._subgroups(X),
            "initial": self.initial,
            **(self.boost_options or {}),
        }
        if self.method == "uc":
            return UCBoost(**options)
        mode = "noise_aware" if self.method == "noise_aware" else "paper"
        return HUCBoost(**{"mode": mode, **options})

    def _check_options(self) -> None:
        if self.boost_options and self.method in _SCALINGS:
            msg = (
                f"`boost_options` must be left out with method={self.method!r}, which does no "
                f"boosting; got {self.boost_options!r}. To boost after it, pass "
                f"method='noise_aware', initial={self.method!r}."
            )
            raise InvalidInputError(msg)
        from huc_monitor.recalibration import HUCBoost, UCBoost

        kind = UCBoost if self.method == "uc" else HUCBoost
        kind.check_names("boost_options", self.boost_options or {})

    def _fit_recalibrator(self, probabilities: Floats, labels: Any, X: Any, given: Any) -> None:  # noqa: N803
        if isinstance(self.recalibrator_, Scaling):
            self.recalibrator_.fit(probabilities, labels, tree=self.tree_, **given)
        else:
            features, groups = self._features(X), self._subgroups(X)
            if isinstance(groups, str):  # that are to be discovered, in all rows as they are
                self.recalibrator_.fit(probabilities, labels, features=features, **given)
                return
            memberships = [] if groups is None else groups.weights(features, len(labels))
            chance = given["label_probability"]
            told = memberships if chance is None else [*memberships, chance]
            first, times = _merged(probabilities, labels, told, given["weights"])
            self.recalibrator_.fit(
                probabilities[first],
                labels[first],
                features=None if features is None else features.iloc[first],
                weights=times,
                label_probability=None if chance is None else chance[first],
            )

    def _subgroups(self, X: Any) -> Subgroups | str | None:  # noqa: N803
        if self.subgroups is None or isinstance(self.subgroups, Subgroups | str):
            return self.subgroups
        self._features(X)
        return Subgroups.from_reference(X, self.subgroups)

    def _features(self, X: Any) -> pd.DataFrame | None:  # noqa: N803
        if self.subgroups is None:
            return None
        frame = to_frame(X, "X")
        if not isinstance(frame, pd.DataFrame):
            msg = (
                "`X` must be a DataFrame when `subgroups` are given, because they are defined by "
                f"column names; got {type(X).__name__}."
            )
            raise InvalidInputError(msg)
        return frame


def _merged(
    probabilities: Floats, labels: Any, told: Sequence[Any], weights: Any
) -> tuple[Ints, Floats]:
    """First of every set of equal rows, in an order that only their content decides; and counts.

    Boosting then cannot tell a row of weight 2 from two rows, nor one order from another, although
    its bootstrap draws a multiplier per row. Probabilities are compared to ten digits: a base that
    was fitted with weights differs in the last bits from one that was fitted to repeated rows.
    """
    codes = np.unique(labels, return_inverse=True)[1]
    content = np.column_stack([codes, probabilities.round(10), *told])
    times = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
    counted = np.flatnonzero(times > 0)
    _, first, place = np.unique(content[counted], axis=0, return_index=True, return_inverse=True)
    total: Floats = np.bincount(place.ravel(), weights=times[counted]).astype(np.float64)
    return counted[first].astype(np.int64), total


def _is_fitted(estimator: Any) -> bool:
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def _normalised(raw: Floats) -> Floats:
    """Rows that sum to one exactly enough: single-precision models miss by 1e-7."""
    return np.asarray(raw / raw.sum(axis=1, keepdims=True), dtype=np.float64)


def _tree_of_classes(tree: LabelTree | None, known: Any, classes: Any) -> tuple[LabelTree, Any]:
    """Return the tree, and the leaf of every class that the classifier knows."""
    numbered = known.dtype.kind in "iu"
    names = [str(name) for name in known]
    if numbered and classes is not None:
        names = _behind_numbers(known, [str(name) for name in classes])
    if tree is None:
        return LabelTree.flat(names), np.arange(len(names))
    place = {leaf: k for k, leaf in enumerate(tree.leaves)}
    unknown = [name for name in names if name not in place]
    if unknown:
        remedy = "Name the leaves as the labels in y are named."
        if numbered and classes is None:
            remedy = (
                "Where scikit-learn numbered the labels, as cross_val_predict does, pass "
                "classes=np.unique(labels)."
            )
        msg = (
            f"`tree` must have the estimator's {len(names)} classes as leaves; {unknown[0]!r} is "
            f"no leaf. {remedy}"
        )
        raise InvalidInputError(msg)
    return tree, np.array([place[name] for name in names])


def _behind_numbers(numbers: Any, classes: list[str]) -> list[str]:
    """Name numbered labels, unless the labels of a fold may have been numbered by themselves."""
    anew = np.array_equal(numbers, np.arange(len(numbers))) and len(numbers) < len(classes)
    unique = len(set(classes)) == len(classes)
    if anew or not unique or numbers.min() < 0 or numbers.max() >= len(classes):
        msg = (
            f"`classes` must name every number in y once; got {len(classes)} names for "
            f"{numbers.tolist()}. Pass classes=np.unique(labels), and folds with rows of every "
            "class: one without was numbered in another way."
        )
        raise InvalidInputError(msg)
    return [classes[number] for number in numbers]


def _places(y: Any, classes: Any) -> Any:
    """Places of labels among the classes."""
    place = np.searchsorted(classes, y)
    place = np.minimum(place, len(classes) - 1)
    bad = np.flatnonzero(classes[place] != y)
    if bad.size:
        msg = (
            f"`y` must hold classes the estimator knows ({len(classes)}); "
            f"got {y[bad[0]]!r} (row {bad[0]})."
        )
        raise InvalidInputError(msg)
    return place


def _column_to_row(y: Any) -> Any:
    from sklearn.utils import column_or_1d

    return column_or_1d(y, warn=True)


def _check_sample_weight(sample_weight: Any, X: Any) -> Any:  # noqa: N803
    if sample_weight is None:
        return None
    from sklearn.utils.validation import _check_sample_weight as check

    return check(sample_weight, X, ensure_non_negative=True)
