"""Base models: fetch them, find out their classes, refuse those without probabilities."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow.models import Model

from huc_monitor.errors import InvalidInputError, did_you_mean
from huc_monitor.recalibration.runtime.base import as_matrix, native_predict_proba
from huc_monitor.recalibration.runtime.model import load_payload
from huc_monitor.tree import LabelTree

_NATIVE = ("sklearn", "xgboost", "lightgbm")
# Written by MLflow into a local store when a registered model is loaded; wrong in a copy.
_LEFT_OUT = shutil.ignore_patterns("registered_model_meta", "__pycache__")


_DESCRIBED = (
    "native",
    "output",
    "classes",
    "class_leaf",
    "n_base_classes",
    "probability_columns",
    "base_columns",
)


class UnfitBaseError(InvalidInputError):
    """A model that cannot be recalibrated for a tree: no probabilities, or of other classes."""


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A base model on disk, and the stages already around it when it was itself recalibrated."""

    folder: Path
    model: Model
    stages: tuple[dict[str, Any], ...]
    payload: dict[str, Any] | None


def uri_of(base: Any) -> str:
    """Return the URI of a base given as URI, path, or what ``log_model`` returned."""
    uri = getattr(base, "model_uri", base)
    if not isinstance(uri, str | Path) or not str(uri):
        msg = (
            "`base` must be a model URI such as 'models:/name@champion', a folder, or what "
            f"log_model returned; got {type(base).__name__}. Log the base model first."
        )
        raise InvalidInputError(msg)
    return str(uri)


def fetch(base: Any, folder: Path) -> BaseModel:
    """Copy the root base model into `folder` / "base"; a recalibrated base is taken apart."""
    uri = uri_of(base)
    if Path(uri).is_dir():
        source = Path(uri)
    else:
        source = Path(mlflow.artifacts.download_artifacts(uri, dst_path=_made(folder / "fetched")))
    if not (source / "MLmodel").is_file():
        msg = f"`base` must be an MLflow model; {uri!r} has no MLmodel file."
        raise InvalidInputError(msg)
    model = Model.load(str(source))
    payload = None
    if is_recalibrated(model):
        data = data_folder(source, model)
        payload = load_payload(data)
        source = data / "base"
        model = Model.load(str(source))
    target = folder / "data" / "base"
    shutil.copytree(source, target, ignore=_LEFT_OUT)
    stages = () if payload is None else tuple(map(_stored_once, payload["stages"]))
    return BaseModel(target, model, stages, payload)


def _stored_once(stage: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the first version stored a second time."""
    return {name: stage[name] for name in ("recalibrator", "tree", "utilities")}


def is_recalibrated(model: Model) -> bool:
    """Say whether a model was saved by this flavor."""
    loader = model.flavors.get("python_function", {}).get("loader_module", "")
    return str(loader).startswith("_huc_runtime_")


def data_folder(source: Path, model: Model) -> Path:
    """Where a recalibrated model keeps its payload."""
    return source / str(model.flavors["python_function"]["data"])


def _made(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)


def describe(
    base: BaseModel, tree: LabelTree, classes: Sequence[str] | None, example: Any
) -> dict[str, Any]:
    """Find out how the base gives probabilities, of which classes, and what it answers by itself.

    Returns
    -------
    dict
        ``native``, ``output``, ``classes``, ``class_leaf``, ``n_base_classes``,
        ``probability_columns`` and ``base_columns`` of the payload. Leaves that the base does not
        know follow its own classes.
    """
    if base.payload is not None:
        _check_same_leaves(base.payload, tree)
        kept = {"n_base_classes": len(base.payload["classes"]), **base.payload}
        return {name: kept[name] for name in _DESCRIBED}
    loaded = mlflow.pyfunc.load_model(str(base.folder))
    flavor = next((name for name in _NATIVE if name in base.model.flavors), None)
    native = native_predict_proba(loaded) if flavor else None
    raw: Any = loaded.get_raw_model() if flavor else None
    if flavor == "sklearn" and native is None:
        msg = (
            f"`base` must give probabilities; {type(raw).__name__} has no predict_proba. "
            "Wrap it, for example in sklearn.calibration.CalibratedClassifierCV."
        )
        raise UnfitBaseError(msg)
    columns = _input_columns(base.model)
    labels = list(np.asarray(raw.classes_).tolist()) if native is not None else None
    leaves = _class_leaves(labels, classes, base.model, tree)
    unknown = [leaf for leaf in tree.leaves if leaf not in leaves]
    found = {
        "native": native is not None,
        "output": _default_output(base.model, flavor) if native is not None else "probabilities",
        "classes": [*(labels if labels is not None else leaves), *unknown],
        "class_leaf": [tree.leaf_index(leaf) for leaf in [*leaves, *unknown]],
        "n_base_classes": len(leaves),
        "probability_columns": None if native is not None else leaves,
        "base_columns": columns if columns is not None else _feature_names(raw),
    }
    if native is None:
        _check_output(base, loaded, found, example)
    return found


def _default_output(model: Model, flavor: str | None) -> str:
    name = model.flavors["python_function"].get("predict_fn", "predict")
    if name not in {"predict", "predict_proba"}:
        msg = (
            "`base` must answer with labels or probabilities; its pyfunc_predict_fn is "
            f"{name!r}. Log it with 'predict' or 'predict_proba' ({flavor})."
        )
        raise UnfitBaseError(msg)
    return "labels" if name == "predict" else "probabilities"


def _input_columns(model: Model) -> list[str] | None:
    schema = None if model.signature is None else model.signature.inputs
    if schema is None or schema.is_tensor_spec() or not schema.has_input_names():
        return None
    return [str(name) for name in schema.input_names()]


def _feature_names(raw: Any) -> list[str] | None:
    names = getattr(raw, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _class_leaves(
    labels: list[Any] | None, classes: Sequence[str] | None, model: Model, tree: LabelTree
) -> list[str]:
    """Leaf names in the order of the base's probability columns."""
    if classes is not None:
        given = [str(name) for name in classes]
    elif labels is not None:
        given = [str(label) for label in labels]
    else:
        outputs: Any = None if model.signature is None else model.signature.outputs
        named = outputs is not None and not outputs.is_tensor_spec() and outputs.has_input_names()
        given = [str(name) for name in outputs.input_names()] if named else []
    if labels is not None and len(given) != len(labels):
        msg = (
            f"`classes` must have a leaf for each of the base's {len(labels)} classes; got "
            f"{len(given)}."
        )
        raise UnfitBaseError(msg)
    check_classes(given, tree.leaves)
    return given


def check_classes(
    given: Sequence[str], leaves: Sequence[str], *, place: str = "tracker.settings.classes"
) -> None:
    """Refuse classes that are no leaves; a leaf that is no class has probability 0."""
    unknown = [name for name in given if name not in leaves]
    repeated = [name for name in given if list(given).count(name) > 1]
    if given and not unknown and not repeated:
        return
    found = "the model names none."
    if unknown:
        shown = ", ".join(map(repr, unknown[:3])) + (", ..." if len(unknown) > 3 else "")
        found = f"no leaf is called {shown}. {did_you_mean(unknown[0], leaves)}"
    elif repeated:
        found = f"{repeated[0]!r} is named twice."
    msg = (
        "`classes` must name leaves of the tree, each at most once, in the order of the model's "
        f"probability columns; {found} Pass classes=[leaf of the first column, leaf of the second, "
        f"...] ({place} in a configuration), or add what is missing to the tree."
    )
    raise UnfitBaseError(msg)


def _check_same_leaves(payload: dict[str, Any], tree: LabelTree) -> None:
    before = payload["stages"][-1]["tree"]["leaves"] if payload["stages"] else payload["leaves"]
    if list(tree.leaves) != list(before):
        msg = (
            "`recalibrator` must have the leaves of the recalibrated base, in the same order; got "
            f"{', '.join(tree.leaves[:5])} for {', '.join(before[:5])}. Fit it on the same tree."
        )
        raise UnfitBaseError(msg)


def _check_output(base: BaseModel, loaded: Any, found: dict[str, Any], example: Any) -> None:
    if example is None:
        example = base.model.load_input_example(str(base.folder))
    if example is None:
        return
    try:
        as_matrix(loaded.predict(example), found["n_base_classes"], found["probability_columns"])
    except ValueError as error:
        msg = f"`base` must give probabilities. {error}"
        raise UnfitBaseError(msg) from error
