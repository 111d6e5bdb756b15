"""Small pieces of HTML; every name that enters one is escaped here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from huc_monitor.reporting import _words
from huc_monitor.reporting._drawing import escape
from huc_monitor.reporting._looks import shade

if TYPE_CHECKING:
    from collections.abc import Sequence

    from huc_monitor.reporting._drawing import Picture
    from huc_monitor.reporting._model import Finding

_BROAD = 800
Column = tuple[str, str]


def section(name: str, title: str, lead: str, content: str) -> str:
    """Return a part of the page with a heading and a sentence."""
    return (
        f'<section aria-labelledby="h-{name}"><h2 id="h-{name}">{escape(title)}</h2>'
        f'<p class="lead">{escape(lead)}</p>{content}</section>'
    )


def scroll(content: str, label: str) -> str:
    """Let wide content scroll by itself, by mouse and keyboard."""
    named = f'role="region" aria-label="{escape(label)}" tabindex="0"'
    return f'<div class="scroll" {named}>{content}</div>'


def drawn(picture: Picture, *, role: str = "img") -> str:
    """Return a picture, with room to scroll on narrow screens."""
    broad = " broad" if picture.width > _BROAD else ""
    # What holds the tree needs no stop of its own: the Tab key enters the tree.
    named = f' role="region" aria-label="{escape(picture.title)}" tabindex="0"'
    holder = f'<div class="scroll{broad}"{named if role == "img" else ""}>'
    return f"{holder}{picture.inline(role=role)}</div>"


def details(summary: str, content: str) -> str:
    """Hide content behind a line that opens it."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; cells are markup that was escaped where it was made."""
    head = "".join(f'<th scope="col" class="{kind}">{escape(n)}</th>' for n, kind in columns)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(
            f'<td class="{kind}">{cell}</td>'
            for cell, (_, kind) in zip(row[1:], columns[1:], strict=True)
        )
        + "</tr>"
        for row in rows
    )
    table = (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )
    return scroll(table, caption)


def bdi(name: object) -> str:
    """Return a name that keeps its writing direction to itself."""
    return f"<bdi>{escape(name)}</bdi>"


def link(name: str, index: dict[str, int]) -> str:
    """Return a name that opens the story of its branch."""
    if name not in index:
        return bdi(name)
    return f'<button type="button" class="link" data-node="{index[name]}">{bdi(name)}</button>'


def chip(found: Finding) -> str:
    """Return a moment on its shade, with the sign of its status."""
    status = "" if found.status == "within" else f" {found.status}"
    tone = shade(found.moment, found.scale)
    text = f"{_words.glyph(found)}{_words.signed(found.moment)}"
    return f'<span class="chip s-{tone}{status}">{escape(text)}</span>'
