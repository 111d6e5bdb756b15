"""`init` recognises predictions by their values, whatever form and names they have."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import huc_monitor as hm
from huc_monitor.audit.sparse_rows import as_dense
from huc_monitor.config import init_config, parse_config
from huc_monitor.config._guess import guess_log
from huc_monitor.config._inspect import open_place, take_sample
from huc_monitor.sources import Columns, TableSource

FORMS = (
    "columns",
    "list",
    "lists",
    "pairs",
    "map",
    "struct",
    "json list",
    "json lists",
    "json pairs",
    "json map",
    "top lists",
    "top codes",
    "top pairs",
    "json top map",
    "logits list",
    "logits columns",
    "log map",
    "branches columns",
    "json branches map",
    "levels columns",
)
DAY = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 3, tzinfo=UTC)


def random_tree(rng):
    names = iter(
        rng.permutation([f"{a}{b}" for a in "bdfgklmn" for b in ("a", "e", "i", "o", "u")])
    )
    nested = {}
    for _ in range(rng.integers(2, 4)):
        below = {str(next(names)): None for _ in range(rng.integers(2, 5))}
        inner = str(next(names))
        if rng.random() < 0.5:
            below[str(next(names))] = {str(next(names)): None for _ in range(rng.integers(2, 4))}
        nested[inner] = below
    return hm.LabelTree.from_nested(nested)


def random_log(seed, n=600):
    """Make a log in a random form under random names; returns tree, table, form and truth."""
    rng = np.random.default_rng(seed)
    form = FORMS[seed % len(FORMS)]
    tree = random_tree(rng)
    leaves = tree.leaves
    logits = 2 * rng.normal(size=(n, len(leaves)))
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    y = [leaves[rng.choice(len(leaves), p=row)] for row in p]
    names = {key: str(rng.choice(options)) for key, options in NAMES.items()}
    columns = {
        names["id"]: pa.array([f"r{i}" for i in range(n)]),
        names["time"]: pa.array(pd.date_range("2024-01-01", periods=n, freq="4min", tz="UTC")),
        "country": pa.array(rng.choice(["de", "fr", "it"], n)),
        "latency_ms": pa.array(rng.exponential(20, n)),
        "embedding": pa.array(list(rng.normal(size=(n, 4)))),
        names["label"]: pa.array(y),
    }
    columns |= written(form, p, tree, names, rng)
    order = rng.permutation(list(columns))
    return tree, pa.table({name: columns[name] for name in order}), form, p, names["label"]


NAMES = {
    "id": ("id", "request_id", "prediction_uuid"),
    "time": ("ts", "created_at", "timestamp"),
    "label": ("label", "y_true", "outcome"),
    "scores": ("scores", "probs", "prediction", "model_output"),
    "classes": ("classes", "labels_ranked", "names"),
    "before": ("p_", "prob_", "score."),
}


def written(form, p, tree, names, rng):
    text = form.startswith("json")
    kind, scores, classes = form.removeprefix("json "), names["scores"], names["classes"]
    k = 3 if "top" in form else p.shape[1]
    order = np.argsort(-p, axis=1)[:, :k]
    if "top" not in form:
        order = rng.permuted(np.tile(np.arange(k), (len(p), 1)), axis=1)
    values = np.log(p) + 1.5 if "logits" in form else np.log(p) if "log " in form else p
    numbers = np.take_along_axis(values, order, axis=1).tolist()
    called = [[tree.leaves[j] for j in row] for row in order]
    maps = [dict(zip(*both, strict=True)) for both in zip(called, numbers, strict=True)]
    if "branches" in form or "levels" in form:
        maps = node_maps(tree, p, "branches" in form)
    if kind.endswith("columns"):
        keys = list(maps[0]) if kind != "columns" and "logits" not in kind else tree.leaves
        return {names["before"] + key: pa.array([one[key] for one in maps]) for key in keys}
    if kind.endswith("pairs"):
        pairs = [[{"class": c, "score": s} for c, s in one.items()] for one in maps]
        return {scores: wrap(pairs, text)}
    if kind.endswith(("lists", "codes")):
        which = order.tolist() if kind.endswith("codes") else called
        return {scores: wrap(numbers, text), classes: wrap(which, text)}
    if kind.endswith("list"):
        return {scores: wrap(values.tolist(), text)}
    if kind == "map" and not text:
        named = pa.map_(pa.string(), pa.float64())
        return {scores: pa.array([list(one.items()) for one in maps], named)}
    return {scores: wrap(maps, text)}


def node_maps(tree, p, given_parent):
    under = {
        node: p[:, [tree.leaf_index(leaf) for leaf in tree.leaves_under(node)]].sum(axis=1)
        for node in (*tree.nodes, *tree.leaves)
    }
    below = [node for node in under if node != tree.root]
    whole = {depth: sum(under[x] for x in below if tree.depth(x) == depth) for depth in range(1, 4)}
    sharper = {node: under[node] / whole[tree.depth(node)] for node in below}
    scores = {n: under[n] / under[tree.parent(n)] for n in below} if given_parent else sharper
    return [{node: float(one[i]) for node, one in scores.items()} for i in range(len(p))]


def wrap(values, text):
    return pa.array([json.dumps(value) for value in values] if text else values)


def is_right(seed, folder):
    """Guess without a flag, read by the guess, and compare with what was written."""
    tree, table, form, p, label = random_log(seed)
    place = folder / f"log{seed}.parquet"
    pq.write_table(table, place)
    opened = open_place(str(place), None, folder, argument="log")
    guess = guess_log(take_sample(opened), tree)
    source = TableSource(
        opened.table,
        tree=tree,
        columns=Columns(
            time=guess.time, id=guess.id, label=guess.label, probabilities=guess.predictions
        ),
        sum_tolerance=guess.sum_tolerance,
        reference=DAY,
    )
    data = source.labelled(*DAY)
    found = as_dense(data.probabilities)
    logged = np.argsort(-p, axis=1)[:, : 3 if "top" in form else p.shape[1]]
    same = np.abs(np.take_along_axis(found - p, logged, axis=1)).max() < 1e-9
    ruled = (guess.predictions.rest == "reference") == ("top" in form)
    return len(found) == len(p) and bool(same) and ruled and guess.label == label


@pytest.mark.slow
def test_thirty_logs_in_random_forms_are_recognised(tmp_path):
    right = [is_right(seed, tmp_path) for seed in range(100, 130)]
    assert sum(right) >= 28


@pytest.mark.parametrize(
    ("seed", "said"),
    [
        (110, ("class_column:", "rest: reference", "% of the mass is not logged")),
        (116, ("scale: log_probabilities", "they are logarithms")),
    ],
)
def test_the_file_says_what_was_assumed_and_works(seed, said, tmp_path):
    tree, table, *_ = random_log(seed)
    pq.write_table(table, tmp_path / "log.parquet")
    (tmp_path / "tree.json").write_text(json.dumps(tree.to_dict()))
    text = init_config(tmp_path / "log.parquet", tmp_path / "tree.json", folder=tmp_path)
    assert "Assumed from the values" in text
    assert all(" ".join(part.split()) in " ".join(text.replace("#", " ").split()) for part in said)
    data = parse_config(text, folder=tmp_path).open_source().labelled(*DAY)
    assert data.n == 600
