"""Rows that make fixed-step HUC-Boost accurate on the population, not only on its sample.

The constants of the paper's appendix on explicit sample complexity, for a fixed initial predictor
and for the three that are learned from the same rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from huc_monitor.audit.options import DEFAULTS
from huc_monitor.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class InitialModel:
    """What HUC-Boost starts from: the constants of ass:random-init-main.

    Build one with `fixed`, `temperature`, `vector` or `dirichlet`.

    Attributes
    ----------
    dimension : int
        Learned parameters d; 0 when the predictor does not depend on the sample.
    initial_loss : float
        Bound D_0 on its mean log loss over the sample.
    parameter_bound : float
        Bound R on the absolute value of every learned parameter.
    lipschitz : float
        Largest change L of a logit per unit change of the parameters.
    """

    dimension: int
    initial_loss: float
    parameter_bound: float = 0.0
    lipschitz: float = 0.0

    @classmethod
    def fixed(cls, *, initial_loss: float) -> InitialModel:
        """Predictor fixed before the sample was drawn, with a bound on its mean log loss."""
        return cls(0, _positive("initial_loss", initial_loss))

    @classmethod
    def temperature(
        cls, *, smallest_probability: float, largest_parameter: float, initial_loss: float
    ) -> InitialModel:
        """Temperature scaling, rtf:eq:temperature-model: the parameter is 1 / temperature."""
        return cls(
            1,
            _positive("initial_loss", initial_loss),
            _positive("largest_parameter", largest_parameter),
            _log_inverse(smallest_probability),
        )

    @classmethod
    def vector(
        cls,
        *,
        n_leaves: int,
        smallest_probability: float,
        largest_parameter: float,
        initial_loss: float,
    ) -> InitialModel:
        """Vector scaling, rtf:eq:vector-model: a slope and an intercept per leaf."""
        return cls(
            2 * n_leaves,
            _positive("initial_loss", initial_loss),
            _positive("largest_parameter", largest_parameter),
            1.0 + _log_inverse(smallest_probability),
        )

    @classmethod
    def dirichlet(
        cls, *, n_leaves: int, smallest_probability: float, regularization: float
    ) -> InitialModel:
        """Dirichlet calibration with an L2 penalty, rtf:prop:dirichlet.

        The penalised fit must be no worse than the uniform prediction, which any descent from zero
        parameters is.

        Examples
        --------
        >>> model = InitialModel.dirichlet(
        ...     n_leaves=5, smallest_probability=0.01, regularization=0.1
        ... )
        >>> model.dimension, round(model.parameter_bound, 3), round(model.lipschitz, 3)
        (30, 5.674, 24.026)
        """
        return cls(
            n_leaves * (n_leaves + 1),
            math.log(n_leaves),
            math.sqrt(2.0 * math.log(n_leaves) / _positive("regularization", regularization)),
            1.0 + n_leaves * _log_inverse(smallest_probability),
        )

    def max_updates(self, accuracy: float) -> int:
        """Bound T on the number of updates: rtf:eq:T-fixed, rtf:eq:learned-stopping."""
        updates = math.ceil(4.0 * self.initial_loss / accuracy**2)
        return updates + 4 if self.dimension else updates

    def noise_width(self, accuracy: float) -> float:
        """Half-width a of the uniform noise to add once to learned parameters."""
        return accuracy**2 / (2.0 * self.lipschitz) if self.dimension else 0.0

    def log_density_ratio(self, accuracy: float) -> float:
        """Price Lambda of learning the start from the same rows, rtf:eq:learned-scales."""
        if not self.dimension:
            return 0.0
        return self.dimension * math.log1p(self.parameter_bound / self.noise_width(accuracy))


def n_star(
    accuracy: float,
    *,
    initial: InitialModel,
    n_candidates: int,
    confidence_level: float = DEFAULTS.confidence_level,
) -> int:
    """Rows after which fixed-step HUC-Boost leaves a population HUC of at most ``accuracy``.

    The sufficient number of rtf:eq:sample-explicit-generic, for the algorithm with audit threshold
    3/4 accuracy and step accuracy/2, and, for a learned start, noise of `InitialModel.noise_width`
    added once. It holds for every distribution and is very large: an order of magnitude, not
    a target. Judge a repair on held-out rows instead.

    Parameters
    ----------
    accuracy : float in (0, 1]
    initial : InitialModel
    n_candidates : int
        Subgroups times relevant branches, summed over utilities.
    confidence_level : float, default 0.95

    Examples
    --------
    >>> start = InitialModel.fixed(initial_loss=1.0)
    >>> n_star(0.5, initial=start, n_candidates=84)
    2171520
    """
    if not 0 < accuracy <= 1:
        msg = f"`accuracy` must lie in (0, 1]; got {accuracy!r}."
        raise InvalidInputError(msg)
    nu = initial.max_updates(accuracy) + 1
    inner = (
        initial.log_density_ratio(accuracy)
        + nu * math.log(18.0 * n_candidates)
        - math.log(1.0 - confidence_level)
        + 2.0 * nu * math.log(2048.0 * nu / accuracy**2)
    )
    return math.ceil(1024.0 / accuracy**2 * inner)


def _positive(argument: str, value: float) -> float:
    if not (isinstance(value, int | float) and 0 < value < math.inf):
        msg = f"`{argument}` must be a positive number; got {value!r}."
        raise InvalidInputError(msg)
    return float(value)


def _log_inverse(smallest_probability: float) -> float:
    if not 0 < smallest_probability < 1:
        msg = (
            f"`smallest_probability` must lie strictly between 0 and 1; got "
            f"{smallest_probability!r}. Mix predictions with a uniform share s: s / n_leaves."
        )
        raise InvalidInputError(msg)
    return math.log(1.0 / smallest_probability)
