"""Comparisons: two samples against brute force and plain definitions, predictors and audits."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import brute_force
from support.random_cases import random_rows, random_tree, random_utilities

import huc_monitor as hm
from huc_monitor.audit.bounds.bootstrap import draw_multipliers
from huc_monitor.audit.scan import Groups

TREE = hm.LabelTree.from_nested({"left": ["a", "b", "e"], "right": ["c", "d"]})
UTILITIES = [hm.Payoff("pay", {"a": -1, "b": 1, "c": 0.5, "d": 0.25}), hm.LevelCorrectness(level=1)]


def sample(n, *, seed, power=1.0, ties=False):
    """Rows whose labels follow the predictions raised to a power."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(5, 1.0), n) * 0.99 + 0.002
    if ties:
        p = p[rng.integers(0, max(1, n // 6), n)]
    truth = p**power / (p**power).sum(axis=1, keepdims=True)
    labels = (rng.random(n)[:, None] > truth.cumsum(axis=1)).sum(axis=1).clip(0, 4)
    frame = pd.DataFrame({"g": rng.choice(["x", "y"], n), "w": rng.uniform(-1, 1, n)})
    return p, labels, frame


def subgroups(frame):
    return hm.Subgroups.from_reference(frame, {"g": "each"}, weights={"tilt": "w"})


def compare(before, after, **options):
    p, labels, frame = before
    q, others, more = after
    sides = {} if options.get("paired") else {"features": (frame, more)}
    return hm.compare(
        (p, labels),
        (q, others),
        **{
            "tree": TREE,
            "utilities": UTILITIES,
            "subgroups": subgroups(pd.concat([frame, more])),
            "features": frame,
            "n_draws": 200,
            **sides,
            **options,
        },
    )


# Two samples.


@pytest.mark.seconds
@pytest.mark.parametrize("part", range(4))
def test_every_change_and_interval_equals_brute_force(part):
    for instance in range(part, 200, 4):
        rng = np.random.default_rng([16, instance])
        tree = random_tree(rng)
        before, after = random_rows(rng, tree), random_rows(rng, tree)
        utilities = random_utilities(rng, tree)
        both = pd.concat([before[2], after[2]], ignore_index=True)
        groups = hm.Subgroups.from_reference(both, {"g": "each"}, weights={"tilt": "w"})
        found = hm.compare(
            before[:2],
            after[:2],
            tree=tree,
            utilities=utilities,
            subgroups=groups,
            features=(before[2], after[2]),
            n_draws=24,
        )
        check_against_brute_force(found, before, after, both, groups, utilities, tree)


def check_against_brute_force(found, before, after, both, groups, utilities, tree):
    plain = brute_force.PlainTree(tree)
    p, labels = (np.concatenate([before[k], after[k]]) for k in (0, 1))
    is_after = np.arange(len(p)) >= len(before[0])
    amount = np.where(is_after, 1.0 / len(after[0]), -1.0 / len(before[0]))
    rows = (
        found.to_frame(all_columns=True)
        .set_index(["utility", "subgroup", "node"])
        .to_dict(orient="index")
    )
    for utility in utilities:
        scores, by_node, _ = brute_force.row_terms(p, labels, utility, plain)
        for name, weights in zip(groups.names, groups.weights(both, len(p)), strict=True):
            for node, contributions in by_node.items():
                row = rows.get((utility.name, name, node))
                if row is None:
                    continue
                terms = amount * np.asarray(weights, dtype=float) * contributions
                best = brute_force.best_interval(scores, terms)
                assert abs(row["difference"]) == pytest.approx(best.size, abs=1e-12)
                if best.size > 1e-12:
                    check_inside(row, scores, terms, is_after, weights)


def check_inside(row, scores, terms, is_after, weights):
    inside = (scores >= row["interval_low"] - 1e-13) & (scores <= row["interval_high"] + 1e-13)
    assert terms[inside].sum() == pytest.approx(row["difference"], abs=1e-12)
    assert terms[inside & is_after].sum() == pytest.approx(row["after"], abs=1e-12)
    assert -terms[inside & ~is_after].sum() == pytest.approx(row["before"], abs=1e-12)
    there = inside & (np.asarray(weights) != 0)
    counts = np.count_nonzero(there & ~is_after), np.count_nonzero(there & is_after)
    assert (row["n_in_before"], row["n_in_after"]) == counts


@pytest.mark.parametrize("weighted", [False, True])
def test_radii_of_a_change_equal_the_plain_definition(weighted):
    before, after = sample(90, seed=1, ties=True), sample(40, seed=2, ties=True)
    weights = None
    if weighted:
        rng = np.random.default_rng(3)
        weights = tuple(rng.integers(1, 4, n).astype(float) for n in (90, 40))
    found = compare(before, after, n_draws=64, rng=5, weights=weights)
    wanted = plain_radii(before, after, weights, n_draws=64, seed=5)
    np.testing.assert_allclose((found.upper - found.lower) / 2, wanted, rtol=2e-5)


def plain_radii(before, after, weights, *, n_draws, seed, level=0.95):
    """The definition, one candidate and one draw at a time; the rows of `after` come first."""
    p, labels = (np.concatenate([after[k], before[k]]) for k in (0, 1))
    frame = pd.concat([after[2], before[2]], ignore_index=True)
    sizes = len(after[0]), len(before[0])
    times = [np.ones(n) for n in sizes] if weights is None else [weights[1], weights[0]]
    totals = [each.sum() for each in times]
    xi = np.empty((n_draws // 32, sum(sizes), 32), dtype=np.float32)
    groups = Groups.difference(*(Groups.of([np.ones(len(each))], each) for each in times))
    for block, out in enumerate(xi):
        draw_multipliers(seed, block, groups, out)
    xi = np.hstack(xi).astype(float) / groups.total
    each = np.concatenate([np.full(n, 1.0 / total) for n, total in zip(sizes, totals, strict=True)])
    rows = hm.decompose(p, labels, tree=TREE, utilities=UTILITIES)
    statistics, scales = [], []
    log = math.log(4 * sum(row.relevant.size for row in rows) / (1 - level))
    for row in rows:
        dense = row.to_frame().iloc[:, 2:].to_numpy()
        spreads = row.utility.spreads(TREE)[row.relevant]
        for member in (np.ones(len(p)), frame["g"] == "x", frame["g"] == "y", frame["w"]):
            for j, spread in enumerate(spreads):
                terms = dense[:, j] * np.asarray(member, dtype=float)
                variance = np.sum(terms**2 * np.concatenate(times) * each**2)
                floor = spread**2 * log * sum(total**-2 for total in totals)
                scales.append(math.sqrt(variance + floor))
                statistics.append(largest_sums(row.scores, terms[:, None] * xi) / scales[-1])
    rank = math.ceil((1 - 0.8 * (1 - level)) * (n_draws + 1) - 1e-9)
    q = np.sort(np.max(statistics, axis=0))[rank - 1]
    return max(q, math.sqrt(log)) * np.array(scales)


def largest_sums(scores, terms):
    blocks = np.unique(scores, return_inverse=True)[1]
    sums = np.zeros((blocks.max() + 2, terms.shape[1]))
    np.add.at(sums, blocks + 1, terms)
    prefix = sums.cumsum(axis=0)
    return prefix.max(axis=0) - prefix.min(axis=0)


def test_the_multipliers_of_each_sample_are_centred_within_it():
    groups = Groups.difference(
        Groups.of([np.ones(30)], None), Groups.of([np.ones(50)], np.full(50, 2.0))
    )
    xi = np.empty((80, 32), dtype=np.float32)
    draw_multipliers(7, 0, groups, xi)
    assert np.abs(xi[:50].sum(axis=0)).max() < 1e-4
    assert np.abs(xi[50:].sum(axis=0)).max() < 1e-4
    assert groups.factors == pytest.approx([groups.total / 30, -groups.total / 100])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(2, 60))
def test_changes_do_not_depend_on_row_order_and_flip_when_samples_are_swapped(seed, n, m):
    before, after = sample(n, seed=seed, ties=True), sample(m, seed=seed + 1, ties=True)
    found = compare(before, after)
    shuffled = np.random.default_rng(seed).permutation(m)
    again = compare(
        before,
        (after[0][shuffled], after[1][shuffled], after[2].iloc[shuffled].reset_index(drop=True)),
    )
    np.testing.assert_array_equal(found.difference, again.difference)
    np.testing.assert_array_equal(found.interval_low, again.interval_low)
    swapped = compare(after, before)
    np.testing.assert_allclose(np.abs(swapped.difference), np.abs(found.difference), atol=1e-12)
    same = np.isclose(swapped.interval_low, found.interval_low)
    np.testing.assert_allclose(swapped.difference[same], -found.difference[same], atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_identical_samples_have_no_change(seed, n):
    rows = sample(n, seed=seed, ties=True)
    found = compare(rows, rows)
    assert not found.difference.any()
    assert not found.sure
    assert (found.lower < 0).all()
    assert (found.upper > 0).all()


def test_weights_equal_repetition():
    before, after = sample(60, seed=1), sample(50, seed=2)
    times = np.random.default_rng(0).integers(1, 4, 50)
    repeated = tuple(np.repeat(x, times, axis=0) for x in after[:2])
    frame = after[2].loc[after[2].index.repeat(times)].reset_index(drop=True)
    once = compare(before, after, weights=(None, times))
    many = compare(before, (*repeated, frame))
    np.testing.assert_allclose(once.difference, many.difference, atol=1e-12)
    np.testing.assert_array_equal(once.n_in_after, many.n_in_after)
    assert once.n_after == many.n_after
    # One multiplier of root w for w of size one: equal laws, other draws.
    np.testing.assert_allclose(once.upper - once.lower, many.upper - many.lower, rtol=0.3)


def test_a_change_is_seen_in_its_branch_and_signed():
    before, after = sample(3000, seed=1), sample(1500, seed=2)
    labels = after[1].copy()
    swap = (labels < 2) & (after[2]["g"] == "x")
    labels[swap] = 1 - labels[swap]
    found = compare(before, (after[0], labels, after[2]), n_draws=500)
    assert found.worst.subgroup in {"all", "g=x"}
    assert "g=y" not in {d.subgroup for d in found.sure}
    assert {d.node for d in found.sure} == {"left"}
    assert found.worst.utility == "pay"
    assert found.worst.lower <= found.worst.difference <= found.worst.upper


def test_screening_spares_the_draws_of_a_change_that_no_draw_makes_sure():
    from huc_monitor.audit.compare import make_sample
    from huc_monitor.audit.inputs import check_predictions
    from huc_monitor.audit.plan import AuditPlan
    from huc_monitor.audit.two_samples import compare_samples

    groups = subgroups(sample(200, seed=1)[2])
    plan = AuditPlan.of(tree=TREE, utilities=UTILITIES, subgroups=groups)

    def made(rows):
        predictions = check_predictions(rows[0], tree=TREE)
        return make_sample(predictions, rows[1], plan, features=rows[2])

    one, two = made(sample(200, seed=1)), made(sample(200, seed=2))
    quiet = compare_samples(one, two, plan, screen=True)
    assert quiet.method is None
    assert np.isnan(quiet.lower).all()
    assert quiet.sure == ()
    other = made(sample(2000, seed=3, power=0.1))
    loud = compare_samples(one, other, plan, screen=True)
    full = compare_samples(one, other, plan)
    assert loud.to_dict() == full.to_dict()


# Two predictors on the same rows.


def paired(n, *, seed, before=1.0, after=0.6, power=0.6):
    p, labels, frame = sample(n, seed=seed, power=power)
    sides = [p**t / (p**t).sum(axis=1, keepdims=True) for t in (before, after)]
    return (sides[0], labels, frame), (sides[1], labels, frame)


def test_paired_differences_are_those_of_both_audits():
    before, after = paired(400, seed=1)
    found = compare(before, after, paired=True)
    groups = subgroups(pd.concat([before[2], after[2]]))
    what = {"tree": TREE, "utilities": UTILITIES, "subgroups": groups, "bounds": None}
    old, new = (hm.audit(p, labels, features=frame, **what) for p, labels, frame in (before, after))
    np.testing.assert_array_equal(found.before, np.abs(old.candidates.moment))
    np.testing.assert_array_equal(found.after, np.abs(new.candidates.moment))
    assert found.huc.difference == new.huc - old.huc
    assert found.kind == "predictors"


def test_a_real_improvement_is_sure_and_no_improvement_is_not():
    better = compare(*paired(3000, seed=1), paired=True, n_draws=500)
    assert better.huc.upper < 0
    assert better.huc.sure
    same = compare(*paired(3000, seed=2, before=1.0, after=1.0), paired=True)
    assert same.huc.difference == 0
    assert same.huc.lower < 0 < same.huc.upper
    assert same.sure == ()


def test_predictors_that_no_utility_tells_apart_do_not_differ():
    """Of three leaves, one of the likeliest three always happens: there is no candidate."""
    tree, labels = hm.LabelTree.flat(["a", "b", "c"]), np.arange(30) % 3
    sides = [np.tile(row, (30, 1)) for row in ([0.5, 0.3, 0.2], [0.2, 0.2, 0.6])]
    found = hm.compare(
        *((p, labels) for p in sides), tree=tree, utilities=[hm.TopK(3)], paired=True
    )
    assert (len(found), found.sure, found.to_frame().empty) == (0, (), True)
    assert (found.huc.lower, found.huc.difference, found.huc.upper) == (0.0, 0.0, 0.0)
    assert hm.Comparison.from_dict(found.to_dict()).to_dict() == found.to_dict()


def test_swapping_predictors_flips_every_bound():
    before, after = paired(300, seed=4)
    one, other = (compare(*sides, paired=True) for sides in ((before, after), (after, before)))
    np.testing.assert_array_equal(one.difference, -other.difference)
    np.testing.assert_allclose(one.lower, -other.upper, rtol=1e-12)
    assert one.huc.lower == pytest.approx(-other.huc.upper, rel=1e-12)


def test_paired_bounds_are_narrower_than_those_of_two_audits():
    before, after = paired(1500, seed=5)
    found = compare(before, after, paired=True, n_draws=500)
    groups = subgroups(pd.concat([before[2], after[2]]))
    what = {"tree": TREE, "utilities": UTILITIES, "subgroups": groups, "confidence_level": 0.975}
    audits = [hm.audit(p, labels, features=frame, **what) for p, labels, frame in (before, after)]
    apart = hm.compare(*audits)
    assert apart.confidence_level == pytest.approx(0.95)
    np.testing.assert_allclose(apart.difference, found.difference, atol=1e-15)
    assert apart.huc.difference == pytest.approx(found.huc.difference, abs=1e-15)
    assert found.huc.upper - found.huc.lower < 0.8 * (apart.huc.upper - apart.huc.lower)


# Any.


def test_a_comparison_survives_json():
    for options in ({}, {"paired": True}):
        found = compare(*paired(80, seed=1), **options)
        data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        again = hm.Comparison.from_dict(data)
        assert again.to_dict() == found.to_dict()
        pd.testing.assert_frame_equal(
            again.to_frame(all_columns=True), found.to_frame(all_columns=True)
        )
        assert repr(again) == repr(found)
    with pytest.raises(hm.InvalidInputError, match="must have schema_version 1; got 7"):
        hm.Comparison.from_dict({**data, "schema_version": 7})


def test_wrong_input_is_refused_with_a_remedy():
    before, after = sample(30, seed=1), sample(20, seed=2)
    with pytest.raises(hm.InvalidInputError, match="must be the same rows if paired; got 30 and"):
        compare(before, after, paired=True)
    other = (before[0], (before[1] + 1) % 5, before[2])
    with pytest.raises(hm.InvalidInputError, match="differ in 30 rows, first in row 0"):
        compare(before, other, paired=True)
    with pytest.raises(hm.InvalidInputError, match=r"`before` must be a pair .* got ndarray"):
        hm.compare(before[0], after[:2], tree=TREE, utilities=UTILITIES)
    with pytest.raises(hm.InvalidInputError, match="`tree` must be given"):
        hm.compare(before[:2], after[:2])
    with pytest.raises(hm.InvalidInputError, match="`features` must be a pair"):
        compare(before, after, features=before[2])
    result = hm.audit(*before[:2], tree=TREE, utilities=UTILITIES)
    fewer = hm.audit(*before[:2], tree=TREE, utilities=UTILITIES[:1])
    with pytest.raises(hm.InvalidInputError, match="must have the same candidates"):
        hm.compare(result, fewer)
    with pytest.raises(hm.InvalidInputError, match="`after` must be an AuditResult"):
        hm.compare(result, after[:2])
    with pytest.raises(hm.InvalidInputError, match="`tree` must be left out for two audits"):
        hm.compare(result, result, tree=TREE)
    with pytest.raises(hm.InvalidInputError, match="`paired` must be left out for two audits"):
        hm.compare(result, result, paired=True)


def test_samples_are_compared_by_correctness_at_every_level_unless_told(tmp_path):
    before, after = sample(40, seed=1)[:2], sample(50, seed=2)[:2]
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(TREE.to_dict()), "utf-8")
    levels = [hm.LevelCorrectness(level=depth) for depth in range(1, TREE.height + 1)]
    found = hm.compare(before, after, tree=str(path), n_draws=50)
    wanted = hm.compare(before, after, tree=TREE, utilities=levels, n_draws=50)
    assert found.to_dict() == wanted.to_dict()


def test_audits_of_other_trees_or_payoffs_under_the_same_names_are_not_compared():
    def audit(leaves, **payoffs):
        tree, pay = hm.LabelTree.flat(leaves), hm.Payoff("pay", payoffs)
        return hm.audit([[0.5, 0.5]] * 8, [leaves[0]] * 8, tree=tree, utilities=[pay])

    one = audit(["a", "b"], a=1)
    assert hm.compare(one, audit(["a", "b"], a=1)).huc.difference == 0
    with pytest.raises(hm.InvalidInputError, match="must be audits of the same tree; got the fing"):
        hm.compare(one, audit(["a", "c"], a=1))
    other = audit(["a", "b"], a=-1)
    with pytest.raises(hm.InvalidInputError, match=r"same utilities; 'pay' is Payoff.*'a': 1"):
        hm.compare(one, other)
    read = hm.AuditResult.from_dict(other.to_dict())
    assert hm.compare(one, read).huc.difference == 0, "a result that was read has names only"
