"""Random trees, utilities, subgroups and ties against brute force over all intervals."""

from __future__ import annotations

import numpy as np
import pytest
from support import brute_force
from support.random_cases import random_rows, random_tree, random_utilities

import huc_monitor as hm

N_INSTANCES = 1_000
N_PARTS = 10


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(k, marks=pytest.mark.seconds) for k in range(1, N_PARTS))]
)
def test_every_moment_and_interval_equals_brute_force(part):
    for instance in range(part, N_INSTANCES, N_PARTS):
        rng = np.random.default_rng(instance)
        tree = random_tree(rng)
        p, labels, frame = random_rows(rng, tree)
        utilities = random_utilities(rng, tree)
        groups = hm.Subgroups.from_reference(frame, {"g": "each"}, weights={"tilt": "w"})
        result = hm.audit(
            p,
            labels,
            tree=tree,
            utilities=utilities,
            subgroups=groups,
            features=frame,
            bounds="theorem",
        )
        check_against_brute_force(result, p, labels, frame, groups, utilities, tree)


def check_against_brute_force(result, p, labels, frame, groups, utilities, tree):
    plain = brute_force.PlainTree(tree)
    rows = result.to_frame(all_columns=True).to_dict(orient="records")
    found = {(row["utility"], row["subgroup"], row["node"]): row for row in rows}
    assert len(found) == len(rows)
    totals = {
        (row["utility"], row["subgroup"]): row
        for row in result.uc_frame().to_dict(orient="records")
    }
    subgroups = list(zip(groups.names, groups.weights(frame, len(p)), strict=True))
    largest = {}
    for utility in utilities:
        scores, by_node, residual = brute_force.row_terms(p, labels, utility, plain)
        relevant = len(utility.relevant_branches(tree))
        # Theorem thm:tree-decomp-note: the contributions add up to the residual.
        assert np.abs(sum(by_node.values()) - residual).max() < 1e-12
        for name, weights in subgroups:
            share = np.asarray(weights, dtype=float) / len(p)
            for node, contributions in by_node.items():
                terms = share * contributions
                best = brute_force.best_interval(scores, terms)
                row = found.get((utility.name, name, node))
                if row is None:
                    assert best.size < 1e-12
                else:
                    check_row(row, best, scores, terms, weights)
                    largest[utility.name] = max(largest.get(utility.name, 0.0), best.size)
            terms = share * residual
            best = brute_force.best_interval(scores, terms)
            check_row(totals[utility.name, name], best, scores, terms, weights)
            assert best.size <= relevant * largest.get(utility.name, 0.0) + 1e-12
    assert result.huc == pytest.approx(max(largest.values(), default=0.0), abs=1e-12)


def check_row(row, best, scores, terms, weights):
    assert abs(row["moment"]) == pytest.approx(best.size, abs=1e-12)
    if best.size < 1e-12:
        return
    low, high = row["interval_low"], row["interval_high"]
    # Where one interval alone attains the maximum it is the one reported; else one of them is.
    ends = [(a, b) for a, b, _ in best.intervals]
    assert min(abs(low - a) + abs(high - b) for a, b in ends) < 1e-12
    inside = (scores >= low - 1e-13) & (scores <= high + 1e-13)
    assert terms[inside].sum() == pytest.approx(row["moment"], abs=1e-12)
    assert row["n_in_interval"] == np.count_nonzero(np.asarray(weights)[inside])
