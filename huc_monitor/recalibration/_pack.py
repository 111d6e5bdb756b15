"""Several compiled utilities in one set of arrays, so that a single kernel call can run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from huc_monitor.audit.decomposition import relevant_paths, tree_tables
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import (
    DENSE,
    GREEDY,
    LEVEL,
    PAYOFF,
    Floats,
    Ints,
    PathTables,
    Program,
    TreeTables,
)


class ProgramPack(NamedTuple):
    """Programs laid end to end; ``*_ptr[u]`` says where utility u's arrays begin.

    ``reads[u, v]`` says whether branch v can change what utility u sees.
    """

    kind: Ints
    int_ptr: Ints
    ints: Ints
    float_ptr: Ints
    floats: Floats
    payoff_ptr: Ints
    payoff: Floats
    reads: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledTree:
    """The arrays of a tree that boosting reads.

    ``edge_ptr`` and ``edges`` list the edges on the path to every leaf, then to every branch.
    """

    tree: LabelTree
    tables: TreeTables
    branches: Ints
    edge_ptr: Ints
    edges: Ints

    @classmethod
    def of(cls, tree: LabelTree) -> CompiledTree:
        """Derive the arrays."""
        arrays = tree.arrays
        edges = arrays.child_ptr[arrays.path_branch] + arrays.path_child
        return cls(
            tree,
            tree_tables(tree),
            np.arange(arrays.n_branches),
            np.ascontiguousarray(arrays.path_ptr, dtype=np.int64),
            np.ascontiguousarray(edges, dtype=np.int64),
        )

    @property
    def n_edges(self) -> int:
        """Edges of the contracted tree."""
        return int(self.tables.child_code.size)

    def n_children(self, v: int) -> int:
        """Children of branch v."""
        return int(self.tables.child_ptr[v + 1] - self.tables.child_ptr[v])


@dataclass(frozen=True, slots=True, eq=False)
class CompiledUtility:
    """One utility's program, its relevant branches, and the branches its values can depend on."""

    utility: Utility
    program: Program
    relevant: Ints
    paths: PathTables
    reads: Ints

    @classmethod
    def of(cls, utility: Utility, tree: LabelTree) -> CompiledUtility:
        """Compile a utility for a tree."""
        program = utility.compile(tree)
        relevant, paths = relevant_paths(tree, utility)
        return cls(utility, program, relevant, paths, _reads(program, relevant, tree))

    @property
    def is_dense(self) -> bool:
        """True when only Python can evaluate the utility."""
        return self.program.kind == DENSE


def _reads(program: Program, relevant: Ints, tree: LabelTree) -> Ints:
    """Branches whose probabilities can change a bit of the utility's scores or contributions.

    A correctness utility never looks below its level. For the others "irrelevant" is a statement
    about exact arithmetic: rounding may still differ, so all branches count.
    """
    if program.kind in {LEVEL, GREEDY}:
        return relevant
    return np.arange(tree.arrays.n_branches)


def pack_programs(utilities: Sequence[CompiledUtility], tree: LabelTree) -> ProgramPack:
    """Lay programs end to end."""
    n_leaves = tree.n_leaves
    programs = [item.program for item in utilities]
    reads = np.zeros((len(utilities), tree.arrays.n_branches), dtype=np.bool_)
    for u, item in enumerate(utilities):
        reads[u, item.reads] = True
    payoffs = [p.payoff if p.kind == PAYOFF else np.empty((0, n_leaves)) for p in programs]
    return ProgramPack(
        np.array([p.kind for p in programs], dtype=np.int64),
        _starts([p.ints.size for p in programs]),
        np.concatenate([np.empty(0, dtype=np.int64), *(p.ints for p in programs)]),
        _starts([p.floats.size for p in programs]),
        np.concatenate([np.empty(0), *(p.floats for p in programs)]),
        _starts([rows.shape[0] for rows in payoffs]),
        np.concatenate([np.empty((0, n_leaves)), *payoffs]),
        reads,
    )


def _starts(sizes: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
