"""Tests that can fail: which of 200 random faults in a module do its own tests notice?

Each mutant changes one comparison, operator, condition or constant of one module; the tests of that
module run against it in a process of its own: first in a fork of one that has loaded and run them,
the fastest first; if they notice nothing there, in one that has loaded nothing but large libraries.
No file is changed. Prints the survivors with the line as it was and as it became, then one JSON
line.

Run: python tests/bench/mutants.py [--mutants 200] [--seed 0] [--only alerts windows] [--jobs 2],
or, for every fault of some lines, [--at monitor/alerts:50 audit/scan:202]. With --done FILE what
was found is kept, and a later run goes on from there; --minutes 7 ends a run after that time.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import functools
import importlib.abc
import importlib.util
import json
import os
import random
import resource
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
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
_SECONDS = 150  # of the processor: what takes longer hangs, and is noticed
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


class _Forks:
    """Runs a module's tests once without a fault, then each fault in a fork, the fastest first.

    A fork puts the fault into functions that are loaded already, and loads nothing. What the tests
    made when they were loaded has no fault then, so that only what is noticed is final.
    """

    def __init__(self, module: str, places: list[int], end: float, found: Path) -> None:
        self.module, self.places, self.end, self.found = module, places, end, found
        self.seconds, self.failed = Counter[str](), False

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        self.failed |= report.failed

    def pytest_runtestloop(self, session: Any) -> bool:
        assert self._passes(session.items), f"{self.module}: tests fail without a fault"
        items = sorted(session.items, key=lambda item: self.seconds[item.nodeid])
        again = self._noticed(items, None)
        for place in self.places:
            if time.monotonic() > self.end:
                break
            noticed = not again and self._noticed(items, place)
            keep(self.found, self.module, place, "noticed" if noticed else "unsure")
        return True

    def _passes(self, items: list[Any]) -> bool:
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return False
        return True

    def _noticed(self, items: list[Any], place: int | None) -> bool:
        """Run the tests in a fork; a fault that is not inside a function is not noticed."""

        def run() -> int:
            if place is not None and not put_in(self.module, place):
                return 0
            return int(not self._passes(items))

        return not in_fork(run)


def put_in(module: str, place: int) -> bool:
    """Change the functions of a loaded module; False where the fault is not inside one."""
    tree = mutate(module, place)[0]
    places = _Places()
    places.visit(tree)
    node = places.found[place][0]
    bodies = [part for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for part in f.body]
    if not any(node is inner for part in bodies for inner in ast.walk(part)):
        return False
    name = "huc_monitor." + module.replace("/", ".")
    codes = dict(_codes(compile(tree, str(path_of(module)), "exec", dont_inherit=True)))
    before = ast.parse(path_of(module).read_text("utf-8"))
    plain = dict(_codes(compile(before, str(path_of(module)), "exec", dont_inherit=True)))
    changed = False
    for function in set(_functions(sys.modules[name], name)):
        key = function.__code__.co_qualname, function.__code__.co_firstlineno
        if key in codes and codes[key] != plain[key]:
            function.__code__, changed = codes[key], True
    for loaded in [m for n, m in sys.modules.items() if n.startswith("huc_monitor")]:
        for value in list(vars(loaded).values()):
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()
    return changed


def _codes(code: types.CodeType) -> Iterator[tuple[tuple[str, int], types.CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield (inner.co_qualname, inner.co_firstlineno), inner
            yield from _codes(inner)


def _functions(owner: Any, name: str) -> Iterator[types.FunctionType]:
    """Every function of a module and of its classes, whatever it is wrapped in."""
    for value in list(vars(owner).values()):
        inner = value
        for word in ("__func__", "fget", "func", "wrapped", "__wrapped__"):
            inner = getattr(inner, word, inner)
        if isinstance(inner, types.FunctionType) and inner.__module__ == name:
            yield inner
        elif isinstance(inner, type) and inner.__module__ == name and inner is not owner:
            yield from _functions(inner, name)


def keep(path: Path, module: str, place: int, verdict: str) -> None:
    """Write down what became of a mutant."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps([module, place, verdict]) + "\n")


def in_fork(work: Callable[[], int]) -> bool:
    """Call a function in a forked process; True if it returns 0. What hangs does not."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
            with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            code = work()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0


def run_tests(module: str, plugin: Any = None) -> int:
    """Run a module's own tests in this process."""
    import pytest

    files = [f"{TESTS}/{name}" for name in MODULES[module]]
    return int(pytest.main([*_PYTEST, *files], plugins=[] if plugin is None else [plugin]))


def survives(module: str, place: int) -> bool:
    """Run a module's tests against one fault that was there before anything was loaded."""

    def run() -> int:
        faulty = _Faulty(module, mutate(module, place)[0])
        assert faulty.name not in sys.modules
        sys.meta_path.insert(0, faulty)
        return run_tests(module)

    return in_fork(run)


def load_libraries() -> None:
    """Import what every test would import, but nothing of this package."""
    # Numba imports `coverage`; beside this file lies another of that name, which imports us.
    sys.path[:] = [one for one in sys.path if Path(one).resolve() != Path(__file__).parent]
    for name in ("duckdb", "numba", "pandas", "pyarrow", "pydantic", "scipy.stats"):
        importlib.import_module(name)
    for name in ("sklearn.linear_model", "yaml", "narwhals", "sqlalchemy", "psycopg"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class Run:
    """Tries mutants one after another, keeps what was found, and ends when its time is over."""

    def __init__(self, found: Path, minutes: float) -> None:
        self.found, self.end = found, time.monotonic() + 60 * minutes

    @property
    def verdicts(self) -> dict[tuple[str, int], str]:
        """What became of every mutant so far: noticed, unsure or lives."""
        lines = self.found.read_text("utf-8").splitlines() if self.found.exists() else []
        return {(module, place): verdict for module, place, verdict in map(json.loads, lines)}

    def attempt(self, item: tuple[str, list[int]]) -> None:
        """Try the mutants of a module that were not tried before."""
        module, places = item
        known = self.verdicts
        new = [place for place in places if (module, place) not in known]
        if new and time.monotonic() < self.end:
            forks = _Forks(module, new, self.end, self.found)
            assert in_fork(lambda: run_tests(module, forks)), f"{module}: tests fail"
        known = self.verdicts
        for place in places:
            if known.get((module, place)) == "unsure" and time.monotonic() < self.end:
                verdict = "lives" if survives(module, place) else "noticed"
                keep(self.found, module, place, verdict)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="parts of modules' names")
    parser.add_argument("--at", nargs="*", default=(), help="lines whose faults are all tried")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--done", type=Path, help="file of what was found, to go on from")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after this time")
    options = parser.parse_args()
    os.chdir(ROOT)
    load_libraries()
    chosen = [m for m in MODULES if not options.only or any(part in m for part in options.only)]
    places = [(module, place) for module in chosen for place in range(n_places(module))]
    picked = random.Random(options.seed).sample(places, min(options.mutants, len(places)))  # noqa: S311
    if options.at:
        mutants = [mutate(*place)[1] for place in places]
        picked = [(m.module, m.place) for m in mutants if f"{m.module}:{m.line}" in options.at]
    by_module: dict[str, list[int]] = {}
    for module, place in sorted(picked):
        by_module.setdefault(module, []).append(place)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        run = Run(options.done or Path(folder) / "found", options.minutes)
        list(pool.map(run.attempt, by_module.items()))
        verdicts = run.verdicts
    tried = [item for item in sorted(picked) if verdicts.get(item) in {"noticed", "lives"}]
    lives = [item for item in tried if verdicts[item] == "lives"]
    for item in lives:
        mutant = mutate(*item)[1]
        print(f"{mutant.module}.py:{mutant.line}: {mutant.before}  ->  {mutant.after}")
    killed = len(tried) - len(lives)
    found = {"mutants": len(tried), "killed": killed, "share": round(killed / len(tried), 3)}
    print(json.dumps(found | {"left": len(picked) - len(tried)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
