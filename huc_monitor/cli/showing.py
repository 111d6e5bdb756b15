"""Print an audit as a headline, a sentence on the worst branch, and a table."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from huc_monitor._common.safe_text import STAR, TICK, json_line, line, plain, quoted, visible

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from huc_monitor.audit import AuditResult
    from huc_monitor.audit.comparison import Comparison
    from huc_monitor.audit.familiar import FamiliarNumbers

_CANDIDATE = ("utility", "subgroup", "branch")
STYLES = {"critical": "red", "failed": "magenta", "warning": "yellow", "ok": "green"}
_PATIENCE = 2.0  # seconds
_HANGING = re.compile(r" *(?:- )?")


def show_audit(result: AuditResult, *, tolerance: float | None, top: int) -> None:
    """Print the `top` candidates of largest absolute moment."""
    from rich.text import Text

    console = make_console()
    frame = worst_first(result.to_frame(all_columns=True))
    console.print(Text(headline(result), style="bold"))
    if frame.empty:
        console.print(Text("No branch of this tree can change any of these utilities."))
        return
    console.print(Text(finding(frame.iloc[0], confidence_level=result.confidence_level)))
    console.print()
    _print_candidates(console, frame.head(top), tolerance=tolerance)
    if len(frame) > top:
        console.print(Text(f"{len(frame) - top:,} more candidates; --top {len(frame)} shows all."))
    if result.familiar is not None:
        show_familiar(result.familiar, console)


def show_familiar(known: FamiliarNumbers, console: Console) -> None:
    """Print numbers people know, and what each of them is and hides."""
    from rich.text import Text

    console.print()
    console.print(Text(f"Familiar numbers, each with its {known.confidence_level:.4g} interval"))
    rows = [
        ([one.name, *(f"{x:.4f}" for x in (one.value, one.lower, one.upper))], "")
        for one in known.numbers
    ]
    print_table(console, ("number",), ("value", "at least", "at most"), rows)
    say("What each is; and what it hides:")
    about = {one.name.partition(",")[0]: (one.measures, one.hides) for one in known.numbers}
    for name, (measures, hides) in about.items():
        tell(f"  - {name}: {measures}; {hides}")


def show_comparison(result: Comparison, *, top: int) -> None:
    """Print the `top` candidates of largest absolute difference."""
    from rich.text import Text

    console = make_console()
    sizes = f"n = {result.n_before:,.0f} before, {result.n_after:,.0f} after"
    confidence = f"{result.confidence_level:.4g} confidence"
    found = f"{len(result.sure)} of {len(result)} candidates differ by more than chance"
    head = f"{found} ({confidence})  {sizes}"
    console.print(Text(head, style="bold"))
    if result.kind == "predictors":
        huc = result.huc
        change = f"{huc.difference:+.4f}, between {huc.lower:+.4f} and {huc.upper:+.4f}"
        console.print(Text(f"HUC {huc.before:.4f} before, {huc.after:.4f} after: {change}"))
    console.print()
    rows = []
    for row in np.argsort(-np.abs(result.difference), kind="stable")[:top]:
        item = result[int(row)]
        values = (item.before, item.after, item.difference, item.lower, item.upper)
        numbers = [*(f"{value:+.4f}" for value in values), "yes" if item.sure else ""]
        cells = [item.utility, item.subgroup, item.node, *numbers]
        rows.append((cells, "red" if item.sure else ""))
    titles = ("before", "after", "difference", "at least", "at most", "sure")
    print_table(console, _CANDIDATE, titles, rows)
    if len(result) > top:
        more = f"{len(result) - top:,} more candidates; --top {len(result)} shows all."
        console.print(Text(more))


def worst_first(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort candidates by absolute moment; equal ones keep their order."""
    return frame.sort_values("moment", key=lambda moment: -moment.abs(), kind="stable")


def headline(result: AuditResult) -> str:
    """Say HUC, UC and the number of rows."""
    return f"HUC {result.huc:.4f}  UC {result.uc:.4f}  n = {result.n:,.0f}"


def finding(row: pd.Series[Any], *, confidence_level: float) -> str:
    """Say in one sentence which branch is off, for whom, where, and which way."""
    if row["moment"] == 0:
        return "Every moment is exactly zero."
    way = "understates" if row["moment"] > 0 else "overstates"
    where = f"{_interval(row)} ({row['n_in_interval']:,.0f} rows)"
    return (
        f"Worst: branch {quoted(row['node'])} {way} the utility {quoted(row['utility'])} by "
        f"{abs(row['moment']):.4f} for {quoted(row['subgroup'])}, where the predicted "
        f"utility is in {where}; its true size is between {row['lower']:.4f} and "
        f"{row['upper']:.4f} ({confidence_level:.4g} confidence)."
    )


def _interval(row: pd.Series[Any]) -> str:
    if row["moment"] == 0:
        return ""  # no interval is worse than another
    return f"[{row['interval_low']:.4g}, {row['interval_high']:.4g}]"


def _print_candidates(console: Console, frame: pd.DataFrame, *, tolerance: float | None) -> None:
    titles = ["moment", "at least", "at most", "predicted utility", "rows"]
    titles += [] if tolerance is None else [f"above {tolerance:g}"]
    rows = []
    for _, row in frame.iterrows():
        cells = [row[name] for name in ("utility", "subgroup", "node")]
        cells += [f"{row['moment']:+.4f}", f"{row['lower']:.4f}", f"{row['upper']:.4f}"]
        cells += [_interval(row), f"{row['n_in_interval']:,.0f}"]
        above = tolerance is not None and abs(row["moment"]) > tolerance
        cells += [] if tolerance is None else ["yes" if above else ""]
        rows.append((cells, "red" if above else ""))
    print_table(console, _CANDIDATE, titles, rows)


def print_table(
    console: Console,
    names: Sequence[str],
    numbers: Sequence[str],
    rows: Sequence[tuple[Sequence[str], str]],
) -> None:
    """Print a table of names and numbers; each row comes with its style.

    Where names and numbers do not fit side by side, the names of a row stand below each other, and
    then the words of a title, if need be.
    """
    from rich.measure import Measurement

    def fits(table: Any) -> bool:
        endless = console.options.update(max_width=10_000)
        return Measurement.get(console, endless, table).maximum <= console.width

    table = _make_table(names, numbers, rows)
    if len(names) > 1 and not fits(table):
        n = len(names)
        stacked = [(["\n".join(cells[:n]), *cells[n:]], style) for cells, style in rows]
        table = _make_table(["\n".join(names)], numbers, stacked)
        if not fits(table):
            narrow = [title.replace(" ", "\n") for title in numbers]
            table = _make_table(["\n".join(names)], narrow, stacked)
    console.print(table)


def _make_table(
    names: Sequence[str], numbers: Sequence[str], rows: Iterable[tuple[Sequence[str], str]]
) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for cells, style in rows:
        # Text, not str: a name like "[b]" is a name, not markup.
        shown = ("\n".join(map(plain, cell.split("\n"))) for cell in cells)
        table.add_row(*map(Text, shown), style=style)
    return table


def make_console() -> Console:
    """Make what prints tables: as wide as the terminal; elsewhere as COLUMNS says, or 80."""
    from rich.console import Console

    return Console(width=shutil.get_terminal_size().columns, highlight=False, soft_wrap=False)


def wrapped(text: str, *, hang: int = 0) -> str:
    """Break lines at spaces, with hanging indents; commands and long words stay whole."""
    width = shutil.get_terminal_size().columns
    out = []
    for one in text.split("\n"):
        indent = _HANGING.match(one)
        if len(one) <= width or indent is None or one.lstrip().startswith("huc-monitor "):
            out.append(one)
            continue
        room = " " * (hang or indent.end())
        wrapper = textwrap.TextWrapper(
            width, subsequent_indent=room, break_long_words=False, break_on_hyphens=False
        )
        out.append(wrapper.fill(one))
    return "\n".join(out)


def tell(paragraph: str) -> None:
    """Print a message; on a terminal, with marked names in bold and levels in their colours."""
    from rich.console import Console
    from rich.text import Text

    shown = wrapped("\n".join(map(visible, paragraph.split("\n"))))
    text = Text()
    for place, part in enumerate(shown.split("*")):
        text.append(part.replace(STAR, "*").replace(TICK, "`"), style="bold" if place % 2 else "")
    for level, style in STYLES.items():
        text.highlight_regex(rf"(?m)^{level.upper()}$", f"bold {style}")
    Console(soft_wrap=True, highlight=False).print(text)


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Say on standard error, on a terminal, that something takes longer than two seconds."""

    def tell_late() -> None:
        typer.echo(f"{line(what)}: working ...", err=True)

    timer = threading.Timer(_PATIENCE, tell_late)
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def say(text: str, *, err: bool = False) -> None:
    """Print one sentence on lines that fit; control characters in names are escaped."""
    typer.echo(wrapped(line(text)), err=err)


def print_json(document: Any) -> None:
    """Print one JSON document on one line."""
    typer.echo(json_line(document))
