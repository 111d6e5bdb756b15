"""``huc-monitor demo``: an audit of built-in data whose answer is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from huc_monitor.audit import AuditResult

_TREE = {"ward": ["worse", "stable"], "home": ["slow", "well"]}
_PREDICTED = {"worse": 0.25, "stable": 0.25, "slow": 0.25, "well": 0.25}
_HAPPENED = {"worse": 2_000, "stable": 0, "slow": 3_000, "well": 3_000}
_WORTH = {"worse": -1.0, "stable": 1.0, "slow": 1.0, "well": 1.0}


def run(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
) -> None:
    """Audit built-in data where two wrong branches cancel, so that UC sees nothing.

    A model gives every patient the same four probabilities. More patients go home than it says,
    and those who stay fare worse than it says. Both errors have the same size in utility.
    """
    from huc_monitor.cli.showing import show_audit

    result = audit_cancellation()
    if as_json:
        document = {
            "status": "ok",
            "audit": result.to_dict(),
            "label_tree": result.tree.to_dict(),
        }
        typer.echo(json.dumps(document, allow_nan=False))
        return
    show_audit(result, tolerance=None, top=10)
    typer.echo(
        "UC, the gap over the whole tree, sees nothing: the branches' errors cancel. HUC looks at "
        "each branch before they do."
    )


def audit_cancellation() -> AuditResult:
    """Audit ex:exact-uc-zero-huc-positive of the paper: UC is 0, HUC is 1/4.

    Examples
    --------
    >>> result = audit_cancellation()
    >>> result.uc, result.huc
    (0.0, 0.25)
    """
    import pandas as pd

    import huc_monitor as hm

    labels = [label for label, count in _HAPPENED.items() for _ in range(count)]
    return hm.audit(
        pd.DataFrame(_PREDICTED, index=range(len(labels))),
        labels,
        tree=hm.LabelTree.from_nested(_TREE, root="discharge"),
        utilities=[hm.Payoff("outcome", _WORTH)],
        bounds=None,
    )
