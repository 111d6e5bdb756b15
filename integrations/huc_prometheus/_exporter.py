"""The exporter: the same series on a port, in files for node-exporter, or at a Pushgateway."""

from __future__ import annotations

import os
import socket
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    generate_latest,
    push_to_gateway,
    pushadd_to_gateway,
    start_http_server,
)
from prometheus_client.exposition import basic_auth_handler, default_handler

from huc_monitor._common.private_files import write_atomically
from huc_monitor._common.safe_text import file_name
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.ports.exporter import Standing
from huc_prometheus._series import check_families, check_limit, window_families

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

JOB = "huc_monitor"
_SECONDS = 10.0
_FOR_NODE_EXPORTER = 0o644  # it runs as another user


class PrometheusExporter:
    """Gauges of the newest window, its worst candidates, and open alerts.

    Parameters
    ----------
    info : MonitorInfo
    listen : str or int, optional
        Address and port, or a port of 127.0.0.1, to be scraped at. Only `huc-monitor watch`
        listens: `check` ends too soon.
    textfile : path, optional
        Folder that node-exporter's textfile collector reads. Two files per monitor.
    pushgateway : str, optional
        Address of a Pushgateway.
    username, password : str, optional
        For the Pushgateway. Put the password under `secrets`.
    max_series : int, default 1_000
        No more series than this; candidates beyond it are summed up in ``huc_rest_*``.
    """

    def __init__(
        self,
        info: MonitorInfo,
        listen: str | int | None = None,
        textfile: str | os.PathLike[str] | None = None,
        pushgateway: str | None = None,
        username: str | None = None,
        password: str | None = None,
        max_series: int = 1_000,
    ) -> None:
        if listen is None and textfile is None and pushgateway is None:
            msg = (
                "`settings` must have at least one of listen, textfile, pushgateway; got none. "
                "For huc-monitor watch: {listen: '127.0.0.1:9464'}."
            )
            raise InvalidInputError(msg)
        self._info = info
        self._address = None if listen is None else _address(listen)
        self._folder = None if textfile is None else Path(textfile)
        self._gateway = None if pushgateway is None else _url(pushgateway)
        self._handler = _handler(username, password)
        self._max_series = check_limit(max_series)
        self._check: list[GaugeMetricFamily] = []
        self._window: list[GaugeMetricFamily] = []
        self._serving = False
        self._server: tuple[WSGIServer, Thread] | None = None

    # What a monitor calls.

    def ping(self) -> str:
        """Look at what the options name, without changing anything; say what it is."""
        found = []
        if self._address is not None:
            found.append("listens at {}:{} in watch".format(*self._address))
        if self._folder is not None:
            if not (self._folder.is_dir() and os.access(self._folder, os.W_OK)):
                msg = f"`textfile` must be a folder that can be written; got {self._folder}."
                raise InvalidInputError(msg)
            found.append(f"writes to {self._folder}")
        if self._gateway is not None:
            ready = f"{self._gateway}/-/ready"
            with urllib.request.urlopen(ready, timeout=5):  # noqa: S310 - the user's choice
                found.append(f"pushes to {self._gateway}")
        return ", ".join(found)

    def export(self, standing: Standing) -> None:
        """Renew the series, and write them wherever they are read."""
        self._check = check_families(self._info, standing)
        records: Sequence[Any] = standing.records
        if not any(record.status != "pending" for record in records) and self._is_blank():
            records = standing.history()
        made = window_families(self._info, records, standing, max_series=self._max_series)
        if made is not None:
            self._window = made
        errors = [
            error
            for output in (self._listen, self._write, self._push)
            if (error := _attempt(output, made is not None)) is not None
        ]
        if errors:
            raise errors[0]

    def serve(self) -> None:
        """Listen, from now on; after a failure, every export tries again."""
        self._serving = True
        self._listen()

    def close(self) -> None:
        """Stop listening."""
        self._serving = False
        if self._server is not None:
            server, thread = self._server
            self._server = None
            server.shutdown()
            server.server_close()
            thread.join(_SECONDS)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Hand the series to the client library."""
        yield from self._check
        yield from self._window

    # Where series go.

    def _is_blank(self) -> bool:
        """Whether the last window has to be shown again: nothing here knows of it."""
        if self._folder is not None and not self._file("window").exists():
            return True
        return self._serving and not self._window

    def _listen(self, _: bool = True) -> None:  # noqa: FBT001, FBT002 - as the other outputs
        if self._address is None or not self._serving or self._server is not None:
            return
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        host, port = self._address
        self._server = start_http_server(port, addr=host, registry=registry)

    def _write(self, is_new: bool) -> None:  # noqa: FBT001 - as the other outputs
        if self._folder is None:
            return
        if not self._folder.is_dir():
            msg = f"`textfile` must be an existing folder; got {str(self._folder)!r}. Make it."
            raise InvalidInputError(msg)
        parts = {"window": self._window} if is_new else {}
        for part, families in {**parts, "check": self._check}.items():
            text = generate_latest(_registry(families))
            write_atomically(self._file(part), text, mode=_FOR_NODE_EXPORTER)

    def _file(self, part: str) -> Path:
        return Path(str(self._folder)) / f"huc_{file_name(self._info.name)}_{part}.prom"

    def _push(self, is_new: bool) -> None:  # noqa: FBT001 - as the other outputs
        if self._gateway is None:
            return
        # Putting replaces all that was pushed before; adding, only metrics of the same names.
        push = push_to_gateway if is_new else pushadd_to_gateway
        families = [*self._check, *self._window] if is_new else self._check
        push(
            self._gateway,
            JOB,
            _registry(families),
            grouping_key={"monitor": self._info.name},
            timeout=_SECONDS,
            handler=self._handler,
        )


class _Fixed:
    """A collector of given families."""

    def __init__(self, families: Sequence[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._families


def _registry(families: Sequence[GaugeMetricFamily]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed(families))
    return registry


def _attempt(output: Callable[[bool], None], is_new: bool) -> Exception | None:  # noqa: FBT001
    """One place that fails must not keep the others from being written."""
    try:
        output(is_new)
    except Exception as error:  # noqa: BLE001 - reported after the others
        return error
    return None


def _address(listen: str | int) -> tuple[str, int]:
    """Read an address to listen at.

    Examples
    --------
    >>> _address(9464), _address("0.0.0.0:9464"), _address("[::1]:9464")
    (('127.0.0.1', 9464), ('0.0.0.0', 9464), ('::1', 9464))
    """
    host, _, port = str(listen).rpartition(":")
    name = host.strip("[]") or "127.0.0.1"
    if not port.isdigit() or not 0 < int(port) < 65_536:
        msg = f"`listen` must be an address and a port, such as 127.0.0.1:9464; got {listen!r}."
        raise InvalidInputError(msg)
    try:
        socket.getaddrinfo(name, int(port))
    except OSError:
        msg = f"`listen` must have a known address; got {name!r}. Use 127.0.0.1 or 0.0.0.0."
        raise InvalidInputError(msg) from None
    return name, int(port)


def _handler(username: str | None, password: str | None) -> Any:
    if username is None and password is None:
        return default_handler

    def handler(url: str, method: str, timeout: float | None, headers: Any, data: bytes) -> Any:
        return basic_auth_handler(url, method, timeout, headers, data, username, password)

    return handler


def _url(gateway: str) -> str:
    """Add what an address may leave out.

    Examples
    --------
    >>> _url("gateway:9091"), _url("https://push.example/")
    ('http://gateway:9091', 'https://push.example')
    """
    if "@" in gateway:
        # An address is written to logs and shown by doctor.
        msg = "`pushgateway` must not hold a password. Use `username`, and `password` as a secret."
        raise InvalidInputError(msg)
    return (gateway if "://" in gateway else f"http://{gateway}").rstrip("/")
