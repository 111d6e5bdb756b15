"""Real processes that start at once: forked from one that has loaded everything and done nothing.

That one imports this module (`Processes` sees to it); nothing that it loads starts a thread.
"""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.forkserver
import os
import sys
from pathlib import Path
from unittest import mock

_SECONDS = 300
_PRELOADED = [
    "support.forked",
    "support.mortal_check",
    "duckdb",
    "sklearn.ensemble",
    "huc_mlflow._recalibration_host",
]
_PRELOADED += [f"huc_monitor.{name}" for name in ("_kernels.multiplier", "_kernels.scan", "cli")]


class Processes:
    """Starts processes from the loaded one; there is one of those in each process that tests."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(_PRELOADED)
        here = {"PYTHONPATH": str(Path(__file__).parents[1]), "HUC_TESTS_LOAD": "1"}
        with mock.patch.dict(os.environ, here):
            multiprocessing.forkserver.ensure_running()

    def start(self, target, *arguments, **environ):
        """Call a function in a process of its own, with the environment that is set now."""
        everything = ({**os.environ, **environ}, target, *arguments)
        process = self.context.Process(target=_call, args=everything)
        process.start()
        return process

    def run(self, target, *arguments, **environ) -> int:
        """Call a function to its end; return the exit code, negative for a signal."""
        process = self.start(target, *arguments, **environ)
        process.join(_SECONDS)
        assert process.exitcode is not None, f"{target.__name__} did not end"
        return process.exitcode

    def command(self, *arguments, folder, **environ) -> tuple[int, str]:
        """Run `huc-monitor` in that folder; return its exit code and all it said."""
        said = [folder / "said.out", folder / "said.err"]
        code = self.run(_command, [*map(str, arguments)], folder, said, **environ)
        text = "".join(path.read_text("utf-8") for path in said)
        for path in said:
            path.unlink()
        return code, text


def _call(environ, target, *arguments) -> None:
    os.environ.clear()
    os.environ.update(environ)
    target(*arguments)


def _command(arguments, folder, said) -> None:
    from huc_monitor.cli import main

    os.chdir(folder)
    for stream, path in enumerate(said, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    sys.exit(main(arguments))


def _load() -> None:
    """What takes seconds in every process that uses MLflow: its tables, its map of packages."""
    import mlflow.pyfunc
    import mlflow.sklearn
    import mlflow.store.model_registry.sqlalchemy_store
    import mlflow.store.tracking.sqlalchemy_store
    import sqlalchemy.orm
    from mlflow.utils import requirements_utils

    sqlalchemy.orm.configure_mappers()
    requirements_utils._init_packages_to_modules_map()
    assert mlflow
    gc.freeze()  # or collecting garbage would copy what is shared


if os.environ.pop("HUC_TESTS_LOAD", None):
    _load()
