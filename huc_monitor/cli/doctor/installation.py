"""Checks the installation: Python, compiled code, optional packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from huc_monitor._common.private_files import is_writable
from huc_monitor.cli.doctor.findings import Diagnosis, in_one_line
from huc_monitor.errors import EXTRAS

OLDEST_PYTHON = (3, 11)


def look_at_installation() -> Iterator[Diagnosis]:
    """Say what is there, and what is missing."""
    yield _python()
    yield _numba()
    yield _cache()
    for package, extra in EXTRAS.items():
        yield _extra(package, extra)


def _python() -> Diagnosis:
    have = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return Diagnosis("python", "ok", have)
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return Diagnosis("python", "wrong", have, f"use Python {wanted} or newer")


def _numba() -> Diagnosis:
    try:
        import numba
    except Exception as error:  # noqa: BLE001 - a broken build fails in its own ways
        return Diagnosis("numba", "wrong", in_one_line(error), "pip install --upgrade numba")
    return Diagnosis("numba", "ok", str(numba.__version__))


def _cache() -> Diagnosis:
    """Compiled kernels are kept beside the package, or where NUMBA_CACHE_DIR says."""
    import huc_monitor

    given = os.environ.get("NUMBA_CACHE_DIR")
    beside = Path(str(huc_monitor.__file__)).parent / "_kernels"
    places = [Path(given)] if given else [beside, Path.home() / ".cache"]
    for place in places:
        if is_writable(place):
            return Diagnosis("cache", "ok", f"compiled code is kept in {place}")
    return Diagnosis(
        "cache",
        "note",
        f"cannot write to {places[-1]}: every start compiles anew and takes a minute",
        "export NUMBA_CACHE_DIR=/a/folder/you/can/write",
    )


def _extra(package: str, extra: str) -> Diagnosis:
    try:
        have = version(package)
    except PackageNotFoundError:
        fix = f"if you need it: pip install 'huc-monitor[{extra}]'"
        return Diagnosis(f"extra {extra}", "note", f"{package} is not installed", fix)
    return Diagnosis(f"extra {extra}", "ok", f"{package} {have}")
