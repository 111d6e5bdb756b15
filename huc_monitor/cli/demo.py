"""``huc-monitor demo``: the whole story on made-up data, in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from huc_monitor._common.plugins import load_plugin
from huc_monitor.cli import options
from huc_monitor.cli.showing import print_json, tell


def run(
    folder: Annotated[
        Path, typer.Option("--dir", help="Where everything is written; made anew each time.")
    ] = Path("huc-demo"),
    seed: Annotated[int, typer.Option(help="Of the made-up tickets.")] = 0,
    *,
    fast: Annotated[
        bool, typer.Option("--fast", help="Half the tickets: the repair may be refused.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Watch a help desk's classifier drift where no aggregate shows it, and see it repaired.

    Trains a model, registers it in a local MLflow, serves tickets, audits them day by day, raises
    an alert, registers the repaired model as version 2, and watches it resolve the alert.

    Example: huc-monitor demo --fast --dir huc-demo
    """
    story = load_plugin("huc_monitor.demos", "mlflow")
    if as_json:
        found = story(folder, seed=seed, fast=fast, tell=lambda _: None)
        print_json(found.to_dict())
        return
    found = story(folder, seed=seed, fast=fast, tell=_tell)
    _tell(
        f"Open the report:      {found.folder / 'report.html'}\n"
        f"Look at the runs:     mlflow ui --backend-store-uri sqlite:///{found.folder}/mlflow.db\n"
        f"Read the setup:       {found.folder / 'huc.yaml'}\n"
        f"Ask for the status:   huc-monitor status --config {found.folder / 'huc.yaml'}"
    )


def _tell(paragraph: str) -> None:
    tell(f"{paragraph}\n")
