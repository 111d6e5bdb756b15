"""Sparse rows against the matrices they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from huc_monitor.audit.inputs import Predictions
from huc_monitor.audit.sparse_rows import (
    Rest,
    SparseRows,
    as_dense,
    column_sums,
    distinct_rows,
    join,
    same_rows,
)
from huc_monitor.errors import InvalidInputError


def make(seed, n=20, n_leaves=9, rule="uniform"):
    """Sparse rows with what they logged, some of them everything."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n_leaves), n)
    rest = {
        "uniform": Rest.uniform(n_leaves),
        "one": Rest.one_leaf(2, n_leaves),
        "shares": Rest.in_proportion(rng.random(n_leaves)),
    }[rule]
    lengths = rng.integers(1, n_leaves + 1, n)
    chosen = [rng.permutation(n_leaves)[:k] for k in lengths]
    scores = np.concatenate([row[mine] for row, mine in zip(p, chosen, strict=True)])
    rows = SparseRows.complete(lengths, np.concatenate(chosen), scores, rest)
    return rows, p, chosen, rest


def by_hand(p, chosen, rest):
    out = np.zeros_like(p)
    for i, mine in enumerate(chosen):
        out[i, mine] = p[i, mine]
        left = 1 - p[i, mine].sum()
        if left <= 1e-6 or len(mine) == p.shape[1]:
            continue
        if rest.one is not None:
            out[i, rest.one] += left
            continue
        others = np.setdiff1d(np.arange(p.shape[1]), mine)
        out[i, others] = left * rest.shares[others] / rest.shares[others].sum()
    return out


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), rule=st.sampled_from(["uniform", "one", "shares"]))
def test_rows_are_completed_as_the_rule_says(seed, rule):
    rows, p, chosen, rest = make(seed, rule=rule)
    dense = by_hand(p, chosen, rest)
    np.testing.assert_allclose(rows.dense(), dense, atol=1e-12)
    np.testing.assert_allclose(rows.sum(axis=0), dense.sum(axis=0), atol=1e-9)
    np.testing.assert_allclose(rows.dense().sum(axis=1), 1.0, atol=1e-9)
    assert rows.any_zero == bool((rows.dense() == 0).any())
    assert (Predictions.of(rows).block(0, len(rows)) > 0).all()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_taking_and_joining_rows_is_taking_and_joining_the_matrix(seed):
    rows, *_ = make(seed, n=12)
    dense, rng = rows.dense(), np.random.default_rng(seed)
    mask, places = rng.random(12) < 0.5, rng.integers(0, 12, 5)
    for chosen in (mask, places, slice(3, 8), slice(5, 5), slice(None)):
        np.testing.assert_array_equal(rows[chosen].dense(), dense[chosen])
    both = join([rows[:4], rows[4:].dense(), rows[2:3]])
    np.testing.assert_array_equal(as_dense(both)[:4], dense[:4])
    np.testing.assert_allclose(as_dense(both)[4:12], dense[4:], atol=1e-12)
    np.testing.assert_array_equal(column_sums(rows, [slice(0, 3)])[:, 0], dense[:, :3].sum(axis=1))


def test_equal_rows_are_found():
    rows, *_ = make(3, n=6)
    twice = join([rows, rows])
    numbers = distinct_rows(twice)
    np.testing.assert_array_equal(numbers[:6], numbers[6:])
    assert len(set(numbers.tolist())) == 6
    assert same_rows(rows, rows).all()
    assert not same_rows(rows, rows[::-1]).all()


def test_shares_must_be_shares():
    with pytest.raises(InvalidInputError, match="positive sum"):
        Rest.in_proportion([0.0, 0.0])
