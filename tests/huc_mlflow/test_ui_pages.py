"""Pages of a monitor that keeps its records and versions in MLflow."""

from __future__ import annotations

import json
import re

import huc_mlflow
import pytest
from support.browser import every, log_in, one, requests, show, start_browser, wait
from support.deployment import champion
from support.hostile import NODES, write_hostile_project
from support.production_log import after, make_log, write_project
from support.report_page import Page
from support.ui_server import serve

from huc_monitor.cli.ui import _open
from huc_monitor.config.opening import open_monitor
from huc_monitor.reporting.ui import Access, Fleet
from huc_monitor.reporting.ui._export import export_site

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


EVIL = "ids<img src=x onerror=alert(1)>"
CARD = (
    "**What was wrong.** <script>alert(2)</script>\n- branch `<b onclick=alert(3)>x</b>\u202e`\n"
    "| | <svg onload=alert(4)> |\n|---|---|\n| HUC | [0.1](javascript:alert(5)) |\n"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def hostile(store, tmp_path):  # noqa: ARG001
    """Write a monitor whose model, versions, cards, branches and subgroups have such names."""
    registry = huc_mlflow.Registry(EVIL)
    registry.client.create_registered_model(EVIL)
    for text in ("", CARD):
        registry.client.create_model_version(EVIL, source="s3://b/m", description=text)
    registry.client.set_registered_model_alias(EVIL, "challenger", "2")
    registry.promote("1")
    more = "tracker: mlflow\nchange: {alerts: tolerance}"
    config = write_hostile_project(tmp_path / "ids", more=more)
    text = config.read_text("utf-8").replace("model: intrusion", f"model: {json.dumps(EVIL)}")
    config.write_text(text, "utf-8")
    open_monitor(config).check(now=after(5).isoformat())
    return config


def assert_harmless(browser, address, allowed):
    """Open a page: nothing on it runs, asks for anything else, or is refused by its policy."""
    show(browser, address)
    assert every(browser, "script, img, iframe, [onclick], [onload], [onerror]") == []
    assert all(url.startswith(allowed) for url in requests(browser))
    assert browser.get_log("browser") == []


def test_names_of_an_attacker_are_text_on_the_page_of_versions(browser, hostile):
    with serve([hostile], Access(TOKEN)) as site:
        for path in ("/m/ids/versions", "/m/ids", "/"):
            assert_harmless(browser, site.address(path), site.address(path))
        log_in(browser, site, TOKEN, "<img src=x onerror=alert(6)>")
        assert_harmless(browser, site.address("/alerts"), site.address("/alerts"))
        assert_harmless(browser, site.address("/m/ids/versions"), site.address("/m/ids/versions"))
        text = one(browser, "main").text
        for said in (EVIL, "<script>alert(2)</script>", "<svg onload=alert(4)>"):
            assert said in text
        one(browser, "form[action$='/promote'] button").click()
        wait(browser, lambda: "Version 2 champion" in one(browser, "main").text)


def test_names_of_an_attacker_are_text_on_every_page_of_an_exported_site(
    browser, hostile, tmp_path
):
    fleet = Fleet([hostile], _open)
    written, _ = export_site(fleet, tmp_path / "site")
    fleet.close()
    assert {path.name for path in written} >= {"index.html", "alerts.html", "versions.html"}
    assert {path.parent.name for path in written} == {"site", "ids"}
    for path in written:
        assert_harmless(browser, path.as_uri(), path.as_uri())
    show(browser, (tmp_path / "site" / "ids" / "index.html").as_uri())
    assert NODES["dos"] in one(browser, "main").text
