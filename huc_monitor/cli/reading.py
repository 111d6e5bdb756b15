"""Read a whole log for commands that take a file; every form that sources read works here too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from huc_monitor.cli.logs import start_logging
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from huc_monitor.audit.forms.spec import PredictionColumns
    from huc_monitor.config import Config
    from huc_monitor.monitor.ports import Tracker
    from huc_monitor.sources import DuckTable, WindowData
    from huc_monitor.tree import LabelTree


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[Config, Tracker]]:
    """Open a configuration and its tracker, for commands that ask for what a monitor keeps."""
    from huc_monitor.config import load_config
    from huc_monitor.config.opening import open_tracker

    start_logging(None)
    config = load_config(path)
    with contextlib.closing(open_tracker(config)) as tracker:
        yield config, tracker


def read_log(
    path: Path,
    *,
    tree: LabelTree,
    label: str | None,
    prefix: str | None = None,
    lists: str | None = None,
    classes: str | None = None,
    form: str | None = None,
    features: Sequence[str] = (),
    cluster: str | None = None,
    label_probability: str | None = None,
    label_mapping: str | Path | None = None,
    strict: bool = False,
) -> WindowData:
    """Read the labelled rows of files; few that cannot be used are set aside, unless `strict`."""
    from huc_monitor.sources import Columns, DuckTable, TableSource
    from huc_monitor.sources._spec import ROW_CHECKS

    if not path.exists():
        msg = f"`predictions` must be an existing file or folder; got '{path}'."
        raise InvalidInputError(msg)
    table = DuckTable.files(path)
    refuse_label(features, label)
    if label not in table.columns():
        raise _no_label(table, label, tree)
    columns = Columns(
        probabilities=f"{prefix or ''}{{leaf}}" if form is None else _columns_of(form),
        list_column=lists,
        classes=None if classes is None else classes.split(","),
        label=label,
        features=tuple(features),
        cluster=cluster,
        label_probability=label_probability,
    )
    source = TableSource(
        table,
        tree=tree,
        columns=columns,
        max_bad_share=0.0 if strict else ROW_CHECKS.max_bad_share,
        label_mapping={} if label_mapping is None else label_mapping,
    )
    return source.everything()


def refuse_label(columns: Sequence[str], label: str | None) -> None:
    """Refuse to group rows by their label."""
    from huc_monitor.subgroups._outcome import no_label

    if label is not None and label in columns:
        msg = f"`--subgroup` and `--feature` {no_label(label)}"
        raise InvalidInputError(msg)


def note_aside(data: WindowData, tree: LabelTree) -> tuple[str, ...]:
    """Say how many rows were set aside, and the first of them; nothing where none was."""
    from huc_monitor.sources._data import say_bad
    from huc_monitor.sources._rows import say_unknown

    if not data.n_quarantined:
        return ()
    bad = say_bad(data.bad_reasons, data.bad_rows[0])
    unknown = say_unknown(data.unknown_labels, tree)
    said = f"{data.n_quarantined:,} of {data.n_labelled:,} labelled rows were set aside {bad}"
    return (said if unknown is None else f"{said} {unknown}",)


def _columns_of(form: str) -> PredictionColumns:
    import yaml

    from huc_monitor.audit.forms.spec import PredictionColumns

    try:
        words = yaml.safe_load(form)
    except yaml.YAMLError as error:
        msg = f"`--form` must be YAML or JSON; {error}"
        raise InvalidInputError(msg) from error
    if not isinstance(words, dict):
        msg = f"`--form` must be a mapping such as {{map: scores}}; got {form!r}."
        raise InvalidInputError(msg)
    return PredictionColumns(**words)


def _no_label(table: DuckTable, label: str | None, tree: LabelTree) -> UnknownNameError:
    """Propose columns that hold leaves; none is taken without being named."""
    from huc_monitor.config._guess import TableSample, holds_leaves

    sample = TableSample(table.name, table.columns(), table.head(2_000))
    encoder = tree.label_encoder()
    held = [name for name in sample.types if holds_leaves(sample, name, encoder)]
    named = " or ".join(f"--label {name}" for name in held)
    remedy = f"By its values it may be: {named}." if held else did_you_mean(label, sample.types)
    got = "none" if label is None else repr(label)
    return UnknownNameError(f"`--label` must name a column of {table.name}; got {got}. {remedy}")
