"""When a change began: the windows that cannot be excluded as its first.

The change test gives a candidate and an interval of scores. Its moment there is a mean in every
window, m_t, with a variance v_t known from the rows; m_0 is the reference's. If the change began
with window k, all means before have one expectation and those from k on another. With weights
1 / v, the likelihood of k, maximised over the two levels, is a constant plus half of

    Q(k) = (sum of w m before k)^2 / (sum of w before k) + the same from k on.

The likeliest onset maximises Q. Window k is in the confidence set unless max Q - Q(k) is larger
than chance makes it if the change did begin at k: larger than its quantile over normal means with
the two levels fitted for k. This inverts one test per k, so that the set holds the true onset with
the stated probability, whatever it is. The interval was chosen by the same rows, and a change may
be gradual: both are outside the model, and simulation (tests/bench/change.py) is the check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from huc_monitor._common.forms import Form
from huc_monitor.audit.comparison import Difference
from huc_monitor.audit.options import AuditOptions
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.two_samples import Sample
from huc_monitor.detection.change import candidate_terms
from huc_monitor.errors import InvalidInputError
from huc_monitor.utilities.program import Floats


@dataclass(frozen=True, slots=True)
class Onset(Form):
    """Windows with which a change may have begun, counted from 0, the oldest that was kept.

    Attributes
    ----------
    likeliest : int
    windows : tuple of int
        All that cannot be excluded; ``first`` and ``last`` are its ends. Where ``first`` is 0 the
        change may have begun before.
    confidence_level : float
        Probability that the true first window is among them.
    """

    likeliest: int
    windows: tuple[int, ...]
    confidence_level: float

    @property
    def first(self) -> int:
        """Earliest window that cannot be excluded."""
        return self.windows[0]

    @property
    def last(self) -> int:
        """Latest window that cannot be excluded."""
        return self.windows[-1]


def find_onset(
    reference: Sample,
    windows: Sequence[Sample],
    plan: AuditPlan,
    candidate: Difference,
    *,
    confidence_level: float = 0.9,
) -> Onset:
    """Say with which windows, oldest first, the change of a candidate may have begun.

    Parameters
    ----------
    reference : Sample
    windows : list of Sample, oldest first
    plan : AuditPlan
        By which the samples were decomposed: that of the change test.
    candidate : Difference
        A change of `ChangeStep.changes`, with its interval.
    confidence_level : float, default 0.9

    Returns
    -------
    Onset
    """
    if not windows:
        msg = "`windows` must hold at least one window; got none."
        raise InvalidInputError(msg)
    means, variances = window_means([reference, *windows], plan, candidate)
    return onset_set(means, variances, confidence_level=confidence_level)


def window_means(
    samples: Sequence[Sample], plan: AuditPlan, candidate: Difference
) -> tuple[Floats, Floats]:
    """Moment of a candidate on its interval in every sample, and the variance of each."""
    means, variances = np.array([_mean(sample, plan, candidate) for sample in samples]).T
    return means, variances


def _mean(sample: Sample, plan: AuditPlan, at: Difference) -> tuple[float, float]:
    """Moment of a candidate on its interval, and the variance of that mean."""
    scores, terms = candidate_terms(sample, plan, at.utility, at.subgroup, at.node)
    terms = np.where((scores >= at.interval_low) & (scores <= at.interval_high), terms, 0.0)
    mean, variance = sample.groups.mean(terms)
    # A window without such rows still says that they are rare: as if one more had been there.
    largest, n = float(np.abs(terms).max(initial=0.0)) or 1.0, sample.groups.sizes().n
    return mean, max(variance, largest**2 / n**2)


def onset_set(
    means: Floats, variances: Floats, *, confidence_level: float = 0.9, n_draws: int = 2000
) -> Onset:
    """Return the confidence set of the first changed window.

    Parameters
    ----------
    means, variances : (1 + T,) of the reference, then of every window, oldest first

    Examples
    --------
    >>> onset_set(np.array([0.0, 0.1, -0.1, 0.9, 1.0]), np.full(5, 0.01))
    Onset(likeliest=2, windows=(2,), confidence_level=0.9)
    """
    level = AuditOptions(confidence_level=confidence_level).confidence_level
    weights = 1.0 / variances
    observed = _profile(means[None], weights)[0]
    noise = np.random.default_rng(0).standard_normal((n_draws, means.size))
    kept = []
    for k in range(means.size - 1):
        before = np.arange(means.size) <= k
        levels = [np.average(means[part], weights=weights[part]) for part in (before, ~before)]
        drawn = _profile(np.where(before, *levels) + noise * np.sqrt(variances), weights)
        limit = np.quantile(drawn.max(axis=1) - drawn[:, k], level, method="higher")
        if observed.max() - observed[k] <= limit:
            kept.append(k)
    likeliest = int(np.argmax(observed))
    # The likeliest loses nothing to itself, so it is never excluded.
    return Onset(likeliest, tuple(kept), level)


def _profile(means: Floats, weights: Floats) -> Floats:
    """Q(k) of every row of means, for a change that begins with window k; shape (rows, T)."""
    sums = (means * weights).cumsum(axis=1)
    mass = weights.cumsum()
    after = (sums[:, -1:] - sums[:, :-1]) ** 2 / (mass[-1] - mass[:-1])
    found: Floats = sums[:, :-1] ** 2 / mass[:-1] + after
    return found
