"""Finding a recalibrator: candidates fitted on older labels, one chosen, judged on the newest.

The rows come in order of time. The oldest part fits, the next part chooses, and the newest part
is looked at once, by the gate: so its figures are those of data that no choice has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from huc_monitor._common.forms import Form
from huc_monitor._common.frames import to_frame
from huc_monitor._common.row_order import check_row_order
from huc_monitor._common.stages import begin_stage
from huc_monitor.audit import audit
from huc_monitor.audit.clusters import ClusterKeys, check_clusters, check_label_probability
from huc_monitor.audit.compare import compare
from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.inputs import (
    check_labels,
    check_predictions,
    check_subgroups,
    check_utilities,
)
from huc_monitor.audit.options import DEFAULTS
from huc_monitor.audit.result import AuditResult
from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.recalibration._boost import HUCBoost
from huc_monitor.recalibration._log_loss import label_losses, shares
from huc_monitor.recalibration._scalings import scaling_class
from huc_monitor.recalibration.gate import Gate
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LeafCodes
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats, Ints

NOTHING = "nothing"
SCALINGS = ("temperature", "vector", "dirichlet")
CANDIDATES = (NOTHING, "huc_boost", *SCALINGS, *(f"{name}+huc_boost" for name in SCALINGS))
_PARTS = (0.6, 0.8)
_FEWEST_ROWS = 100


@dataclass(frozen=True, slots=True)
class Figures(Form):
    """How one set of probabilities does on some rows; bounds are those of HUC."""

    n: int
    huc: float
    huc_lower: float | None
    huc_upper: float | None
    uc: float
    log_loss: float
    accuracy: float


@dataclass(frozen=True, slots=True, eq=False)
class Recalibration:
    """The chosen recalibrator and what the gate says of it.

    Attributes
    ----------
    name : str
        Of the chosen candidate; "nothing" when none did better on the choosing rows.
    recalibrator : HUCBoost, scaling or None
    passed : bool
    reasons : tuple of str
        Why it did not pass.
    base, before, after : Figures
        Of the base model, of the model that serves now (the base, or an earlier recalibration of
        it) and of the chosen candidate, on the held-out rows, looked at once.
    choices : dict of str to Figures
        Every candidate on the choosing rows.
    held_out : AuditResult
        Of the chosen candidate.
    comparison : Comparison or None
        Of the model that serves now and the chosen candidate, on the held-out rows; None where
        nothing was chosen.
    """

    name: str
    recalibrator: Any
    passed: bool
    reasons: tuple[str, ...]
    base: Figures
    before: Figures
    after: Figures
    choices: dict[str, Figures] = field(repr=False)
    held_out: AuditResult = field(repr=False)
    comparison: Comparison | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe summary, without the recalibrator."""
        return {
            "name": self.name,
            "passed": self.passed,
            "reasons": list(self.reasons),
            "base": self.base.to_dict(),
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "huc_difference": None
            if self.comparison is None
            else [self.comparison.huc.lower, self.comparison.huc.upper],
            "choices": {name: figures.to_dict() for name, figures in self.choices.items()},
        }


def find_recalibration(
    probabilities: Any,
    labels: Any,
    *,
    tree: LabelTree,
    utilities: Sequence[Utility],
    subgroups: Subgroups | None = None,
    features: pd.DataFrame | None = None,
    clusters: Any = None,
    label_probability: Any = None,
    current: Any = None,
    candidates: Sequence[str] = CANDIDATES,
    targets: Sequence[tuple[str, str, str]] = (),
    gate: Gate | None = None,
    confidence_level: float = DEFAULTS.confidence_level,
    rng: int = DEFAULTS.rng,
) -> Recalibration:
    """Fit the candidates, choose one, and judge it once on the newest rows.

    Parameters
    ----------
    probabilities : (n, K) of the base model, rows in order of time
    labels : (n,) labels as in `audit`, at any depth
    features : DataFrame of n rows, optional
        Columns that the subgroups read.
    clusters : (n,), optional
        As in `audit`. All rows of a cluster fit, choose or judge: clusters are ordered by their
        rows' mean place in time.
    label_probability : (n,), optional
        As in `audit`. Rows fit, choose and judge by the inverse of it.
    current : (n, K), optional
        Of the model that serves now, which must be beaten; the base when left out. It differs
        where the base was recalibrated before: candidates are always fitted to the base.
    candidates : list of str
        Of "nothing" (keep the model that serves now), "huc_boost", a scaling, or a scaling and
        "+huc_boost".
    targets : list of (utility, subgroup, node), optional
        What must get better, such as candidates with an open alert: of the recalibrators that halve
        the largest absolute moment among them, those of least log loss, within a standard error,
        are left, and the one of lowest HUC is chosen; if none halves it, the one of least log loss
        under which it is smallest. The gate asks for it too. Candidates that an audit here does not
        have are left out; HUC when none is left.

    Returns
    -------
    Recalibration

    Examples
    --------
    >>> import numpy as np, huc_monitor as hm
    >>> rng = np.random.default_rng(0)
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    >>> p = rng.dirichlet([2, 2, 2], 3000)
    >>> y = np.array([rng.choice(3, p=row[[1, 0, 2]]) for row in p])
    >>> recalibration = find_recalibration(
    ...     p, y, tree=tree, utilities=[hm.LevelCorrectness(level=2)]
    ... )
    >>> recalibration.passed, recalibration.after.huc < recalibration.before.huc / 3
    (True, True)
    """
    design = {"clusters": clusters, "label_probability": label_probability, "current": current}
    check_row_order(probabilities=probabilities, labels=labels, features=features, **design)
    predictions = check_predictions(probabilities, tree=tree)
    codes = check_labels(labels, predictions.n, tree=tree)
    features, candidates = to_frame(features, "features"), tuple(candidates)
    if features is not None and len(features) != predictions.n:
        msg = (
            f"`features` must have a row per prediction ({predictions.n}); got {len(features)}. "
            "Pass those of the same rows, in the same order."
        )
        raise InvalidInputError(msg)
    if not candidates:
        msg = f"`candidates` must name at least one of {', '.join(CANDIDATES)}; got none."
        raise InvalidInputError(msg)
    if predictions.n < _FEWEST_ROWS:
        msg = (
            f"`probabilities` must have at least {_FEWEST_ROWS} rows to fit, choose and judge a "
            f"recalibration; got {predictions.n}. Wait for more labels."
        )
        raise InvalidInputError(msg)
    base = predictions.positive()
    if current is not None:
        serving = check_predictions(current, tree=tree)
        if serving.n != predictions.n:
            counts = f"{serving.n} for {predictions.n}"
            msg = f"`current` must have a row per row of the base; got {counts}."
            raise InvalidInputError(msg)
    task = _Task(
        base,
        base if current is None else serving.positive(),
        codes,
        features,
        check_clusters(clusters, predictions.n),
        {
            "tree": tree,
            "utilities": check_utilities(utilities),
            "subgroups": check_subgroups(subgroups),
            "confidence_level": confidence_level,
            "rng": rng,
        },
        check_label_probability(label_probability, predictions.n),
    )
    fit, choose, judge = task.parts()
    fitted = {}
    for place, name in enumerate(candidates, start=1):
        begin_stage(f"fitting {name} ({place} of {len(candidates)})")
        fitted[name] = task.fit(name, fit, choose)
    begin_stage("comparing what was fitted on later rows")
    choices, sizes, excess = {}, {}, {}
    for name, model in fitted.items():
        found = task.predict(model, choose)
        choices[name], result = task.figures(found, choose)
        sizes[name], excess[name] = _largest(result, targets), task.excess(found, choose)
    name = _choose(choices, sizes, excess)
    before, _ = task.figures(task.current[judge], judge, bounds="bootstrap")
    of_base = before
    if current is not None:
        of_base, _ = task.figures(base[judge], judge, bounds="bootstrap")
    chosen = fitted.get(name)
    recalibrated = task.predict(chosen, judge)
    after, held_out = task.figures(recalibrated, judge, bounds="bootstrap")
    comparison = None
    if name == NOTHING:
        reasons: tuple[str, ...] = (
            "no candidate did better than the serving model on the choosing rows",
        )
    else:
        comparison = task.compare(task.current[judge], recalibrated, judge)
        reasons = (gate or Gate()).reasons(
            before, after, comparison=comparison, n_labels=predictions.n, targets=targets
        )
    return Recalibration(
        name,
        chosen,
        not reasons,
        reasons,
        of_base,
        before,
        after,
        choices,
        held_out,
        comparison,
    )


def _largest(result: AuditResult, targets: Sequence[tuple[str, str, str]]) -> float:
    """Largest absolute moment of some candidates; HUC where none of them was audited."""
    table = result.candidates
    names = zip(table.utility, table.subgroup, table.node, strict=True)
    chosen = [name in targets for name in names]
    return float(np.abs(table.moment[chosen]).max()) if any(chosen) else result.huc


def _choose(choices: dict[str, Figures], sizes: dict[str, float], excess: dict[str, Floats]) -> str:
    """Choose among those whose log loss is not above the serving model's; that one on a tie.

    Those that halve what must get better go before those that only lessen it, and of them those
    under which HUC does not rise before the others. Of these, all within one standard error of the
    least log loss, so that overconfidence is mended too; of these, the one of lowest HUC, or where
    none halves, the one that leaves the least.
    """
    now = choices.get(NOTHING)
    able = [name for name, one in choices.items() if now is None or one.log_loss <= now.log_loss]
    least = sizes.get(NOTHING, np.inf)
    halved = [name for name in able if sizes[name] <= 0.5 * least]
    calmer = [name for name in halved if now is None or choices[name].huc <= now.huc]
    lessened = [name for name in able if name == NOTHING or sizes[name] < least]
    pool = calmer or halved or lessened
    best = min(pool, key=lambda name: choices[name].log_loss)
    as_good = [
        name
        for name in pool
        if choices[name].log_loss - choices[best].log_loss
        <= np.linalg.norm(excess[name] - excess[best])
    ]
    if halved:
        return min(as_good, key=lambda name: (choices[name].huc, name != NOTHING))
    return min(as_good, key=lambda name: (sizes[name], choices[name].huc, name != NOTHING))


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """The data of one search, cut by time."""

    probabilities: Floats
    current: Floats
    codes: Ints
    features: pd.DataFrame | None
    clusters: Ints | None
    asked: dict[str, Any]
    chance: Floats | None = None

    def parts(self) -> tuple[Ints, Ints, Ints]:
        """Rows that fit, choose and judge; no cluster is cut."""
        n = self.codes.size
        place: Floats = np.arange(n, dtype=np.float64)
        if self.clusters is not None:
            _, codes, counts = np.unique(self.clusters, return_inverse=True, return_counts=True)
            order = np.argsort(np.bincount(codes, place) / counts, kind="stable")
            # Where a cluster's rows lie in the middle, once clusters follow one another.
            middle = np.empty(counts.size)
            middle[order] = np.cumsum(counts[order]) - counts[order] / 2
            place = middle[codes]
        first, second = (round(share * n) for share in _PARTS)
        fit, choose, judge = (
            np.flatnonzero(mine)
            for mine in (place < first, (place >= first) & (place < second), place >= second)
        )
        if not fit.size or not choose.size or not judge.size:
            msg = (
                "`clusters` must leave rows to fit, to choose and to judge; got too few or too "
                "large ones. Wait for more labels, or leave a giant cluster out."
            )
            raise InvalidInputError(msg)
        return fit, choose, judge

    def design(self, part: Ints) -> dict[str, Any]:
        """How some rows depend on each other, and how their labels were chosen."""
        return {
            "clusters": None if self.clusters is None else ClusterKeys(self.clusters[part]),
            "label_probability": None if self.chance is None else self.chance[part],
        }

    def rows(self, part: Ints) -> tuple[Floats, LeafCodes, Any]:
        features = None if self.features is None else self.features.iloc[part]
        return self.probabilities[part], LeafCodes(self.codes[part]), features

    def fit(self, name: str, fit: Ints, choose: Ints) -> Any:
        """Fit one candidate on the older rows; regularisation and prefix by the choosing rows."""
        if name == NOTHING:
            return None
        p, codes, features = self.rows(fit)
        chance, later = (self.design(part)["label_probability"] for part in (fit, choose))
        held_out = (*self.rows(choose), None, later)
        how: Any = {"label_probability": chance, "validation": held_out}
        if name in SCALINGS:
            return scaling_class(name)().fit(p, codes, tree=self.asked["tree"], **how)
        initial, plus, _ = name.partition("+huc_boost")
        if initial not in (SCALINGS if plus else ("huc_boost",)):
            msg = f"`candidates` must be among {', '.join(CANDIDATES)}; got {name!r}."
            raise UnknownNameError(msg)
        boosted = HUCBoost(**self.asked, initial=initial if plus else None)
        return boosted.fit(p, codes, features=features, **how)

    def predict(self, model: Any, part: Ints) -> Floats:
        """Recalibrate some rows by a candidate; None is the model that serves now."""
        p, _, features = self.rows(part)
        if model is None:
            return self.current[part]
        found: Floats = (
            model.predict_proba(p, features=features)
            if isinstance(model, HUCBoost)
            else model.predict_proba(p)
        )
        return found

    def excess(self, probabilities: Floats, part: Ints) -> Floats:
        """Return what rows, or clusters, add to the mean log loss beyond their share of it.

        The norm of the difference of two is the standard error of their log losses' difference.
        """
        chance = self.design(part)["label_probability"]
        share = shares(np.ones(part.size), chance)
        losses = label_losses(probabilities, self.asked["tree"].label_slices(self.codes[part]))
        found: Floats = share * (losses - share @ losses)
        if self.clusters is not None:
            _, codes = np.unique(self.clusters[part], return_inverse=True)
            found = np.bincount(codes, found).astype(np.float64)
        return found

    def compare(self, before: Floats, after: Floats, part: Ints) -> Comparison:
        """Compare two predictors on some rows."""
        _, codes, features = self.rows(part)
        return compare(
            (before, codes),
            (after, codes),
            paired=True,
            features=features,
            **self.design(part),
            **self.asked,
        )

    def figures(
        self, probabilities: Floats, part: Ints, bounds: str | None = None
    ) -> tuple[Figures, AuditResult]:
        """Audit some rows as predicted."""
        _, codes, features = self.rows(part)
        return measure(
            probabilities,
            codes,
            features=features,
            **self.design(part),
            bounds=bounds,
            **self.asked,
        )


def measure(
    probabilities: Floats,
    labels: Any,
    *,
    tree: LabelTree,
    bounds: str | None = None,
    **options: Any,
) -> tuple[Figures, AuditResult]:
    """Measure HUC, log loss and accuracy of one set of probabilities; `options` as in `audit`."""
    probabilities = check_predictions(probabilities, tree=tree).positive()
    codes = check_labels(labels, len(probabilities), tree=tree)
    result = audit(probabilities, LeafCodes(codes), tree=tree, bounds=bounds, **options)
    first, last = tree.label_slices(codes)
    chosen, wide = probabilities[np.arange(codes.size), first], np.flatnonzero(last - first > 1)
    leaves = np.arange(tree.n_leaves)
    under = (leaves >= first[wide, None]) & (leaves < last[wide, None])
    chosen[wide] = np.where(under, probabilities[wide], 0.0).sum(axis=1)
    top = probabilities.argmax(axis=1)
    chance = options.get("label_probability")
    weights = None if chance is None else 1.0 / chance
    figures = Figures(
        n=codes.size,
        huc=result.huc,
        huc_lower=result.huc_lower if bounds else None,
        huc_upper=result.huc_upper if bounds else None,
        uc=result.uc,
        log_loss=float(np.average(-np.log(chosen), weights=weights)),
        accuracy=float(np.average((first <= top) & (top < last), weights=weights)),
    )
    return figures, result
