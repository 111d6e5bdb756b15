"""Run every (split, base predictor, method) once, and remember what is done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd

from .methods import Stage, run_method, scaled_stages
from .predictors import base_predictions
from .scoring import score

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .problem import Problem


def read_results(file: Path) -> list[dict[str, Any]]:
    """Finished results; a line cut off by a crash is dropped and will be computed again."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def run_protocol(
    problem: Problem,
    folder: Path,
    *,
    n_splits: int,
    bases: Sequence[str],
    methods: Sequence[str],
    jobs: int,
) -> pd.DataFrame:
    """Results of all wanted runs, those already in the folder included."""
    from joblib import Parallel, delayed

    file = folder / f"{problem.name}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    done = {(r["split"], r["base"], r["method"]) for r in read_results(file)}
    wanted = {
        (k, base): [m for m in methods if (k, base, m) not in done]
        for k in range(n_splits)
        for base in bases
    }
    tasks = [(k, base, names) for (k, base), names in wanted.items() if names]
    runs = Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(run_base)(problem, folder, k, base, names) for k, base, names in tasks
    )
    with file.open("a", encoding="utf-8") as log:
        for lines in with_progress(runs, problem.name, len(tasks)):
            log.write("".join(json.dumps(line) + "\n" for line in lines))
            log.flush()
    results = pd.DataFrame(read_results(file))
    keep = results["base"].isin(bases) & results["method"].isin(methods)
    return results[keep & (results["split"] < n_splits)].drop_duplicates(
        ["split", "base", "method"], keep="last"
    )


def run_base(
    problem: Problem, folder: Path, k: int, base: str, methods: list[str]
) -> list[dict[str, Any]]:
    """All methods on one base predictor's predictions of one split."""
    split = problem.split(k)
    subgroups = problem.subgroups(split)
    stage = Stage(problem, split, subgroups, base_predictions(problem, k, base, folder))
    stages = scaled_stages(stage, methods, k)
    lines = []
    for method in methods:
        test, n_updates = run_method(method, stage, stages)
        scores = score(test, split.test, problem=problem, subgroups=subgroups, n_updates=n_updates)
        lines.append({"split": k, "base": base, "method": method, **scores})
    return lines


def with_progress(items: Any, title: str, total: int) -> Any:
    """Pass items on behind a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Elapsed())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        for item in items:
            yield item
            bar.advance(task)
