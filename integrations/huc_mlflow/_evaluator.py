"""``mlflow.models.evaluate(..., evaluators=["huc"])``: utility calibration of any classifier."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Metric

# From here, not from the package that defines it: MLflow would drop the plugin with a warning.
from mlflow.models.evaluation import EvaluationArtifact, EvaluationResult, ModelEvaluator

from huc_mlflow._bases import check_classes
from huc_mlflow._metrics import FEWEST_KEYS, MOST_KEYS, candidate_labels, finite
from huc_mlflow._pages import report_files
from huc_monitor._common.checks import check_whole
from huc_monitor._common.safe_text import table_cell
from huc_monitor.audit import audit
from huc_monitor.audit.forms.given import read_predictions
from huc_monitor.audit.options import DEFAULTS, AuditOptions
from huc_monitor.audit.result import AuditResult
from huc_monitor.errors import InvalidInputError, did_you_mean
from huc_monitor.recalibration.runtime.base import as_matrix, native_predict_proba
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility, correct_at_every_level

_AS_GIVEN = ("subgroups", "classes", "tolerance", "sample_weights", "clusters", "rest")
_OPTIONS = tuple(AuditOptions.model_fields)
_SETTINGS = ("tree", "utilities", *_AS_GIVEN, "metric_keys", *_OPTIONS)


class JsonArtifact(EvaluationArtifact):
    """An audit as JSON."""

    def __init__(self, uri: str, content: dict[str, Any]) -> None:
        super().__init__(uri, content)  # type: ignore[no-untyped-call]

    def _save(self, output_artifact_path: str) -> None:
        Path(output_artifact_path).write_text(json.dumps(self._content), "utf-8")

    def _load_content_from_file(self, local_artifact_path: str) -> Any:
        return json.loads(Path(local_artifact_path).read_text("utf-8"))


class HUCEvaluator(ModelEvaluator):
    """Audits a classifier on evaluation data, and logs the worst moments and a table of all.

    ``evaluator_config={"huc": {...}}`` takes ``tree`` (LabelTree, its JSON form, or a file) and
    optionally ``utilities``, ``subgroups`` (as for `Subgroups.from_reference`), ``classes`` (leaf
    of each probability column), ``tolerance``, ``sample_weights`` (a number per row: how often it
    counts), ``clusters`` (a column of the data, or a value per row: rows that depend on each
    other), ``rest`` (where the mass of top-k predictions goes that is not there, as for
    `TopKPredictions`), ``metric_keys`` (the most metrics, 100 when left out), ``bounds``,
    ``confidence_level``, ``n_draws``, ``rng``. The model may be a recalibrated one, any
    scikit-learn-like model, or a pyfunc or a column of predictions: probabilities as columns, as
    lists, or as mappings or pairs of class and probability.
    """

    @classmethod
    def can_evaluate(
        cls, *, model_type: str, evaluator_config: Mapping[str, Any] | None, **_: Any
    ) -> bool:
        """Say yes only when asked by name with a tree: otherwise every evaluation would ask us."""
        return model_type in {"classifier", None} and "tree" in (evaluator_config or {})

    def evaluate(
        self,
        *,
        model_type: str,  # noqa: ARG002 - MLflow's signature
        dataset: Any,
        run_id: str | None,
        evaluator_config: Mapping[str, Any],
        model: Any = None,
        predictions: Any = None,
        model_id: str | None = None,
        **_: Any,
    ) -> EvaluationResult:
        """Audit, log, and return metrics and artifacts."""
        settings = _check(evaluator_config)
        features = dataset.features_data
        frame = features if isinstance(features, pd.DataFrame) else None
        tree = settings["tree"]
        probabilities = _probabilities(model, predictions, dataset, settings)
        result = audit(
            probabilities,
            dataset.labels_data,
            tree=tree,
            utilities=settings["utilities"],
            subgroups=_subgroups(settings["subgroups"], frame),
            features=frame,
            weights=settings["sample_weights"],
            clusters=_clusters(settings["clusters"], frame),
            **{name: settings[name] for name in _OPTIONS},
        )
        metrics = metrics_of(result, settings["tolerance"], settings["metric_keys"])
        artifacts = _log(result, metrics, run_id, model_id)
        return EvaluationResult(metrics=metrics, artifacts=artifacts)


def metrics_of(result: AuditResult, tolerance: float | None, most: int = 100) -> dict[str, float]:
    """Summary figures and the worst moments; values that are not finite are left out."""
    names = ("huc", "huc_lower", "huc_upper", "uc", "n")
    found: dict[str, float | None] = {f"huc/{name}": getattr(result, name) for name in names}
    if tolerance is not None:
        found["huc/n_violations"] = float(len(result.violations(tolerance)))
    kept = finite(found)
    moments, labels = result.candidates.moment, candidate_labels(result.candidates)
    undefined = len(found) - len(kept) + int(np.isnan(moments).sum())
    kept["huc/n_undefined"] = float(undefined)
    for row in np.argsort(-np.abs(np.nan_to_num(moments)), kind="stable")[: most - len(kept)]:
        kept |= finite({f"huc_branches/{labels[row]}": moments[row]})
    return kept


def _log(
    result: AuditResult, metrics: Mapping[str, float], run_id: str | None, model_id: str | None
) -> dict[str, EvaluationArtifact]:
    plain = {"tree_content": result.tree.to_dict(), **result.to_dict()}
    if run_id is None:
        return {"huc_audit": JsonArtifact(uri="", content=plain)}
    client = MlflowClient()
    if model_id is None:
        # With a model id MLflow logs the metrics itself; without one nobody would.
        entries = [Metric(key, value, 0, 0) for key, value in metrics.items()]
        client.log_batch(run_id, metrics=entries)
    client.log_text(run_id, json.dumps(plain), "huc/audit.json")
    client.log_text(run_id, _csv(result), "huc/candidates.csv")
    for name, content in report_files(result).items():
        client.log_text(run_id, content.decode(), f"huc/{name}")
    uri = f"runs:/{run_id}/huc/audit.json"
    return {"huc_audit": JsonArtifact(uri=uri, content=plain)}


def _csv(result: AuditResult) -> str:
    frame = result.to_frame(all_columns=True)
    names = ["utility", "subgroup", "node"]
    frame[names] = frame[names].map(table_cell)
    return frame.to_csv(index=False)


def _check(given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(given) - set(_SETTINGS))
    if unknown:
        msg = (
            f"`evaluator_config` must have settings of huc only; got {unknown[0]!r}. "
            + did_you_mean(unknown[0], _SETTINGS)
        )
        raise InvalidInputError(msg)
    tree = given["tree"]
    if isinstance(tree, str | Path):
        tree = LabelTree.from_file(tree)
    elif not isinstance(tree, LabelTree):
        tree = LabelTree.from_dict(tree) if "children" in tree else LabelTree.from_nested(tree)
    utilities = [
        item if isinstance(item, Utility) else Utility.from_dict(item)
        for item in given.get("utilities") or ()
    ]
    return {
        "tree": tree,
        "utilities": utilities or list(correct_at_every_level(tree)),
        **{name: given.get(name) for name in _AS_GIVEN},
        "metric_keys": check_whole(
            "metric_keys", given.get("metric_keys", 100), least=FEWEST_KEYS, most=MOST_KEYS
        ),
        **{name: given.get(name, default) for name, default in DEFAULTS},
    }


def _subgroups(given: Any, frame: pd.DataFrame | None) -> Subgroups:
    if given is None:
        return Subgroups.whole()
    if isinstance(given, Subgroups):
        return given
    if "schema_version" in given:
        return Subgroups.from_dict(given)
    if frame is None:
        msg = "`subgroups` must come with a DataFrame of features; the dataset has none."
        raise InvalidInputError(msg)
    return Subgroups.from_reference(frame, given)


def _clusters(given: Any, frame: pd.DataFrame | None) -> Any:
    """Return a value per row, from a column of the data where one is named."""
    if not isinstance(given, str):
        return given
    if frame is None or given not in frame:
        there = [] if frame is None else [str(name) for name in frame.columns]
        msg = f"`clusters` must name a column of the data; got {given!r}. "
        raise InvalidInputError(msg + did_you_mean(given, there))
    return frame[given]


def _probabilities(model: Any, predictions: Any, dataset: Any, settings: Mapping[str, Any]) -> Any:
    """Ask the model for probabilities and put their columns in the order of the leaves."""
    tree, classes = settings["tree"], settings["classes"]
    answer, labels = dataset.predictions_data if predictions is None else predictions, None
    if model is not None:
        features = dataset.features_data
        asked = _asks_by_parameter(model)
        native = None if asked else native_predict_proba(model)
        if native is not None:
            answer = native(_inputs(model, features))
            labels = [str(label) for label in native.__self__.classes_]
        elif asked:
            answer = model.predict(features, {"predict_method": "predict_proba"})
        else:
            answer = model.predict(features)
    if isinstance(answer, pd.DataFrame) and answer.shape[1] > 1:
        labels = [str(name) for name in answer.columns]
    elif not isinstance(answer, np.ndarray) or answer.dtype == object:
        answer = list(answer.iloc[:, 0] if isinstance(answer, pd.DataFrame) else answer)
        form = _form(answer)
        if form is not None:
            column = pd.DataFrame({"predictions": pd.Series(answer, dtype=object)})
            form_of = {form: "predictions", "rest": settings["rest"]}
            return read_predictions(column, tree=tree, **form_of)
    named = list(classes) if classes is not None else labels or []
    check_classes(named, tree.leaves, place="evaluator_config['huc']['classes']")
    matrix = as_matrix(answer, len(named), named if classes is None else None)
    leaves = np.zeros((len(matrix), tree.n_leaves))
    leaves[:, [tree.leaf_index(name) for name in named]] = matrix
    return leaves


def _form(rows: Sequence[Any]) -> str | None:
    """Say how rows name their classes, by the first of them; None where they do not."""
    first = rows[0] if len(rows) else None
    if isinstance(first, dict) or (isinstance(first, str) and first.lstrip().startswith("{")):
        return "map"
    lists = (list, tuple, np.ndarray)
    if isinstance(first, lists) and len(first) and isinstance(first[0], (*lists, dict)):
        return "pairs"
    return None


def _inputs(model: Any, features: Any) -> Any:
    """Leave out columns that the model was not fitted on, such as clusters."""
    schema = model.metadata.get_input_schema() if hasattr(model, "metadata") else None
    if not isinstance(features, pd.DataFrame) or schema is None or not schema.has_input_names():
        return features
    names = schema.input_names()
    return features[names] if set(names) <= set(features.columns) else features


def _asks_by_parameter(model: Any) -> bool:
    """Say whether a model is a recalibrated one, which names its columns when asked."""
    try:
        schema = model.metadata.get_params_schema()
    except AttributeError:
        return False
    return schema is not None and any(spec.name == "predict_method" for spec in schema.params)
