"""The text of a first configuration file: `huc.yaml.jinja`, filled in with what was found out."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
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
    label_mapping: str | None = None


def write(found: FileContents, *, tolerance: float, patient: float, why: Sequence[str]) -> str:
    """Return the text of the file; `why` are the reasons for the tolerance.

    `patient` is the tolerance of the e-detector.
    """
    guess, coverage = found.guess, found.volume.coverage
    words = guess.predictions.to_dict()
    return _fill_in(
        found=found,
        guess=guess,
        notes=guess.notes,
        volume=found.volume,
        predictions={name: value for name, value in words.items() if value is not None},
        groups=guess.groups[:_MAX_GROUPS],
        more_groups=guess.groups[_MAX_GROUPS:],
        min_size=max(50, found.n_labels // 100),
        n_rows=round(found.n_labels / coverage),
        min_labelled=max(20, found.n_labels // 5),
        min_coverage=math.floor(50 * coverage) / 100,
        tolerance=tolerance,
        patient=patient,
        why=why,
        audit=DEFAULTS,
        detector=DetectorOptions(),
        pools=ChangePolicy().windows,
        run_length=_RUN_LENGTH,
        cool_down=AlertPolicy().cool_down,
        quiet_after=_QUIET_AFTER,
    )


def _fill_in(**given: Any) -> str:
    """Fill the gaps of the file; the filter `scalar` quotes for YAML what goes into them."""
    from jinja2 import Environment, StrictUndefined  # takes a while to import

    environment = Environment(  # noqa: S701 - no markup
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (_scalar, _flow, _comment, _one_line, _moment)
    environment.filters |= {one.__name__.lstrip("_"): one for one in filters}
    environment.filters["form"] = format
    text = files(__package__).joinpath("huc.yaml.jinja").read_text("utf-8")
    return environment.from_string(text).render(given)


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


def _flow(mapping: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{_scalar(k)}: {_scalar(v)}' for k, v in mapping.items())}}}"


def _comment(text: str) -> str:
    return textwrap.fill(_one_line(text), 90, initial_indent="# ", subsequent_indent="# ")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _moment(time: datetime) -> str:
    local = time.astimezone(UTC)
    midnight = (local.hour, local.minute, local.second) == (0, 0, 0)
    return f"{local:%Y-%m-%d}" if midnight else f'"{local:%Y-%m-%dT%H:%M:%S+00:00}"'
