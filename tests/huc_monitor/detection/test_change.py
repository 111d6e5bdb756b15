"""The change test over pooled windows, what it keeps of past windows, and when a change began."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.audit.compare import make_sample
from huc_monitor.audit.inputs import check_predictions
from huc_monitor.audit.two_samples import Sample, compare_samples
from huc_monitor.detection import ChangeHistory, ChangeTest, find_onset
from huc_monitor.detection.change import candidate_terms
from huc_monitor.detection.history import sample_to_bytes
from huc_monitor.detection.onset import onset_set

TREE = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": ["wolf", "fox"]})
UTILITIES = [hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2)]
FRAME = pd.DataFrame({"channel": ["app", "web"] * 50, "w": np.linspace(-1, 1, 100)})
SUBGROUPS = hm.Subgroups.from_reference(FRAME, {"channel": "each"}, weights={"tilt": "w"})


def change_test(**options):
    return ChangeTest(tree=TREE, utilities=UTILITIES, subgroups=SUBGROUPS, **options)


def window(test, n, *, seed, fault=0.0, **more):
    """Overconfident predictions; the fault swaps lion and lynx in the app."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([0.6] * 4, n) * 0.98 + 0.005
    truth = p**0.7 / (p**0.7).sum(axis=1, keepdims=True)
    frame = pd.DataFrame({"channel": rng.choice(["app", "web"], n), "w": rng.uniform(-1, 1, n)})
    swapped = truth[:, [1, 0, 2, 3]]
    app = (frame["channel"] == "app").to_numpy()[:, None]
    truth = np.where(app, (1 - fault) * truth + fault * swapped, truth)
    labels = (rng.random((n, 1)) > truth.cumsum(axis=1)).sum(axis=1).clip(0, 3)
    predictions = check_predictions(p, tree=TREE)
    return make_sample(predictions, labels, test.plan, features=frame, **more)


def test_a_standing_error_is_no_change_and_a_fault_is_named():
    test = change_test()
    reference = window(test, 3000, seed=0)
    quiet = [window(test, 1000, seed=k) for k in range(1, 5)]
    assert not test.look(reference, quiet).alarm
    step = test.look(reference, [*quiet, window(test, 1000, seed=9, fault=1.0)])
    assert step.alarm
    assert {change.candidate.node for change in step.changes} == {"cat"}
    assert step.changes[0].candidate.subgroup in {"all", "channel=app"}
    assert step.changes[0].n_windows == 1
    assert repr(step).endswith("changed, first 'cat')")
    json.dumps(step.to_dict(), allow_nan=False)


def test_a_small_fault_adds_up_over_pooled_windows():
    test = change_test()
    reference = window(test, 12000, seed=0)
    faulty = [window(test, 600, seed=k, fault=0.45) for k in range(1, 17)]
    alone = change_test(pools=(1,))
    assert not alone.look(reference, faulty).alarm
    step = test.look(reference, faulty)
    assert [n for n, _ in step.pools] == [1, 4, 16]
    assert step.changes[0].n_windows == 16
    assert step.changes[0].candidate.node == "cat"


def test_the_probability_of_error_is_split_over_the_pools():
    # Nine tenths are for moments, the rest for labels that nobody foresaw.
    levels = [
        change_test(average_run_length=200).plan.confidence_level,
        change_test(pools=(1, 5)).plan.confidence_level,
    ]
    assert levels == pytest.approx([1 - 0.9 / 600, 1 - 0.9 / 200])
    # Five draws lie above the quantile, up to 2,000 in all: beyond, the bound continues them.
    draws = [change_test(average_run_length=n).plan.n_draws for n in (10, 100, 1000)]
    assert draws == [1000, 2000, 2000]
    with pytest.raises(hm.InvalidInputError, match="`average_run_length` must be a number above 1"):
        change_test(average_run_length=1)
    with pytest.raises(hm.InvalidInputError, match=r"`pools` must be whole numbers .* got \(0,\)"):
        change_test(pools=(0,))
    test = change_test()
    with pytest.raises(hm.InvalidInputError, match="`windows` must hold at least one"):
        test.look(window(test, 50, seed=0), [])


def test_pooling_equals_comparing_all_rows_at_once():
    test = change_test()
    parts = [window(test, n, seed=n, weights=np.full(n, 0.5)) for n in (40, 70)]
    reference = window(test, 90, seed=3)
    joined = Sample.join(parts)
    assert joined.n == 55
    found = compare_samples(reference, joined, test.plan)
    # The moment of both is the mean of theirs, weighted by rows.
    means = [[onset_moment(part, test, found[row]) for row in range(len(found))] for part in parts]
    wanted = (40 * np.array(means[0]) + 70 * np.array(means[1])) / 110
    np.testing.assert_allclose(found.after, wanted, atol=1e-12)


def onset_moment(sample, test, candidate):
    where = candidate.utility, candidate.subgroup, candidate.node
    scores, terms = candidate_terms(sample, test.plan, *where)
    inside = (scores >= candidate.interval_low) & (scores <= candidate.interval_high)
    return terms[inside].sum() / scores.size


@pytest.mark.parametrize("weighted", [False, True])
def test_a_window_read_back_from_bytes_gives_the_same_numbers(weighted):
    test = change_test()
    weights = np.arange(1, 201) % 3 + 0.5 if weighted else None
    reference, newest = window(test, 300, seed=0), window(test, 200, seed=1, weights=weights)
    newest = dataclasses.replace(newest, likeliest=np.arange(200) % 3)
    history = ChangeHistory(test.plan)
    history.add("monday", newest)
    other = ChangeHistory(test.plan)
    other.read("monday", history.to_bytes("monday"))
    one, two = (compare_samples(reference, h.samples[0], test.plan) for h in (history, other))
    assert one.to_dict() == two.to_dict()
    np.testing.assert_array_equal(other.samples[0].likeliest, newest.likeliest)
    plain = compare_samples(reference, newest, test.plan)
    np.testing.assert_allclose(one.difference, plain.difference, atol=1e-6)
    assert len(history.to_bytes("monday")) < 200 * 100 + 2000


def test_windows_whose_labels_were_chosen_with_other_even_chances_pool_by_them():
    test = change_test()
    sizes, chances = (300, 300, 200), (0.1, 0.5, 0.25)
    history, apart = ChangeHistory(test.plan), []
    for k, (n, chance) in enumerate(zip(sizes, chances, strict=True)):
        chosen = {"fault": float(k == 0), "label_probability": np.full(n, chance)}
        apart.append(window(test, n, seed=k, **chosen))
        history.read(f"day {k}", sample_to_bytes(apart[k]))
    pooled = Sample.join(history.samples)
    where = test.plan, UTILITIES[-1].name, "all", "cat"
    means = [candidate_terms(sample, *where)[1].mean() for sample in apart]
    everywhere, _ = pooled.groups.mean(candidate_terms(pooled, *where)[1])
    rows = np.array(sizes) / chances  # of which these labels were chosen
    assert everywhere == pytest.approx(np.average(means, weights=rows), abs=1e-6)
    assert abs(everywhere - np.average(means, weights=sizes)) > 0.01


def test_history_keeps_the_newest_windows_and_refuses_other_settings():
    test = change_test()
    history = ChangeHistory(test.plan, n_windows=2)
    for k in range(4):
        history.add(f"day {k}", window(test, 20, seed=k))
    assert history.names == ("day 2", "day 3")
    fewer = ChangeTest(tree=TREE, utilities=UTILITIES[:1], subgroups=SUBGROUPS)
    with pytest.raises(hm.InvalidInputError, match="must hold 4 subgroups and 1 utilities; got 4"):
        ChangeHistory(fewer.plan).read("day 3", history.to_bytes("day 3"))
    with pytest.raises(hm.InvalidInputError, match="must be decomposed by this tree"):
        fewer.look(history.samples[0], history.samples)


def test_the_onset_of_a_change_is_found():
    test = change_test()
    reference = window(test, 6000, seed=0)
    windows = [window(test, 2000, seed=k, fault=float(k > 5)) for k in range(1, 9)]
    change = test.look(reference, windows).changes[0]
    onset = find_onset(reference, windows, test.plan, change.candidate)
    assert 5 in onset.windows
    assert onset.likeliest == 5
    assert onset.first <= 5 <= onset.last <= onset.first + 2
    assert onset.to_dict()["windows"] == list(onset.windows)


def test_the_confidence_set_of_an_onset_covers_and_narrows_with_the_size_of_the_change():
    widths = {}
    for size in (1.0, 4.0):
        rng = np.random.default_rng(0)
        hits, width = [], []
        for _ in range(120):
            means = rng.normal(size=11) + np.where(np.arange(11) > 6, size, 0.0)
            means[0] = rng.normal() / 2
            onset = onset_set(means, np.where(np.arange(11) == 0, 0.25, 1.0), n_draws=400)
            hits.append(6 in onset.windows)
            width.append(len(onset.windows))
        # 90 % promised; three Monte Carlo errors of 2.7 % below.
        assert np.mean(hits) >= 0.82
        widths[size] = np.median(width)
    assert widths[4.0] <= 2 < widths[1.0]
