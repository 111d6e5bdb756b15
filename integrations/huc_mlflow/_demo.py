"""The story behind ``huc-monitor demo``: a drift that hides in every aggregate, and its repair.

Everything is real and stays in one folder: a scikit-learn model in an MLflow registry on sqlite,
a partitioned Parquet log with late labels, the monitor, and the version that repairs the model.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from huc_monitor.demo.stream import TREE, UTILITY, tickets, train_router
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor import CheckResult

MODEL = "ticket-router"
BEGIN = datetime(2024, 3, 1, tzinfo=UTC)
CALM_DAYS, DRIFT_DAYS, LATER_DAYS = 5, 3, 3
DRIFT = 1.2
TOLERANCE = 0.5
_MARKER = ".huc-demo"


@dataclass
class Phase:
    """What the usual aggregates, and the monitor, say of some days."""

    name: str
    served_by: str
    accuracy: float
    calibration_error: float
    log_loss: float
    check: CheckResult = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form."""
        return {
            "served_by": self.served_by,
            "accuracy": self.accuracy,
            "calibration_error": self.calibration_error,
            "log_loss": self.log_loss,
            "uc_eur": self.mean("uc"),
            "huc_eur": self.mean("huc"),
            "status": self.check.status,
            "message": None if self.check.message is None else self.check.message.text,
        }

    def mean(self, name: str) -> float:
        """Mean of a figure over the audited windows, in euros."""
        values = [getattr(found, name) for record in self.check if (found := record.result)]
        return float(np.mean(values)) * UTILITY.scale


@dataclass
class Demo:
    """The folder and the phases of a finished demo."""

    folder: Path
    calm: Phase
    drifted: Phase
    repaired: Phase
    version: str | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form."""
        phases = (self.calm, self.drifted, self.repaired)
        found = {phase.name: phase.to_dict() for phase in phases}
        return {"folder": str(self.folder), "version": self.version, **found}


def run(
    folder: str | os.PathLike[str],
    *,
    seed: int = 0,
    fast: bool = False,
    tell: Callable[[str], None] = print,
) -> Demo:
    """Run the whole story in a folder; ``tell`` gets its sentences, one paragraph at a time."""
    place = _fresh(Path(folder))
    with _quiet(), _store(place) as uri:
        desk = _Desk(place, uri, np.random.default_rng(seed), 4_000 if fast else 8_000)
        desk.register()
        tell(
            f"A help desk routes {desk.per_day:,} tickets a day by a classifier over "
            f"{TREE.n_leaves} causes. Version 1 is in the MLflow registry as {MODEL!r}; what a "
            f"ticket will cost to handle is predicted too, and may be wrong by {TOLERANCE:.2f} EUR."
        )
        calm = desk.phase("calm", range(CALM_DAYS), drift=0.0)
        tell(_aggregates(f"Days 1 to {CALM_DAYS}", calm))
        last = CALM_DAYS + DRIFT_DAYS
        drifted = desk.phase("drifted", range(CALM_DAYS, last), drift=DRIFT)
        tell(_aggregates(f"Days {CALM_DAYS + 1} to {last}", drifted))
        tell(drifted.check.message.text if drifted.check.message else "No alert was raised.")
        version = desk.champion()
        if version != "1":
            tell(
                f"The monitor fitted a repair on the labels of those days, judged it once on the "
                f"newest, and registered it as version {version}, which wraps version 1 and is "
                "champion now."
            )
        else:
            tell(
                "The monitor fitted a repair on the labels of those days. On the newest of them "
                "its gain may be chance, so it was not registered: version 1 serves on. More "
                "tickets a day help (without --fast)."
            )
        repaired = desk.phase("repaired", range(last, last + LATER_DAYS), drift=DRIFT)
        tell(_aggregates(f"Days {last + 1} to {last + LATER_DAYS}", repaired))
        if repaired.check.message is not None:
            tell(repaired.check.message.text)
        desk.report()
    return Demo(place, calm, drifted, repaired, None if version == "1" else version)


def _fresh(folder: Path) -> Path:
    """Make the folder anew; refuse one that holds anything but an earlier demo."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / _MARKER).exists():
            msg = (
                f"`--dir` must be a new or empty folder, or that of an earlier demo; "
                f"{str(folder)!r} holds other files. Choose another."
            )
            raise InvalidInputError(msg)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / _MARKER).touch()
    return folder.resolve()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep MLflow's own remarks out of the story: it logs and prints to standard error."""
    import logging

    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            Path(os.devnull).open("w", encoding="utf-8") as nowhere,
            contextlib.redirect_stderr(nowhere),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def _store(folder: Path) -> Iterator[str]:
    """Point MLflow at a database in the folder, and back again."""
    import mlflow

    before = mlflow.get_tracking_uri()
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    for name in (MODEL, f"huc-monitor/{MODEL}"):
        mlflow.create_experiment(name, (folder / "artifacts").as_uri())
    try:
        yield uri
    finally:
        mlflow.set_tracking_uri(before)


class _Desk:
    """The help desk: serves tickets with the champion, and writes its log and labels."""

    def __init__(self, folder: Path, uri: str, rng: np.random.Generator, per_day: int) -> None:
        self.folder = folder
        self.uri = uri
        self.rng = rng
        self.per_day = per_day
        self._labels: list[pd.DataFrame] = []

    def register(self) -> None:
        """Train the router, register it as version 1, and write the monitor's configuration."""
        import mlflow

        router = train_router(self.rng, 10_000 if self.per_day < 8_000 else 30_000)
        example = tickets(5, np.random.default_rng(0)).features
        mlflow.set_experiment(MODEL)
        mlflow.sklearn.log_model(
            router,
            name="router",
            registered_model_name=MODEL,
            signature=mlflow.models.infer_signature(example, router.predict(example)),
            pip_requirements=["mlflow", "scikit-learn", "pandas"],
            serialization_format="pickle",  # the safe formats need to be told every type by hand
        )
        mlflow.MlflowClient().set_registered_model_alias(MODEL, "champion", "1")
        (self.folder / "tree.json").write_text(json.dumps(TREE.to_dict(), indent=1), "utf-8")
        (self.folder / "huc.yaml").write_text(yaml.safe_dump(self._config(), sort_keys=False))

    def _config(self) -> dict[str, Any]:
        return {
            "version": 1,
            "model": MODEL,
            "tree": "tree.json",
            "source": {
                "log": {"path": "log", "partition": {"columns": {"day": "%Y-%m-%d"}}},
                "labels": {"path": "labels.parquet", "id": "id", "label": "cause", "time": "known"},
            },
            "columns": {
                "time": "time",
                "probabilities": "p_{leaf}",
                "id": "id",
                "model_version": "version",
            },
            "utilities": [UTILITY.to_dict()],
            "subgroups": {"by": {"channel": "each"}},
            "reference": {"start": "2024-03-01", "end": "2024-03-03"},
            "windows": {"length": "1d", "label_lag": "1d"},
            "tolerance": {"value": TOLERANCE, "unit": "money"},
            # Three days of labels: on fewer, the repair's gain may be chance.
            "recalibration": {
                "enabled": True,
                "critical_windows": 3,
                "on_sequential_alarm": False,
                "promotion": "gate",
            },
            "tracker": {"name": "mlflow", "settings": {"tracking_uri": self.uri}},
        }

    def champion(self) -> str:
        """Return the version that serves now."""
        import mlflow

        found = mlflow.MlflowClient().get_model_version_by_alias(MODEL, "champion")
        return str(found.version)

    def phase(self, name: str, days: range, *, drift: float) -> Phase:
        """Serve some days, then check once their labels are there."""
        version = self.champion()
        predict = self._predictor(version)
        chosen, labels = [], []
        for day in days:
            p, codes = self._serve(day, predict, version, drift)
            chosen.append(p)
            labels.append(codes)
        pd.concat(self._labels).to_parquet(self.folder / "labels.parquet", index=False)
        p, codes = np.concatenate(chosen), np.concatenate(labels)
        return Phase(
            name,
            version,
            accuracy=float((p.argmax(axis=1) == codes).mean()),
            calibration_error=calibration_error(p, codes),
            log_loss=float(-np.log(p[np.arange(codes.size), codes]).mean()),
            check=self._check(BEGIN + timedelta(days=days.stop + 1, hours=1)),
        )

    def _predictor(self, version: str) -> Callable[[pd.DataFrame], Any]:
        import mlflow

        if version == "1":
            router = mlflow.sklearn.load_model(f"models:/{MODEL}/1")
            names = list(router.classes_)
            return lambda rows: pd.DataFrame(router.predict_proba(rows), columns=names)
        model = mlflow.pyfunc.load_model(f"models:/{MODEL}@champion")
        return lambda rows: model.predict(rows, params={"predict_method": "predict_proba"})

    def _serve(
        self, day: int, predict: Callable[[pd.DataFrame], Any], version: str, drift: float
    ) -> tuple[Any, Any]:
        batch = tickets(self.per_day, self.rng, drift=drift)
        p = predict(batch.features)[list(TREE.leaves)].to_numpy()
        begin = BEGIN + timedelta(days=day)
        seconds = np.sort(self.rng.uniform(0, 86_400, self.per_day))
        times = pd.Timestamp(begin) + pd.to_timedelta(seconds, unit="s")
        ids = [f"{day:02d}-{k:05d}" for k in range(self.per_day)]
        log = batch.features.assign(id=ids, time=times, version=version)
        log = pd.concat([log, pd.DataFrame(p, columns=[f"p_{x}" for x in TREE.leaves])], axis=1)
        target = self.folder / "log" / f"day={begin:%Y-%m-%d}"
        target.mkdir(parents=True)
        log.to_parquet(target / "part.parquet", index=False)
        late = pd.to_timedelta(self.rng.uniform(0.5, 20.0, self.per_day), unit="h")
        self._labels.append(pd.DataFrame({"id": ids, "cause": batch.names, "known": times + late}))
        return p, batch.labels

    def _check(self, now: datetime) -> CheckResult:
        from huc_monitor.config.opening import open_monitor

        return open_monitor(self.folder / "huc.yaml").check(now)

    def report(self) -> None:
        """Write the page that shows it all."""
        from huc_monitor.config import load_config
        from huc_monitor.config.opening import open_tracker
        from huc_monitor.reporting import write_report

        records = open_tracker(load_config(self.folder / "huc.yaml")).records()
        write_report(records, self.folder / "report.html", tree=TREE)


def calibration_error(p: Any, codes: Any, n_bins: int = 15) -> float:
    """Return the expected calibration error of the top class, as most dashboards show it."""
    confidence, right = p.max(axis=1), p.argmax(axis=1) == codes
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    gap = np.bincount(bins, right - confidence, minlength=n_bins)
    return float(np.abs(gap).sum() / codes.size)


def _aggregates(when: str, phase: Phase) -> str:
    audits = [found for record in phase.check if (found := record.result)]
    worst = max((found.worst for found in audits), key=lambda one: abs(one.moment))
    return (
        f"{when}, served by version {phase.served_by}: accuracy {phase.accuracy:.1%}, calibration "
        f"error {phase.calibration_error:.3f}, cost of the whole tree off by "
        f"{phase.mean('uc'):.2f} EUR a ticket (UC); by branch, off by up to "
        f"{phase.mean('huc'):.2f} EUR (HUC), at {worst.node!r}."
    )
