"""Addresses of pages: on a server, and in a site that is opened from a disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses on a server.

    `acting`: people who log in may act. `seal`: what the forms of one who did carry.
    """

    acting: bool = False
    seal: str = ""
    on_disk: ClassVar[bool] = False

    def home(self) -> str:
        """Of the fleet."""
        return "/"

    def alerts(self) -> str:
        """Of all open alerts."""
        return "/alerts"

    def act(self, slug: str, verb: str) -> str:
        """Where a form is sent to."""
        return f"/m/{slug}/{verb}"

    def model(self, slug: str, window: int | None = None) -> str | None:
        """Of a model, as it stood after a window; the newest when left out."""
        return f"/m/{slug}" if window is None else f"/m/{slug}?window={window}"

    def branch(self, slug: str, index: int, window: int | None = None) -> str | None:
        """Of a branch, by its place in the tree."""
        address = f"/m/{slug}/branch/{index}"
        return address if window is None else f"{address}?window={window}"

    def versions(self, slug: str) -> str | None:
        """Of the model's versions."""
        return f"/m/{slug}/versions"


@dataclass(frozen=True, slots=True)
class DiskLinks(Links):
    """Addresses of files, seen from a page that lies `depth` folders below the first.

    `windows` and `branches` are those that have a page, by slug; other links are left out.
    """

    depth: int = 0
    windows: Mapping[str, Collection[int]] = field(default_factory=dict)
    branches: Mapping[str, Collection[int]] = field(default_factory=dict)
    on_disk: ClassVar[bool] = True

    def home(self) -> str:
        """Of the fleet."""
        return self._to("index.html")

    def alerts(self) -> str:
        """Of all open alerts."""
        return self._to("alerts.html")

    def model(self, slug: str, window: int | None = None) -> str | None:
        """Of a model, as it stood after a window; the newest when left out."""
        if window is None:
            return self._to(f"{slug}/index.html")
        has_page = window in self.windows.get(slug, ())
        return self._to(f"{slug}/window-{window}.html") if has_page else None

    def branch(self, slug: str, index: int, window: int | None = None) -> str | None:
        """Of a branch in the newest window."""
        has_page = window is None and index in self.branches.get(slug, ())
        return self._to(f"{slug}/branch-{index}.html") if has_page else None

    def versions(self, slug: str) -> str | None:
        """Of the model's versions."""
        return self._to(f"{slug}/versions.html")

    def _to(self, path: str) -> str:
        return "../" * self.depth + path
