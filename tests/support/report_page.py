"""A report as a browser reads it."""

from __future__ import annotations

import json
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br", "wbr"}


class Page(HTMLParser):
    """Reads a page as a browser would, strictly: every element must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in {"script", "style"}:
            (self.scripts if self.open[-1] == "script" else self.styles).append(data)
        elif self.tags and self.tags[-1][0] == "wbr" and self.text:
            self.text[-1] += data  # the word goes on
        else:
            self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    @property
    def data(self) -> dict:
        return json.loads(self.scripts[0])

    @property
    def words(self) -> str:
        return " ".join(self.text)
