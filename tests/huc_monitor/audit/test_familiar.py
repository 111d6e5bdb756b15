from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss

import huc_monitor as hm
from huc_monitor.audit.inputs import CACHE_CELLS
from huc_monitor.tree.labels import LeafCodes

TREE = hm.LabelTree.from_nested(
    {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}, "died": None}
)
NAMES = [
    "accuracy, level 1",
    "accuracy, level 2",
    "accuracy, leaves",
    "log loss",
    "Brier score",
    "top-label ECE",
    "classwise ECE",
    "hierarchical F1",
    "AURC",
]


def rows(n, seed, *, concentration=1.0, sharpen=1.0):
    """Labels drawn from p, and what a model says that is sharper than p."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(5, concentration), n)
    codes = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=4)
    said = p**sharpen
    return said / said.sum(axis=1, keepdims=True), codes


def by_name(found):
    return {number.name: number for number in found.numbers}


def values(found):
    return {number.name: number.value for number in found.numbers}


def path(node):
    return {node, *TREE.ancestors(node)} - {TREE.root}


def binned_gaps(p, hits):
    bins = np.minimum((p * 15).astype(int), 14)
    return sum(abs((hits - p)[bins == b].sum()) for b in range(15)) / len(p)


def brute_force(p, codes):
    """Every number by its definition, with sets and loops."""
    leaves, n = TREE.leaves, len(codes)
    out = {}
    for level, name in ((1, "level 1"), (2, "level 2"), (3, "leaves")):
        groups = TREE.level_codes(level)
        mass = np.array([[row[groups == g].sum() for g in range(groups.max() + 1)] for row in p])
        out[f"accuracy, {name}"] = accuracy_score(groups[codes], mass.argmax(axis=1))
    out["log loss"] = log_loss(codes, p, labels=np.arange(5))
    out["Brier score"] = np.mean(((p - np.eye(5)[codes]) ** 2).sum(axis=1))
    top = p.argmax(axis=1)
    out["top-label ECE"] = binned_gaps(p.max(axis=1), top == codes)
    out["classwise ECE"] = np.mean([binned_gaps(p[:, k], codes == k) for k in range(5)])
    pairs = [(path(leaves[a]), path(leaves[b])) for a, b in zip(top, codes, strict=True)]
    shared = sum(len(a & b) for a, b in pairs)
    out["hierarchical F1"] = 2 * shared / sum(len(a) + len(b) for a, b in pairs)
    confidence, wrong = p.max(axis=1), top != codes
    out["AURC"] = sum(wrong[confidence >= t].mean() for t in confidence) / n
    return out


@pytest.mark.parametrize("sharpen", [0.5, 1.0, 2.5])
def test_every_number_is_what_its_definition_says(sharpen):
    p, codes = rows(400, 1, sharpen=sharpen)
    found = hm.familiar_numbers(p, LeafCodes(codes), tree=TREE)
    assert [number.name for number in found.numbers] == NAMES
    expected = brute_force(p, codes)
    for name in NAMES:
        assert found[name] == pytest.approx(expected[name], abs=1e-7), name


def test_bins_are_added_up_over_all_blocks_of_rows():
    p, codes = rows(CACHE_CELLS // 2, 3, sharpen=1.4)
    found = hm.familiar_numbers(p, LeafCodes(codes), tree=TREE)
    gaps = np.mean([binned_gaps(p[:, k], codes == k) for k in range(5)])
    assert found["classwise ECE"] == pytest.approx(gaps, rel=1e-9)


@given(st.integers(0, 10_000), st.integers(2, 40))
@settings(max_examples=25, deadline=None)
def test_a_row_that_weighs_w_counts_as_w_rows(seed, n):
    p, codes = rows(n, seed)
    p = np.round(p * 8 + 1)
    p /= p.sum(axis=1, keepdims=True)  # ties among confidences
    times = np.random.default_rng(seed).integers(0, 4, n)
    times[0] = 1
    weighed = hm.familiar_numbers(p, LeafCodes(codes), tree=TREE, weights=times)
    again = np.repeat(np.arange(n), times)
    repeated = hm.familiar_numbers(p[again], LeafCodes(codes[again]), tree=TREE)
    for one, other in zip(weighed.numbers, repeated.numbers, strict=True):
        for name in ("value", "lower", "upper", "n"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-9), one.name


def test_retries_in_one_cluster_say_no_more_than_the_first():
    p, codes = rows(300, 2)
    once = by_name(hm.familiar_numbers(p, LeafCodes(codes), tree=TREE))
    thrice = np.repeat(np.arange(300), 3)
    clustered = hm.familiar_numbers(p[thrice], LeafCodes(codes[thrice]), tree=TREE, clusters=thrice)
    for number in clustered.numbers:
        one = once[number.name]
        assert number.value == pytest.approx(one.value), number.name
        if number.name == "top-label ECE":  # wider: bins of one cluster may err together
            assert number.upper >= one.upper
        else:
            assert number.upper == pytest.approx(one.upper), number.name


def test_labels_chosen_with_known_probability_are_weighed_back():
    p, codes = rows(4000, 3, sharpen=2.0)
    rng = np.random.default_rng(0)
    chance = np.where(p.max(axis=1) > 0.6, 0.2, 0.8)
    kept = rng.random(4000) < chance
    whole = values(hm.familiar_numbers(p, LeafCodes(codes), tree=TREE))
    part = hm.familiar_numbers(
        p[kept], LeafCodes(codes[kept]), tree=TREE, label_probability=chance[kept]
    )
    plain = values(hm.familiar_numbers(p[kept], LeafCodes(codes[kept]), tree=TREE))
    for number in part.numbers:
        assert number.lower <= whole[number.name] <= number.upper, number.name
    off = [abs(one["accuracy, leaves"] - whole["accuracy, leaves"]) for one in (plain, part)]
    assert off[0] > 3 * off[1]


def test_labels_above_the_leaves_count_where_they_tell():
    p = np.tile([0.4, 0.3, 0.1, 0.1, 0.1], (4, 1))
    found = by_name(hm.familiar_numbers(p, ["none", "milder", "survived", "died"], tree=TREE))
    assert (found["accuracy, level 1"].value, found["accuracy, level 1"].n) == (0.75, 4)
    assert (found["accuracy, level 2"].value, found["accuracy, level 2"].n) == (2 / 3, 3)
    assert (found["accuracy, leaves"].value, found["accuracy, leaves"].n) == (0.5, 2)
    logs = -np.log([0.4, 0.7, 0.9, 0.1])
    assert found["log loss"].value == pytest.approx(logs.mean())
    assert found["Brier score"].n == 2
    # Paths: none 3 of 3 + 3, milder 2 of 3 + 2, survived 1 of 3 + 1, died 0 of 3 + 1.
    assert found["hierarchical F1"].value == pytest.approx(2 * 6 / (6 + 5 + 4 + 4))


def test_numbers_of_leaves_are_left_out_where_no_label_is_a_leaf():
    found = hm.familiar_numbers([[0.2] * 5] * 3, ["milder", "major", "milder"], tree=TREE)
    assert [number.name for number in found.numbers] == [
        "accuracy, level 1",
        "accuracy, level 2",
        "log loss",
        "hierarchical F1",
    ]


def test_accuracy_has_the_interval_of_wilson():
    tree = hm.LabelTree.flat(["a", "b"])
    for right in (0, 7, 20):
        found = hm.familiar_numbers(
            [[0.9, 0.1]] * 20, ["a"] * right + ["b"] * (20 - right), tree=tree
        )
        accuracy = found.numbers[0]
        z = 1.959963984540054
        share = right / 20
        middle = (share + z * z / 40) / (1 + z * z / 20)
        radius = z * math.sqrt(share * (1 - share) / 20 + (z / 40) ** 2) / (1 + z * z / 20)
        assert accuracy.lower == pytest.approx(middle - radius, abs=1e-12)
        assert accuracy.upper == pytest.approx(middle + radius, abs=1e-12)


@pytest.mark.seconds
@pytest.mark.parametrize("sharpen", [1.0, 1.7])
def test_intervals_cover_the_population_as_often_as_they_say(sharpen):
    # Against 400,000 rows; 300 windows of 400, so that a share of 0.95 has an error of 0.013.
    truth = values(hm.familiar_numbers(*_coded(400_000, 99, sharpen), tree=TREE))
    inside = dict.fromkeys(NAMES, 0)
    for seed in range(300):
        for number in hm.familiar_numbers(*_coded(400, seed, sharpen), tree=TREE).numbers:
            inside[number.name] += number.lower <= truth[number.name] <= number.upper
    assert min(inside.values()) >= 0.91 * 300, inside


def _coded(n, seed, sharpen):
    p, codes = rows(n, seed, sharpen=sharpen)
    return p, LeafCodes(codes)


def test_an_audit_carries_them_when_asked_and_reads_them_back():
    p, codes = rows(200, 4)
    shared = {"tree": TREE, "utilities": [hm.TopK(1)], "bounds": None}
    plain = hm.audit(p, LeafCodes(codes), **shared)
    assert plain.familiar is None
    assert "familiar" not in plain.to_dict()
    result = hm.audit(p, LeafCodes(codes), familiar=True, **shared)
    assert result.familiar == hm.familiar_numbers(p, LeafCodes(codes), tree=TREE)
    assert hm.AuditResult.from_dict(result.to_dict()).familiar == result.familiar
    assert "classwise ECE" in result._repr_html_()


def test_every_number_says_what_it_hides():
    p, codes = rows(50, 5)
    found = hm.familiar_numbers(p, LeafCodes(codes), tree=TREE)
    frame = found.to_frame()
    assert frame["hides"].str.len().min() > 20
    assert (frame["lower"] <= frame["value"]).all()
    assert (frame["value"] <= frame["upper"]).all()
    assert repr(found).startswith("FamiliarNumbers(accuracy, level 1 0.")
