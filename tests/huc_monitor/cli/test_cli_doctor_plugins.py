"""`huc-monitor doctor` tells of a broken plugin before it is needed, and changes nothing."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import yaml
from support.plugin_package import install

from huc_monitor.cli import main

LEAVES = ["lion", "lynx", "dog"]
TRACKER = """
    from huc_monitor.monitor.ports import MemoryTracker

    class Nest(MemoryTracker):
        def __init__(self, info, twigs=3):
            super().__init__()

    class Hollow(Nest):
        record = None

    class Host:
        def __init__(self, info):
            assert info.tracker is not None and info.config.settings.model.name == info.name
        def ping(self): return "broods version 1"
        def __call__(self, trigger): ...
        def follow(self, last): ...
        def trial(self): ...
        def versions(self): ...
        def recalibrate(self, reason, since=None): ...
        def promote(self, version): ...
        def rollback(self): ...
"""
OTHERS = """
    class Plugin:
        def __init__(self, info, colour="grey"):
            assert info.tree.n_leaves == 3
        def send(self, message): raise AssertionError
        def files(self, record, reference): raise AssertionError
        def export(self, standing): raise AssertionError
        def serve(self): raise AssertionError
        def close(self): raise AssertionError
        def ping(self): return "coos"
"""


@pytest.fixture
def doctor(capsys, monkeypatch, tmp_path):
    """Write a project with plugins; return the exit code and what the doctor says of each."""

    def examine(code, groups, **settings):
        install(monkeypatch, tmp_path, code, **groups)
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.dirichlet(np.ones(3), 100), columns=LEAVES)
        frame["time"] = pd.Timestamp.now("UTC") - pd.to_timedelta(np.arange(100), unit="h")
        frame["label"] = "dog"
        frame.to_parquet(tmp_path / "log.parquet")
        (tmp_path / "tree.yaml").write_text("cat: [lion, lynx]\ndog:\n", "utf-8")
        plain = {
            "model": "zoo",
            "tree": "tree.yaml",
            "source": {"log": {"path": "log.parquet"}},
            "columns": {"time": "time", "label": "label"},
            "windows": {"length": "1d", "min_labelled": 1},
            "tolerance": 0.05,
            **settings,
        }
        (tmp_path / "huc.yaml").write_text(yaml.safe_dump(plain), "utf-8")
        status = main(["doctor", "--config", str(tmp_path / "huc.yaml"), "--json"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        return status, {finding["check"]: finding for finding in findings}

    return examine


KINDS = {
    "channel": ("notifiers", "channels", {"alerts": {"channels": ["ops"]}}, "send", "message"),
    "attachment": ("attachments", "attachments", {}, "files", "record, reference"),
    "exporter": ("exporters", "exporters", {}, "export", "standing"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_plugin_is_named_and_not_used(doctor, kind):
    group, section, more, *_ = KINDS[kind]
    status, found = doctor(
        OTHERS, {group: {"pigeon": "Plugin"}}, **{section: {"ops": "pigeon"}}, **more
    )
    assert (status, found[f"{kind} ops"]["outcome"]) == (0, "ok"), found
    assert found[f"{kind} ops"]["text"] == ("pigeon" if kind == "channel" else "pigeon coos")


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_without_its_method_is_wrong(doctor, kind):
    group, section, more, method, arguments = KINDS[kind]
    code = OTHERS.replace(f"def {method}(", "def other(")
    status, found = doctor(
        code, {group: {"pigeon": "Plugin"}}, **{section: {"ops": "pigeon"}}, **more
    )
    assert status == 2
    assert f"The {kind} ops, a `Plugin`, is no" in found[f"{kind} ops"]["text"]
    assert f"it has no method {method}({arguments})" in found[f"{kind} ops"]["text"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_method_with_other_arguments_is_wrong(doctor, kind):
    group, section, more, method, arguments = KINDS[kind]
    code = OTHERS.replace(f"def {method}(self, {arguments})", f"def {method}(self)")
    status, found = doctor(
        code, {group: {"pigeon": "Plugin"}}, **{section: {"ops": "pigeon"}}, **more
    )
    assert status == 2
    assert f"its {method}() must take ({arguments})" in found[f"{kind} ops"]["text"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_option_is_wrong_and_its_value_is_not_shown(doctor, kind):
    group, section, more, *_ = KINDS[kind]
    host = {"name": "pigeon", "secrets": {"color": "hush"}}
    status, found = doctor(
        OTHERS, {group: {"pigeon": "Plugin"}}, **{section: {"ops": host}}, **more
    )
    assert status == 2
    assert f"for the {kind} ops has no option 'color'" in found[f"{kind} ops"]["text"]
    assert f"{section}.ops" in found[f"{kind} ops"]["fix"]
    assert "hush" not in json.dumps(found)


def test_a_tracker_without_a_method_is_wrong(doctor):
    groups = {"trackers": {"hollow": "Hollow"}}
    status, found = doctor(TRACKER, groups, tracker="hollow")
    assert status == 2
    assert "it has no method record(record, artifacts)" in found["state"]["text"]


def test_a_tracker_with_a_wrong_option_is_wrong(doctor):
    tracker = {"name": "nest", "settings": {"twig": 4}}
    status, found = doctor(TRACKER, {"trackers": {"nest": "Nest"}}, tracker=tracker)
    assert status == 2
    assert "for the tracker has no option 'twig'. Did you mean 'twigs'?" in found["state"]["text"]


@pytest.mark.parametrize(
    ("settings", "asked"),
    [({}, False), ({"enabled": True}, True), ({"promotion": "shadow"}, True)],
)
def test_a_recalibration_host_is_looked_at_where_a_check_would_use_it(doctor, settings, asked):
    groups = {"trackers": {"nest": "Nest"}, "recalibrators": {"nest": "Host"}}
    status, found = doctor(TRACKER, groups, tracker="nest", recalibration=settings)
    assert status == 0, found
    assert ("recalibration" in found) is asked


def test_a_recalibration_host_without_a_method_is_wrong(doctor):
    groups = {"trackers": {"nest": "Nest"}, "recalibrators": {"nest": "Host"}}
    code = TRACKER.replace("def rollback(self)", "def roll_back(self)")
    status, found = doctor(code, groups, tracker="nest", recalibration={"enabled": True})
    assert status == 2
    assert "is no RecalibrationHost: it has no method rollback()" in found["recalibration"]["text"]


def test_a_tracker_that_nothing_recalibrates_with_is_a_note(doctor):
    status, found = doctor("", {}, recalibration={"enabled": True})
    assert status == 0
    assert found["recalibration"]["outcome"] == "note"
    assert "nothing acts on a trigger" in found["recalibration"]["text"]


def test_a_check_refuses_a_broken_channel_before_it_reads_anything(doctor, tmp_path, capsys):
    code = OTHERS.replace("def send(", "def other(")
    channels = {"channels": {"ops": "pigeon"}, "alerts": {"channels": ["ops"]}}
    doctor(code, {"notifiers": {"pigeon": "Plugin"}}, **channels)
    assert main(["check", "--config", str(tmp_path / "huc.yaml")]) == 2
    assert "it has no method send(message)" in capsys.readouterr().err
    assert not (tmp_path / "huc-state").exists()
