"""The pages that users read: their blocks and commands, as they stand there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def read_page(name: str) -> str:
    """Return the text of README.md, or of a page in docs."""
    path = ROOT / name if name == "README.md" else ROOT / "docs" / name
    return path.read_text("utf-8")


def load_script(name: str) -> ModuleType:
    """Return a script that writes a page as a module."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / name)
    assert spec is not None, name
    assert spec.loader is not None, name
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def blocks(name: str, language: str) -> list[str]:
    """Return a page's blocks in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", read_page(name), re.DOTALL | re.MULTILINE)


def commands(name: str, section: str) -> list[str]:
    """Return the lines of the first console block below a heading."""
    text = read_page(name).split(f"{section}\n", 1)[1]
    block = re.search(r"```console\n(.*?)```", text, re.DOTALL)
    assert block is not None, f"{name} has no commands below {section}"
    return block.group(1).splitlines()
