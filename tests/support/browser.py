"""A real browser for tests of pages: chromium, headless."""

from __future__ import annotations

import json
import re
import shutil

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)


def start_browser(profile):
    """Start it; tests are left out where there is none."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs chromium and chromedriver on PATH")
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    return webdriver.Chrome(options=options, service=service)


def show(browser, address: str):
    """Open an address; what was asked for and complained of before is forgotten."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(address)
    return browser


def requests(browser) -> list[str]:
    """Return the addresses that were asked for since `show`."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]


def one(browser, selector: str):
    """Find one element."""
    return browser.find_element("css selector", selector)


def every(browser, selector: str) -> list:
    """Find all elements."""
    return browser.find_elements("css selector", selector)


def log_in(browser, site, token: str, name: str = "ann") -> None:
    """Log in on the page of a server."""
    browser.get(site.address("/login"))
    one(browser, "input[name=name]").send_keys(name)
    one(browser, "input[name=token]").send_keys(token)
    one(browser, "form button").click()
    wait(browser, lambda: browser.current_url.endswith("/alerts"))


def critical(browser, site) -> dict[str, str]:
    """Return what the page of alerts says of each branch that is critical."""
    browser.get(site.address("/alerts"))
    found = every(browser, "article.critical")
    return {re.split(r"\s+", item.text)[1]: item.text for item in found}


def press(browser, site, branch: str, verb: str, **fields: str) -> str:
    """Fill in a form of a critical branch and send it; return what the page says of it then."""
    browser.get(site.address("/alerts"))
    article = next(a for a in every(browser, "article.critical") if f" {branch} " in a.text)
    for summary in article.find_elements("css selector", "summary"):
        if summary.text == "Act on this branch":
            summary.click()
    form = article.find_element("css selector", f"form[action$='/{verb}']")
    wait(browser, form.is_displayed)
    for name, text in fields.items():
        form.find_element("css selector", f"[name={name}]").send_keys(text)
    form.find_element("css selector", "button").click()
    wait(browser, lambda: "#" in browser.current_url)
    return critical(browser, site)[branch]


def wait(browser, done, seconds: float = 30) -> None:
    """Wait until something holds on a page, which may be replaced by the next one meanwhile."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.wait import WebDriverWait

    replaced = (StaleElementReferenceException,)
    WebDriverWait(browser, seconds, ignored_exceptions=replaced).until(lambda _: done())
