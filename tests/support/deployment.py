"""A deployment with a registry: what it serves each day, and what its monitor must have seen."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import huc_mlflow
import mlflow
import numpy as np
import pandas as pd
import yaml

from huc_monitor.cli import main
from huc_monitor.config import load_config
from huc_monitor.config.opening import open_monitor, open_recalibration_host, open_tracker
from huc_monitor.monitor.records import RecalibrationTrigger
from support.forests import FEATURES, make_rows

DAY = datetime(2024, 3, 1, tzinfo=UTC)
ROWS = 900


class World:
    """A deployment: each day the champion answers, and its answers and the labels are logged."""

    def __init__(
        self,
        story,
        folder,
        uri,
        *,
        promotion="gate",
        enabled=True,
        name="triage",
        logs=("features", "version"),
        first=DAY,
    ):
        self.first = first
        self.story, self.folder, self.name, self.logs = story, folder, name, logs
        (folder / "log").mkdir()
        (folder / "tree.json").write_text(json.dumps(story.tree.to_dict()))
        self.settings = {
            "model": name,
            "tree": "tree.json",
            "source": {"log": {"path": "log/*.parquet"}},
            "columns": {"time": "at", "label": "label", "id": "id", "model_version": "version"},
            "utilities": [utility.to_dict() for utility in story.utilities],
            "subgroups": {"by": {"sex": "each"}},
            "windows": {"length": "1d"},
            "tolerance": 0.04,
            "bounds": {"draws": 200},
            "alerts": {"cool_down": "30d"},
            "recalibration": {
                "enabled": enabled,
                "critical_windows": 3,
                "promotion": promotion,
                "cool_down": "5d",
                "on_sequential_alarm": False,
                "gate": {"min_improvement": 0.1, "max_accuracy_drop": 0.1},
            },
            "tracker": {"name": "mlflow", "settings": {"tracking_uri": uri}},
        }
        if "version" not in logs:
            del self.settings["columns"]["model_version"]
        if "base" in logs:
            self.settings["columns"]["base_probabilities"] = "base_{leaf}"
        self.config = folder / "huc.yaml"
        self.configure()
        self.day = 0
        self.loaded = {}

    def configure(self, **recalibration):
        self.settings["recalibration"].update(recalibration)
        self.config.write_text(yaml.safe_dump(self.settings))

    def champion(self):
        return huc_mlflow.Registry(self.name).current()

    def serve(self, *, drift, spread=False):
        """One day of traffic; the drift swaps coma and limited for men, `spread` milder ends."""
        self.day += 1
        version = self.champion()
        frame, labels = make_rows(ROWS, 100 + self.day, self.story.tree, drift=drift)
        if version.tags.get("huc.base_version"):
            uri = f"models:/{self.name}/{version.version}"
            if uri not in self.loaded:
                self.loaded[uri] = mlflow.pyfunc.load_model(uri)
            p = self.loaded[uri].predict(frame, {"predict_method": "predict_proba"})
        else:
            p = self.base(frame)
        if spread:
            other = pd.Series(labels).replace({"none": "assisted", "assisted": "none"})
            labels = other.to_numpy()
        start = self.first + timedelta(days=self.day - 1)
        seconds = np.arange(ROWS) * (86_400 / ROWS)
        log = pd.concat([frame if "features" in self.logs else frame[["sex"]], p], axis=1)
        if "base" in self.logs:
            log = pd.concat([log, self.base(frame).add_prefix("base_")], axis=1)
        log["at"] = pd.to_datetime(start) + pd.to_timedelta(seconds, unit="s")
        log["label"], log["version"] = labels, str(version.version)
        log["id"] = np.arange(ROWS) + self.day * ROWS
        log.to_parquet(self.folder / "log" / f"{self.day:03d}.parquet")

    def base(self, frame):
        forest = self.story.forest
        return pd.DataFrame(forest.predict_proba(frame[FEATURES]), columns=forest.classes_)

    @property
    def now(self):
        return self.first + timedelta(days=self.day, seconds=1)

    def check(self):
        monitor = open_monitor(load_config(self.config))
        try:
            return monitor.check(self.now)
        finally:
            monitor.tracker.close()


def tell(world, *, days, drift_from):
    results = {}
    for day in range(1, days + 1):
        world.serve(drift=1.0 if day >= drift_from else 0.0)
        results[day] = world.check()
    return results


def check_story(world, results, drift_from):
    """What must be seen, whatever store lies behind it."""
    opened = next(day for day in results if results[day].alerts)
    assert opened == drift_from
    alerts = results[opened].alerts
    # The right branch, for the right people, in the right direction: and nothing else.
    assert {(alert.utility, alert.node) for alert in alerts} == {("level3", "major")}
    assert {alert.subgroup for alert in alerts} == {"all", "sex=m"}
    worst = max(alerts, key=lambda alert: abs(alert.moment))
    assert (worst.subgroup, worst.level) == ("sex=m", "critical")
    assert worst.moment < -0.05, "predictions promise more than men get"
    message = results[opened].message.text
    assert "major" in message
    assert "sex=m" in message
    assert "overstated" in message
    registry = huc_mlflow.Registry(world.name)
    first, second = registry.versions()
    assert second.tags["huc.base_version"] == str(first.version) == "1"
    assert second.tags["huc.gate"] == "passed"
    assert str(registry.at("champion").version) == str(second.version) == "2"
    assert second.tags["huc.previous_champion"] == "1"
    assert "branch `major`" in second.description
    assert "| HUC |" in second.description
    repaired = next(
        day for day, result in results.items() if result.records[-1].model_version == "2"
    )
    assert repaired == opened + world.settings["recalibration"]["critical_windows"]
    for day in range(repaired + 1, max(results) + 1):
        assert results[day].status == "ok", (day, results[day].alerts)
        assert {record.model_version for record in results[day].records} == {"2"}
    kinds = {step.kind for day in results for r in results[day].records for step in r.transitions}
    assert {"opened", "resolved"} <= kinds


def check_records(world, days):
    """One record, one child run and one point of every metric per window."""
    tracker = open_tracker(load_config(world.config))
    windows = list(range(1, days + 1))
    assert [record.ordinal for record in tracker.records()] == windows
    assert len(list(tracker.runs.search("window"))) == days
    assert len(list(tracker.runs.search("retraining"))) == 1
    for key in (
        "audit/huc",
        "branches/major - sex-m - level3",
        "branches/major - level3",
    ):
        history = tracker._client.get_metric_history(tracker.run_id, key)
        assert [point.step for point in history] == windows, key


def check_rollback(world, capsys):
    """The command restores version 1."""
    capsys.readouterr()
    assert main(["rollback", "--config", str(world.config)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "champion is version 1 instead of version 2" in said
    assert "resolved" not in said
    assert "promote it again: huc-monitor promote --version 2 --config" in said
    registry = huc_mlflow.Registry(world.name)
    assert str(registry.at("champion").version) == "1"
    assert registry.version("2").tags["huc.rolled_back"] == "true"
    world.serve(drift=1.0)
    assert {r.model_version for r in world.check().records} == {"1"}


STRICT = {"min_improvement": 0.3, "max_log_loss_increase": 0.0, "max_accuracy_drop": 0.0}


def a_trigger(world, **changes):
    """Open what acts on triggers, and make a trigger for the newest window."""
    config = load_config(world.config)
    tracker = open_tracker(config)
    host = open_recalibration_host(config, tracker)
    last = host._state().last
    plain = {"id": "0011223344556677", "reason": "test", "window_id": last.id}
    plain |= {"ordinal": last.ordinal, "window_end": last.end.isoformat(), **changes}
    return host, RecalibrationTrigger.from_dict(plain)


def champion(registry):
    """Number of the version that serves."""
    found = registry.at("champion")
    return None if found is None else str(found.version)
