"""The pages of the local web application, asked for over HTTP."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from support.hostile import NODES, UTILITIES, assert_clean, write_hostile_project
from support.production_log import after, make_log, write_project
from support.report_page import Page
from support.ui_server import copies, serve, watch_faulty

from huc_monitor.cli import main
from huc_monitor.cli.ui import _open
from huc_monitor.config.opening import open_monitor
from huc_monitor.monitor.forecasting import ForecastScore
from huc_monitor.reporting.ui import Fleet, _fleet
from huc_monitor.reporting.ui._links import DiskLinks
from huc_monitor.reporting.ui._pages import Pages

FAMILIES = ("dos", "probe")
FAMILY = {"neptune": "dos", "smurf": "dos", "satan": "probe", "nmap": "probe"}
EVIL = "%3Cscript%3Ealert(1)%3C/script%3E"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    return watch_faulty(tmp_path_factory.mktemp("fleet") / "intrusion")


@pytest.fixture(scope="module")
def site(faulty):
    with serve([faulty]) as made:
        yield made


def test_the_fleet_page_says_status_trend_labels_and_newest_window(site):
    page = Page(site.ask("/").text)
    for text in ("intrusion", "critical", "400", "100 % labelled", "2024-03-08", "window 8"):
        assert text in page.words
    assert "8 audited windows" in site.ask("/").text  # of the line


def test_a_model_page_has_verdict_tree_heat_map_and_findings_with_onset(site):
    page = Page(site.ask("/m/intrusion").text)
    for text in ("One branch changed since the reference: attack", "Branches by window"):
        assert text in page.words
    assert "It began" in page.words
    links = {attributes.get("href") for tag, attributes in page.tags if tag == "a"}
    assert {"/m/intrusion/branch/1", "/m/intrusion?window=3"} <= links


def test_the_page_of_alerts_says_that_none_is_open(tmp_path):
    calm = write_project(tmp_path / "calm", *make_log(3, 400))
    assert "Open alerts No alert is open." in Page(Pages(Fleet([calm], _open)).alerts()).words


def test_every_monitor_is_shown_in_its_own_time_zone(faulty, tmp_path):
    log, labels = make_log(4, 400, broken_from=2, seed=3)
    zone = ", time_zone: Europe/Berlin"
    local = write_project(tmp_path / "berlin", log, labels, draws=60, windows=zone)
    monitor = open_monitor(local)
    monitor.check(now=after(5))
    monitor.actions.ack(by="ann", now=after(5))
    fleet = Fleet([faulty, local], _open)
    pages = Pages(fleet)
    assert {"2024-03-08", "2024-03-04"} <= set(Page(pages.overview()).words.split())
    alerts = Page(pages.alerts()).words
    assert "Acknowledged by ann, 2024-03-06 01:00 CET." in alerts
    assert re.search(r"open since 2024-03-0\d, ", alerts)
    assert "23:00" not in alerts
    assert "window 4, 2024-03-04" in Page(pages.model("berlin", 4)).words
    shown = Page(pages.branch("berlin", 1, 4, rows=True)).words
    assert "time (Europe/Berlin)" in shown
    assert "time (UTC)" in Page(pages.branch("intrusion", 1, rows=True)).words
    fleet.close()


def test_a_window_without_a_page_is_no_link(faulty):
    fleet = Fleet([faulty], _open)
    page = Page(Pages(fleet, DiskLinks(windows={"intrusion": [8]})).model("intrusion"))
    fleet.close()
    links = [attributes.get("href") for tag, attributes in page.tags if tag == "a"]
    assert "intrusion/window-8.html" in links
    assert "None" not in links


def test_past_forecasts_are_counted_over_all_windows_as_everywhere_else(faulty, monkeypatch):
    plain = _fleet.open_state

    def opened(*given):
        state = plain(*given)
        state.forecast_scores = {"status": ForecastScore(n=108, n_inside=101)}
        return state

    monkeypatch.setattr(_fleet, "open_state", opened)
    fleet = Fleet([faulty], _open)
    assert "101 of 108 past forecasts held" in Page(Pages(fleet).model("intrusion")).words
    assert "past forecasts" not in Page(Pages(fleet).model("intrusion", 7)).words
    fleet.close()


def test_an_export_says_which_monitor_could_not_be_read(faulty, tmp_path, capsys):
    bad = tmp_path / "huc.yaml"
    bad.write_text("model: [", "utf-8")
    given = [f"--config={path}" for path in (faulty, bad)]
    assert main(["ui", *given, "--export", str(tmp_path / "site")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"1 of 2 monitors could not be read: {bad}" in said
    assert (tmp_path / "site" / "intrusion" / "index.html").is_file()


def test_an_older_window_shows_what_was_known_then(site):
    page = Page(site.ask("/m/intrusion?window=4").text)
    assert "window 4, 2024-03-04" in page.words
    assert "One branch changed" not in page.words
    rel = {a["rel"]: a["href"] for tag, a in page.tags if tag == "a" and "rel" in a}
    assert rel == {"prev": "/m/intrusion?window=3", "next": "/m/intrusion?window=5"}


def test_a_branch_page_says_for_whom_in_which_range_and_what_children_get(site):
    page = Page(site.ask("/m/intrusion/branch/1").text)
    for text in ("attack", "subgroup protocol=udp", "Where predictions go", "dos", "probe"):
        assert text in page.words


def test_rows_to_look_at_are_read_when_asked_for_the_costliest_first(site):
    asked = site.ask("/m/intrusion/branch/1")
    assert "Rows to look at" not in Page(asked.text).words
    words = Page(site.ask("/m/intrusion/branch/1?rows=1").text).words
    assert "Rows to look at" in words
    assert "What is confused" in words
    rows = words.split("Rows to look at")[1].split("What is confused")[0]
    shares = [float(found) for found in re.findall(r"[+-]0\.\d{3}", rows.replace("\u2212", "-"))]
    assert len(shares) == 25
    assert shares == sorted(shares)
    assert shares[-1] < 0  # utility was overstated


def test_what_is_confused_is_counted_by_the_likeliest_child_and_the_one_that_happened(faulty):
    with serve([faulty]) as site:
        text = site.ask("/m/intrusion/branch/1?rows=1").text
    log = pd.read_parquet(faulty.parent / "log/day=2024-03-08")
    labels = pd.read_parquet(faulty.parent / "labels.parquet").set_index("id")["label"]
    dos, probe = ["p_neptune", "p_smurf"], ["p_satan", "p_nmap"]
    likeliest = np.where(log[dos].sum(axis=1) >= log[probe].sum(axis=1), "dos", "probe")
    seen = log["id"].map(labels).map(FAMILY.get)
    confused = Page(text).words.split("What is confused")[1]
    if "subgroup protocol=udp with" in Page(text).words:
        seen = seen.where(log["protocol"] == "udp")
    counts = [str(((likeliest == j) & (seen == k)).sum()) for j in FAMILIES for k in FAMILIES]
    found = re.findall(r"\b\d+\b", confused.split("Data and method")[0])
    assert found == counts


def test_a_log_that_is_gone_is_said_and_the_branch_is_still_shown(faulty, tmp_path):
    with serve(copies(faulty, tmp_path, 1)) as site:
        words = Page(site.ask("/m/model-00/branch/1?rows=1").text).words
        assert "The log cannot be read" in words
        assert "Where predictions go" in words


def test_branches_are_found_by_a_part_of_their_name(site):
    page = Page(site.ask("/m/intrusion?find=ATT").text)
    assert ("a", {"href": "/m/intrusion/branch/1"}) in page.tags
    assert "None." in Page(site.ask("/m/intrusion?find=zebra").text).words


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/m/nobody", "must be one of those shown"),
        ("/m/intrusion?window=99", "must be from 1 to 8"),
        ("/m/intrusion?window=x", "must be the number of a window"),
        ("/m/intrusion/branch/77", "must be below"),
    ],
)
def test_what_is_not_there_is_said(site, path, text):
    answer = site.ask(path)
    assert answer.status == 404
    assert text in Page(answer.text).words


def test_pages_let_nothing_run_and_ask_nobody(site):
    for path in ("/", "/m/intrusion", "/m/intrusion/branch/1"):
        answer = site.ask(path)
        page = Page(answer.text)
        assert page.count("script") == 0
        policy = next(a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a)
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "script-src 'none'" in policy
        assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
def test_a_request_under_another_name_is_refused(site, host):
    assert site.ask("/", headers={"Host": host}).status == 400


def test_a_monitor_that_cannot_be_read_is_named_and_the_others_are_shown(faulty, tmp_path):
    good, bad = copies(faulty, tmp_path, 2)
    bad.write_text("model: [", "utf-8")
    with serve([good, bad]) as site:
        words = Page(site.ask("/").text).words
        assert "unreadable" in words
        assert "critical" in words
        bad.write_text(good.read_text("utf-8"), "utf-8")  # mended: it is read again
        assert "unreadable" not in Page(site.ask("/").text).words


def test_names_from_an_attacker_are_text_on_every_page(tmp_path):
    config = write_hostile_project(tmp_path / "evil")
    open_monitor(config).check(now=after(5).isoformat())
    with serve([config]) as site:
        for path in ("/", "/m/evil", "/m/evil/branch/1?rows=1", f"/m/evil?find={EVIL}"):
            text = site.ask(path).text
            assert_clean(text, is_output=False)
            page = Page(text)
            assert page.count("script") == 0
            assert not [a for _, a in page.tags if any(key.startswith("on") for key in a)]
        words = Page(site.ask("/m/evil").text).words.replace(" ", "")
        assert NODES["dos"].replace(" ", "") in words
        assert UTILITIES[0] in Page(site.ask("/m/evil/branch/0").text).words


def test_checking_does_not_load_the_server():
    code = "import huc_monitor.cli, sys; print({'starlette', 'uvicorn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
