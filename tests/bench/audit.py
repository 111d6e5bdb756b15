"""Cost of the exact audit, as ratios measured in one run.

Floor: five `np.argsort` of the scores plus five passes over the probabilities, the least any
implementation must do. `python tests/bench/audit.py` prints one JSON line; `--quick` shrinks it.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import huc_monitor as hm

if TYPE_CHECKING:
    from collections.abc import Callable


def binary_tree(depth: int) -> hm.LabelTree:
    """Complete binary tree of 2**depth leaves."""
    width = len(str(2**depth))
    return hm.LabelTree.from_paths(
        [
            "/".join([f"n{level}_{leaf >> (depth - level)}" for level in range(1, depth)])
            + f"/y{leaf:0{width}d}"
            for leaf in range(2**depth)
        ]
    )


def sample(n: int, n_leaves: int, seed: int) -> tuple[Any, Any, Any]:
    """Predictions, labels drawn from them, and three features."""
    rng = np.random.default_rng(seed)
    p = rng.standard_exponential((n, n_leaves))
    p /= p.sum(axis=1, keepdims=True)
    labels = np.minimum((rng.random((n, 1)) > np.cumsum(p, axis=1)).sum(axis=1), n_leaves - 1)
    features = {name: rng.random(n) for name in ("x0", "x1", "x2")}
    return p, labels, features


def seconds(call: Callable[[], Any], repeats: int = 3) -> float:
    """Fastest of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_extra_bytes(call: Callable[[], Any]) -> float:
    """Highest resident memory during the call, above what was resident before it."""
    page = resource.getpagesize()
    done = threading.Event()
    peak = [0]

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * page

    def watch() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], resident())
            time.sleep(0.002)

    before = resident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    done.set()
    watcher.join()
    return float(peak[0] - before)


def plain_numpy(p: Any, labels: Any, groups: Any, tree: hm.LabelTree, levels: list[int]) -> float:
    """The same moments, one candidate at a time, in whole-array numpy."""
    worst = 0.0
    for level in levels:
        codes = tree.level_codes(level)
        mass = np.stack([p[:, codes == g].sum(axis=1) for g in range(codes.max() + 1)], axis=1)
        values = (codes[None, :] == mass.argmax(axis=1)[:, None]).astype(float)
        scores = (p * values).sum(axis=1)
        utility = hm.LevelCorrectness(level=level)
        for v in utility.relevant_branches(tree):
            arrays = tree.arrays
            below = slice(arrays.start[v], arrays.stop[v])
            parent = (p[:, below] * values[:, below]).sum(1) / p[:, below].sum(1)
            contribution = np.zeros(len(p))
            for code in arrays.child_code[arrays.child_ptr[v] : arrays.child_ptr[v + 1]]:
                child = (
                    slice(arrays.start[code], arrays.stop[code])
                    if code >= 0
                    else slice(-1 - code, -code)
                )
                mean = (p[:, child] * values[:, child]).sum(1) / p[:, child].sum(1)
                inside = (labels >= child.start) & (labels < child.stop)
                contribution[inside] = (mean - parent)[inside]
            for weight in groups:
                order = np.argsort(scores, kind="stable")
                ends = np.append(np.flatnonzero(np.diff(scores[order])), len(p) - 1)
                prefix = np.append(0.0, np.cumsum((weight * contribution)[order])[ends])
                rise = (prefix - np.minimum.accumulate(prefix)).max()
                fall = (np.maximum.accumulate(prefix) - prefix).max()
                worst = max(worst, rise, fall)
    return worst / len(p)


def level_case(n: int, depth: int) -> dict[str, Any]:
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
        "utilities": [hm.LevelCorrectness(level=level) for level in range(1, depth + 1)],
    }


def run(case: dict[str, Any]) -> hm.AuditResult:
    """Audit a case with the cheapest bound."""
    return hm.audit(
        case["p"],
        case["labels"],
        tree=case["tree"],
        utilities=case["utilities"],
        subgroups=case["subgroups"],
        features=case["features"],
        bounds="theorem",
    )


def floor_seconds(case: dict[str, Any]) -> float:
    """Five sorts of the scores and five passes over the probabilities."""
    scores = [
        rows.scores
        for rows in hm.decompose(
            case["p"], case["labels"], tree=case["tree"], utilities=case["utilities"]
        )
    ]
    p = case["p"]

    def once() -> None:
        for score in scores:
            np.argsort(score)
            p.sum(axis=1)

    return seconds(once)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    quick = parser.parse_args().quick
    n = 100_000 if quick else 1_000_000
    run(level_case(1_000, 3))

    case = level_case(n, 5)
    result = run(case)
    total = seconds(lambda: run(case))
    out: dict[str, Any] = {
        "rows": n,
        "candidates": result.candidates.n,
        "seconds": round(total, 3),
        "ratio_to_floor": round(total / floor_seconds(case), 2),
        "extra_memory_over_p": round(peak_extra_bytes(lambda: run(case)) / case["p"].nbytes, 2),
    }
    dense = case | {
        "utilities": [
            hm.Payoff(f"pay{j}", dict(zip(case["tree"].leaves, row, strict=True)))
            for j, row in enumerate(np.random.default_rng(2).uniform(-1, 1, (5, 32)))
        ]
    }
    out["all_relevant_candidates"] = run(dense).candidates.n
    out["all_relevant_ratio_to_floor"] = round(
        seconds(lambda: run(dense)) / floor_seconds(dense), 2
    )
    small = level_case(n // 100, 5)
    out["exponent"] = round(math.log10(total / seconds(lambda: run(small), 20)) / 2, 3)

    part = level_case(5_000 if quick else 50_000, 5)
    groups = part["subgroups"].weights(part["features"], len(part["p"]))
    fast = run(part)
    slow = seconds(
        lambda: plain_numpy(part["p"], part["labels"], groups, part["tree"], [1, 2, 3, 4, 5]), 1
    )
    out["speedup_over_numpy"] = round(slow / seconds(lambda: run(part)), 1)
    reference = plain_numpy(part["p"], part["labels"], groups, part["tree"], [1, 2, 3, 4, 5])
    out["difference_to_numpy"] = abs(fast.huc - reference)

    wide = level_case(n // 10, 11)
    wide["utilities"] = [hm.LevelCorrectness(level=level) for level in (3, 7, 11)]
    wide_total = seconds(lambda: run(wide), 1)
    out["wide_leaves"] = wide["tree"].n_leaves
    out["wide_seconds"] = round(wide_total, 3)
    out["wide_ratio_to_floor"] = round(wide_total / floor_seconds(wide), 2)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
