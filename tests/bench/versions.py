"""Run a part of the tests with old and new versions of what this depends on, each in its own venv.

Run: python tests/bench/versions.py [row ...]. Prints a line per row. Each row takes minutes, most
of them to install; interpreters that are not on PATH are skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOWEST = [
    "duckdb==2.0.0",
    "mlflow==3.1.0",
    "numba==0.61.0",
    "numpy==2.0.2",
    "pandas==2.2.3",
    "pyarrow==17.0.0",
    "scikit-learn==1.6.0",
    "scipy==1.13.1",
    "SQLAlchemy==2.0.40",  # MLflow 3.1 cannot be imported with 2.1, and does not say so
]
ROWS = {
    "lowest": ("python3.11", LOWEST),
    "newest": ("python3.11", []),
    "newest 3.12": ("python3.12", []),
    "newest 3.13": ("python3.13", []),
    "newest 3.14": ("python3.14", []),
}
TESTS = [
    "tests/huc_mlflow/test_tracker.py",
    "tests/huc_mlflow/test_hostile_names.py",
    "tests/huc_mlflow/test_flavor.py",
    "tests/huc_monitor/sources/test_tables.py",
]
NEEDED = ["hypothesis", "lightgbm", "matplotlib", "polars", "psycopg[binary]", "pytest"]
NEEDED += ["pytest-xdist", "xgboost"]
WATCHED = ("duckdb", "mlflow", "numpy", "pandas", "scikit-learn")


def run(row, folder):
    """Install and test one row; return its last line and the versions that were installed."""
    interpreter, pins = ROWS[row]
    if shutil.which(interpreter) is None:
        return {"row": row, "result": f"{interpreter} is not installed"}
    subprocess.run([interpreter, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet"]
    # First by our own bounds, then as pinned: a pin below a bound is what is tried.
    subprocess.run([*install, str(ROOT), *NEEDED], check=True)
    if pins:
        subprocess.run([*install, *pins], check=True)
    # Old versions warn about new ones of others, which is no news.
    tests = [python, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-o", "filterwarnings="]
    done = subprocess.run([*tests, *TESTS], cwd=ROOT, capture_output=True, text=True, check=False)
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True
    )
    found = {item["name"].lower(): item["version"] for item in json.loads(listed.stdout)}
    versions = {name: found[name] for name in WATCHED}
    return {"row": row, "result": done.stdout.strip().splitlines()[-1], **versions}


def main():
    """Run the rows that were asked for, or all."""
    for row in sys.argv[1:] or ROWS:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(run(row, Path(folder) / "venv")), flush=True)


if __name__ == "__main__":
    main()
