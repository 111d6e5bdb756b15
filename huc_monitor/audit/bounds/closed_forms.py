r"""Radii: how far an empirical moment may lie from the population's, for all candidates at once.

Three ways, all simultaneous over candidates and over all intervals of score:

``theorem``
    Theorem 3.4, word for word: any distribution, any sample size, one radius.
``sharp``
    Any distribution, any sample size, but each candidate's radius follows the size of its own
    contributions. Derived below.
``bootstrap``
    Gaussian multipliers, see `huc_monitor.audit.bounds.bootstrap`: the narrowest, and approximate.

All three take rows, or clusters of rows, as independent draws, and the model, the utilities and the
subgroups as chosen without looking at them. Row weights are read as repetitions of independent
rows.

The sharp radius
----------------
Fix a candidate. Let A be its contribution times the subgroup's weight, s the score, n the number
of rows, N the number of candidates, 1 - d the confidence level, and x = log(2 N / d). Known in
advance: |A| <= b. Write h_I = A 1{s in I}, s2 = E A^2, and Z = sup_I |mean h_I - E h_I|; intervals
with rational ends give the same supremum, so measurability is not an issue.

1. Prefixes. Order rows by score, take random signs e_i, and let S_k be the sum of e_i A_i over the
   first k rows, S_0 = 0. An interval never splits a tie, so its sum is S_l - S_k for some k <= l,
   and its absolute value is at most max S - min S = max S + max(-S).
2. Lévy's reflection: given the rows, the e_i A_i are independent and symmetric, so
   P(max_k S_k >= t) <= 2 P(S_n >= t). Integrating over t > 0, E max S <= 2 E max(S_n, 0) = E |S_n|.
   The same holds for -S. Hence E sup_I |sum e_i h_I| <= 2 E |S_n| <= 2 (sum A_i^2)^(1/2).
3. Over the rows, by Jensen, the Rademacher average of the class is at most 2 sqrt(s2 / n), and
   symmetrisation doubles it: E Z <= E0 = 4 sqrt(s2 / n). (The theorem has 16 / sqrt(n): Doob
   instead of Lévy doubles the constant, and s2 is replaced by its largest value, 4.)
4. Concentration. Bousquet's inequality (2002, Theorem 2.3; the step behind Theorem 2.1 of
   Bartlett, Bousquet and Mendelson, 2005) on the functions +-(h_I - E h_I): their mean is zero,
   their variance at most s2, their largest value at most U = b + sqrt(s2) because
   |E h_I| <= E |A| <= sqrt(s2). With probability at least 1 - exp(-x),
   Z <= E0 + sqrt(2 x (s2 + 2 U E0) / n) + U x / (3 n),
   which increases in s2 and in E0, so upper bounds may be put in.
   Splitting the root by sqrt(p + q) <= sqrt(p) + sqrt(q), then 2 sqrt(pq) <= a p + q / a, and
   U <= 2 b gives the form of their Theorem 2.1, minimised over a > 0,
   4 (1 + a) sqrt(s2 / n) + sqrt(2 x s2 / n) + 2 b (1/3 + 1/a) x / n: the same, but wider.
5. The second moment. V = A^2 / b^2 lies in [0, 1] with mean v = s2 / b^2, so E V^2 <= v, and
   exp(-t) <= 1 - t + t^2 / 2 gives E exp(-t V) <= exp(-t v + t^2 v / 2). Chernoff at
   t = sqrt(2 x / (n v)): with probability at least 1 - exp(-x), v - W <= sqrt(2 v x / n), where W
   is the mean of V over the rows. Solving the quadratic inequality in sqrt(v),
   sqrt(s2) <= b (sqrt(x / 2n) + sqrt(W + x / 2n)); never more than b.
6. Steps 4 and 5 fail with probability at most 2 exp(-x) = d / N for one candidate, d for all. On
   the remaining event every candidate's |moment|, being a supremum over intervals, is within Z of
   the population's.

Dependent rows
--------------
Let clusters be independent of each other, of sizes m_c <= m that are taken as given, and k = n / m.
All of the above holds with k in the place of n; contributions stay those of rows.

* Steps 1 to 3: give every cluster one sign, and number its rows. The rows with number r, at most
  one per cluster, are independent given the signs' symmetry, so Lévy's reflection holds for them:
  their supremum has mean at most 2 (sum of their A^2)^(1/2). Adding up r = 1, ..., m gives
  2 (m sum A_i^2)^(1/2) by Cauchy and Schwarz, hence E0 = 4 sqrt(s2 / k).
* Step 4: clusters are not identically distributed. Klein and Rio (2005, Theorem 1.1) need no more
  than independence: with probability at least 1 - exp(-x), t = Z - E Z has
  t^2 <= x (2 V + 3 U t) for V = (s2 + 2 U E0) / k and every U / k that limits a cluster's term.
  A cluster's sum less its mean is at most 2 b m, so U = 2 b; its variance at most m sum E A_i^2.
  Solving, Z <= E0 + 3 U x / (2 k) + ((3 U x / (2 k))^2 + 2 x (s2 + 2 U E0) / k)^(1/2).
* Step 5: V_c = (sum of A^2 in c) / (m b^2) lies in [0, 1], and the sum of V_c is k times the mean
  of A^2 / b^2.

Theorem 3.4 holds with k likewise: by the same signs, and by bounded differences of whole clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor.audit.bounds.bootstrap import BootstrapBound
from huc_monitor.audit.bounds.bound import Bound, log_share
from huc_monitor.audit.clusters import Sizes
from huc_monitor.utilities.program import Floats, Ints

if TYPE_CHECKING:
    from huc_monitor.audit.decomposition import SortedRows
    from huc_monitor.audit.scan import Groups


class NoBound(Bound):
    """No statement: every radius is undefined (NaN)."""

    reads_squares = False

    def radii(self) -> Floats:
        """Return NaN for every candidate."""
        return np.full(self.n_candidates, np.nan)


class ClosedForm(Bound):
    """Counts dependent rows as if all clusters were as large as the largest."""

    @property
    def n_effective(self) -> float:
        """Rows over the rows of the largest cluster."""
        return self.sizes.n_largest or self.sizes.n


class TheoremBound(ClosedForm):
    """Theorem 3.4: finite-sample, distribution-free, one radius for all."""

    reads_squares = False

    def radii(self) -> Floats:
        """Return the theorem's radius for every candidate."""
        radius = theorem_radius(self.n_effective, self.n_candidates, self.confidence_level)
        return np.full(self.n_candidates, radius)


class SharpBound(ClosedForm):
    """Finite-sample, distribution-free, and as narrow as a candidate's contributions are small."""

    def start(self, sizes: Sizes, n_candidates: int, confidence_level: float) -> None:
        """Forget earlier visits."""
        super().start(sizes, n_candidates, confidence_level)
        self._found: list[Floats] = []

    def visit(
        self, rows: SortedRows, groups: Groups, spreads: Floats, mean_squares: Floats
    ) -> None:
        """Read the mean square of every candidate's contributions."""
        del rows, groups
        self.visit_summary(mean_squares, np.empty(0, dtype=np.int64), spreads)

    def visit_summary(self, mean_squares: Floats, ranges: Ints, spreads: Floats) -> None:
        """Turn mean squares into radii; there are no draws to read."""
        del ranges
        radii = sharp_radius(
            self.n_effective,
            mean_squares,
            spreads,
            n_candidates=self.n_candidates,
            level=self.confidence_level,
            clustered=bool(self.sizes.n_clusters),
        )
        self._found.append(radii.ravel())

    def radii(self) -> Floats:
        """Return the radii found in the visits."""
        return np.concatenate(self._found) if self._found else np.empty(0)


def theorem_radius(n: float, n_candidates: int, confidence_level: float) -> float:
    """Radius of Theorem 3.4.

    It holds for any distribution and any sample size, and is wide: about 0.5 at 2,000 rows.

    Examples
    --------
    >>> round(theorem_radius(2_000, 84, 0.95), 3)
    0.53
    """
    x = log_share(n_candidates, confidence_level)
    return 16.0 / math.sqrt(n) + 4.0 * math.sqrt(x / (2.0 * n))


def sharp_radius(
    n: Any,
    mean_square: Any,
    spread: Any,
    *,
    n_candidates: int,
    level: float,
    clustered: bool = False,
) -> Floats:
    """Variance-adaptive radius, derived at the top of this module; arguments broadcast.

    Parameters
    ----------
    n : number of rows
    mean_square : mean over all n rows of the squared contribution
    spread : limit b > 0 of the absolute contribution, known in advance
    n_candidates : how many candidates the radii hold for together
    level : probability with which they do
    clustered : whether n is the number of rows over the rows of the largest cluster

    Examples
    --------
    >>> float(round(sharp_radius(2_000, 0.04, 1.0, n_candidates=84, level=0.95), 3))
    0.055
    """
    b = np.asarray(spread, dtype=np.float64)
    x = log_share(n_candidates, level) + math.log(2.0)
    half = x / (2.0 * np.asarray(n, dtype=np.float64))
    root = b * np.minimum(1.0, np.sqrt(half) + np.sqrt(np.asarray(mean_square) / b**2 + half))
    mean = 4.0 * root / np.sqrt(n)
    limit = 2.0 * b if clustered else b + root
    variance = 4.0 * half * (root**2 + 2.0 * limit * mean)
    radius: Floats
    if clustered:
        radius = mean + 3.0 * limit * half + np.sqrt((3.0 * limit * half) ** 2 + variance)
    else:
        radius = mean + np.sqrt(variance) + (2.0 / 3.0 * limit * half)
    return radius


def make_bound(method: str | None, *, n_draws: int, seed: int) -> Bound:
    """Return the bound of that name, as `AuditOptions` has checked it; None makes none."""
    makers: dict[str | None, Callable[[], Bound]] = {
        None: NoBound,
        "theorem": TheoremBound,
        "sharp": SharpBound,
        "bootstrap": lambda: BootstrapBound(n_draws, seed),
    }
    return makers[method]()
