"""Tests that can fail: which of 200 random faults in a module do its own tests notice?

Each mutant changes one comparison, operator, condition or constant of one module; the tests of that
module run against it, in a process of its own that has the large libraries loaded already. No file
is changed. Prints the survivors with the line as it was and as it became, then one JSON line.

Run: python tests/bench/mutants.py [--mutants 200] [--seed 0] [--only alerts windows] [--jobs 2]
[--part 1 --parts 4]
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.util
import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TESTS = "tests/huc_monitor"
# Module: the tests that are its own, the fast ones first.
MODULES = {
    "monitor/alerts": ["monitor/test_alerts.py"],
    "monitor/windows": ["monitor/test_windows.py"],
    "monitor/tolerance": ["monitor/test_tolerance.py"],
    "monitor/drift": ["monitor/test_drift.py"],
    "monitor/hints": ["monitor/test_hints.py"],
    "monitor/recalibrating": ["monitor/test_recalibrating.py"],
    "recalibration/choosing": ["recalibration/test_choosing.py"],
    "recalibration/gate": ["recalibration/test_gate.py"],
    "recalibration/shadow": ["recalibration/test_shadow.py"],
    "audit/bounds/closed_forms": ["audit/bounds/test_bounds.py"],
    "audit/bounds/bootstrap": ["audit/bounds/test_bootstrap.py"],
    "audit/scan": [
        "audit/test_scan.py",
        "audit/test_audit_worked.py",
        "audit/test_audit_oracle.py::test_every_moment_and_interval_equals_brute_force[2]",
    ],
    "planning/_planning": ["planning/test_planning.py"],
    "subgroups/_subgroups": ["subgroups"],
    "subgroups/_rules": ["subgroups"],
    "sources/_labels": ["sources/test_source.py"],
    "detection/_betting": [
        "detection/test_detector_clusters.py",
        "detection/test_several_streams.py",
        "detection/test_detector.py",
    ],
}
_SECONDS = 400
_PYTEST = ["-n", "0", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:faker", "-p", "no:anyio"]
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """One fault: a module, the number of its place in the module, and what it looks like."""

    module: str
    place: int
    line: int
    before: str
    after: str


class _Places(ast.NodeVisitor):
    """Lists what can be changed: not annotations, texts, assertions or how a class is stored."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.AST, str]] = []

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.AnnAssign | ast.arg | ast.FunctionDef):
            for name, value in ast.iter_fields(node):
                if name not in {"annotation", "returns"}:
                    self._visit_each(value)
            return
        if isinstance(node, ast.JoinedStr | ast.Assert) or _is_form(node):
            return
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SWAPS:
            self.found.append((node, "compare"))
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPS:
            self.found.append((node, "operator"))
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            self.found.append((node, "condition"))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            self.found.append((node, "constant"))
        self.generic_visit(node)

    def _visit_each(self, value: Any) -> None:
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                self.visit(item)


def _is_form(node: ast.AST) -> bool:
    """Whether no behaviour depends on it: imports for types, `dataclass(...)`, `strict=True`."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "dataclass"
    return isinstance(node, ast.keyword) and node.arg == "strict"


def change(node: Any, kind: str) -> None:
    """Put one fault into the tree."""
    if kind == "compare":
        node.ops[0] = _SWAPS[type(node.ops[0])]()
    elif kind == "operator":
        node.op = _SWAPS[type(node.op)]()
    elif kind == "condition":
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node.value, bool):
        node.value = not node.value
    else:
        node.value += 1


def path_of(module: str) -> Path:
    """Return the file of a module named as in `MODULES`."""
    return ROOT / "huc_monitor" / f"{module}.py"


def mutate(module: str, place: int) -> tuple[ast.Module, Mutant]:
    """Return a module's tree with the fault of that number."""
    tree = ast.parse(path_of(module).read_text("utf-8"))
    places = _Places()
    places.visit(tree)
    node, kind = places.found[place]
    shown: Any = copy.copy(node)
    before = ast.unparse(shown.test if kind == "condition" else shown)
    change(node, kind)
    after = ast.unparse(node.test if kind == "condition" else node)  # type: ignore[attr-defined]
    ast.fix_missing_locations(tree)
    return tree, Mutant(module, place, node.lineno, before, after)  # type: ignore[attr-defined]


def n_places(module: str) -> int:
    """Return how many faults a module can have."""
    places = _Places()
    places.visit(ast.parse(path_of(module).read_text("utf-8")))
    return len(places.found)


class _Faulty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed tree."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.name = "huc_monitor." + module.replace("/", ".")
        self.path, self.tree = str(path_of(module)), tree

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def create_module(self, spec: Any) -> None:  # noqa: ARG002
        return None

    def exec_module(self, module: Any) -> None:
        exec(compile(self.tree, self.path, "exec"), module.__dict__)  # noqa: S102 - our own source


def survives(module: str, place: int) -> bool:
    """Run a module's tests against one fault, in a forked process; a hang counts as noticed."""
    child = os.fork()
    if child == 0:
        _run_tests(module, place)
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    print(f"{module}, place {place}: the tests did not end in {_SECONDS} s", flush=True)
    return False


def _run_tests(module: str, place: int) -> None:
    code = 1
    try:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        if place >= 0:
            faulty = _Faulty(module, mutate(module, place)[0])
            assert faulty.name not in sys.modules
            sys.meta_path.insert(0, faulty)
        import pytest

        files = [f"{TESTS}/{name}" for name in MODULES[module]]
        code = int(pytest.main([*_PYTEST, *files]))
    finally:
        os._exit(code)


def load_libraries() -> None:
    """Import what every test would import, but nothing of this package."""
    # Numba imports `coverage`; beside this file lies another of that name, which imports us.
    sys.path[:] = [one for one in sys.path if Path(one).resolve() != Path(__file__).parent]
    for name in ("duckdb", "numba", "pandas", "pyarrow", "pydantic", "scipy.stats"):
        importlib.import_module(name)
    for name in ("sklearn.linear_model", "yaml", "narwhals", "sqlalchemy", "psycopg"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _told(item: tuple[str, int]) -> bool:
    lives = survives(*item)
    if lives:
        mutant = mutate(*item)[1]
        print(f"{mutant.module}.py:{mutant.line}: {mutant.before}  ->  {mutant.after}", flush=True)
    return lives


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="parts of modules' names")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--parts", type=int, default=1, help="of which --part is run")
    parser.add_argument("--part", type=int, default=1)
    options = parser.parse_args()
    os.chdir(ROOT)
    load_libraries()
    chosen = [m for m in MODULES if not options.only or any(part in m for part in options.only)]
    places = [(module, place) for module in chosen for place in range(n_places(module))]
    picked = random.Random(options.seed).sample(places, min(options.mutants, len(places)))  # noqa: S311
    picked = sorted(picked)
    size = -(-len(picked) // options.parts)
    picked = picked[(options.part - 1) * size : options.part * size]
    for module in dict.fromkeys(module for module, _ in picked):
        assert survives(module, -1), f"the tests of {module} fail without a fault"
    with ThreadPoolExecutor(options.jobs) as pool:
        killed = len(picked) - sum(pool.map(_told, picked))
    found = {"mutants": len(picked), "killed": killed, "share": round(killed / len(picked), 3)}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
