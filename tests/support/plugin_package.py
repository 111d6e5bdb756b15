"""A package with plugins, installed for one test: files on `sys.path` with entry points."""

from __future__ import annotations

import sys
from textwrap import dedent


def install(monkeypatch, folder, code, **groups):
    """Install a module with `code`; each group maps names of plugins to names in the module."""
    (folder / "aviary.py").write_text(dedent(code), "utf-8")
    lines = []
    for group, plugins in groups.items():
        lines.append(f"[huc_monitor.{group}]")
        lines += [f"{name} = aviary:{attribute}" for name, attribute in plugins.items()]
    info = folder / "aviary-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: aviary\nVersion: 1.2\n", "utf-8")
    (info / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "aviary", raising=False)
