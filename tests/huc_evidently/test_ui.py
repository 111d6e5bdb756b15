"""A workspace of reports in the real `evidently ui`, where this package cannot be imported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.mlflow_servers import free_port, process
from support.production_log import make_log, tree

import huc_monitor as hm

pytest.importorskip("evidently", reason="needs evidently")
webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None or DRIVER is None, reason="needs chromium and chromedriver on PATH"
    ),
]
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,3400",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# What an environment without our packages looks like to every import in it.
BLOCK = """\
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0].startswith("huc_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
SECONDS = 60


def fill(folder):
    """Write a workspace with a report per day; return the project and the reports in order."""
    from evidently import Report
    from evidently.presets import DataDriftPreset
    from evidently.ui.workspace import Workspace
    from huc_evidently import HUCPreset, add_panels

    log, labels = make_log(3, 1500, broken_from=2)
    rows = log.merge(labels, on="id")
    day = (rows["at"] - rows["at"].min()).dt.days
    preset = HUCPreset(
        tree=tree(),
        utilities=[hm.LevelCorrectness(level=2, name="family")],
        subgroups=hm.Subgroups.from_reference(rows, {"protocol": "each"}),
        tolerance=0.03,
        target="label",
        probabilities="p_{leaf}",
        n_draws=200,
    )
    report = Report([DataDriftPreset(columns=["protocol"]), preset])
    workspace = Workspace.create(str(folder))
    project = workspace.create_project("intrusion")
    for _ in range(2):
        add_panels(project, preset, subgroups=["all", "protocol=udp"])
    runs = []
    for i in range(3):
        end = rows.loc[day == i, "at"].max().to_pydatetime()
        run = report.run(rows[day == i], rows[day == 0], timestamp=end)
        runs.append(str(workspace.add_run(project.id, run, include_data=False).id))
    return project, runs


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evidently")
    project, runs = fill(folder / "workspace")
    (folder / "absent").mkdir()
    (folder / "absent" / "sitecustomize.py").write_text(BLOCK, "utf-8")
    env = {"PYTHONPATH": str(folder / "absent"), "DO_NOT_TRACK": "1"}
    port = free_port()
    command = [Path(sys.executable).parent / "evidently", "ui", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workspace", str(folder / "workspace")]
    address = f"http://127.0.0.1:{port}"
    with process(command, f"{address}/api/version", folder=folder, env=env):
        yield SimpleNamespace(
            address=address, id=str(project.id), project=project, runs=runs, env=env, folder=folder
        )


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def read(browser, address, *wanted):
    """Open a page and wait until it shows all of some texts, pictures included."""
    browser.get(address)
    deadline = time.monotonic() + SECONDS
    while True:
        text = browser.execute_script("return document.body.textContent")
        absent = [item for item in wanted if item not in text]
        if not absent:
            return text
        assert time.monotonic() < deadline, (absent, text[:2000])
        time.sleep(0.5)


def keep(browser, world, name):
    """Save a picture, for a person to look at."""
    folder = Path(os.environ.get("HUC_SCREENSHOTS", world.folder))
    assert browser.save_screenshot(str(folder / f"{name}.png"))


def test_this_package_is_absent_where_the_interface_runs(world):
    done = subprocess.run(
        [sys.executable, "-c", "import huc_evidently"],
        env={**os.environ, **world.env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'huc_evidently'" in done.stderr


def test_a_report_opens_with_its_pictures(world, browser):
    report = f"{world.address}/projects/{world.id}/reports/{world.runs[2]}"
    text = read(
        browser,
        report,
        "Utility calibration by branch",
        "Branches: red above tolerance by more than chance",
        "attack · protocol=udp · family",
        "Moment in the reference",
        "above tolerance",
        "Drift is detected for 0.0% of columns",
    )
    assert "neptune" in text  # a tile of the tree
    fills = browser.execute_script(
        "return [...document.querySelectorAll('.bars path')].map(x => x.style.fill)"
    )
    assert "rgb(178, 24, 43)" in fills
    keep(browser, world, "evidently-report")


def test_the_failed_test_names_the_node(world, browser):
    read(browser, f"{world.address}/projects/{world.id}/reports/{world.runs[2]}", "Branches")
    tabs = browser.find_elements("css selector", "button[role=tab]")
    (tests,) = [tab for tab in tabs if tab.text.strip().lower() == "tests"]
    tests.click()
    time.sleep(2)
    text = browser.execute_script("return document.body.textContent")
    assert "attack (family, protocol=udp): lower bound of the moment: Less or Equal 0.030" in text
    keep(browser, world, "evidently-tests")


def test_the_dashboard_shows_all_windows_and_panels_once(world, browser):
    read(
        browser,
        f"{world.address}/projects/{world.id}",
        "HUC with bounds, and UC",
        "family, protocol=udp: lower bounds by branch",
        "2024-03-03",
    )
    keep(browser, world, "evidently-dashboard")
    titles = [panel.title for panel in world.project.dashboard.model().panels]
    assert len(titles) == len(set(titles)) == 5


def test_the_interface_draws_a_series_per_branch_over_the_windows(world):
    wanted = {"utility": "family", "subgroup": "protocol=udp", "bound": "lower"}
    metric = {
        "tags": [],
        "metadata": {},
        "metric": "evidently:metric_v2:HUCMoment",
        "metric_labels": wanted,
    }
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{world.address}/api/v2/snapshots/{world.id}/data_series_batch",
        data=json.dumps({"series_filter": [metric]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        found = json.load(answer)
    lower = {series["params"]["label"]: series["values"] for series in found["series"]}
    assert set(lower) == {"root", "attack"}
    assert len(lower["attack"]) == 3
    assert lower["attack"][2] > 0.03 >= max(lower["attack"][:2])
