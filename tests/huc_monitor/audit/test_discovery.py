from __future__ import annotations

import dataclasses
import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import t as student
from support.production_log import make_log, write_project
from typer.testing import CliRunner

import huc_monitor as hm
from huc_monitor.audit.discovery.conditions import read_features
from huc_monitor.audit.discovery.search import Search, unexplained
from huc_monitor.cli import app
from huc_monitor.config import load_config
from huc_monitor.reporting import draw_pictures

TREE = hm.LabelTree.from_nested(
    {"billing": ["refund", "charge"], "delivery": ["late", "lost"], "account": None}
)
BILLING = hm.Payoff("billing", {"refund": 1.0, "charge": 1.0})


def make_rows(n=4000, *, seed=0, off=0.3):
    """Draw rows where billing is likelier than predicted for the app's users from 60 on."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "channel": rng.choice(["app", "web", "phone"], n),
            "age": rng.uniform(18, 90, n).round(1),
            "vip": rng.random(n) < 0.3,
            "seen": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="h"),
        }
    )
    inside = ((frame["channel"] == "app") & (frame["age"] >= 60)).to_numpy()
    p = rng.dirichlet(np.ones(5), n)
    share = p[:, :2].sum(axis=1)
    moved = np.where(inside, np.clip(share + off, 0, 1), share)
    truth = p * np.where(np.arange(5) < 2, (moved / share)[:, None], 1)
    truth[:, 2:] *= ((1 - moved) / (1 - share))[:, None]
    y = (truth.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1).clip(0, 4)
    return p, y, frame, inside


@pytest.fixture(scope="module")
def found():
    p, y, frame, inside = make_rows()
    return hm.discover(p, y, tree=TREE, utilities=[BILLING], features=frame), frame, inside


def test_a_planted_segment_is_found_described_and_certified(found):
    result, frame, inside = found
    best = result.certified[0]
    assert (best.node, best.utility) == ("root", "billing")
    assert best.moment > 0, "predictions understate"
    group = result.make_subgroups(frame).weights(frame, len(frame))[1].astype(bool)
    assert (group & inside).sum() / (group | inside).sum() > 0.8
    assert {part["column"] for part in best.rule["and"]} == {"channel", "age"}
    assert "channel=app" in str(best)


def test_what_one_segment_explains_is_not_found_again(found):
    result, _, _ = found
    rules = [json.dumps(segment.rule) for segment in result.segments]
    assert len(set(rules)) == len(rules)
    assert len(result.certified) <= 2


def test_bounds_are_students_with_a_floor_on_rows_that_chose_nothing():
    p, y, frame, _ = make_rows()
    options = {"tree": TREE, "utilities": [BILLING], "features": frame}
    (best,) = hm.discover(p, y, max_segments=1, **options).certified
    half = np.random.default_rng(0).permutation(len(y))[len(y) // 2 :]
    residual = (y[half] < 2) - p[half, :2].sum(axis=1)
    rows = frame.iloc[half]
    inside = np.ones(len(rows), dtype=bool)
    for part in best.rule["and"]:
        column, value = rows[part["column"]], part["value"]
        tests = {"==": column == value, ">=": column >= value, "<": column < value}
        inside &= tests[part["op"]].to_numpy() if part["op"] != "==" else (column == value)
    assert best.score_range == "any"
    values = residual * inside
    error = 0.05  # all of it: evidence is overwhelming, and nothing else was looked for
    unseen = np.log(1 / error)  # the largest contribution of this branch is 1
    expected = (p[half, :2].sum(axis=1) * p[half, 2:].sum(axis=1) * inside).mean()
    square = max(np.mean(values**2), expected) + unseen / half.size
    spread = np.sqrt((square - values.mean() ** 2) / half.size)
    radius = student.ppf(1 - error / 2, inside.sum() - 1) * spread
    assert best.n == inside.sum()
    assert best.moment == pytest.approx(values.mean())
    assert (best.lower, best.upper) == pytest.approx((best.moment - radius, best.moment + radius))


def discover_in_sure_predictions(seed, n=3000):
    """Search calibrated rows most of which are nearly certain."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.choice(list("abcd"), n) for name in ("x", "y")})
    logits = rng.normal(size=(n, 5))
    logits[np.arange(n), rng.integers(0, 5, n)] += rng.uniform(4, 14, n)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1).clip(0, 4)
    return hm.discover(p, y, tree=TREE, features=frame)


def test_predictions_that_are_sure_and_right_are_no_finding():
    false = [bool(discover_in_sure_predictions(seed).certified) for seed in range(20)]
    assert sum(false) <= 1, "5 % of searches may certify something by chance"


@pytest.mark.parametrize("seed", range(5))
def test_the_first_finding_is_the_best_of_all_conditions_and_pairs(seed):
    rng = np.random.default_rng(seed)
    n = 400
    frame = pd.DataFrame({name: rng.choice(list("abc"), n) for name in ("x", "y", "z")})
    features, _ = read_features(frame, 10)
    rows = np.flatnonzero(rng.random(n) < 0.8)
    off = ((frame["x"] == "a") & (frame["y"] == "b")).to_numpy()[rows]
    values = rng.normal(size=rows.size) + 1.2 * off
    search = Search([(rows, values)], n, [np.array([0])], features, 2, 10, [1.0])
    (first, *_) = search.run(3)

    def evidence(parts):
        inside = np.logical_and.reduce([part.mask[rows] for part in parts])
        price = np.log(2) + np.log(3) + len(parts) * np.log(3)  # 3 features, or pairs; 3 values
        return values[inside].sum() ** 2 / ((values[inside] ** 2).sum() + 3) / 2 - price

    conditions = [f.condition(place) for f in features for place in range(len(f.meant))]
    pairs = [
        pair
        for pair in itertools.combinations(conditions, 2)
        if pair[0].column != pair[1].column and (pair[0].mask & pair[1].mask)[rows].sum() >= 10
    ]
    singles = [(c,) for c in conditions if c.mask[rows].sum() >= 10]
    best = max([*singles, *pairs], key=evidence)
    assert {part.name for part in first.conditions} == {part.name for part in best}
    assert first.gain == pytest.approx(evidence(best))


def test_a_pair_is_found_though_neither_condition_shows_alone():
    rng = np.random.default_rng(3)
    n = 2000
    frame = pd.DataFrame({name: rng.choice(list("ab"), n) for name in "vwxyz"})
    features, _ = read_features(frame, 10)
    one, other = ((frame[name] == "a").to_numpy() for name in "wz")
    values = rng.normal(size=n) + np.where(one == other, 0.5, -0.5)  # no margin is off
    rows = np.arange(n)
    search = Search([(rows, values)], n, [np.array([0])], features, 2, 10, [1.0])
    (first, *_) = search.run(1)
    assert {part.column for part in first.conditions} == {"w", "z"}


def test_a_range_in_the_middle_is_found_to_its_fine_cut_points():
    rng = np.random.default_rng(4)
    n = 4000
    frame = pd.DataFrame({name: rng.uniform(size=n) for name in "xyz"})
    features, _ = read_features(frame, 40)
    middle = frame["y"].between(0.33, 0.46).to_numpy()
    values = (rng.normal(size=n) + 0.8 * middle) / 4
    search = Search([(np.arange(n), values)], n, [np.array([0])], features, 2, 40, [1.0])
    (first, *_) = search.run(1)
    (condition,) = first.conditions
    low, high = (part["value"] for part in condition.rule["and"])
    assert (condition.column, low, high) == (
        "y",
        pytest.approx(0.33, abs=0.02),
        pytest.approx(0.46, abs=0.02),
    )


def test_conditions_hold_for_the_rows_that_their_rules_name():
    rng = np.random.default_rng(6)
    n = 600
    hours = pd.to_timedelta(rng.integers(0, 900, n), unit="h")
    frame = pd.DataFrame(
        {
            "number": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "count": rng.poisson(2, n).clip(0, 6),
            "text": pd.Series(rng.choice(list("abc"), n)).where(rng.random(n) < 0.9),
            "flag": rng.random(n) < 0.5,
            "time": pd.Timestamp("2026-01-01") + hours,
        }
    )
    features, _ = read_features(frame, 10)
    conditions = [f.condition(place) for f in features for place in range(len(f.meant))]
    family = hm.Subgroups.from_reference(
        frame, predicates={str(k): one.rule for k, one in enumerate(conditions)}
    )
    by_rule = family.weights(frame, n)[1:]
    assert {c.column for c in conditions} == set(frame)
    assert {"number is missing", "text is missing", "text=a", "count=2"} <= {
        c.name for c in conditions
    }
    for condition, mask in zip(conditions, by_rule, strict=True):
        assert np.array_equal(condition.mask, mask.astype(bool)), condition.name


def test_groups_that_overlap_are_taken_out_together():
    rng = np.random.default_rng(7)
    values = rng.normal(size=300)
    groups = [rng.random(300) < share for share in (0.2, 0.5, 1.0)]
    rest = unexplained(values, [*groups, groups[0]])
    assert [rest[group].sum() for group in groups] == pytest.approx([0.0] * 3, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_what_a_clearer_segment_explains_is_no_finding(seed):
    p, y, frame, inside = make_rows(6000, seed=seed)
    result = hm.discover(p, y, tree=TREE, utilities=[BILLING], features=frame)
    groups = result.make_subgroups(frame).weights(frame, len(frame))[1:]
    assert sum((group * inside).sum() > 0.1 * inside.sum() for group in groups) == 1


def test_what_was_found_with_little_evidence_takes_little_of_the_error(found):
    p, y, frame, _ = make_rows()
    result, _, _ = found
    alone = hm.discover(p, y, tree=TREE, utilities=[BILLING], features=frame, max_segments=1)
    (best,) = alone.certified
    among = result.certified[0]
    equal = student.ppf(1 - 0.025 / len(result.segments), best.n) / student.ppf(0.975, best.n)
    assert (among.name, among.moment) == (best.name, best.moment)
    assert 1 < (among.upper - among.lower) / (best.upper - best.lower) < 0.95 * equal


def test_a_discovery_has_a_picture_of_its_segments(found):
    result, _, _ = found
    picture = result.plot()
    assert picture.to_svg() == draw_pictures(result)["segments"].to_svg()
    assert result.certified[0].name in picture.description
    assert "◆" in picture.to_svg()
    assert "<svg" in result._repr_html_()
    nothing = dataclasses.replace(result, segments=())
    with pytest.raises(hm.InvalidInputError, match="nothing to draw"):
        nothing.plot()


def test_calibrated_predictions_have_no_certified_segment_in_most_draws():
    certified = 0
    for seed in range(20):
        p, y, frame, _ = make_rows(1200, seed=100 + seed, off=0.0)
        certified += bool(hm.discover(p, y, tree=TREE, features=frame).certified)
    assert certified <= 3


def test_labels_that_stop_at_a_branch_count_by_its_coverage():
    p, y, frame, inside = make_rows(16_000, off=0.0)
    rng = np.random.default_rng(5)
    y = np.where(inside & (y == 1) & (rng.random(y.size) < 0.6), 0, y)
    names = np.array(TREE.leaves, dtype=object)[y]
    stopped = np.where((y < 2) & (rng.random(y.size) < 0.5), "billing", names)
    pay = hm.Payoff("pay", {"refund": 1.0, "charge": -1.0})
    full, part = (
        hm.discover(p, labels, tree=TREE, utilities=[pay], features=frame).certified[0]
        for labels in (names, stopped)
    )
    assert (full.node, part.node) == ("billing", "billing")
    assert {rule["column"] for rule in part.rule["and"]} == {"channel", "age"}
    assert part.n < 0.65 * full.n, "half of the labels say nothing of this branch"
    assert part.moment == pytest.approx(full.moment, rel=0.3)
    assert part.moment_in_segment == pytest.approx(full.moment_in_segment, rel=0.3)
    assert part.upper - part.lower > 1.2 * (full.upper - full.lower)


def test_missing_values_are_a_condition():
    p, y, frame, inside = make_rows(off=0.4)
    frame = frame[["channel", "vip"]].copy()
    frame["income"] = np.where(inside, np.nan, 1000.0)
    result = hm.discover(p, y, tree=TREE, utilities=[BILLING], features=frame)
    assert result.certified[0].rule == {"column": "income", "op": "is missing"}


def test_times_are_cut_like_numbers():
    p, y, frame, _ = make_rows(off=0.0)
    late = (frame["seen"] >= "2026-01-25").to_numpy()
    y = np.where(late & (np.random.default_rng(1).random(len(y)) < 0.4), 4, y)
    result = hm.discover(p, y, tree=TREE, utilities=[BILLING], features=frame)
    rule = result.certified[0].rule
    assert rule["column"] == "seen"
    assert abs(pd.Timestamp(rule["value"]) - pd.Timestamp("2026-01-25")) < pd.Timedelta(days=2)


@pytest.mark.parametrize("dtype", ["datetime64[ns, Europe/Berlin]", "timestamp[us, UTC][pyarrow]"])
def test_times_with_a_zone_are_cut_by_rules_that_hold_in_every_zone(dtype):
    p, y, frame, _ = make_rows(off=0.0)
    late = (frame["seen"] >= "2026-01-25").to_numpy()
    y = np.where(late & (np.random.default_rng(1).random(len(y)) < 0.4), 4, y)
    zoned = frame[["seen"]].apply(lambda times: times.dt.tz_localize("UTC").astype(dtype))
    zoned.loc[:9, "seen"] = pd.NaT
    result = hm.discover(p, y, tree=TREE, utilities=[BILLING], features=zoned)
    pasted = yaml.safe_load(yaml.safe_dump(result.predicates))
    (rule,) = pasted.values()
    assert abs(pd.Timestamp(rule["value"]) - pd.Timestamp("2026-01-25", tz="UTC")).days < 2
    family = hm.Subgroups.from_reference(zoned, predicates=pasted)
    again = hm.Subgroups.from_dict(json.loads(json.dumps(family.to_dict())))
    inside = (zoned["seen"] >= pd.Timestamp(rule["value"])).fillna(value=False).to_numpy(dtype=bool)
    for zone in ("UTC", "Asia/Kolkata"):
        later = pd.DataFrame({"seen": pd.to_datetime(zoned["seen"], utc=True).dt.tz_convert(zone)})
        assert np.array_equal(again.weights(later, len(later))[1].astype(bool), inside)


def test_a_column_of_many_texts_is_left_out_with_a_note():
    p, y, frame, _ = make_rows(800)
    frame["comment"] = [f"text {k}" for k in range(800)]
    result = hm.discover(p, y, tree=TREE, features=frame)
    assert any("'comment' has" in note for note in result.notes)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[1], [2]], "values of type list"),
        ([{"a": 1}, {}], "values of type dict"),
        ([{1}, {2}], "values of type set"),
        ([np.arange(2), np.arange(3)], "values of type ndarray"),
        ([b"a", b"b"], "values of type bytes"),
        ([1j, 2j], "the dtype complex128"),
        (pd.interval_range(0, 2), "values of type interval"),
        ([1, "one"], r"mixed types \(row 0: 1, row 1: 'one'\)"),
    ],
)
def test_a_column_that_rules_cannot_compare_is_left_out_with_a_note(values, kind):
    p, y, frame, _ = make_rows(800)
    frame = frame[["vip"]].assign(odd=pd.Series(list(values) * 400))
    (note,) = hm.discover(p, y, tree=TREE, utilities=[BILLING], features=frame).notes
    assert re.match(f"column 'odd' was left out, because rules cannot compare {kind}; make", note)


def test_infinite_values_are_in_no_rule():
    p, y, frame, inside = make_rows(off=0.4)
    frame = pd.DataFrame({"income": np.where(inside, 1.0, np.where(frame["vip"], np.inf, 2.0))})
    (first, *_) = hm.discover(p, y, tree=TREE, utilities=[BILLING], features=frame).certified
    assert "inf" not in json.dumps(first.rule).lower()
    assert "income" in first.name


def test_columns_named_by_numbers_are_searched_and_a_note_says_how_to_rename_them():
    p, y, frame, _ = make_rows()
    frame = pd.DataFrame({0: frame["channel"], 1: frame["age"]})
    result = hm.discover(p, y, tree=TREE, utilities=[BILLING], features=frame)
    assert {part["column"] for part in result.certified[0].rule["and"]} == {"0", "1"}
    assert "the column 0 is '0' in them; before you use them, set" in result.notes[0]
    with pytest.raises(hm.UnknownNameError, match=r"It is named [01], which is no text: rename it"):
        result.make_subgroups(frame)
    frame.columns = frame.columns.astype(str)
    assert len(result.make_subgroups(frame)) > 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_conditions": 4}, "`max_conditions` must be at most 3"),
        ({"min_share": 0.5}, "`min_share` must be less than 0.5"),
        ({"tolerance": -1}, "`tolerance` must be a number of at least 0"),
        ({"max_segments": 0}, "`max_segments` must be at least 1"),
        ({"confidence_level": 1.0}, "`confidence_level` must be less than 1"),
        ({"features": pd.DataFrame({"a": [1]})}, "a row per prediction"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    p, y, frame, _ = make_rows(600)
    with pytest.raises(hm.InvalidInputError, match=message):
        hm.discover(p, y, tree=TREE, **{"features": frame, **wrong})


def test_too_few_rows_are_refused():
    p, y, frame, _ = make_rows(399)
    with pytest.raises(hm.InvalidInputError, match="at least 400 rows"):
        hm.discover(p, y, tree=TREE, features=frame)


def test_the_command_prints_what_can_be_pasted(tmp_path):
    p, y, frame, _ = make_rows()
    log = frame.assign(y=np.array(TREE.leaves)[y], **dict(zip(TREE.leaves, p.T, strict=True)))
    log.to_parquet(tmp_path / "log.parquet")
    nested = {"billing": ["refund", "charge"], "delivery": ["late", "lost"], "account": None}
    (tmp_path / "tree.yaml").write_text(yaml.safe_dump(nested, sort_keys=False), "utf-8")
    call = ["discover", tmp_path / "log.parquet", "--tree", tmp_path / "tree.yaml"]
    call += ["--label", "y", "--feature", "channel", "--feature", "age", "--utility", "in:billing"]
    done = CliRunner().invoke(app, [str(word) for word in call])
    assert done.exit_code == 1, done.output
    said = " ".join(done.stdout.split())
    assert re.search(
        r"\d% of the certifying rows\): at .*, the mean of the \d+ of them labelled", said
    )
    pasted = yaml.safe_load(done.stdout.split("add to huc.yaml:")[1])
    groups = hm.Subgroups.from_reference(frame, predicates=pasted["subgroups"]["predicates"])
    assert any("channel=app" in name for name in groups.names)
    plain = CliRunner().invoke(app, [str(word) for word in [*call, "--json"]])
    assert json.loads(plain.stdout)["discovery"]["segments"][0]["certified"] is True


def test_the_command_searches_the_log_of_a_configuration(tmp_path):
    log, labels = make_log(4, 1000, broken_from=0)
    write_project(tmp_path, log, labels)
    done = CliRunner().invoke(app, ["discover", "--config", str(tmp_path / "huc.yaml"), "--json"])
    assert done.exit_code == 1, done.output
    first = json.loads(done.stdout)["discovery"]["segments"][0]
    assert (first["node"], first["name"], first["certified"]) == ("attack", "protocol=udp", True)


def test_a_configuration_is_searched_in_all_columns_without_another_meaning(tmp_path):
    log, labels = make_log(4, 1000, broken_from=0)
    log = log.assign(seller="one", p_new=0.0, guessed="dos")
    log.loc[::3, "seller"] = "two"
    config = write_project(tmp_path, log, labels)
    text = config.read_text("utf-8").replace("protocol: each", "seller: each")
    config.write_text(text, "utf-8")
    call = ["discover", "--config", str(config), "--json"]
    found = json.loads(CliRunner().invoke(app, call).stdout)["discovery"]
    assert found["segments"][0]["name"] == "protocol=udp"
    assert found["notes"][0] == "Searched the columns 'seller', 'protocol', 'day'."
    named = CliRunner().invoke(app, [*call, "--feature", "seller"])
    assert "Searched the columns 'seller'." in json.loads(named.stdout)["discovery"]["notes"]


def test_what_is_watched_already_is_said_and_not_proposed_again(tmp_path):
    config = write_project(tmp_path, *make_log(4, 1000, broken_from=0))
    call = ["discover", "--config", str(config), "--feature", "protocol"]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 1, done.output
    assert "Note: 'protocol=udp' is watched already." in done.stdout
    assert "To watch them" not in done.stdout
    by_name = 'predicates: {udp: {column: protocol, op: "==", value: udp}}'
    text = config.read_text("utf-8").replace("by: {protocol: each}", by_name)
    config.write_text(text, "utf-8")
    assert "'protocol=udp' is watched already." in CliRunner().invoke(app, call).stdout


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("", "add to huc.yaml:"),
        ("subgroups:\n  min_size: 5\n", "add below `subgroups:` in huc.yaml:"),
        (
            "subgroups:\n  predicates:\n    tcp: {column: protocol, op: '==', value: tcp}\n",
            "add below `predicates:` in huc.yaml:",
        ),
    ],
)
def test_what_is_printed_to_paste_fits_below_what_the_file_has(tmp_path, section, said):
    config = write_project(tmp_path, *make_log(4, 1000, broken_from=0))
    head, tail = config.read_text("utf-8").split("subgroups: {by: {protocol: each}}\n")
    config.write_text(head + tail + section, "utf-8")
    call = ["discover", "--config", str(config), "--feature", "protocol"]
    pasted = CliRunner().invoke(app, call).stdout.split(said)[1]
    config.write_text(head + tail + section + pasted.lstrip("\n"), "utf-8")
    assert "protocol=udp" in load_config(config).settings.subgroups.predicates


def test_the_command_searches_the_rows_since_an_alert_began(tmp_path):
    log, labels = make_log(4, 1000, broken_from=3)
    write_project(tmp_path, log, labels)
    days = log["at"].dt.floor("D").unique()
    call = ["discover", "--config", str(tmp_path / "huc.yaml"), "--json"]
    since, until = ([*call, name, str(days[3])] for name in ("--since", "--until"))
    found, before = (CliRunner().invoke(app, one) for one in (since, until))
    assert (found.exit_code, before.exit_code) == (1, 0), found.output + before.output
    searched = json.loads(found.stdout)["discovery"]
    assert searched["n_searched"] + searched["n_certifying"] == (log["at"] >= days[3]).sum()
    late = CliRunner().invoke(app, [*call, "--since", "2206-01-01"])
    assert (late.exit_code, "before the log ends" in late.stderr) == (2, True)


def test_a_column_without_values_is_said_to_be_left_out():
    p, y, frame, _ = make_rows(600)
    found = hm.discover(p, y, tree=TREE, features=frame.assign(gone=None))
    assert "column 'gone' has no values and was left out" in found.notes


def test_the_command_wants_a_log_or_a_configuration(tmp_path):
    write_project(tmp_path, *make_log(1, 10))
    config = ["discover", "--config", str(tmp_path / "huc.yaml")]
    for call, message in (
        (["discover"], "Name a labelled log with --tree"),
        ([*config, "--label", "y"], "leave out --label"),
        ([*config, "--label-mapping", "a.csv"], "leave out --label-mapping"),
        (["discover", "log.parquet", "--since", "2026-11-03"], "must come with --config"),
    ):
        done = CliRunner().invoke(app, call)
        assert done.exit_code == 2
        assert message in done.stderr


def test_boosting_over_what_is_discovered_mends_a_segment_nobody_named():
    p, y, frame, inside = make_rows()
    boost = hm.HUCBoost(tree=TREE, utilities=[BILLING], subgroups="discover")
    boost.fit(p, y, features=frame)
    (name,) = {update.subgroup for update in boost.updates_} - {"all"}
    assert name == boost.discovery_.certified[0].name
    later, labels, rows, inside = make_rows(seed=9)
    mended = boost.predict_proba(later, features=rows)
    gap = [q[inside, :2].sum(axis=1).mean() - (labels[inside] < 2).mean() for q in (later, mended)]
    assert abs(gap[1]) < 0.3 * abs(gap[0])
    again = hm.HUCBoost.from_dict(boost.to_dict())
    assert np.array_equal(again.predict_proba(later, features=rows), mended)


def test_discovery_while_boosting_needs_features():
    p, y, frame, _ = make_rows(600)
    boost = hm.HUCBoost(tree=TREE, utilities=[BILLING], subgroups="discover")
    for given in ({}, {"features": frame, "weights": np.ones(600)}):
        with pytest.raises(hm.InvalidInputError, match="must come with `features`"):
            boost.fit(p, y, **given)
    with pytest.raises(hm.HUCError, match="`subgroups` must be one of 'discover'"):
        hm.HUCBoost(tree=TREE, utilities=[BILLING], subgroups="find").fit(p, y, features=frame)
