"""Acting through the pages: who may, and what comes of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.hostile import NODES, write_hostile_project
from support.production_log import after
from support.report_page import Page
from support.ui_server import copies, serve, watch_faulty

from huc_monitor.config.opening import open_actions, open_monitor
from huc_monitor.errors import InvalidInputError
from huc_monitor.reporting.ui import Access, read_token

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "a token for these tests alone"  # noqa: S105


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    return watch_faulty(tmp_path_factory.mktemp("acting") / "intrusion")


@pytest.fixture
def config(checked, tmp_path):
    return copies(checked, tmp_path, 1)[0]


@pytest.fixture
def site(config):
    with serve([config], Access(TOKEN)) as made:
        yield made


def log_in(site, name="ann"):
    answer = site.ask("/login", method="POST", form={"token": TOKEN, "name": name})
    assert answer.status == 303
    return {"Cookie": answer.headers["set-cookie"].split(";")[0]}


def form_of(site, cookie, verb, path="/alerts"):
    """Return the hidden fields of the first form that does something."""
    text = site.ask(path, headers=cookie).text
    form = re.search(rf'<form[^>]*action="/m/[^"]*/{verb}".*?</form>', text, re.DOTALL)[0]
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))


def act(site, cookie, verb, **more):
    fields = form_of(site, cookie, verb) | more
    return site.ask(f"/m/model-00/{verb}", method="POST", form=fields, headers=cookie)


def state_of(config: Path):
    return open_actions(config)._load()


def test_without_the_switch_pages_have_no_forms_and_nothing_can_be_done(config):
    with serve([config]) as site:
        page = site.ask("/alerts").text
        assert "<form" not in page
        assert "Log in" not in page
        for path in ("/login", "/logout", "/m/model-00/ack", "/m/model-00/promote"):
            answer = site.ask(path, method="POST", form={"token": "", "name": "x", "seal": ""})
            assert answer.status == 403
            assert "--allow-actions" in answer.text


def test_reading_needs_no_log_in_and_shows_no_form(site):
    page = site.ask("/alerts").text
    assert 'method="post"' not in page
    assert "Log in" in page


@pytest.mark.parametrize("form", [{"token": "wrong", "name": "eve"}, {"token": TOKEN, "name": " "}])
def test_a_wrong_token_or_no_name_lets_nobody_in(site, form):
    answer = site.ask("/login", method="POST", form=form)
    assert answer.status == 403
    assert "set-cookie" not in answer.headers


def test_the_session_is_kept_from_scripts_and_other_sites(site):
    cookie = site.ask("/login", method="POST", form={"token": TOKEN, "name": "ann"})
    kept = cookie.headers["set-cookie"].lower()
    assert "httponly" in kept
    assert "samesite=strict" in kept
    assert TOKEN not in kept


def test_a_form_without_its_seal_does_nothing(site, config):
    cookie = log_in(site)
    fields = form_of(site, cookie, "ack")
    other = form_of(site, log_in(site, "bob"), "ack")
    for seal in ("", "x", other["seal"]):
        given = fields | {"seal": seal}
        answer = site.ask("/m/model-00/ack", method="POST", form=given, headers=cookie)
        assert answer.status == 403
    answer = site.ask("/m/model-00/ack", method="POST", form=fields)  # sealed, without the cookie
    assert answer.status == 403
    for said in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        evil = cookie | said
        assert site.ask("/m/model-00/ack", method="POST", form=fields, headers=evil).status == 403
    assert not any(alert.actions for alert in state_of(config).open_alerts)


def test_nothing_is_done_by_looking(site):
    cookie = log_in(site)
    for verb in ("ack", "mute", "promote"):
        assert site.ask(f"/m/model-00/{verb}", headers=cookie).status in {404, 405}


def test_an_alert_is_acknowledged_annotated_and_muted_by_name(site, config):
    cookie = log_in(site)
    assert act(site, cookie, "ack", text="on it").status == 303
    assert act(site, cookie, "note", text="new firmware?").status == 303
    assert act(site, cookie, "mute", until="3d", text="until it is fixed").status == 303
    alert = state_of(config).open_alerts[0]
    assert [(one.kind, one.by) for one in alert.actions] == [
        ("ack", "ann"),
        ("note", "ann"),
        ("mute", "ann"),
    ]
    words = Page(site.ask("/alerts").text).words
    for text in ("Acknowledged by ann", "on it", "new firmware?", "Muted by ann until"):
        assert text in words
    assert act(site, cookie, "unmute").status == 303
    assert state_of(config).mutes == []


def test_what_cannot_be_done_is_said_and_nothing_changes(site, config):
    cookie = log_in(site)
    answer = act(site, cookie, "mute", until="when pigs fly")
    assert answer.status == 400
    assert "until" in Page(answer.text).words
    answer = act(site, cookie, "ack", branch="0" * 16)
    assert answer.status == 400
    assert "Load the page again" in Page(answer.text).words
    assert state_of(config).mutes == []


def test_who_logs_out_can_do_no_more(site):
    cookie = log_in(site)
    fields = form_of(site, cookie, "ack")
    out = {"seal": fields["seal"]}
    assert site.ask("/logout", method="POST", form=out, headers=cookie).status == 303
    assert site.ask("/m/model-00/ack", method="POST", form=fields, headers=cookie).status == 403


def test_a_huge_form_is_refused(site):
    cookie = log_in(site)
    form = form_of(site, cookie, "note") | {"text": "x" * 100_000}
    assert site.ask("/m/model-00/note", method="POST", form=form, headers=cookie).status == 403


def test_a_branch_with_an_attackers_name_can_be_muted_and_people_too_are_text(tmp_path):
    config = write_hostile_project(tmp_path / "model-00", more="change: {alerts: tolerance}")
    open_monitor(config).check(now=after(5).isoformat())
    with serve([config], Access(TOKEN)) as site:
        cookie = log_in(site, "<script>alert(1)</script>")
        assert act(site, cookie, "note", text='"><img src=x onerror=alert(2)>').status == 303
        assert act(site, cookie, "mute", until="3d").status == 303
        page = Page(site.ask("/alerts", headers=cookie).text)
        assert page.count("script") == page.count("img") == 0
        assert "Note by <script>alert(1)</script>" in page.words
    assert {mute.branch for mute in state_of(config).mutes} <= {*NODES.values(), "root"}


def test_a_monitor_without_a_registry_says_so_on_its_page_of_versions(site):
    words = Page(site.ask("/m/model-00/versions").text).words
    assert "keeps no versions" in words


def test_a_token_in_a_file_must_be_private_and_long(tmp_path):
    path = tmp_path / "token"
    path.write_text("short", "utf-8")
    path.chmod(0o600)
    with pytest.raises(InvalidInputError, match="must hold at least 20 characters"):
        read_token(path)
    path.write_text(TOKEN + "\n", "utf-8")
    path.chmod(0o644)
    with pytest.raises(InvalidInputError, match="must be private"):
        read_token(path)
    path.chmod(0o600)
    assert read_token(path) == TOKEN
