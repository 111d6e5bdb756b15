"""``huc-monitor audit``: one look at a labelled prediction log."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from huc_monitor.cli import options
from huc_monitor.cli.reading import note_aside, read_log

FINE, ALERT = 0, 1


def run(
    predictions: Annotated[
        Path, typer.Argument(help="Parquet or CSV file, or a folder of Parquet files.")
    ],
    tree: options.Tree,
    *,
    label: options.Label = None,
    label_mapping: options.LabelMapping = None,
    prefix: options.Prefix = None,
    lists: options.Lists = None,
    classes: options.Classes = None,
    form: options.Form = None,
    cluster: options.Cluster = None,
    label_probability: options.LabelProbability = None,
    utility: options.Utilities = None,
    subgroup: options.Groups = None,
    tolerance: Annotated[
        float | None, typer.Option(min=0, help="Exit with 1 if a moment is larger than this.")
    ] = None,
    bounds: options.Bounds,
    confidence: options.Confidence,
    top: options.Top = 10,
    as_json: options.Json = False,
) -> None:
    """Audit labelled predictions and list the branches that cost the most utility.

    A moment is the mean gap between realised and predicted utility that one branch of the tree is
    responsible for, over the range of predicted utility where it is largest. Positive: the model
    understates the utility; negative: it overstates it.

    Example: huc-monitor audit log.parquet --tree tree.yaml --label y --tolerance 0.02
    """
    import huc_monitor as hm
    from huc_monitor.cli.showing import print_json, say, show_audit
    from huc_monitor.cli.specs import parse_subgroups, parse_utilities

    label_tree = hm.LabelTree.from_file(tree)
    utilities = parse_utilities(utility or [], label_tree)
    rules = parse_subgroups(subgroup or [])
    data = read_log(
        predictions,
        tree=label_tree,
        label=label,
        label_mapping=label_mapping,
        prefix=prefix,
        lists=lists,
        classes=classes,
        form=form,
        features=list(rules),
        cluster=cluster,
        label_probability=label_probability,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hm.HUCWarning)  # told below, as a note of the result
        result = hm.audit(
            data.probabilities,
            data.codes,
            tree=label_tree,
            utilities=utilities,
            subgroups=hm.Subgroups.from_reference(data.features, rules) if rules else None,
            features=data.features if rules else None,
            clusters=data.cluster_keys,
            label_probability=data.label_probability,
            familiar=True,
            bounds=bounds,
            confidence_level=confidence,
        )
    result = replace(result, notes=(*note_aside(data, label_tree), *result.notes))
    n_unlabelled = data.n_predictions - data.n_labelled
    alert = tolerance is not None and len(result.violations(tolerance)) > 0
    if as_json:
        document = {
            "status": "alert" if alert else "ok",
            "tolerance": tolerance,
            "n_unlabelled": n_unlabelled,
            "audit": result.to_dict(),
            "label_tree": label_tree.to_dict(),
        }
        print_json(document)
    else:
        show_audit(result, tolerance=tolerance, top=top)
        for note in result.notes:
            say(f"Note: {note}")
        if n_unlabelled:
            typer.echo(f"{n_unlabelled:,} rows without a label were left out.")
    raise typer.Exit(ALERT if alert else FINE)
