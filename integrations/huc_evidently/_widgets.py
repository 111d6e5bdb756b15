"""The pictures of a window: the tree as an icicle, the worst moments with bounds, and a table.

Everything is made of Evidently's own widgets, and stored with the snapshot.
"""

from __future__ import annotations

from html import escape
from typing import Any

import pandas as pd
from evidently.legacy.renderers.html_widgets import (
    CounterData,
    WidgetSize,
    counter,
    header_text,
    plotly_data,
    table_data,
)

from huc_evidently._window import WindowAudit
from huc_monitor.tree import LabelTree

# Readable beside each other for the colour-blind, as in our own report.
COLOURS = {"critical": "#b2182b", "warning": "#e08214", "ok": "#92c5de", None: "#d9d9d9"}
VERDICTS = {
    "critical": "above tolerance",
    "warning": "above tolerance, maybe by chance",
    "ok": "within tolerance",
}
MOST_BARS, MOST_ROWS, MOST_TILES = 20, 200, 2_000


def draw(current: WindowAudit, reference: WindowAudit | None, *, name: str | None) -> list[Any]:
    """Return the widgets of a report, from the summary to the table."""
    frame = in_order(current.frame)
    title = "Utility calibration by branch" + (f": {name}" if name else "")
    widgets = [_summary(title, current, frame)]
    if frame.empty:
        return widgets
    return [
        *widgets,
        _icicle(current.result.tree, frame),
        _bars(frame),
        _table(frame, reference),
    ]


def nothing_to_draw() -> list[Any]:
    """Say that there was nothing to audit."""
    return [header_text(label="Utility calibration: no row of the current data has a label yet.")]


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort testable candidates by how far they exceed their tolerance, the worst first."""
    kept = frame[frame["testable"]]
    excess = kept["point"] - kept["tolerance"]
    rank = kept["level"].map({"critical": 0, "warning": 1, "ok": 2})
    order = pd.DataFrame({"rank": rank, "excess": -excess}).sort_values(
        ["rank", "excess"], kind="stable"
    )
    return kept.loc[order.index]


def _summary(title: str, current: WindowAudit, frame: pd.DataFrame) -> Any:
    result = current.result
    found = [
        CounterData("labelled rows", f"{result.n:,.0f}"),
        CounterData("HUC", f"{result.huc:.3f}"),
        CounterData(
            f"HUC with {result.confidence_level:.0%} bounds",
            f"{result.huc_lower:.3f} to {result.huc_upper:.3f}",
        ),
        CounterData("UC", f"{result.uc:.3f}"),
        CounterData(
            "above tolerance by more than chance", str((frame["level"] == "critical").sum())
        ),
        CounterData("candidates", str(len(frame))),
    ]
    return counter(title=title, counters=found)


def _icicle(tree: LabelTree, frame: pd.DataFrame) -> Any:
    """Draw the tree as rows of tiles; a tile has the colour of its worst candidate.

    Tiles are bars: the plotly in Evidently's pages knows no icicles.
    """
    worst = frame.groupby("node", sort=False).head(1).set_index("node")
    place = {leaf: (i, 1) for i, leaf in enumerate(tree.leaves)}
    for node in tree.nodes:
        below = tree.leaves_under(node)
        place[node] = (place[below[0]][0], len(below))
    shown = sorted(place, key=tree.depth)[:MOST_TILES]
    rows: list[Any] = [worst.loc[node] if node in worst.index else None for node in shown]
    stories = ["" if row is None else f"<br>{_story(row)}" for row in rows]
    data = {
        "type": "bar",
        "x": [place[node][0] + place[node][1] / 2 for node in shown],
        "width": [place[node][1] for node in shown],
        "base": [-tree.depth(node) - 1 for node in shown],
        "y": [1] * len(shown),
        "marker": {
            "color": [COLOURS[None if row is None else row["level"]] for row in rows],
            "line": {"color": "white", "width": 2},
        },
        "text": [escape(node) for node in shown],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "inside",
        "hovertext": [
            f"<b>{escape(node)}</b>{story}" for node, story in zip(shown, stories, strict=True)
        ],
        "hoverinfo": "text",
    }
    hidden = {"visible": False, "fixedrange": True}
    layout = {
        "margin": {"t": 10, "l": 10, "r": 10, "b": 10},
        "height": 80 + 60 * (tree.height + 1),
        "showlegend": False,
        "xaxis": hidden,
        "yaxis": hidden,
    }
    title = (
        "Branches: red above tolerance by more than chance, orange perhaps, blue within, grey not "
        "audited"
    )
    return plotly_data(title=title, data=[data], layout=layout)


def _story(row: Any) -> str:
    direction = "overstated" if row["moment"] < 0 else "understated"
    return (
        f"{escape(row['utility'])} {direction} for {escape(row['subgroup'])}<br>moment "
        f"{row['moment']:+.4f}, at least {row['lower']:.4f}, tolerance {row['tolerance']:.4f}"
    )


def _bars(frame: pd.DataFrame) -> Any:
    worst = frame.head(MOST_BARS).iloc[::-1]
    names = [
        escape(f"{row.node} · {row.subgroup} · {row.utility}") + "  "
        for row in worst.itertuples(index=False)
    ]
    places = list(range(len(names)))
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": places,
        "x": worst["point"].tolist(),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": (worst["upper"] - worst["point"]).tolist(),
            "arrayminus": (worst["point"] - worst["lower"]).tolist(),
            "color": "#404040",
        },
        "marker": {"color": [COLOURS[level] for level in worst["level"]]},
        "name": "absolute moment with bounds",
        "hovertext": [_story(row) for _, row in worst.iterrows()],
        "hoverinfo": "text",
    }
    marks = {
        "type": "scatter",
        "mode": "markers",
        "y": places,
        "x": worst["tolerance"].tolist(),
        "marker": {"symbol": "line-ns-open", "size": 18, "color": "black", "line": {"width": 2}},
        "name": "tolerance",
        "hoverinfo": "x",
    }
    layout = {
        "height": 120 + 26 * len(names),
        "margin": {"l": 10, "r": 10, "t": 10, "b": 40},
        "xaxis": {"title": {"text": "absolute moment, in utility"}, "rangemode": "tozero"},
        "yaxis": {"automargin": True, "tickmode": "array", "tickvals": places, "ticktext": names},
        "legend": {"orientation": "h"},
    }
    return plotly_data(title="The worst moments, with bounds", data=[bars, marks], layout=layout)


def _table(frame: pd.DataFrame, reference: WindowAudit | None) -> Any:
    before = {} if reference is None else _moments(reference.frame)
    heads = ["Node", "Subgroup", "Utility", "Moment", "Lower", "Upper", "Tolerance", "Verdict"]
    rows = []
    row: Any
    for row in frame.head(MOST_ROWS).to_dict(orient="records"):
        cells = [row["node"], row["subgroup"], row["utility"], f"{row['moment']:+.4f}"]
        cells += [f"{row[name]:.4f}" for name in ("lower", "upper", "tolerance")]
        cells.append(VERDICTS[row["level"]])
        if reference is not None:
            was = before.get((row["utility"], row["subgroup"], row["node"]))
            cells.append("" if was is None else f"{was:+.4f}")
        rows.append(cells)
    if reference is not None:
        heads.append("Moment in the reference")
    title = f"All {len(frame)} candidates, the worst first"
    if len(frame) > MOST_ROWS:
        title = f"The worst {MOST_ROWS} of {len(frame)} candidates"
    return table_data(title=title, column_names=heads, data=rows, size=WidgetSize.FULL)


def _moments(frame: pd.DataFrame) -> dict[tuple[str, str, str], float]:
    kept = frame[frame["testable"]]
    names = zip(kept["utility"], kept["subgroup"], kept["node"], strict=True)
    return dict(zip(names, kept["moment"].astype(float), strict=True))
