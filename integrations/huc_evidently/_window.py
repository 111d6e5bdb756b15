"""The audit of one Evidently data set: its rows as an audit takes them, and a row per candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from huc_monitor.audit import audit
from huc_monitor.audit.compare import compare
from huc_monitor.audit.forms.given import read_predictions
from huc_monitor.audit.forms.reader import PredictionReader
from huc_monitor.audit.forms.spec import PredictionColumns
from huc_monitor.audit.result import AuditResult
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean
from huc_monitor.monitor.tolerance import Tolerance, accepted
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility

BOUNDS = ("point", "lower", "upper")


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What is asked of every data set; the arguments of `HUCPreset`."""

    tree: LabelTree
    utilities: tuple[Utility, ...]
    subgroups: Subgroups
    tolerance: Tolerance
    target: str
    probabilities: PredictionColumns
    options: Mapping[str, Any]

    def columns(self) -> list[str]:
        """Name the columns a data set must have."""
        reader = PredictionReader.of(self.tree, self.probabilities)
        return [self.target, *reader.names, *self.subgroups.columns]

    def has_answer(self, frame: pd.DataFrame) -> bool:
        """Whether a data set has all columns and at least one label: a reference may have none."""
        if not set(self.columns()) <= set(frame.columns):
            return False
        return bool(frame[self.target].notna().any())

    def ask(self, frame: pd.DataFrame) -> AuditResult | None:
        """Audit the labelled rows of a data set; None if it has no label."""
        rows = self._labelled(frame)
        if rows.empty:
            return None
        return audit(
            *self._side(rows),
            tree=self.tree,
            utilities=list(self.utilities),
            subgroups=self.subgroups,
            features=rows,
            **self.options,
        )

    def compare(self, before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
        """Compare the labelled rows of two data sets: a row per candidate with its change.

        Columns are ``point``, ``lower`` and ``upper`` of the absolute change.
        """
        old, new = self._labelled(before), self._labelled(after)
        options = {name: self.options[name] for name in ("confidence_level", "n_draws", "rng")}
        found = compare(
            self._side(old),
            self._side(new),
            tree=self.tree,
            utilities=list(self.utilities),
            subgroups=self.subgroups,
            features=(old, new),
            **options,
        ).to_frame()
        radius = 0.5 * (found["upper"] - found["lower"])
        found["point"] = found["difference"].abs()
        found["lower"] = (found["point"] - radius).clip(lower=0.0)
        found["upper"] = found["point"] + radius
        labels = node_labels(self.tree.branches)
        found["label"] = [labels[node] for node in found["node"]]
        found["testable"] = np.isfinite(found[list(BOUNDS)].to_numpy(dtype=np.float64)).all(axis=1)
        return found

    def _labelled(self, frame: pd.DataFrame) -> pd.DataFrame:
        for name in self.columns():
            if name not in frame.columns:
                msg = (
                    f"`current_data` must have the column {name!r}; it has none of that name. "
                    f"{did_you_mean(name, [str(column) for column in frame.columns])}"
                )
                raise UnknownNameError(msg)
        return frame[frame[self.target].notna()].reset_index(drop=True)

    def _side(self, rows: pd.DataFrame) -> tuple[Any, pd.Series[Any]]:
        words = self.probabilities.to_dict()
        return read_predictions(rows, tree=self.tree, **words), rows[self.target]


@dataclass(frozen=True, slots=True, eq=False)
class WindowAudit:
    """An audit with a row per candidate: its names, bounds, tolerance, level and label.

    ``change`` has a row per candidate too: how it changed since the reference data, if there are
    any with labels.
    """

    result: AuditResult
    frame: pd.DataFrame
    change: pd.DataFrame | None = None

    @classmethod
    def of(
        cls,
        result: AuditResult,
        tolerance: Tolerance,
        reference: AuditResult | None,
        change: pd.DataFrame | None = None,
    ) -> WindowAudit:
        """Compare every candidate with its tolerance."""
        frame = result.to_frame(all_columns=True)
        allowed = None
        if tolerance.relative:
            if reference is None:
                msg = (
                    "`reference_data` must be given with labels: the tolerance is relative to it. "
                    "Pass it to `run`, or use an absolute tolerance."
                )
                raise InvalidInputError(msg)
            allowed = reference.candidates.moment
        values = tolerance.values(result.tree, result.utilities, result.subgroups)
        frame["tolerance"] = accepted(values, allowed)
        frame["point"] = frame["moment"].abs()
        frame["level"] = np.select(
            [frame["lower"] > frame["tolerance"], frame["point"] > frame["tolerance"]],
            ["critical", "warning"],
            "ok",
        )
        labels = node_labels(result.tree.branches)
        frame["label"] = [labels[node] for node in frame["node"]]
        # A bound that is not a number fails every test and is not JSON; nobody is in an empty
        # subgroup to be wronged.
        bounded = np.isfinite(frame[list(BOUNDS)].to_numpy(dtype=np.float64)).all(axis=1)
        frame["testable"] = bounded & (frame["n_in_subgroup"] > 0)
        return cls(result, frame, change)

    def values(self, utility: str, subgroup: str, name: str) -> dict[str, float]:
        """Return a bound or the tolerance of each node, by label."""
        return _by_label(self.frame, utility, subgroup, name)

    def changes(self, utility: str, subgroup: str, bound: str) -> dict[str, float]:
        """Return how far each node changed since the reference data, by label."""
        return {} if self.change is None else _by_label(self.change, utility, subgroup, bound)


def _by_label(frame: pd.DataFrame, utility: str, subgroup: str, name: str) -> dict[str, float]:
    mine = (frame["utility"] == utility) & (frame["subgroup"] == subgroup)
    found = frame[frame["testable"] & mine]
    return dict(zip(found["label"], found[name].astype(float), strict=True))


def node_labels(nodes: Sequence[str]) -> dict[str, str]:
    """Name nodes so that Evidently does not take them for numbers.

    Examples
    --------
    >>> node_labels(["attack", "404"])
    {'attack': 'attack', '404': 'node 404'}
    """
    labels = {}
    for node in nodes:
        label = node
        while _is_number(label) or (label != node and label in nodes):
            label = f"node {label}"
        labels[node] = label
    return labels


def _is_number(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True
