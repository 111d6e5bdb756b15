"""The pages of `huc-monitor ui` in the browser people read them with, headless."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np
import pytest
from support.browser import (
    critical,
    every,
    log_in,
    one,
    press,
    requests,
    show,
    start_browser,
    wait,
)
from support.production_log import after, make_log, write_project
from support.report_page import Page
from support.ui_server import copies, serve, watch_faulty

from huc_monitor.cli.ui import _open
from huc_monitor.config.opening import open_monitor
from huc_monitor.reporting.ui import Access, Fleet
from huc_monitor.reporting.ui._export import export_site

pytestmark = pytest.mark.seconds  # a browser

TOKEN = "a token for these tests alone"  # noqa: S105


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    return copies(watch_faulty(folder / "first"), folder / "all", 20)


@pytest.fixture(scope="module")
def site(fleet):
    with serve(fleet) as made:
        yield made


def resize(browser, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_a_fleet_of_twenty_is_a_small_page_that_asks_nobody(browser, site):
    show(browser, site.address("/"))
    assert len(every(browser, "tbody tr")) == 20
    assert len(browser.page_source.encode()) < 200_000
    assert requests(browser) == [site.address("/")]
    assert browser.get_log("browser") == []


def test_a_model_page_is_small_and_its_links_lead_through_windows_and_to_critical(browser, site):
    show(browser, site.address("/"))
    one(browser, "tbody th a").click()
    assert len(browser.page_source.encode()) < 500_000
    newest = one(browser, ".travel span").text
    one(browser, "a[rel=prev]").click()
    assert one(browser, ".travel span").text != newest
    one(browser, "a[rel=next]").click()
    assert one(browser, ".travel span").text == newest
    one(browser, "svg a.node[aria-label^=attack]").click()
    assert one(browser, "h1").text == "attack"
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [1200, 800, 400])
def test_no_page_is_wider_than_the_screen(browser, site, width):
    resize(browser, width)
    for path in ("/", "/alerts", "/m/model-00", "/m/model-00/branch/1", "/m/model-00/versions"):
        show(browser, site.address(path))
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    resize(browser, 1280)


def test_below_600_pixels_the_tree_is_a_list(browser, site):
    for width, is_list in ((400, True), (1200, False)):
        resize(browser, width)
        show(browser, site.address("/m/model-00"))
        assert one(browser, ".outline").is_displayed() is is_list
        assert one(browser, ".roomy").is_displayed() is not is_list
    resize(browser, 1280)


def test_the_exported_site_opens_from_disk_and_every_link_is_a_file(browser, fleet, tmp_path):
    made = Fleet(fleet[:2], _open)
    written, unread = export_site(made, tmp_path / "site")
    made.close()
    assert not unread
    for path in written:
        page = Page(path.read_text("utf-8"))
        links = [a["href"] for tag, a in page.tags if tag == "a" and not a["href"].startswith("#")]
        for link in links:
            assert (path.parent / unquote(urlparse(link).path)).is_file(), (path, link)
        assert page.count("form") == 0
    show(browser, written[0].as_uri())
    one(browser, "tbody th a").click()
    address = browser.current_url
    assert Path(unquote(urlparse(address).path)).is_file()
    one(browser, "svg a.node[aria-label^=attack]").click()
    assert one(browser, "h1").text == "attack"
    asked = requests(browser)
    assert len(asked) == 3
    assert all(url.startswith((tmp_path / "site").as_uri()) for url in asked)
    assert browser.get_log("browser") == []
    assert {oct(path.stat().st_mode & 0o777) for path in written} == {"0o600"}


def test_an_export_does_not_touch_a_folder_of_something_else(fleet, tmp_path):
    (tmp_path / "thesis.txt").write_text("x", "utf-8")
    with pytest.raises(ValueError, match="must be a new or empty folder"):
        export_site(Fleet(fleet[:1], _open), tmp_path)


def write_story(folder: Path) -> Path:
    """Write 14 days: from day 5 `attack` is wrong, from 8 `root` too, from 11 nothing."""
    log, labels = make_log(14, 700, seed=8)
    day = (log["at"] - log["at"].min().normalize()).dt.days.to_numpy()
    label = log["id"].map(labels.set_index("id")["label"])
    wrong = (day >= 5) & (day < 11)
    label = label.where(~wrong, label.replace({"neptune": "satan", "smurf": "nmap"}))
    spread = wrong & (day >= 8) & (label == "normal") & (np.arange(len(log)) % 2 == 0)
    label = label.where(~spread, "neptune")
    labels["label"] = labels["id"].map(dict(zip(log["id"], label, strict=True)))
    config = write_project(folder, log, labels, draws=60, more="alerts: {cool_down: 30d}")
    config.write_text(config.read_text("utf-8").replace("tolerance: 0.03", "tolerance: 0.05"))
    return config


def test_an_operator_follows_an_alert_to_its_end_on_the_page(browser, tmp_path):
    config = write_story(tmp_path / "story")

    def check(days):
        result = open_monitor(config).check(now=after(days + 0.6).isoformat())
        return result, "" if result.message is None else str(result.message.text)

    with serve([config], Access(TOKEN)) as site:
        check(5)
        assert critical(browser, site) == {}
        check(7)
        assert set(critical(browser, site)) == {"attack"}
        log_in(browser, site, TOKEN)
        assert "Acknowledged by ann" in press(browser, site, "attack", "ack", text="on it")
        said = press(browser, site, "attack", "mute", until="3d", text="firmware")
        assert "Muted by ann until" in said
        result, told = check(10)  # it spread to a branch that is not muted
        assert "root" in told
        assert set(critical(browser, site)) == {"attack", "root"}
        assert result.status == "critical"
        one(browser, "form[action$='/unmute'] button").click()
        wait(browser, lambda: "Unmuted by ann" in one(browser, "main").text)
        check(14)  # mended from day 11 on
        assert critical(browser, site) == {}
        assert browser.get_log("browser") == []
