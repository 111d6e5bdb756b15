"""What the site takes from outside docs/: the README, CONTRIBUTING, pictures, the public names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Where a link out of docs/ leads on the site; other files of the repository are named, not linked.
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
TITLES = {
    "audit": "Audit, compare, discover",
    "recalibration": "Recalibrate",
    "monitor": "Monitor",
    "planning": "Plan labels",
    "utilities": "Utilities",
    "tree": "Trees, subgroups, errors",
}
SHELVES = {
    "subgroups": "tree",
    "errors": "tree",
    "config": "monitor",
    "detection": "monitor",
    "sources": "monitor",
    "reporting": "monitor",
}


def public_names() -> dict[str, list[str]]:
    """Read the package's names from its stub, by page."""
    found: dict[str, list[str]] = {name: [] for name in TITLES}
    stub = (ROOT / "huc_monitor" / "__init__.pyi").read_text("utf-8")
    for module, name in re.findall(r"^from \.([\w.]+) import (\w+) as \w+$", stub, re.MULTILINE):
        folder = module.split(".")[0]
        found[SHELVES.get(folder, folder)].append(f"huc_monitor.{module}.{name}")
    return found


def on_config(config: Any) -> Any:
    """Fill in the pages of the API, and leave out pages that this checkout does not have."""
    known = {path.name for path in (ROOT / "docs").rglob("*.md")} | set(PAGES.values())
    api = [f"api/{name}.md" for name in TITLES]

    def kept(items: Any) -> Any:
        if items == "api":
            return api
        if isinstance(items, str):
            return items
        if isinstance(items, dict):
            return {key: kept(value) for key, value in items.items()}
        return [kept(i) for i in items if not isinstance(i, str) or i.split("/")[-1] in known]

    config.nav = kept(config.nav)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made, and the pictures they show."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text("utf-8")))
    for picture in (ROOT / "examples" / "images").glob("*.svg"):
        target = f"examples/images/{picture.name}"
        files.append(File.generated(config, target, abs_src_path=str(picture)))
    for name, objects in public_names().items():
        text = "\n\n".join([f"# {TITLES[name]}", *(f"::: {path}" for path in objects)])
        files.append(File.generated(config, f"api/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links out of docs/ into links on the site, or into the names of files."""
    top = page.file.src_uri in PAGES.values()

    def turned(match: re.Match[str]) -> str:
        text, link = match["text"], match["link"]
        target = link.removeprefix("../") if not top else link
        if top and target.startswith("docs/"):
            return f"[{text}]({target.removeprefix('docs/')})"
        if target.split("#")[0] in PAGES:
            return f"[{text}]({PAGES[target.split('#')[0]]})"
        if link.startswith(("https:", "#", "mailto:")) or (not top and target == link):
            return match[0]
        if target.endswith(".svg"):
            return match[0]
        return text if text.strip("`") == target else f"{text} (`{target}`)"

    return re.sub(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<link>[^)]+)\)", turned, markdown)
