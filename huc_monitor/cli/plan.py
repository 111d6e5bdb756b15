"""``huc-monitor plan``: how many labels a finding takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from huc_monitor.cli import options
from huc_monitor.cli.reading import note_aside, read_log
from huc_monitor.cli.showing import make_console, print_json, print_table, say
from huc_monitor.errors import InvalidInputError

METHODS = ("theorem", "sharp", "bootstrap")
ROWS = (250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000)


@dataclass(frozen=True)
class _Case:
    """What is planned for: a typical candidate, and the pilot to simulate from, if any."""

    settings: dict[str, Any]
    candidate: tuple[str, str, str] | None = None
    pilot: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


def run(
    pilot: Annotated[
        Path | None,
        typer.Argument(help="Parquet or CSV log of labelled predictions like those to come."),
    ] = None,
    *,
    candidates: Annotated[
        int | None,
        typer.Option(
            min=1, help="Without a pilot: subgroups times branches, summed over utilities."
        ),
    ] = None,
    tree: Annotated[Path | None, typer.Option(help="Label tree of the pilot.")] = None,
    label: options.Label = None,
    label_mapping: options.LabelMapping = None,
    prefix: options.Prefix = None,
    lists: options.Lists = None,
    classes: options.Classes = None,
    form: options.Form = None,
    utility: options.Utilities = None,
    subgroup: options.Groups = None,
    size: Annotated[
        list[float] | None, typer.Option(help="Moment to detect; repeatable. Default: 0.02 to 0.1.")
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="Largest moment accepted.")] = 0.0,
    confidence: options.Confidence,
    batch: Annotated[int, typer.Option(min=1, help="Labels per batch of the e-detector.")] = 250,
    average_run_length: options.RunLength,
    runs: Annotated[
        int, typer.Option(min=0, help="Simulated streams per size; 0 leaves the e-detector out.")
    ] = 20,
    as_json: options.Json = False,
) -> None:
    """Say which moments n labels can show, and how many labels a moment of a given size takes.

    With a pilot, numbers are those of its candidate of median size, and the e-detector is simulated
    on its predictions. Without one, they hold for the widest branch a calibrated model can have.

    Example: huc-monitor plan --candidates 40 --size 0.05
    """
    if pilot is None:
        if candidates is None:
            msg = "`plan` must have a pilot log, or the number of candidates: add --candidates."
            raise InvalidInputError(msg)
        case = _Case({"n_candidates": candidates})
    else:
        where: dict[str, Any] = {"label": label, "label_mapping": label_mapping, "form": form}
        where |= {"prefix": prefix, "lists": lists, "classes": classes}
        case = _read_pilot(pilot, tree, where, utility, subgroup, confidence)
    case.settings.update(tolerance=tolerance, confidence_level=confidence)
    spread = case.settings.get("spread", math.inf)
    sizes = size or [s for s in (0.02, 0.05, 0.1) if tolerance < s <= spread]
    table = _detectable(case)
    needed = [
        _needed(case, s, batch=batch, average_run_length=average_run_length, runs=runs)
        for s in sizes
    ]
    if as_json:
        document = {
            "candidate": case.candidate,
            "settings": case.settings,
            "detectable": table,
            "labels_needed": needed,
            "notes": case.notes,
        }
        print_json(document)
    else:
        _show(case, table, needed)


def _read_pilot(
    path: Path,
    tree: Path | None,
    where: dict[str, Any],
    utility: Sequence[str] | None,
    subgroup: Sequence[str] | None,
    confidence: float,
) -> _Case:
    import huc_monitor as hm
    from huc_monitor.cli.specs import parse_subgroups, parse_utilities

    if tree is None or where["label"] is None:
        msg = "`pilot` must come with its label tree and label column: add --tree and --label."
        raise InvalidInputError(msg)
    label_tree = hm.LabelTree.from_file(tree)
    rules = parse_subgroups(subgroup or [])
    data = read_log(path, tree=label_tree, features=list(rules), **where)
    shared: dict[str, Any] = {
        "tree": label_tree,
        "utilities": parse_utilities(utility or [], label_tree),
        "subgroups": hm.Subgroups.from_reference(data.features, rules) if rules else None,
        "features": data.features if rules else None,
    }
    frame = hm.pilot_candidates(
        data.probabilities, data.codes, confidence_level=confidence, **shared
    )
    if frame.empty:
        msg = "`--utility` must have a relevant branch in this tree; none of them has."
        raise InvalidInputError(msg)
    everyone = frame[frame["subgroup"] == "all"].sort_values("mean_square", kind="stable")
    typical = everyone.iloc[len(everyone) // 2]
    settings = {
        "n_candidates": len(frame),
        **{name: float(typical[name]) for name in ("mean_square", "spread", "quantile")},
    }
    candidate = (str(typical["utility"]), str(typical["subgroup"]), str(typical["node"]))
    rows = {"probabilities": data.probabilities, **shared}
    return _Case(settings, candidate, rows, note_aside(data, label_tree))


def _detectable(case: _Case) -> list[dict[str, Any]]:
    import huc_monitor as hm

    return [
        {"n": n, **{b: hm.detectable_size(n, bounds=b, **case.settings) for b in METHODS}}
        for n in ROWS
    ]


def _needed(
    case: _Case, size: float, *, batch: int, average_run_length: float, runs: int
) -> dict[str, Any]:
    import huc_monitor as hm
    from huc_monitor.planning import largest_moment

    row: dict[str, Any] = {"size": size}
    for bounds in METHODS:
        row[bounds] = hm.labels_needed(size, bounds=bounds, **case.settings)
    if case.pilot is None or case.candidate is None or not runs:
        return row
    row["e_detector"] = None
    if size < largest_moment(**case.pilot, candidate=case.candidate):
        delay = hm.simulate_alarm(
            **case.pilot,
            candidate=case.candidate,
            size=size,
            tolerance=case.settings["tolerance"],
            average_run_length=average_run_length,
            batch_size=batch,
            n_runs=runs,
        )
        row["e_detector"] = int(delay.median) if math.isfinite(delay.median) else None
    return row


def _show(case: _Case, table: list[dict[str, Any]], needed: list[dict[str, Any]]) -> None:
    level = case.settings["confidence_level"]
    about = f"{case.settings['n_candidates']:,} candidates, confidence {level:g}"
    if case.candidate is not None:
        utility, _, node = case.candidate
        about += f"; typical: branch {node!r} in {utility!r}"
    console = make_console()
    say(f"Smallest moment that n labels show ({about})")
    sizes = [[f"{row['n']:,}", *(_size(row[name]) for name in METHODS)] for row in table]
    print_table(console, (), ("n", *METHODS), [(cells, "") for cells in sizes])
    for note in case.notes:
        say(f"Note: {note}")
    columns = [name for name in (*METHODS, "e_detector") if needed and name in needed[0]]
    if not columns:
        return
    say("Labels needed to show a moment of that size")
    counts = [[f"{row['size']:g}", *(_count(row[name]) for name in columns)] for row in needed]
    titles = ("size", *(name.replace("_", "-") for name in columns))
    print_table(console, (), titles, [(cells, "") for cells in counts])
    if "e_detector" in columns:
        say(
            "e-detector: median of simulated streams, from the change to the alarm; '-' where most "
            "raised none, or the typical branch cannot be that wrong."
        )


def _count(labels: int | None) -> str:
    return "-" if labels is None else f"{labels:,}"


def _size(value: float) -> str:
    return f"{value:.4f}" if value <= 1 else "-"
