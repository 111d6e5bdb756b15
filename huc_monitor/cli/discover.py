"""``huc-monitor discover``: subgroups nobody named in which a branch misstates utility."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from huc_monitor.audit.discovery.options import SEARCH
from huc_monitor.cli import options
from huc_monitor.cli.reading import note_aside, read_log

if TYPE_CHECKING:
    import pandas as pd

    from huc_monitor.audit.discovery.discover import Discovery
    from huc_monitor.config import Config
    from huc_monitor.sources import WindowData

FINE, FOUND = 0, 1
_NOTHING_TO_SEARCH = (
    "Name a labelled log with --tree and at least one --feature, or --config huc.yaml."
)


def run(
    predictions: Annotated[
        Path | None, typer.Argument(help="Labelled log, as for `audit`.", show_default=False)
    ] = None,
    *,
    tree: Annotated[
        Path | None, typer.Option(help="Label tree of that log.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Search the log and labels of this file instead; huc.yaml, if it is here and no "
            "log is named.",
            show_default=False,
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            help="Column to describe segments by; repeatable. With --config: all that have no "
            "other meaning, if left out."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="With --config: rows from this time on, such as when an alert began."),
    ] = None,
    until: Annotated[str | None, typer.Option(help="With --config: rows before this time.")] = None,
    label: options.Label = None,
    label_mapping: options.LabelMapping = None,
    prefix: options.Prefix = None,
    lists: options.Lists = None,
    classes: options.Classes = None,
    form: options.Form = None,
    cluster: options.Cluster = None,
    label_probability: options.LabelProbability = None,
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
    import huc_monitor as hm
    from huc_monitor._common.safe_text import quoted
    from huc_monitor.cli.showing import print_json
    from huc_monitor.cli.specs import parse_utilities

    columns = list(dict.fromkeys(feature or []))
    where: dict[str, Any] = {"label": label, "label_mapping": label_mapping, "prefix": prefix}
    where |= {"lists": lists, "classes": classes, "form": form}
    where |= {"cluster": cluster, "label_probability": label_probability}
    asked: Sequence[hm.Utility] | None
    told: list[str] = []
    settings: Config | None = None
    if config is None and predictions is None and Path("huc.yaml").exists():
        config = Path("huc.yaml")
    if config is not None:
        given: dict[str, Any] = {f"--{name.replace('_', '-')}": at for name, at in where.items()}
        given |= {"PREDICTIONS": predictions, "--tree": tree, "--utility": utility}
        settings, data, columns = _configured(config, columns, given, since, until)
        label_tree, asked = settings.tree, list(settings.utilities)
        told.append(f"Searched the columns {', '.join(map(quoted, columns))}.")
    elif since or until:
        msg = "--since and --until must come with --config, which names the column of times."
        raise typer.BadParameter(msg)
    elif predictions is None or tree is None or not columns:
        raise typer.BadParameter(_NOTHING_TO_SEARCH)
    else:
        label_tree = hm.LabelTree.from_file(tree)
        asked = parse_utilities(utility or [], label_tree)
        data = read_log(predictions, tree=label_tree, features=columns, **where)
    found = hm.discover(
        data.probabilities,
        data.codes,
        tree=label_tree,
        features=data.features[columns],
        utilities=asked,
        clusters=data.cluster_keys,
        label_probability=data.label_probability,
        tolerance=tolerance,
        max_conditions=conditions,
        confidence_level=confidence,
    )
    watched = [] if settings is None else _watched(settings, data.features, found)
    told += [f"{quoted(name)} is watched already." for name in watched]
    found = replace(found, notes=(*told, *note_aside(data, label_tree), *found.notes))
    if as_json:
        status = "found" if found.certified else "none"
        print_json({"status": status, "discovery": found.to_dict()})
    else:
        new = {name: rule for name, rule in found.predicates.items() if name not in watched}
        _show(found, new, {} if settings is None else settings.document.content)
    raise typer.Exit(FOUND if found.certified else FINE)


def _show(found: Discovery, new: dict[str, Any], content: dict[str, Any]) -> None:
    from huc_monitor._common.safe_text import line
    from huc_monitor.cli.showing import say, wrapped

    typer.echo(
        f"{len(found.certified)} certified of {len(found.segments)} found "
        f"({found.n_searched:,} rows searched, {found.n_certifying:,} certifying, "
        f"{found.confidence_level:.4g} confidence)."
    )
    for segment in found.segments:
        typer.echo(wrapped(f"  - {line(str(segment))}"))
    for note in found.notes:
        say(f"Note: {note}")
    if new:
        _show_lines(new, content)


def _show_lines(new: dict[str, Any], content: dict[str, Any]) -> None:
    """Print what to add to a file with that content: a section that is there is not repeated."""
    import yaml

    section: dict[str, Any] = {"subgroups": {"predicates": new}}
    where, depth = "to", 0
    for key in ("subgroups", "predicates"):
        content = content.get(key) or {}
        if not content:
            break
        section, where, depth = section[key], f"below `{key}:` in", depth + 1
    lines = yaml.safe_dump(section, sort_keys=False, default_flow_style=None).rstrip()
    typer.echo(f"\nTo watch them, add {where} huc.yaml:\n")
    typer.echo(textwrap.indent(lines, "  " * depth))


def _watched(settings: Config, features: pd.DataFrame, found: Discovery) -> list[str]:
    """Name the certified segments that the file's subgroups have already, by name or by rule."""
    if not settings.feature_columns or not found.predicates:
        return []
    mine, theirs = (
        family.to_dict()["subgroups"]
        for family in (settings.make_subgroups(features), found.make_subgroups(features))
    )
    names, rules = [one["name"] for one in mine], [one["rule"] for one in mine]
    return [one["name"] for one in theirs if one["name"] in names or one["rule"] in rules]


def _configured(
    path: Path,
    columns: list[str],
    given: Mapping[str, Any],
    since: str | None,
    until: str | None,
) -> tuple[Config, WindowData, list[str]]:
    """Read a configuration file, its labelled rows, and which of their columns to search."""
    from huc_monitor._common.times import say_time
    from huc_monitor.cli.check import read_time
    from huc_monitor.cli.reading import refuse_label
    from huc_monitor.config import load_config
    from huc_monitor.subgroups._outcome import names_nodes

    twice = [name for name, value in given.items() if value]
    if twice:
        msg = f"--config says all of it; leave out {', '.join(twice)}."
        raise typer.BadParameter(msg)
    settings = load_config(path)
    refuse_label(columns, settings.settings.columns.label)
    named, features = bool(columns), list(settings.feature_columns)
    columns = columns or list(dict.fromkeys([*features, *settings.searchable_columns()]))
    source = settings.open_source(features=list(dict.fromkeys([*features, *columns])), keys=())
    extent = source.time_range()
    if extent is None:
        msg = f"`source.log` must have rows with a time; the log of {path} has none."
        raise typer.BadParameter(msg)
    start = read_time(settings, "since", since) or extent.first
    end = read_time(settings, "until", until) or extent.last + timedelta(microseconds=1)
    if start >= end:
        ends = say_time(extent.last, settings.windows.time_zone)
        msg = f"--since must be before --until and before the log ends ({ends})."
        raise typer.BadParameter(msg)
    rows = source.labelled(start, end)
    if not named:  # another label, or the model's answer, is no property of the case
        encoder = settings.tree.label_encoder()
        columns = [name for name in columns if not names_nodes(rows.features[name], encoder)]
    if not columns or not rows.n:
        msg = f"The log of {path} has no labelled rows with columns to describe them by."
        raise typer.BadParameter(msg)
    return settings, rows, columns
