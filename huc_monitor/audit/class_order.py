"""Notice columns in the wrong order: accuracy at chance, from predictions that claim far more."""

from __future__ import annotations

import math
import warnings
from typing import Final

import numpy as np

from huc_monitor.audit.inputs import Predictions, block_spans
from huc_monitor.errors import HUCWarning
from huc_monitor.utilities.program import Ints

# As many rows are looked at as have about so many cells, within limits: enough to be certain.
_CELLS: Final = 1 << 22
_FEWEST_ROWS, _MOST_ROWS = 1_000, 10_000
_SURE_BELOW: Final = math.log(1e6)
_SURE_ABOVE: Final = math.log(1e3)
_SHARE_OF_CLAIM: Final = 0.25


def look_at_order(predictions: Predictions, labels: Ints) -> tuple[str, ...]:
    """Warn, and return the note, where the order of classes is likely wrong.

    The likeliest leaf is the label no more often than chance has it (1 / K, not refuted at one in
    a thousand), and less than a quarter as often as its probability says (one in a
    million). So calibrated predictions of a hard problem pass, however bad, and so do few rows.

    Examples
    --------
    >>> from huc_monitor.audit.inputs import Predictions
    >>> swapped = Predictions.of(np.tile([0.9, 0.05, 0.05], (200, 1)))
    >>> with warnings.catch_warnings(action="ignore"):
    ...     look_at_order(swapped, np.ones(200, dtype=np.int64))
    ('accuracy is 0 %, and predictions claim 90 %: is the class order right?',)
    """
    n_leaves = predictions.matrix.shape[1]
    step = -(-predictions.n // int(np.clip(_CELLS // n_leaves, _FEWEST_ROWS, _MOST_ROWS)))
    known = labels[::step] < n_leaves
    chosen = np.arange(0, predictions.n, step)[known]
    n = chosen.size
    if not n:
        return ()
    # Where some rows agree well with their labels, the others are not read.
    accuracy, claimed = _agreement(predictions, labels, chosen[:: -(-n // _FEWEST_ROWS)])
    if accuracy >= claimed / 2:
        return ()
    accuracy, claimed = _agreement(predictions, labels, chosen)
    share = _SHARE_OF_CLAIM * claimed
    if accuracy >= share or n * _divergence(accuracy, share) < _SURE_BELOW:
        return ()
    if accuracy > 1 / n_leaves and n * _divergence(accuracy, 1 / n_leaves) > _SURE_ABOVE:
        return ()
    note = (
        f"accuracy is {100 * accuracy:.2g} %, and predictions claim {100 * claimed:.2g} %: "
        "is the class order right?"
    )
    warnings.warn(note, HUCWarning, stacklevel=3)
    return (note,)


def _agreement(predictions: Predictions, labels: Ints, rows: Ints) -> tuple[float, float]:
    """How often the likeliest leaf of some rows is the label, and how often it should be."""
    n_right, claimed = 0, 0.0
    for lo, hi in block_spans(rows.size, predictions.matrix.shape[1]):
        some = predictions.take(rows[lo:hi]).dense()
        top = some.argmax(axis=1)
        n_right += int(np.count_nonzero(top == labels[rows[lo:hi]]))
        claimed += float(some[np.arange(hi - lo), top].sum(dtype=np.float64))
    return n_right / rows.size, claimed / rows.size


def _divergence(found: float, expected: float) -> float:
    """Exponent per row of Chernoff's bound on a share this far from what was expected."""
    total = 0.0
    for a, b in ((found, expected), (1 - found, 1 - expected)):
        total += a * math.log(a / b) if a > 0 else 0.0
    return total
