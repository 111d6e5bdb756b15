"""One Markdown and one CSV table per data set, with the paper's figures beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from .methods import METHODS
from .scoring import METRICS

if TYPE_CHECKING:
    from .problem import Problem

PAPER = Path(__file__).parents[1] / "paper_tables.csv"
HEADINGS = {
    "accuracy": "Acc.",
    "auc": "AUC",
    "uc": "UC",
    "huc": "HUC",
    "log_loss": "Log loss",
    "updates": "Updates",
}


def summary(results: pd.DataFrame, name: str) -> pd.DataFrame:
    """Mean and sample standard deviation, pooled and by base, ours and the paper's."""
    pooled = results.assign(base="pooled")
    both = pd.concat([pooled, results]) if results["base"].nunique() > 1 else pooled
    long = both.melt(["base", "method", "split"], list(METRICS), "metric", "value")
    ours = long.groupby(["base", "method", "metric"], sort=False)["value"].agg(
        mean="mean", sd="std", n="count"
    )
    paper = pd.read_csv(PAPER)
    paper = (
        paper[paper["data"] == name].drop(columns="data").set_index(["base", "method", "metric"])
    )
    table = ours.join(paper.rename(columns={"mean": "paper_mean", "sd": "paper_sd"})).reset_index()
    order = {method: place for place, method in enumerate(METHODS)}
    bases = {base: place for place, base in enumerate(table["base"].unique())}
    ranks = {metric: place for place, metric in enumerate(METRICS)}
    key = table["base"].map(bases) * 10_000 + table["method"].map(order) * 100
    return table.iloc[(key + table["metric"].map(ranks)).argsort(kind="stable")].reset_index(
        drop=True
    )


def markdown(table: pd.DataFrame, problem: Problem, n_splits: int) -> str:
    """Tables for readers: ours first, the paper's in brackets."""
    lines = [
        f"# {problem.name}",
        "",
        f"Mean ± sample standard deviation over {n_splits} splits; the paper's figures in "
        "brackets. UC and HUC are point estimates on test rows.",
        *(["", *problem.notes] if problem.notes else []),
    ]
    for base in table["base"].unique():
        part = table[table["base"] == base].set_index(["method", "metric"])
        several = base == "pooled" and table["base"].nunique() > 1
        title = "All base predictors" if several else "LR" if base == "pooled" else base
        lines += ["", f"## {title}", ""]
        lines += ["| Method | " + " | ".join(HEADINGS[m] for m in METRICS) + " |"]
        lines += ["|---|" + "---|" * len(METRICS)]
        for method in part.index.get_level_values("method").unique():
            cells = [_cell(part.loc[(method, metric)], metric) for metric in METRICS]
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(row: pd.Series, metric: str) -> str:
    digits = 1 if metric == "updates" else 4
    text = f"{row['mean']:.{digits}f}"
    if row["n"] > 1:
        text += f" ± {row['sd']:.{digits}f}"
    if pd.notna(row["paper_mean"]):
        text += f" [{row['paper_mean']:.{digits}f} ± {row['paper_sd']:.{digits}f}]"
    return text


def write_tables(results: pd.DataFrame, problem: Problem, folder: Path) -> Path:
    """Write both tables and return the readable one."""
    folder.mkdir(parents=True, exist_ok=True)
    table = summary(results, problem.name)
    table.to_csv(folder / f"{problem.name}.csv", index=False, float_format="%.6g")
    file = folder / f"{problem.name}.md"
    file.write_text(markdown(table, problem, results["split"].nunique()), encoding="utf-8")
    return file
