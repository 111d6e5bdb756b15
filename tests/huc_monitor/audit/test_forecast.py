"""Forecasts before labels: worked by hand, identities, and coverage where the assumption holds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import huc_monitor as hm
from huc_monitor.audit.decomposition import decompose
from huc_monitor.audit.forecast import Forecast, ScoreGaps, residuals
from huc_monitor.audit.gaps import Grid, Places, fit_gaps, rake
from huc_monitor.tree.labels import LeafCodes

TREE = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
PAIR = hm.LabelTree.flat(["a", "b"])


def sure(p, n):
    return np.tile([p, 1 - p], (n, 1))


def test_two_ranges_are_corrected_apart_and_weighted_by_the_window():
    # Scores 0.6 are right half of the time, scores 0.9 always.
    past = np.concatenate([sure(0.6, 100), sure(0.9, 100)])
    y = ["a", "b"] * 50 + ["a"] * 100
    window = np.concatenate([sure(0.6, 30), sure(0.9, 10)])
    (found,) = hm.forecast(window, past, y, tree=PAIR, utilities=hm.TopK(1))
    assert found.score == pytest.approx(0.75 * 0.6 + 0.25 * 0.9)
    assert found.value == pytest.approx(0.75 * 0.5 + 0.25 * 1.0)
    # Each range is corrected exactly, so nothing is left for the shift to act on.
    assert found.shift == pytest.approx(0.0, abs=1e-12)
    # Only the first range varies: outcome 0.25, of 100 audited rows and of 30 window rows. Two of
    # 200 degrees of freedom are gone. The audited rows are worth 1 / moved, weighted as the window.
    moved, free = (0.75**2 + 0.25**2) / 100, 198 / 200
    square = (0.75**2 * 0.25 / 100 + 0.75 * 0.25 / 40) / free
    floor = np.log(20) * (moved**2 + 1 / 40**2)
    t = stats.t.ppf(0.975, free / moved)
    assert found.sampling == pytest.approx(t * np.sqrt(square + floor), rel=1e-6)


def test_residuals_are_realised_minus_predicted_utility():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], 50)
    y = rng.integers(0, 3, 50)
    utility = hm.Payoff("pay", {"lion": 1, "lynx": -0.5, "dog": 0.2})
    (rows,) = decompose(p, LeafCodes(y), tree=TREE, utilities=[utility])
    values = utility.values(p, tree=TREE)
    wanted = values[np.arange(50), y] - (p * values).sum(axis=1)
    assert residuals(rows) == pytest.approx(wanted)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_a_window_with_the_audited_rows_is_forecast_at_their_realised_utility(seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([1, 1, 1], 120)
    y = rng.integers(0, 3, 120)
    (found,) = hm.forecast(p, p, LeafCodes(y), tree=TREE, utilities=hm.TopK(1))
    assert found.value == pytest.approx((p.argmax(axis=1) == y).mean())
    assert found.lower <= found.value <= found.upper


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_the_shift_term_bounds_what_is_left_under_any_step_density(seed):
    """Summation by parts, checked against the sum itself."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([1, 1, 1], 150)
    (rows,) = decompose(p, LeafCodes(rng.integers(0, 3, 150)), tree=TREE, utilities=[hm.TopK(1)])
    gaps = ScoreGaps.of(rows, np.empty(0), likeliest=p.argmax(axis=1))
    window, leaves = rng.beta(*rng.uniform(0.5, 4, 2), 80), rng.integers(0, 3, 80)
    found = gaps.forecast(window, leaves)
    grid = Grid.of(gaps.scores, gaps.leaves, gaps.weights, gaps.n)
    mine, theirs = grid.places(gaps.scores, gaps.leaves), grid.places(window, leaves)
    wanted = theirs.table(np.full(80, 1 / 80))
    audited = mine.table(gaps.weights)
    along, across = rake(audited, wanted)
    density = along[mine.ranges] * across[mine.groups]
    fitted = mine.at(*fit_gaps(mine, gaps.gaps, gaps.weights, gaps.n)[:2])
    left = np.sum(density * gaps.weights * (gaps.gaps - fitted))
    assert abs(left) <= found.shift + 1e-12


def test_leaves_and_slopes_are_those_of_a_ridge_regression_with_free_ranges():
    """Solved here with all columns in one system, the penalty found by trying every one."""
    rng = np.random.default_rng(5)
    n, shape = 300, (4, 3)
    places = Places(rng.integers(0, 4, n), rng.integers(0, 3, n), rng.normal(size=n), shape)
    weights = rng.uniform(0.5, 1.5, n)
    weights /= weights.sum()
    gaps = np.array([0.2, 0.0, -0.1])[places.groups] + rng.normal(size=n) * 0.3
    one = np.eye(3)[places.groups]
    columns = np.hstack([np.eye(4)[places.ranges], one, one * places.place[:, None]])
    product = columns.T @ (weights[:, None] * columns)
    best = (np.inf, np.empty(0), 0.0)
    for penalty in [*10.0 ** np.arange(-1, 4.5, 0.5), 1e15]:
        inverse = np.linalg.inv(product + np.diag([0.0] * 4 + [penalty / n] * 6))
        found = inverse @ columns.T @ (weights * gaps)
        error = weights @ (gaps - columns @ found) ** 2
        fitted = np.trace(inverse @ product)
        best = min(best, (error / (1 - fitted / n) ** 2, found, fitted))
    by_range, by_leaf, n_fitted = fit_gaps(places, gaps, weights, n)
    assert places.at(by_range, by_leaf) == pytest.approx(columns @ best[1], abs=1e-8)
    assert n_fitted == pytest.approx(best[2], abs=1e-6)


def counted_misses(n_past, n_new, rate, level):
    """How often a bound misses where scores are alike and so many are wrong: a sum, no draws."""
    missed, past, alike = 0.0, np.full(n_past, 0.9), np.zeros(n_past, dtype=int)
    for wrong in range(int(stats.binom.ppf(1 - 1e-7, n_past, rate)) + 1):
        gaps = np.where(np.arange(n_past) < wrong, -0.9, 0.1)
        even = np.full(n_past, 1 / n_past)
        audited = ScoreGaps(hm.TopK(1), 1.0, past, alike, gaps, even, limits=(0.0, 1.0))
        found = audited.forecast(np.full(n_new, 0.9), confidence_level=level)
        least = np.ceil(n_new * (1 - found.upper) - 1e-9)
        most = np.floor(n_new * (1 - found.lower) + 1e-9)
        held = stats.binom.cdf(most, n_new, rate) - stats.binom.cdf(least - 1, n_new, rate)
        missed += stats.binom.pmf(wrong, n_past, rate) * (1 - held)
    return missed


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize(
    ("n_past", "n_new"), [(10, 5_000), (200, 20), (300, 5_000), (1_000, 10), (2_000, 2_000)]
)
def test_bounds_hold_whether_errors_are_common_rare_or_never_seen(n_past, n_new, level):
    rates = np.geomspace(0.1 / max(n_past, n_new), 0.1, 7)
    missed = [counted_misses(n_past, n_new, rate, level) for rate in rates]
    assert max(missed) <= 1.05 * (1 - level)


def test_rows_without_an_error_say_no_more_than_their_number():
    """What never happened in m rows may happen in log(20) / m of them."""
    (found,) = hm.forecast(sure(0.6, 1_000_000), sure(0.6, 5), ["a"] * 5, tree=PAIR)
    assert found.sampling == pytest.approx(stats.t.ppf(0.975, 4) * np.sqrt(np.log(20)) / 5, rel=0.1)
    assert (found.value, found.upper) == (1.0, 1.0)
    for n in (50, 500):
        (found,) = hm.forecast(sure(0.6, 10**6), sure(0.6, n), ["a"] * n, tree=PAIR)
        assert found.upper - found.lower > np.log(20) / n


def test_clusters_without_an_error_count_as_one_row_each():
    """100 rows of 20 users say what 20 rows say, also where the model is sure and right."""
    for p in (0.6, 1.0):
        given = {"tree": PAIR, "utilities": hm.TopK(1)}
        users = np.repeat(np.arange(20), 5)
        (many,) = hm.forecast(sure(p, 9_000), sure(p, 100), ["a"] * 100, clusters=users, **given)
        assert many.rare == pytest.approx(5.0)
        (few,) = hm.forecast(sure(p, 1_800), sure(p, 20), ["a"] * 20, **given)
        assert many.sampling == pytest.approx(few.sampling, rel=0.05)


def test_what_labels_seldom_tell_may_bring_more_than_was_seen():
    leaf = hm.LevelCorrectness(level=2)
    rows, labels = [[0.5, 0.3, 0.2]] * 100, ["lion"] * 30 + ["lynx"] * 10 + ["cat"] * 40
    (found,) = hm.forecast(rows, rows, [*labels, *["dog"] * 20], tree=TREE, utilities=leaf)
    assert found.rare == pytest.approx(2.0), "a cat's label goes on in half of the cases"


def test_raking_moves_audited_rows_to_the_windows_ranges_and_leaves():
    audited = np.array([[0.3, 0.1], [0.2, 0.4]])
    along, across = rake(audited, np.outer([0.7, 0.3], [0.2, 0.8]))
    moved = along[:, None] * audited * across
    assert moved.sum(axis=1) == pytest.approx([0.7, 0.3])
    assert moved.sum(axis=0) == pytest.approx([0.2, 0.8], abs=0.01)


def test_a_leaf_at_scores_at_which_it_was_never_audited_is_not_known():
    """Scores of 0.6 were all "a" so far, those of 0.9 all "b"; now most are "b" with 0.6."""
    low, high = [[0.6, 0.4]], [[0.1, 0.9]]
    y = ["a"] * 120 + ["b"] * 80 + ["b"] * 190 + ["a"] * 10
    window = [[0.4, 0.6]] * 99 + high
    (found,) = hm.forecast(window, low * 200 + high * 200, y, tree=PAIR, utilities=hm.TopK(1))
    assert found.outside == pytest.approx(0.99)
    assert found.shift <= 1.0


def test_a_leaf_that_errs_by_itself_is_corrected_where_its_share_moves():
    """All scores are 0.6; "a" is right in 80 %, "b" in 40 %, and the window has more of "b"."""
    past = np.concatenate([sure(0.6, 500), sure(0.4, 500)])
    y = ["a"] * 400 + ["b"] * 100 + ["b"] * 200 + ["a"] * 300
    window = np.concatenate([sure(0.6, 40), sure(0.4, 160)])
    (found,) = hm.forecast(window, past, y, tree=PAIR, utilities=hm.TopK(1))
    assert found.score == pytest.approx(0.6)
    assert found.value == pytest.approx(0.2 * 0.8 + 0.8 * 0.4, abs=0.002)
    assert found.lower < 0.48 < found.upper


def test_a_leaf_that_was_never_predicted_counts_with_the_range_of_utility():
    past, y = sure(0.6, 100), ["a", "b"] * 50
    window = np.concatenate([sure(0.6, 30), sure(0.4, 10)])
    (found,) = hm.forecast(window, past, y, tree=PAIR, utilities=hm.TopK(1))
    assert found.outside == pytest.approx(0.25)


def test_seldom_predicted_leaves_are_corrected_together():
    """Of three leaves one has enough rows; the other two share a group with any new one."""
    leaves = np.repeat([0, 1, 3], [100, 10, 9])
    grid = Grid.of(np.linspace(0, 1, 119), leaves, np.full(119, 1 / 119), 119.0)
    assert grid.places(np.zeros(5), np.arange(5)).groups.tolist() == [0, 1, 1, 1, 1]


def test_scores_beyond_the_audited_ones_widen_the_bound_by_the_range_of_utility():
    past, y = sure(0.6, 100), ["a", "b"] * 50
    (rows,) = decompose(past, y, tree=PAIR, utilities=[hm.TopK(1)])
    gaps = dataclasses.replace(ScoreGaps.of(rows, np.empty(0)), limits=(-9.0, 9.0))
    near, far = (gaps.forecast(np.full(50, score)) for score in (0.6, 0.8))
    assert (near.outside, far.outside) == (0.0, 1.0)
    assert far.upper - far.value == pytest.approx(near.upper - near.value + 1.0)
    (told,) = hm.forecast(sure(0.8, 50), past, y, tree=PAIR, utilities=hm.TopK(1))
    assert (told.lower, told.value, told.upper) == pytest.approx((0.0, far.value, 1.0))


def test_labels_bought_with_known_probability_are_weighted_back():
    past = sure(0.6, 400)
    y = np.array(["a"] * 300 + ["b"] * 100)  # of wrong ones, all are labelled; of right ones a half
    bought = np.concatenate([np.arange(0, 300, 2), np.arange(300, 400)])
    pi = np.where(y == "a", 0.5, 1.0)[bought]
    (found,) = hm.forecast(
        sure(0.6, 50),
        past[bought],
        y[bought],
        tree=PAIR,
        utilities=hm.TopK(1),
        label_probability=pi,
    )
    assert found.value == pytest.approx(0.75)
    assert found.n_audited < 250


@pytest.mark.parametrize("pi", [[0.5, 0.0], [0.5, 1.5], [0.5], ["a", "b"]])
def test_label_probabilities_that_are_none_are_refused(pi):
    with pytest.raises(hm.InvalidInputError, match="label_probability"):
        hm.forecast(
            sure(0.6, 2), sure(0.6, 2), ["a", "b"], tree=PAIR, label_probability=np.array(pi)
        )


def test_a_judged_forecast_says_whether_its_bound_held_and_survives_json():
    (found,) = hm.forecast(sure(0.9, 50), sure(0.9, 100), ["a"] * 70 + ["b"] * 30, tree=PAIR)
    held, failed = found.judged(-0.2, 50), found.judged(-0.9, 50)
    assert (held.realised, held.inside, failed.inside) == (pytest.approx(0.7), True, False)
    assert Forecast.from_dict(held.to_dict()) == held
    # With few labels so far, the same distance may be chance.
    edge = found.upper - found.score + 0.01
    assert not found.judged(edge, 50).inside
    assert found.judged(edge, 10).inside


def test_one_error_among_few_labels_of_a_long_window_is_no_miss():
    p, y = sure(0.999, 20_000), np.where(np.arange(20_000) % 1_000, "a", "b")
    (found,) = hm.forecast(sure(0.999, 5_000), p, y, tree=PAIR, utilities=hm.TopK(1))
    assert found.judged(0.99 - found.score, 100).inside
    assert not found.judged(0.99 - found.score, 5_000).inside
    assert not found.judged(0.9 - found.score, 100).inside


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "alike", "rate"), [(20, 1.0, 0.01), (20, 0.5, 0.1), (5, 0, 0.002)]
)
def test_bounds_hold_where_rows_of_a_user_err_together(size, alike, rate):
    """400 windows of 2,000 rows; without a floor, errors of whole users were missed in half."""
    rng, utility, held = np.random.default_rng(8), hm.TopK(1), []

    def draw(n):
        users = np.repeat(np.arange(n // size), size)
        own = rng.random(n // size)[users]
        errs = np.where(rng.random(n) < alike, own, rng.random(n)) < rate
        return np.where(errs, "b", "a"), users

    for _ in range(400):
        (y, users), (new, _) = draw(2_000), draw(4_000)
        (found,) = hm.forecast(
            sure(1 - rate, 4_000),
            sure(1 - rate, 2_000),
            y,
            tree=PAIR,
            utilities=utility,
            clusters=users,
        )
        held.append(found.lower - 1e-12 <= (new == "a").mean() <= found.upper + 1e-12)
    assert np.mean(held) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 400)


def test_bounds_hold_where_scores_move_and_what_follows_from_them_does_not():
    """400 windows of an overconfident model whose scores are tilted; 95 % wanted, 3 sd allowed."""
    rng = np.random.default_rng(3)
    held = []
    for _ in range(400):
        past, window = rng.beta(4, 2, 800), rng.beta(6, 2, 300)
        truth = lambda s: 0.3 + 0.5 * s  # noqa: E731
        y = np.where(rng.random(800) < truth(past), "a", "b")
        p = np.stack([past, 1 - past], axis=1)
        (found,) = hm.forecast(
            np.stack([window, 1 - window], axis=1),
            p,
            y,
            tree=PAIR,
            utilities=hm.SubtreeIndicator(node="a"),
        )
        realised = (rng.random(300) < truth(window)).mean()
        held.append(found.judged(realised - found.score, 300).inside)
    assert np.mean(held) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 400)


def test_bounds_hold_where_predicted_leaves_move_and_what_follows_from_them_does_not():
    """Eight leaves that err by themselves, in other shares in each of 300 windows."""
    rng = np.random.default_rng(4)
    effect, shares = rng.normal(size=(2, 8)) * 0.15, rng.dirichlet(np.ones(8))
    utility, held, errors = hm.TopK(1), [], []

    def draw(n, a, shares):
        scores, leaves = rng.beta(a, 2, n), rng.choice(8, n, p=shares)
        mean = 0.2 + 0.6 * scores + effect[0, leaves] + effect[1, leaves] * (scores - 0.6)
        return scores, leaves, (rng.random(n) < mean.clip(0.02, 0.98)).astype(float)

    for _ in range(300):
        moved = shares * np.exp(rng.normal(size=8))
        past, leaves, y = draw(800, 4, shares)
        new, new_leaves, realised = draw(400, 6, moved / moved.sum())
        order = np.argsort(past)
        gaps = ScoreGaps(
            utility, 1.0, past[order], leaves[order], (y - past)[order], np.full(800, 1 / 800)
        )
        found = gaps.forecast(new, new_leaves)
        blind = dataclasses.replace(gaps, leaves=leaves * 0).forecast(new)
        held.append(found.lower <= realised.mean() <= found.upper)
        errors.append([abs(item.value - realised.mean()) for item in (found, blind)])
    assert np.mean(held) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 300)
    mine, without = np.mean(errors, axis=0)
    assert mine < 0.9 * without


def test_labels_that_stop_early_are_made_up_for_by_those_that_go_on():
    """Half of the cats have a deeper label: three lions to a lynx, which stands for all cats."""
    leaf = hm.LevelCorrectness(level=2)
    rows, window = [[0.5, 0.3, 0.2]] * 100, [[0.5, 0.3, 0.2]] * 40
    stopped = ["lion"] * 30 + ["lynx"] * 10 + ["cat"] * 40 + ["dog"] * 20
    full = ["lion"] * 60 + ["lynx"] * 20 + ["dog"] * 20
    one, two = (hm.forecast(window, rows, y, tree=TREE, utilities=leaf)[0] for y in (stopped, full))
    assert one.score == pytest.approx(0.5)
    assert one.value == pytest.approx(0.6)
    assert two.value == pytest.approx(0.6)
    assert one.sampling > two.sampling, "less is known"


def test_a_utility_that_no_label_tells_is_refused_by_name():
    both = [hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2)]
    rows = [[0.5, 0.3, 0.2]] * 100
    labels = ["cat"] * 60 + ["dog"] * 40
    (found,) = hm.forecast(rows, rows, labels, tree=TREE, utilities=both[0])
    assert found.value == pytest.approx(0.6)
    with pytest.raises(hm.HUCError, match="all of them stop above for level2"):
        hm.forecast(rows, rows, labels, tree=TREE, utilities=both)


def test_a_forecast_stays_within_the_values_that_the_utility_can_have():
    rng = np.random.default_rng(0)
    tree = hm.LabelTree.flat(list("abcd"))
    p = rng.dirichlet([1] * 4, 200)
    one = np.array([[0.4, 0.3, 0.2, 0.1]])
    utilities = [
        hm.LevelCorrectness(level=1),
        hm.Payoff("cost", {"a": -0.5, "b": -0.25}),
        hm.RankPayoff("search", payoffs=[1, 0.5, 0.25]),
        hm.SelectiveReport(0.4, 0.6, leaf_wrong=-0.5, group_wrong=-0.5),
        hm.CustomUtility("brier", lambda p: 2 * p - (p**2).sum(1, keepdims=True)),
    ]
    limits = [(0, 1), (-0.5, 0), (0.25, 1), (-0.5, 1), (-1, 1)]
    for label in "abcd":  # the only one that is known
        found = hm.forecast(p, one, [label], tree=tree, utilities=utilities)
        for item, (least, most) in zip(found, limits, strict=True):
            assert least <= item.lower <= item.value <= item.upper <= most
            assert least in (item.lower, item.value) or most in (item.upper, item.value)


def test_a_forecast_at_the_end_of_the_range_is_judged_by_its_whole_radius():
    told = {"n": 100, "n_audited": 50.0, "score": 0.9, "confidence_level": 0.95}
    parts = {"shift": 0.1, "sampling": 0.1, "variance": 0.04}
    found = Forecast(utility="u", value=0.95, lower=0.75, upper=1.0, **told, **parts)
    # Of 10 labels nine gaps are large: more than the utility can be, by chance.
    assert found.judged(0.12, 10).inside
    assert not found.judged(-0.3, 100).inside
