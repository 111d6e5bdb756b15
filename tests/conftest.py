from __future__ import annotations

import os
import shutil
import tempfile

import pytest

# What takes longest goes first, so that no process is left with it alone at the end.
_FIRST = ("schedulers", "huc_spark", "huc_mlflow", "test_crashes.py", "test_audit_oracle.py")


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
        place = tempfile.mkdtemp(prefix="huc-tests-")
        os.environ["TMPDIR"] = tempfile.tempdir = place
        config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a file's tests in one process, and all that use Spark: what they share is made once."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        is_spark = "spark" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("spark" if is_spark else str(item.path)))
    items.sort(key=lambda item: _place(item.path.parts))


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
