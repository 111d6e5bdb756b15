"""How large squared contributions will be, known from the prediction before any label.

A branch with mass p_v and children of mass p_c and mean utility m_c contributes m_c - m_v where
child c happens, so that its expected square is sum_c p_c (m_c - m_v)^2.
"""

from __future__ import annotations

import numpy as np

from huc_monitor.audit.decomposition import dense_block, tree_tables
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats, Ints


def expected_squares(
    utility: Utility, p: Floats, branches: Ints, tree: LabelTree, expected: Floats | None = None
) -> Floats:
    """Return the expected squared contribution of some branches, shape (rows, branches).

    Parameters
    ----------
    p : (n, leaves) array, positive
    expected : (n, leaves) array, optional
        Probabilities to expect labels by; ``p`` itself when left out.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> expected_squares(hm.TopK(1), np.array([[0.9, 0.1]]), np.array([0]), tree).round(2)
    array([[0.09]])
    """
    from huc_monitor import _kernels

    values = np.empty(p.shape)
    dense = dense_block(utility, p, tree)
    _kernels.utility_values(p, dense, tree_tables(tree), utility.compile(tree), values)
    arrays = tree.arrays
    before = np.zeros((3, p.shape[0], p.shape[1] + 1))
    for place, terms in enumerate((p, p * values, p if expected is None else expected)):
        np.cumsum(terms, axis=1, out=before[place, :, 1:])

    def sums(first: int, stop: int) -> tuple[Floats, Floats]:
        mass, total, hoped = before[:, :, stop] - before[:, :, first]
        # Differences of sums are rough where a child has next to no mass, and count for nothing.
        return np.clip(total / np.maximum(mass, 1e-300), -1.0, 1.0), np.maximum(hoped, 0.0)

    squares = np.zeros((p.shape[0], branches.size))
    for column, v in enumerate(branches.tolist()):
        mean, _ = sums(arrays.start[v], arrays.stop[v])
        for code in arrays.child_code[arrays.child_ptr[v] : arrays.child_ptr[v + 1]].tolist():
            leaf = -1 - code
            ends = (arrays.start[code], arrays.stop[code]) if code >= 0 else (leaf, leaf + 1)
            mine, mass = sums(*ends)
            squares[:, column] += mass * (mine - mean) ** 2
    return squares
