"""A server or a database that does not answer is given up soon, in words that say which it is."""

from __future__ import annotations

import contextlib
import http.server
import os
import shutil
import socket
import threading
from types import SimpleNamespace

import pytest
from huc_mlflow._client import Client, TrackingError
from support.mlflow_servers import free_port, mlflow_server, postgres_server

from huc_monitor.errors import InvalidInputError

SECONDS = 2


class Clock:
    """A clock that sleeping and waiting move on: nothing here depends on a real one."""

    def __init__(self, monkeypatch) -> None:
        self.now, self.pauses, self.limits = 0.0, [], []
        # In this module alone: threads that others left would move this clock as well.
        mine = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr("huc_mlflow._client.time", mine)

    def sleep(self, seconds) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def answering():
    """Start a server that gives one answer to everything."""
    started = []

    def start(status, body=b""):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


@pytest.fixture
def silent():
    """Address of a server that accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def ask(address, deadline=SECONDS):
    return Client(address, deadline=deadline).search_experiments(max_results=1)


def test_a_server_that_never_answers_is_told_from_one_that_is_not_there(silent):
    with pytest.raises(TrackingError, match="accepts connections but does not answer in time"):
        ask(f"http://{silent}")


def test_a_closed_port_is_no_connection(monkeypatch):
    Clock(monkeypatch)
    with pytest.raises(TrackingError, match="does not answer: connection refused"):
        ask(f"http://127.0.0.1:{free_port()}")


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_an_answer_that_is_an_error_says_that_the_server_runs(answering, status, monkeypatch):
    Clock(monkeypatch)
    with pytest.raises(TrackingError, match=rf"runs but answers with an error \(HTTP {status}\)"):
        ask(answering(status))


def test_a_dead_database_behind_a_live_server_is_an_error_of_the_server(answering, monkeypatch):
    Clock(monkeypatch)
    body = b'{"error_code": "TEMPORARILY_UNAVAILABLE", "message": "(psycopg.OperationalError) ..."}'
    with pytest.raises(TrackingError, match=r"runs but answers with an error|database at .* does"):
        ask(answering(503, body))


def test_a_database_that_is_down_is_given_up_and_keeps_its_password():
    address = f"postgresql+psycopg://anna:s3cret@127.0.0.1:{free_port()}/x"
    with pytest.raises(TrackingError, match=r"The database at .* does not answer") as caught:
        ask(address)
    assert "s3cret" not in str(caught.value)


def test_a_database_that_never_answers_is_given_up(silent):
    with pytest.raises(TrackingError, match=r"The database at .* does not answer"):
        ask(f"postgresql+psycopg://anna:s3cret@{silent}/x")


@pytest.mark.parametrize("deadline", [5, 30, 60])
def test_calls_are_repeated_until_the_deadline_and_not_longer(monkeypatch, deadline):
    clock = Clock(monkeypatch)
    with pytest.raises(TrackingError, match="connection refused"):
        ask(f"http://127.0.0.1:{free_port()}", deadline)
    assert len(clock.pauses) >= 3
    assert deadline - 5 <= clock.now <= deadline


def test_what_cannot_pass_is_not_repeated(answering, monkeypatch):
    clock = Clock(monkeypatch)
    body = b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "No run"}'
    with pytest.raises(TrackingError, match="No run"):
        ask(answering(404, body))
    assert clock.pauses == []


def test_mlflow_settings_are_as_before_afterwards(silent, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with pytest.raises(TrackingError, match="does not answer"):
        ask(f"http://{silent}", 1.5)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "1"
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ


@pytest.mark.parametrize("deadline", [0, -1, "soon", True])
def test_an_odd_deadline_is_refused(deadline):
    with pytest.raises(InvalidInputError, match="`deadline` must be a number of seconds above 0"):
        Client("sqlite://", deadline=deadline)


@pytest.mark.slow
def test_a_real_database_dies_behind_a_real_server(tmp_path):
    if shutil.which("psql") is None:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    with contextlib.ExitStack() as stack:
        database = contextlib.ExitStack()
        url = database.enter_context(postgres_server())
        address = stack.enter_context(mlflow_server(url, tmp_path))
        with database:
            assert ask(address, 60)
        with pytest.raises(
            TrackingError, match=r"runs but answers with an error|does not answer in"
        ):
            ask(address, 5)
