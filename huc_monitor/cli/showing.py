"""Print an audit as a headline, a sentence on the worst branch, and a table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from huc_monitor._common.safe_text import STAR, json_line, line, plain, quoted, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    from rich.console import Console

    from huc_monitor.audit import AuditResult
    from huc_monitor.audit.compare import Comparison

_CANDIDATE = ("utility", "subgroup", "branch")
# A file or a log has no width: wide enough that no name is folded.
_WIDTH_WITHOUT_TERMINAL = 200


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
    console.print(_table(frame.head(top), tolerance=tolerance))
    if len(frame) > top:
        console.print(Text(f"{len(frame) - top:,} more candidates; --top {len(frame)} shows all."))


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
        rows.append(([item.utility, item.subgroup, item.node, *numbers], item.sure))
    titles = ("before", "after", "difference", "at least", "at most", "sure")
    console.print(make_table(_CANDIDATE, titles, rows))
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


def _table(frame: pd.DataFrame, *, tolerance: float | None) -> Any:
    titles = ["moment", "at least", "at most", "predicted utility", "rows"]
    titles += [] if tolerance is None else [f"above {tolerance:g}"]
    rows = []
    for _, row in frame.iterrows():
        cells = [row[name] for name in ("utility", "subgroup", "node")]
        cells += [f"{row['moment']:+.4f}", f"{row['lower']:.4f}", f"{row['upper']:.4f}"]
        cells += [_interval(row), f"{row['n_in_interval']:,.0f}"]
        above = tolerance is not None and abs(row["moment"]) > tolerance
        cells += [] if tolerance is None else ["yes" if above else ""]
        rows.append((cells, above))
    return make_table(_CANDIDATE, titles, rows)


def make_table(
    names: Sequence[str], numbers: Sequence[str], rows: Iterable[tuple[Sequence[str], bool]]
) -> Any:
    """Make a table of names, which may be folded, and numbers; rows come with whether in red."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for cells, red in rows:
        # Text, not str: a name like "[b]" is a name, not markup.
        table.add_row(*(Text(plain(cell)) for cell in cells), style="red" if red else "")
    return table


def make_console() -> Console:
    """Make what prints tables: as wide as the terminal, or as any name needs."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    return Console(width=width, highlight=False, soft_wrap=False)


def tell(paragraph: str) -> None:
    """Print a message; on a terminal, with the names that it marks in bold."""
    from rich.console import Console
    from rich.text import Text

    text = Text()
    for place, part in enumerate(paragraph.split("*")):
        shown = "\n".join(map(visible, part.split("\n"))).replace(STAR, "*")
        text.append(shown, style="bold" if place % 2 else "")
    Console(soft_wrap=True, highlight=False).print(text)


def say(text: str, *, err: bool = False) -> None:
    """Print one line, whatever the names in it hold."""
    typer.echo(line(text), err=err)


def print_json(document: Any) -> None:
    """Print one JSON document on one line."""
    typer.echo(json_line(document))
