"""What both boosters share: fitting along a path of violations, replay, and JSON."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from huc_monitor._common.checks import check_choice, check_count, check_number, check_whole
from huc_monitor._common.row_order import check_row_order
from huc_monitor._common.views import Plotted
from huc_monitor.audit.clusters import check_uneven
from huc_monitor.audit.discovery.discover import Discovery, discover
from huc_monitor.audit.inputs import (
    INTERIOR_MIX,
    Predictions,
    check_labels,
    check_predictions,
    check_subgroups,
    check_utilities,
    check_weights,
)
from huc_monitor.audit.scan import Groups
from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration._estimator import Parametrised
from huc_monitor.recalibration._history import Checks, Recorder, sample_of
from huc_monitor.recalibration._log_loss import label_losses, shares
from huc_monitor.recalibration._pack import CompiledTree, CompiledUtility
from huc_monitor.recalibration._replay import Replayer
from huc_monitor.recalibration._rules import Pick
from huc_monitor.recalibration._saving import Saved
from huc_monitor.recalibration._scalings import (
    Scaling,
    fit_scaling,
    open_validation,
    scaling_from_dict,
)
from huc_monitor.recalibration._updates import Update
from huc_monitor.recalibration._window import BoostWindow
from huc_monitor.recalibration.runtime.stage import mix
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LeafCodes
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats

SCHEMA_VERSION = 1
# Settings of the paper's runs that older files hold; `updates` and `initial` show their effect.
_RETIRED = {"perturbation", "checkpoints"}


@dataclass(kw_only=True, eq=False, repr=False)
class Boost(Parametrised, Saved, Plotted):
    """Settings, fit, replay and JSON of both boosters; a subclass says which violation is next."""

    tree: LabelTree
    utilities: Sequence[Utility] | Utility | None = None
    subgroups: Subgroups | str | None = None
    initial: str | Scaling | None = None
    step: str | float = "adaptive"
    tolerance: float = 1e-3
    max_updates: int | None = None
    selection: str = "auto"
    early_stopping: int | None = None
    interior: float = INTERIOR_MIX
    rng: int = 0
    progress: bool = False

    updates_: list[Update] = field(init=False)
    discovery_: Discovery | None = field(init=False)
    initial_: Scaling | None = field(init=False)
    history_: pd.DataFrame = field(init=False)
    checks_: Checks = field(init=False)
    _ready: Replayer = field(init=False)
    _found: Subgroups = field(init=False)

    _weighs_evidence: ClassVar[bool] = False
    _auto: ClassVar[str] = "uc"

    @abstractmethod
    def _path(self, window: BoostWindow) -> Iterator[tuple[int, Pick]]:
        """Yield violations until none is left; each is corrected before the next is asked for."""

    def _check(self) -> None:
        """Refuse settings that make no sense, before anything is computed."""
        if not isinstance(self.tree, LabelTree) or self.tree.arrays.n_branches == 0:
            msg = f"`tree` must be a LabelTree with at least two leaves; got {self.tree!r}."
            raise InvalidInputError(msg)
        check_utilities(self.utilities, self.tree)
        if isinstance(self.subgroups, str):
            check_choice("subgroups", self.subgroups, ("discover",))
        check_number("interior", self.interior, least=0, below=1)
        check_number("tolerance", self.tolerance, least=0)
        if self.step != "adaptive":
            check_number("step", self.step, above=0, also="'adaptive'")
        check_count("max_updates", self.max_updates)
        check_count("early_stopping", self.early_stopping)
        check_whole("rng", self.rng, least=0)
        check_choice("selection", self.selection, ("auto", "huc", "uc", "log_loss", "last"))

    def fit(
        self,
        probabilities: Any,
        labels: Any,
        *,
        features: Any = None,
        weights: Any = None,
        label_probability: Any = None,
        validation: tuple[Any, ...] | None = None,
    ) -> Self:
        """Correct the violations found on calibration rows.

        Parameters
        ----------
        probabilities : (n, K) array in the order of ``tree.leaves``, or DataFrame with leaf columns
        labels : (n,) labels as in `audit`, at any depth
        features : DataFrame of n rows, optional
            Columns that the subgroups read, or that they are discovered in.
        weights : (n,) non-negative numbers, optional
            How often each row counts: 2 is the row twice. Not together with discovery.
        label_probability : (n,) numbers above 0 and at most 1, optional
            With which each label was chosen, as in `audit`: rows count by the inverse of it, and
            are the evidence of at most as many rows as there are.
        validation : tuple, optional
            (probabilities, labels[, features[, weights[, label_probability]]]): rows that decide
            how many updates are kept, by ``selection``.
        """
        self._check()
        given = {"weights": weights, "label_probability": label_probability}
        check_row_order(probabilities=probabilities, labels=labels, features=features, **given)
        predictions = self._predictions(probabilities, "probabilities")
        codes = check_labels(labels, predictions.n, tree=self.tree)
        given["weights"] = check_weights(weights, predictions.n)
        given["label_probability"] = check_uneven(label_probability, predictions.n)
        held_out = self._held_out(validation)
        if self.early_stopping is not None and held_out is None:
            msg = (
                f"`early_stopping` must come with `validation` rows; got {self.early_stopping} "
                "without. Pass validation=(probabilities, labels), or leave it out."
            )
            raise InvalidInputError(msg)
        self.initial_ = self._fit_initial(predictions, codes, given, held_out)
        self._discover(predictions, codes, features, given)
        compiled = CompiledTree.of(self.tree)
        chosen = [CompiledUtility.of(u, self.tree) for u in self._utilities]
        start = self._replayer([])

        def window(rows: Predictions, y: Any, x: Any, *counts: Any, squares: bool) -> BoostWindow:
            groups = Groups.of(self._groups.memberships(x, rows.n), *counts)
            matrix, mix = start.start(rows)
            return BoostWindow(
                matrix, mix, y, groups, tree=compiled, utilities=chosen, squares=squares
            )

        train = window(predictions, codes, features, *given.values(), squares=self._weighs_evidence)
        held = None if held_out is None else window(*held_out, squares=False)
        wanted = held is not None or self._helps(predictions, codes, features, given)
        self._boost(train, held, wanted=wanted)
        return self

    def _helps(self, predictions: Predictions, codes: Any, features: Any, given: Any) -> bool:
        """Whether updates lower the log loss of rows that neither they nor the scaling have seen.

        A scaling with many parameters fits its own rows too well, and updates that were found on
        the same rows can undo what it gains. So each fold of the scaling's choice is boosted and
        judged by the rows that it left out. Without such a scaling there is nothing to undo.
        """
        scaling = self.initial_
        if not (self._weighs_evidence and isinstance(self.initial, str) and scaling is not None):
            return True
        weights, chance = given["weights"], given["label_probability"]
        weights = np.ones(predictions.n) if weights is None else weights
        share = shares(weights, chance)
        matrix, label = predictions.dense(), self.tree.label_slices(codes)
        asked = {**self.get_params(), "subgroups": self._groups, "progress": False}
        gain = 0.0
        for fitted, part in scaling.fold_fits():
            held = np.zeros(predictions.n)
            held[share > 0] = part
            left = weights * (1.0 - held)
            if not left.any():  # all rows that count are in one fold
                continue
            boost = type(self)(**{**asked, "initial": fitted})
            boost.fit(
                matrix, LeafCodes(codes), features=features, weights=left, label_probability=chance
            )
            if boost.updates_:
                before = fitted.predict_proba(mix(matrix, float(self.interior)))
                after = boost.predict_proba(matrix, features=features)
                losses = label_losses(before, label) - label_losses(after, label)
                gain += float((share * held) @ losses)
        return gain > 0

    def _discover(self, predictions: Predictions, codes: Any, features: Any, given: Any) -> None:
        """Find subgroups nobody named in what the scaling leaves, where they are asked for."""
        self.discovery_, self._found = None, Subgroups.whole()
        if not isinstance(self.subgroups, str):
            return
        if features is None or given["weights"] is not None:
            msg = (
                "`subgroups='discover'` must come with `features` and without `weights`. Or pass "
                "the family of `huc_monitor.discover(...).make_subgroups(features)`."
            )
            raise InvalidInputError(msg)
        matrix, _ = self._replayer([]).start(predictions)
        self.discovery_ = discover(
            matrix,
            LeafCodes(codes),
            tree=self.tree,
            utilities=self._utilities,
            features=features,
            label_probability=given["label_probability"],
            rng=self.rng,
        )
        self._found = self.discovery_.make_subgroups(features)

    def _boost(self, train: BoostWindow, held: BoostWindow | None, *, wanted: bool) -> None:
        fixed = None if self.step == "adaptive" else float(self.step)
        recorder = Recorder(self.tolerance, fixed)
        recorder.start(train, held)
        updates: list[Update] = []
        with _progress(self.progress, type(self).__name__) as advance:
            for number, pick in self._path(train) if wanted else ():
                if self.max_updates is not None and len(updates) >= self.max_updates:
                    break
                updates.append(self._apply(pick, number, train, held, recorder))
                advance(len(updates), recorder.lines[-1]["huc"])
                if self._is_stale(recorder, held):
                    break
        kept = self._n_kept(recorder, held)
        self.updates_ = updates[:kept]
        self.history_ = recorder.frame(kept)
        self.checks_ = recorder.checks()
        self._ready = self._replayer(self.updates_)

    def _apply(
        self,
        pick: Pick,
        number: int,
        train: BoostWindow,
        held: BoostWindow | None,
        recorder: Recorder,
    ) -> Update:
        found = pick.found
        rows, h = train.directions(found)
        curvature = train.curvature(rows, h, found.node)
        if self.step == "adaptive":
            step = found.moment / curvature * pick.share
        else:
            step = float(np.copysign(float(self.step), found.moment)) * pick.share
        some = sample_of(rows)
        before = train.leaf_probabilities(some) if found.node >= 0 else None
        train.apply(rows, h, found.node, step)
        if before is not None:
            recorder.note_locality(before, train.leaf_probabilities(some), train, found.node)
        if held is not None:
            moved, h = held.directions(found)
            held.apply(moved, h, found.node, step)
        update = Update(
            subgroup=self._groups.names[found.subgroup],
            utility=self._utilities[found.utility].name,
            interval_low=found.low,
            interval_high=found.high,
            node=self.tree.branches[found.node] if found.node >= 0 else None,
            step=step,
        )
        recorder.add(
            update,
            pick,
            number=number,
            n_rows=rows.size,
            curvature=curvature,
            train=train,
            validation=held,
        )
        return update

    def _n_kept(self, recorder: Recorder, held: BoostWindow | None) -> int:
        """Length of the best prefix on validation rows; the shortest of equals."""
        lines = recorder.lines
        if held is None or self._measure == "last":
            return len(lines) - 1
        return int(np.argmin([line[f"validation_{self._measure}"] for line in lines]))

    def _is_stale(self, recorder: Recorder, held: BoostWindow | None) -> bool:
        if self.early_stopping is None or held is None:
            return False
        return len(recorder.lines) - 1 - self._n_kept(recorder, held) >= self.early_stopping

    @property
    def _measure(self) -> str:
        return self._auto if self.selection == "auto" else self.selection

    @property
    def _utilities(self) -> tuple[Utility, ...]:
        return check_utilities(self.utilities, self.tree)

    @property
    def _groups(self) -> Subgroups:
        return self._found if isinstance(self.subgroups, str) else check_subgroups(self.subgroups)

    def _predictions(self, probabilities: Any, argument: str) -> Predictions:
        predictions = check_predictions(probabilities, tree=self.tree, argument=argument)
        if predictions.any_zero and not self.interior:
            msg = (
                f"`{argument}` must be positive when `interior` is 0; got a zero. "
                "Keep the default `interior` to mix in a little of the uniform distribution."
            )
            raise InvalidInputError(msg)
        return predictions

    def _held_out(self, validation: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        if validation is None:
            return None
        given, labels, features, weights, chance = open_validation(validation)
        rows = self._predictions(given, "validation[0]")
        codes = check_labels(labels, rows.n, tree=self.tree)
        repeats = check_weights(weights, rows.n)
        return rows, codes, features, repeats, check_uneven(chance, rows.n)

    def _fit_initial(
        self, predictions: Predictions, codes: Any, given: Any, held_out: Any
    ) -> Scaling | None:
        """Fit the scaling that boosting starts from."""
        if self.initial is None or isinstance(self.initial, Scaling):
            return self.initial

        def mixed(rows: Predictions) -> Floats:
            out: Floats = mix(np.asarray(rows.dense(), dtype=np.float64), float(self.interior))
            return out

        validation = None
        if held_out is not None:
            rows, held_codes, _, *counts = held_out
            validation = (mixed(rows), LeafCodes(held_codes), None, *counts)
        return fit_scaling(
            self.initial,
            mixed(predictions),
            LeafCodes(codes),
            tree=self.tree,
            validation=validation,
            **given,
        )

    def _replayer(self, updates: list[Update]) -> Replayer:
        return Replayer(
            updates,
            tree=self.tree,
            utilities=self._utilities,
            subgroups=self._groups,
            initial=self.initial_,
            interior=float(self.interior),
        )

    def predict_proba(self, probabilities: Any, *, features: Any = None) -> Floats:
        """Recalibrate new predictions.

        Parameters
        ----------
        probabilities : (n, K) array in the order of ``tree.leaves``, or DataFrame with leaf columns
        features : DataFrame of n rows or mapping of columns, optional
            Needed when an update concerns a subgroup.

        Returns
        -------
        (n, K) array of positive rows that sum to 1; the input is not modified.
        """
        ready: Replayer | None = getattr(self, "_ready", None)
        if ready is None:
            msg = f"`predict_proba` needs a fitted {type(self).__name__}. Call `fit` first."
            raise InvalidInputError(msg)
        check_row_order(probabilities=probabilities, features=features)
        return ready.run(self._predictions(probabilities, "probabilities"), features)

    def replay_updates(self, probabilities: Floats, weights: Floats) -> Floats:
        """Apply the updates alone, to checked arrays; see `compiled_updates`."""
        return self._ready.update(probabilities, weights)

    def to_dict(self) -> dict[str, Any]:
        """Write the fitted recalibrator as JSON-safe data; floats keep every bit."""
        if getattr(self, "_ready", None) is None:
            msg = f"`to_dict` needs a fitted {type(self).__name__}. Call `fit` first."
            raise InvalidInputError(msg)
        apart = {"tree", "utilities", "subgroups", "initial"}
        return {
            "schema_version": SCHEMA_VERSION,
            "type": type(self).__name__,
            "tree": self.tree.to_dict(),
            "utilities": [u.to_dict() for u in self._utilities],
            "subgroups": self._groups.to_dict(),
            "initial": None if self.initial_ is None else self.initial_.to_dict(),
            "settings": {k: v for k, v in self.plain_params().items() if k not in apart},
            "updates": [update.to_dict() for update in self.updates_],
            "checks": self.checks_.to_dict() if hasattr(self, "checks_") else None,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; the same input gives the same bits, in any process."""
        version = data.get("schema_version") if isinstance(data, Mapping) else None
        if version != SCHEMA_VERSION or data.get("type") != cls.__name__:
            kind = data.get("type") if isinstance(data, Mapping) else type(data).__name__
            msg = (
                f"`data` must be a {cls.__name__} of schema version {SCHEMA_VERSION}; got "
                f"{kind!r}, version {version!r}."
            )
            raise InvalidInputError(msg)
        initial = None if data["initial"] is None else scaling_from_dict(data["initial"])
        settings: dict[str, Any] = {
            **{k: v for k, v in data["settings"].items() if k not in _RETIRED},
            "tree": LabelTree.from_dict(data["tree"]),
            "utilities": [Utility.from_dict(item) for item in data["utilities"]],
            "subgroups": Subgroups.from_dict(data["subgroups"]),
            "initial": initial,
        }
        boost = cls(**settings)
        boost.initial_, boost.discovery_ = initial, None
        if data.get("checks") is not None:
            boost.checks_ = Checks.from_dict(data["checks"])
        boost.updates_ = [Update.from_dict(item) for item in data["updates"]]
        boost._ready = boost._replayer(boost.updates_)
        return boost


@contextmanager
def _progress(wanted: bool, title: str) -> Iterator[Callable[[int, float], None]]:  # noqa: FBT001
    if not wanted or not sys.stderr.isatty():
        yield lambda _count, _huc: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda count, huc: bar.update(
            task, description=f"{title}: {count} updates, HUC {huc:.4f}"
        )
