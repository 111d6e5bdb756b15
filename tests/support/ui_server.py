"""The pages of `huc-monitor ui`, served from a thread as the command serves them."""

from __future__ import annotations

import http.client
import shutil
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import uvicorn

from huc_monitor.cli.ui import _open
from huc_monitor.config.opening import open_monitor
from huc_monitor.reporting.ui import Fleet
from huc_monitor.reporting.ui._server import make_app
from support.production_log import after, make_log, write_project

CHANGES = "change: {alerts: change}\nreference: {start: 2024-03-01, end: 2024-03-04}"


class Answer(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]


class Site:
    """A server to ask."""

    def __init__(self, port: int) -> None:
        self.port = port

    def address(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def ask(self, path, *, method="GET", form=None, headers=None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = None if form is None else urlencode(form)
        given = {"Content-Type": "application/x-www-form-urlencoded"} if form is not None else {}
        connection.request(method, path, body, {**given, **(headers or {})})
        answer = connection.getresponse()
        text = answer.read().decode()
        found = {key.lower(): value for key, value in answer.getheaders()}
        connection.close()
        return Answer(answer.status, text, found)


@contextmanager
def serve(paths, access=None):
    """Serve the monitors of some configuration files."""
    fleet = Fleet([Path(path) for path in paths], _open)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(make_app(fleet, access), log_level="warning", server_header=False)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Site(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(20)
        fleet.close()
        listener.close()


def watch_faulty(folder: Path, n_days: int = 8, *, per_day: int = 400, more: str = CHANGES) -> Path:
    """Check a log whose branch `attack` goes wrong for udp in the second half."""
    log, labels = make_log(n_days, per_day, broken_from=n_days // 2 + 1, seed=3)
    config = write_project(folder, log, labels, draws=60, more=more)
    open_monitor(config).check(now=after(n_days + 0.6).isoformat())
    return config


def copies(config: Path, folder: Path, n: int) -> list[Path]:
    """Copy a checked monitor, without its log, under other names of folders."""
    made = []
    for k in range(n):
        target = folder / f"model-{k:02d}"
        leave = shutil.ignore_patterns("log", "labels.parquet", "rows")
        shutil.copytree(config.parent, target, ignore=leave)
        made.append(target / config.name)
    return made
