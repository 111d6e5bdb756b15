"""The numbers of the version that wrote `expected`, and the files it left behind.

Where processor and libraries are those the numbers were made with, they are compared bit for bit,
otherwise to nine digits, because the last ones of an exponential are not the same everywhere.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm

HERE = Path(__file__).parent
NOT_COMPARED = {"sha256"}  # where the last bits may differ
# Meant to differ, by no more than this:
# row weights are counted relative to the largest, to 30 bits, so that a factor changes nothing.
# Stored anew, because they were meant to move: folds are drawn at random instead of sharing classes
# evenly (`scalings`: what folds choose and their log loss; `boost_after_a_scaling`: strengths), and
# "auto" takes the scaling of least held-out log loss (`boost_after_a_scaling`).
MEANT = {"audit_with_fractional_weights": 1e-7}


def load_cases():
    spec = importlib.util.spec_from_file_location("golden_cases", HERE / "golden_cases.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


golden = load_cases()


def read(path):
    return json.loads((HERE / path).read_text("utf-8"))


@pytest.fixture(scope="module")
def exact():
    return read("expected/arithmetic.json") == golden.arithmetic()


def first_difference(expected, found, *, exact, at="$", slack=1e-12):
    """Return where two plain values differ first, and how; None where they do not."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if not set(expected) <= set(found):  # new fields may come, none may go
            return f"{at}: keys {list(expected)} became {list(found)}"
        names = [name for name in expected if exact or name not in NOT_COMPARED]
        pairs = [(expected[name], found[name], f"{at}.{name}") for name in names]
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return f"{at}: {len(expected)} items became {len(found)}"
        pairs = [(*both, f"{at}[{k}]") for k, both in enumerate(zip(expected, found, strict=True))]
    else:
        alike = same(expected, found, exact=exact, slack=slack)
        return None if alike else f"{at}: {expected!r} -> {found!r}"
    options = {"exact": exact, "slack": slack}
    differences = (first_difference(a, b, at=place, **options) for a, b, place in pairs)
    return next((text for text in differences if text), None)


def same(expected, found, *, exact, slack=1e-12):
    if not exact and isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=1e-9, abs_tol=slack)
    return repr(expected) == repr(found)  # -0.0 is not 0.0, nor 1 true


def as_json(data):
    return json.loads(json.dumps(data, allow_nan=False))


def test_the_first_difference_is_named_by_its_place():
    one = {"a": [1.0, {"b": 0.0}], "sha256": "x"}
    other = {"a": [1.0, {"b": -0.0}], "sha256": "y"}
    assert first_difference(one, one, exact=True) is None
    assert first_difference(one, other, exact=True) == "$.a[1].b: 0.0 -> -0.0"
    assert first_difference(one, other, exact=False) is None
    assert first_difference([1], [1, 2], exact=True) == "$: 1 items became 2"
    assert "keys" in first_difference({"a": 1}, {"b": 1}, exact=True)


def test_every_case_has_its_file_and_every_file_its_case():
    files = {path.stem for path in (HERE / "expected").glob("*.json")}
    assert files == {"arithmetic", *(case.__name__ for case in golden.CASES)}


@pytest.mark.parametrize("case", golden.CASES, ids=lambda case: case.__name__)
def test_the_numbers_are_those_of_the_version_before(case, exact):
    expected = read(f"expected/{case.__name__}.json")
    slack = MEANT.get(case.__name__)
    options = {"exact": exact} if slack is None else {"exact": False, "slack": slack}
    difference = first_difference(expected, as_json(case()), **options)
    assert difference is None, difference


# Files of an older version.


@pytest.fixture
def project(tmp_path):
    shutil.copytree(HERE / "old_state", tmp_path / "project")
    return tmp_path / "project"


def test_an_old_state_is_shown_with_its_windows_and_open_alerts(project, exact):
    expected = read("old_state/expected.json")["before"]
    status = golden.command("status", "--json", folder=project, codes=(1,))
    assert first_difference(expected, status, exact=exact) is None
    assert [row["ordinal"] for row in status["windows"]] == [1, 2, 3]
    assert status["alerts"]
    monitor = hm.open_monitor(project / "huc.yaml")
    assert [alert.to_dict() for alert in monitor.alerts] == status["alerts"]
    assert [record.ordinal for record in monitor.records()] == [1, 2, 3]
    assert [hm.WindowRecord.from_json(r.to_json()) for r in monitor.records()] == list(
        monitor.records()
    )


def test_a_check_goes_on_from_an_old_state(project, exact):
    (place,) = (project / "huc-state").iterdir()
    before = json.loads((place / "state.json").read_text("utf-8"))
    status = golden.command("status", "--json", folder=project, codes=(1,))
    golden.add_a_day(project)
    said = golden.checked(project, "2024-03-05T12:00")
    assert list(said["records"]) == ["4 r0"]
    kept = {(a["utility"], a["subgroup"], a["node"]) for a in status["alerts"]}
    now_open = {(a["utility"], a["subgroup"], a["node"]) for a in said["alerts"]}
    assert kept & now_open, "a fault that lasts stays an open alert"
    expected = read("old_state/expected.json")["said"]
    difference = first_difference(expected, as_json(golden.plain(said)), exact=exact)
    assert difference is None, difference
    assert list((project / "huc-state").iterdir()) == [place], "no second monitor was started"
    assert len(list((place / "records").glob("*.json"))) == 4
    after = json.loads((place / "state.json").read_text("utf-8"))
    assert after["detector"]["n_batches"] == before["detector"]["n_batches"] + 1
    assert after["detector"]["n_rows"] == before["detector"]["n_rows"] + 300


def test_an_old_detector_is_read_and_written_as_it_was(project):
    (place,) = (project / "huc-state").iterdir()
    data = json.loads((place / "state.json").read_text("utf-8"))["detector"]
    detector = hm.EDetector.from_dict(data)
    assert as_json(detector.to_dict()) == data
    assert (detector.n_batches, detector.n_rows) == (3, 900)


def test_an_old_repair_gives_its_answers():
    boost = hm.HUCBoost.from_dict(read("old_state/repair.json"))
    given = read("old_state/repair_answers.json")
    found = boost.predict_proba(given["probabilities"], features=pd.DataFrame(given["features"]))
    np.testing.assert_allclose(found, given["answers"], rtol=0, atol=1e-12)
    written = {**as_json(boost.to_dict()), "checks": None}
    assert written == {**golden.without_retired(read("old_state/repair.json")), "checks": None}


def test_an_old_model_of_mlflow_gives_its_answers(tmp_path):
    import huc_mlflow
    import mlflow

    folder = tmp_path / "model"
    shutil.copytree(HERE / "old_model", folder)
    expected = read("old_model_answers.json")
    given = pd.DataFrame(expected["input"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other versions of what the base needs
        own = huc_mlflow.load_model(folder)
        pyfunc = mlflow.pyfunc.load_model(str(folder))
        found = np.asarray(own.predict_proba(given))
        named = pyfunc.predict(given, {"predict_method": "predict_proba"})
        decisions = pyfunc.predict(given, {"predict_method": "decision"})
        labels = list(pyfunc.predict(given))
    assert list(own.classes) == expected["classes"]
    np.testing.assert_allclose(found, expected["probabilities"], rtol=0, atol=1e-12)
    assert list(named.columns) == expected["columns"]
    np.testing.assert_allclose(named.to_numpy(), expected["named"], rtol=0, atol=1e-12)
    assert labels == expected["labels"]
    assert as_json(decisions.to_dict(orient="list")) == expected["decisions"]


def test_an_old_model_of_mlflow_is_a_base_for_a_new_repair(tmp_path):
    import huc_mlflow

    folder = tmp_path / "model"
    shutil.copytree(HERE / "old_model", folder)
    given = pd.DataFrame(read("old_model_answers.json")["input"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = huc_mlflow.load_model(folder)
        p = pd.DataFrame(np.asarray(old.predict_proba(given)), columns=old.classes)
        tree = golden.triage()
        p = p[list(tree.leaves)]
        labels = np.resize(tree.leaves, len(given))
        scaling = hm.TemperatureScaling().fit(p, labels, tree=tree)
        huc_mlflow.save_model(tmp_path / "again", folder, scaling, tree=tree)
        new = huc_mlflow.load_model(tmp_path / "again")
        found = pd.DataFrame(np.asarray(new.predict_proba(given)), columns=new.classes)
    assert len(new.payload["stages"]) == 2
    wanted = scaling.predict_proba(p)
    np.testing.assert_allclose(found[list(tree.leaves)], wanted, rtol=0, atol=1e-12)
