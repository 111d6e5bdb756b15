"""One finding of ``doctor``, and how an error becomes one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What ``doctor`` found when it looked at one thing.

    Attributes
    ----------
    check : str
        What was looked at.
    outcome : {"ok", "note", "wrong"}
        "wrong" must be fixed; a note may matter.
    text : str
        What was found.
    fix : str or None
        What to do about it.
    """

    check: str
    outcome: Outcome
    text: str
    fix: str | None = None


def guarded(
    check: str, look: Callable[[], Iterator[Diagnosis]], fix: str, outcome: Outcome = "wrong"
) -> Iterator[Diagnosis]:
    """Yield the findings of `look`; any error it raises becomes a finding, with `fix`."""
    try:
        yield from look()
    except Exception as error:  # noqa: BLE001 - the error is the finding
        yield Diagnosis(check, outcome, in_one_line(error), fix)


def in_one_line(error: BaseException) -> str:
    """Return what an error says, without passwords."""
    return without_password(" ".join(str(error).split())) or type(error).__name__


def without_password(text: str) -> str:
    """Take user and password out of any address.

    Examples
    --------
    >>> without_password("mlflow answers at https://me:secret@host:5000/x")
    'mlflow answers at https://...@host:5000/x'
    """
    return re.sub(r"//[^/@\s]*@", "//...@", text)
