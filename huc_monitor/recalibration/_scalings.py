"""Temperature, vector and Dirichlet scaling: one map for the whole predicted distribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from huc_monitor._common.checks import check_number
from huc_monitor._common.row_order import check_row_order
from huc_monitor._common.views import Shown
from huc_monitor.audit.clusters import check_uneven
from huc_monitor.audit.inputs import check_labels, check_predictions, check_weights
from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.recalibration._estimator import Parametrised
from huc_monitor.recalibration._log_loss import (
    STRENGTHS,
    Choice,
    DirichletMap,
    LogitMap,
    LossRows,
    TemperatureMap,
    VectorMap,
    choose_strength,
    fit_map,
    row_losses,
)
from huc_monitor.recalibration._saving import Saved
from huc_monitor.recalibration.runtime.scaling import scale
from huc_monitor.tree import LabelTree
from huc_monitor.utilities.program import Floats

_SCHEMA_VERSION = 1
_MOST_PARAMETERS_PER_ROW = 5


class Scaling(Parametrised, Saved, Shown):
    """A parametric map of the whole predicted distribution, fitted by log loss.

    Boosting fits it first and corrects what it leaves. ``kind`` is its name in JSON and in
    ``HUCBoost(initial=...)``. `predict_proba` must treat every row by itself and give the same
    bits whatever the other rows are, because updates are replayed on single rows.
    """

    kind: ClassVar[str]
    make_map: ClassVar[type[LogitMap]]
    q_min: float
    choice_: Choice | None

    def __init__(self, *, q_min: float = 1e-12) -> None:
        self.q_min = q_min

    def fit(
        self,
        probabilities: Any,
        labels: Any,
        *,
        tree: LabelTree | None = None,
        weights: Any = None,
        label_probability: Any = None,
        validation: tuple[Any, ...] | None = None,
    ) -> Self:
        """Fit the parameters by log loss.

        Parameters
        ----------
        probabilities : (n, K) array in the order of ``tree.leaves``, or DataFrame of leaf columns
        labels : (n,) labels as in `audit`, at any depth
        tree : LabelTree, optional
            Names the columns; without it they are the DataFrame's, or ``"0"``, ``"1"``, ...
        weights : (n,) non-negative numbers, optional
            How often each row counts: 2 is the row twice.
        label_probability : (n,) numbers above 0 and at most 1, optional
            With which each label was chosen, as in `audit`: rows count by the inverse of it.
        validation : tuple, optional
            (probabilities, labels[, features[, weights[, label_probability]]]): rows that choose
            the regularisation by log loss; without them five folds do.
        """
        check_number("q_min", self.q_min, above=0, below=1)
        tree = _tree_of(probabilities, tree)
        sample = self.read_rows(probabilities, labels, tree, weights, label_probability)
        held_out = None
        if validation is not None:
            held_out = self.read_validation(validation, tree)
        logit_map = self.make_map(tree.n_leaves)
        strength, choice = _check_strength(getattr(self, "regularization", "auto")), None
        if strength is None:
            penalties = self.make_map.penalties(tree.n_leaves)
            tried = [(choose_strength(one, sample, held_out), one) for one in penalties]
            choice, logit_map = min(tried, key=lambda pair: pair[0].log_loss)
            strength = choice.strength
        self._set(tree.leaves, fit_map(logit_map, sample, strength), strength)
        if choice is not None and held_out is not None:
            choice = replace(choice, losses=row_losses(self.theta_, logit_map, held_out))
        self.choice_ = choice
        return self

    @property
    def held_out_log_loss_(self) -> float | None:
        """Log loss by which the strength was chosen; None where it was given."""
        choice: Choice | None = getattr(self, "choice_", None)
        return None if choice is None else choice.log_loss

    @property
    def held_out_losses(self) -> Floats:
        """Log loss of every row by which the strength was chosen; none where it was given."""
        return np.empty(0) if self.choice_ is None else self.choice_.losses

    def predict_proba(self, probabilities: Any) -> Floats:
        """Return scaled probabilities: new, positive, of the same shape.

        Every row is treated by itself, in a fixed order of operations: the same row gives the same
        bits alone and among a million others.
        """
        matrix = check_predictions(probabilities, tree=self._fitted_tree()).dense()
        return scale(matrix, self.kind, self.theta_, self.q_min)

    def fold_fits(self) -> Iterator[tuple[Scaling, Floats]]:
        """Yield the scaling as each fold's other rows gave it, and the part of rows held out."""
        assert self.choice_ is not None  # noqa: S101 - asked for where folds chose
        for theta, held in self.choice_.folds:
            yield self.from_dict({**self.to_dict(), "parameters": theta}), held

    def to_dict(self) -> dict[str, Any]:
        """JSON form; `from_dict` reads it back to the same bits."""
        tree = self._fitted_tree()
        return {
            "scaling": self.kind,
            "schema_version": _SCHEMA_VERSION,
            "leaves": list(tree.leaves),
            "settings": self.plain_params(),
            "parameters": self.theta_.tolist(),
            "regularization": self.regularization_,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; the same input gives the same bits."""
        version = data.get("schema_version")
        if version != _SCHEMA_VERSION or data.get("scaling") != cls.kind:
            msg = (
                f"`data` must be a {cls.kind} scaling of schema version {_SCHEMA_VERSION}; "
                f"got {data.get('scaling')!r} of version {version!r}. "
                "Read it with the class and version that wrote it."
            )
            raise InvalidInputError(msg)
        made = cls(**data["settings"])
        theta = np.asarray(data["parameters"], dtype=np.float64)
        expected = made.make_map(len(data["leaves"])).start().size
        if theta.shape != (expected,) or not np.isfinite(theta).all():
            msg = (
                f"`data['parameters']` must be {expected} finite numbers for "
                f"{len(data['leaves'])} leaves; got shape {theta.shape}."
            )
            raise InvalidInputError(msg)
        return made._set(tuple(data["leaves"]), theta, data["regularization"])

    def read_rows(
        self, probabilities: Any, labels: Any, tree: LabelTree, weights: Any, chance: Any
    ) -> LossRows:
        """Check rows, and return them as the log loss reads them."""
        check_row_order(
            probabilities=probabilities, labels=labels, weights=weights, label_probability=chance
        )
        matrix = check_predictions(probabilities, tree=tree).dense()
        logs = np.log(np.maximum(np.asarray(matrix, dtype=np.float64), self.q_min))
        codes = check_labels(labels, matrix.shape[0], tree=tree)
        repeats = check_weights(weights, matrix.shape[0])
        uneven = check_uneven(chance, matrix.shape[0])
        return LossRows.of(logs, tree.label_slices(codes), repeats, uneven)

    def read_validation(self, rows: tuple[Any, ...], tree: LabelTree) -> LossRows:
        """Check rows of `validation`, whose features no scaling needs."""
        probabilities, labels, _, weights, chance = open_validation(rows)
        found = self.read_rows(probabilities, labels, tree, weights, chance)
        return found if found.share.all() else found.take(found.share > 0)

    def _set(self, leaves: tuple[str, ...], theta: Floats, regularization: float) -> Self:
        self.classes_ = np.array(leaves, dtype=object)
        self.theta_ = theta
        self.regularization_ = regularization
        self.choice_ = None
        self._tree = LabelTree.flat(leaves)
        return self

    def _fitted_tree(self) -> LabelTree:
        try:
            return self._tree
        except AttributeError:
            msg = f"This {type(self).__name__} must be fitted first. Call fit()."
            raise InvalidInputError(msg) from None


class TemperatureScaling(Scaling):
    """Sharpen or flatten every prediction by one temperature: softmax(log p / T).

    Parameters
    ----------
    q_min : float, default 1e-12
        Smaller probabilities count as this.

    Attributes
    ----------
    inverse_temperature_ : float
        1 / T; below 1 the base model was overconfident.
    held_out_log_loss_ : float
        Log loss on the validation data, or over the folds: comparable between scalings.

    Notes
    -----
    The order of the leaves in every prediction is kept, so top-1 accuracy does not change.

    Examples
    --------
    >>> p = [[0.9, 0.1]] * 4 + [[0.1, 0.9]] * 4
    >>> scaling = TemperatureScaling().fit(p, [0, 0, 0, 1, 1, 1, 1, 0])
    >>> scaling.inverse_temperature_, scaling.predict_proba([[0.9, 0.1]])
    (0.5, array([[0.75, 0.25]]))
    """

    kind = "temperature"
    make_map = TemperatureMap

    @property
    def inverse_temperature_(self) -> float:
        """Fitted 1 / T."""
        return float(self.theta_[0])


class _Regularised(Scaling):
    def __init__(self, *, regularization: float | str = "auto", q_min: float = 1e-12) -> None:
        super().__init__(q_min=q_min)
        self.regularization = regularization


class VectorScaling(_Regularised):
    """Give every leaf its own slope and intercept: softmax(a * log p + b).

    Parameters
    ----------
    regularization : float or "auto", default "auto"
        Strength r of the penalty r/2 * (sum (a - 1)^2 + sum b^2 / 100), which pulls towards the
        base prediction, intercepts only a little. "auto" takes the strength of least log loss on
        the validation data, or over five folds, from 1e-4 to 10 in half decades.
    q_min : float, default 1e-12
        Smaller probabilities count as this.

    Attributes
    ----------
    slope_, intercept_ : (K,) arrays
        a and b.
    regularization_ : float
        The strength used.
    held_out_log_loss_ : float or None
        Log loss by which it was chosen; None where the strength was given.

    Examples
    --------
    >>> p = [[0.6, 0.4]] * 4 + [[0.4, 0.6]] * 4
    >>> scaling = VectorScaling(regularization=0.01).fit(p, [0, 0, 0, 1, 0, 0, 0, 1])
    >>> scaling.predict_proba([[0.5, 0.5]]).round(2)
    array([[0.75, 0.25]])
    """

    kind = "vector"
    make_map = VectorMap

    @property
    def slope_(self) -> Floats:
        """Fitted slopes a."""
        return self.theta_[: self.theta_.size // 2]

    @property
    def intercept_(self) -> Floats:
        """Fitted intercepts b."""
        return self.theta_[self.theta_.size // 2 :]


class DirichletScaling(_Regularised):
    """Let every leaf's probability inform all others: softmax(W log p + b).

    Parameters
    ----------
    regularization : float or "auto", default "auto"
        Strength r of the penalty r/2 * (sum (W - identity)^2 + sum b^2 / 100), which pulls towards
        the base prediction. "auto" chooses as in `VectorScaling`; it may also pull the diagonal a
        hundredth and b a thousandth as hard as other weights.
    q_min : float, default 1e-12
        Smaller probabilities count as this.

    Attributes
    ----------
    matrix_ : (K, K) array
        W.
    intercept_ : (K,) array
    regularization_ : float
        The strength used.
    held_out_log_loss_ : float or None
        Log loss by which it was chosen; None where the strength was given.

    Examples
    --------
    >>> p = [[0.8, 0.2]] * 4 + [[0.2, 0.8]] * 4
    >>> scaling = DirichletScaling(regularization=0.01).fit(p, [0, 0, 0, 1, 1, 1, 1, 0])
    >>> scaling.predict_proba([[0.8, 0.2]]).round(2)
    array([[0.75, 0.25]])
    """

    kind = "dirichlet"
    make_map = DirichletMap

    @property
    def matrix_(self) -> Floats:
        """Fitted W."""
        k = len(self.classes_)
        return self.theta_[: k * k].reshape(k, k)

    @property
    def intercept_(self) -> Floats:
        """Fitted intercepts b."""
        return self.theta_[len(self.classes_) ** 2 :]


def scaling_class(kind: Any) -> type[Scaling]:
    """Return the scaling of a name."""
    known = {one.kind: one for one in (TemperatureScaling, VectorScaling, DirichletScaling)}
    if not isinstance(kind, str) or kind not in known:
        choices = ", ".join(map(repr, (*known, "auto")))
        msg = f"`initial` must be None, one of {choices}, or a fitted scaling; got {kind!r}."
        raise UnknownNameError(msg)
    return known[kind]


def fit_scaling(kind: Any, probabilities: Any, labels: Any, **options: Any) -> Scaling | None:
    """Fit the scaling of a name; "auto" chooses, and may find none that helps."""
    if isinstance(kind, str) and kind == "auto":
        return choose_scaling(probabilities, labels, **options)
    return scaling_class(kind)().fit(probabilities, labels, **options)


def scaling_from_dict(data: Mapping[str, Any]) -> Scaling:
    """Read what ``to_dict`` of any scaling wrote."""
    return scaling_class(data.get("scaling")).from_dict(data)


def open_validation(validation: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return probabilities, labels, features, weights and label probabilities; None if left out."""
    if not isinstance(validation, tuple | list) or len(validation) not in {2, 3, 4, 5}:
        msg = (
            "`validation` must be (probabilities, labels), and may end with features, weights "
            f"and label_probability; got {type(validation).__name__}."
        )
        raise InvalidInputError(msg)
    check_row_order(**{f"validation[{k}]": value for k, value in enumerate(validation)})
    given, labels, features, weights, chance = (*validation, None, None, None)[:5]
    return given, labels, features, weights, chance


def choose_scaling(
    probabilities: Any,
    labels: Any,
    *,
    tree: LabelTree | None = None,
    weights: Any = None,
    label_probability: Any = None,
    validation: tuple[Any, ...] | None = None,
) -> Scaling | None:
    """Fit the scaling of least held-out log loss; None where none is better beyond noise.

    Parameters are those of ``fit``. Every scaling is judged by the rows of ``validation``, or by
    five folds. The best must beat the predictions as they are by more than one standard error of
    the paired difference, so that a calibrated model stays as it is. Scalings with more than five
    parameters for each row are not tried.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.dirichlet([1, 1, 1], 2000)
    >>> labels = (p.cumsum(axis=1) < rng.uniform(size=(2000, 1))).sum(axis=1)
    >>> choose_scaling(p, labels) is None
    True
    >>> sharp = p**3 / (p**3).sum(axis=1, keepdims=True)
    >>> scaling = choose_scaling(sharp, labels)
    >>> scaling.predict_proba(sharp[:1]).round(1), p[:1].round(1)
    (array([[0.4, 0.6, 0. ]]), array([[0.4, 0.6, 0. ]]))
    """
    tree = _tree_of(probabilities, tree)
    judge = TemperatureScaling()
    rows = judge.read_rows(probabilities, labels, tree, weights, label_probability)
    held = rows.take(rows.share > 0)
    if validation is not None:
        held = judge.read_validation(validation, tree)
    given = {"weights": weights, "label_probability": label_probability, "validation": validation}
    plain = judge.make_map(tree.n_leaves)
    before = row_losses(plain.start(), plain, held)
    best, most = None, 0.0
    for kind in (TemperatureScaling, VectorScaling, DirichletScaling):
        scaling: Scaling = kind()
        n_parameters = scaling.make_map(tree.n_leaves).start().size
        if n_parameters > _MOST_PARAMETERS_PER_ROW * held.times.sum():
            continue
        scaling.fit(probabilities, labels, tree=tree, **given)
        mean, noise = held.mean(before - scaling.held_out_losses)
        if mean > max(noise, most):
            best, most = scaling, mean
    return best


def _check_strength(regularization: Any) -> float | None:
    """Return a number, or None where data must choose."""
    if isinstance(regularization, str) and regularization == "auto":
        return None
    also = f"'auto', which tries {STRENGTHS[0]:g} to {STRENGTHS[-1]:g}"
    return check_number("regularization", regularization, least=0, also=also)


def _tree_of(probabilities: Any, tree: LabelTree | None) -> LabelTree:
    if tree is not None:
        return tree
    columns = getattr(probabilities, "columns", None)
    if columns is not None:
        return LabelTree.flat([str(column) for column in columns])
    shape = np.shape(probabilities)
    return LabelTree.flat([str(k) for k in range(shape[1] if len(shape) == 2 else 2)])
