# For hospitals, and anyone whose model decides who gets scarce care: is it wrong for a group of
# patients in a way that costs them, while the average looks right?
# The patients are made up after those of SUPPORT2; put your own table in place of `patients`.
"""Find the decision that a triage model gets wrong, and for whom; then repair that branch only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import huc_monitor as hm

TREE = hm.LabelTree.from_nested(
    {
        "survived": {"milder": ["independent", "assisted"], "major": ["limited", "coma"]},
        "died": None,
    },
    root="two months later",
)
# What an occupied bed in each kind of care is worth, once the outcome is known.
DECISIONS = [
    hm.BinaryAction("palliative_talk", active=[*TREE.leaves], favours=["died"], threshold=0.5),
    hm.BinaryAction("intensive_bed", active=["limited", "coma"], favours=["coma"], threshold=0.5),
]
TOLERANCE = 0.01


def patients(n: int, seed: int) -> tuple[pd.DataFrame, Any, Any]:
    """Draw features, the model's probabilities, and outcomes.

    The model learned on younger patients: of the survivors above 70 who do badly, far more end in
    coma than it says.
    """
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(63, 15, n), 18, 98).round()
    illness = rng.choice(["cancer", "coma", "copd", "arf"], n, p=[0.3, 0.1, 0.3, 0.3])
    severity = rng.normal(size=n) + 0.02 * (age - 63) + 0.6 * (illness == "coma")
    ease = rng.normal(size=(n, 3))
    died = _chance(severity + ease[:, 0] - 1.2)
    major = _chance(0.8 * severity + ease[:, 1])
    coma = _chance(0.5 * severity + ease[:, 2] - 0.8)
    assisted = _chance(0.7 * severity)
    predicted = _outcomes(died, major, coma, assisted)
    truth = _outcomes(died, major, np.where(age > 70, _chance(_logit(coma) + 2.0), coma), assisted)
    codes = np.minimum((truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), 4)
    return pd.DataFrame({"age": age, "illness": illness}), predicted, codes


def _outcomes(died: Any, major: Any, coma: Any, assisted: Any) -> Any:
    alive = 1 - died
    milder, worse = alive * (1 - major), alive * major
    leaves = [milder * (1 - assisted), milder * assisted, worse * (1 - coma), worse * coma, died]
    return np.stack(leaves, axis=1)


def _chance(logit: Any) -> Any:
    return 1 / (1 + np.exp(-logit))


def _logit(chance: Any) -> Any:
    return np.log(chance / (1 - chance))


def main() -> None:
    """Audit last year's patients, repair, and audit this year's."""
    past, predicted, outcome = patients(12_000, seed=1)
    groups = hm.Subgroups.from_reference(past, {"age": [55, 70], "illness": "each"}, min_size=300)
    common: dict[str, Any] = {"tree": TREE, "utilities": DECISIONS, "subgroups": groups}
    before = hm.audit(predicted, outcome, features=past, rng=0, **common)
    found = before.violations(TOLERANCE)
    print(f"{len(groups)} groups, {len(DECISIONS)} decisions; more than {TOLERANCE} is too much:")
    for row in found[found["confident"]].head(3).itertuples():
        print(
            f"  {row.utility}: {row.node!r} for {row.subgroup!r} is off by "
            f"{row.moment:+.3f} [{row.lower:.3f}, {row.upper:.3f}]"
        )
    boost = hm.HUCBoost(**common).fit(predicted, outcome, features=past)
    print(f"repaired branches: {sorted({update.node for update in boost.updates_})}")
    new, predicted, outcome = patients(12_000, seed=2)
    settings: dict[str, Any] = {"features": new, "rng": 0, **common}
    as_is = hm.audit(predicted, outcome, **settings)
    repaired = hm.audit(boost.predict_proba(predicted, features=new), outcome, **settings)
    print(f"HUC of new patients: {as_is.huc:.3f} before, {repaired.huc:.3f} after the repair")


if __name__ == "__main__":
    main()
