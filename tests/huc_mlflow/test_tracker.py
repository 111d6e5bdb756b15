from __future__ import annotations

import dataclasses
import math
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.monitor.change import CandidateChange
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


def test_a_window_is_a_step_of_the_monitor_run_and_a_child_run(store):
    mine = tracker(store)
    records = [a_record(1), a_record(2, level="critical")]
    for record in records:
        mine.record(record, {"report.html": b"<p>hello</p>"})
    assert mine.records() == records
    node = next(row for row in records[1].audit["candidates"] if row["node"] == "sick")
    assert history(mine, "huc/top1/all/sick")[-1] == (
        2,
        int(records[1].end.timestamp() * 1000),
        pytest.approx(node["moment"]),
    )
    assert history(mine, "huc_ratio/top1/all/sick")[-1][2] == pytest.approx(
        abs(node["moment"]) / 0.02
    )
    alerting = mine._client.search_runs([mine._experiment], "tags.`huc.status` = 'alert'")
    assert [run.data.tags["huc.key"] for run in alerting] == [records[1].key]
    (child,) = alerting
    assert child.info.status == "FINISHED"
    assert child.data.metrics["huc"] == pytest.approx(records[1].audit["huc"])
    assert child.inputs.dataset_inputs[0].dataset.name == "triage"
    names = {file.path for file in mine._client.list_artifacts(child.info.run_id)}
    assert {"record.json", "report.html", "moments.svg"} <= names


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
    assert [point[2] for point in history(mine, "change_lower/sick")] == [-0.09]
    assert [point[2] for point in history(mine, "change_upper/sick")] == [-0.01]
    (child,) = mine._client.search_runs([mine._experiment], "tags.`huc.changed` = 'sick'")
    figures = {name: child.data.metrics[name] for name in ("n_changed", "n_standing", "change")}
    assert figures == {"n_changed": 1, "n_standing": 1, "change": -0.05}
    assert child.data.metrics["windows_since_onset"] == 3


def test_of_many_branches_that_changed_ten_have_metrics_of_their_own():
    from huc_mlflow._tracker import node_metrics, summary_metrics

    many = tuple(a_change(f"b{k}", k) for k in range(30))
    record = dataclasses.replace(a_record(1), findings=many)
    keys = [key for key in node_metrics(record) if key.startswith("change")]
    assert len(keys) == 30
    assert summary_metrics(record)["n_changed"] == 30
    quiet = node_metrics(a_record(1))
    assert not any("change" in key for key in quiet)


def test_a_forecast_and_what_came_of_it_have_metrics_of_their_own():
    from huc_mlflow._tracker import node_metrics

    made = hm.forecast(
        [[0.9, 0.1]] * 50,
        [[0.9, 0.1]] * 100,
        ["a"] * 70 + ["b"] * 30,
        tree=hm.LabelTree.flat(["a", "b"]),
        utilities=hm.TopK(1),
    )
    waiting = node_metrics(dataclasses.replace(a_record(1), forecasts=tuple(made)))
    assert waiting["forecast/top1"] == pytest.approx(0.7)
    assert waiting["forecast_lower/top1"] < 0.7 < waiting["forecast_upper/top1"]
    judged = tuple(item.judged(-0.25, 50) for item in made)
    done = node_metrics(dataclasses.replace(a_record(1), forecasts=judged))
    assert done["realised/top1"] == pytest.approx(0.65)
    assert "realised/top1" not in waiting


def test_recording_again_changes_nothing(store):
    mine = tracker(store)
    for _ in range(3):
        mine.record(a_record(1))
        tracker(store).record(a_record(1))
    assert len(list(mine._search("window"))) == 1
    assert len(list(mine._search("monitor"))) == 1
    assert len(history(mine, "monitor/huc")) == 1


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
    assert len(list(mine._search("window"))) == 1
    assert len(history(mine, "huc/top1/all/sick")) == 1


def test_of_two_runs_made_by_a_repeated_request_one_is_kept(store):
    mine = tracker(store)
    mine.record(a_record(1))
    (child,) = mine._search("window")
    for _ in range(2):
        mine._client.create_run(mine._experiment, tags=dict(child.data.tags) | {"huc.complete": ""})
    mine.record(a_record(1))
    tracker(store).record(a_record(1))
    assert len(list(mine._search("window"))) == 1
    assert mine.records() == [a_record(1)]


def test_a_revision_is_the_last_word_of_its_step(store):
    mine = tracker(store)
    mine.record(a_record(1))
    revised = a_record(1, revision=1, seed=5)
    mine.record(revised)
    points = history(mine, "monitor/huc")
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
    assert not any(key.startswith("huc_lower/") for key in logged)
    # Both bounds of every candidate, and those of HUC.
    assert logged["monitor/undefined"] == 2 * len(broken["audit"]["candidates"]) + 2


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


def test_a_model_that_is_not_registered_does_not_stop_the_check(store, caplog):
    mine = tracker(store)
    mine.record(a_record(1))
    mine.set_alert_status("warning", ())
    assert "alert status not written to model 'triage'" in caplog.text
    assert mine._client.get_run(mine.run_id).data.tags["huc.status"] == "warning"


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_slugs_are_safe_and_differ_where_names_differ(one, other):
    from huc_monitor._common.safe_text import metric_key as slug

    assert re.fullmatch(r"[A-Za-z0-9_.\-]{1,70}", slug(one))
    assert slug(one).strip(".")
    assert (slug(one) == slug(other)) == (one == other)


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


def test_a_log_of_another_version_than_the_champion_is_remarked(store):
    mine = tracker(store)
    client = mine._client
    assert mine.remark(a_record(1)) is None, "nobody is champion"
    client.create_registered_model("triage")
    for _ in range(2):
        client.create_model_version("triage", str(store / "model"))
    client.set_registered_model_alias("triage", "champion", "2")
    said = tracker(store).remark(a_record(1))
    assert "served by version 1, and the champion of 'triage' is version 2" in said
    client.set_registered_model_alias("triage", "champion", "1")
    assert tracker(store).remark(a_record(1)) is None
