from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.recalibration.choosing import Figures, Gate, _choose, find_recalibration, measure

TREE = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
UTILITIES = [hm.LevelCorrectness(level=2)]


def rows(n=3_000, *, drift=True, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([2, 2, 2], n)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], n)})
    truth = p.copy()
    if drift:
        men = (frame["sex"] == "m").to_numpy()
        truth[men] = truth[men][:, [1, 0, 2]]
    labels = (rng.random((n, 1)) > truth.cumsum(axis=1)).sum(axis=1)
    return p, np.minimum(labels, 2), frame


def search(p, labels, frame, **options):
    groups = hm.Subgroups.from_reference(frame, {"sex": "each"})
    given = {"candidates": ("nothing", "temperature", "huc_boost")} | options
    return find_recalibration(
        p, labels, tree=TREE, utilities=UTILITIES, subgroups=groups, features=frame, **given
    )


def test_a_drifted_branch_is_repaired_and_passes_the_gate():
    repair = search(*rows(12_000))
    assert repair.name == "huc_boost"
    assert repair.passed
    assert repair.after.huc < repair.before.huc / 2
    assert repair.after.huc_upper < repair.before.huc_lower
    assert repair.after.log_loss < repair.before.log_loss
    assert {update.node for update in repair.recalibrator.updates_} == {"cat"}
    assert json.loads(json.dumps(repair.to_dict()))["passed"]


def test_a_calibrated_model_is_left_alone():
    repair = search(*rows(drift=False))
    assert not repair.passed
    assert repair.reasons
    assert repair.after.log_loss <= repair.before.log_loss + 0.01


def test_the_newest_rows_are_only_judged():
    p, labels, frame = rows()
    spoiled = labels.copy()
    spoiled[2_400:] = 2
    one, other = search(p, labels, frame), search(p, spoiled, frame)
    assert one.recalibrator.to_dict() == other.recalibrator.to_dict()
    assert one.choices == other.choices
    assert one.after != other.after


def test_an_improvement_that_may_be_chance_does_not_pass():
    rng = np.random.default_rng(1)
    p = rng.dirichlet([2, 2, 2], 60)
    labels = (rng.random((60, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    before = Figures(60, 0.10, None, None, 0.0, 1.0, 0.6)
    after = Figures(60, 0.05, None, None, 0.0, 1.0, 0.6)
    what = {"tree": TREE, "utilities": UTILITIES, "paired": True}
    unsure = hm.compare((p, labels), (p**1.1 / (p**1.1).sum(1, keepdims=True), labels), **what)
    (reason,) = Gate().reasons(before, after, comparison=unsure)
    assert "may be chance: the difference lies between -" in reason
    assert Gate().reasons(before, after) == ()
    p, labels, _ = rows(4_000)
    half = (p + p[:, [1, 0, 2]]) / 2
    sure = hm.compare((p, labels), (half, labels), **what)
    assert Gate().reasons(before, after, comparison=sure) == ()


def test_a_repair_tells_how_sure_its_improvement_is():
    repair = search(*rows(12_000))
    lower, upper = repair.to_dict()["huc_difference"]
    assert lower <= repair.after.huc - repair.before.huc <= upper < 0
    assert repair.comparison.huc.before == pytest.approx(repair.before.huc, abs=1e-12)


def test_a_repair_must_beat_the_model_that_serves_now_and_not_the_base():
    p, labels, frame = rows(12_000)
    men = (frame["sex"] == "m").to_numpy()
    served = p.copy()
    served[men] = served[men][:, [1, 0, 2]]  # what an earlier repair already does
    repair = search(p, labels, frame, current=served)
    assert not repair.passed
    alone = search(p, labels, frame)
    assert repair.before.huc < alone.before.huc / 2
    assert repair.base == alone.base == alone.before
    assert repair.to_dict()["base"]["huc"] == alone.before.huc
    assert search(p, labels, frame, current=p[:, [1, 2, 0]]).passed
    with pytest.raises(hm.InvalidInputError, match=r"`current` must have a row per row"):
        search(p, labels, frame, current=served[1:])


def test_too_few_rows_and_unknown_candidates_are_refused():
    p, labels, frame = rows(99)
    with pytest.raises(hm.InvalidInputError, match=r"at least 100 rows .* got 99. Wait"):
        search(p, labels, frame)
    with pytest.raises(hm.UnknownNameError, match=r"`candidates` must be among .* got 'magic'"):
        search(*rows(200), candidates=["magic"])


@pytest.mark.parametrize("n", [150, 201])
def test_features_of_other_rows_are_refused(n):
    p, labels, _ = rows(200)
    with pytest.raises(hm.InvalidInputError, match=rf"`features` .* \(200\); got {n}\. Pass"):
        search(p, labels, rows(n)[2])


def test_a_search_among_no_candidates_is_refused():
    with pytest.raises(hm.InvalidInputError, match=r"`candidates` must name .* nothing, .*; got n"):
        search(*rows(200), candidates=[])


def test_a_hundred_rows_are_enough():
    repair = search(*rows(100), candidates=["nothing"])
    assert (repair.name, repair.passed, repair.comparison) == ("nothing", False, None)
    assert repair.to_dict()["huc_difference"] is None
    assert repair.before == repair.base == repair.after


def a_choice(huc, log_loss):
    return Figures(100, huc, None, None, 0.0, log_loss, 0.5)


def choose(choices, sizes=None, *, noise=0.0):
    """Choose where two log losses differ by chance by this much."""
    sizes = {name: one.huc for name, one in choices.items()} if sizes is None else sizes
    excess = dict(zip(choices, np.eye(len(choices)) * noise / np.sqrt(2), strict=True))
    return _choose(choices, sizes, excess)


@pytest.mark.parametrize(
    ("huc", "log_loss", "chosen"),
    [
        (0.04, 1.0, "temperature"),
        (0.04, 1.01, "nothing"),  # its log loss rises
        (0.05, 0.9, "nothing"),  # a tie
        (0.06, 0.9, "nothing"),
    ],
)
def test_what_serves_is_kept_unless_huc_falls_and_log_loss_does_not_rise(huc, log_loss, chosen):
    choices = {"temperature": a_choice(huc, log_loss), "nothing": a_choice(0.05, 1.0)}
    assert choose(choices) == chosen
    del choices["nothing"]
    assert choose(choices) == "temperature"


def test_what_has_an_alert_decides_before_huc():
    choices = {"vector": a_choice(0.06, 1.0), "nothing": a_choice(0.05, 1.0)}
    assert choose(choices, {"vector": 0.01, "nothing": 0.03}) == "vector"
    assert choose(choices, {"vector": 0.02, "nothing": 0.03}) == "vector"
    assert choose(choices, {"vector": 0.03, "nothing": 0.03}) == "nothing", "by HUC"
    choices["huc_boost"] = a_choice(0.04, 0.9)
    sizes = {"vector": 0.01, "huc_boost": 0.012, "nothing": 0.03}
    assert choose(choices, sizes) == "huc_boost", "of two that halve it, the lower HUC"


def test_of_two_that_halve_the_alert_the_surely_lower_log_loss_wins():
    both = {"huc_boost": a_choice(0.01, 0.9), "vector+huc_boost": a_choice(0.012, 0.7)}
    choices = both | {"nothing": a_choice(0.05, 1.0)}
    sizes = {"huc_boost": 0.005, "vector+huc_boost": 0.006, "nothing": 0.03}
    assert choose(choices, sizes, noise=0.1) == "vector+huc_boost"
    assert choose(choices, sizes, noise=0.3) == "huc_boost", "by HUC, within a standard error"
    choices["vector"] = a_choice(0.06, 0.6)
    assert choose(choices, sizes | {"vector": 0.01}) == "vector+huc_boost", "HUC would rise"
    least = sizes | {"huc_boost": 0.02, "vector+huc_boost": 0.021, "vector": 0.04}
    assert choose(choices, least) == "vector+huc_boost", "where none halves it"
    assert choose(choices, least, noise=0.3) == "huc_boost"


def test_an_overconfident_model_with_a_fault_in_one_branch_is_scaled_too():
    rng = np.random.default_rng(2)
    truth = rng.dirichlet([1, 1, 1], 5_000)
    y = (rng.random((5_000, 1)) > truth.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    y = np.where((rng.random(5_000) < 0.4) & (y < 2), 1 - y, y)
    p = truth**2.5 + 1e-6
    p /= p.sum(axis=1, keepdims=True)
    repair = find_recalibration(
        p, y, tree=TREE, utilities=UTILITIES, targets=[("level2", "all", "cat")]
    )
    scaled = repair.choices[repair.name]
    least = min(figures.log_loss for figures in repair.choices.values())
    assert scaled.log_loss < repair.choices["huc_boost"].log_loss - 0.01
    assert scaled.log_loss == pytest.approx(least, abs=0.005)


def test_the_noise_of_log_losses_counts_clusters_and_chances_of_labels():
    from huc_monitor.recalibration.choosing import _Task

    p, labels, _ = rows(200)
    every, asked = np.arange(200), {"tree": TREE}
    half = (p + 1 / 3) / 2

    def noise(times, clusters=None, chance=None):
        data = [np.repeat(x, times, axis=0) for x in (p, p, labels)]
        task = _Task(*data, None, clusters, asked, chance)
        part = np.arange(200 * times)
        two = (np.repeat(x, times, axis=0) for x in (p, half))
        one, other = (task.excess(x, part) for x in two)
        return np.linalg.norm(one - other)

    losses = -np.log(p[every, labels]) + np.log(half[every, labels])
    assert noise(1) == pytest.approx(losses.std() / np.sqrt(200))
    assert noise(3, clusters=np.repeat(every, 3)) == pytest.approx(noise(1)), "retries"
    chance = np.where(every < 100, 0.5, 0.25)
    share = (1 / chance) / (1 / chance).sum()
    off = share * (losses - share @ losses)
    assert noise(1, chance=chance) == pytest.approx(np.linalg.norm(off))


def test_a_small_fault_is_mended_for_what_has_an_alert_where_huc_is_chance_elsewhere():
    rng = np.random.default_rng(8)
    n, leaves = 16_000, {"carrier": ["missort", "late"], "customer": ["away", "refused"]}
    p = rng.dirichlet(np.full(4, 0.7), n).clip(1e-4)
    p /= p.sum(axis=1, keepdims=True)
    frame = pd.DataFrame({"region": rng.choice(["east", "west", "north", "south"], n)})
    truth = p.copy()
    moved = np.where(frame["region"] == "east", truth[:, 0], 0.0)
    truth[:, :2] += np.stack([-moved, moved], axis=1)
    y = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=3)
    asked = {
        "tree": hm.LabelTree.from_nested(leaves),
        "utilities": [hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2)],
        "subgroups": hm.Subgroups.from_reference(frame, {"region": "each"}),
        "features": frame,
        "candidates": ["nothing", "huc_boost"],
    }
    plain = find_recalibration(p, y, **asked)
    told = find_recalibration(p, y, **asked, targets=[("level2", "region=east", "carrier")])
    assert (plain.passed, told.passed, told.name) == (False, True, "huc_boost")


def test_figures_are_those_of_the_definition():
    p = np.array([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]])
    options = {"tree": TREE, "utilities": UTILITIES}
    figures, result = measure(p, [0, 1], **options)
    assert (figures.n, figures.accuracy, figures.huc_lower) == (2, 0.5, None)
    assert figures.log_loss == pytest.approx((np.log(2) + np.log(4)) / 2)
    assert figures.huc == result.huc
    above, _ = measure(p, ["cat", "lynx"], **options)  # a label above the leaves: lion or lynx
    assert above.log_loss == pytest.approx((np.log(4 / 3) + np.log(4)) / 2)
    bounded, _ = measure(p, [0, 1], bounds="sharp", **options)
    assert bounded.huc_lower <= bounded.huc <= bounded.huc_upper


def test_a_cluster_goes_where_its_middle_lies():
    from huc_monitor.recalibration.choosing import _Task

    p, labels, frame = rows()
    users = np.repeat(np.arange(30), [1] * 24 + [2, 10] + [1] * 4)  # the long one ends at 36
    task = _Task(p[:40], p[:40], labels[:40], frame.iloc[:40], users, {})
    assert [part.tolist() for part in task.parts()] == [
        list(range(24)),
        list(range(24, 36)),
        list(range(36, 40)),
    ]


def test_no_cluster_both_fits_and_judges():
    p, labels, frame = rows()
    users = np.random.default_rng(1).integers(0, 150, len(labels))
    spoiled = labels.copy()
    from huc_monitor.recalibration.choosing import _Task

    task = _Task(p, p, labels, frame, users, {})
    parts = task.parts()
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    owners = [set(users[part].tolist()) for part in parts]
    assert not owners[0] & owners[1] | owners[0] & owners[2] | owners[1] & owners[2]
    assert [round(part.size / len(labels), 1) for part in parts] == [0.6, 0.2, 0.2]
    spoiled[parts[2]] = 2
    one = search(p, labels, frame, clusters=users)
    other = search(p, spoiled, frame, clusters=users)
    assert one.recalibrator.to_dict() == other.recalibrator.to_dict()
    assert one.held_out.design.n_clusters == len(owners[2])
    with pytest.raises(hm.InvalidInputError, match="leave rows to fit, to choose and to judge"):
        search(p, labels, frame, clusters=["one"] * len(labels))


def test_labels_that_were_chosen_fit_choose_and_judge_by_their_probability():
    """A calibrated model whose errors are labelled twenty times as often stays as it is."""
    rng = np.random.default_rng(6)
    tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    p = rng.dirichlet([1, 1, 1], 30_000)
    y = (p.cumsum(axis=1) < rng.random(30_000)[:, None]).sum(axis=1).clip(max=2)
    chance = np.where(p.argmax(axis=1) == y, 0.05, 1.0)
    kept = np.flatnonzero(rng.random(30_000) < chance)[:6_000]
    what = {"tree": tree, "utilities": [hm.LevelCorrectness(level=2)]}
    what["candidates"] = ("nothing", "temperature", "huc_boost")
    with pytest.warns(hm.HUCWarning, match="is the class order right"):
        blind = find_recalibration(p[kept], y[kept], **what)
    told = find_recalibration(p[kept], y[kept], label_probability=chance[kept], **what)
    assert blind.before.huc > 0.2  # as if the model were far too sure of itself
    assert told.before.huc < 0.1
    assert not told.passed
    right = float(np.mean(p.argmax(axis=1) == y))
    assert told.before.accuracy == pytest.approx(right, abs=0.05)
    assert blind.before.accuracy < right - 0.2
    what["candidates"] = ("temperature",)
    fitted = find_recalibration(p[kept], y[kept], label_probability=chance[kept], **what)
    assert np.abs(fitted.recalibrator.predict_proba(p) - p).mean() < 0.03
