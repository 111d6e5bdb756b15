"""What all tests share: which come first, which are quick, and skips that CI does not allow."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_LIBRARY = Path(__file__).parent / "huc_monitor"
# Folders and files with the longest work: they start first, so that none is left at the end.
_LONGEST = ("schedulers", "huc_spark", "test_crashes.py", "huc_mlflow", "test_audit_oracle.py")
_LONGEST += ("test_pages.py", "examples", "test_cli_monitor.py", "test_monitor.py")
_LONGEST += ("huc_evidently", "huc_notify", "test_package.py")
# Files with Sparks of their own; all others in their folder share a session, so a process.
_OWN_SPARK = ("test_cluster.py", "test_connect.py")
# What `huc-monitor doctor --warm` does, in two halves that take equally long.
_COMPILE = "import sys; from huc_monitor.cli.doctor.warming import warm; list(warm(sys.argv[1:]))"
_HALVES = (("audit", "larger than memory", "compare", "check"), ("recalibrate",))
_ROOM = 2 * 2**30  # bytes; tests write less than half a gigabyte
_TEMPORARY = pytest.StashKey[str]()
_COMPILING = pytest.StashKey[list[subprocess.Popen[bytes]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        default=os.environ.get("HUC_CI") == "1",
        help="fail tests that would be skipped, as for a missing component (default if HUC_CI=1)",
    )


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.path.parts))
    for item in items:
        long = {"slow", "seconds"} & {mark.name for mark in item.iter_markers()}
        if item.path.is_relative_to(_LIBRARY) and not long:
            item.add_marker("quick")


def _rank(parts: tuple[str, ...]) -> int:
    return next((k for k, name in enumerate(_LONGEST) if name in parts), len(_LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """Hand out files as `--dist=loadfile` does, and those that share a Spark session together."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(super()._split_scope(nodeid))
            shares = file.parent.name == "huc_spark" and file.name not in _OWN_SPARK
            return str(file.parent if shares else file)

    return ByFile(config, log)


# A new environment has no compiled kernels. They are compiled once, while tests are collected;
# else every process that tests, and every one that tests start, would begin by compiling them.


def pytest_sessionstart(session: pytest.Session) -> None:
    import huc_monitor

    kernels = Path(huc_monitor.__file__).parent / "_kernels"
    kept = Path(os.environ.get("NUMBA_CACHE_DIR", kernels))
    # What an earlier installation compiled may lie there; numba does not use it.
    compiled = _last_change(kept, "*.nbi") > _last_change(kernels, "*.py")
    needed = session.config.getoption("numprocesses", None) and not compiled
    session.config.stash[_COMPILING] = [
        subprocess.Popen([sys.executable, "-c", _COMPILE, *steps])
        for steps in (_HALVES if needed else ())
    ]


def _last_change(folder: Path, pattern: str) -> float:
    return max((path.stat().st_mtime for path in folder.rglob(pattern)), default=0.0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    for process in session.config.stash[_COMPILING]:
        process.wait()


# Libraries and collected tests are most of what there is, and stay: the garbage collector looks
# through nothing while they are loaded, never through them afterwards, and seldom for what a test
# leaves. It took a fifth of collecting, and a fourteenth of the tests of hosts.


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


# Each process of pytest-xdist gets a place of its own for temporary files and for locks, below one
# place that the first process removes at the end. It is in memory where there is room: a state, a
# record and a commit of MLflow's database each wait for the disk, thousands of times in all. What
# tests wrote can be looked at after `pytest --basetemp=FOLDER`.


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # see above
    if hasattr(config, "workerinput"):
        # There is a process for every core: more threads would only wait for each other.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        place = tempfile.mkdtemp(dir=config.workerinput["place"])
        os.environ["TMPDIR"] = tempfile.tempdir = place
    else:
        # Tests start many processes: each would compile its libraries anew.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        config.stash[_TEMPORARY] = place = tempfile.mkdtemp(prefix="huc-tests-", dir=_memory())
        config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))
        os.environ["TMPDIR"] = tempfile.tempdir = place
    os.environ["XDG_STATE_HOME"] = place
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    if config.getoption("markexpr") == "quick" and not named:
        config.args = [str(_LIBRARY)]  # importing what is not quick takes longer than a test


def _memory() -> str | None:
    """Return a folder that is in memory; None where there is none, or too little room in it."""
    folder = "/dev/shm"  # noqa: S108 - only a folder of our own is made there
    if "TMPDIR" in os.environ or not os.access(folder, os.W_OK | os.X_OK):
        return None
    found = os.statvfs(folder)
    enough = found.f_bavail * found.f_frsize > _ROOM and not found.f_flag & os.ST_NOEXEC
    return folder if enough else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    node.workerinput["place"] = node.config.stash[_TEMPORARY]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call):  # noqa: ARG001 - named by pytest
    report = yield
    return _refuse_skip(report, item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    report = yield
    return _refuse_skip(report, collector.config)


def _refuse_skip(report, config: pytest.Config):
    # An expected failure is reported as skipped too, but it did run.
    if config.getoption("no_skips") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason} (skipping is not allowed here)"
    return report


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands print every sentence in one line; tests of narrow output say how narrow."""
    monkeypatch.setenv("COLUMNS", "10000")
