"""Labels of every kind, with the one answer that every way in must give."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import huc_monitor as hm

REFUSED = "refused"
PLAIN, NUMBERED, PARTLY = ("a", "b", "c"), ("1", "2", "3"), ("0", "x", "y")


@dataclass(frozen=True)
class Case:
    """Leaves of a flat tree, labels, and the codes of these or that they are refused."""

    name: str
    leaves: tuple[str, ...]
    labels: Any
    answer: Any

    @property
    def tree(self):
        return hm.LabelTree.flat(self.leaves)

    def log(self, n=60):
        """A log with these labels over and over, spread over a day."""
        times = -(-n // len(self.labels))
        labels = pd.concat([pd.Series(self.labels)] * times, ignore_index=True)
        rng = np.random.default_rng(0)
        p = rng.dirichlet(np.ones(len(self.leaves)), len(labels))
        frame = pd.DataFrame(p, columns=list(self.leaves))
        frame["at"] = pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(
            range(len(p)), unit="m"
        )
        return frame.assign(label=labels)

    def codes(self, n_rows):
        return np.resize(np.array(self.answer), n_rows)


CASES = [
    Case("names", PLAIN, ["c", "a", "b"], [2, 0, 1]),
    Case("categories", PLAIN, pd.Categorical(["c", "a"], categories=["a", "z", "c"]), [2, 0]),
    Case("an unknown name", PLAIN, ["a", "z"], REFUSED),
    Case("codes", PLAIN, [2, 0, 1], [2, 0, 1]),
    Case("numpy codes", PLAIN, np.array([2, 0], dtype=np.uint8), [2, 0]),
    Case("codes as floats", PLAIN, [2.0, 0.0], [2, 0]),
    Case("codes as text", PLAIN, ["0", "1"], [0, 1]),
    Case("codes as the text of floats", PLAIN, ["0.0", "2.0"], [0, 2]),
    Case("a code out of range", PLAIN, [0, 3], REFUSED),
    Case("a negative code", PLAIN, [0, -1], REFUSED),
    Case("a code as text out of range", PLAIN, ["0", "3"], REFUSED),
    Case("text with a leading zero", PLAIN, ["0", "01"], REFUSED),
    Case("a number that is not whole", PLAIN, [0.0, 1.5], REFUSED),
    Case("truth values", PLAIN, [True, False], REFUSED),
    Case("bytes", PLAIN, [b"a", b"b"], REFUSED),
    Case("dates", PLAIN, [dt.date(2024, 1, 1), dt.date(2024, 1, 2)], REFUSED),
    Case("names and codes mixed", PLAIN, ["a", 1, 2.0, "2"], [0, 1, 2, 2]),
    Case("numbers that are names", NUMBERED, [1, 2], [0, 1]),
    Case("floats that are names", NUMBERED, [3.0, 1.0], [2, 0]),
    Case("text that is names", NUMBERED, ["1", "3"], [0, 2]),
    Case("a code among numbers that are names", NUMBERED, [0, 1], REFUSED),
    Case("numbers where one leaf is a number", PARTLY, [0, 1], REFUSED),
    Case("the number that is a name", PARTLY, [0, 0], [0, 0]),
    Case("a name beside the number that is a name", PARTLY, ["0", "x"], [0, 1]),
    Case("the number as a float", PARTLY, ["0.0", "x"], [0, 1]),
]
