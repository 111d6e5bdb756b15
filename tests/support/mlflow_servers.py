"""Real servers for tests: PostgreSQL, MLflow over HTTP, and a proxy that loses answers."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

START_SECONDS = 180


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def postgres_server():
    """A PostgreSQL server of our own, reached by a socket file; yields its URL."""
    found = [shutil.which("initdb"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    programs = Path(next(path for path in found if path)).resolve().parent
    folder = Path(tempfile.mkdtemp(prefix="huc-pg-", dir="/tmp"))
    who = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def run(program, *arguments):
        command = [str(programs / program), "-D", str(folder / "data"), *arguments]
        subprocess.run(
            command, stdout=subprocess.DEVNULL, cwd=folder, timeout=120, check=True, **who
        )

    try:
        run("initdb", "-U", "tester", "-A", "trust", "--no-sync", "-E", "UTF8")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run("pg_ctl", "-l", str(folder / "log"), "-w", "-t", "60", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://tester@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def process(command, url, *, folder, env=None):
    """Start a server, wait until it answers, and stop all of it at the end."""
    environment = {**os.environ, **(env or {}), "DO_NOT_TRACK": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    with (folder / "server.log").open("w") as log:
        started = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(url):
                assert started.poll() is None, (folder / "server.log").read_text()[-2000:]
                assert time.monotonic() < deadline, (folder / "server.log").read_text()[-2000:]
                time.sleep(0.1)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, 15)
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, 9)


def _answers(url) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own server
            return answer.status == 200
    except OSError:
        return False


@contextlib.contextmanager
def mlflow_server(store, folder, *, password=None):
    """Yield the address of a tracking server with the given store behind it.

    With a password, only the user "admin" gets in, by MLflow's own basic authentication.
    """
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--backend-store-uri", store, "--workers", "1"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    address = f"http://127.0.0.1:{port}"
    # Seven more processes that load MLflow, for work on traces that no test asks for.
    env = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    if password is not None:
        command += ["--app-name", "basic-auth"]
        settings = {
            "default_permission": "READ",
            "database_uri": f"sqlite:///{folder}/users.db",
            "admin_username": "admin",
            "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
            "auth_cache_ttl_seconds": "300",  # a hash for every request would take most of the time
        }
        lines = [f"{key} = {value}" for key, value in settings.items()]
        (folder / "auth.ini").write_text("\n".join(["[mlflow]", *lines]))
        env |= {
            "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
            "MLFLOW_AUTH_ADMIN_PASSWORD": password,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": "only for tests",
        }
    with process(command, f"{address}/health", folder=folder, env=env):
        yield address


class LosingProxy:
    """Forwards requests, and loses the first answer to each kind of POST."""

    def __init__(self, address) -> None:
        host, port = address.removeprefix("http://").split(":")
        self.lost: dict[str, int] = {}
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                upstream = http.client.HTTPConnection(host, int(port), timeout=60)
                headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
                upstream.request(self.command, self.path, body, headers)
                answer = upstream.getresponse()
                content = answer.read()
                kind = self.path.split("?")[0]
                if self.command == "POST" and kind not in proxy.lost:
                    proxy.lost[kind] = answer.status
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(answer.status)
                for key, value in answer.getheaders():
                    if key.lower() not in {"transfer-encoding", "connection", "content-length"}:
                        self.send_header(key, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _forward  # noqa: N815

            def log_message(self, *_) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
