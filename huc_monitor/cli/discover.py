"""``huc-monitor discover``: subgroups nobody named in which a branch misstates utility."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from huc_monitor.audit.discovery.options import SEARCH
from huc_monitor.cli import options
from huc_monitor.cli.reading import read_log

FINE, FOUND = 0, 1


def run(
    predictions: Annotated[Path, typer.Argument(help="Labelled log, as for `audit`.")],
    tree: options.Tree,
    *,
    feature: Annotated[list[str], typer.Option(help="Column to describe segments by; repeatable.")],
    label: options.Label = None,
    prefix: options.Prefix = None,
    lists: options.Lists = None,
    classes: options.Classes = None,
    utility: options.Utilities = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Certify segments whose moment is larger than this.")
    ] = 0.0,
    conditions: Annotated[
        int, typer.Option(min=1, max=3, help="Conditions that a segment may combine.")
    ] = SEARCH.max_conditions,
    confidence: options.Confidence,
    as_json: options.Json = False,
) -> None:
    """Find segments of rows in which a branch misstates utility, and certify them.

    Half of the rows are searched; the other half, which chose nothing, bounds what was found. What
    holds there is printed with the lines to paste into huc.yaml; exit code 1 if there is any.

    Example: huc-monitor discover log.parquet --tree tree.yaml --label y --feature age --feature app
    """
    import yaml

    import huc_monitor as hm
    from huc_monitor._common.safe_text import line
    from huc_monitor.cli.showing import print_json, say, wrapped
    from huc_monitor.cli.specs import parse_utilities
    from huc_monitor.tree.labels import LeafCodes

    label_tree = hm.LabelTree.from_file(tree)
    where = {"label": label, "prefix": prefix, "lists": lists, "classes": classes}
    data = read_log(predictions, tree=label_tree, features=list(dict.fromkeys(feature)), **where)
    found = hm.discover(
        data.probabilities,
        LeafCodes(data.labels),
        tree=label_tree,
        features=data.features,
        utilities=parse_utilities(utility or [], label_tree),
        tolerance=tolerance,
        max_conditions=conditions,
        confidence_level=confidence,
    )
    if as_json:
        status = "found" if found.certified else "none"
        print_json({"status": status, "discovery": found.to_dict()})
        raise typer.Exit(FOUND if found.certified else FINE)
    typer.echo(
        f"{len(found.certified)} certified of {len(found.segments)} found "
        f"({found.n_searched:,} rows searched, {found.n_certifying:,} certifying, "
        f"{found.confidence_level:.4g} confidence)."
    )
    for segment in found.segments:
        typer.echo(wrapped(f"  - {line(str(segment))}"))
    for note in found.notes:
        say(f"Note: {note}")
    if found.predicates:
        section = {"subgroups": {"predicates": found.predicates}}
        typer.echo("\nTo watch them, add to huc.yaml:\n")
        typer.echo(yaml.safe_dump(section, sort_keys=False, default_flow_style=None).rstrip())
    raise typer.Exit(FOUND if found.certified else FINE)
