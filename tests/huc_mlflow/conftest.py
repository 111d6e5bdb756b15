from __future__ import annotations

import gc
import os
import shutil

import pytest
from support.forests import Story, make_story

os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")


def pytest_collection_modifyitems(items):
    for item in items:
        # MLflow and its dependencies warn about themselves on import and in normal use.
        for module in ("mlflow", "pydantic", "alembic", "sqlalchemy", "google", "opentelemetry"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore:::{module}"))
        item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def _collected():
    """Find here what others left open, and not in a test of something else."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def story() -> Story:
    return make_story()


@pytest.fixture(scope="session")
def _empty_database(tmp_path_factory):
    """A database with MLflow's tables; making them takes seconds, copying the file does not."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("database") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="session")
def postgres():
    """URL of a real PostgreSQL server."""
    from support.mlflow_servers import postgres_server

    if shutil.which("psql") is None:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    with postgres_server() as url:
        yield url


@pytest.fixture
def store(tmp_path, monkeypatch, _empty_database):
    """Tracking and registry in a new sqlite database."""
    import mlflow

    shutil.copy(_empty_database, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.create_experiment("triage", artifact_location=str(tmp_path / "artifacts"))
    mlflow.set_experiment("triage")
    yield tmp_path
    mlflow.set_tracking_uri(before)
