"""``huc-monitor init``: look at a log and write a first configuration file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from huc_monitor._common.private_files import write_atomically
from huc_monitor.cli import options
from huc_monitor.cli.showing import print_json, say
from huc_monitor.errors import InvalidInputError


def run(
    log: Annotated[
        str | None,
        typer.Argument(
            help="Prediction log: Parquet or CSV file, folder or pattern; a DuckDB file; or "
            "'${VARIABLE}' with the URL of a database."
        ),
    ] = None,
    *,
    tree: Annotated[
        Path | None, typer.Option(help="Label tree: a .yaml, .json or .csv file.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="Labels, if not in the log: as LOG; joined by id.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="Table, where LOG is a database.")] = None,
    labels_table: Annotated[
        str | None, typer.Option(help="Table, where the labels are in a database.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Column of times, if it is not the obvious one.")
    ] = None,
    key: Annotated[str | None, typer.Option("--id", help="Column of ids in the log.")] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of labels, in the log or where --labels points.")
    ] = None,
    labels_key: Annotated[
        str | None, typer.Option("--labels-id", help="Column of ids where --labels points.")
    ] = None,
    label_mapping: options.LabelMapping = None,
    model: Annotated[str | None, typer.Option(help="Name of the model.")] = None,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("huc.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of the file, and do nothing.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Inspect a prediction log and write a commented configuration file that works.

    Finds out which columns hold probabilities, labels, times and ids, how long windows should be,
    and what tolerance the number of labels allows. The comments in the file say how.

    Example: huc-monitor init predictions.parquet --tree tree.yaml
    """
    from huc_monitor.config import config_schema, init_config

    if schema:
        typer.echo(json.dumps(config_schema(), indent=2))
        return
    if log is None or tree is None:
        missing = "LOG" if log is None else "--tree"
        msg = f"`{missing}` must be given: huc-monitor init LOG --tree TREE"
        raise InvalidInputError(msg)
    if labels_key is not None and labels is None:
        msg = "`--labels-id` must come with --labels, the table it is a column of."
        raise InvalidInputError(msg)
    named = {"time": time, "id": key, "label": label, "labels_id": labels_key}
    _refuse_existing(out, force=force)
    text = init_config(
        log,
        tree,
        labels=labels,
        table=table,
        labels_table=labels_table,
        model=model,
        columns={name: column for name, column in named.items() if column is not None},
        label_mapping=label_mapping,
        folder=out.parent,
    )
    _refuse_existing(out, force=force)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text.encode(), mode=0o666)
    if as_json:
        print_json({"status": "ok", "path": str(out)})
        return
    say(f"Wrote {out}. Read its comments, then run: huc-monitor check --config {out}")


def _refuse_existing(out: Path, *, force: bool) -> None:
    if out.exists() and not force:
        msg = f"`--out` must be a new file; '{out}' exists. Use --force to replace it."
        raise InvalidInputError(msg)
