"""Plugins are found by name, made alike, and checked before they are needed."""

# ruff: noqa: ARG005 - what a signature takes is what is tested

from __future__ import annotations

from typing import Protocol

import pytest
from support.plugin_package import install

from huc_monitor.errors import HUCError, InvalidInputError, MissingExtraError, UnknownNameError
from huc_monitor.monitor.ports import (
    Attachment,
    Exporter,
    FilesTracker,
    MemoryTracker,
    MonitorInfo,
    Notifier,
    RecalibrationHost,
    Tracker,
    check_plugin,
    load_plugin,
    make_plugin,
)
from huc_monitor.sources import Engine

INFO = MonitorInfo("triage", "5f")
NOTIFIERS = "huc_monitor.notifiers"
PIGEON = """
    class Pigeon:
        def __init__(self, info, loft, *, speed=80):
            self.made = info, loft, speed
        def send(self, message):
            raise AssertionError
"""


@pytest.fixture
def pigeon(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, PIGEON, notifiers={"pigeon": "Pigeon"})


def make(options, name="pigeon"):
    return make_plugin(NOTIFIERS, name, Notifier, INFO, options, role="channel ops")


@pytest.mark.usefixtures("pigeon")
def test_a_factory_gets_the_info_and_its_options():
    assert make({"loft": "north"}).made == (INFO, "north", 80)


@pytest.mark.usefixtures("pigeon")
def test_an_unknown_name_is_refused_with_what_is_installed():
    match = r"No 'pidgin' is installed in the group 'huc_monitor.notifiers'.*mean 'pigeon'"
    with pytest.raises(UnknownNameError, match=match):
        make({}, "pidgin")
    with pytest.raises(UnknownNameError, match=r"Choose from 'apprise', 'pigeon', 'webhook'"):
        make({}, "x")


@pytest.mark.usefixtures("pigeon")
def test_an_unknown_option_is_named_with_its_channel_and_its_value_is_not_shown():
    match = r"'pigeon' for the channel ops has no option 'lofft'\. Did you mean 'loft'\?"
    with pytest.raises(UnknownNameError, match=match) as caught:
        make({"loft": "north", "lofft": "hush"})
    assert "hush" not in str(caught.value)


@pytest.mark.usefixtures("pigeon")
def test_a_missing_option_is_named_with_its_channel():
    with pytest.raises(InvalidInputError, match=r"for the channel ops needs the option 'loft'"):
        make({"speed": 90})


@pytest.mark.parametrize(
    ("signature", "options"), [("(loft)", {"loft": "north"}), ("(*, loft)", {"loft": "north"})]
)
def test_a_factory_without_a_place_for_the_info_is_refused(
    monkeypatch, tmp_path, signature, options
):
    install(monkeypatch, tmp_path, f"def old{signature}: ...", notifiers={"pigeon": "old"})
    with pytest.raises(InvalidInputError, match=r"must be made by factory\(info, \*\*options\)"):
        make(options)


def test_a_factory_may_take_any_option(monkeypatch, tmp_path):
    code = PIGEON.replace("loft, *, speed=80", "**options").replace("loft, speed", "options")
    install(monkeypatch, tmp_path, code, notifiers={"pigeon": "Pigeon"})
    assert make({"wing": "left"}).made == (INFO, {"wing": "left"})


def test_a_plugin_that_cannot_be_imported_is_told_with_its_package(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, "import no_such_module", notifiers={"pigeon": "Pigeon"})
    match = r"'pigeon' of the package aviary 1\.2 cannot be loaded: No module named 'no_such"
    with pytest.raises(HUCError, match=match):
        load_plugin(NOTIFIERS, "pigeon")


def test_a_name_that_the_package_does_not_have_is_told(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, "", notifiers={"pigeon": "Pigeon"})
    with pytest.raises(HUCError, match=r"cannot be loaded: .*has no attribute 'Pigeon'"):
        load_plugin(NOTIFIERS, "pigeon")


def test_a_missing_extra_is_told_with_the_command_that_installs_it(monkeypatch):
    import sys

    for name in [name for name in sys.modules if name.startswith("huc_prometheus")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'huc-monitor\[prometheus\]'"):
        load_plugin("huc_monitor.exporters", "prometheus")


class Feeder(Protocol):
    @property
    def seed(self) -> str | None: ...
    def feed(self, bird, grams=1, *, slowly=False) -> None: ...


class Good:
    seed = None

    def feed(self, bird, grams=1, *, slowly=False): ...


def changed(**members):
    return type("Changed", (), {**vars(Good), **members})()


def test_an_object_with_all_members_passes():
    check_plugin(Good(), Feeder)
    check_plugin(changed(feed=lambda *_, **__: None), Feeder)
    check_plugin(changed(feed=lambda _self, bird, n=2, *, slowly=True, more=0: None), Feeder)


@pytest.mark.parametrize(
    ("feed", "fault"),
    [
        (None, r"it has no method feed\(bird, grams, slowly\)"),
        (lambda _self: None, r"its feed\(\) must take \(bird, grams, slowly\)"),
        (lambda _self, bird: None, r"its feed\(\) must take"),
        (lambda _self, bird, grams=1: None, r"its feed\(\) must take"),
        (lambda _self, bird, grams, *, slowly=False: None, r"its feed\(\) must take"),
        (lambda _self, bird, grams=1, *, slowly, x: None, r"its feed\(\) must take"),
    ],
)
def test_a_method_that_cannot_be_called_as_the_protocol_says_is_named(feed, fault):
    with pytest.raises(InvalidInputError, match=rf"A `Changed` is no Feeder: {fault}"):
        check_plugin(changed(feed=feed), Feeder)


def test_everything_that_is_missing_is_named():
    with pytest.raises(InvalidInputError, match=r"no attribute seed; it has no method feed"):
        check_plugin(object(), Feeder)


def test_a_method_that_must_take_any_keyword_takes_any():
    class Opener(Protocol):
        def open(self, log, **settings): ...

    check_plugin(type("Good", (), {"open": lambda _self, log, **more: None})(), Opener)
    with pytest.raises(InvalidInputError, match=r"its open\(\) must take \(log, settings\)"):
        check_plugin(type("Bad", (), {"open": lambda _self, log, *, tree=None: None})(), Opener)


def test_no_property_is_run():
    class Careless(Good):
        @property
        def seed(self):
            raise AssertionError

    check_plugin(Careless(), Feeder)


def test_the_librarys_own_plugins_keep_their_protocols(tmp_path):
    from huc_evidently import DriftAttachment
    from huc_mlflow import MLflowRecalibrationHost, MLflowTracker
    from huc_notify import AppriseNotifier, WebhookNotifier
    from huc_prometheus import PrometheusExporter
    from huc_spark import SparkEngine

    check_plugin(MemoryTracker(), Tracker)
    check_plugin(FilesTracker(INFO, tmp_path), Tracker)
    made = {
        MLflowTracker: Tracker,
        MLflowRecalibrationHost: RecalibrationHost,
        AppriseNotifier: Notifier,
        WebhookNotifier: Notifier,
        PrometheusExporter: Exporter,
        DriftAttachment: Attachment,
        SparkEngine: Engine,
    }
    for factory, protocol in made.items():
        check_plugin(factory.__new__(factory), protocol)
