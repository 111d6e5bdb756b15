"""Groups: how often rows count, in one sample and in the difference of two; scans of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor._kernels import sort_scores
from huc_monitor.audit.decomposition import sort_rows
from huc_monitor.audit.scan import Groups, scan_utility, second_moments

ONES, SOME = np.ones(3, dtype=np.uint8), np.array([1, 0, 1, 1], dtype=np.uint8)


def test_without_row_weights_every_row_counts_once():
    groups = Groups.of([ONES], None)
    assert (groups.mass, groups.unit, groups.total, groups.n_rare) == (3.0, 1.0, 3.0, 3.0)
    assert groups.amounts.size == 0
    assert groups.factors.tolist() == [1.0]
    assert groups.scale == 2.0**59  # 61 bits, less two for three rows


def test_row_weights_are_counted_in_a_unit():
    groups = Groups.of([ONES], np.array([0.5, 1.0, 1.5]))
    assert groups.amounts.tolist() == [1.0, 2.0, 3.0]
    assert (groups.mass, groups.unit, groups.total) == (6.0, 0.5, 3.0)
    assert Groups.counted([ONES], groups.repeats).unit == 1.0


def test_labels_chosen_with_known_chances_weigh_one_over_them():
    chances = np.array([0.5, 0.25, 0.5])
    plain = Groups.of([ONES], None, chances)
    weighted = Groups.of([ONES], np.array([1.0, 2.0, 3.0]), chances)
    assert plain.times.tolist() == [1.0, 1.0, 1.0]
    assert weighted.times.tolist() == [1.0, 2.0, 3.0]
    assert (plain.amounts * plain.unit).tolist() == [2.0, 4.0, 2.0]
    assert (weighted.amounts * weighted.unit).tolist() == [2.0, 8.0, 6.0]
    assert Groups.of([ONES], None, np.full(3, 0.5)).amounts.size == 0


def test_sizes_of_weighted_and_chosen_rows_are_those_of_the_rows():
    weighted = Groups.of([ONES], np.array([0.5, 1.0, 1.5]))
    assert weighted.squared() == 12.0  # (1 + 2 + 3) units of half a row
    chosen = Groups.of([ONES], None, np.array([0.5, 0.25, 0.5]))
    assert chosen.squared() == pytest.approx((4 + 16 + 4) / chosen.unit**2)
    heavier = Groups.of([ONES], np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.25, 0.5]))
    assert heavier.squared() == pytest.approx((4 + 64 / 2 + 36 / 3) / heavier.unit**2)
    parts = heavier.divisors * heavier.sizes().n_apart / heavier.mass
    assert parts.tolist() == pytest.approx([1.0, 2.0, 3.0])
    both = Groups.difference(chosen, Groups.of([SOME], None, np.array([0.5, 1.0, 1.0, 0.25])))
    assert sorted(both.totals) == [3.0, 4.0]


def test_samples_with_row_weights_are_as_large_as_their_weights():
    weighted, plain = Groups.of([ONES], np.array([0.5, 1.0, 1.5])), Groups.of([SOME], None)
    both = Groups.difference(weighted, plain)
    assert both.unit == 0.5
    assert both.totals == [3.0, 4.0]


def test_a_multiplier_counts_as_the_rows_that_a_row_stands_for():
    repeats, chances = np.array([1.0, 4.0, 9.0]), np.array([1.0, 0.5, 1.0])
    assert Groups.of([ONES], None).roots.size == 0
    assert Groups.of([ONES], repeats).roots.tolist() == [1.0, 2.0, 3.0]
    chosen = Groups.of([ONES], repeats, chances)  # amounts 1, 8, 9 of 1, 4, 9 rows
    np.testing.assert_allclose(chosen.roots * chosen.unit, [1.0, 4.0, 3.0])
    together = Groups.of([ONES], repeats, None, np.array([7, 7, 8]))
    assert together.roots.tolist() == [1.0, 4.0, 9.0], "one multiplier for all rows of a cluster"


def test_sizes_of_one_sample_count_its_chosen_rows_and_its_clusters():
    chosen = Groups.of([ONES], None, np.array([0.5, 0.25, 0.5])).sizes()
    assert chosen.n == pytest.approx((2 + 4 + 2) ** 2 / (4 + 16 + 4))
    assert (chosen.count, chosen.chosen) == (0, True)
    pair = Groups.of([ONES], None, None, np.array([7, 7, 8])).sizes()
    assert (pair.n, pair.n_apart, pair.count) == pytest.approx((9 / 5, 3.0, 2))
    assert pair.n_largest == 1.5


def test_sizes_of_two_samples_count_the_clusters_of_each():
    # Variances of the two means: (2/3)^2 + (1/3)^2 by clusters, and 4 rows of (1/4)^2.
    first = Groups.of([ONES], None, None, np.array([7, 7, 8]))
    second = Groups.of([SOME], None, None, np.array([1, 2, 3, 4]))
    found = Groups.difference(first, second).sizes()
    assert found.n == pytest.approx(1 / (4 / 9 + 1 / 9 + 1 / 4))
    assert found.n_apart == pytest.approx(12 / 7)
    assert found.count == 6


def test_the_mean_of_a_number_per_row_has_the_variance_of_its_deviations():
    terms = np.array([1.0, 2.0, 6.0])
    assert Groups.of([ONES], None).mean(terms) == pytest.approx((3.0, (4 + 1 + 9) / 9))
    mean, variance = Groups.of([ONES], np.array([1.0, 2.0, 1.0])).mean(terms)
    assert (mean, variance) == pytest.approx((2.75, (1.75**2 + 2 * 0.75**2 + 3.25**2) / 16))


def test_windows_joined_count_rows_without_weights_once():
    plain, weighted = Groups.of([ONES], None), Groups.of([SOME], np.array([0.5, 1.0, 1.5, 0.5]))
    both = Groups.joined([plain, weighted])
    assert both.weights[0].tolist() == [1, 1, 1, 1, 0, 1, 1]
    assert (both.amounts * both.unit).tolist() == [1.0, 1.0, 1.0, 0.5, 1.0, 1.5, 0.5]
    assert both.total == 6.5
    assert Groups.joined([plain, plain]).repeats.size == 0


def test_windows_joined_keep_the_even_chance_of_their_labels():
    tenth, half = (Groups.of([ONES], None, np.full(3, chance)) for chance in (0.1, 0.5))
    both = Groups.joined([tenth, half.take(np.arange(2)), Groups.of([ONES], None)])
    assert both.label_probability(8) == pytest.approx([0.1] * 3 + [0.5] * 2 + [1.0] * 3)
    assert both.amounts * both.unit == pytest.approx([10.0] * 3 + [2.0] * 2 + [1.0] * 3)
    assert both.total == 8
    alike = Groups.joined([half, half])
    assert (alike.evenly, alike.repeats.size) == (0.5, 0)
    apart = Groups.difference(half, tenth)
    assert (apart.repeats.size, apart.totals) == (0, [3.0, 3.0])


def test_windows_joined_keep_their_clusters_and_all_other_rows_stay_alone():
    clustered = Groups.of([ONES], None, None, np.array([7, 7, 8]))
    plain = Groups.of([SOME], None)
    keys = Groups.joined([clustered, plain, plain]).clusters
    assert keys[:3].tolist() == [7, 7, 8]
    assert np.unique(keys).size == 2 + 4 + 4


def test_clusters_of_one_row_each_are_no_clusters_unless_rows_have_weights():
    alone, pair = np.array([5, 6, 7]), np.array([5, 5, 7])
    assert Groups.of([ONES], None, None, alone).simplified().clusters.size == 0
    assert Groups.of([ONES], None, None, pair).simplified().clusters.size == 3
    assert Groups.of([ONES], np.array([1.0, 2.0, 3.0]), None, alone).simplified().clusters.size == 3


def test_a_subset_of_rows_keeps_their_weights_and_unit():
    weighted = Groups.of([ONES], np.array([0.5, 1.0, 1.5]))
    chosen = weighted.take(np.array([2, 0]))
    assert (chosen.amounts.tolist(), chosen.unit, chosen.total) == ([3.0, 1.0], 0.5, 2.0)
    assert Groups.of([SOME], None).take(np.array([1, 2])).weights[0].tolist() == [0, 1]


@pytest.mark.parametrize("repeats", [None, np.array([2.0, 2.0, 2.0])])
def test_sums_over_two_samples_are_the_difference_of_their_means(repeats):
    after, before = Groups.of([ONES], repeats), Groups.of([SOME], None)
    both = Groups.difference(after, before)
    values = np.array([0.7, 0.1, -0.4, 0.2, 0.3, -0.2, 0.5])
    expected = values[4:].mean() - values[:4].mean()
    assert (both.amounts * values).sum() / both.mass == pytest.approx(expected)
    assert both.sample.tolist() == [1, 1, 1, 1, 0, 0, 0]
    a, b = after.total, before.total
    assert both.total == pytest.approx(1 / (1 / a + 1 / b))
    assert both.n_rare == pytest.approx(1 / (both.total * (a**-2 + b**-2)))


def test_the_integer_sums_of_two_samples_leave_room_for_both():
    # Masses 4 and 4: m = 2, and the amounts add up to 2m = 4 in absolute value.
    both = Groups.difference(Groups.of([SOME], None), Groups.of([SOME], None))
    assert np.abs(both.amounts).sum() == 4.0
    assert both.scale == 2.0**59


@pytest.mark.parametrize("seed", range(4))
def test_what_a_scan_says_of_its_intervals_are_sums_over_their_rows(seed):
    rng = np.random.default_rng(seed)
    n, tree = 40, hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    pay = hm.Payoff("pay", {"a": -1, "b": 1, "c": 0.5, "d": 0.25})
    p, labels = rng.dirichlet(np.ones(4), n), rng.integers(0, 4, n)
    (rows,) = hm.decompose(p, labels, tree=tree, utilities=[pay])
    inside = (rng.random(n) < 0.7).astype(np.uint8)
    repeats = rng.integers(0, 3, n) + 0.5
    for groups in (Groups.of([inside], None), Groups.of([inside], repeats)):
        found = scan_utility(sort_rows(rows, groups.scale), groups)
        counts = inside * (groups.repeats * groups.unit if groups.repeats.size else 1.0)
        columns = rows.to_frame()[[tree.branches[v] for v in rows.relevant]].to_numpy()

        def moments(column, counts=counts, columns=columns, found=found):
            between = (rows.scores >= found.low[0, column]) & (rows.scores <= found.high[0, column])
            weights = counts * between
            return weights @ columns / (n if counts.max() == 1 else repeats.sum()), weights.sum()

        worst = int(np.argmax(np.abs(found.moment[0, :-1])))
        np.testing.assert_allclose(found.on_worst[0], moments(worst)[0], atol=1e-12)
        np.testing.assert_allclose(found.on_uc[0], moments(-1)[0], atol=1e-12)
        assert found.on_worst[0, worst] == found.moment[0, worst]
        assert found.on_uc[0].sum() == pytest.approx(found.moment[0, -1])
        assert found.size[0] == pytest.approx(counts.sum())
        for column in range(columns.shape[1] + 1):
            assert found.n_inside[0, column] == pytest.approx(moments(column)[1])
        squares = counts @ columns**2 / groups.total
        np.testing.assert_allclose(
            second_moments(sort_rows(rows, groups.scale), groups)[0], squares, atol=1e-12
        )


def test_a_scan_counts_rows_and_not_what_chosen_labels_weigh():
    p = np.array([[0.1, 0.9], [0.4, 0.6], [0.8, 0.2]])
    (rows,) = hm.decompose(p, [0, 1, 0], tree=hm.LabelTree.flat(["a", "b"]), utilities=[hm.TopK(1)])
    chosen = Groups.of([ONES], np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.25, 0.5]))
    found = scan_utility(sort_rows(rows, chosen.scale), chosen)
    assert found.size.tolist() == [6.0]
    inside = (rows.scores >= found.low[0, 0]) & (rows.scores <= found.high[0, 0])
    assert found.n_inside[0, 0] == (np.array([1.0, 2.0, 3.0]) * inside).sum()


@pytest.mark.parametrize("utility", [hm.TopK(1), hm.LevelCorrectness(level=1)])
@pytest.mark.parametrize("n", [1, 1024, 2100])
def test_many_subgroups_at_once_are_scanned_as_each_alone(n, utility, monkeypatch):
    rng = np.random.default_rng(n)
    tree = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    p = rng.integers(1, 4, (n, 4)) / 1.0  # few values, so that scores tie
    p /= p.sum(axis=1, keepdims=True)
    (rows,) = hm.decompose(p, rng.integers(0, 4, n), tree=tree, utilities=[utility])
    weights = [(rng.random(n) < share).astype(np.uint8) for share in rng.random(70)]
    weights[1:1] = [rng.uniform(-1.0, 1.0, n), rng.integers(0, 2, n) * 0.5]
    repeats = rng.integers(1, 4, n) * 1.0
    together = Groups.of(weights, repeats).sized()
    ordered = sort_rows(rows, together.scale)
    found, squares = scan_utility(ordered, together), second_moments(ordered, together)
    monkeypatch.setattr("huc_monitor._kernels.scan._MOST_HELD", 0)  # as where cells are many
    np.testing.assert_array_equal(second_moments(ordered, together), squares)
    for c, weight in enumerate(weights):
        alone = Groups.of([weight], repeats)
        one = scan_utility(ordered, alone)
        for name in ("moment", "span", "n_inside", "size", "on_uc", "on_worst"):
            np.testing.assert_array_equal(getattr(found, name)[c], getattr(one, name)[0])
        np.testing.assert_array_equal(squares[c], second_moments(ordered, alone)[0])


_NUMBERS = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.0])


def check_sorted(given):
    order, scores = sort_scores(given)
    expected = np.argsort(given, kind="stable")
    assert order.tolist() == expected.tolist()
    assert scores.tobytes() == given[expected].tobytes()


@given(st.lists(_NUMBERS, max_size=60))
def test_rows_are_sorted_by_score_and_equal_ones_stay_in_order(scores):
    scores = np.array(scores, dtype=np.float64)
    check_sorted(scores)
    check_sorted(np.repeat(scores, 2)[::-1])  # not contiguous


@pytest.mark.parametrize("n", [1, 2047, 2048, 5000, 250_000])
def test_many_rows_are_sorted_by_score(n):
    rng = np.random.default_rng(n)
    for scores in (rng.normal(size=n), rng.integers(-3, 3, n) / 4, np.full(n, 0.3)):
        check_sorted(scores)


@given(st.integers(0, 2**32), st.sampled_from([1e-9, 1e-13, 1e-300]), st.integers(1, 40))
def test_scores_that_differ_in_their_last_digits_only_are_sorted(seed, spread, n_values):
    rng = np.random.default_rng(seed)
    around = rng.choice(rng.random(n_values), 700)
    check_sorted(around + spread * rng.random(700))
    check_sorted(spread * rng.normal(size=700))


def test_utilities_of_equal_scores_have_one_order():
    rng = np.random.default_rng(3)
    tree = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    utilities = [hm.LevelCorrectness(level=level) for level in (1, 2)] + [hm.TopK(1)]
    p = rng.dirichlet(np.ones(4), 500)
    other, deepest, top = hm.decompose(p, p.argmax(axis=1), tree=tree, utilities=utilities)
    first = sort_rows(deepest, 2.0**40)
    known = deepest.scores, first.order, first.scores, first.labels
    shared, alone = sort_rows(top, 2.0**40, known), sort_rows(top, 2.0**40)
    assert shared.order is first.order
    for name in ("order", "scores", "values", "labels"):
        assert getattr(shared, name).tobytes() == getattr(alone, name).tobytes()
    apart = sort_rows(other, 2.0**40, known)
    assert apart.order.tolist() == np.argsort(other.scores, kind="stable").tolist()


def test_a_subgroup_has_the_same_moments_whichever_others_there_are():
    rng = np.random.default_rng(5)
    p, labels = rng.dirichlet(np.ones(4), 80), rng.integers(0, 4, 80)
    tree = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    (rows,) = hm.decompose(p, labels, tree=tree, utilities=[hm.Payoff("pay", {"a": 1, "c": 0.5})])
    some, tilt = (rng.random(80) < 0.5).astype(np.uint8), rng.uniform(-1, 1, 80)

    def scan(weights):
        sides = [Groups.of([w[part] for w in weights], None) for part in (slice(30), slice(30, 80))]
        groups = Groups.difference(sides[1], sides[0])
        return scan_utility(sort_rows(rows, groups.scale), groups).moment

    together = scan([np.ones(80, dtype=np.uint8), some, tilt, some * tilt])
    for c, weights in enumerate([np.ones(80, dtype=np.uint8), some, tilt, some * tilt]):
        np.testing.assert_array_equal(scan([weights])[0], together[c])
    np.testing.assert_allclose(scan([some.astype(np.float64)])[0], together[1], atol=1e-12)
