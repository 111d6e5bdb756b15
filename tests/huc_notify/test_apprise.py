"""Apprise's own plugins against real servers on this machine."""

from __future__ import annotations

import email
import email.policy
import logging
import subprocess
import sys
from urllib.parse import quote

import apprise
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from apprise.plugins import pagerduty, slack
from huc_notify import AppriseNotifier
from support.receiver import Receiver, free_port

from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.ports import Notifier, make_plugin
from huc_monitor.monitor.ports.notifier import Message, NotSentError, RejectedError

TOKEN = "hunter2Hunter2hunter2Hu9"  # noqa: S105 - of a test
TEXT = "CRITICAL\nBranch *<script>alert(1)</script>* & <!channel> is overstated by 0.043."


def message(level="critical", key="5f0c", text=TEXT, **data):
    return Message(key, level, f"triage: 1 {level}", text, {"monitor": "triage", **data})


@pytest.fixture(autouse=True)
def everything_logged(caplog):
    """Log all that can be logged, and find no token in it."""
    caplog.set_level(logging.DEBUG)
    for name in ("apprise", "urllib3.connectionpool"):
        caplog.set_level(logging.DEBUG, logger=name)
    yield
    assert TOKEN not in caplog.text
    assert TOKEN.lower() not in caplog.text.lower()


def json_url(receiver, more=""):
    return f"json://{TOKEN}:{TOKEN}@127.0.0.1:{receiver.port}/{TOKEN}{more}"


def test_a_message_arrives_with_title_text_level_and_key():
    with Receiver() as receiver:
        AppriseNotifier(None, json_url(receiver)).send(message())
    (got,) = receiver.got
    assert got.headers["Idempotency-Key"] == "5f0c"
    assert got.path == f"/{TOKEN}"
    assert got.json["title"] == "triage: 1 critical"
    assert got.json["message"] == TEXT
    assert got.json["type"] == "failure"


@pytest.mark.parametrize(
    ("level", "status", "kind"),
    [
        ("critical", "critical", "failure"),
        ("warning", "warning", "warning"),
        ("resolved", "ok", "success"),
        ("resolved", "warning", "info"),
        ("drift", "ok", "info"),
        ("note", "ok", "info"),
    ],
)
def test_levels_become_those_of_apprise(level, status, kind):
    with Receiver() as receiver:
        AppriseNotifier(None, json_url(receiver)).send(message(level, status=status))
    assert receiver.got[0].json["type"] == kind


@pytest.mark.parametrize(("code", "error"), [(403, RejectedError), (503, NotSentError)])
def test_a_failure_is_told_without_any_part_of_the_url(code, error, caplog):
    with Receiver(code) as receiver, pytest.raises(error, match=f"error={code}") as caught:
        AppriseNotifier(None, json_url(receiver)).send(message())
    assert type(caught.value) is error
    assert TOKEN not in str(caught.value)
    assert caught.value.__cause__ is None
    assert not [r for r in caplog.records if r.name.startswith(("apprise", "urllib3"))]


def test_too_many_requests_is_no_refusal():
    with Receiver(429) as receiver, pytest.raises(NotSentError, match="error=429") as caught:
        AppriseNotifier(None, json_url(receiver)).send(message())
    assert not isinstance(caught.value, RejectedError)


def test_a_server_that_is_down_is_told_without_its_address():
    with Receiver() as receiver:
        url = json_url(receiver)
    with pytest.raises(NotSentError, match="onnection") as caught:
        AppriseNotifier(None, url).send(message())
    assert "127.0.0.1" not in str(caught.value)


def test_several_messages_follow_each_other_at_once():
    with Receiver() as receiver:
        sender = AppriseNotifier(None, json_url(receiver))
        for n in range(5):
            sender.send(message(key=f"k{n}"))
    assert [got.headers["Idempotency-Key"] for got in receiver.got] == [f"k{n}" for n in range(5)]
    assert receiver.got[-1].at - receiver.got[0].at < 3


def test_slack_shows_names_as_text(monkeypatch):
    # The plugin knows one host; everything else about it is real.
    with Receiver() as receiver:
        monkeypatch.setattr(slack.NotifySlack, "webhook_url", f"{receiver.url}/services")
        AppriseNotifier(None, f"slack://T1JJ3T3L2/A1BRTD4JD/{TOKEN}/#ops").send(message())
    (got,) = receiver.got
    assert got.path == f"/services/T1JJ3T3L2/A1BRTD4JD/{TOKEN}"
    (attachment,) = got.json["attachments"]
    assert attachment["title"] == "triage: 1 critical"
    assert "&lt;script&gt;" in attachment["text"]
    assert "<!channel>" not in attachment["text"], "a branch cannot call everybody"
    assert got.json["channel"] == "#ops"


def test_the_address_of_a_slack_hook_is_understood_as_it_is_copied(monkeypatch):
    with Receiver() as receiver:
        monkeypatch.setattr(slack.NotifySlack, "webhook_url", f"{receiver.url}/services")
        hook = f"https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/{TOKEN}"
        AppriseNotifier(None, hook).send(message())
    assert receiver.got[0].path.endswith(TOKEN)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text(key.read_text() + cert.read_text())
    return both


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_teams_gets_a_card(certificate):
    with Receiver(202, certificate=certificate) as receiver:
        host = f"127.0.0.1:{receiver.port}"
        AppriseNotifier(None, f"workflow://{host}/WF1/{TOKEN}?verify=no").send(message())
    (got,) = receiver.got
    assert got.path.startswith("/workflows/WF1/triggers/manual/paths/invoke?")
    assert TOKEN in got.path
    card = got.json["attachments"][0]["content"]
    assert card["type"] == "AdaptiveCard"
    shown = " ".join(block.get("text", "") for block in card["body"]).replace("\\", "")
    assert "triage: 1 critical" in shown
    assert "overstated by 0.043" in shown


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate):
    with Receiver(certificate=certificate) as receiver:
        sender = AppriseNotifier(None, f"workflow://127.0.0.1:{receiver.port}/WF1/{TOKEN}")
        with pytest.raises(NotSentError, match="onnection"):
            sender.send(message())
    assert receiver.got == []


def test_pagerduty_has_one_incident_per_monitor_that_ends_when_nothing_is_open(monkeypatch):
    with Receiver(202, 202, 202, 202) as receiver:
        lookup = {"us": f"{receiver.url}/v2/enqueue"}
        monkeypatch.setattr(pagerduty, "PAGERDUTY_API_LOOKUP", lookup)
        pager = AppriseNotifier(None, f"pagerduty://{TOKEN}@{TOKEN}", min_level="critical")
        pager.send(message("critical", text="x" * 5000))
        pager.send(message("resolved", status="critical"))
        pager.send(message("warning", status="warning"))
        pager.send(message("resolved", status="ok"))
    events = [got.json for got in receiver.got]
    assert [event["event_action"] for event in events] == ["trigger", "trigger", "resolve"]
    assert {event["dedup_key"] for event in events} == {"huc-monitor/triage"}
    assert events[0]["payload"]["severity"] == "critical"
    assert len(events[0]["payload"]["summary"]) <= 1024


def test_a_key_of_the_users_own_is_left_to_pagerduty(monkeypatch):
    with Receiver(202) as receiver:
        lookup = {"us": f"{receiver.url}/v2/enqueue"}
        monkeypatch.setattr(pagerduty, "PAGERDUTY_API_LOOKUP", lookup)
        AppriseNotifier(None, f"pagerduty://{TOKEN}@{TOKEN}?dedup=mine").send(message())
    assert receiver.got[0].json["dedup_key"] == "mine"


class Mailbox:
    def __init__(self):
        self.got, self.logins = [], []

    async def handle_DATA(self, server, session, envelope):  # noqa: ARG002, N802 - named by aiosmtpd
        self.got.append(envelope)
        return "250 OK"

    def authenticate(self, server, session, envelope, mechanism, data):  # noqa: ARG002
        self.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=data.password == TOKEN.encode(), handled=False)


@pytest.fixture
def mail():
    box = Mailbox()
    options = {"authenticator": box.authenticate, "auth_require_tls": False}
    server = Controller(box, hostname="127.0.0.1", port=free_port(), **options)
    server.start()
    box.port = server.port
    yield box
    server.stop()


def mail_url(box, password=TOKEN):
    sender, to = quote("huc@example.org", safe=""), quote("ops@example.org", safe="")
    return (
        f"mailto://user:{password}@127.0.0.1:{box.port}?mode=insecure&from={sender}&to={to}"
        "&smtp=127.0.0.1"
    )


def test_mail_arrives_at_a_real_server_as_text(mail):
    AppriseNotifier(None, mail_url(mail)).send(message())
    (envelope,) = mail.got
    assert envelope.rcpt_tos == ["ops@example.org"]
    assert mail.logins == [("user", TOKEN)]
    parsed = email.message_from_bytes(envelope.content, policy=email.policy.default)
    assert parsed["Subject"] == "triage: 1 critical"
    assert parsed["Idempotency-Key"] == "5f0c"
    assert parsed.get_content_type() == "text/plain"
    assert parsed.get_content().replace("\r\n", "\n").strip() == TEXT


def test_names_are_escaped_in_mail_that_is_a_page(mail):
    AppriseNotifier(None, f"{mail_url(mail)}&format=html").send(message())
    parsed = email.message_from_bytes(mail.got[0].content, policy=email.policy.default)
    page = parsed.get_body(("html",)).get_content()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_a_wrong_password_is_told_without_it(mail):
    with pytest.raises(NotSentError) as caught:
        AppriseNotifier(None, mail_url(mail, password=f"{TOKEN}x")).send(message())
    assert TOKEN not in str(caught.value)
    assert mail.got == []


@pytest.mark.parametrize("url", [f"nosuch://{TOKEN}", TOKEN, f"slack://{TOKEN}", "json://"])
def test_an_url_that_is_none_is_refused_and_not_shown(url):
    with pytest.raises(InvalidInputError, match="`url` must be an apprise URL") as error:
        AppriseNotifier(None, url)
    assert TOKEN not in str(error.value)


def test_an_error_of_a_plugin_is_told_by_its_kind(monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError(TOKEN)

    with Receiver() as receiver:
        sender = AppriseNotifier(None, json_url(receiver))
        monkeypatch.setattr(apprise.Apprise, "notify", fail)
        with pytest.raises(NotSentError, match=r"^ZeroDivisionError$"):
            sender.send(message())


def test_it_is_found_by_its_name_and_shows_nothing_of_itself():
    options = {"url": f"json://127.0.0.1/{TOKEN}", "min_level": "warning"}
    made = make_plugin("huc_monitor.notifiers", "apprise", Notifier, None, options, role="channel")
    assert repr(made) == "AppriseNotifier(min_level='warning')"


def test_without_apprise_the_command_that_installs_it_is_shown():
    code = (
        "import sys; sys.modules['apprise'] = None\n"
        "from huc_notify import AppriseNotifier, WebhookNotifier\n"
        "WebhookNotifier(None, 'https://host/', 'a secret of some length')\n"
        "AppriseNotifier(None, 'json://host')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'huc-monitor[notify]'" in done.stderr


def test_the_library_does_not_load_apprise():
    code = "import sys, huc_monitor, huc_notify; print('apprise' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
