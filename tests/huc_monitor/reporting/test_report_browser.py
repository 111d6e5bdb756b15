"""The report in the browser people read it with: Debian's chromium, headless."""

from __future__ import annotations

import functools
import http.server
import threading
from typing import TYPE_CHECKING

import pytest
from support.browser import every, one, requests, show, start_browser
from support.intents import TREE as INTENTS
from support.intents import day, make_intents, watch_intents
from support.report_cases import NASTY, seeded_audit, story

from huc_monitor.reporting import draw_pictures, save_picture, write_report

pytestmark = pytest.mark.seconds  # a browser

if TYPE_CHECKING:
    from pathlib import Path

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    tree, records = story((EVIL, '"; DROP TABLE windows; --'), subgroup=NASTY[3])
    folder = tmp_path_factory.mktemp("report")
    return write_report(records, folder / "report.html", tree=tree, title=NASTY[2])


@pytest.fixture
def shown(browser, page):
    return show(browser, page.as_uri())


def press(browser, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    chain = ActionChains(browser)
    for key in keys:
        chain.send_keys(key)
    chain.perform()


def active(browser):
    return browser.switch_to.active_element


def dialog_is_open(browser) -> bool:
    return browser.execute_script("return document.getElementById('story').open")


def background(browser) -> str:
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


def test_opening_and_using_the_page_makes_no_request_and_no_complaint(shown, page):
    one(shown, ".node[data-node='1'] rect").click()
    one(shown, "#story-close").click()
    one(shown, "#theme").click()
    assert requests(shown) == [page.as_uri()]
    assert shown.get_log("browser") == []


def test_served_over_http_the_page_asks_for_itself_only(browser, page):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        asked: list[str] = []  # noqa: RUF012 - shared with the test on purpose

        def log_message(self, *_):
            pass

        def do_GET(self):
            self.asked.append(self.path)
            super().do_GET()

    handler = functools.partial(Quiet, directory=str(page.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        show(browser, f"http://127.0.0.1:{server.server_port}/report.html")
        one(browser, ".node[data-node='1'] rect").click()
        assert browser.get_log("browser") == []
        server.shutdown()
    assert Quiet.asked == ["/report.html"]


def test_a_click_on_a_node_tells_its_story(shown):
    one(shown, ".node[data-node='1'] rect").click()
    assert dialog_is_open(shown)
    assert one(shown, "#story-title").text == EVIL
    said = one(shown, "#story-body").text
    for part in ("Worst moment in each window", "By subgroup and utility", "All windows"):
        assert part in said
    rows = [row.text for row in every(shown, "#story-body tbody tr")]
    assert any("◆ \u22120.040" in row and "[\u22120.045, \u22120.035]" in row for row in rows)
    assert "leaf 1 0.500 0.400" in rows
    assert len(every(shown, "#story-body svg .m-critical")) == 1


def test_the_keyboard_walks_the_tree_and_opens_and_closes_a_story(shown):
    from selenium.webdriver.common.keys import Keys

    for _ in range(60):
        press(shown, Keys.TAB)
        if active(shown).get_attribute("role") == "treeitem":
            break
    assert active(shown).get_attribute("data-node") == "0"
    press(shown, Keys.ARROW_RIGHT)
    press(shown, Keys.ARROW_DOWN)
    assert active(shown).get_attribute("data-node") == "2"
    press(shown, Keys.ARROW_LEFT)
    assert active(shown).get_attribute("data-node") == "0"
    press(shown, Keys.END)
    press(shown, Keys.ENTER)
    assert dialog_is_open(shown)
    assert active(shown).get_attribute("id") == "story-title"
    press(shown, Keys.ESCAPE)
    assert not dialog_is_open(shown)
    assert active(shown).get_attribute("data-node") == "2"


def test_names_in_tables_open_stories_too(shown):
    shown.execute_script("document.querySelector('table.heat button').click()")
    assert dialog_is_open(shown)
    assert one(shown, "#story-title").text == "animals"
    one(shown, "#story-close").click()
    assert not dialog_is_open(shown)


def test_a_branch_can_be_found_by_part_of_its_name(shown):
    from selenium.webdriver.common.keys import Keys

    one(shown, "#find").send_keys("drop table", Keys.ENTER)
    assert one(shown, "#story-title").text == '"; DROP TABLE windows; --'
    one(shown, "#story-close").click()
    one(shown, "#find").clear()
    one(shown, "#find").send_keys("no such", Keys.ENTER)
    assert one(shown, "#find-result").text == "No branch has this name."
    assert not dialog_is_open(shown)


def test_a_story_has_an_address(browser, page):
    show(browser, f"{page.as_uri()}#node-2")
    assert one(browser, "#story-title").text == '"; DROP TABLE windows; --'


def test_nasty_names_stay_text(shown):
    one(shown, ".node[data-node='1'] rect").click()
    assert len(every(shown, "script")) == 2
    assert every(shown, "img") == []
    assert one(shown, "h1").text == NASTY[2]
    assert NASTY[3] in one(shown, "#story-body").text
    labels = [node.get_attribute("aria-label") for node in every(shown, ".node")]
    assert any(label.startswith(f"{EVIL}: ") for label in labels)


def test_a_script_smuggled_into_the_page_would_be_refused(browser, page, tmp_path):
    text = page.read_text("utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace("<main", "<script>document.title='owned'</script><main"))
    show(browser, broken.as_uri())
    assert browser.title != "owned"
    assert any("Content Security Policy" in e["message"] for e in browser.get_log("browser"))


@pytest.mark.parametrize(("scheme", "other"), [("light", "dark"), ("dark", "light")])
def test_the_page_follows_the_readers_theme_and_the_button_overrules_it(
    browser, page, scheme, other
):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}
    try:
        show(browser, page.as_uri())
        browser.execute_script("localStorage.clear()")
        browser.refresh()
        assert background(browser) == colours[scheme]
        while one(browser, "#theme").text != f"Theme: {other}":
            one(browser, "#theme").click()
        assert background(browser) == colours[other]
        browser.refresh()
        assert background(browser) == colours[other]
    finally:
        browser.execute_script("localStorage.clear()")
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_print_is_light_whatever_the_screen(shown):
    shown.execute_script("document.documentElement.dataset.theme = 'dark'")
    shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert background(shown) == "rgb(255, 255, 255)"
        assert not one(shown, "#theme").is_displayed()
    finally:
        shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_the_page_never_scrolls_sideways(browser, page, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        show(browser, page.as_uri())
        seen = browser.execute_script(
            "const root = document.documentElement;"
            "return [innerWidth, root.scrollWidth - root.clientWidth]"
        )
        assert seen == [width, 0]
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_everything_one_can_act_on_has_a_name(shown):
    tree = shown.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    acting = {"button", "treeitem", "textbox", "combobox", "link", "region", "image", "tree"}
    nameless = [
        node
        for node in tree
        if node.get("role", {}).get("value") in acting and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    roles = {node.get("role", {}).get("value") for node in tree}
    assert {"tree", "treeitem", "image", "table", "heading", "main"} <= roles


def test_text_stays_inside_its_box_in_the_tree(shown):
    overflow = shown.execute_script(
        "return [...document.querySelectorAll('.node')].filter(node => {"
        "const box = node.querySelector('rect').getBoundingClientRect();"
        "return [...node.querySelectorAll('text')].some(text => {"
        "const own = text.getBoundingClientRect();"
        "return own.right > box.right + 1 || own.left < box.left - 1; }); }).length"
    )
    assert overflow == 0


def test_every_picture_is_a_file_that_a_browser_shows(browser, tmp_path):
    tree, records = story()
    pictures = draw_pictures(records, tree=tree) | draw_pictures(**seeded_audit())
    assert len(pictures) == 6
    for name, picture in pictures.items():
        path = save_picture(picture, tmp_path / f"{name}.svg")
        show(browser, path.as_uri())
        assert browser.execute_script("return document.documentElement.tagName") == "svg"
        assert browser.get_log("browser") == []


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    records = watch_intents(make_intents(fault="app", days=9)).check(day(9)).records
    path = tmp_path_factory.mktemp("changed") / "report.html"
    return write_report(records, path, tree=INTENTS)


@pytest.mark.parametrize("width", [400, 800, 1200])
def test_a_narrow_page_shows_the_newest_window_of_what_changed_first(browser, changed, width):
    browser.set_window_size(width, 900)
    browser.get(changed.as_uri())
    places = browser.execute_script(
        """
        const right = document.documentElement.clientWidth;
        const rows = [...document.querySelectorAll("table.heat tbody tr")];
        const cells = rows.map((row) => row.lastElementChild);
        const dots = [...document.querySelectorAll(".scroll.newest svg .m-dot")];
        const last = [...cells, dots[dots.length - 1]].map((item) => item.getBoundingClientRect());
        return last.map((box) => box.left >= 0 && box.right <= right + 1);
        """
    )
    assert len(places) == 5
    assert all(places)
