"""Names of a package that are loaded on first use, and need a host that may not be installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lazy_loader

from huc_monitor.errors import EXTRAS, MissingExtraError


def attach_stub(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Do as `lazy_loader.attach_stub`; a missing host is told with the command to install it."""
    load, names, public = lazy_loader.attach_stub(package, file)

    def load_name(name: str) -> Any:
        try:
            return load(name)
        except ModuleNotFoundError as error:
            host = (error.name or "").split(".")[0]
            if host not in EXTRAS:
                raise
            raise MissingExtraError.of(host) from error

    return load_name, names, public
