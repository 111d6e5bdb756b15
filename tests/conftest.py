from __future__ import annotations

import os
import shutil
import tempfile

import pytest

# Folders and files with the longest work.
_FIRST = ("schedulers", "huc_spark", "test_crashes.py", "huc_mlflow", "test_audit_oracle.py")
_FIRST += ("test_sequential.py", "huc_notify", "test_large.py", "test_classifier.py")
# Long tests that share nothing.
_APART = ("test_cluster.py", "test_connect.py", "test_crashes.py", "test_fault_points.py")
_PLACE = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        default=os.environ.get("HUC_CI") == "1",
        help="fail tests that would be skipped, as for a missing component (default if HUC_CI=1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Give every process its own place for temporary files: locks of one monitor lie there."""
    if hasattr(config, "workerinput"):
        place = tempfile.mkdtemp(dir=config.workerinput["place"])
        os.environ["TMPDIR"] = tempfile.tempdir = place
    else:
        # Of the process that outlives the others, which clear up after themselves when they end.
        config.stash[_PLACE] = place = tempfile.mkdtemp(prefix="huc-tests-")
        config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))
    os.environ["XDG_STATE_HOME"] = place


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """Tell a process that is about to start where to put temporary files."""
    node.workerinput["place"] = node.config.stash[_PLACE]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes longest first, so that no process is left with it alone at the end."""
    items.sort(key=lambda item: _place(item.path.parts))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """Keep a file's tests in one process, and all that use Spark: what they share is made once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", maxsplit=1)[0]
            if file.endswith(_APART):
                return nodeid
            return "spark" if "/huc_spark/test_" in file else file

    config.option.loadscopereorder = False
    return ByFile(config, log)


def _place(parts: tuple[str, ...]) -> int:
    return next((k for k, name in enumerate(_FIRST) if name in parts), len(_FIRST))


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
