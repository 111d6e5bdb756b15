from __future__ import annotations

import dataclasses
import logging
import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.monitor.change import CandidateChange, WindowChange
from huc_monitor.monitor.findings import Finding
from huc_monitor.monitor.ports import MonitorInfo, Tracker, make_plugin
from huc_monitor.monitor.records import AlertState, WindowRecord

INFO = MonitorInfo("triage", "0123456789abcdef", model="triage", settings={"window": "1d"})
DAY = datetime(2024, 3, 1, tzinfo=UTC)


def tracker(store, **options):
    from huc_mlflow._tracker import MLflowTracker

    return MLflowTracker(INFO, tracking_uri=f"sqlite:///{store}/mlflow.db", **options)


def a_record(ordinal=1, *, level=None, revision=0, seed=0):
    tree = hm.LabelTree.from_nested({"sick": ["flu", "coma"], "well": None})
    rng = np.random.default_rng(seed + ordinal)
    p = rng.dirichlet(np.ones(3), 200)
    result = hm.audit(
        p, rng.integers(0, 3, 200), tree=tree, utilities=[hm.TopK(1)], n_draws=50, rng=ordinal
    )
    start = DAY + timedelta(days=ordinal - 1)
    alerts = ()
    if level:
        times = {"first_seen": start, "last_seen": start + timedelta(days=1)}
        place = {"utility": "top1", "subgroup": "all", "node": "sick"}
        counts = {"first_ordinal": 1, "last_ordinal": ordinal, "n_windows": 1}
        alerts = (AlertState(level=level, **place, **times, **counts),)
    return WindowRecord(
        monitor="triage",
        identity=INFO.identity,
        window_id=f"{ordinal:04x}",
        ordinal=ordinal,
        revision=revision,
        start=start,
        end=start + timedelta(days=1),
        due_at=start + timedelta(days=2),
        status="audited",
        model="triage",
        model_version="1",
        n_predictions=210,
        n_labelled=200,
        coverage=200 / 210,
        audit=result.to_dict(),
        tolerances=(0.02,) * result.candidates.n,
        levels=(None,) * result.candidates.n,
        alerts=alerts,
    )


def history(mine, key):
    return [
        (m.step, m.timestamp, m.value) for m in mine._client.get_metric_history(mine.run_id, key)
    ]


def test_monitors_of_other_stores_and_experiments_do_not_wait_for_each_other(tmp_path, monkeypatch):
    from huc_mlflow._tracker import MLflowTracker

    from huc_monitor.monitor._lock import CheckInProgressError, hold

    def lock(folder, **options):
        return tracker(folder, **options).lock_path

    production = lock(tmp_path)
    assert lock(tmp_path) == production
    others = [lock(tmp_path / "staging"), lock(tmp_path, experiment="another")]
    busy = pytest.raises(CheckInProgressError)
    with hold(production), hold(others[0]), hold(others[1]), busy, hold(lock(tmp_path)):
        pytest.fail("two checks of one monitor")
    monkeypatch.chdir(tmp_path)
    assert MLflowTracker(INFO, tracking_uri="sqlite:///mlflow.db").lock_path == production
    assert MLflowTracker(INFO, tracking_uri="http://anna:pw@host").lock_path != production


def test_a_window_is_a_step_of_the_monitor_run_and_a_child_run(store):
    mine = tracker(store)
    records = [a_record(1), a_record(2, level="critical")]
    for record in records:
        mine.record(record, {"report.html": b"<p>hello</p>"})
    assert mine.records() == records
    node = next(row for row in records[1].audit["candidates"] if row["node"] == "sick")
    assert history(mine, "branches/sick")[-1] == (
        2,
        int(records[1].end.timestamp() * 1000),
        pytest.approx(node["moment"]),
    )
    assert history(mine, "branches_bounds/sick lower")[-1][0] == 2, "only while it is told of"
    alerting = mine._client.search_runs([mine.runs.experiment], "tags.`huc.status` = 'alert'")
    assert [run.data.tags["huc.key"] for run in alerting] == [records[1].key.removesuffix("-r0")]
    (child,) = alerting
    assert child.info.status == "FINISHED"
    assert child.data.metrics["huc"] == pytest.approx(records[1].audit["huc"])
    assert child.inputs.dataset_inputs[0].dataset.name == "triage"
    names = {file.path for file in mine._client.list_artifacts(child.info.run_id)}
    assert {
        "record-r0.json",
        "report.html",
        "moments.svg",
        "candidates.parquet",
        "worst.json",
    } <= names


def test_reading_makes_neither_experiment_nor_run(store):
    nowhere, mine = tracker(store, experiment="not there"), tracker(store)
    for one in (nowhere, mine):
        assert (one.load_state(), one.peek_state(), one.previous_state()) == (None,) * 3
        assert (one.records(), one.records(last=3), one.window(1)) == ([], [], None)
    assert mine._client.get_experiment_by_name("not there") is None
    assert not mine._client.search_runs([mine.runs.experiment])
    mine.save_state({"schema_version": 1})
    other = dataclasses.replace(INFO, identity="another one")
    changed = type(mine)(other, tracking_uri=f"sqlite:///{store}/mlflow.db")
    assert (changed.load_state(), changed.previous_state()) == (None, {"schema_version": 1})
    assert len(mine._client.search_runs([mine.runs.experiment])) == 1


def a_change(node, k=0):
    change = CandidateChange(
        utility="top1",
        subgroup="all",
        node=node,
        before=0.0,
        after=-0.05 - k / 100,
        difference=-0.05 - k / 100,
        lower=-0.09,
        upper=-0.01,
        interval_low=0.1,
        interval_high=0.9,
        n_windows=1,
        onset=DAY + timedelta(days=1),
        track=tuple((DAY + timedelta(days=day), 0.0) for day in range(4)),
    )
    return Finding(
        kind="changed", node=node, subgroups=("all",), utilities=("top1",), change=change
    )


def test_what_changed_is_logged_by_branch_and_what_stands_is_counted(store):
    mine = tracker(store)
    stands = Finding(kind="standing", node="root", subgroups=("all",), utilities=("top1",))
    record = dataclasses.replace(a_record(4), findings=(a_change("sick"), stands))
    mine.record(record)
    assert [point[2] for point in history(mine, "change/sick")] == [-0.05]
    assert [point[2] for point in history(mine, "change_bounds/sick lower")] == [-0.09]
    assert [point[2] for point in history(mine, "change_bounds/sick upper")] == [-0.01]
    (child,) = mine._client.search_runs([mine.runs.experiment], "tags.`huc.changed` = 'sick'")
    figures = {name: child.data.metrics[name] for name in ("n_changed", "n_standing", "change")}
    assert figures == {"n_changed": 1, "n_standing": 1, "change": -0.05}
    assert child.data.metrics["windows_since_onset"] == 3


def metrics(record, most=100, known=(), **options):
    from huc_mlflow._metrics import ShownWindow

    return ShownWindow(record).metrics(most, known, **options)


def test_of_many_branches_that_changed_ten_have_metrics_of_their_own():
    many = tuple(a_change(f"b{k}", k) for k in range(30))
    found = metrics(dataclasses.replace(a_record(1), findings=many))
    assert len([key for key in found if key.startswith("change")]) == 30
    assert found["audit/n_changed"] == 30
    assert not any("change" in key for key in metrics(a_record(1)))


def test_a_forecast_and_what_came_of_it_have_metrics_of_their_own():
    made = hm.forecast(
        [[0.9, 0.1]] * 50,
        [[0.9, 0.1]] * 100,
        ["a"] * 70 + ["b"] * 30,
        tree=hm.LabelTree.flat(["a", "b"]),
        utilities=hm.TopK(1),
    )
    pending = dataclasses.replace(
        a_record(1), status="pending", audit=None, forecasts=tuple(made), tolerances=(), levels=()
    )
    waiting = metrics(pending)
    assert waiting["forecast/top1 expected"] == pytest.approx(0.7)
    assert waiting["forecast/top1 lower"] < 0.7 < waiting["forecast/top1 upper"]
    judged = tuple(item.judged(-0.25, 50) for item in made)
    done = metrics(dataclasses.replace(a_record(1), forecasts=judged))
    assert done["forecast/top1 realised"] == pytest.approx(0.65)
    assert "forecast/top1 realised" not in waiting
    other = tuple(dataclasses.replace(item, audited_version="1") for item in judged)
    found = metrics(dataclasses.replace(a_record(1), forecasts=other))
    assert [key for key in found if key.startswith("forecast")] == ["forecast/top1 realised"]


def an_alert(node, level, moment, **place):
    times = {"first_seen": DAY, "last_seen": DAY, "first_ordinal": 1, "last_ordinal": 1}
    names = {"utility": "top1", "subgroup": "all", **place}
    return AlertState(
        node=node, level=level, moment=moment, tolerance=0.02, n_windows=1, **names, **times
    )


def a_wide_record(ordinal, moments, alerts=()):
    from support.report_cases import audit_dict, candidate

    nodes = [f"node {k}" for k in range(len(moments))]
    rows = [
        candidate(node=node, moment=float(m), radius=0.1, subgroup=group)
        for group in ("all", "sex=f")
        for node, m in zip(nodes, moments, strict=True)
    ]
    tree = hm.LabelTree.from_nested({node: [f"{node} a", f"{node} b"] for node in nodes})
    return dataclasses.replace(
        a_record(ordinal),
        audit=audit_dict(rows, tree),
        tolerances=(0.02,) * len(rows),
        levels=(None,) * len(rows),
        alerts=tuple(alerts),
    )


def test_a_branch_with_an_alert_has_a_chart_of_its_own_which_goes_on_when_it_closes():
    from huc_mlflow._metrics import ShownWindow

    calm, bad = np.full(8, 0.01), np.full(8, 0.01)
    bad[3] = -0.06
    alert = an_alert("node 3", "critical", -0.06)
    keys = ShownWindow(a_wide_record(1, calm)).metrics(100)
    assert not [key for key in keys if key.startswith("alerts/")]
    opened = ShownWindow(a_wide_record(2, bad, [alert])).metrics(100, keys)
    assert {key: opened[key] for key in opened if key.startswith("alerts/")} == {
        "alerts/node 3": pytest.approx(3.0)
    }
    assert min(opened) == "alerts/node 3", "pages show sections sorted by name"
    closed = ShownWindow(a_wide_record(3, calm)).metrics(100, opened)
    assert closed["alerts/node 3"] == pytest.approx(0.5)


@settings(deadline=None, max_examples=25)
@given(st.integers(30, 120), st.lists(st.integers(0, 99), min_size=1, max_size=5), st.data())
def test_a_run_never_has_more_keys_than_asked_for_and_a_line_has_no_holes(most, guilty, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    known = set()
    for ordinal, node in enumerate(guilty, start=1):
        moments = rng.normal(scale=0.02, size=100)
        alerts = [an_alert(f"node {node}", "critical", moments[node])]
        record = a_wide_record(ordinal, moments, alerts)
        found = metrics(record, most, known)
        branches = {key for key in known if key.startswith("branches/")}
        assert branches <= found.keys()
        known |= found.keys()
        assert len(known) <= most
        assert any(key.startswith("branches_bounds/") for key in metrics(record, most, told=True))
        assert {"audit/huc", "audit/uc", "audit/n_labelled"} <= found.keys()
    assert f"branches/node {guilty[0]}" in known


def test_everything_is_in_one_table_and_what_is_told_first_in_the_one_that_the_ui_shows():
    import io
    import json

    import pandas as pd
    from huc_mlflow._metrics import ShownWindow

    moments = np.linspace(-0.03, 0.03, 100)
    alerts = [an_alert("node 50", "warning", moments[50], subgroup="sex=f")]
    change = a_change("node 7").change
    changes = WindowChange(
        average_run_length=200.0, pools=(1,), n_before=10.0, n_after=(10.0,), changes=(change,)
    )
    record = dataclasses.replace(a_wide_record(1, moments, alerts), change=changes)
    files = ShownWindow(record).tables()
    frame = pd.read_parquet(io.BytesIO(files["candidates.parquet"]))
    assert len(frame) == 200
    moved = frame[frame["change"].notna()]
    assert list(moved[["node", "subgroup", "change"]].iloc[0]) == ["node 7", "all", -0.05]
    assert len(moved) == 1
    assert {"moment", "moment_lower", "lower", "tolerance", "level"} <= set(frame.columns)
    table = json.loads(files["worst.json"])
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert len(rows) == 100
    assert (rows[0]["node"], rows[0]["subgroup"]) == ("node 50", "sex=f")
    assert abs(rows[1]["moment"]) == 0.03


def test_alerts_of_many_branches_come_before_many_alerts_of_one():
    from huc_mlflow._metrics import by_importance

    alerts = [
        an_alert("a", "critical", 0.9),
        an_alert("a", "critical", 0.8, subgroup="f"),
        an_alert("b", "warning", 0.7),
        an_alert("c", "critical", -0.3),
    ]
    order = [(one.node, one.subgroup) for one in by_importance(alerts)]
    assert order == [("a", "all"), ("c", "all"), ("b", "all"), ("a", "f")]


def test_pending_audited_and_revised_are_records_of_one_run(store):
    mine = tracker(store)
    pending = dataclasses.replace(
        a_record(1), status="pending", audit=None, n_labelled=0, tolerances=(), levels=()
    )
    revised = a_record(1, level="critical", revision=1, seed=5)
    for record in (pending, a_record(1), revised):
        mine.record(record)
    assert tracker(store).records() == [pending, a_record(1), revised]
    assert mine.window(1) == a_record(1)
    (run,) = mine.runs.search("window")
    assert run.data.metrics["huc"] == pytest.approx(revised.audit["huc"])
    assert run.data.tags["huc.status"] == "alert"
    assert run.data.tags["mlflow.runName"] == "#1 critical: sick 2024-03-01"
    assert "branch `sick`" in run.data.tags["mlflow.note.content"]
    assert run.info.status == "FINISHED"


def test_runs_of_earlier_versions_are_read_and_not_made_again(store):
    mine = tracker(store)
    record, pending = a_record(1), dataclasses.replace(a_record(2), status="pending", audit=None)
    for old in (record, pending):
        run = mine.runs.find_or_make("window", old.key, "old", {"huc.complete": "1"})
        mine._client.log_text(run.info.run_id, old.to_json(), "record.json")
    mine.record(record)
    mine.record(pending)
    assert len(list(mine.runs.search("window"))) == 2
    mine.record(a_record(2))
    assert mine.records() == [record, pending, a_record(2)]
    assert mine.window(1) == record
    assert mine.window(2) == a_record(2)


def test_runs_say_who_made_them_from_what_and_are_found_by_name(store):
    mine = tracker(store)
    mine.record(a_record(1))
    (monitor,) = mine._client.search_runs(
        [mine.runs.experiment], "attributes.run_name = 'monitor triage'"
    )
    assert monitor.info.run_id == mine.run_id
    (run,) = mine.runs.search("window")
    tags = run.data.tags
    assert tags["mlflow.source.name"] == "huc-monitor"
    assert tags["mlflow.user"]
    assert tags["huc.monitor_run"] == mine.run_id
    assert "mlflow.parentRunId" not in tags, "a closed group would hide it"
    assert run.data.params["window.start"] == "2024-03-01T00:00:00+00:00"
    assert run.data.params["model_version"] == "1"


@pytest.mark.parametrize("settings", [{"metric_keys": 5}, {"champion_windows": True}])
def test_settings_out_of_range_are_refused(store, settings):
    with pytest.raises(hm.InvalidInputError, match="must be a whole number from"):
        tracker(store, **settings)


def test_recording_again_changes_nothing(store):
    mine = tracker(store)
    for _ in range(3):
        mine.record(a_record(1))
        tracker(store).record(a_record(1))
    assert len(list(mine.runs.search("window"))) == 1
    assert len(list(mine.runs.search("monitor"))) == 1
    assert len(history(mine, "audit/huc")) == 1


def test_a_record_that_was_cut_short_is_completed(store, monkeypatch):
    mine = tracker(store)
    steps = ["create_run", "log_batch", "log_inputs", "log_text", "set_terminated"]
    for step in steps:
        broken = tracker(store)
        original = getattr(broken._client, step)
        calls = []

        def fail(*args, original=original, calls=calls, **kwargs):
            calls.append(1)
            if len(calls) > 1:
                raise ConnectionError
            return original(*args, **kwargs)

        monkeypatch.setattr(broken._client, step, fail)
        try:
            broken.record(a_record(1))
        except ConnectionError:
            continue
    mine.record(a_record(1))
    assert mine.records() == [a_record(1)]
    assert len(list(mine.runs.search("window"))) == 1
    assert len(history(mine, "branches/sick")) == 1


def test_of_two_runs_made_by_a_repeated_request_one_is_kept(store):
    mine = tracker(store)
    mine.record(a_record(1))
    (child,) = mine.runs.search("window")
    for _ in range(2):
        mine._client.create_run(
            mine.runs.experiment, tags=dict(child.data.tags) | {"huc.complete": ""}
        )
    mine.record(a_record(1))
    tracker(store).record(a_record(1))
    assert len(list(mine.runs.search("window"))) == 1
    assert mine.records() == [a_record(1)]


def test_a_revision_is_the_last_word_of_its_step(store):
    mine = tracker(store)
    mine.record(a_record(1))
    revised = a_record(1, revision=1, seed=5)
    mine.record(revised)
    points = history(mine, "audit/huc")
    assert [step for step, _, _ in points] == [1, 1]
    assert max(points, key=lambda point: point[1])[2] == pytest.approx(revised.audit["huc"])
    assert [record.revision for record in mine.records()] == [0, 1]


def test_the_state_is_kept_with_the_run_and_any_machine_can_go_on(store):
    mine = tracker(store)
    assert mine.load_state() is None
    mine.save_state({"schema_version": 1, "last": 1})
    mine.save_state({"schema_version": 1, "last": "ü" * 20_000})
    other = tracker(store)
    assert other.load_state() == {"schema_version": 1, "last": "ü" * 20_000}
    other.save_state({"last": 3})
    with pytest.raises(hm.HUCError, match="Another process moved the state"):
        mine.save_state({"last": 4})
    assert tracker(store).load_state() == {"last": 3}


def test_a_crash_between_state_and_pointer_leaves_the_old_state(store, monkeypatch):
    mine = tracker(store)
    mine.load_state()
    mine.save_state({"last": 1})
    monkeypatch.setattr(mine._client, "set_tag", lambda *_: (_ for _ in ()).throw(ConnectionError))
    with pytest.raises(ConnectionError):
        mine.save_state({"last": 2})
    assert tracker(store).load_state() == {"last": 1}


def test_a_window_costs_the_same_however_many_came_before(store):
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import event

    mine = tracker(store)
    mine._pages = lambda _: {}  # drawing takes long, and is the same for every window
    engine = next(
        store.engine
        for store in [mine._client._reached(5)._tracking_client.store]
        if isinstance(store, SqlAlchemyStore)
    )
    statements, counts = [], []
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    sizes = []
    for ordinal in range(1, 21):
        statements.clear()
        mine.record(a_record(ordinal))
        mine.save_state({"schema_version": 1, "last": ordinal})
        mine.set_alert_status("ok" if ordinal % 2 else "warning", ())
        counts.append(len(statements))
        sizes.append(sum(map(len, statements)))
    assert len(set(counts[3:])) <= 2, counts  # an ok status and a warning
    assert max(sizes[-6:]) <= max(sizes[4:10]), sizes


def test_one_window_is_found_without_reading_the_others(store):
    mine = tracker(store)
    for record in (a_record(1), a_record(2), a_record(2, revision=1, seed=3)):
        mine.record(record)
    assert mine.window(2) == a_record(2)
    assert mine.window(3) is None


def test_without_versions_in_the_log_the_champion_carries_the_status(store):
    mine = tracker(store)
    mine._client.create_registered_model("triage")
    for _ in range(2):
        mine._client.create_model_version("triage", source="s3://bucket/model")
    mine._client.set_registered_model_alias("triage", "champion", "2")
    plain = WindowRecord.from_dict({**a_record(1).to_dict(), "model_version": None})
    mine.record(plain)
    mine.set_alert_status("critical", ())
    assert mine._client.get_model_version("triage", "2").tags["huc.status"] == "critical"
    assert "huc.status" not in mine._client.get_model_version("triage", "1").tags


def test_values_that_are_not_finite_are_counted_and_never_logged(store):
    record = a_record(1)
    broken = record.to_dict()
    for row in broken["audit"]["candidates"]:
        row["radius"] = None
    mine = tracker(store)
    mine.record(WindowRecord.from_dict(broken))
    logged = mine._client.get_run(mine.run_id).data.metrics
    assert all(math.isfinite(value) for value in logged.values())
    assert not any("_bounds/" in key for key in logged)
    # Both bounds of every candidate, and those of HUC.
    assert logged["audit/n_undefined"] == 2 * len(broken["audit"]["candidates"]) + 2


def test_the_alert_status_is_a_tag_of_the_model_version(store):
    mine = tracker(store)
    mine._client.create_registered_model("triage")
    mine._client.create_model_version("triage", source="s3://bucket/model")
    record = a_record(1, level="critical")
    mine.record(record)
    mine.set_alert_status("critical", record.alerts)
    version = mine._client.get_model_version("triage", "1")
    assert version.tags["huc.status"] == "critical"
    assert version.tags["huc.alerts"] == "sick (all, top1)"
    mine.set_alert_status("ok", ())
    assert mine._client.get_model_version("triage", "1").tags["huc.status"] == "ok"


def test_a_model_that_is_not_registered_does_not_stop_the_check(store, caplog, monkeypatch):
    # Making a database, old versions of MLflow take the root's handlers away.
    monkeypatch.setattr(logging.getLogger("huc_monitor"), "handlers", [caplog.handler])
    mine = tracker(store)
    mine.record(a_record(1))
    mine.set_alert_status("warning", ())
    assert "alert status not written to model 'triage'" in caplog.text
    assert mine._client.get_run(mine.run_id).data.tags["huc.status"] == "warning"


def test_the_tracker_is_found_by_name(store):
    options = {"tracking_uri": f"sqlite:///{store}/mlflow.db"}
    found = make_plugin("huc_monitor.trackers", "mlflow", Tracker, INFO, options, role="tracker")
    assert type(found).__name__ == "MLflowTracker"


def test_credentials_in_an_address_are_not_written_to_tags(store):
    from huc_mlflow._tracker import MLflowTracker

    settings = {"tracker": {"tracking_uri": "https://anna:s3cret@mlflow.example/x"}}
    info = MonitorInfo("triage", "00ff", settings=settings)
    mine = MLflowTracker(info, tracking_uri=f"sqlite:///{store}/mlflow.db")
    tags = mine._client.get_run(mine.run_id).data.tags
    assert "https://***@mlflow.example/x" in tags["huc.settings"]
    assert "s3cret" not in str(tags)


def test_a_user_may_name_predicates_and_columns_as_they_like(store):
    names = ["tenure<12 and country=PL", "tenure>12 and country=PL", "a:b", "A/b", "../x"]
    names += ["x" * 400, "\u2603\n", ":"]
    rules = {name: {"and": [name], "not": {"column": "a=b"}} for name in names}
    settings = {"subgroups": {"predicates": rules, "by": {"a b;c": "each", "a b:c": "each"}}}
    mine = tracker(store)
    mine._info = dataclasses.replace(INFO, settings=settings)
    mine.record(a_record(1))
    (window,) = mine.runs.search("window", "%")
    params = window.data.params
    assert any(
        key.startswith("subgroups.predicates.tenure-12 and country-PL.and") for key in params
    )
    assert sum(key.startswith("subgroups.") for key in params) == 2 * len(rules) + 2
    assert max(map(len, params)) <= 100
    assert params["window.start"] == DAY.isoformat()


def test_the_state_of_the_monitor_before_is_found_in_the_experiment(store):
    import dataclasses

    from huc_mlflow._tracker import MLflowTracker

    old = tracker(store)
    assert old.load_state() is None
    assert old.previous_state() is None
    old.save_state({"schema_version": 1, "identity": INFO.identity})
    new = MLflowTracker(
        dataclasses.replace(INFO, identity="another"), tracking_uri=f"sqlite:///{store}/mlflow.db"
    )
    assert new.load_state() is None
    assert new.previous_state() == {"schema_version": 1, "identity": INFO.identity}


def test_the_state_of_the_same_file_comes_before_a_newer_one_of_another(store):
    import dataclasses

    from huc_mlflow._tracker import MLflowTracker

    def of(identity, file):
        info = dataclasses.replace(INFO, identity=identity, file=file)
        one = MLflowTracker(info, tracking_uri=f"sqlite:///{store}/mlflow.db")
        assert one.load_state() is None
        return one

    of("a", "eu.yaml").save_state({"schema_version": 1, "file": "eu.yaml"})
    of("b", "us.yaml").save_state({"schema_version": 1, "file": "us.yaml"})
    assert of("c", "eu.yaml").previous_state()["file"] == "eu.yaml"
    assert of("c", "x.yaml").previous_state()["file"] == "us.yaml"


def test_a_log_of_another_version_than_the_champion_is_told_after_some_windows(store):
    mine = tracker(store)
    client = mine._client
    assert mine.remark(a_record(1)) is None, "nobody is champion"
    client.create_registered_model("triage")
    for _ in range(2):
        client.create_model_version("triage", str(store / "model"))
    client.set_registered_model_alias("triage", "champion", "2")
    said = [tracker(store).remark(a_record(ordinal)) for ordinal in (1, 2, 3, 4)]
    assert said[:2] == [None, None]
    assert "Since window #1, version 1 made the log's predictions" in said[2]
    assert "champion of 'triage' is version 2" in said[2]
    assert said[3] == said[2], "told once"
    client.set_registered_model_alias("triage", "champion", "1")
    assert tracker(store).remark(a_record(5)) is None
    client.set_registered_model_alias("triage", "champion", "2")
    assert tracker(store).remark(a_record(6)) is None, "counted from the beginning"
    assert "Since window #6" in tracker(store, champion_windows=1).remark(a_record(6))


def test_windows_from_before_the_champion_served_are_not_told(store):
    mine = tracker(store, champion_windows=1)
    mine._client.create_registered_model("triage")
    for _ in range(2):
        mine._client.create_model_version("triage", str(store / "model"))
    mine._client.set_registered_model_alias("triage", "champion", "2")
    newest = dataclasses.replace(a_record(5), status="pending", model_version="2")
    assert mine.remark(newest) is None
    assert mine.remark(a_record(4)) is None, "version 1's labels come after version 2's predictions"
    assert "Since window #6, version 1" in mine.remark(a_record(6))


@pytest.fixture
def linked(story, store):
    """Two versions of a model in the registry, the second a copy of the first, and two windows."""
    import mlflow
    from support.forests import log_forest

    info = log_forest(story, "triage")
    mlflow.MlflowClient().copy_model_version("models:/triage/1", "copied")
    mine = tracker(store)
    for record in (a_record(1), a_record(2, level="critical")):
        mine.record(record)
    return info, mine


def test_the_calls_of_the_page_lead_from_a_version_to_its_windows_and_back(linked):
    from support.pages import blocks

    info, mine = linked
    names = {}
    for block in blocks("mlflow.md", "python"):
        exec(block, names)  # noqa: S102 - as a reader would
    assert list(names["windows"]["tags.huc.key"]) == ["000002-0002", "000001-0001"]
    assert names["windows"]["tags.huc.branches"][0] == "sick"
    assert names["model_id"] == info.model_id
    assert "2024-03-02" in names["dataset"].source
    assert {figure.key for figure in names["figures"]} == {
        "huc",
        "huc_lower",
        "huc_upper",
        "uc",
        "n_labelled",
    }
    ours = [figure for figure in names["figures"] if figure.run_id == names["run_id"]]
    assert {figure.dataset_digest for figure in ours} == {names["dataset"].digest}
    values = {figure.key: figure.value for figure in ours}
    assert values["huc"] == pytest.approx(a_record(2).audit["huc"])
    mine.record(a_record(2, revision=1, seed=9))
    assert len(names["mlflow"].get_logged_model(info.model_id).metrics) == 15


def test_the_model_behind_a_copied_version_is_found_and_one_that_is_not_there_is_not(linked):
    from huc_mlflow._client import logged_model_of

    info, mine = linked
    assert logged_model_of(mine._client, "copied", "1") == info.model_id
    assert logged_model_of(mine._client, "copied", "7") is None
    mine._client.create_model_version("copied", source="s3://bucket/elsewhere")
    assert logged_model_of(mine._client, "copied", "2") is None


def test_records_of_few_windows_are_read_without_the_others(store, monkeypatch):
    mine = tracker(store)
    for record in [a_record(k) for k in range(1, 6)] + [a_record(3, revision=1)]:
        mine.record(record)
    read = []
    whole = mine.runs.read
    monkeypatch.setattr(mine.runs, "read", lambda run, name: read.append(run) or whole(run, name))
    keys = [(record.ordinal, record.revision) for record in mine.records(last=2)]
    assert keys == [(4, 0), (5, 0)]
    assert len(read) == 2
    keys = [(record.ordinal, record.revision) for record in mine.records(last=2, until=3)]
    assert keys == [(2, 0), (3, 0), (3, 1)]
    assert len(mine.records()) == 6
