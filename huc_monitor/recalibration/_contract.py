"""What boosting asks of the scaling it starts from, and how a scaling is found by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

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


def fit_scaling(kind: Any, probabilities: Any, labels: Any, **options: Any) -> Scaling | None:
    """Fit the scaling of that name; "auto" is the one of least held-out log loss, or none."""
    if isinstance(kind, str) and kind == AUTO:
        module = import_module("huc_monitor.recalibration._scalings")
        chosen: Scaling | None = module.choose_scaling(probabilities, labels, **options)
        return chosen
    return scaling_class(kind)().fit(probabilities, labels, **options)


def scaling_from_dict(data: Mapping[str, Any]) -> Scaling:
    """Read any scaling's JSON form."""
    return scaling_class(data.get("scaling")).from_dict(data)
