"""The same story over HTTP, with PostgreSQL behind the server; lost answers; serving; the UI."""

from __future__ import annotations

import json
import shutil
import sys
import time
import urllib.request

import huc_mlflow
import mlflow
import numpy as np
import pytest
from support.deployment import STRICT, World, check_records, check_rollback, check_story, tell
from support.forests import FEATURES, log_forest
from support.mlflow_servers import LosingProxy, free_port, mlflow_server, process

from huc_monitor.config import load_config
from huc_monitor.config.opening import open_tracker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def server(postgres, tmp_path_factory):
    """Address of a real tracking server with PostgreSQL behind it."""
    with mlflow_server(postgres, tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture
def remote(server, tmp_path, monkeypatch):
    """Speak to the server for one test."""
    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(server)
    mlflow.set_experiment("triage")
    yield tmp_path
    mlflow.set_tracking_uri(before)


def points(tracker, key):
    return [m.step for m in tracker._client.get_metric_history(tracker.run_id, key)]


def test_thirty_windows_over_http_with_postgresql(story, remote, server, capsys):
    log_forest(story, "thirty")
    world = World(story, remote, server, name="thirty")
    world.configure(gate=STRICT)
    results = tell(world, days=30, drift_from=15)
    check_story(world, results, 15)
    check_records(world, 30)
    found = mlflow.MlflowClient().search_model_versions("tags.`huc.gate` = 'passed'")
    assert [str(version.version) for version in found if version.name == "thirty"] == ["2"]
    check_rollback(world, capsys)


def test_one_lost_answer_of_every_kind_changes_nothing(story, remote, server, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    log_forest(story, "lossy")
    with LosingProxy(server) as proxy:
        mlflow.set_tracking_uri(proxy.address)
        world = World(story, remote, proxy.address, name="lossy")
        for _ in range(3):
            world.serve(drift=1.0)
        result = world.check()
        assert result.status == "critical"
        mlflow.set_tracking_uri(server)
        kinds = {path.removeprefix("/api/2.0/mlflow/") for path in proxy.lost}
    assert {"runs/create", "runs/log-batch", "runs/set-tag", "model-versions/create"} <= kinds
    assert len(kinds) >= 8, kinds
    registry = huc_mlflow.Registry("lossy")
    assert [str(version.version) for version in registry.versions()] == ["1", "2"]
    assert str(registry.at("champion").version) == "2"
    tracker = open_tracker(load_config(world.config))
    assert len(tracker.records()) == len(list(tracker.runs.search("window"))) == 3
    assert (
        len(list(tracker.runs.search("monitor")))
        == len(list(tracker.runs.search("retraining")))
        == 1
    )
    assert points(tracker, "audit/huc") == [1, 2, 3]


def test_a_recalibrated_model_is_served(story, remote):
    boost = story.boost()
    huc_mlflow.save_model(remote / "saved", log_forest(story), boost)
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(remote / "saved")]
    command += ["--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)]
    address = f"http://127.0.0.1:{port}"
    with process(command, f"{address}/ping", folder=remote):
        rows = story.frame.head(5)
        body = {
            "dataframe_split": {"columns": list(rows), "data": rows.to_numpy().tolist()},
            "params": {"predict_method": "predict_proba"},
        }
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{address}/invocations",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        started = time.monotonic()
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            got = json.load(answer)["predictions"]
        assert time.monotonic() - started < 10, "the first request must not wait for a compiler"
    order = [list(story.forest.classes_).index(leaf) for leaf in story.tree.leaves]
    base = story.forest.predict_proba(rows[FEATURES])[:, order]
    expected = boost.predict_proba(base, features=rows)
    served = np.array([[row[leaf] for leaf in story.tree.leaves] for row in got])
    assert np.abs(served - expected).max() <= 1e-12


def test_the_browser_shows_charts_and_the_report(story, remote, server):
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs chromium and chromedriver on PATH")
    log_forest(story, "shown")
    world = World(story, remote, server, name="shown", enabled=False)
    tell(world, days=4, drift_from=3)
    tracker = open_tracker(load_config(world.config))
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000")
    for flag in (*flags, "--disable-background-networking"):
        options.add_argument(flag)
    window = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(executable_path=driver)
    )
    try:
        base = f"{server}/#/experiments/{tracker.runs.experiment}/runs"
        window.get(f"{base}/{tracker.run_id}/model-metrics")
        wait_for(window, "js-line")  # a drawn line
        window.save_screenshot(str(remote / "charts.png"))
        child = next(iter(tracker.runs.search("window"))).info.run_id
        window.get(f"{base}/{child}/artifacts")
        wait_for(window, "report.html")
        window.find_element("xpath", "//*[text()='report.html']").click()
        wait_for(window, "<iframe")
        time.sleep(3)
        window.save_screenshot(str(remote / "artifacts.png"))
    finally:
        window.quit()
    for name in ("charts.png", "artifacts.png"):
        assert (remote / name).stat().st_size > 20_000


def wait_for(window, text):
    deadline = time.monotonic() + 90
    while text not in window.page_source:
        assert time.monotonic() < deadline, window.page_source[-3000:]
        time.sleep(1)
