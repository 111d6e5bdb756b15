"""Run a part of the tests with the lowest or the newest versions of what this depends on.

Run: python tests/bench/versions.py lowest, or newest, and then NAME==VERSION for each that is to be
another than that, even one below what is declared: versions.py lowest mlflow==3.0.1. Prints the
result and the versions in one JSON line. The interpreter that runs it is the one that is tried; uv
must be on PATH, since pip does not choose lowest versions.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = [
    *(f"tests/huc_mlflow/test_{name}.py" for name in ("tracker", "hostile_names", "flavor")),
    *(f"tests/huc_mlflow/test_{name}.py" for name in ("registry", "evaluator", "runtime")),
    *(f"tests/huc_monitor/{name}" for name in ("audit", "recalibration", "sources", "tree")),
]
NEEDED = ["hatchling", "hypothesis", "lightgbm", "matplotlib", "polars", "psycopg[binary]"]
NEEDED += ["pytest", "pytest-xdist", "xgboost"]
WATCHED = ("duckdb", "mlflow", "numba", "numpy", "pandas", "pyarrow", "scikit-learn", "scipy")


def uv(*arguments):
    """Call uv, and show what it says only if it fails."""
    subprocess.run(["uv", *map(str, arguments)], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def install(which, pins, folder):
    """Make an environment of the lowest or the newest versions; return its interpreter."""
    (folder / "pins.txt").write_text("\n".join(pins))
    resolution = "lowest-direct" if which == "lowest" else "highest"
    chosen = ["--resolution", resolution, "--override", folder / "pins.txt"]
    uv("pip", "compile", "-q", "-p", sys.executable, "pyproject.toml", *chosen,
       "-o", folder / "lock.txt")  # fmt: skip
    python = folder / "venv" / "bin" / "python"
    uv("venv", "-q", "-p", sys.executable, folder / "venv")
    uv("pip", "install", "-q", "-p", python, "-r", folder / "lock.txt", *NEEDED)
    uv("pip", "install", "-q", "-p", python, "--no-deps", ROOT)
    return str(python)


def main():
    """Install, test, print."""
    which, *pins = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        python = install(which, pins, Path(name))
        # Old versions warn about new ones of others, which is no news.
        tests = [python, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--tb=line"]
        done = subprocess.run(
            [*tests, "-o", "filterwarnings=", *TESTS],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        script = f"import importlib.metadata as m; print(*map(m.version, {WATCHED}))"
        found = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True)
    lines = done.stdout.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    versions = dict(zip(WATCHED, found.stdout.split(), strict=True))
    row = {"python": platform.python_version(), "row": which, "result": lines[-1]}
    print(json.dumps(row | {"failed": failed} | versions))


if __name__ == "__main__":
    main()
