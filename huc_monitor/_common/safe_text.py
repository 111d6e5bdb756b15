r"""Names made safe for where they are shown: one function per medium, all on one core.

Names of leaves, subgroups, utilities and versions come from data and files. Raw, a line break in
one forges a line of a log, an escape sequence rewrites a terminal, a bidirectional override shows a
word backwards, and ``::error::`` is a command to GitHub's runner. `visible` writes such characters
as ``\n``, ``\x1b`` and ``\u202e``; everything that people write with stays as it is.

==================== ====================================================================
`visible`            the core; pages and pictures use it below their own escaping
`distinct`           names that enter records, and labels in Prometheus: short, unique
`plain`, `line`      a name, and a whole line, in terminals, logs and CI output
`chat`, `chat_line`  a name, and a sentence, in a message with light Markdown (``*name*``)
`code`               a name in backticks in a Markdown page
`table_cell`         a cell of a CSV file that a spreadsheet may open
`metric_keys`        parts of metrics' keys in MLflow
`file_name`          a file name
`json_line`          a JSON document on one line
`quoted`             any value in an error
==================== ====================================================================
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

LONGEST: Final = 200
_LONGEST_LINE: Final = 4_000
_LONGEST_KEY: Final = 60
# Control, format, surrogate, line and paragraph separators; and spaces that are not U+0020.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_ORDINARY: Final = re.compile(r"[\x20-\x7e\xa1-\xac\xae-\u02ff]*")
# Joiners belong to Persian, Indian scripts and emoji; next to ASCII they only hide.
_JOINED: Final = re.compile(r"(?<=[^\x00-\xff])[\u200c\u200d](?=[^\x00-\xff])")
_INVISIBLE: Final = re.compile("[\u115f\u1160\u2800\u3164\uffa0]")  # letters without ink
_COMMANDS: Final = re.compile(
    r"^(\s*):(?=:)|:(?=:(?:error|warning|notice|debug|group|endgroup|echo|add-|remove-|stop-|set-"
    r"|save-))|#(?=#(?:\[|vso\[))",
    re.IGNORECASE,
)
_NOT_IN_KEYS: Final = re.compile(r" *[^\w. ](?:[^\w.]| )*")
_MENTION: Final = re.compile(r"@(?=(?:everyone|here|channel|all)\b)", re.IGNORECASE)
STAR: Final = "\u2217"  # looks like an asterisk, and is no markup
TICK: Final = "\u02cb"  # and this like a backtick


def visible(text: object) -> str:
    r"""Write characters that hide, break or turn a line as escapes.

    Examples
    --------
    >>> visible("ok\nCRITICAL"), visible("\x1b[2J"), visible("a\u202eb"), visible("Zoë, 猫")
    ('ok\\nCRITICAL', '\\x1b[2J', 'a\\u202eb', 'Zoë, 猫')
    """
    text = str(text)
    if _ORDINARY.fullmatch(text):
        return text
    joiners = {found.start() for found in _JOINED.finditer(text)}
    return "".join(
        _escape(character) if _is_hidden(character) and place not in joiners else character
        for place, character in enumerate(text)
    )


def _is_hidden(character: str) -> bool:
    return (
        unicodedata.category(character) in _HIDDEN
        or _INVISIBLE.match(character) is not None
        or ord(character) & 0xFFFE == 0xFFFE  # no characters, and no XML file may hold them
    )


def _escape(character: str) -> str:
    short = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(character)
    code = ord(character)
    width = 2 if code < 0x100 else 4 if code < 0x10000 else 8
    return short or rf"\{'x' if width == 2 else 'u' if width == 4 else 'U'}{code:0{width}x}"


def _digest(text: str, length: int = 8) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def bounded(text: str, longest: int = LONGEST) -> str:
    """Cut a text that is too long; a hash of the whole keeps different ones apart.

    Examples
    --------
    >>> bounded("short"), bounded("x" * 2_000_000, 30)
    ('short', 'xxxxxxxxxxxxxxxxxxxx~be8889d3')
    """
    if len(text) <= longest:
        return text
    return f"{text[: longest - 10]}~{_digest(text)}"


def distinct(text: object) -> str:
    r"""Name what enters a record: visible, at most 200 characters, other names for other texts.

    Examples
    --------
    >>> distinct("sex=f"), distinct("a\nb"), distinct(r"a\nb")
    ('sex=f', 'a\\nb~7e18f737', 'a\\nb')
    """
    given = str(text)
    shown = visible(given[: LONGEST + 1])
    if shown == given and len(shown) <= LONGEST:
        return shown
    return f"{shown[: LONGEST - 9]}~{_digest(given)}"


def plain(name: object) -> str:
    r"""Show a name on a terminal, in a text log or in the output of a CI job.

    Examples
    --------
    >>> plain("::error::x"), plain("std::map"), plain("a ##[group]b")
    ('\\x3a:error::x', 'std::map', 'a \\x23#[group]b')
    """
    return _harmless(bounded(visible(bounded(str(name)))))


def _harmless(text: str) -> str:
    """Spoil what a CI system takes for a command to itself."""
    return _COMMANDS.sub(lambda found: found[0][:-1] + f"\\x{ord(found[0][-1]):02x}", text)


def line(text: object) -> str:
    r"""Make one line of any text, for people: white space is one space, nothing is hidden.

    Examples
    --------
    >>> line("two\nlines, \x1b[31mred")
    'two lines, \\x1b[31mred'
    """
    return _harmless(bounded(visible(" ".join(str(text).split())), _LONGEST_LINE))


def chat(name: object) -> str:
    r"""Show a name in a message: no markup, no link, nobody is called.

    Examples
    --------
    >>> ascii(chat("*bold*")), chat("[a](http://b)"), ascii(chat("@here")), chat("age<65")
    ("'\\u2217bold\\u2217'", '[a] (http://b)', "'\\uff20here'", 'age<65')
    """
    return _unmarked(plain(name))


def chat_line(text: object) -> str:
    """Show a sentence that holds names as they are, such as an error, in a message."""
    return _unmarked(line(text))


def _unmarked(text: str) -> str:
    text = text.replace("*", STAR).replace("`", TICK).replace("](", "] (")
    return _MENTION.sub("\uff20", text)


def code(name: object) -> str:
    r"""Show a name in backticks, in Markdown.

    Examples
    --------
    >>> code("a b"), ascii(code("a`b|c"))
    ('`a b`', "'`a\\u02cbb\\xa6c`'")
    """
    return "`" + plain(name).replace("`", TICK).replace("|", "\xa6") + "`"


def table_cell(name: object) -> str:
    """Keep a spreadsheet from taking a name for a formula.

    Examples
    --------
    >>> table_cell("=1+1"), table_cell("attack")
    ("'=1+1", 'attack')
    """
    shown = visible(name)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def metric_keys(names: Iterable[str]) -> dict[str, str]:
    """Give every name its part of a metric's key in MLflow: itself, where that will do.

    What MLflow does not take becomes a hyphen. A hash follows only where two names would then look
    alike to a database that knows neither case nor accents. No key holds `` - ``, so that keys
    joined by it stay apart.

    Examples
    --------
    >>> metric_keys(["remote login", "channel=app", "a/b", "a:b"])
    {'remote login': 'remote login', 'channel=app': 'channel-app', 'a/b': 'a-b-c14cdd',
    'a:b': 'a-b-6783a3'}
    """
    kept = {name: _key(name) for name in dict.fromkeys(names)}
    alike = Counter(map(_folded, kept.values()))
    return {
        name: key if key and alike[_folded(key)] == 1 else f"{key}-{_digest(name, 6)}".lstrip("-")
        for name, key in kept.items()
    }


def _key(name: str) -> str:
    text = unicodedata.normalize("NFC", visible(name[: 2 * _LONGEST_KEY]))
    short = _NOT_IN_KEYS.sub("-", text)[:_LONGEST_KEY].strip(" .-")
    return short if len(name) <= _LONGEST_KEY else f"{short}-{_digest(name, 6)}"


def _folded(key: str) -> str:
    plain_letters = unicodedata.normalize("NFKD", key.casefold())
    return "".join(c for c in plain_letters if not unicodedata.combining(c))


def file_name(name: str, longest: int = _LONGEST_KEY) -> str:
    """Turn any text into a file name; text of which nothing is left becomes a hash.

    Examples
    --------
    >>> file_name("report.html"), file_name("../x"), file_name("<?>") == file_name("<?>")
    ('report.html', 'x', True)
    """
    kept = _ascii(name).strip("-.").split("-")
    return "-".join(part for part in kept if part).strip("-.")[:longest] or _digest(name, 12)


def _ascii(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text)


def json_line(document: Any, *, default: Any = None) -> str:
    r"""Write JSON on one line of ASCII that no CI system takes for a command; nothing is lost.

    Examples
    --------
    >>> json_line({"name": "##[error]\u202e"})
    '{"name": "\\u0023#[error]\\u202e"}'
    """
    # "#" stands only inside strings, where its escape is the same character.
    return json.dumps(document, allow_nan=False, default=default).replace("##", "\\u0023#")


def quoted(value: object) -> str:
    """Show any value in an error, in quotes, on one line, not too long.

    Examples
    --------
    >>> quoted("x" * 1000)[-12:], quoted(3.5)
    ("xx'~44f83544", '3.5')
    """
    if isinstance(value, str) and len(value) > LONGEST:
        cut = bounded(value)
        return f"{cut[:-9]!r}{cut[-9:]}"
    return plain(repr(value))
