"""Rows that depend on each other and labels by choice are noticed, and nothing else is."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import hypergeom, norm
from support.production_log import after, make_log, write_project
from support.watched import make, revisited, source_of

import huc_monitor as hm
from huc_monitor.audit.dependence import design_effect, measure_blocks, measure_dependence
from huc_monitor.audit.forecast import score_rows
from huc_monitor.audit.inputs import CACHE_CELLS, Predictions
from huc_monitor.monitor.noticing import (
    SAME_AND_NEAR,
    SAME_PREDICTION,
    Selection,
    _deviation,
    find_dependence,
    hash_rows,
    look_at_labels,
    say_dependence,
    say_selection,
)
from huc_monitor.monitor.ports.tracker import MemoryTracker
from huc_monitor.monitor.windows import TimeWindows
from huc_monitor.sources import PredictionData
from huc_monitor.tree.labels import LeafCodes

TREE = hm.LabelTree.from_nested({"l": ["a", "b"], "r": ["c", "d"]})
UTILITIES = [hm.TopK(1), hm.LevelCorrectness(level=1)]


def predicted(rng, n):
    p = 0.95 * rng.dirichlet(np.full(4, 0.7), n) + 0.0125
    return p, (p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=3)


def notice(p, y, keys):
    rows = hm.decompose(p, LeafCodes(y), tree=TREE, utilities=UTILITIES)
    return find_dependence(rows, p, keys)


def everyone_of(p, frame):
    return PredictionData(
        start=None,
        end=None,
        probabilities=p,
        features=frame,
        ids=None,
        times=np.empty(0),
        model_versions=None,
        n_predictions=len(p),
        n_quarantined=0,
    )


def choose(p, y, labelled, frame=None, tolerance=0.0, **more):
    frame = pd.DataFrame(index=range(len(p))) if frame is None else frame
    groups = hm.Subgroups.from_reference(frame, dict.fromkeys(frame, "each"))
    rows = hm.decompose(p[labelled], LeafCodes(y[labelled]), tree=TREE, utilities=UTILITIES)
    return look_at_labels(
        everyone_of(p, frame),
        score_rows(UTILITIES, Predictions.of(p), tree=TREE),
        (p[labelled], rows, [weights[labelled] for weights in groups.weights(frame, len(p))]),
        tree=TREE,
        subgroups=groups,
        tolerance=tolerance,
        **more,
    )


def test_the_design_effect_is_that_of_sums_over_clusters():
    terms, keys = np.array([1.0, 2.0, -1.0, -1.0]), np.array([7, 7, 3, 3])
    assert design_effect(terms, keys) == pytest.approx((3**2 + 2**2) / 7)
    assert design_effect(terms, np.arange(4)) == 1.0


def test_rows_of_one_user_that_depend_are_named_with_the_factor():
    rng = np.random.default_rng(0)
    users = rng.permutation(np.repeat(np.arange(100), 20))
    p, _ = predicted(rng, 100)
    p = 0.9 * p[users] + 0.1 * rng.dirichlet(np.ones(4), 2000)
    shared, own = rng.random(100)[users], rng.random(2000)
    uniform = np.where(rng.random(2000) < np.sqrt(0.3), shared, own)
    y = (p.cumsum(axis=1) < uniform[:, None]).sum(axis=1).clip(max=3)
    name, found = notice(p, y, {"user_id": users, "other": rng.permutation(users)})
    assert name == "user_id"
    assert found.rows_per_group == pytest.approx(20)
    assert 0.15 < found.correlation < 0.45
    assert found.too_narrow == pytest.approx(np.sqrt(1 + 19 * found.correlation), rel=1e-6)
    said = say_dependence(name, found)
    assert f"Bounds are {found.too_narrow:.1f} times too narrow" in said
    assert "columns.cluster: user_id" in said


def test_retries_are_noticed_by_their_predictions():
    rng = np.random.default_rng(1)
    p, y = predicted(rng, 700)
    again = rng.permutation(np.repeat(np.arange(700), 3))
    name, found = notice(p[again], y[again], {})
    assert name == SAME_PREDICTION
    assert found.too_narrow == pytest.approx(np.sqrt(3), rel=0.02)
    assert "retries" in say_dependence(name, found)


def test_a_few_rows_that_were_written_twice_are_told_with_numbers_that_can_be_read():
    rng = np.random.default_rng(3)
    p, y = predicted(rng, 2000)
    often = np.concatenate([np.arange(2000), np.arange(400)])
    name, found = notice(p[often], y[often], {})
    assert found.correlation == 1
    said = say_dependence(name, found)
    assert "(1.3 rows each, correlation 1.00)" in said
    assert "1.2 times too narrow" in said
    seldom = np.concatenate([np.arange(2000), np.arange(40)])
    assert notice(p[seldom], y[seldom], {}) is None, "bounds are 1.02 times too narrow"


def test_retries_are_noticed_however_far_apart_they_were_read():
    rng = np.random.default_rng(6)
    p, y = predicted(rng, CACHE_CELLS // 4)
    twice = np.tile(np.arange(len(p)), 2)
    name, found = notice(p[twice], y[twice], {})
    assert name == SAME_PREDICTION
    assert found.n_groups == len(p)
    few = np.concatenate([np.arange(len(p)), np.arange(9)])
    assert notice(p[few], y[few], {}) is None


def few_predictions(rng, n):
    p = predicted(rng, 20)[0][rng.integers(0, 20, n)]
    return p, (p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=3)


def test_retries_of_predictions_that_many_rows_share_are_noticed_by_following_soon():
    rng = np.random.default_rng(2)
    p, y = few_predictions(rng, 700)
    soon = np.repeat(np.arange(700), 3)
    name, found = notice(p[soon], y[soon], {})
    assert name == SAME_AND_NEAR
    assert found.too_narrow == pytest.approx(np.sqrt(3), rel=0.1)
    assert "identical predictions that follow each other" in say_dependence(name, found)
    scattered = rng.permutation(soon)
    assert notice(p[scattered], y[scattered], {}) is None


def test_retries_of_shared_predictions_at_any_time_are_noticed_by_their_features():
    rng = np.random.default_rng(3)
    p, y = few_predictions(rng, 700)
    again = rng.permutation(np.repeat(np.arange(700), 3))
    ages = pd.DataFrame({"age": rng.integers(0, 300, 700)}).iloc[again].reset_index(drop=True)
    rows = hm.decompose(p[again], LeafCodes(y[again]), tree=TREE, utilities=UTILITIES)
    name, found = find_dependence(rows, p[again], {}, ages)
    assert name == SAME_PREDICTION
    assert found.correlation > 0.5


def autoregressive(rng, n, memory):
    z = rng.normal(size=n)
    for i in range(1, n):
        z[i] = memory * z[i - 1] + np.sqrt(1 - memory**2) * z[i]
    return z


@pytest.mark.parametrize(("memory", "wanted"), [(0.7, 55), (0.9, 190)])
def test_blocks_that_are_too_short_say_which_length_misses_a_twentieth(memory, wanted):
    rng = np.random.default_rng(4)
    z, scores = autoregressive(rng, 40_000, memory), rng.random(40_000)
    found = measure_blocks(scores, z, np.arange(40_000) // 5)
    assert found.times_as_long * 5 == pytest.approx(wanted, rel=0.15)
    # What blocks of 5 miss of the variance of a mean, by the formula of this process.
    lags = np.arange(1, 5)
    kept = 1 + 2 * np.sum((1 - lags / 5) * memory**lags)
    if memory == 0.7:
        whole = (1 + memory) / (1 - memory)
        approximate = 2 * memory / (1 - memory) ** 2 / whole / 5
        assert found.missed == pytest.approx(approximate, rel=0.1)
        assert found.missed > 1 - kept / whole
    assert measure_blocks(scores, z, np.arange(40_000) // 400) is None


def test_what_is_no_block_or_depends_within_blocks_only_is_not_called_too_short():
    rng = np.random.default_rng(5)
    z, scores = autoregressive(rng, 2_000, 0.7), rng.random(2_000)
    assert measure_blocks(scores, z, np.arange(2_000) % 50) is None
    assert measure_blocks(scores, z, np.arange(2_000) // 400) is None
    days = rng.normal(size=100)[np.arange(2_000) // 20] + rng.normal(size=2_000)
    assert measure_blocks(scores, days, np.arange(2_000) // 20).significance < 2.5


def test_independent_rows_are_left_alone_also_where_predictions_repeat_or_are_off():
    noticed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        p, y = predicted(rng, 1500)
        if seed % 2:  # a decision tree that is overconfident
            at = rng.integers(0, 60, 1500)
            truth = p[at]
            y = (truth.cumsum(axis=1) < rng.random(1500)[:, None]).sum(axis=1).clip(max=3)
            p = truth**1.5 / (truth**1.5).sum(axis=1, keepdims=True)
        noticed += notice(p, y, {"user_id": rng.integers(0, 100, 1500)}) is not None
    assert noticed <= 1


def test_few_groups_are_no_clusters():
    rng = np.random.default_rng(0)
    p, y = predicted(rng, 500)
    assert measure_dependence(p[:, 0], p[:, 1], np.arange(500) % 5) is None
    assert notice(p, y, {"region_of_user": np.arange(500) % 5}) is None


def test_equal_rows_and_only_they_have_equal_keys():
    matrix = np.array([[0.1, 0.9], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0], [-0.0, 1.0]])
    keys = hash_rows(matrix)
    assert keys[0] == keys[2]
    assert keys[3] == keys[4]
    assert np.unique(keys).size == 3


def test_labels_for_errors_are_noticed_and_their_visible_effect_is_signed():
    rng = np.random.default_rng(0)
    p, y = predicted(rng, 2000)
    hit = p.argmax(axis=1) == y
    labelled = np.flatnonzero(rng.random(2000) < np.where(hit, 0.3, 0.9))
    found = choose(p, y, labelled)
    assert found.differs[0].startswith("lower scores of top1")
    assert 0 < found.bound < 1
    said = say_selection(found)
    assert said.startswith("Labels may be no random choice: labelled rows have lower scores of ")
    assert "Random labels differ as much in at most 1% of windows. In utility that is up to" in said
    assert "huc-monitor sample" in said
    assert "*" not in said, "a note is plain text"
    effects = {-0.00012: "be 0.00012 lower,", 0.0312: "be 0.031 higher,", 0.0: "be the same,"}
    for effect, words in effects.items():
        assert words in say_selection(dataclasses.replace(found, effect=effect))


def test_labels_by_chance_are_no_finding_and_known_chances_are_weighed_back():
    noticed = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        p, y = predicted(rng, 1500)
        chance = np.clip(1.05 - p.max(axis=1), 0.1, 1.0) if seed % 2 else np.full(1500, 0.5)
        labelled = np.flatnonzero(rng.random(1500) < chance)
        more = {"label_probability": chance[labelled]} if seed % 2 else {}
        noticed.append(bool(choose(p, y, labelled, **more).differs))
    assert sum(noticed) <= 1
    assert say_selection(Selection()) is None


def test_labels_whose_choice_cannot_matter_beside_the_tolerance_get_no_note():
    rng = np.random.default_rng(3)
    p, y = predicted(rng, 40_000)
    who = pd.DataFrame({"who": np.where(np.arange(40_000) % 4, "most", "few")})
    few = (who["who"] == "few").to_numpy()
    labelled = np.flatnonzero(rng.random(40_000) < np.where(few, 0.85, 0.97))
    told = choose(p, y, labelled, who, tolerance=0.02)
    assert "fewer of who=few (22.6% instead of 25.0%)" in say_selection(told)
    assert "up to 0.024 per prediction (tolerance 0.020)" in say_selection(told)
    assert 0.05 < told.bound < 0.07
    assert say_selection(choose(p, y, labelled, who, tolerance=0.07)) is None, "6 % are missing"
    labelled = np.flatnonzero(rng.random(40_000) < np.where(few, 0.48, 0.52))
    assert choose(p, y, labelled, who, tolerance=0.02).differs
    assert not choose(p, y, labelled, who, tolerance=0.2).differs, "1 to 2 % of the rows"


@pytest.mark.parametrize(
    ("n", "n_group", "n_missing", "n_both"),
    [(918, 227, 46, 22), (857, 198, 38, 18), (914, 237, 50, 26), (918, 227, 872, 205)],
)
def test_shares_of_few_unlabelled_rows_are_as_unlikely_as_the_exact_count_says(
    n, n_group, n_missing, n_both
):
    theirs = np.zeros(n)
    theirs[:n_group] = 1.0
    mine = np.r_[np.ones(n_group - n_both), np.zeros(n - n_missing - n_group + n_both)]
    z = _deviation(mine, theirs, np.full(mine.size, mine.size / n), step=1.0)
    exact = hypergeom(n, n_group, n_missing)
    tail = exact.sf(n_both - 1) if z < 0 else exact.cdf(n_both)
    assert 0.8 < norm.sf(abs(z)) / tail < 1.5


@pytest.mark.slow
def test_labels_by_chance_get_a_note_in_at_most_one_percent_of_windows():
    noticed = []
    for seed in range(1500):
        rng = np.random.default_rng(seed)
        n, share = [(900, 0.95), (900, 0.9), (300, 0.88)][seed % 3]
        p, y = predicted(rng, n)
        frame = pd.DataFrame(
            {
                "region": rng.choice(list("nsew"), n, p=[0.3, 0.25, 0.25, 0.2]),
                "channel": rng.choice(list("awp"), n, p=[0.5, 0.35, 0.15]),
                "attempts": rng.choice(list("123"), n, p=[0.9, 0.06, 0.04]),
            }
        )
        labelled = np.flatnonzero(rng.random(n) < share)
        noticed.append(bool(choose(p, y, labelled, frame).differs))
    assert np.mean(noticed) <= 0.01


@pytest.mark.slow
def test_labels_by_chance_that_come_late_get_a_note_in_at_most_one_percent_of_windows():
    noticed = []
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        p, y = predicted(rng, 900)
        known = rng.random(900)
        looks = [
            choose(p, y, np.flatnonzero(known < share), part=1.0 / ((look + 1) * (look + 2)))
            for look, share in enumerate([0.5, 0.6, 0.7, 0.8, 0.9])
        ]
        noticed.append(any(found.differs for found in looks))
    assert np.mean(noticed) <= 0.01


@pytest.mark.parametrize(("span", "parts"), [("0s", [1.0]), ("5d", [1 / 2, 1 / 6, 1 / 12])])
def test_looks_at_a_window_whose_labels_are_late_share_one_error_budget(span, parts, monkeypatch):
    log, labels = make_log(1, 600)
    labels["known_at"] += pd.to_timedelta(12 * (labels["id"] % 8), unit="h")
    spent = []

    def counting(*where, part=1.0, **more):
        spent.append(part)
        return look_at_labels(*where, part=part, **more)

    monkeypatch.setattr("huc_monitor.monitor.noticing.look_at_labels", counting)
    monitor = make(log, labels, windows=revisited(span))
    for days in (1.5, 2.0, 2.5):
        monitor.check(after(days))
    assert spent == parts


def test_the_visible_effect_is_what_the_scores_of_all_rows_would_change():
    rng = np.random.default_rng(2)
    p = np.tile([[0.6, 0.2, 0.1, 0.1], [0.9, 0.04, 0.03, 0.03]], (1000, 1))
    y = np.where(np.arange(2000) % 2, 0, rng.integers(0, 2, 2000))  # 0.9 is right, 0.6 half
    labelled = np.flatnonzero(rng.random(2000) < np.where(np.arange(2000) % 2, 0.2, 0.8))
    found = choose(p, y, labelled)
    low = np.flatnonzero(labelled % 2 == 0)
    share = low.size / labelled.size
    gaps = [(y[labelled[low]] == 0).mean() - 0.6, 0.1]
    wanted = (0.5 - share) * (gaps[0] - gaps[1])
    assert found.effect_on == "top1"
    assert found.effect == pytest.approx(wanted, abs=1e-9)
    assert found.coverage == {"l": pytest.approx(labelled.size / 2000)}


@pytest.fixture(scope="module")
def clustered():
    """Three days on which 40 users ask 20 times each and get one outcome for most of it."""
    log, labels = make_log(3, 800, seed=4)
    rng = np.random.default_rng(0)
    user = np.concatenate([rng.permutation(np.repeat(np.arange(40), 20)) for _ in range(3)])
    columns = [name for name in log if name.startswith("p_")]
    first = {}
    for row, key in enumerate(zip(user, np.arange(2400) // 800, strict=True)):
        first.setdefault(key, row)
    base = np.array([first[key] for key in zip(user, np.arange(2400) // 800, strict=True)])
    log[columns] = 0.97 * log[columns].to_numpy()[base] + 0.03 * log[columns].to_numpy()
    by_id = labels.set_index("id")["label"]
    same = rng.random(2400) < 0.8
    labels["label"] = [by_id[base[i]] if same[i] else by_id[i] for i in labels["id"].to_numpy()]
    log["user_id"] = [f"u{u}" for u in user]
    return log, labels


def test_a_check_tells_dependence_once_and_keeps_it_in_every_record(clustered):
    log, labels = clustered
    source = source_of(log, labels)
    columns = source.columns.model_copy(update={"keys": ("user_id",)})
    source = type(source)(source.log, tree=source.tree, columns=columns, labels=source.labels)
    monitor = make(log, labels, source=source, alerts={"cool_down": "7d"})
    result = monitor.check(after(3.5))
    noted = [[note for note in r.notes if "depend on each other" in note] for r in result.records]
    assert [len(found) for found in noted] == [1, 1, 1]
    assert result.message.text.count("columns.cluster: user_id") == 1
    quiet = make(log, labels, source=source, noticing={"enabled": False}).check(after(3.5))
    assert not any("depend" in note for record in quiet.records for note in record.notes)


def test_rows_without_a_time_are_told_once_and_again_when_there_are_more():
    log, labels = make_log(4, 300)
    tracker, texts = MemoryTracker(), []
    for day, untimed in ((1.5, 2), (2.5, 2), (3.5, 5)):
        lost = log.copy()
        lost.loc[lost.index[-untimed:], "at"] = pd.NaT
        result = make(lost, labels, tracker=tracker, tolerance=0.3).check(after(day))
        texts.append("" if result.message is None else result.message.text)
    told = [re.findall(r"(\d+) rows of the log have no time", text) for text in texts]
    assert told == [["2"], [], ["5"]]


@pytest.mark.seconds
def test_a_configured_check_finds_keys_by_name_and_doctor_and_init_say_so(
    clustered, tmp_path, capsys
):
    from huc_monitor.cli import main
    from huc_monitor.config import init_config, load_config
    from huc_monitor.config.opening import open_monitor

    log, labels = clustered
    path = write_project(tmp_path, log, labels)
    config = load_config(path)
    assert config.open_source().columns.keys == ("user_id",)
    result = open_monitor(config).check(after(3.5))
    assert "columns.cluster: user_id" in result.message.text
    assert main(["doctor", "--config", str(path)]) in {0, 2}
    told = " ".join(capsys.readouterr().out.split())
    assert "Rows of one user_id depend on each other" in told
    assert "set columns.cluster: user_id" in told
    text = init_config(
        tmp_path / "log",
        tmp_path / "tree.json",
        labels=tmp_path / "labels.parquet",
        folder=tmp_path,
    )
    assert "  cluster: user_id  # rows of one value depend on each other" in text


def test_check_and_doctor_say_that_blocks_are_too_short(tmp_path, capsys):
    from huc_monitor.cli import main
    from huc_monitor.config.opening import open_monitor

    log, labels = make_log(3, 1440, seed=6)
    columns = [name for name in log if name.startswith("p_")]
    z = autoregressive(np.random.default_rng(7), len(log), 0.8)
    level = pd.Series(z).rank(pct=True).to_numpy()
    code = (log[columns].to_numpy().cumsum(axis=1) < level[:, None]).sum(axis=1)
    leaves = np.array([name[2:] for name in columns])
    labels["label"] = leaves[code.clip(max=len(leaves) - 1)][labels["id"].to_numpy()]
    path = write_project(tmp_path, log, labels)
    path.write_text(path.read_text() + "\nclusters: {block: 10m}\n")
    result = open_monitor(path).check(after(3.5))
    said = [note for record in result.records for note in record.notes if "too short" in note]
    assert said
    assert "make clusters.block" in said[0]
    assert "Blocks of 10 rows are too short" in result.message.text
    assert main(["doctor", "--config", str(path)]) in {0, 2}
    assert "Blocks of 10 rows are too short" in " ".join(capsys.readouterr().out.split())
    path.write_text(path.read_text().replace("10m", "6h"))
    assert main(["doctor", "--config", str(path)]) in {0, 2}
    assert "not seen to be too short" in " ".join(capsys.readouterr().out.split())


def test_a_window_with_slow_outcomes_waits_for_the_branch_that_is_late():
    log, labels = make_log(2, 1200)
    slow = log["id"][log["p_normal"] > 0.6]
    second = log["id"] >= 1200
    early = labels[~labels["id"].isin(slow[second])]
    windows = TimeWindows(
        length="1d", label_lag="12h", min_labelled=50, min_branch_coverage=0.8, revisit="5d"
    )
    monitor = make(log, early, windows=windows)
    records = monitor.check(after(2.5)).records
    assert [record.status for record in records] == ["audited", "thin"]
    assert records[1].reason == "low coverage"
    assert "predicted under 'normal'" in records[1].notes[0]
    assert records[1].branch_coverage["normal"] < 0.8 < records[1].branch_coverage["attack"]
    later = make(log, early, noticing={"enabled": True}).check(after(2.5)).records[1]
    assert later.status == "audited"
    assert any("Labels may be no random choice" in note for note in later.notes)
