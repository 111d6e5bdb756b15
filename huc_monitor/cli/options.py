"""Options that several commands share, each with its words and default."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from huc_monitor.cli.logs import LogFormat
from huc_monitor.errors import InvalidInputError

FailOn = Literal["warning", "critical", "never"]


# Defaults are asked for when a command runs: declaring them loads pydantic.


def default_bounds() -> str:
    """Return the default method of bounds."""
    from huc_monitor.audit.options import DEFAULTS

    return str(DEFAULTS.bounds)


def default_confidence() -> float:
    """Return the default confidence level."""
    from huc_monitor.audit.options import DEFAULTS

    return DEFAULTS.confidence_level


def default_run_length() -> float:
    """Return the e-detector's average run length when nobody says."""
    from huc_monitor.detection.options import DEFAULTS

    return DEFAULTS.average_run_length


ConfigFile = Annotated[Path, typer.Option(help="The configuration file.")]
LogForm = Annotated[
    LogFormat | None, typer.Option(help="Form of the log on standard error.", show_default=False)
]
FailAt = Annotated[FailOn, typer.Option(help="Exit with 1 if an alert of this level is open.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Top = Annotated[int, typer.Option(min=1, help="Number of candidates in the table.")]

# A log of predictions, and what is asked about it.
Tree = Annotated[Path, typer.Option(help="Label tree: a .yaml, .json or .csv file.")]
Label = Annotated[
    str | None, typer.Option(help="Column of the label; rows without one are left out.")
]
Prefix = Annotated[
    str | None,
    typer.Option(
        help="What comes before the leaf's name in a probability column; found out if left out."
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(help="Column of which equal values are dependent rows, such as user_id."),
]
LabelProbability = Annotated[
    str | None,
    typer.Option(help="Column with the probability with which a row was chosen to be labelled."),
]
LabelMapping = Annotated[
    Path | None,
    typer.Option(help="CSV, JSON or YAML file: which node other spellings of labels mean."),
]
Lists = Annotated[
    str | None, typer.Option("--list", help="Instead: one column with lists of probabilities.")
]
Classes = Annotated[
    str | None,
    typer.Option(help="Order of these lists, such as a,b,c; the leaves' order if left out."),
]
Form = Annotated[
    str | None,
    typer.Option(
        help="Predictions in any other form, in the words of `columns.probabilities` in huc.yaml, "
        "such as '{map: scores, rest: uniform}' or '{list: scores, class_column: classes}'."
    ),
]
Utilities = Annotated[
    list[str] | None,
    typer.Option(
        help="What to audit; repeatable. One of level:DEPTH_OR_NAME, path:DEPTH_OR_NAME, top:K, "
        "in:NODE, a YAML or JSON file of utilities, or one utility as "
        '\'{"type": "TopK", "k": 3}\'. Default: correctness at every level.'
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        help="Groups to audit besides everyone; repeatable. COLUMN=each (a group per value), "
        "COLUMN=median, or COLUMN=65,80 (cut points)."
    ),
]
Bounds = Annotated[
    str,
    typer.Option(
        default_factory=default_bounds,
        show_default="that of huc_monitor.audit",
        help="How moments are bounded: bootstrap, sharp or theorem.",
    ),
]
Confidence = Annotated[
    float,
    typer.Option(
        default_factory=default_confidence,
        show_default="that of huc_monitor.audit",
        help="Probability with which all bounds hold together.",
    ),
]
RunLength = Annotated[
    float,
    typer.Option(
        default_factory=default_run_length,
        show_default="that of EDetector",
        min=1,
        help="Batches between false alarms of the e-detector.",
    ),
]


def find_configs(patterns: Sequence[str]) -> list[Path]:
    """Return the configuration files that patterns name, each once."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        if not glob.has_magic(pattern):
            found[Path(pattern)] = None
            continue
        matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - may be absolute
        if not matches:
            msg = f"`config` must name configuration files; {pattern!r} matches none."
            raise InvalidInputError(msg)
        found.update(dict.fromkeys(map(Path, matches)))
    return list(found)
