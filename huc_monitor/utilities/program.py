"""What a utility becomes once it meets a tree: a few arrays that a kernel can run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

PAYOFF, LEVEL, GREEDY, SELECTIVE, RANK, DENSE = range(6)

# Probabilities of groups, and mean payoffs of actions, that differ by less are a tie: what zeros
# are mixed with (1e-10), and the rounding of sums, then decide nothing.
TIE = 1e-9

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class TreeTables(NamedTuple):
    """The parts of a tree that kernels read; see `hierarchy.TreeArrays`."""

    start: Ints
    stop: Ints
    child_ptr: Ints
    child_code: Ints


class PathTables(NamedTuple):
    """Relevant branches on the path to every leaf: entries ptr[y] .. ptr[y + 1] - 1.

    ``slot`` numbers the relevant branches 0, 1, ... in branch order; ``child`` codes the child on
    the path (>= 0 a branch, < 0 the leaf -1 - code).
    """

    ptr: Ints
    branch: Ints
    child: Ints
    slot: Ints


class Program(NamedTuple):
    """A utility compiled for one tree.

    ``kind`` says how the other arrays are read: `payoff` rows with an argmax over actions, group
    codes to report one of, thresholds and payoffs of a selective report, payoffs by rank, or
    values handed in per row.
    """

    kind: int
    ints: Ints
    floats: Floats
    payoff: Floats


def value_range(program: Program) -> tuple[float, float]:
    """Return the smallest and the largest value that the utility can have.

    Examples
    --------
    >>> value_range(program(RANK, floats=[1, 0.5, 0]))
    (0.0, 1.0)
    """
    values = {PAYOFF: program.payoff, RANK: program.floats, SELECTIVE: program.floats[2:]}
    reports = [-1.0 if program.kind == DENSE else 0.0, 1.0]
    found = values.get(program.kind, reports)
    return float(np.min(found)), float(np.max(found))


def program(
    kind: int,
    *,
    ints: npt.ArrayLike = (),
    floats: npt.ArrayLike = (),
    payoff: npt.ArrayLike = ((),),
) -> Program:
    """Build a program with the one memory layout that the kernels are compiled for."""
    return Program(
        kind,
        np.ascontiguousarray(ints, dtype=np.int64),
        np.ascontiguousarray(floats, dtype=np.float64),
        np.ascontiguousarray(payoff, dtype=np.float64),
    )
