"""The e-detector: valid by enumeration, right by a slow oracle, the same after a restart."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.audit.scan import Groups
from huc_monitor.detection._betting import _FIRST_SCORES, N_BINS, STAKES, UtilityBets
from huc_monitor.errors import InvalidInputError, UnknownNameError

TREE = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
UTILITIES = [hm.LevelCorrectness(level=1), hm.Payoff("pay", {"lion": 1, "lynx": -1, "dog": 0.5})]
SUBGROUPS = hm.Subgroups.from_reference(
    {"sex": ["f", "m"], "tilt": [0.5, -1.0]}, {"sex": "each"}, weights={"tilt": "tilt"}
)


def load_bench():
    path = Path(__file__).parents[2] / "bench" / "alarms.py"
    spec = importlib.util.spec_from_file_location("bench_alarms", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_alarms"] = module
    spec.loader.exec_module(module)
    return module


def sample(rng, n, n_leaves=3):
    p = rng.dirichlet(np.ones(n_leaves), size=n)
    labels = np.array([rng.choice(n_leaves, p=row) for row in p], dtype=np.int64)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "tilt": rng.uniform(-1, 1, n)})
    return p, labels, frame


def new_detector(tolerance=0.02, **others):
    return hm.EDetector(
        tree=TREE, utilities=UTILITIES, subgroups=SUBGROUPS, tolerance=tolerance, **others
    )


def mean_e_values(detector, p, frame, truth):
    """Exact mean over all label sequences of a batch."""
    total = np.zeros(len(detector.candidates))
    for labels in itertools.product(range(TREE.n_leaves), repeat=len(p)):
        chance = math.prod(truth[i, y] for i, y in enumerate(labels))
        step = copy.deepcopy(detector).update(p, np.array(labels), frame)
        total += chance * step.e_values
    return total


def test_the_worst_row_costs_half_of_an_arms_wealth_and_never_more():
    spreads, tolerance = np.array([0.5, 2.0]), np.array([0.0, 0.1])
    bets = UtilityBets.start(None, spreads, tolerance, memory=1000.0)
    worst = 1.0 - bets.stakes * (spreads + tolerance)[:, None]
    assert worst.min(axis=1) == pytest.approx(0.5)
    assert (bets.stakes > 0).all()
    assert bets.forget == 0.999


@pytest.mark.seconds
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), tolerance=st.sampled_from([0.0, 0.01, 0.2]))
def test_every_candidates_e_value_has_mean_at_most_one_when_calibrated(seed, tolerance):
    rng = np.random.default_rng(seed)
    detector = new_detector(tolerance)
    for size in (_FIRST_SCORES, 7):  # a past, so that intervals are chosen
        detector.update(*sample(rng, size))
    p, _, frame = sample(rng, 4)
    mean = mean_e_values(detector, p, frame, p)
    assert (mean <= 1 + 1e-12).all()
    if tolerance == 0.0:
        assert mean == pytest.approx(1, abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), gap=st.floats(-0.3, 0.3))
def test_every_candidates_e_value_has_mean_at_most_one_at_the_edge_of_the_null(seed, gap):
    # Two leaves, payoff 1 and 0, prediction 1/2, truth 1/2 + gap: the moment is gap, row by row.
    tree = hm.LabelTree.flat(["a", "b"])
    detector = hm.EDetector(
        tree=tree, utilities=[hm.Payoff("pay", {"a": 1})], tolerance=abs(gap), memory=50
    )
    rng = np.random.default_rng(seed)
    p = np.full((300, 2), 0.5)
    detector.update(p, rng.integers(0, 2, 300))
    e_values, chances = [], []
    for labels in itertools.product([0, 1], repeat=5):
        step = copy.deepcopy(detector).update(p[:5], np.array(labels))
        e_values.append(step.e_values[0])
        chances.append(math.prod(0.5 + gap if y == 0 else 0.5 - gap for y in labels))
    assert np.dot(e_values, chances) <= 1 + 1e-12


def test_the_mean_value_after_two_batches_is_two_when_nothing_is_tolerated():
    # E[M_2] = 2 over both batches, although the second batch's bets react to the first.
    rng = np.random.default_rng(3)
    start = new_detector(0.0)
    p, _, frame = sample(rng, 4)
    total = np.zeros(len(start.candidates))
    for labels in itertools.product(range(3), repeat=4):
        detector = copy.deepcopy(start)
        detector.update(p[:2], np.array(labels[:2]), frame[:2])
        step = detector.update(p[2:], np.array(labels[2:]), frame[2:])
        total += math.prod(p[i, y] for i, y in enumerate(labels)) * step.candidate_values
    assert total == pytest.approx(2, abs=1e-10)


def best_run(sums, sign):
    """Best run of bins by trying all of them; the first to end, then the shortest, wins a tie."""
    best, run = 0.0, (0, len(sums))
    for stop in range(1, len(sums) + 1):
        for first in range(stop - 1, -1, -1):
            total = sign * sum(sums[first:stop])
            if total > best + 1e-12:
                best, run = total, (first, stop)
    return run


class SlowDetector:
    """One candidate's value by loops over plain numbers."""

    def __init__(self, spread, tolerance, memory):
        self.tolerance, self.memory = tolerance, memory
        largest = 1 / (2 * (spread + tolerance))
        self.arms = {
            (sign, place, stake * largest): 0.0
            for sign in (1, -1)
            for place in ("line", "run")
            for stake in STAKES
        }
        self.seen, self.edges, self.sums = [], None, [0.0] * N_BINS

    def bin(self, score):
        return 0 if self.edges is None else sum(edge <= score for edge in self.edges)

    def update(self, scores, values):
        n_bins = 1 if self.edges is None else len(self.edges) + 1
        runs = {sign: best_run(self.sums[:n_bins], sign) for sign in (1, -1)}
        for sign, place, stake in self.arms:
            product = 1.0
            for score, value in zip(scores, values, strict=True):
                first, stop = runs[sign] if place == "run" else (0, n_bins)
                inside = first <= self.bin(score) < stop
                product *= 1 + stake * (sign * value * inside - self.tolerance)
            self.arms[sign, place, stake] = (self.arms[sign, place, stake] + 1) * product
        self.learn(scores, values)
        return sum(self.arms.values()) / len(self.arms)

    def learn(self, scores, values):
        if self.edges is None:
            self.seen = [*self.seen, *scores][:_FIRST_SCORES]
            if len(self.seen) == _FIRST_SCORES:
                ordered = sorted(self.seen)
                at = [math.ceil(k * _FIRST_SCORES / N_BINS) - 1 for k in range(1, N_BINS)]
                self.edges = sorted({ordered[i] for i in at})
                self.sums = [0.0] * N_BINS
        self.sums = [total * (1 - 1 / self.memory) ** len(scores) for total in self.sums]
        for score, value in zip(scores, values, strict=True):
            self.sums[self.bin(score)] += value


@pytest.mark.parametrize("seed", range(3))
def test_values_equal_those_of_a_slow_detector(seed):
    rng = np.random.default_rng(seed)
    detector = new_detector(0.03, average_run_length=1e12, memory=300)
    slow = {}
    for utility in UTILITIES:
        spreads = utility.spreads(TREE)
        for subgroup in SUBGROUPS.names:
            for branch in utility.relevant_branches(TREE):
                key = utility.name, subgroup, TREE.branches[branch]
                slow[key] = SlowDetector(spreads[branch], 0.03, 300)
    for size in (100, 1, 0, 200, 60, 600, 25):
        p, labels, frame = sample(rng, size) if size else (np.empty((0, 3)), [], None)
        step = detector.update(p, labels, frame)
        if not size:
            continue
        weights = dict(zip(SUBGROUPS.names, SUBGROUPS.weights(frame, size), strict=True))
        dense = {
            rows.utility.name: rows.to_frame()
            for rows in hm.decompose(p, labels, tree=TREE, utilities=UTILITIES)
        }
        for key, value in zip(detector.candidates, step.candidate_values, strict=True):
            utility, subgroup, node = key
            frame_of = dense[utility]
            values = frame_of[node].to_numpy() * weights[subgroup]
            expected = slow[key].update(frame_of["score"].tolist(), values.tolist())
            assert value == pytest.approx(expected, rel=1e-9)
    assert step.value == pytest.approx(np.mean(step.candidate_values), rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 600))
def test_the_order_of_rows_inside_a_batch_does_not_matter(seed, size):
    rng = np.random.default_rng(seed)
    detector = new_detector()
    detector.update(*sample(rng, 300))
    p, labels, frame = sample(rng, size)
    order = rng.permutation(size)
    step = copy.deepcopy(detector).update(p, labels, frame)
    other = detector.update(p[order], labels[order], frame.iloc[order])
    assert other.e_values == pytest.approx(step.e_values, rel=1e-12, abs=1e-12)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), sizes=st.lists(st.integers(0, 200), min_size=1, max_size=8))
def test_a_detector_saved_after_any_batch_continues_bit_for_bit(seed, sizes):
    rng = np.random.default_rng(seed)
    straight, saved = new_detector(), new_detector()
    for size in sizes:
        batch = sample(rng, size)
        saved = hm.EDetector.from_dict(json.loads(json.dumps(saved.to_dict(), allow_nan=False)))
        one, other = straight.update(*batch), saved.update(*batch)
        assert one.to_dict() == other.to_dict()
        assert np.array_equal(one.candidate_values, other.candidate_values)
    assert straight.to_dict() == saved.to_dict()
    assert repr(straight) == repr(saved)


def test_rows_decomposed_before_give_the_same_bits():
    rng = np.random.default_rng(0)
    p, labels, frame = sample(rng, 500)
    rows = hm.decompose(p, labels, tree=TREE, utilities=UTILITIES)
    groups = Groups.of(SUBGROUPS.weights(frame, 500), None)
    one, other = new_detector(), new_detector()
    first, second = one.update(p, labels, frame), other.update_rows(rows, groups)
    assert np.array_equal(first.candidate_values, second.candidate_values)
    assert one.to_dict() == other.to_dict()


def test_an_empty_batch_is_counted_and_changes_nothing_else():
    detector = new_detector()
    empty = detector.update(np.empty((0, 3)), [])
    assert (empty.batch, empty.n_rows, empty.value, empty.alarm) == (1, 0, 0.0, False)
    assert empty.worst.side == 0
    detector.update(*sample(np.random.default_rng(0), 50))
    before = detector.to_dict()
    step = detector.update(np.empty((0, 3)), pd.Series([], dtype=str))
    assert detector.to_dict() == before | {"n_batches": 3}
    assert detector.n_rows == 50
    assert step.value > 0
    assert (step.e_values == 1).all()


def test_cost_and_state_do_not_grow_with_the_stream():
    rng = np.random.default_rng(0)
    detector = new_detector()
    sizes = []
    for _ in range(6):
        detector.update(*sample(rng, 400))
        sizes.append(
            sum(len(part) for bets in detector.to_dict()["bets"] for part in bets.values())
        )
    assert len(set(sizes)) == 1


def lopsided(n, share, seed=0):
    """Predictions of 1/2 for lion and lynx, but lynx happens with another share."""
    rng = np.random.default_rng(seed)
    p = np.tile([0.4, 0.4, 0.2], (n, 1))
    labels = np.where(rng.random(n) < 0.2, 2, np.where(rng.random(n) < share, 1, 0))
    return p, labels, pd.DataFrame({"sex": ["f"] * n, "tilt": [0.0] * n})


def test_the_guilty_candidate_is_named_with_its_direction():
    detector = new_detector()
    detector.update(*lopsided(300, 0.5))
    step = detector.update(*lopsided(600, 0.9, seed=1))
    assert step.alarm
    assert step.value >= step.threshold
    worst = step.worst
    assert (worst.utility, worst.node, worst.side) == ("pay", "cat", -1)
    assert worst == step.ranking[0] == step.named[0]
    assert {item.node for item in step.named} == {"cat"}
    floor = len(detector.candidates) * 100
    assert all((item.value >= floor) == item.named for item in step.ranking)
    frame = step.to_frame()
    assert frame["named"].sum() == len(step.named)
    assert frame["value"].is_monotonic_decreasing
    json.dumps(step.to_dict(), allow_nan=False)


def test_an_alarm_restarts_the_evidence_unless_told_to_continue():
    for after_alarm, again in (("restart", 0.0), ("continue", None)):
        detector = new_detector(after_alarm=after_alarm)
        step = detector.update(*lopsided(600, 0.9))
        assert step.alarm
        following = detector.update(np.empty((0, 3)), [])
        assert following.alarm == (after_alarm == "continue")
        if again is not None:
            assert following.value == again


def test_evidence_that_continues_is_lost_again_soon_after_the_violation_ends():
    detector = new_detector(after_alarm="continue")
    for seed in range(20):
        detector.update(*lopsided(1_000, 0.9, seed))
    calm = [detector.update(*lopsided(1_000, 0.5, seed)).alarm for seed in range(20)]
    assert calm[0]
    assert not any(calm[10:])


def test_overwhelming_evidence_stays_finite_in_the_state_and_orders_the_ranking():
    detector = new_detector(after_alarm="continue")
    step = detector.update(*lopsided(20_000, 1.0))
    assert step.value == math.inf
    assert math.isfinite(step.log_value)
    assert step.worst.node == "cat"
    assert step.to_dict()["value"] is None
    json.dumps(detector.to_dict(), allow_nan=False)


def test_a_moment_inside_the_tolerance_earns_nothing():
    p, labels, frame = lopsided(5_000, 0.6)
    strict, lax = new_detector(0.0), new_detector(0.5)
    assert strict.update(p, labels, frame).alarm
    assert lax.update(p, labels, frame).value < 1


def test_tolerance_may_differ_between_candidates():
    names = new_detector().candidates
    tolerance = [0.7 if node == "cat" else 0.0 for _, _, node in names]
    step = new_detector(tolerance).update(*lopsided(3_000, 0.9))
    values = dict(zip(names, step.candidate_values, strict=True))
    assert values["pay", "all", "cat"] < 1
    assert new_detector(0.0).update(*lopsided(3_000, 0.9)).worst.node == "cat"


def test_reset_forgets_evidence_and_past_but_not_the_counts():
    rng = np.random.default_rng(0)
    detector = new_detector()
    detector.update(*sample(rng, 500))
    assert detector.last_reset is None
    detector.reset("model version 8")
    assert detector.last_reset == {"reason": "model version 8", "n_batches": 1, "n_rows": 500}
    assert detector.to_dict()["bets"] == new_detector().to_dict()["bets"]
    assert hm.EDetector.from_dict(detector.to_dict()).last_reset == detector.last_reset


def test_a_rejected_batch_leaves_no_trace():
    detector = new_detector()
    detector.update(*sample(np.random.default_rng(0), 40))
    before = detector.to_dict()
    with pytest.raises(InvalidInputError, match="rows that sum to 1"):
        detector.update([[0.5, 0.5, 0.5]], [0], pd.DataFrame({"sex": ["f"], "tilt": [0.0]}))
    with pytest.raises(InvalidInputError, match="`features`"):
        detector.update([[0.5, 0.25, 0.25]], [0])
    assert detector.to_dict() == before


def test_inputs_are_left_as_they_were():
    p, labels, frame = sample(np.random.default_rng(0), 50)
    copies = p.copy(), labels.copy(), frame.copy()
    new_detector().update(p, labels, frame)
    assert np.array_equal(p, copies[0])
    assert np.array_equal(labels, copies[1])
    assert frame.equals(copies[2])


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"tolerance": -0.1}, "`tolerance` must be finite and at least 0; got -0.1"),
        ({"tolerance": [0.1, 0.2]}, r"one per candidate \(12\)"),
        ({"tolerance": 0.1, "average_run_length": 0.5}, "`average_run_length` must be a number"),
        ({"tolerance": 0.1, "memory": math.inf}, "`memory` must be a number of at least 1"),
        ({"tolerance": 0.1, "after_alarm": "stop"}, "'restart', 'continue'; got 'stop'"),
    ],
)
def test_bad_settings_are_named(settings_, message):
    with pytest.raises((InvalidInputError, UnknownNameError), match=message):
        new_detector(**settings_)


def test_utilities_without_a_relevant_branch_are_refused():
    constant = hm.Payoff("constant", {"cat": 1, "dog": 1})
    with pytest.raises(InvalidInputError, match="none of them has"):
        hm.EDetector(tree=TREE, utilities=[constant], tolerance=0.1)


def test_rows_that_could_break_the_guarantee_are_refused():
    detector = new_detector()
    p, labels, frame = sample(np.random.default_rng(0), 20)
    rows = hm.decompose(p, labels, tree=TREE, utilities=UTILITIES)
    weights = SUBGROUPS.weights(frame, 20)
    with pytest.raises(InvalidInputError, match="count every row once"):
        detector.update_rows(rows, Groups.of(weights, np.full(20, 2.0)))
    with pytest.raises(InvalidInputError, match="between -1 and 1"):
        detector.update_rows(rows, Groups.of([weight * 2.0 for weight in weights], None))
    with pytest.raises(InvalidInputError, match="in order"):
        detector.update_rows(rows[::-1], Groups.of(weights, None))


def test_a_state_of_another_version_is_refused():
    data = new_detector().to_dict() | {"schema_version": 99}
    with pytest.raises(InvalidInputError, match="must be 1; got 99"):
        hm.EDetector.from_dict(data)


def test_a_damaged_state_is_refused():
    data = new_detector().to_dict()
    del data["bets"][0]["wealth"][0]
    with pytest.raises(InvalidInputError, match="unchanged; got ValueError"):
        hm.EDetector.from_dict(data)
    with pytest.raises(InvalidInputError, match="unchanged; got KeyError"):
        hm.EDetector.from_dict({"schema_version": 1})


@pytest.mark.slow
def test_calibrated_streams_raise_no_more_alarms_than_promised():
    bench = load_bench()
    found = bench.false_alarms(n_streams=30, n_bootstrap=5, n_draws=100)
    for name in ("e_detector", "e_detector_tolerance_0"):
        assert found[name]["per_batch"] - 3 * found[name]["error"] <= 0.01
    assert found["e_detector"]["per_batch"] <= 0.001
    assert found["point_estimate_above_tolerance"]["per_batch"] > 0.9
    assert found["mean_beyond_3_se"]["per_batch"] > 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "size", "most"), [(1.0, 250, 6), (0.5, 1_000, 8)])
def test_a_shifted_deep_branch_is_found_soon_and_named_first(shift, size, most):
    found = load_bench().power(shift, size, n_runs=40)
    assert found["median_delay"] <= most
    assert found["guilty_node_first"] >= 0.95
    assert found["alarms_before_the_change"] == 0


@pytest.mark.slow
def test_a_batch_costs_the_same_at_the_end_of_a_stream():
    found = load_bench().cost()
    assert found["candidates"] == 84
    assert found["last_tenth_over_first"] <= 1.2


@pytest.mark.slow
def test_the_bench_resumes_bit_for_bit():
    assert load_bench().resume()["identical"]


def test_a_detector_reads_its_tree_from_a_file(tmp_path):
    path = tmp_path / "tree.json"
    path.write_text(json.dumps({"cat": ["lion", "lynx"], "dog": None}), "utf-8")
    given = {"utilities": [hm.TopK(1)], "tolerance": 0.1}
    read = hm.EDetector(tree=str(path), **given)
    assert read.candidates == hm.EDetector(tree=TREE, **given).candidates
    step = read.update([[0.2, 0.3, 0.5]], ["dog"])
    assert step.n_rows == 1
