"""HUC-Boost and UC-Boost: corrections of the violations that an audit finds, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from huc_monitor._common.checks import check_choice, check_count
from huc_monitor.audit.options import AuditOptions
from huc_monitor.recalibration._base import Boost
from huc_monitor.recalibration._rules import (
    Pick,
    PlainRule,
    Rule,
    by_passes,
    by_size,
    evidence_rule,
)
from huc_monitor.recalibration._window import BoostWindow
from huc_monitor.utilities.program import Floats

# Enough for the 95 % quantile of a supremum; the gate needs no third digit.
_N_DRAWS = 400


@dataclass(kw_only=True, eq=False, repr=False)
class HUCBoost(Boost):
    """Recalibrate branch by branch until no branch misstates utility.

    Each update tilts the choice at one node, for one subgroup and one interval of predicted
    utility (Algorithm 3); the reach of the node, the distributions inside its children
    and all other leaves stay as they were. Calibration log loss falls with every update.

    Parameters
    ----------
    tree : LabelTree
    utilities : list of Utility, optional
        Correctness at every level when left out.
    subgroups : Subgroups or "discover", optional
        The whole population when left out. With "discover", `fit` looks in its features for
        subgroups that nobody named, in what the scaling leaves (`huc_monitor.discover`: half of the
        rows searches, half certifies), and boosts over those that are certified.
    initial : {None, "auto", "temperature", "vector", "dirichlet"} or fitted scaling, default None
        Map of the whole distribution to start from; a name is fitted on the calibration rows, and
        "auto" is the one of least held-out log loss, or none where none is better beyond noise.
        In noise-aware mode and without validation rows, updates after a scaling fitted by name are
        kept only if they lower the log loss of the rows that its five folds left out.
    mode : {"noise_aware", "paper"}, default "noise_aware"
        ``"noise_aware"`` corrects a branch only when its moment exceeds the tolerance by more than
        noise explains, at ``confidence_level`` for all candidates together, and shortens the step
        by ``shrinkage``; it stops by itself and needs no validation rows. ``"paper"`` corrects
        everything above the tolerance and leaves the rest to validation.
    step : "adaptive" or float, default "adaptive"
        Moment over curvature, or a fixed magnitude.
    traversal : {"passes", "largest"}, default "passes"
        Visit the branches top down, one update each, pass after pass; or always correct the
        largest violation of all.
    tolerance : float, default 1e-3
        Largest absolute moment that is left alone.
    max_passes : int, default 100
    max_updates : int, optional
    confidence_level : float, default 0.5
        Of the noise-aware gate: the probability that all radii hold at once. One half loses less
        on real data than 0.95, because a false update is small and a real one left out is not.
    shrinkage : {"james_stein", "lower", "none"}, default "james_stein"
    selection : {"auto", "huc", "uc", "log_loss", "last"}, default "auto"
        With validation rows, keep the prefix of updates that is best by this measure there; "last"
        keeps all. "auto" is "huc" in paper mode and "log_loss" in noise-aware mode: a few hundred
        validation rows measure log loss far better than they measure HUC.
    early_stopping : int, optional
        Stop after so many updates without a better validation measure.
    interior : float, default 1e-10
        Share of the uniform distribution mixed into every row
    rng : int, default 0
        Seed of the bootstrap behind the noise-aware gate.
    progress : bool, default False
        Show a progress bar where standard error is a terminal.

    Attributes
    ----------
    updates_ : list of Update, those kept
    history_ : DataFrame, a row per step: what was corrected, and HUC, UC and log loss after it
    checks_ : Checks, whether the theorems' guarantees held
    initial_ : fitted scaling or None
    discovery_ : Discovery or None, what `subgroups="discover"` found

    Examples
    --------
    >>> import numpy as np, huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.choice(["lion", "lynx", "dog"], size=2000, p=[0.6, 0.1, 0.3])
    >>> p = rng.dirichlet([5, 5, 5], size=2000)
    >>> boost = hm.HUCBoost(tree=tree, utilities=[hm.LevelCorrectness(level=2)]).fit(p, labels)
    >>> boost.updates_[0].node, boost.checks_.hold
    ('root', True)
    >>> boost.predict_proba(p[:1]).shape
    (1, 3)
    """

    mode: str = "noise_aware"
    traversal: str = "passes"
    max_passes: int = 100
    confidence_level: float = 0.5
    shrinkage: str = "james_stein"

    @property
    def _weighs_evidence(self) -> bool:  # type: ignore[override]
        return self.mode == "noise_aware"

    @property
    def _auto(self) -> str:  # type: ignore[override]
        return "log_loss" if self._weighs_evidence else "huc"

    def _check(self) -> None:
        super()._check()
        check_choice("mode", self.mode, ("noise_aware", "paper"))
        check_choice("traversal", self.traversal, ("passes", "largest"))
        check_choice("shrinkage", self.shrinkage, ("james_stein", "lower", "none"))
        check_count("max_passes", self.max_passes)
        AuditOptions(confidence_level=self.confidence_level)  # its limits

    def _path(self, window: BoostWindow) -> Iterator[tuple[int, Pick]]:
        rule: Rule = PlainRule(self.tolerance)
        if self._weighs_evidence:
            rule = evidence_rule(
                window,
                tolerance=self.tolerance,
                confidence_level=self.confidence_level,
                shrinkage=self.shrinkage,
                n_draws=_N_DRAWS,
                seed=self.rng,
            )
        if self.traversal == "largest":
            return by_size(window, rule, None)
        return by_passes(window, rule, self.max_passes)


@dataclass(kw_only=True, eq=False, repr=False)
class UCBoost(Boost):
    """Recalibrate the sum over branches only: the paper's comparison.

    Each update moves all leaf logits along u(p, y) - mu_u(p) for one subgroup and interval.
    UC falls; errors of opposite sign in two branches stay.

    Parameters are those of `HUCBoost` where they apply; at most 100 updates by default.
    """

    max_updates: int | None = 100

    def _path(self, window: BoostWindow) -> Iterator[tuple[int, Pick]]:
        return by_size(window, PlainRule(self.tolerance), -1)


def compiled_updates(plain: Mapping[str, Any]) -> Callable[[Floats, Floats], Floats]:
    """Compile the updates of a recalibrator's JSON form: what a served model is replayed with.

    Returns
    -------
    callable
        From (n, K) mixed and scaled probabilities and (G, n) weights of the subgroups, in the
        order in which updates first name them, to (n, K) recalibrated probabilities.
    """
    kind: type[Boost] = UCBoost if plain["type"] == UCBoost.__name__ else HUCBoost
    return kind.from_dict(plain).replay_updates
