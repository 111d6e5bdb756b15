from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import venv
import warnings
from importlib.metadata import version
from pathlib import Path

import huc_mlflow
import mlflow
import numpy as np
import pandas as pd
import pytest
from support.forests import FEATURES, log_forest

import huc_monitor as hm
from huc_monitor.recalibration import TemperatureScaling, runtime

PROBA = {"predict_method": "predict_proba"}


def expected_of(story, boost, frame):
    order = [list(story.forest.classes_).index(leaf) for leaf in story.tree.leaves]
    base = story.forest.predict_proba(frame[FEATURES])[:, order]
    return boost.predict_proba(base, features=frame)


def in_leaf_order(story, answer):
    return answer[list(story.tree.leaves)].to_numpy()


def test_a_recalibrated_model_keeps_the_signature_and_answers_with_labels(story, store):
    boost = story.boost()
    base = log_forest(story, "triage")
    huc_mlflow.save_model(store / "saved", base, boost)
    model = mlflow.pyfunc.load_model(str(store / "saved"))
    names = model.metadata.get_input_schema().input_names()
    assert names == [*FEATURES, "sex"]
    assert model.metadata.signature.outputs == base.signature.outputs
    assert [spec.name for spec in model.metadata.get_params_schema().params] == ["predict_method"]
    expected = expected_of(story, boost, story.frame)
    labels = model.predict(story.frame)
    np.testing.assert_array_equal(labels, np.array(story.tree.leaves)[expected.argmax(axis=1)])
    np.testing.assert_array_equal(model.predict(story.frame, {"predict_method": "predict"}), labels)


@pytest.mark.usefixtures("store")
def test_predict_proba_through_pyfunc_is_the_recalibrators_to_the_last_bit(story):
    boost = story.boost(initial="vector")
    log_forest(story, "triage")
    with mlflow.start_run():
        huc_mlflow.log_model("models:/triage/1", boost, registered_model_name="triage")
    mlflow.MlflowClient().set_registered_model_alias("triage", "challenger", "2")
    model = mlflow.pyfunc.load_model("models:/triage@challenger")
    answer = model.predict(story.frame, PROBA)
    assert list(answer.columns) == list(story.forest.classes_)
    got = in_leaf_order(story, answer)
    np.testing.assert_array_equal(got, expected_of(story, boost, story.frame))


def test_decisions_are_those_of_the_utilities(story, store):
    utilities = [
        *story.utilities,
        hm.TopK(2),
        hm.BinaryAction("icu", active=["survived"], favours=["coma"], threshold=0.3),
        hm.ActionPayoff("ward", {"home": {"milder": 1, "major": -1}, "keep": {"major": 0.5}}),
        hm.SelectiveReport(group_threshold=0.6, leaf_threshold=0.6, level=2),
        hm.Payoff("cost", {"died": -1}),
    ]
    boost = hm.HUCBoost(tree=story.tree, utilities=utilities, max_updates=3).fit(
        story.probabilities, story.labels
    )
    huc_mlflow.save_model(store / "saved", log_forest(story), boost)
    model = mlflow.pyfunc.load_model(str(store / "saved"))
    decisions = model.predict(story.frame, {"predict_method": "decision"})
    assert "cost" not in decisions
    p = expected_of(story, boost, story.frame)
    rows = np.arange(len(p))
    for utility in utilities[:-1]:
        values = utility.values(p, tree=story.tree)
        chosen = decisions[utility.name]
        if utility.name in {"level1", "level3"}:
            inside = [
                [leaf in story.tree.leaves_under(name) for leaf in story.tree.leaves]
                for name in chosen
            ]
            np.testing.assert_array_equal(values, np.array(inside, dtype=float))
        elif utility.name == "top2":
            inside = [[leaf in names for leaf in story.tree.leaves] for names in chosen]
            np.testing.assert_array_equal(values, np.array(inside, dtype=float))
        elif utility.name == "icu":
            coma = story.tree.leaf_index("coma")
            np.testing.assert_array_equal(chosen == "act", values[rows, coma] > 0)
        elif utility.name == "ward":
            assert set(chosen) <= {"home", "keep"}
            np.testing.assert_array_equal(chosen == "home", values[:, 0] == 1)
        else:
            np.testing.assert_array_equal(chosen == "abstain", (values == 0).all(axis=1))


def test_an_unknown_method_lists_the_choices(story, store):
    huc_mlflow.save_model(store / "saved", log_forest(story), story.boost())
    model = mlflow.pyfunc.load_model(str(store / "saved"))
    with pytest.raises(ValueError, match="one of predict, predict_proba, decision; got 'odds'"):
        model.predict(story.frame, {"predict_method": "odds"})


def test_missing_subgroup_columns_are_named_with_their_subgroups(story, store):
    huc_mlflow.save_model(store / "saved", log_forest(story), story.boost())
    model = mlflow.pyfunc.load_model(str(store / "saved"))
    with pytest.raises(mlflow.MlflowException, match=r"missing inputs \['sex'\]"):
        model.predict(story.frame[FEATURES])
    # Where no signature is asked, the runtime says it.
    with pytest.raises(ValueError, match=r"columns 'sex'; they are missing.*'sex=[fm]'"):
        huc_mlflow.load_model(store / "saved").predict(story.frame[FEATURES])


def test_columns_of_subgroups_no_update_names_are_not_needed(story, store):
    family = hm.Subgroups.from_reference(story.frame, {"f1": [0.0]})
    wider = hm.Subgroups.from_reference(story.frame.assign(zip=1), {"f1": [0.0], "zip": "each"})
    plain = story.boost(subgroups=family).to_dict()
    plain["subgroups"] = wider.to_dict()
    boost = hm.HUCBoost.from_dict(plain)
    huc_mlflow.save_model(store / "saved", log_forest(story), boost)
    model = mlflow.pyfunc.load_model(str(store / "saved"))
    assert model.metadata.get_input_schema().input_names() == FEATURES
    got = in_leaf_order(story, model.predict(story.frame, PROBA))
    expected = expected_of(story, story.boost(subgroups=family), story.frame)
    np.testing.assert_array_equal(got, expected)


def test_a_base_that_answers_with_probabilities_keeps_doing_so(story, store):
    base = log_forest(story, pyfunc_predict_fn="predict_proba")
    boost = story.boost()
    huc_mlflow.save_model(store / "saved", base, boost)
    answer = mlflow.pyfunc.load_model(str(store / "saved")).predict(story.frame)
    assert isinstance(answer, np.ndarray)
    order = [list(story.forest.classes_).index(leaf) for leaf in story.tree.leaves]
    np.testing.assert_array_equal(answer[:, order], expected_of(story, boost, story.frame))


def test_wrapping_again_keeps_the_root_base_and_appends_a_stage(story, store):
    first = story.boost()
    log_forest(story, "triage")
    huc_mlflow.save_model(store / "one", "models:/triage/1", first)
    scaling = TemperatureScaling().fit(
        first.predict_proba(story.probabilities, features=story.frame),
        story.labels,
        tree=story.tree,
    )
    huc_mlflow.save_model(store / "two", store / "one", scaling, tree=story.tree)
    model = huc_mlflow.load_model(store / "two")
    assert len(model.stages) == 2
    assert len(list((store / "two").rglob("MLmodel"))) == 2
    expected = scaling.predict_proba(expected_of(story, first, story.frame))
    got = model.recalibrate(story.probabilities, story.frame)
    np.testing.assert_array_equal(got, expected)


def test_what_must_not_travel_with_a_model_does_not(story, store, monkeypatch):
    (store / "uv.lock").write_text("version = 1\n")
    (store / "pyproject.toml").write_text("[project]\nname = 'mine'\nversion = '1'\n")
    log_forest(story, "triage")
    mlflow.pyfunc.load_model("models:/triage/1")  # writes registered_model_meta into the store
    monkeypatch.setenv("MLFLOW_UV_AUTO_DETECT", "true")
    huc_mlflow.save_model(store / "saved", "models:/triage/1", story.boost())
    names = {path.name for path in (store / "saved").rglob("*")}
    assert not names & {"uv.lock", "pyproject.toml", "registered_model_meta", "__pycache__"}
    text = (store / "saved" / "MLmodel").read_text()
    assert "tmp" not in text.replace(str(store), "")
    lines = (store / "saved" / "requirements.txt").read_text().splitlines()
    assert {line.split("==")[0] for line in lines} == {"scikit-learn", "mlflow", "numpy", "pandas"}


def xgb_base(story, *, booster=False):
    import xgboost

    codes = story.tree.encode(story.labels)
    model = xgboost.XGBClassifier(n_estimators=5, max_depth=3, random_state=0)
    model.fit(story.frame[FEATURES], codes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        info = mlflow.xgboost.log_model(
            model.get_booster() if booster else model,
            name="trees",
            signature=mlflow.models.infer_signature(story.frame[FEATURES]),
            pip_requirements=["xgboost", "mlflow"],
        )
    return info, model.predict_proba(story.frame[FEATURES]).astype(np.float64)


def lgb_base(story, *, booster=False):
    import lightgbm

    codes = story.tree.encode(story.labels)
    model = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1, random_state=0)
    model.fit(story.frame[FEATURES], codes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        info = mlflow.lightgbm.log_model(
            model.booster_ if booster else model,
            name="trees",
            signature=mlflow.models.infer_signature(story.frame[FEATURES]),
            pip_requirements=["lightgbm", "mlflow"],
        )
        return info, model.predict_proba(story.frame[FEATURES])


@pytest.mark.parametrize("make", [xgb_base, lgb_base])
@pytest.mark.parametrize("booster", [False, True], ids=["classifier", "booster"])
def test_boosted_trees_are_bases(story, store, make, booster):
    info, base = make(story, booster=booster)
    base = base / base.sum(axis=1, keepdims=True)
    boost = hm.HUCBoost(
        tree=story.tree, utilities=story.utilities, max_updates=5, mode="paper"
    ).fit(base, story.labels)
    huc_mlflow.save_model(store / "saved", info, boost, classes=story.tree.leaves)
    model = mlflow.pyfunc.load_model(str(store / "saved"))
    answer = model.predict(story.frame)
    expected = boost.predict_proba(base)
    if booster:
        assert answer.shape == expected.shape
    else:
        np.testing.assert_array_equal(answer, expected.argmax(axis=1))
    loaded = huc_mlflow.load_model(store / "saved")
    again = boost.predict_proba(loaded.base_probabilities(story.frame))
    np.testing.assert_array_equal(loaded.predict_proba(story.frame), again)


class ArrayModel(mlflow.pyfunc.PythonModel):
    def __init__(self, form, columns):
        self.form, self.columns = form, columns

    def predict(self, context, model_input, params=None):  # noqa: ARG002
        raw = np.abs(model_input[FEATURES].to_numpy(dtype=float)) + 0.1
        p = np.column_stack([raw, np.ones(len(raw))])
        p /= p.sum(axis=1, keepdims=True)
        if self.form == "frame":
            return pd.DataFrame(p, columns=self.columns)
        if self.form == "list column":
            return pd.DataFrame({"probabilities": list(p)})
        return p if self.form == "array" else np.array(["none"] * len(p))


def python_base(story, form):
    columns = list(reversed(story.tree.leaves))
    model = ArrayModel(form, columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        info = mlflow.pyfunc.log_model(
            name="python",
            python_model=model,
            signature=mlflow.models.infer_signature(story.frame[FEATURES]),
            input_example=story.frame[FEATURES][:3],
            pip_requirements=["mlflow"],
        )
    reference = ArrayModel("array", columns).predict(None, story.frame)
    return info, columns, reference[:, ::-1]


@pytest.mark.parametrize("form", ["array", "frame", "list column"])
def test_any_pyfunc_that_returns_probabilities_is_a_base_and_keeps_its_form(story, store, form):
    info, columns, base = python_base(story, form)
    boost = hm.HUCBoost(
        tree=story.tree, utilities=story.utilities, max_updates=5, mode="paper"
    ).fit(base, story.labels)
    huc_mlflow.save_model(store / "saved", info, boost, classes=columns)
    model = mlflow.pyfunc.load_model(str(store / "saved"))
    expected = boost.predict_proba(base)[:, ::-1]
    answer = model.predict(story.frame)
    if form == "list column":
        assert list(answer.columns) == ["probabilities"]
        answer = np.array(answer["probabilities"].tolist())
    elif form == "frame":
        assert list(answer.columns) == columns
    np.testing.assert_array_equal(np.asarray(answer), expected)
    named = model.predict(story.frame, PROBA)
    np.testing.assert_array_equal(named.to_numpy(), expected)


def test_a_pyfunc_without_probabilities_is_refused(story, store):
    info, columns, _ = python_base(story, "labels")
    with pytest.raises(hm.InvalidInputError, match=r"must give probabilities.*got"):
        huc_mlflow.save_model(store / "saved", info, story.boost(), classes=columns)
    assert not (store / "saved").exists()


def test_an_array_without_class_names_needs_them(story, store):
    info, _, _ = python_base(story, "array")
    with pytest.raises(
        hm.InvalidInputError, match=r"must name leaves of the tree.*the model names none"
    ):
        huc_mlflow.save_model(store / "saved", info, story.boost())


def test_an_estimator_without_probabilities_is_refused(story, store):
    from sklearn.svm import LinearSVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        info = mlflow.sklearn.log_model(
            LinearSVC().fit(story.frame[FEATURES], story.labels),
            name="svc",
            pip_requirements=["scikit-learn"],
            serialization_format="pickle",
        )
    with pytest.raises(hm.InvalidInputError, match="LinearSVC has no predict_proba"):
        huc_mlflow.save_model(store / "saved", info, story.boost())


def test_a_custom_utility_cannot_travel(story, store):
    utility = hm.CustomUtility("brier", lambda p: 2 * p - (p**2).sum(1, keepdims=True))
    boost = hm.HUCBoost(tree=story.tree, utilities=[utility], max_updates=2, mode="paper").fit(
        story.probabilities, story.labels
    )
    with pytest.raises(hm.InvalidInputError, match=r"must not use custom utilities.*'brier'"):
        huc_mlflow.save_model(store / "saved", log_forest(story), boost)
    assert not (store / "saved").exists()


def test_a_recalibrator_that_is_not_fitted_is_refused(story, store):
    boost = hm.HUCBoost(tree=story.tree, utilities=story.utilities)
    with pytest.raises(hm.InvalidInputError, match=r"fitted HUCBoost or scaling.*fit\(\)"):
        huc_mlflow.save_model(store / "saved", log_forest(story), boost)


@pytest.mark.usefixtures("store")
def test_a_plain_model_is_not_loaded_as_a_recalibrated_one(story):
    info = log_forest(story)
    with pytest.raises(hm.InvalidInputError, match="saved by huc_mlflow"):
        huc_mlflow.load_model(info)


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"huc_monitor", "huc_mlflow", "numba", "scipy_none"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Absent())
import json, warnings
warnings.simplefilter("ignore")
import mlflow, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model(sys.argv[2])
frame = pd.read_json(sys.argv[3], orient="split")
out = model.predict(frame, {"predict_method": "predict_proba"})
out.to_json(sys.argv[4], orient="split", double_precision=15)
import numpy as np
np.save(sys.argv[4] + ".npy", out.to_numpy())
assert "huc_monitor" not in sys.modules and "numba" not in sys.modules
"""


LOGS = """
import os
os.environ["HUC_LOG_FOLDER"], os.environ["HUC_LOG_VERSION"] = sys.argv[5], "7"
frame["request_id"] = [f"q{i}" for i in range(len(frame))]
served = mlflow.pyfunc.load_model(sys.argv[2])
served.predict(frame)
served.predict(frame.drop(columns="request_id").head(3))
assert "huc_monitor" not in sys.modules
"""


def test_a_model_loads_by_its_uri_and_logs_what_it_answers_without_huc_monitor(story, store):
    boost = story.boost(initial="dirichlet", max_updates=60)
    log_forest(story, "triage")
    with mlflow.start_run():
        huc_mlflow.log_model(
            "models:/triage/1", boost, registered_model_name="triage", id_column="request_id"
        )
    mlflow.MlflowClient().set_registered_model_alias("triage", "challenger", "2")
    story.frame.to_json(store / "frame.json", orient="split", double_precision=15)
    frame = pd.read_json(store / "frame.json", orient="split")
    script = store / "elsewhere.py"
    script.write_text(WITHOUT + LOGS)
    arguments = [mlflow.get_tracking_uri(), "models:/triage@challenger"]
    arguments += [store / "frame.json", store / "out.json", store / "log"]
    subprocess.run([sys.executable, script, *map(str, arguments)], check=True, cwd=store)
    got = np.load(store / "out.json.npy")
    columns = json.loads((store / "out.json").read_text())["columns"]
    expected = expected_of(story, boost, frame)
    order = [columns.index(leaf) for leaf in story.tree.leaves]
    assert np.abs(got[:, order] - expected).max() <= 1e-12
    log = pd.read_parquet(store / "log")
    assert len(log) == len(frame) + 3
    known = log[log["id"].str.fullmatch(r"q\d+")].copy()
    known["number"] = known["id"].str[1:].astype(int)
    known = known.sort_values("number")
    assert known["number"].tolist() == list(range(len(frame)))
    columns = [f"p_{leaf}" for leaf in story.tree.leaves]
    np.testing.assert_allclose(known[columns], expected, atol=1e-12)
    assert set(log["model_version"]) == {"7"}
    assert known["sex"].tolist() == frame["sex"].tolist()


def plain_environment(folder):
    """Python with what a server installs from the model's requirements.

    ``HUC_PLAIN=/path/to/environment`` is used instead of a new one; what it lacks is installed.
    """
    given = os.environ.get("HUC_PLAIN")
    place = Path(given) if given else folder / "venv"
    if not given:
        venv.create(place, with_pip=True)
    wanted = [f"{name}=={version(name)}" for name in ("mlflow", "numpy", "scikit-learn")]
    python = place / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, *wanted], check=True, timeout=900)
    absent = [python, "-c", "import huc_monitor"]
    assert subprocess.run(absent, capture_output=True, check=False, cwd=folder).returncode == 1
    return python


@pytest.mark.slow
def test_the_model_loads_by_its_uri_in_an_environment_without_huc_monitor(story, store):
    boost = story.boost(initial="temperature", max_updates=60)
    log_forest(story, "triage")
    with mlflow.start_run():
        huc_mlflow.log_model("models:/triage/1", boost, registered_model_name="triage")
    mlflow.MlflowClient().set_registered_model_alias("triage", "challenger", "2")
    python = plain_environment(store)
    story.frame.to_json(store / "frame.json", orient="split", double_precision=15)
    script = store / "elsewhere.py"
    script.write_text(WITHOUT.split("sys.meta_path", maxsplit=1)[1].split("\n", maxsplit=1)[1])
    script.write_text(f"import sys\n{script.read_text()}")
    arguments = [mlflow.get_tracking_uri(), "models:/triage@challenger"]
    arguments += [store / "frame.json", store / "out.json"]
    subprocess.run([python, script, *map(str, arguments)], check=True, cwd=store)
    columns = json.loads((store / "out.json").read_text())["columns"]
    got = np.load(store / "out.json.npy")[:, [columns.index(leaf) for leaf in story.tree.leaves]]
    frame = pd.read_json(store / "frame.json", orient="split")
    assert np.abs(got - expected_of(story, boost, frame)).max() <= 1e-12


def test_the_payload_is_json_and_the_runtime_is_named_by_its_content(story, store, monkeypatch):
    huc_mlflow.save_model(store / "saved", log_forest(story), story.boost())
    (code,) = (store / "saved" / "code").iterdir()
    assert re.fullmatch("_huc_runtime_2_[0-9a-f]{12}", code.name)
    assert (code / "loader.py").is_file()
    (payload,) = (store / "saved").rglob("recalibration.json")
    assert json.loads(payload.read_text())["schema_version"] == 2
    pickles = {path.name for path in (store / "saved").rglob("*.pkl")}
    assert pickles == {"model.pkl"}  # the base's own
    other = store / "runtime"
    shutil.copytree(runtime.__path__[0], other)
    (other / "lanes.py").write_text((other / "lanes.py").read_text() + "# changed\n")
    monkeypatch.setattr(runtime, "__path__", [str(other)])
    huc_mlflow.save_model(store / "again", log_forest(story), story.boost())
    (changed,) = (store / "again" / "code").iterdir()
    assert changed.name != code.name


def test_a_recalibrator_is_stored_once(story, store):
    boost = story.boost(initial="dirichlet")
    huc_mlflow.save_model(store / "saved", log_forest(story), boost)
    (payload,) = (store / "saved").rglob("recalibration.json")
    text = payload.read_text()
    for number in (boost.updates_[0].step, boost.initial_.theta_[3]):
        assert text.count(repr(float(number))) == 1
    (stage,) = json.loads(text)["stages"]
    assert hm.HUCBoost.from_dict(stage["recalibrator"]).updates_ == boost.updates_


def test_loading_starts_no_thread_and_says_what_serves(story, store, monkeypatch, caplog):
    huc_mlflow.save_model(store / "saved", log_forest(story), story.boost())
    before = set(threading.enumerate())
    started = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    with caplog.at_level("INFO", "huc_monitor"):
        model = mlflow.pyfunc.load_model(str(store / "saved"))
    for _ in range(60):
        model.predict(story.frame.head(1))
    assert not started
    assert set(threading.enumerate()) <= before  # others may end meanwhile
    assert "recalibration is served by compiled code" in caplog.text
    assert model._model_impl.engine == "compiled"
