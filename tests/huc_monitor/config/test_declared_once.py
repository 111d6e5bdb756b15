"""A default stands in one place: in the class that the file and the Python API share."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import huc_monitor as hm
from huc_monitor._common.descriptions import describe_fields
from huc_monitor._common.explaining import models_in
from huc_monitor._common.settings import Section
from huc_monitor.config import Settings
from huc_monitor.sources.large import LargeSource, audit_pieces

ROOT = Path(__file__).parents[3]
# Words of settings that mean something else where they have a default of their own.
OTHER_MEANINGS = {
    "n_draws": {"Bound", "calibration_p_value", "p_value_calibrated", "onset_set"},
    "rng": {"Boost", "ChangeTest", "calibration_p_value", "p_value_calibrated", "simulate_alarm"},
    "unit": {"scan", "Groups", "counted"},
    "version": {"_options"},
    "tolerance": {
        "run",
        "AlertState",
        "Finding",
        "detectable_size",
        "discover",
        "labels_needed",
        "Boost",
    },
    "alerts": {"WindowChange"},
    "every": {"run"},
    "scale": {"Forecast", "Utility"},
    "confidence_level": {"HUCBoost", "find_onset", "onset_set"},
    "time": {"Guess"},
    "drift": {"tickets"},
    "shadow_windows": {"RecalibrationOutcome"},
    "rows": {"reasons", "fit_on_sample"},
    "memory_limit": {"files", "database"},
    "time_zone": {"TimeColumn", "Action", "Mute", "WindowRecord"},  # what is stored may say none
    "node": {"SubtreeIndicator"},
    "probabilities": {"HUCPreset", "audit", "fit_on_sample", "predict_proba"},
    "labels": {"audit", "fit_on_sample"},
}


def sections(model=Settings):
    """All sections of the file, each once."""
    found = {model: None}
    for field in model.model_fields.values():
        for inner in models_in(field.annotation):
            found |= dict.fromkeys(sections(inner))
    return list(found)


def literal_defaults(path):
    """Yield (owner, word, line) for every default in a file that is written out."""
    tree = ast.parse(path.read_text("utf-8"))
    owners = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            owners |= {id(x): node.name for x in node.body if getattr(x, "name", "") == "__init__"}
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    value = item.value
                    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "field":
                        kept = [k.value for k in value.keywords if k.arg == "default"]
                        value = kept[0] if kept else None
                    yield node.name, item.target.id, value
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            given = node.args
            plain = [*given.posonlyargs, *given.args]
            pairs = list(
                zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True)
            )
            pairs += zip(given.kwonlyargs, given.kw_defaults, strict=True)
            for argument, value in pairs:
                yield owners.get(id(node), node.name), argument.arg, value


@pytest.mark.seconds
def test_no_signature_repeats_the_default_of_a_setting():
    words = {
        name
        for model in sections()
        for name, field in model.model_fields.items()
        if not field.is_required()
    }
    declaring = {
        part.__name__ for model in sections() for part in model.__mro__ if issubclass(part, Section)
    }
    assert {"n_draws", "cool_down", "max_bad_share", "min_improvement", "partitions"} <= words
    found = []
    for root in ("huc_monitor", "integrations"):
        for path in sorted((ROOT / root).rglob("*.py")):
            for owner, word, value in literal_defaults(path):
                written_out = isinstance(value, ast.Constant) and value.value is not None
                known = owner in declaring or owner in OTHER_MEANINGS.get(word, ())
                if word in words and written_out and not known:
                    found.append(f"{path.relative_to(ROOT)}: {owner}({word}={value.value!r})")
    assert not found, "take the default from the section that declares it"


def test_every_setting_is_described_in_the_docstring_of_its_section():
    for model in sections():
        described = describe_fields(model).keys()
        assert described <= model.model_fields.keys(), model
        for name, field in model.model_fields.items():
            assert field.description or list(models_in(field.annotation)), (model, name)


def test_no_section_changes_a_default_that_it_inherits():
    for model in sections():
        for base in model.__mro__[1:]:
            if base is not Section and issubclass(base, Section):
                for name, field in base.model_fields.items():
                    own = model.model_fields[name]
                    narrowed = isinstance(field.default, Section)
                    assert narrowed or own.default == field.default, (model, name)


def test_the_sections_of_the_file_are_the_classes_of_the_python_api():
    public = {getattr(hm, name) for name in hm.__all__ if isinstance(getattr(hm, name), type)}
    expected = {"tolerance", "audit", "sequential", "drift", "recalibration", "windows"}
    assert expected <= Settings.model_fields.keys()
    for name in expected:
        assert set(models_in(Settings.model_fields[name].annotation)) <= public, name
    assert issubclass(Settings.model_fields["alerts"].annotation, hm.AlertPolicy)
    assert issubclass(Settings, hm.Policy)
    assert hm.RecalibrationPolicy.model_fields["gate"].annotation is hm.Gate
    assert inspect.signature(hm.Monitor).parameters["policy"].default == hm.Policy()


@pytest.mark.seconds
def test_every_audit_has_the_words_and_defaults_of_the_audit_options(monkeypatch):
    monkeypatch.setenv("DO_NOT_TRACK", "1")  # before Evidently is imported: it reports its use
    import huc_evidently
    import huc_spark

    for function in (hm.audit, audit_pieces, huc_spark.audit, huc_evidently.HUCPreset):
        given = inspect.signature(function).parameters
        for name, default in hm.AuditOptions():
            assert given[name].default == default, (function, name)
    assert "options" in inspect.signature(LargeSource.audit).parameters
    for function in (hm.detectable_size, hm.labels_needed, hm.pilot_candidates, hm.compare):
        level = inspect.signature(function).parameters["confidence_level"]
        assert level.default == hm.AuditOptions().confidence_level
    for function in (hm.EDetector, hm.simulate_alarm):
        length = inspect.signature(function).parameters["average_run_length"]
        assert length.default == hm.DetectorOptions().average_run_length


def test_a_monitor_takes_a_handful_of_objects():
    assert len(inspect.signature(hm.Monitor).parameters) <= 14
