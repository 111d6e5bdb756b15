"""The same predictions in every form that logs have them in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import huc_monitor as hm

TREE = hm.LabelTree.from_nested(
    {"left": ["a", "b", "c"], "right": {"near": ["d", "e"], "far": ["f", "g"]}}
)
UTILITIES = [hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=3), hm.Payoff("pay", {"a": 1})]
TOP = 3


@dataclass(frozen=True)
class FormCase:
    """A table of predictions in one form, the words that say so, and what was lost."""

    name: str
    words: dict[str, Any]
    table: pa.Table
    lossless: bool

    @property
    def frame(self) -> pd.DataFrame:
        return self.table.to_pandas()


def predictions(n: int = 120, *, seed: int = 0, zeros: bool = False) -> tuple[Any, list[str]]:
    """Probabilities in the order of the tree, and labels."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(TREE.n_leaves, 0.7), n)
    if zeros:
        p[p < 0.05] = 0.0
        p /= p.sum(axis=1, keepdims=True)
    return p, [TREE.leaves[rng.choice(TREE.n_leaves, p=row)] for row in p]


def node_scores(p: Any, of: str) -> dict[str, Any]:
    """Conditional probabilities of every node: given its parent, or by level."""
    mass = {
        name: p[:, [TREE.leaf_index(leaf) for leaf in TREE.leaves_under(name)]].sum(axis=1)
        for name in (*TREE.nodes, *TREE.leaves)
    }
    below = [name for name in mass if name != TREE.root]
    if of == "branches":
        return {name: mass[name] / mass[TREE.parent(name)] for name in below}
    levels: dict[int, Any] = {}
    for name in below:
        levels[TREE.depth(name)] = levels.get(TREE.depth(name), 0) + mass[name]
    return {name: mass[name] / levels[TREE.depth(name)] for name in below}


def all_forms(n: int = 120, *, seed: int = 0) -> list[FormCase]:
    """Make every form of the same predictions; ids count rows, times are minutes apart."""
    p, y = predictions(n, seed=seed)
    rng = np.random.default_rng(seed + 1)
    leaves = TREE.leaves
    base: dict[str, Any] = {
        "id": pa.array(range(n)),
        "at": pa.array(pd.date_range("2024-01-01", periods=n, freq="min", tz="UTC")),
        "y": pa.array(y),
    }
    orders = [rng.permutation(len(leaves)) for _ in range(n)]
    names = [[leaves[j] for j in order] for order in orders]
    numbers = [[float(row[j]) for j in order] for row, order in zip(p, orders, strict=True)]
    best = [np.argsort(-row)[:TOP] for row in p]
    top_names = [[leaves[j] for j in order] for order in best]
    top_numbers = [[float(row[j]) for j in order] for row, order in zip(p, best, strict=True)]
    pairs = _pairs(names, numbers)
    maps = [dict(zip(*both, strict=True)) for both in zip(names, numbers, strict=True)]
    shuffled = [*leaves[3:], *leaves[:3]]
    place = [leaves.index(leaf) for leaf in shuffled]
    logits = np.log(p) + rng.normal(size=(n, 1))

    def case(
        name: str, words: dict[str, Any], *, lossless: bool = True, **columns: Any
    ) -> FormCase:
        return FormCase(name, words, pa.table({**base, **columns}), lossless)

    def text(values: Any) -> Any:
        return pa.array([json.dumps(value) for value in values])

    named = pa.map_(pa.string(), pa.float64())
    wide = {f"p_{leaf}": pa.array(p[:, k]) for k, leaf in enumerate(leaves)}
    mapping = {leaf: f"p_{leaf}" for leaf in leaves}
    both = {"list": "s", "class_column": "c"}
    found = [
        case("columns", {"pattern": "p_{leaf}"}, **wide),
        case("named columns", {"columns": mapping}, **wide),
        case("list", {"list": "s", "classes": shuffled}, s=pa.array(list(p[:, place]))),
        case("list of the tree", {"list": "s"}, s=pa.array(list(p))),
        case("list and classes", both, s=pa.array(numbers), c=pa.array(names)),
        case("pairs", {"pairs": "s"}, s=pa.array(pairs)),
        case("map", {"map": "s"}, s=pa.array([list(one.items()) for one in maps], named)),
        case("struct", {"map": "s"}, s=pa.array(maps)),
        case("JSON list", {"list": "s"}, s=text(p.tolist())),
        case("JSON list and classes", both, s=text(numbers), c=text(names)),
        case("JSON pairs", {"pairs": "s"}, s=text(pairs)),
        case("JSON map", {"map": "s"}, s=text(maps)),
        case("top-k lists", {**both, "rest": "uniform"}, lossless=False,
             s=pa.array(top_numbers), c=pa.array(top_names)),
        case("top-k codes", {**both, "rest": {"leaf": "g"}}, lossless=False,
             s=pa.array(top_numbers), c=pa.array([list(map(int, one)) for one in best])),
        case("top-k pairs", {"pairs": "s", "rest": {"a": 2.0, "g": 1.0}}, lossless=False,
             s=pa.array(_pairs(top_names, top_numbers))),
        case("top-k log-probabilities", {"pairs": "s", "rest": "uniform",
             "scale": "log_probabilities"}, lossless=False,
             s=text(_pairs(top_names, [list(map(float, np.log(one))) for one in top_numbers]))),
        case("logits", {"list": "s", "scale": "logits"}, lossless=False,
             s=pa.array(list(logits))),
        case("log-probabilities", {"map": "s", "scale": "log_probabilities"}, lossless=False,
             s=text([dict(zip(leaves, map(float, row), strict=True)) for row in np.log(p)])),
    ]  # fmt: skip
    for of in ("branches", "levels"):
        scores = node_scores(p, of)
        rows = [{name: float(one[i]) for name, one in scores.items()} for i in range(n)]
        columns = {f"q_{name}": pa.array(one) for name, one in scores.items()}
        found += [
            case(f"{of} by column", {"pattern": "q_{leaf}", "of": of}, lossless=False, **columns),
            case(f"{of} by map", {"map": "s", "of": of}, lossless=False, s=text(rows)),
        ]
    return found


def _pairs(names: Any, numbers: Any) -> list[list[dict[str, Any]]]:
    return [
        [{"class": name, "score": number} for name, number in zip(*both, strict=True)]
        for both in zip(names, numbers, strict=True)
    ]
