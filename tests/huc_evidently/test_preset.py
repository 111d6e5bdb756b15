"""The preset in real reports."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from support.production_log import make_log, tree

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError, UnknownNameError

pytest.importorskip("evidently", reason="needs evidently")

from evidently import Report
from evidently.core.report import Snapshot
from evidently.presets import DataDriftPreset
from huc_evidently import HUCMoment, HUCPreset

UTILITIES = [
    hm.LevelCorrectness(level=1, name="status"),
    hm.LevelCorrectness(level=2, name="family"),
]


@pytest.fixture(scope="module")
def days():
    """Three days with labels and inputs; on the last, attacks on udp are of another kind."""
    log, labels = make_log(3, 1500, broken_from=2)
    rows = log.merge(labels, on="id")
    rows["bytes"] = np.random.default_rng(0).lognormal(6, 1, len(rows))
    day = (rows["at"] - rows["at"].min()).dt.days
    return [rows[day == i].reset_index(drop=True) for i in range(3)]


@pytest.fixture(scope="module")
def by_protocol(days):
    return hm.Subgroups.from_reference(days[0], {"protocol": "each"})


def preset(**changes):
    settings = {
        "tree": tree(),
        "utilities": UTILITIES,
        "tolerance": 0.03,
        "target": "label",
        "probabilities": "p_{leaf}",
        "n_draws": 200,
    }
    return HUCPreset(**{**settings, **changes})


def outcomes(run, status):
    """Labels of the tests of our metrics that ended so: (node, utility, subgroup)."""
    return {
        (test.bound_test.label, params["utility"], params["subgroup"])
        for test in run.tests_results
        if test.status.name == status and "utility" in (params := test.metric_config.params)
    }


def titles(run):
    return [widget.title for widget in run._widgets]


def plain(run):
    """The snapshot as it is stored, read as strictly as JSON is meant to be."""

    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(run.dumps(), parse_constant=refuse)


def test_beside_the_drift_preset_the_failing_test_names_the_node(days, by_protocol):
    ours = preset(subgroups=by_protocol)
    report = Report([DataDriftPreset(columns=["bytes", "protocol"]), ours])
    run = report.run(days[2], days[0])
    failed = outcomes(run, "FAIL")
    assert failed == {("attack", "family", "all"), ("attack", "family", "protocol=udp")}
    of_moment, of_change = [
        test.description
        for test in run.tests_results
        if test.status.name == "FAIL" and "udp" in test.name
    ]
    start = "attack (family, protocol=udp): lower bound of the"
    assert of_moment.startswith(f"{start} moment: Actual value")
    assert of_change.startswith(f"{start} change since the reference: Actual value")
    assert "Dataset Drift" in json.dumps(plain(run)["widgets"])
    assert titles(run)[-3].startswith("Branches")


def test_a_leaf_that_never_happens_is_no_obstacle_with_or_without_a_reference(days, by_protocol):
    current = days[2][days[2]["label"] != "neptune"]
    assert set(current["label"]) < set(tree().leaves)
    for reference in (None, days[0], days[0][days[0]["label"] != "smurf"]):
        run = Report([preset(subgroups=by_protocol)]).run(current, reference)
        assert ("attack", "family", "protocol=udp") in outcomes(run, "FAIL")
        columns = run._widgets[-1].params["header"]
        assert ("Moment in the reference" in columns) == (reference is not None)
        assert plain(run)["metric_results"]


def test_the_numbers_are_those_of_an_audit(days, by_protocol):
    run = Report([preset(subgroups=by_protocol)]).run(days[2])
    wanted = hm.audit(
        days[2][[f"p_{leaf}" for leaf in tree().leaves]].to_numpy(),
        days[2]["label"].to_numpy(),
        tree=tree(),
        utilities=UTILITIES,
        subgroups=by_protocol,
        features=days[2],
        n_draws=200,
    )
    frame = wanted.to_frame(all_columns=True).assign(point=lambda f: f["moment"].abs())
    found = {}
    for result in run.metric_results.values():
        params = result.metric_value_location.metric.params
        if params["type"].endswith("HUCMoment"):
            for node, single in vars(result)["values"].items():
                found[params["utility"], params["subgroup"], node, params["bound"]] = single.value
        else:
            assert result.value == getattr(wanted, params["quantity"])
    names = frame[["utility", "subgroup", "node"]].itertuples(index=False, name=None)
    for (utility, subgroup, node), (_, row) in zip(names, frame.iterrows(), strict=True):
        for bound in ("point", "lower", "upper"):
            assert found.pop((utility, subgroup, node, bound)) == row[bound]
    assert found == {}
    assert len(run.metric_results) == 4 + len(UTILITIES) * len(by_protocol.names) * 3


def changes_of(run):
    """Values of the change since the reference: (utility, subgroup, node, bound) to number."""
    found = {}
    for result in run.metric_results.values():
        params = result.metric_value_location.metric.params
        if params["type"].endswith("HUCChange"):
            for node, single in vars(result)["values"].items():
                found[params["utility"], params["subgroup"], node, params["bound"]] = single.value
    return found


def sides(*frames):
    columns = [f"p_{leaf}" for leaf in tree().leaves]
    return [(frame[columns].to_numpy(), frame["label"].to_numpy()) for frame in frames]


def test_changes_are_those_of_a_comparison_with_the_reference_data(days, by_protocol):
    run = Report([preset(subgroups=by_protocol)]).run(days[2], days[0])
    wanted = hm.compare(
        *sides(days[0], days[2]),
        tree=tree(),
        utilities=UTILITIES,
        subgroups=by_protocol,
        features=(days[0], days[2]),
        n_draws=200,
    )
    found = changes_of(run)
    for row in range(len(wanted)):
        item = wanted[row]
        key = item.utility, item.subgroup, item.node
        size, radius = abs(item.difference), 0.5 * (item.upper - item.lower)
        assert found.pop((*key, "point")) == pytest.approx(size)
        assert found.pop((*key, "lower")) == pytest.approx(max(0.0, size - radius))
        assert found.pop((*key, "upper")) == pytest.approx(size + radius)
    assert found == {}


def test_what_stands_in_both_data_sets_fails_no_test_of_change():
    log, labels = make_log(2, 1500, broken_from=0)
    rows = log.merge(labels, on="id")
    run = Report([preset(tolerance=0.005)]).run(rows[1500:].reset_index(drop=True), rows[:1500])
    failed = [test.name for test in run.tests_results if test.status.name == "FAIL"]
    assert failed
    assert not any("change" in name for name in failed)


def test_changes_smaller_than_asked_for_pass_and_can_be_left_out(days):
    def failed(**settings):
        run = Report([preset(tolerance=1.0, **settings)]).run(days[2], days[0])
        return [test.name for test in run.tests_results if test.status.name == "FAIL"]

    assert failed() == [
        "attack (family, all): lower bound of the change since the reference: Less or Equal 0.000"
    ]
    assert failed(min_change=0.5) == failed(min_change=None) == []
    run = Report([preset(min_change=None)]).run(days[2], days[0])
    assert changes_of(run) == {}
    with pytest.raises(InvalidInputError, match="`min_change` must be a number of at least 0"):
        preset(min_change=-1.0)


def test_without_labels_in_the_reference_nothing_is_said_of_change(days):
    for reference in (None, days[0].drop(columns="label")):
        assert changes_of(Report([preset()]).run(days[2], reference)) == {}


def test_a_node_passes_or_fails_by_its_own_tolerance(days):
    generous = hm.Tolerance(value=0.03, overrides=[hm.ToleranceRule(value=0.5, node="attack")])
    run = Report([preset(tolerance=generous)]).run(days[2])
    assert outcomes(run, "FAIL") == set()
    assert ("attack", "family", "all") in outcomes(run, "SUCCESS")


def test_a_tolerance_relative_to_the_reference_accepts_what_it_showed(days):
    relative = hm.Tolerance(value=0.02, relative_to="reference")
    run = Report([preset(tolerance=relative)]).run(days[2], days[2])
    assert outcomes(run, "FAIL") == set()
    assert outcomes(Report([preset(tolerance=relative)]).run(days[2], days[0]), "FAIL")
    with pytest.raises(InvalidInputError, match="`reference_data` must be given with labels"):
        Report([preset(tolerance=relative)]).run(days[2])


def test_tests_can_be_left_out(days):
    run = Report([preset(include_tests=False)]).run(days[2])
    assert run.tests_results == []


def test_rows_without_a_label_are_left_out_and_a_window_without_labels_says_so(days):
    half = days[2].copy()
    half.loc[half.index % 2 == 0, "label"] = None
    run = Report([preset()]).run(half)
    assert run._widgets[0].params["counters"][0]["value"] == f"{len(half) // 2:,}"
    none = Report([DataDriftPreset(columns=["bytes"]), preset()]).run(
        half.assign(label=None), days[0]
    )
    assert outcomes(none, "SUCCESS") == set()
    assert "no row of the current data has a label yet" in json.dumps(plain(none)["widgets"])


def test_a_reference_without_labels_is_not_compared_with(days):
    run = Report([preset()]).run(days[2], days[0].drop(columns="label"))
    assert ("attack", "family", "all") in outcomes(run, "FAIL")
    assert run._widgets[-1].params["header"][-1] == "Verdict"


def test_nobody_in_a_subgroup_means_no_test_for_it(days, by_protocol):
    tcp = days[2][days[2]["protocol"] == "tcp"]
    run = Report([preset(subgroups=by_protocol)]).run(tcp)
    tested = outcomes(run, "SUCCESS") | outcomes(run, "FAIL")
    assert {subgroup for _, _, subgroup in tested} == {"all", "protocol=tcp"}
    assert "NaN" not in run.dumps()


def test_nodes_whose_names_look_like_numbers_are_tested_too():
    numbers = hm.LabelTree.from_nested({"404": ["a", "b"], "1_000": ["c", "d"], "on": ["e", "f"]})
    rows = pd.DataFrame(np.full((600, 6), 1 / 6), columns=list("abcdef"))
    rows["target"] = list("acceef") * 100
    run = Report([HUCPreset(tree=numbers, utilities=[hm.LevelCorrectness(level=2)])]).run(rows)
    tested = outcomes(run, "SUCCESS") | outcomes(run, "FAIL")
    assert {node for node, _, _ in tested} == {"root", "node 404", "node 1_000", "on"}
    assert not any(test.status.name == "ERROR" for test in run.tests_results)
    assert plain(run)["metric_results"]


def test_leaves_that_are_numbers_are_found_where_a_missing_label_made_floats_of_them():
    digits = hm.LabelTree.from_nested({"even": ["0", "2"], "odd": ["1", "3"]})
    rows = pd.DataFrame(np.full((400, 4), 0.25), columns=["0", "1", "2", "3"])
    rows["target"] = [0, 0, 1, None] * 100
    run = Report([HUCPreset(tree=digits, utilities=[hm.LevelCorrectness(level=2)])]).run(rows)
    assert run._widgets[0].params["counters"][0]["value"] == "300"


def test_two_presets_in_one_report_are_kept_apart_by_name(days):
    strict, lax = preset(name="strict", tolerance=0.01), preset(name="lax", tolerance=0.9)
    run = Report([strict, lax]).run(days[2])
    by_name = {
        test.metric_config.params["preset"]
        for test in run.tests_results
        if test.status.name == "FAIL"
    }
    assert by_name == {"strict"}
    assert len(run.metric_results) == 2 * (4 + len(UTILITIES) * 3)


def test_a_data_set_is_audited_once_however_many_reports_ask(days, monkeypatch):
    import huc_evidently._window as window
    from evidently import Dataset

    calls = []
    audit = window.audit
    monkeypatch.setattr(window, "audit", lambda *a, **k: calls.append(1) or audit(*a, **k))
    ours = preset()
    reference = Dataset.from_pandas(days[0])
    for day in days[1:]:
        Report([ours]).run(day, reference)
    assert len(calls) == 3


def test_what_is_stored_has_only_evidentlys_own_types_and_is_read_back(days, by_protocol):
    run = Report([preset(subgroups=by_protocol)]).run(days[2], days[0])
    stored = plain(run)
    kinds = {result["type"] for result in stored["metric_results"].values()}
    assert kinds == {
        "evidently:metric_result_v2:SingleValue",
        "evidently:metric_result_v2:ByLabelValue",
    }
    tests = [t for result in stored["metric_results"].values() for t in result["tests"]]
    assert {t["bound_test"]["type"] for t in tests} == {"evidently:bound_test:ByLabelBoundTest"}
    assert {t["bound_test"]["test"]["type"] for t in tests} == {
        "evidently:test_v2:LessOrEqualMetricTest"
    }
    assert {widget["type"] for widget in stored["widgets"]} == {"counter", "big_graph", "table"}
    again = Snapshot.loads(json.dumps(stored))
    assert len(again.tests_results) == len(run.tests_results)


def test_a_large_tree_makes_a_report_of_a_few_megabytes():
    large = hm.LabelTree.from_nested({f"n{i}": [f"n{i}a", f"n{i}b"] for i in range(300)})
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(large.n_leaves, 0.1), 500) + 1e-9
    rows = pd.DataFrame(p / p.sum(axis=1, keepdims=True), columns=list(large.leaves))
    rows["target"] = rng.choice(large.leaves, 500)
    ours = HUCPreset(tree=large, utilities=[hm.LevelCorrectness(level=2)], bounds="sharp")
    run = Report([ours]).run(rows)
    assert len(run.tests_results) == 301
    assert len(run.dumps()) < 3_000_000


def test_names_are_shown_as_text_not_as_markup():
    nasty = hm.LabelTree.from_nested({"<b onclick=x>": ["a", "b"], "c": None})
    rows = pd.DataFrame({"a": [0.2] * 300, "b": 0.3, "c": 0.5, "target": ["a", "c", "c"] * 100})
    run = Report([HUCPreset(tree=nasty, utilities=[hm.LevelCorrectness(level=2)])]).run(rows)
    icicle, bars = run._widgets[1:3]
    drawn = json.dumps([icicle.params, bars.params])
    assert "<b onclick" not in drawn
    assert "&lt;b onclick=x&gt;" in drawn


def test_a_missing_column_is_named_with_a_remedy(days):
    with pytest.raises(UnknownNameError, match=r"must have the column 'p_nmap'.*Did you mean"):
        Report([preset()]).run(days[0].rename(columns={"p_nmap": "p_nmpa"}))


def test_a_metric_by_itself_says_where_it_comes_from(days):
    alone = HUCMoment(utility="family", subgroup="all", bound="lower", tests={})
    with pytest.raises(InvalidInputError, match=r"must come from a preset\. Put `HUCPreset`"):
        Report([alone]).run(days[0])


def test_bounds_are_needed():
    with pytest.raises(InvalidInputError, match="`bounds` must be a method"):
        preset(bounds=None)
