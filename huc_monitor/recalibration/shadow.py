"""A trial in the shadow: a challenger is audited beside the champion before it may replace it.

Both are judged on the same labelled rows, on which the challenger never answered: its probabilities
are recomputed. What became of a trial is plain data, which a host keeps where it survives a crash.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from huc_monitor._common.forms import Form
from huc_monitor.audit.comparison import Comparison
from huc_monitor.recalibration.choosing import Figures
from huc_monitor.recalibration.gate import Gate

TrialResult: TypeAlias = Literal["running", "passed", "refused", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowWindow:
    """How champion and challenger do in one window; pairs are (champion, challenger).

    Attributes
    ----------
    ordinal : int
        Of the window.
    n : int
        Labelled rows.
    huc, log_loss, accuracy : (float, float)
    """

    ordinal: int
    n: int
    huc: tuple[float, float]
    log_loss: tuple[float, float]
    accuracy: tuple[float, float]

    @classmethod
    def of(cls, ordinal: int, champion: Figures, challenger: Figures) -> ShadowWindow:
        """Put the figures of both side by side, to nine decimals: a tag has room for no more."""
        pairs = {
            name: (round(getattr(champion, name), 9), round(getattr(challenger, name), 9))
            for name in ("huc", "log_loss", "accuracy")
        }
        return cls(ordinal=ordinal, n=champion.n, **pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowTrial(Form):
    """A challenger beside the champion for some windows, and what was decided.

    **The rule.** After `n_windows` audited windows the challenger passes if on the rows of all of
    them together it passes the same gate as before it was registered: HUC lower than the
    champion's by more than chance (`compare` of both on the same rows) and by `min_improvement`,
    log loss and accuracy not worse than allowed. Otherwise it is refused, with the reasons.

    Attributes
    ----------
    version, champion : str
        Of the challenger, and of the champion it is compared with.
    upto : int
        Ordinal of the last window that was looked at; the first to look at is the one after.
    n_windows : int
        Audited windows that are needed.
    windows : tuple of ShadowWindow
        Those seen so far.
    result : {"running", "passed", "refused", "ended"}
        Ended: the champion changed meanwhile, so there was nothing left to decide.
    reasons : tuple of str
        Why it was refused or ended.
    difference : (float, float) or None
        Bounds on the challenger's HUC minus the champion's over all windows, once decided.
    targets : tuple of (utility, subgroup, node)
        What the challenger is to make better; see `find_recalibration`.

    Examples
    --------
    >>> trial = ShadowTrial(version="2", champion="1", upto=17, n_windows=2)
    >>> now, new = (
    ...     Figures(500, 0.1, None, None, 0.0, 1.0, 0.6),
    ...     Figures(500, 0.03, None, None, 0.0, 0.9, 0.6),
    ... )
    >>> trial = trial.add(ShadowWindow.of(18, now, new)).add(ShadowWindow.of(19, now, new))
    >>> trial.is_complete
    True
    """

    version: str
    champion: str
    upto: int
    n_windows: int
    windows: tuple[ShadowWindow, ...] = ()
    result: TrialResult = "running"
    reasons: tuple[str, ...] = ()
    difference: tuple[float, float] | None = None
    targets: tuple[tuple[str, str, str], ...] = ()

    sparse: ClassVar[tuple[str, ...]] = ("targets",)

    @property
    def is_complete(self) -> bool:
        """Whether enough windows were seen to decide."""
        return len(self.windows) >= self.n_windows

    def add(self, window: ShadowWindow) -> ShadowTrial:
        """Return the trial with one more window."""
        return dataclasses.replace(
            self, windows=(*self.windows, window), upto=max(self.upto, window.ordinal)
        )

    def skip(self, ordinal: int) -> ShadowTrial:
        """Return the trial after a window that was not audited, and does not count."""
        return dataclasses.replace(self, upto=max(self.upto, ordinal))

    def end(self, reason: str) -> ShadowTrial:
        """Return the trial without a decision."""
        return dataclasses.replace(self, result="ended", reasons=(reason,))

    def decide(self, gate: Gate, comparison: Comparison) -> ShadowTrial:
        """Return the trial with the decision; unchanged while windows are missing.

        ``comparison`` is that of champion and challenger on the rows of all windows together.
        """
        if not self.is_complete or self.result != "running":
            return self
        huc = comparison.huc
        before = dataclasses.replace(self.mean(0), huc=huc.before)
        after = dataclasses.replace(self.mean(1), huc=huc.after)
        rows = f"{len(self.windows)} windows"
        reasons = gate.reasons(
            before, after, comparison=comparison, rows=rows, targets=self.targets
        )
        return dataclasses.replace(
            self,
            result="refused" if reasons else "passed",
            reasons=reasons,
            difference=(round(huc.lower, 9), round(huc.upper, 9)),
        )

    def mean(self, which: int) -> Figures:
        """Mean figures of the champion (0) or the challenger (1), weighted by labelled rows."""
        total = sum(window.n for window in self.windows)

        def over(name: str) -> float:
            values = (window.n * getattr(window, name)[which] for window in self.windows)
            return float(sum(values) / total)

        return Figures(
            total, over("huc"), None, None, float("nan"), over("log_loss"), over("accuracy")
        )

    def __str__(self) -> str:
        """One line, for people."""
        seen = f"{len(self.windows)} of {self.n_windows} windows"
        text = f"version {self.version} beside champion {self.champion}: {self.result}, {seen}"
        if self.windows:
            champion, challenger = self.mean(0), self.mean(1)
            text += f", mean HUC {challenger.huc:.4f} for {champion.huc:.4f}"
        if self.difference is not None:
            text += ", over all rows {:+.4f} to {:+.4f}".format(*self.difference)
        return text + (f" ({'; '.join(self.reasons)})" if self.reasons else "")

    def to_json(self) -> str:
        """One line of JSON, short enough for a tag of a run."""
        return json.dumps(self.to_dict(), allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ShadowTrial:
        """Read what `to_json` wrote."""
        return cls.from_dict(json.loads(text))
