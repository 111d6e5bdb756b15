"""An operator's week, from the first alert to a recalibration that resolves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import huc_mlflow
import mlflow
import pytest
from support.browser import critical, log_in, one, press, show, start_browser, wait
from support.deployment import World, champion
from support.forests import log_forest
from support.ui_server import serve

from huc_monitor.cli import main
from huc_monitor.config.opening import open_actions
from huc_monitor.reporting.ui import Access

TOKEN = "a token for these tests alone"  # noqa: S105
pytestmark = pytest.mark.slow


def make_world(story, store, **more):
    log_forest(story, "triage")
    uri = mlflow.get_tracking_uri()
    world = World(story, store, uri, promotion="manual", enabled=False, **more)
    world.settings["alerts"] = {"cool_down": "1d"}
    world.configure()
    return world


def a_day(world, *, drift=1.0, spread=False):
    """Serve a day, check it, and return the check and what people are told of each branch."""
    world.serve(drift=drift, spread=spread)
    result = world.check()
    told = {}
    for step in [] if result.message is None else result.message.data["transitions"]:
        level = "resolved" if step["kind"] == "resolved" else step["level"]
        told.setdefault(step["node"], set()).add(level)
    return result, told


def test_a_week_from_an_alert_to_a_recalibration_that_resolves_it(story, store, capsys):
    world = make_world(story, store, first=datetime(2024, 2, 28, tzinfo=UTC))  # a Wednesday
    config = ["--config", str(world.config)]
    assert a_day(world, drift=0.0)[1] == {}
    result, told = a_day(world)
    assert (result.status, set(told)) == ("critical", {"major"})
    actions = open_actions(world.config)
    actions.ack(branch="major", by="ann", text="looking", now=world.now)
    mute = actions.mute(branch="major", until="friday", by="ann", now=world.now)
    assert mute.until == datetime(2024, 3, 8, tzinfo=UTC)
    result, told = a_day(world)
    assert (result.status, told) == ("ok", {})
    assert {alert.node for alert in result.alerts} == {"major"}, "it is there, and counted"
    result, told = a_day(world, spread=True)
    assert (result.status, set(told)) == ("critical", {"milder"}), "it spread: told"
    assert "*major* by ann until 2024-03-08 00:00 UTC" in result.message.text
    for _ in range(4):
        assert "major" not in a_day(world, spread=True)[1]
    result, told = a_day(world, spread=True)  # the check of Friday
    assert "critical" in told["major"], "the mute is over: told"
    assert "Acknowledged by ann" in result.message.text
    assert "and is still there" in result.message.text
    capsys.readouterr()
    assert main(["recalibrate", *config]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "version 2 as challenger" in said
    assert "since the alert on branch milder began, the newest of 2 branches" in said
    assert main(["promote", *config]) == 0
    resolved = set()
    for _ in range(2):
        result, told = a_day(world, spread=True)
        resolved |= {node for node, levels in told.items() if "resolved" in levels}
        assert {record.model_version for record in result.records} == {"2"}
    assert result.status == "ok"
    assert resolved == {"major", "milder"}, "the fault stays, and predictions know of it"


@pytest.fixture
def browser(tmp_path):
    driver = start_browser(tmp_path / "profile")
    yield driver
    driver.quit()


def test_the_same_week_through_the_page_with_a_mute_that_ends_by_time(story, store, browser):
    # A mute on the page counts from now, so the first two days of the story are over now.
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    friday = today + timedelta(days=6)  # whatever it is called
    world = make_world(story, store, first=today - timedelta(days=2))
    a_day(world, drift=0.0)
    with serve([world.config], Access(TOKEN)) as site:
        assert critical(browser, site) == {}
        a_day(world)
        assert set(critical(browser, site)) == {"major"}
        log_in(browser, site, TOKEN)
        press(browser, site, "major", "ack", text="looking")
        until = f"{friday:%A}".lower()
        said = press(browser, site, "major", "mute", until=until, text="firmware")
        assert "Acknowledged by ann" in said
        assert f"Muted by ann until {friday:%Y-%m-%d} 00:00 UTC" in said
        assert a_day(world)[1] == {}
        result, told = a_day(world, spread=True)
        assert (result.status, set(told)) == ("critical", {"milder"}), "it spread: told"
        assert set(critical(browser, site)) == {"major", "milder"}
        for _ in range(3):
            assert "major" not in a_day(world, spread=True)[1]
        result, told = a_day(world, spread=True)  # ends where the mute does
        assert "critical" in told["major"], "the mute is over: told"
        assert "and is still there" in result.message.text
        show(browser, site.address("/alerts"))
        assert "Muted:" not in one(browser, "main").text
        assert main(["recalibrate", "--config", str(world.config)]) == 0
        browser.get(site.address(f"/m/{world.folder.name}/versions"))
        assert "Version 2 challenger" in one(browser, "main").text
        promote = one(browser, "form[action$='/promote'] button")
        assert promote.text == "Make version 2 champion"
        promote.click()
        wait(browser, lambda: "Version 2 champion" in one(browser, "main").text)
        assert champion(huc_mlflow.Registry("triage")) == "2"
        for _ in range(2):
            a_day(world, spread=True)
        assert critical(browser, site) == {}
        assert browser.get_log("browser") == []
