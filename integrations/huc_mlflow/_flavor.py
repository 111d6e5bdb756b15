"""The MLflow flavor: a base model with its recalibration, saved, logged and loaded."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow.pyfunc
import pandas as pd
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType

from huc_mlflow import _loader
from huc_mlflow._bases import data_folder, describe, fetch, is_recalibrated, uri_of
from huc_mlflow._client import environment
from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration import runtime, stage_of
from huc_monitor.recalibration.runtime.model import PAYLOAD, SCHEMA_VERSION, RecalibratedModel
from huc_monitor.recalibration.runtime.rules import comparisons
from huc_monitor.recalibration.runtime.stage import Stage
from huc_monitor.sources import prediction_log
from huc_monitor.tree import LabelTree

if TYPE_CHECKING:
    from mlflow.models.model import ModelInfo

FLAVOR_NAME = "huc"
_LOADER = "loader"
_PARAMETER = ParamSpec("predict_method", "string", "default")
# MLflow refuses whole numbers for "double"; numbers are therefore declared as anything.
_TYPES = {"text": DataType.string, "boolean": DataType.boolean, "time": DataType.datetime}


def save_model(
    path: str | Path,
    base: Any,
    recalibrator: Any,
    *,
    tree: LabelTree | None = None,
    classes: Sequence[str] | None = None,
    input_example: Any = None,
    pip_requirements: Sequence[str] | None = None,
    metadata: dict[str, Any] | None = None,
    id_column: str | None = None,
    mlflow_model: Model | None = None,
) -> None:
    """Save a base model and its recalibration as one MLflow model.

    The result keeps the base's signature and its default output, labels or probabilities. Callers
    may ask for ``params={"predict_method": "predict" | "predict_proba" | "decision"}``. It loads
    with ``mlflow.pyfunc.load_model`` where only MLflow, numpy and the base's requirements are
    installed.

    Parameters
    ----------
    path : path
        Folder to create.
    base : str, path or ModelInfo
        scikit-learn, XGBoost, LightGBM, or any pyfunc model that returns probabilities. The base
        may be recalibrated itself: then its root base is kept and the new stage is appended, so
        the recalibrator must have been fitted on what that model returns.
    recalibrator : HUCBoost or Scaling
        Fitted.
    tree : LabelTree, optional
        Of a scaling, which knows only leaves; HUCBoost brings its own.
    classes : list of leaf names, optional
        What the base's probability columns are, in order. Needed where the base does not say:
        a model trained on codes, or a pyfunc that returns an array.
    input_example : optional
        Input to try the base with, and to show with the model; the base's own when left out.
    pip_requirements : list of str, optional
        The base's own when left out.
    metadata : dict, optional
    id_column : str, optional
        An input column with the id of each prediction, added to the signature if it is not there:
        what a model that logs its answers (``HUC_LOG_FOLDER``) is joined with labels by.
    mlflow_model : mlflow.models.Model, optional
        Handed in by MLflow when logging.
    """
    stage = stage_of(recalibrator, tree)
    label_tree = _tree_of(recalibrator, tree, stage)
    model = Model() if mlflow_model is None else mlflow_model
    with tempfile.TemporaryDirectory() as scratch:
        root = fetch(base, Path(scratch))
        if input_example is None:
            input_example = root.model.load_input_example(str(root.folder))
        payload = {
            "schema_version": SCHEMA_VERSION,
            "leaves": list(label_tree.leaves),
            **describe(root, label_tree, classes, input_example),
            **({} if id_column is None else {"id_column": id_column}),
            "stages": [*root.stages, stage],
        }
        signature = _signature(root.model.signature, payload)
        input_example = _completed(input_example, payload["stages"])
        text = json.dumps(payload, allow_nan=False, ensure_ascii=False)
        (Path(scratch) / "data" / PAYLOAD).write_text(text, "utf-8")
        code = _copy_runtime(Path(scratch) / "code")
        model.add_flavor(
            FLAVOR_NAME,
            runtime=SCHEMA_VERSION,
            n_stages=len(payload["stages"]),
            n_updates=sum(
                len(item["recalibrator"].get("updates", ())) for item in payload["stages"]
            ),
            classes=[str(label) for label in payload["classes"]],
        )
        with environment(MLFLOW_UV_AUTO_DETECT="false"), warnings.catch_warnings():
            # The base's signature is taken over, so there is nothing to infer from an example.
            warnings.filterwarnings("ignore", message=".*input example was not provided")
            mlflow.pyfunc.save_model(
                str(path),
                loader_module=f"{code.name}.{_LOADER}",
                data_path=str(Path(scratch) / "data"),
                code_paths=[str(code)],
                mlflow_model=model,
                signature=signature,
                input_example=input_example,
                pip_requirements=_requirements(root.folder, pip_requirements),
                metadata=metadata,
            )


def log_model(
    base: Any,
    recalibrator: Any,
    *,
    name: str = "recalibrated",
    registered_model_name: str | None = None,
    tags: dict[str, Any] | None = None,
    run_id: str | None = None,
    **options: Any,
) -> ModelInfo:
    """Log a base model and its recalibration as one MLflow model.

    Parameters
    ----------
    base, recalibrator
        As in `save_model`.
    name : str
        Of the logged model.
    registered_model_name : str, optional
        Register it as the next version under this name as well.
    tags : dict, optional
        On the logged model.
    run_id : str, optional
        Log into this run instead of the active one. Use a run of its own: MLflow copies all
        metrics of the run onto a new model.
    **options
        As in `save_model`.
    """
    info: ModelInfo = Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules["huc_mlflow"],
        registered_model_name=registered_model_name,
        tags=tags,
        run_id=run_id,
        base=base,
        recalibrator=recalibrator,
        **options,
    )
    return info


def load_model(model_uri: Any) -> RecalibratedModel:
    """Load a recalibrated model with its own methods.

    Beyond ``predict`` it has ``predict_proba``, ``base_probabilities``, ``recalibrate``,
    ``decisions``, ``classes`` and ``payload``. ``mlflow.pyfunc.load_model`` gives the plain form.
    """
    uri = uri_of(model_uri)
    folder = Path(uri if Path(uri).is_dir() else mlflow.artifacts.download_artifacts(uri))
    model = Model.load(str(folder))
    if not is_recalibrated(model):
        msg = (
            f"`model_uri` must be a model saved by huc_mlflow; {uri!r} is not. "
            "Load it with mlflow.pyfunc.load_model."
        )
        raise InvalidInputError(msg)
    return RecalibratedModel(data_folder(folder, model), mlflow.pyfunc.load_model)


def _copy_runtime(folder: Path) -> Path:
    """Copy the code that a model carries into a package named by its content.

    MLflow puts the packages of all loaded models on one path: of two with the same name, the
    second model would run the first one's code.
    """
    files = {path.name: path.read_bytes() for path in Path(runtime.__path__[0]).glob("*.py")}
    for module in (_loader, prediction_log):
        file = Path(str(module.__file__))
        files[f"{_LOADER if module is _loader else file.stem}.py"] = file.read_bytes()
    digest = hashlib.sha256(b"".join(name.encode() + files[name] for name in sorted(files)))
    package = folder / f"_huc_runtime_{SCHEMA_VERSION}_{digest.hexdigest()[:12]}"
    package.mkdir(parents=True)
    for name, content in files.items():
        (package / name).write_bytes(content)
    return package


def _tree_of(recalibrator: Any, tree: LabelTree | None, stage: dict[str, Any]) -> LabelTree:
    own = getattr(recalibrator, "tree", None)
    return own or tree or LabelTree.flat(stage["tree"]["leaves"])


def _signature(base: ModelSignature | None, payload: dict[str, Any]) -> ModelSignature:
    """Return the base's signature, with the method parameter and the columns of subgroups."""
    rules = [Stage(data).rules for data in payload["stages"]]
    needed = {name: item.kinds.get(name) for item in rules for name in item.columns}
    inputs = None if base is None else base.inputs
    params = [] if base is None or base.params is None else list(base.params.params)
    params = [spec for spec in params if spec.name != _PARAMETER.name]
    if inputs is not None:
        inputs = _with_columns(inputs, needed, payload.get("id_column"))
    return ModelSignature(
        inputs=inputs,
        outputs=None if base is None else base.outputs,
        params=ParamSchema([*params, _PARAMETER]),
    )


def _with_columns(inputs: Schema, needed: Mapping[str, str | None], ids: str | None) -> Schema:
    """Require what subgroups need; an id is only logged, and stays optional."""
    if inputs.is_tensor_spec() or not inputs.has_input_names():
        if not needed:
            return inputs
        msg = (
            f"`base` must have named input columns, because the subgroups need "
            f"{', '.join(map(repr, needed))}; its signature has none. Log the base with a "
            "signature inferred from a DataFrame."
        )
        raise InvalidInputError(msg)
    specs: dict[str, Any] = inputs.input_dict()
    for name, kind in needed.items():
        type_ = specs[name].type if name in specs else _TYPES.get(kind or "", AnyType())
        specs[name] = ColSpec(type_, name, required=True)
    if ids is not None:
        specs.setdefault(ids, ColSpec(DataType.string, ids, required=False))
    return Schema(list(specs.values()))


def new_columns(base: Model, recalibrator: Any, tree: LabelTree | None) -> list[str]:
    """Name the columns that requests need not carry for the base, and must for its recalibration.

    A base without a signature does not say what it needs: then all that subgroups read are named.
    """
    inputs: Any = None if base.signature is None else base.signature.inputs
    named = inputs is not None and not inputs.is_tensor_spec() and inputs.has_input_names()
    known = set(inputs.required_input_names()) if named else set()
    return [name for name in Stage(stage_of(recalibrator, tree)).rules.columns if name not in known]


def _completed(example: Any, stages: Sequence[dict[str, Any]]) -> Any:
    """Give an input example of the base the columns that subgroups need, with a value of theirs."""
    if not isinstance(example, pd.DataFrame):
        return example
    added: dict[str, Any] = {}
    for rules in (Stage(data).rules for data in stages):
        for rule in rules.rules.values():
            if "weight" in rule:
                added.setdefault(rule["weight"], 0.0)
            for one in comparisons(rule):
                value: Any = one.get("value")
                value = value[0] if isinstance(value, list) else value
                is_time = str(rules.kinds.get(one["column"])).endswith("time")
                added.setdefault(one["column"], pd.Timestamp(value) if is_time else value)
    return example.assign(**{name: v for name, v in added.items() if name not in example})


def _requirements(folder: Path, given: Sequence[str] | None) -> list[str]:
    """Return the base's requirements and the runtime's; inferring them would take 14 seconds."""
    lines = list(given) if given is not None else _base_requirements(folder)
    names = {_project(line) for line in lines}
    for package in ("mlflow", "numpy", "pandas"):
        # The full MLflow distribution brings numpy and pandas; a skinny one does not.
        if package not in names and not (package == "mlflow" and "mlflow-skinny" in names):
            module = sys.modules[package]
            lines.append(f"{package}=={module.__version__}")
    return lines


def _base_requirements(folder: Path) -> list[str]:
    file = folder / "requirements.txt"
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    kept = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return [f"-c {folder / 'constraints.txt'}" if line.startswith("-c ") else line for line in kept]


def _project(line: str) -> str:
    name = line.split(";", 1)[0]
    for mark in "[=<>!~@ ":
        name = name.split(mark)[0]
    return name.strip().lower().replace("_", "-")
