"""Pages of a monitor that keeps its records and versions in MLflow."""

from __future__ import annotations

import re

import huc_mlflow
from support.deployment import champion
from support.production_log import after, make_log, write_project
from support.report_page import Page
from support.ui_server import serve

from huc_monitor.config.opening import open_monitor
from huc_monitor.reporting.ui import Access

TOKEN = "a token for these tests alone"  # noqa: S105


def test_a_monitor_in_mlflow_is_shown_and_its_versions_are_moved_on_the_page(store, tmp_path):  # noqa: ARG001
    registry = huc_mlflow.Registry("intrusion")
    registry.client.create_registered_model("intrusion")
    for text in ("", "HUC 0.08 before, 0.02 now"):
        registry.client.create_model_version("intrusion", source="s3://b/m", description=text)
    registry.client.set_registered_model_alias("intrusion", "challenger", "2")
    registry.promote("1")
    log, labels = make_log(3, 300, seed=3)
    config = write_project(tmp_path / "ids", log, labels, draws=30, more="tracker: mlflow")
    open_monitor(config).check(now=after(3.6).isoformat())
    with serve([config], Access(TOKEN)) as site:
        assert "window 3" in Page(site.ask("/").text).words
        assert "window 2, 2024-03-02" in Page(site.ask("/m/ids?window=2").text).words
        form = {"token": TOKEN, "name": "ann"}
        cookie = site.ask("/login", method="POST", form=form).headers["set-cookie"].split(";")[0]
        text = site.ask("/m/ids/versions", headers={"Cookie": cookie}).text
        words = re.sub(r"\s+", " ", Page(text).words)
        assert "Version 2 challenger" in words
        assert "Version 1 champion" in words
        assert "HUC 0.08 before, 0.02 now" in words
        seal = re.search(r'name="seal" value="(\w+)"', text)[1]
        for verb, version in (("promote", "2"), ("rollback", "1")):
            given = {"seal": seal, "version": "2"}
            headers = {"Cookie": cookie}
            done = site.ask(f"/m/ids/{verb}", method="POST", form=given, headers=headers)
            assert done.status == 303
            assert champion(registry) == version
