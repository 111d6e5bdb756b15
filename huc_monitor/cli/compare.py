"""``huc-monitor compare``: what changed between two prediction logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from huc_monitor.cli import options
from huc_monitor.cli.reading import note_aside, read_log

FINE, ALERT = 0, 1


def run(
    before: Annotated[Path, typer.Argument(help="Parquet or CSV log, as for `audit`.")],
    after: Annotated[Path, typer.Argument(help="The log to compare with it.")],
    tree: options.Tree,
    *,
    label: options.Label = None,
    label_mapping: options.LabelMapping = None,
    paired: Annotated[
        bool,
        typer.Option(
            "--paired", help="Both logs are the same rows in the same order, of two models."
        ),
    ] = False,
    prefix: options.Prefix = None,
    lists: options.Lists = None,
    classes: options.Classes = None,
    form: options.Form = None,
    utility: options.Utilities = None,
    subgroup: options.Groups = None,
    confidence: options.Confidence,
    top: options.Top = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Draw the differences, by branch and subgroup, into a .svg or .png file."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compare two logs: two windows, or two models on the same rows.

    Of two windows, the difference is that of a branch's moment, where the two lie furthest apart;
    exit code 1 if one changed by more than chance. With --paired it is that of absolute moments,
    and negative is better; exit code 1 if HUC rose by more than chance.

    Example: huc-monitor compare may.parquet june.parquet --tree tree.yaml --label y
    """
    import pandas as pd

    import huc_monitor as hm
    from huc_monitor.cli.showing import print_json, say, show_comparison
    from huc_monitor.cli.specs import parse_subgroups, parse_utilities
    from huc_monitor.reporting import check_picture_path, save_picture, stack

    picture = None if out is None else check_picture_path(out)
    label_tree = hm.LabelTree.from_file(tree)
    rules = parse_subgroups(subgroup or [])
    where: dict[str, Any] = {"label": label, "label_mapping": label_mapping, "form": form}
    where |= {"prefix": prefix, "lists": lists, "classes": classes}
    # A row that is set aside of one model would leave the other's without its pair.
    where |= {"features": list(rules), "strict": paired}
    logs = [read_log(path, tree=label_tree, **where) for path in (before, after)]
    notes = [
        f"{path.name}: {note}"
        for path, log in zip((before, after), logs, strict=True)
        for note in note_aside(log, label_tree)
    ]
    features = [log.features for log in logs]
    sides = tuple(features) if not paired else features[1]
    cut = features[1] if paired else pd.concat(features, ignore_index=True)
    old, new = ((log.probabilities, log.codes) for log in logs)
    result = hm.compare(
        old,
        new,
        tree=label_tree,
        utilities=parse_utilities(utility or [], label_tree),
        subgroups=hm.Subgroups.from_reference(cut, rules) if rules else None,
        features=sides if rules else None,
        paired=paired,
        confidence_level=confidence,
    )
    if picture is not None and len(result):
        save_picture(stack(list(hm.draw_pictures(result).values())), picture)
    alert = result.huc.lower > 0 if paired else bool(result.sure)
    if as_json:
        status = "alert" if alert else "ok"
        print_json({"status": status, "comparison": result.to_dict(), "notes": notes})
    else:
        show_comparison(result, top=top)
        for note in notes:
            say(f"Note: {note}")
    raise typer.Exit(ALERT if alert else FINE)
