"""The toy experiment: eight leaves, constant predictions, population errors known exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import huc_monitor as hm

from .problem import MASTER_SEED
from .protocol import read_results, with_progress

SIZES = (
    250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
)  # fmt: skip
PAPER = Path(__file__).parents[1] / "paper_toy.csv"
ETA = np.array([13 / 80, 7 / 80, 21 / 125, 21 / 500, 189 / 2000, 441 / 2000, 9 / 80, 9 / 80])
TREE = hm.LabelTree.from_nested(
    {
        "noninfectious": ["y1", "y2"],
        "infectious": {
            "localized": {"upper": ["y3", "y4"], "lower": ["y5", "y6"]},
            "systemic": ["y7", "y8"],
        },
    }
)
UTILITIES: list[hm.Utility] = [
    hm.BinaryAction("shock", active=["y7", "y8"], favours=["y8"], threshold=0.40),
    hm.BinaryAction(
        "severe", active=list(TREE.leaves), favours=["y2", "y5", "y6", "y7", "y8"], threshold=0.50
    ),
    hm.BinaryAction(
        "bacterial", active=list(TREE.leaves), favours=["y4", "y6", "y7", "y8"], threshold=0.40
    ),
]
METHODS = ("UC-Boost", "HUC-Boost")


def random_prediction(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Leaf distribution whose branches turn right with a probability from Unif(0.1, 0.9)."""
    p = np.ones(TREE.n_leaves)
    for node in TREE.branches:
        right = rng.uniform(0.1, 0.9)
        for child, share in zip(TREE.children(node), (1 - right, right), strict=True):
            p[[TREE.leaf_index(leaf) for leaf in TREE.leaves_under(child)]] *= share
    return p


def correct(method: str, p: np.ndarray[Any, Any], counts: np.ndarray[Any, Any]) -> Any:
    """Correct a constant prediction on a sample given by how often each label occurs."""
    common = {"tree": TREE, "utilities": UTILITIES, "tolerance": 1e-10, "interior": 0.0}
    boost: Any = (
        hm.UCBoost(max_updates=100, **common)
        if method == "UC-Boost"
        else hm.HUCBoost(mode="paper", traversal="largest", max_updates=700, **common)
    )
    rows = np.tile(p, (TREE.n_leaves, 1))
    boost.fit(rows, TREE.leaves, weights=counts)
    return boost.predict_proba(p[None, :])[0]


def population(p: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Exact UC and HUC under the true label distribution."""
    rows = np.tile(p, (TREE.n_leaves, 1))
    result = hm.audit(
        rows, TREE.leaves, tree=TREE, utilities=UTILITIES, weights=ETA, bounds="theorem"
    )
    return float(result.uc), float(result.huc)


def repetition(r: int, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """One initial prediction, corrected on a sample of every size."""
    start = random_prediction(np.random.default_rng([MASTER_SEED, r]))
    lines = []
    for n in sizes:
        counts = np.random.default_rng([MASTER_SEED, r, n]).multinomial(n, ETA)
        for method in METHODS:
            uc, huc = population(correct(method, start, counts))
            lines.append({"repetition": r, "n": n, "method": method, "uc": uc, "huc": huc})
    return lines


def run_toy(folder: Path, *, sizes: tuple[int, ...], repetitions: int, jobs: int) -> pd.DataFrame:
    """All repetitions, those already in the folder included."""
    from joblib import Parallel, delayed

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "toy.jsonl"
    done = {(line["repetition"], line["n"]) for line in read_results(file)}
    todo = {
        r: tuple(n for n in sizes if (r, n) not in done)
        for r in range(repetitions)
        if any((r, n) not in done for n in sizes)
    }
    runs = Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(repetition)(r, left) for r, left in todo.items()
    )
    with file.open("a", encoding="utf-8") as log:
        for lines in with_progress(runs, "toy", len(todo)):
            log.write("".join(json.dumps(line) + "\n" for line in lines))
            log.flush()
    results = pd.DataFrame(read_results(file))
    results = results[results["n"].isin(sizes) & (results["repetition"] < repetitions)]
    return results.drop_duplicates(["repetition", "n", "method"], keep="last")


def toy_table(results: pd.DataFrame) -> pd.DataFrame:
    """Our means beside the paper's, and their distance in standard errors of the difference.

    The paper prints standard deviations at three sizes per curve; elsewhere ours stands in.
    """
    long = results.melt(["method", "n"], ["uc", "huc"], "metric", "value")
    ours = long.groupby(["metric", "method", "n"])["value"].agg(mean="mean", sd="std", count="size")
    paper = pd.read_csv(PAPER).set_index(["metric", "method", "n"])
    table = ours.join(paper.rename(columns={"mean": "paper_mean", "sd": "paper_sd"})).reset_index()
    variance = table["sd"] ** 2 / table["count"]
    variance += table["paper_sd"].fillna(table["sd"]) ** 2 / 200
    table["standard_errors"] = (table["mean"] - table["paper_mean"]) / np.sqrt(variance)
    return table.sort_values(["metric", "method", "n"], ascending=[False, False, True])


def write_toy(results: pd.DataFrame, folder: Path) -> Path:
    """Write the table as Markdown and CSV, and the figure as PNG and SVG."""
    table = toy_table(results)
    table.to_csv(folder / "toy.csv", index=False, float_format="%.6g")
    lines = [
        "# Toy experiment",
        "",
        f"Population error after correction on n labels: mean over {int(table['count'].max())} "
        "repetitions, the paper's mean, and the distance between them in standard errors.",
        "",
        "| Error | Method | n | Ours | Paper | Distance |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row.metric.upper()} | {row.method} | {row.n:,} | {row.mean:.6f} ± {row.sd:.6f} | "
            f"{row.paper_mean:.6f} | {row.standard_errors:+.2f} |"
            for row in table.rename(columns={"mean": "mean"}).itertuples(index=False)
        ),
    ]
    file = folder / "toy.md"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw(table, folder)
    return file


def draw(table: pd.DataFrame, folder: Path) -> None:
    """Figure fig:toy8-sample-size-main(b): lines are ours, crosses the paper's."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 1, sharex=True, figsize=(6, 6), layout="constrained")
    looks = {"UC-Boost": ("#1f5fa8", "-"), "HUC-Boost": ("#7b3fa0", "--")}
    for axis, metric in zip(axes, ("uc", "huc"), strict=True):
        for method, (color, style) in looks.items():
            part = table[(table["metric"] == metric) & (table["method"] == method)]
            axis.errorbar(
                part["n"], part["mean"], yerr=part["sd"], color=color, ls=style, label=method,
                capsize=2, elinewidth=0.6,
            )  # fmt: skip
            axis.plot(part["n"], part["paper_mean"], "x", color=color, label=f"{method}, paper")
        axis.set(xscale="log", yscale="log", ylabel=f"population {metric.upper()}")
        axis.grid(visible=True, alpha=0.2)
    axes[0].legend(fontsize="small", ncols=2)
    axes[1].set_xlabel("calibration labels n")
    mpl.rcParams["svg.hashsalt"] = "toy"
    figure.savefig(folder / "toy.png", dpi=150)
    figure.savefig(folder / "toy.svg", metadata={"Date": None})
    plt.close(figure)
