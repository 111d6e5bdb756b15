"""``huc-monitor doctor``: is everything there that a check needs, and if not, what to fix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from huc_monitor._common.safe_text import line
from huc_monitor.cli import options
from huc_monitor.cli.doctor.findings import Diagnosis, guarded, in_one_line
from huc_monitor.cli.doctor.installation import look_at_installation
from huc_monitor.cli.showing import print_json, wrapped
from huc_monitor.errors import HUCError

FINE, ERROR = 0, 2


def run(
    *,
    config: Annotated[
        Path | None,
        typer.Option(help="Configuration file to look at; huc.yaml if it is there."),
    ] = None,
    warm: Annotated[
        bool,
        typer.Option("--warm", help="Compile and keep all kernels, for a container image."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Look at the installation, and at a configuration with its log; say what to fix.

    Audits nothing and records nothing. Exit code 2: a check would fail.
    With --warm it compiles every kernel where NUMBA_CACHE_DIR says, so that no first command waits.

    Example: huc-monitor doctor --config huc.yaml
    """
    findings = list(look_at_installation())
    if warm:
        from huc_monitor.cli.doctor.warming import warm as warm_up

        findings += warm_up()
    chosen = config or (Path("huc.yaml") if Path("huc.yaml").is_file() else None)
    if chosen is not None:
        findings += _project(chosen)
    wrong = any(finding.outcome == "wrong" for finding in findings)
    if as_json:
        document = {
            "status": "wrong" if wrong else "ok",
            "findings": [asdict(finding) for finding in findings],
        }
        print_json(document)
    else:
        _show(findings, looked_at=chosen)
    raise typer.Exit(ERROR if wrong else FINE)


def _show(findings: list[Diagnosis], *, looked_at: Path | None) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        head = f"{finding.outcome:<5}  {finding.check:<{width}}  "
        typer.echo(wrapped(f"{head}{line(finding.text)}", hang=len(head)))
        if finding.fix is not None:
            fix = f"{'':<{len(head)}}-> {line(finding.fix)}"
            typer.echo(wrapped(fix, hang=len(head) + 3))
    if looked_at is None:
        typer.echo("No huc.yaml here: --config FILE looks at one; huc-monitor init writes one.")


def _project(path: Path) -> Iterator[Diagnosis]:
    from huc_monitor.cli.doctor.data import look_at_log
    from huc_monitor.cli.doctor.plugins import look_at_plugins
    from huc_monitor.config import load_config

    try:
        config = load_config(path)
    except (HUCError, OSError) as error:
        fix = "correct the file; see huc-monitor init"
        yield Diagnosis("config", "wrong", in_one_line(error), fix)
        return
    leaves, branches = config.tree.n_leaves, len(config.tree.branches)
    yield Diagnosis("config", "ok", f"{path}: {leaves} leaves, {branches} branches")
    said = config.settings.tolerance.say_out_of_reach(config.tree, config.utilities)
    if said is not None:
        text, _, fix = said.rpartition(": ")
        yield Diagnosis("tolerance", "note", text, fix)
    yield from guarded("log", lambda: look_at_log(config), "check source and columns in the file")
    yield from look_at_plugins(config)
