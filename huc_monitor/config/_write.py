"""The text of a first configuration file, with comments that say what was found out."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from huc_monitor.audit.options import DEFAULTS
from huc_monitor.detection.options import DetectorOptions
from huc_monitor.monitor.alerts import AlertPolicy
from huc_monitor.monitor.change import ChangePolicy

if TYPE_CHECKING:
    from huc_monitor.config._guess import Guess
    from huc_monitor.config._inspect import TablePlace, Volume

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./ -]*[A-Za-z0-9_]|[A-Za-z_]")
# Ten times the default: windows share their reference, so that false alarms of an unlucky one come
# together, and a promise that holds on average must leave room for that.
_RUN_LENGTH: Final = 1000
# An error just beyond the tolerance adds evidence in some two of three windows.
_QUIET_AFTER: Final = 6
_RESERVED: Final = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "none"}
_MAX_GROUPS: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class FileContents:
    """Everything that goes into the file."""

    model: str
    tree: str
    log: TablePlace
    guess: Guess
    volume: Volume
    labels: dict[str, Any] | None
    partition: Mapping[str, str] | None
    length: str | None
    n_labels: int
    lag: str
    reference: tuple[datetime, datetime]
    levels: int


def write(found: FileContents, *, tolerance: float, patient: float, why: Sequence[str]) -> str:
    """Return the text of the file; `why` are the reasons for the tolerance.

    `patient` is the tolerance of the e-detector.
    """
    sections = [_head(found), _source(found), _columns(found), _what(found), _windows(found)]
    comments = [_wrapped(line) for line in why]
    sections.append("\n".join([*comments, f"tolerance: {tolerance:g}"]))
    sections.append(_rest(patient))
    return "\n\n".join(sections) + "\n"


def _head(found: FileContents) -> str:
    volume = found.volume
    return (
        "# Written by `huc-monitor init`. For an editor that completes and checks it, run\n"
        "# `huc-monitor init --schema > huc.schema.json` and make this the first line:\n"
        "# yaml-language-server: $schema=huc.schema.json\n"
        f"# The log: {volume.n_rows:,} predictions from {volume.extent.first:%Y-%m-%d %H:%M} to "
        f"{volume.extent.last:%Y-%m-%d %H:%M} UTC,\n"
        f"# about {volume.per_day:,.0f} a day, {volume.coverage:.0%} of them with a label.\n"
        "version: 1\n"
        f"model: {_scalar(found.model)}  # where MLflow keeps it, the registered name (--model)\n"
        f"tree: {_scalar(found.tree)}"
    )


def _source(found: FileContents) -> str:
    lines = ["source:", "  log:"]
    lines += [f"    {key}: {_scalar(value)}" for key, value in found.log.settings.items()]
    if found.partition:
        lines.append("    # Every row is in the folder of its time (checked): windows open only")
        lines.append("    # their own folders.")
        pairs = ", ".join(f"{_scalar(k)}: {_scalar(v)}" for k, v in found.partition.items())
        lines.append(f"    partition: {{columns: {{{pairs}}}}}")
    if found.labels is not None:
        lines.append("  labels:")
        lines += [f"    {key}: {_scalar(value)}" for key, value in found.labels.items()]
        if "time" not in found.labels:
            lines.append("    # time: ...   when a label became known; makes audits repeatable")
    lines.append("  max_bad_share: 0.05  # of unusable rows; a window with more is an error")
    note = found.guess.notes.get("sum_tolerance")
    if note:
        lines.append(f"  sum_tolerance: {found.guess.sum_tolerance:g}  # {note}")
    return "\n".join(lines)


def _columns(found: FileContents) -> str:
    guess = found.guess
    lines = ["columns:", f"  time: {_scalar(guess.time)}"]
    if "time" in guess.notes:
        lines[-1] += f"  # {_comment(guess.notes['time'])}"
    if guess.time_unit:
        lines.append(f"  time_unit: {guess.time_unit}  # since 1970")
    lines.append("  time_zone: UTC  # what times without a zone mean")
    lines += _predictions(guess)
    for key in ("label", "id", "model_version", "cluster"):
        value = getattr(guess, key)
        if value is not None:
            note = f"  # {_comment(guess.notes[key])}" if key in guess.notes else ""
            lines.append(f"  {key}: {_scalar(value)}{note}")
    if "repeats" in guess.notes:
        lines.append(f"  # {_comment(guess.notes['repeats'])}")
    return "\n".join(lines)


def _predictions(guess: Guess) -> list[str]:
    words = guess.predictions.to_dict()
    given = {name: value for name, value in words.items() if value is not None}
    lines = []
    if "predictions" in guess.notes:
        note = f"Assumed from the values: {guess.notes['predictions']}."
        lines += ["  " + line for line in _wrapped(note).splitlines()]
    if list(given) == ["pattern"]:
        return [*lines, f"  probabilities: {_scalar(given['pattern'])}"]
    lines.append("  probabilities:")
    for name, value in given.items():
        if name == "classes" and "classes" in guess.notes:
            lines.append(f"    # {_comment(guess.notes['classes'])}.")
        if isinstance(value, dict):
            lines.append(f"    {name}:")
            lines += [f"      {_scalar(key)}: {_scalar(one)}" for key, one in value.items()]
        elif isinstance(value, list):
            lines.append(f"    {name}: [{', '.join(map(_scalar, value))}]")
        else:
            lines.append(f"    {name}: {_scalar(value)}")
    return lines


def _what(found: FileContents) -> str:
    guess = found.guess
    lines = [
        "# What a prediction is worth: here, being right at a level of the tree.",
        "utilities:",
    ]
    lines += [f"  - {{type: LevelCorrectness, level: {d}}}" for d in range(1, found.levels + 1)]
    chosen, more = guess.groups[:_MAX_GROUPS], guess.groups[_MAX_GROUPS:]
    lines += [
        "",
        "# For whom, besides everyone. Values and cut points are frozen.",
    ]
    lines.append("subgroups:" if chosen else "subgroups: {}")
    if chosen:
        lines.append("  by:")
        lines += [f"    {_scalar(name)}: each" for name in chosen]
        lines.append(f"  min_size: {max(50, found.n_labels // 100)}")
    if more or guess.numbers:
        lines.append("  # More candidates:" if chosen else "# Candidates, to put under `by:`")
        lines += [f"  #   {_comment(_scalar(name))}: each" for name in more[:10]]
        lines += [f"  #   {_comment(_scalar(name))}: median" for name in guess.numbers[:10]]
    start, end = found.reference
    lines += ["", "# What is normal: later windows are compared with it.", "reference:"]
    lines += [f"  start: {_time(start)}", f"  end: {_time(end)}"]
    return "\n".join(lines)


def _windows(found: FileContents) -> str:
    lines = ["windows:"]
    if found.length is not None:
        lines.append(f"  length: {found.length}  # about {found.n_labels:,} labels each")
    else:
        rows = max(1, round(found.n_labels / max(found.volume.coverage, 1e-9)))
        lines.append(
            f"  n_rows: {rows}  # too little for days: about {found.n_labels:,} labels each"
        )
    lines.append("  time_zone: UTC  # where days begin at midnight")
    why = "95 % of the labels had come by then" if found.lag != "0s" else "labels come at once"
    lines.append(f"  label_lag: {found.lag}  # {why}")
    lines.append(f"  min_labelled: {max(20, found.n_labels // 5)}")
    lines.append(f"  min_coverage: {math.floor(50 * found.volume.coverage) / 100:g}")
    return "\n".join(lines)


def _rest(patient: float) -> str:
    audit, run_length = DEFAULTS, DetectorOptions().average_run_length
    change = ChangePolicy()
    return (
        f"audit: {{bounds: {audit.bounds}, confidence_level: {audit.confidence_level:g}, "
        f"n_draws: {audit.n_draws}}}\n"
        "# Evidence adds up over windows, so this finds moments that no single window shows, with\n"
        f"# at most one false alarm in {run_length:g} windows on average.\n"
        "sequential:\n"
        "  enabled: true\n"
        f"  tolerance: {patient:g}\n"
        f"  average_run_length: {run_length:g}\n"
        "# Critical is what became worse since the reference by more than chance: the newest\n"
        "# windows, pooled, against its rows. What is beyond the tolerance and did not change is\n"
        f"# told once. At most one false alarm in {_RUN_LENGTH:,} windows on average.\n"
        "change:\n"
        "  alerts: change\n"
        f"  windows: [{', '.join(map(str, change.windows))}]\n"
        f"  average_run_length: {_RUN_LENGTH}\n"
        "\n"
        "alerts:\n"
        f"  cool_down: {AlertPolicy().cool_down}  # before the same alert is sent again\n"
        f"  quiet_after: {_QUIET_AFTER}  # windows without new evidence that end an alarm\n"
        "  channels: []\n"
        "# channels:\n"
        '#   ops: {name: apprise, secrets: {url: "${ALERT_URL}"}}\n'
        "\n"
        "recalibration: {enabled: false, promotion: manual}\n"
        "tracker: {name: files}  # or mlflow\n"
        "state: huc-state"
    )


def _scalar(value: Any) -> str:
    """Write a text so that YAML reads the same text.

    Examples
    --------
    >>> print(_scalar("label"), _scalar("no"), _scalar("b: c"), _scalar("2024"))
    label "no" "b: c" "2024"
    """
    text = str(value)
    plain = _PLAIN.fullmatch(text) and text.lower() not in _RESERVED
    return text if plain else json.dumps(text, ensure_ascii=True)


def _wrapped(text: str) -> str:
    return textwrap.fill(_comment(text), 90, initial_indent="# ", subsequent_indent="# ")


def _comment(text: str) -> str:
    return " ".join(text.split())


def _time(moment: datetime) -> str:
    local = moment.astimezone(UTC)
    midnight = (local.hour, local.minute, local.second) == (0, 0, 0)
    return f"{local:%Y-%m-%d}" if midnight else f'"{local:%Y-%m-%dT%H:%M:%S+00:00}"'
