from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        default=os.environ.get("HUC_CI") == "1",
        help="fail tests that would be skipped, as for a missing component (default if HUC_CI=1)",
    )


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
