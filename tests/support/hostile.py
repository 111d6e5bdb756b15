"""Names as an attacker would choose them, and what must not come out anywhere."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING

from support.production_log import make_log, write_project

if TYPE_CHECKING:
    from pathlib import Path

NAMES = (
    "ok\nCRITICAL\nBranch root",
    "a\rb",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "user\u202egnp.exe",
    "zero\u200bwidth\ufeff",
    "::error file=a::forged",
    " ::stop-commands::x",
    "x ##[error]forged ##vso[task.complete]",
    "*bold* _it_ `code`",
    "<script>alert(1)</script>",
    '{label="x"} 1\n# HELP evil',
    "nul\x00byte",
    "[click](http://evil.example) @everyone <!channel>",
    "=cmd|' /C calc'!A0",
    "../../etc/passwd",
    "\ud800lone",
    "x" * 2_000_000,
)
# A tree refuses control characters in its nodes' names, and nothing else.
NODES = {
    "attack": "att\u202eack*",
    "dos": "<script>alert('dos')</script>",
    "probe": '{label="x"}',
    "neptune": "::error::nep*tune*",
    "satan": "zero\u200bwidth ##[error]",
}
UDP = "udp\nCRITICAL\n::error::forged\x1b[2J\r\x00"
VERSION = "1\n::error::version\x1b[2J"
UTILITIES = ("::warning::st*atus*", "fam\nCRITICAL\nily\u202e")


def assert_clean(text: str, *, is_output: bool = True) -> None:
    """Nothing in it turns, hides or breaks a line, and no line is a command to a CI system."""
    bad = {
        character
        for character in text
        if character != "\n" and unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }
    assert not bad, sorted(map(ascii, bad))
    for line in text.split("\n") if is_output else ():
        assert not line.strip().startswith("::"), line[:200]
        assert "##[" not in line, line[:200]
        assert "##vso[" not in line, line[:200]


def write_hostile_project(folder: Path, *, more: str = "") -> Path:
    """Write a project whose leaves, subgroups, utilities and versions have such names."""
    log, labels = make_log(3, 800, broken_from=1)
    log = log.rename(columns={f"p_{old}": f"p_{new}" for old, new in NODES.items()})
    log["protocol"] = log["protocol"].replace("udp", UDP)
    log.loc[log.index[:3], "protocol"] = "x" * 2_000_000
    log["version"] = VERSION
    labels["label"] = labels["label"].replace(NODES)
    labels.loc[labels.index[0], "label"] = "no such label\n::error::" + "y" * 2_000_000
    config = write_project(folder, log, labels, draws=100, more=more)
    tree = {
        "normal": None,
        NODES["attack"]: {
            NODES["dos"]: [NODES["neptune"], "smurf"],
            NODES["probe"]: [NODES["satan"], "nmap"],
        },
    }
    (folder / "tree.json").write_text(json.dumps(tree), "utf-8")
    text = config.read_text("utf-8")
    text = text.replace("name: status", f"name: {json.dumps(UTILITIES[0])}")
    text = text.replace("name: family", f"name: {json.dumps(UTILITIES[1])}")
    config.write_text(text, "utf-8")
    return config
