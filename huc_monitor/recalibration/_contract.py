"""What boosting asks of the scaling it starts from, and how a scaling is found by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from huc_monitor.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from huc_monitor.tree import LabelTree
    from huc_monitor.utilities.program import Floats

# Where each scaling lives; loaded on first use.
_HOME = {
    "temperature": "TemperatureScaling",
    "vector": "VectorScaling",
    "dirichlet": "DirichletScaling",
}


AUTO = "auto"
_ROWS_PER_PARAMETER = 10


class Scaling(ABC):
    """A parametric map of the whole predicted distribution, fitted by log loss.

    Boosting fits it first and corrects what it leaves. ``kind`` is its name in JSON and in
    ``HUCBoost(initial=...)``. `predict_proba` must treat every row by itself and give the same
    bits whatever the other rows are, because updates are replayed on single rows.
    """

    kind: ClassVar[str]

    @abstractmethod
    def fit(
        self,
        probabilities: Any,
        labels: Any,
        *,
        tree: LabelTree,
        weights: Any = None,
        validation: tuple[Any, ...] | None = None,
    ) -> Self:
        """Fit on probabilities and labels; ``validation`` starts with the same two."""

    @abstractmethod
    def predict_proba(self, probabilities: Any) -> Floats:
        """Return scaled probabilities: new, positive, of the same shape."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """JSON form with ``"scaling": kind`` and ``"schema_version"``."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; the same input gives the same bits."""


def scaling_class(kind: Any) -> type[Scaling]:
    """Find the scaling of that name."""
    if not isinstance(kind, str) or kind not in _HOME:
        choices = ", ".join(map(repr, (*_HOME, AUTO)))
        msg = f"`initial` must be None, one of {choices}, or a fitted scaling; got {kind!r}."
        raise UnknownNameError(msg)
    module = import_module("huc_monitor.recalibration._scalings")
    found: type[Scaling] = getattr(module, _HOME[kind])
    return found


def affordable_scaling(n_rows: float, n_leaves: int) -> str:
    """Name the richest scaling with at least ten rows for each of its parameters.

    Its penalty takes back what the rows do not support, and on the paper's data sets richer maps
    left boosting less to correct for as long as they were affordable.

    Examples
    --------
    >>> affordable_scaling(1_000, 5), affordable_scaling(2_300, 60), affordable_scaling(50, 10)
    ('dirichlet', 'vector', 'temperature')
    """
    if n_rows >= _ROWS_PER_PARAMETER * n_leaves * (n_leaves + 1):
        return "dirichlet"
    return "vector" if n_rows >= _ROWS_PER_PARAMETER * 2 * n_leaves else "temperature"


def fit_scaling(kind: Any, probabilities: Any, labels: Any, **options: Any) -> Scaling:
    """Fit the scaling of that name; "auto" is the richest one that the rows afford."""
    if isinstance(kind, str) and kind == AUTO:
        n_rows, n_leaves = np.shape(probabilities)
        weights = options.get("weights")
        # A row that stands for two counts twice, as it does everywhere else.
        kind = affordable_scaling(n_rows if weights is None else np.sum(weights), n_leaves)
    return scaling_class(kind)().fit(probabilities, labels, **options)


def scaling_from_dict(data: Mapping[str, Any]) -> Scaling:
    """Read any scaling's JSON form."""
    return scaling_class(data.get("scaling")).from_dict(data)
