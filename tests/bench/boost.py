"""Cost of fitting and replaying HUC-Boost, as ratios measured in one run.

Fit: against the same algorithm in whole-array numpy, which audits every candidate after every
update as ours does; it is timed over a few updates and extrapolated to all of them, which the
output says. Replay: against the forest whose predictions it corrects.
`python tests/bench/boost.py` prints one JSON line; `--quick` shrinks it, and `--cpu` counts
processor time of all threads instead of time on the wall, for a machine that others use too.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import huc_monitor as hm

if TYPE_CHECKING:
    from collections.abc import Callable

N_UPDATES = 100
CLOCK = [time.perf_counter]


def binary_tree(depth: int) -> hm.LabelTree:
    """Complete binary tree of 2**depth leaves."""
    return hm.LabelTree.from_paths(
        [
            "/".join([f"n{level}_{leaf >> (depth - level)}" for level in range(1, depth)])
            + f"/y{leaf:03d}"
            for leaf in range(2**depth)
        ]
    )


def sample(n: int, n_leaves: int, seed: int) -> tuple[Any, Any, Any]:
    """Predictions, labels from a sharper and a shifted version of them, and three features."""
    rng = np.random.default_rng(seed)
    p = rng.standard_exponential((n, n_leaves)) ** 2
    p /= p.sum(axis=1, keepdims=True)
    truth = p**0.6 * rng.uniform(0.5, 1.5, n_leaves)
    truth /= truth.sum(axis=1, keepdims=True)
    labels = np.minimum((rng.random((n, 1)) > np.cumsum(truth, axis=1)).sum(axis=1), n_leaves - 1)
    return p, labels, {name: rng.random(n) for name in ("x0", "x1", "x2")}


def seconds(call: Callable[[], Any], repeats: int = 3) -> float:
    """Fastest of several runs."""
    times = []
    for _ in range(repeats):
        start = CLOCK[0]()
        call()
        times.append(CLOCK[0]() - start)
    return min(times)


def case(n: int, depth: int = 5) -> dict[str, Any]:
    """n rows, 2**depth leaves, a correctness utility per level, seven subgroups."""
    tree = binary_tree(depth)
    p, labels, features = sample(n, tree.n_leaves, seed=1)
    spec: dict[str, Any] = dict.fromkeys(features, "median")
    return {
        "tree": tree,
        "p": p,
        "labels": labels,
        "features": features,
        "subgroups": hm.Subgroups.from_reference(features, spec),
        "levels": list(range(1, depth + 1)),
    }


def boosted(data: dict[str, Any], traversal: str = "passes") -> hm.HUCBoost:
    """Fit a hundred updates."""
    return hm.HUCBoost(
        tree=data["tree"],
        utilities=[hm.LevelCorrectness(level=level) for level in data["levels"]],
        subgroups=data["subgroups"],
        mode="paper",
        traversal=traversal,
        tolerance=1e-5,
        interior=data.get("interior", 0.0),
        max_updates=N_UPDATES,
    ).fit(data["p"], data["labels"], features=data["features"])


class Plain:
    """Whole-array numpy: audit all candidates, correct one, again."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.arrays = data["tree"].arrays
        self.p, self.labels = data["p"].copy(), data["labels"]
        self.groups = data["subgroups"].weights(data["features"], len(self.p))
        self.codes = [data["tree"].level_codes(level) for level in data["levels"]]
        self.relevant = [
            hm.LevelCorrectness(level=level).relevant_branches(data["tree"])
            for level in data["levels"]
        ]

    def children(self, v: int) -> list[slice]:
        """Leaves below every child of a branch."""
        arrays = self.arrays
        return [
            slice(arrays.start[c], arrays.stop[c]) if c >= 0 else slice(-1 - c, -c)
            for c in arrays.child_code[arrays.child_ptr[v] : arrays.child_ptr[v + 1]].tolist()
        ]

    def values(self, u: int) -> tuple[Any, Any]:
        """Utility of every leaf, and the score."""
        codes = self.codes[u]
        mass = np.stack([self.p[:, codes == g].sum(1) for g in range(codes.max() + 1)], axis=1)
        values = (codes[None, :] == mass.argmax(axis=1)[:, None]).astype(float)
        return values, (self.p * values).sum(axis=1)

    def means(self, v: int, values: Any) -> Any:
        """Mean utility below every child of a branch."""
        return np.stack(
            [
                (self.p[:, c] * values[:, c]).sum(axis=1) / self.p[:, c].sum(axis=1)
                for c in self.children(v)
            ],
            axis=1,
        )

    def audit(self) -> dict[tuple[int, int, int], tuple[float, float, float]]:
        """Signed moment and interval of every candidate."""
        found = {}
        for u in range(len(self.codes)):
            values, scores = self.values(u)
            order = np.argsort(scores)
            ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
            for v in self.relevant[u].tolist():
                below = slice(self.arrays.start[v], self.arrays.stop[v])
                own = (self.p[:, below] * values[:, below]).sum(1) / self.p[:, below].sum(1)
                means = self.means(v, values)
                contribution = np.zeros(len(scores))
                for j, c in enumerate(self.children(v)):
                    inside = (self.labels >= c.start) & (self.labels < c.stop)
                    contribution[inside] = (means[:, j] - own)[inside]
                for c, weight in enumerate(self.groups):
                    sums = np.append(0.0, np.cumsum((weight * contribution)[order])[ends])
                    rise = sums - np.minimum.accumulate(sums)
                    fall = np.maximum.accumulate(sums) - sums
                    sign = 1 if rise.max() >= fall.max() else -1
                    to = int(np.argmax(rise if sign > 0 else fall))
                    since = int(np.argmin(sign * sums[: to + 1]))
                    low = scores[order[ends[since - 1] + 1 if since else 0]]
                    high = scores[order[ends[to - 1]]]
                    moment = sign * (rise if sign > 0 else fall)[to] / len(scores)
                    found[u, c, v] = (moment, low, high)
        return found

    def update(self, u: int, c: int, v: int, found: tuple[float, float, float]) -> None:
        """Correct one candidate."""
        moment, low, high = found
        values, scores = self.values(u)
        weight = self.groups[c] * ((scores >= low) & (scores <= high))
        h = weight[:, None] * self.means(v, values)
        below = slice(self.arrays.start[v], self.arrays.stop[v])
        reached = (self.labels >= below.start) & (self.labels < below.stop)
        step = moment / (0.25 * np.mean(reached * np.ptp(h, axis=1) ** 2))
        children = self.children(v)
        q = np.stack([self.p[:, child].sum(axis=1) for child in children], axis=1)
        new = q * np.exp(step * (h - h.max(axis=1, keepdims=True)))
        new *= (q.sum(axis=1) / new.sum(axis=1))[:, None]
        for j, child in enumerate(children):
            self.p[:, child] *= (new[:, j] / q[:, j])[:, None]


def plain_seconds(data: dict[str, Any], n_updates: int) -> tuple[float, Any]:
    """Time per update of the first updates of the first pass."""
    plain = Plain(data)
    table = plain.audit()
    start = CLOCK[0]()
    for v in range(n_updates):
        key = max((k for k in table if k[2] == v), key=lambda k: abs(table[k][0]))
        plain.update(*key, table[key])
        table = plain.audit()
    return (CLOCK[0]() - start) / n_updates, plain.p


def replay_figures(quick: bool) -> dict[str, Any]:  # noqa: FBT001
    """Replay of a hundred updates, beside the forest's own prediction."""
    from sklearn.ensemble import RandomForestClassifier

    rng = np.random.default_rng(3)
    tree = binary_tree(5)
    n_train = 2_000 if quick else 10_000
    x = rng.normal(size=(n_train + 10_000, 20))
    logits = x @ rng.normal(size=(20, 32)) * 0.7
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    forest = RandomForestClassifier(100, random_state=0, n_jobs=1).fit(x[:n_train], y[:n_train])
    new = x[n_train:]
    p = np.zeros((len(new), 32))
    p[:, forest.classes_] = forest.predict_proba(new)
    features = {"x0": new[:, 0], "x1": new[:, 1], "x2": new[:, 2]}
    data = {
        "tree": tree,
        "p": p,
        "labels": y[n_train:],
        "features": features,
        "subgroups": hm.Subgroups.from_reference(features, dict.fromkeys(features, "median")),
        "levels": [1, 2, 3, 4, 5],
        "interior": 1e-10,  # a forest predicts zeros
    }
    boost = boosted(data)
    base = seconds(lambda: forest.predict_proba(new))
    replay = seconds(lambda: boost.predict_proba(p, features=features), 7)
    one = {name: values[:1] for name, values in features.items()}
    boost.predict_proba(p[:1], features=one)
    single = seconds(lambda: boost.predict_proba(p[:1], features=one), 200)
    whole = hm.HUCBoost.from_dict(
        boost.to_dict() | {"updates": [u.to_dict() | {"subgroup": "all"} for u in boost.updates_]}
    )
    whole.predict_proba(p[:1])
    alone = seconds(lambda: whole.predict_proba(p[:1]), 200)
    return {
        "replay_updates": len(boost.updates_),
        "forest_ms": round(1e3 * base, 1),
        "replay_ms": round(1e3 * replay, 2),
        "replay_over_forest": round(replay / base, 3),
        "single_row_ms": round(1e3 * single, 3),
        "single_row_without_subgroups_ms": round(1e3 * alone, 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    options = parser.parse_args()
    quick = options.quick
    CLOCK[0] = time.process_time if options.cpu else time.perf_counter
    n = 10_000 if quick else 100_000
    boosted(case(1_000))
    out: dict[str, Any] = {"rows": n, "clock": "cpu" if options.cpu else "wall"}
    data = case(n)
    times = {}
    for traversal in ("passes", "largest"):
        fitted = boosted(data, traversal)
        times[traversal] = seconds(lambda traversal=traversal: boosted(data, traversal), 1)
        out[f"updates_{traversal}"] = len(fitted.updates_)
        out[f"fit_seconds_{traversal}"] = round(times[traversal], 3)
    timed = 3
    per_update, _ = plain_seconds(data, timed)
    out["numpy_seconds_per_update"] = round(per_update, 3)
    out["numpy_updates_timed"] = timed
    out["numpy_seconds_extrapolated"] = round(per_update * N_UPDATES, 1)
    for traversal, total in times.items():
        out[f"speedup_{traversal}"] = round(per_update * N_UPDATES / total, 1)
    small = case(n // 10)
    boosted(small)
    out["exponent"] = round(math.log10(times["passes"] / seconds(lambda: boosted(small), 2)), 3)
    check = case(2_000)
    ours = boosted(check)
    _, p = plain_seconds(check, 3)
    first = hm.HUCBoost.from_dict(ours.to_dict() | {"updates": ours.to_dict()["updates"][:3]})
    difference = np.abs(first.predict_proba(check["p"], features=check["features"]) - p)
    out["difference_to_numpy"] = float(difference.max())
    out |= replay_figures(quick)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
