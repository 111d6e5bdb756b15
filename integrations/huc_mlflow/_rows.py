"""Labelled rows as the root base model predicted them: what every recalibration is fitted to.

A log holds what was served. Once a recalibrated version serves, that is no longer what the base
said, and a recalibration fitted to it would be stacked on the first. The base's probabilities come
from where they are certain to be its own:

1. the columns `columns.base_probabilities` of the log, where the configuration names them;
2. the logged probabilities, where the base itself made all predictions of the range;
3. the base model, which scores the logged features.

Without any of these there is no honest recalibration, and `NoBaseProbabilitiesError` says so.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

import mlflow.pyfunc
import numpy as np

from huc_mlflow._bases import describe, fetch
from huc_mlflow._registry import BASE_TAG, ID_TAG, PREVIOUS_TAG, Registry
from huc_monitor._common.times import say_span
from huc_monitor.audit.sparse_rows import as_dense
from huc_monitor.config import Config
from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration.runtime.base import Base
from huc_monitor.recalibration.runtime.stage import Stage, choose_engine
from huc_monitor.sources import WindowData

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion


class NoBaseProbabilitiesError(InvalidInputError):
    """Nothing says what the root base model predicted for some rows."""


class RowReader:
    """Reads rows of a monitor's log, and replays versions on them.

    Parameters
    ----------
    config : Config
    registry : Registry
    """

    def __init__(self, config: Config, registry: Registry) -> None:
        self._config = config
        self._registry = registry
        self._stages: dict[str, list[Stage]] = {}
        self._loaded: dict[str, tuple[Base, dict[str, Any]]] = {}

    @property
    def classes(self) -> tuple[str, ...] | None:
        """What the base's probability columns are, where the configuration says."""
        given = self._config.settings.tracker.options().get("classes")
        return None if given is None else tuple(given)

    def read(
        self,
        base: ModelVersion,
        start: datetime,
        end: datetime,
        *,
        versions: Sequence[ModelVersion] = (),
        as_of: datetime | None = None,
    ) -> WindowData:
        """Read labelled rows, with the columns that the subgroups of some versions need too."""
        needed = [name for version in versions for name in self._columns(version)]
        wanted = list(dict.fromkeys([*self._config.feature_columns, *needed]))
        if self._config.settings.columns.base_probabilities is not None:
            source = self._config.open_source(features=wanted, base=True)
            data = source.labelled(start, end, as_of=as_of)
            if data.n:
                return data
        data = self._config.open_source(features=wanted).labelled(start, end, as_of=as_of)
        if self._is_by(base, data):
            return data
        return self._scored(base, data, wanted, as_of)

    def check_base(self, base: ModelVersion) -> str:
        """Refuse a base whose classes are not leaves of the tree; name the leaves it lacks.

        Raises
        ------
        InvalidInputError
            Before anything is fitted: what was fitted could not be saved with this base.
        """
        _, found = self._base(base)
        count = found["n_base_classes"]
        text = f"version {base.version} gives probabilities of {count} classes"
        lacking = found["classes"][count:]
        if not lacking:
            return text
        names = ", ".join(map(repr, lacking[:3])) + (", ..." if len(lacking) > 3 else "")
        return f"{text}; it does not know {names}, whose probability counts as 0"

    def replay(self, version: ModelVersion, rows: WindowData) -> Any:
        """Recompute what a version would have answered: its stages on the base's probabilities.

        Leaves that the version's tree did not have are 0, before and after.
        """
        p = np.ascontiguousarray(as_dense(rows.probabilities), dtype=np.float64)
        for stage in self._stages_of(version):
            known = [self._config.tree.leaf_index(leaf) for leaf in stage.tree.leaves]
            out = np.zeros_like(p)
            out[:, known] = stage.apply(p[:, known], rows.features)
            p = out
        return p

    def _is_by(self, base: ModelVersion, data: WindowData) -> bool:
        """Say whether the base made all these predictions."""
        known = set(data.versions)
        if known - {str(base.version), ""}:
            return False
        if known and "" not in known:
            return True
        # The log does not say who answered: the base, if no recalibration was ever champion.
        current = self._registry.current()
        made = self._registry.versions(f"tags.`{BASE_TAG}` = '{base.version}'")
        promoted = any(PREVIOUS_TAG in version.tags for version in made if ID_TAG in version.tags)
        return not promoted and BASE_TAG not in current.tags

    def _scored(
        self, base: ModelVersion, data: WindowData, wanted: list[str], as_of: datetime | None
    ) -> WindowData:
        """Score logged features with the base: other versions' probabilities are not its own."""
        model, found = self._base(base)
        columns = found["base_columns"]
        there = self._config.open_source(features=()).log.columns()
        absent = None if columns is None else [name for name in columns if name not in there]
        if columns is None or absent:
            raise NoBaseProbabilitiesError(self._nothing(base, data, absent))
        source = self._config.open_source(features=list(dict.fromkeys([*columns, *wanted])))
        rows = source.labelled(data.start, data.end, as_of=as_of)
        return replace(rows, probabilities=model.probabilities(model.answer(rows.features)))

    def _nothing(self, base: ModelVersion, data: WindowData, absent: list[str] | None) -> str:
        others = sorted(set(data.versions) - {str(base.version), ""})
        who = f"by version {', '.join(others)}" if others else "perhaps by a recalibrated version"
        span = say_span(data.start, data.end, self._config.windows.time_zone, exact=True)
        why = "the base does not say which columns it reads"
        if absent:
            why = f"the log lacks {', '.join(map(repr, absent[:5]))}, which the base reads"
        return (
            f"`columns.base_probabilities` must say where the log holds the probabilities of the "
            f"base, version {base.version}: rows from {span} were served {who}, and they cannot be "
            f"scored, because {why}. Log the base's probabilities or its features."
        )

    def _columns(self, version: ModelVersion) -> list[str]:
        return [name for stage in self._stages_of(version) for name in stage.rules.columns]

    def _stages_of(self, version: ModelVersion) -> list[Stage]:
        number = str(version.version)
        if BASE_TAG not in version.tags:
            return []
        if number not in self._stages:
            with self._registry.active(), TemporaryDirectory() as folder:
                found = fetch(self._registry.uri(version), Path(folder))
            leaves = self._config.tree.leaves
            for data in found.stages:
                gone = [leaf for leaf in data["tree"]["leaves"] if leaf not in leaves]
                if gone:
                    msg = (
                        f"`tree` must have the leaves of version {number}, which serves; "
                        f"{gone[0]!r} is missing. Promote the base or a version of the new tree: "
                        f"huc-monitor promote --version {version.tags[BASE_TAG]}."
                    )
                    raise InvalidInputError(msg)
            self._stages[number] = [Stage(data) for data in found.stages]
            choose_engine(self._stages[number])
        return self._stages[number]

    def _base(self, version: ModelVersion) -> tuple[Base, dict[str, Any]]:
        number = str(version.version)
        if number not in self._loaded:
            folder = mkdtemp()  # kept while this is in use: a model may read its files when asked
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            with self._registry.active():
                model = fetch(self._registry.uri(version), Path(folder))
                found = describe(model, self._config.tree, self.classes, None)
                self._loaded[number] = (
                    Base(mlflow.pyfunc.load_model(str(model.folder)), found),
                    found,
                )
        return self._loaded[number]
