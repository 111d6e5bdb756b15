"""Draw the picture on the first screen of the README: two wrong branches that cancel.

More patients survive than the model says, and those who survive fare worse than it says. Over the
whole tree the two errors almost cancel. Run: python examples/draw_cancellation.py [picture.svg]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import huc_monitor as hm
from huc_monitor.reporting import draw_pictures, save_picture, stack

WORTH = {"none": 1.0, "assisted": 0.6, "limited": -0.2, "coma": -0.6, "died": -1.0}


def audit(n: int = 6_000) -> hm.AuditResult:
    """Audit synthetic outcomes: survival understated, its quality overstated."""
    rng = np.random.default_rng(7)
    tree = hm.LabelTree.from_nested(
        {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}, "died": None},
        root="outcome",
    )
    predicted = rng.dirichlet([2.0, 2.0, 1.5, 1.0, 2.0], size=n)
    # How much more, or less, often each outcome happens than it is predicted.
    happened = predicted * [1.05, 1.1, 1.75, 1.45, 0.78]
    happened /= happened.sum(axis=1, keepdims=True)
    labels = (happened.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    outcome = hm.Payoff("quality of life", WORTH)
    return hm.audit(predicted, labels, tree=tree, utilities=[outcome], rng=0)


def main(path: str = "examples/images/cancellation.svg") -> None:
    """Write the picture."""
    pictures = draw_pictures(audit(), tolerance=0.02, tree_width=560)
    save_picture(stack([pictures["icicle"], pictures["waterfall"]]), Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
