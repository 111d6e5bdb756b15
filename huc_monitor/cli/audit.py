"""``huc-monitor audit``: one look at a labelled prediction log."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from huc_monitor.cli.specs import (
    SUBGROUP_HELP,
    UTILITY_HELP,
    default_bounds,
    default_confidence,
)

FINE, ALERT = 0, 1


def run(
    predictions: Annotated[
        Path, typer.Argument(help="Parquet or CSV file with a probability column per leaf.")
    ],
    tree: Annotated[Path, typer.Option(help="Label tree: a .yaml, .json or .csv file.")],
    label: Annotated[str, typer.Option(help="Column of the label; rows without one are left out.")],
    *,
    prefix: Annotated[
        str | None,
        typer.Option(
            help="What comes before the leaf's name in a probability column; found out if left out."
        ),
    ] = None,
    utility: Annotated[list[str] | None, typer.Option(help=UTILITY_HELP)] = None,
    subgroup: Annotated[list[str] | None, typer.Option(help=SUBGROUP_HELP)] = None,
    tolerance: Annotated[
        float | None, typer.Option(min=0, help="Exit with 1 if a moment is larger than this.")
    ] = None,
    bounds: Annotated[
        str,
        typer.Option(
            default_factory=default_bounds,
            show_default="that of huc_monitor.audit",
            help="How moments are bounded: bootstrap, sharp or theorem.",
        ),
    ],
    confidence: Annotated[
        float,
        typer.Option(
            default_factory=default_confidence,
            show_default="that of huc_monitor.audit",
            help="Probability with which all bounds hold together.",
        ),
    ],
    top: Annotated[int, typer.Option(min=1, help="Number of candidates in the table.")] = 10,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
) -> None:
    """Audit labelled predictions and list the branches that cost the most utility.

    A moment is the mean gap between realised and predicted utility that one branch of the tree is
    responsible for, over the range of predicted utility where it is largest. Positive: the model
    understates the utility; negative: it overstates it.

    Example: huc-monitor audit log.parquet --tree tree.yaml --label y --tolerance 0.02
    """
    import huc_monitor as hm
    from huc_monitor.cli.reading import read_predictions
    from huc_monitor.cli.showing import print_json, show_audit
    from huc_monitor.cli.specs import parse_subgroups, parse_utilities

    label_tree = hm.LabelTree.from_file(tree)
    utilities = parse_utilities(utility or [], label_tree)
    rules = parse_subgroups(subgroup or [])
    data = read_predictions(
        predictions, tree=label_tree, label=label, prefix=prefix, features=list(rules)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hm.HUCWarning)  # told below, as a note of the result
        result = hm.audit(
            data.probabilities,
            data.labels,
            tree=label_tree,
            utilities=utilities,
            subgroups=hm.Subgroups.from_reference(data.features, rules) if rules else None,
            features=data.features if rules else None,
            bounds=bounds,
            confidence_level=confidence,
        )
    alert = tolerance is not None and len(result.violations(tolerance)) > 0
    if as_json:
        document = {
            "status": "alert" if alert else "ok",
            "tolerance": tolerance,
            "n_unlabelled": data.n_unlabelled,
            "audit": result.to_dict(),
            "label_tree": label_tree.to_dict(),
        }
        print_json(document)
    else:
        show_audit(result, tolerance=tolerance, top=top)
        for note in result.notes:
            typer.echo(f"Note: {note}")
        if data.n_unlabelled:
            typer.echo(f"{data.n_unlabelled:,} rows without a label were left out.")
    raise typer.Exit(ALERT if alert else FINE)
