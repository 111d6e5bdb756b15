"""A real HTTP receiver: it writes down every request, and answers as it is told.

In a test, ``with Receiver() as receiver``. In a process of its own, ``receiver.py PORT FOLDER``:
requests are lines of ``requests.jsonl``, and the file ``orders`` may hold ``503`` (answer that),
``kill-before PID`` or ``kill-after PID`` (SIGKILL the sender around the answer, once).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Got:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        owner = self.server.owner
        length = int(self.headers.get("Content-Length", 0))
        got = Got(self.command, self.path, dict(self.headers.items()), self.rfile.read(length))
        owner.got.append(got)
        owner.react(self, got)

    def do_GET(self):
        self.do_POST()

    def answer(self, code, headers=(), body=b"ok"):
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Say nothing of senders that hang up: it is what tests make them do."""


class Receiver:
    """Listens on a loopback port; `answers` are used up one by one, then it is 200.

    An answer is a status, ``(status, headers)``, ``"hang"``, ``"drop"`` or ``"drip"``.
    """

    def __init__(self, *answers, port=0, certificate=None):
        self.answers, self.got = list(answers), []
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner = self
        self.scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.scheme = "https"
        self.port = self._server.server_address[1]
        self._over = threading.Event()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def __enter__(self):
        serve = {"target": self._server.serve_forever, "args": (0.02,), "daemon": True}
        self._thread = threading.Thread(**serve)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()

    def react(self, handler, got):  # noqa: ARG002
        answer = self.answers.pop(0) if self.answers else 200
        if answer == "hang":
            self._over.wait(20)
        elif answer == "drip":
            with contextlib.suppress(OSError):
                for letter in b"HTTP/1.1 200 OK\r\nX: " + b"y" * 400:
                    handler.wfile.write(bytes([letter]))
                    if self._over.wait(0.05):
                        break
        elif answer != "drop":
            code, headers = answer if isinstance(answer, tuple) else (answer, ())
            handler.answer(code, headers)
        handler.close_connection = True


class RecordingReceiver(Receiver):
    """Writes requests to a file and takes orders from another; survives its own restarts."""

    def __init__(self, port, folder):
        super().__init__(port=port)
        self.log, self.orders = folder / "requests.jsonl", folder / "orders"
        self._lock = threading.Lock()

    def react(self, handler, got):
        with self._lock:
            order = self.orders.read_text("utf-8").split() if self.orders.exists() else []
            outcome = order[0] if order else "200"
            line = {"headers": got.headers, "body": got.body.decode(), "outcome": outcome}
            with self.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            if outcome.startswith("kill"):
                self.orders.unlink()
        if outcome == "kill-before":
            self.kill(int(order[1]))
        handler.answer(503 if outcome == "503" else 200)
        if outcome == "kill-after":
            handler.wfile.flush()
            self.kill(int(order[1]))

    @staticmethod
    def kill(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    with RecordingReceiver(int(sys.argv[1]), Path(sys.argv[2])):
        print("ready", flush=True)
        sys.stdin.read()
