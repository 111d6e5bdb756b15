"""The exceptions this library raises, and how their messages point to a remedy.

Every exception derives from :class:`HUCError` and from the builtin a caller would expect, so both
``except HUCError`` and ``except ValueError`` work.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection
from itertools import islice
from typing import Final, Self

# Import packages of hosts to the extra of huc-monitor that installs each.
EXTRAS: Final = {
    "apprise": "notify",
    "deltalake": "lake",
    "evidently": "evidently",
    "matplotlib": "png",
    "prometheus_client": "prometheus",
    "pyiceberg": "lake",
    "pyspark": "spark",
}


class HUCError(Exception):
    """Base of every error raised on purpose by this library."""


class HUCWarning(UserWarning):
    """Something is likely wrong with the input, though it breaks no rule."""


class InvalidInputError(HUCError, ValueError):
    """An argument breaks a rule; the message names the argument, the value and a remedy."""


class InvalidTreeError(InvalidInputError):
    """A description of a label tree is not one rooted tree with unique names."""


class UnknownNameError(InvalidInputError, KeyError):
    """A name is not among the known ones; the message lists what is.

    Examples
    --------
    >>> print(UnknownNameError("`node` must be a node of the tree; got 'x'."))
    `node` must be a node of the tree; got 'x'.
    """

    def __str__(self) -> str:
        # KeyError would print the repr of the message, quotes and all.
        return Exception.__str__(self)


class MissingExtraError(HUCError, ImportError):
    """An optional package is not installed; the message is the command that installs it."""

    @classmethod
    def of(cls, package: str) -> Self:
        """Return the error for `package`, one of `EXTRAS`.

        Examples
        --------
        >>> print(MissingExtraError.of("evidently"))
        This needs the package 'evidently'. Install it with: pip install 'huc-monitor[evidently]'
        """
        return cls(
            f"This needs the package {package!r}. "
            f"Install it with: pip install 'huc-monitor[{EXTRAS[package]}]'",
            name=package,
        )


def other_spelling(name: str, choices: Collection[str]) -> str | None:
    """Ask for the choice that is the same but for case, spaces or its Unicode form.

    A space, an underscore and a hyphen are the same here.

    Examples
    --------
    >>> other_spelling(" DEEP COMA", ["none", "deep_coma"])
    "Did you mean 'deep_coma'?"
    """
    alike = {_folded(choice): choice for choice in choices}.get(_folded(name))
    if alike is None:
        return None
    if unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", alike):
        return f"{alike!r} is written in another Unicode form: normalise both to NFC."
    return f"Did you mean {alike!r}?"


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", unicodedata.normalize("NFC", name)).casefold().strip()


def nearest(name: str, choices: Collection[str]) -> str | None:
    """Ask for the choice that is spelled almost alike, or the only one that has the name in it.

    Examples
    --------
    >>> nearest("east", ["all", "region=east"])
    "Did you mean 'region=east'?"
    """
    alike = other_spelling(name, choices)
    if alike is not None:
        return alike
    close = difflib.get_close_matches(name, choices, n=1)
    within = [choice for choice in choices if len(name) > 2 and _folded(name) in _folded(choice)]
    if close or len(within) == 1:
        return f"Did you mean {(close or within)[0]!r}?"
    return None


def did_you_mean(name: object, choices: Collection[str], *, limit: int = 8) -> str:
    """Return the sentence that ends a message about an unknown name.

    The closest choice when there is a close one, otherwise the first `limit` choices.

    Examples
    --------
    >>> did_you_mean("comma", ["none", "coma"])
    "Did you mean 'coma'?"
    >>> did_you_mean("x", ["none", "coma"])
    "Choose from 'none', 'coma'."
    """
    near = nearest(str(name), choices)
    if near is not None:
        return near
    if not choices:
        return "There is nothing to choose from."
    shown = ", ".join(repr(choice) for choice in islice(choices, limit))
    rest = len(choices) - limit
    return f"Choose from {shown}." if rest <= 0 else f"Choose from {shown} and {rest} more."
