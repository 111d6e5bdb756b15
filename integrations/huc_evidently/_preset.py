"""The preset: what to put into a report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional
from weakref import WeakKeyDictionary

import pandas as pd
from evidently.core.container import MetricContainer
from evidently.tests import lte

from huc_evidently._metrics import SUMMARIES, HUCChange, HUCMoment, HUCSummary
from huc_evidently._widgets import draw, nothing_to_draw
from huc_evidently._window import BOUNDS, Question, WindowAudit
from huc_monitor.audit.forms.spec import PredictionColumns, as_columns
from huc_monitor.audit.inputs import check_subgroups, check_utilities
from huc_monitor.audit.options import DEFAULTS
from huc_monitor.audit.result import AuditResult
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.change import ChangePolicy
from huc_monitor.monitor.tolerance import Tolerance
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility


class HUCPreset(MetricContainer):  # type: ignore[misc]
    """Moments of every node with their bounds, tests on the tolerance, and three pictures.

    A test is made for every utility, subgroup and node; it fails when the lower bound of the
    absolute moment exceeds the tolerance, so a failed test means "above tolerance by more than
    chance", for all tests of a report together at the confidence level. Rows without a label are
    left out; nodes that cannot be tested are left out too.

    Where the reference data have labels, every node is compared with them as well
    (`huc_monitor.compare`, two samples): a test on the lower bound of the absolute change fails
    when the moment changed by more than chance, whatever it was before.

    Parameters
    ----------
    tree : LabelTree
    utilities : list of Utility, with distinct names
    subgroups : Subgroups, optional
        The whole population when left out.
    tolerance : float or Tolerance, default 0.02
        A relative one needs reference data with labels.
    min_change : float or None, default 0
        Smaller changes since the reference data pass their tests; None: no comparison.
    target : str, default "target"
        Column of the label.
    probabilities : str, dict or PredictionColumns, default "{leaf}"
        Columns of the probabilities: a pattern, leaf to column, or columns of any other form.
    bounds, confidence_level, n_draws, rng
        As in `huc_monitor.audit`; `bounds` must not be None.
    name : str, optional
        Tells apart several presets in one report.
    include_tests : bool, default True

    Examples
    --------
    >>> import pandas as pd, huc_monitor as hm
    >>> from evidently import Report
    >>> tree = hm.LabelTree.from_nested({"ward": ["worse", "stable"], "home": None})
    >>> day = pd.DataFrame({"worse": [0.2] * 900, "stable": 0.3, "home": 0.5})
    >>> day["target"] = ["worse"] * 450 + ["home"] * 450
    >>> preset = HUCPreset(tree=tree, utilities=[hm.Payoff("risk", {"worse": -1})])
    >>> run = Report([preset]).run(day)
    >>> [test.name for test in run.tests_results if test.status.name == "FAIL"]
    ['ward (risk, all): lower bound of the moment: Less or Equal 0.020']
    """

    key: str
    name: Optional[str] = None  # noqa: UP045 - read by pydantic at run time
    _question: Any = None
    _min_change: Any = None
    _kept: Any = None
    _compared: Any = None

    def __init__(
        self,
        *,
        tree: LabelTree,
        utilities: Sequence[Utility] | Utility,
        subgroups: Subgroups | None = None,
        tolerance: Tolerance | float = Tolerance(),  # noqa: B008 - frozen
        min_change: float | None = ChangePolicy().min_change,
        target: str = "target",
        probabilities: PredictionColumns | str | Mapping[str, str] = "{leaf}",
        bounds: str | None = DEFAULTS.bounds,
        confidence_level: float = DEFAULTS.confidence_level,
        n_draws: int = DEFAULTS.n_draws,
        rng: int = DEFAULTS.rng,
        name: str | None = None,
        include_tests: bool = True,
    ) -> None:
        if bounds is None:
            msg = "`bounds` must be a method: tests are made on bounds. Leave it out."
            raise InvalidInputError(msg)
        chosen = check_utilities(utilities)
        groups = check_subgroups(subgroups)
        allowed = tolerance if isinstance(tolerance, Tolerance) else Tolerance(value=tolerance)
        allowed.values(tree, chosen, groups)  # its names are checked here
        options = {
            "bounds": bounds,
            "confidence_level": confidence_level,
            "n_draws": n_draws,
            "rng": rng,
        }
        if min_change is not None and not min_change >= 0:
            msg = f"`min_change` must be a number of at least 0, or None; got {min_change!r}."
            raise InvalidInputError(msg)
        self._min_change = min_change
        where = as_columns(probabilities)
        self._question = Question(tree, chosen, groups, allowed, target, where, options)
        self._kept = WeakKeyDictionary()
        self._compared = WeakKeyDictionary()
        content = [
            tree.fingerprint,
            [utility.to_dict() for utility in chosen],
            groups.to_dict(),
            allowed.to_dict(),
            options,
            *([] if min_change == ChangePolicy().min_change else [min_change]),
        ]
        plain = json.dumps(content, sort_keys=True, default=str)
        key = hashlib.sha256(plain.encode()).hexdigest()[:16]
        super().__init__(include_tests=include_tests, key=key, name=name)

    def generate_metrics(self, context: Any) -> Sequence[Any]:
        """Audit the data once, and make a metric per utility, subgroup and bound."""
        audits = self._audits(context)
        if audits is None:
            return []
        current, _ = audits
        metrics: list[Any] = [
            HUCSummary(quantity=quantity, preset=self.name, tests=[], audits=audits)
            for quantity in SUMMARIES
        ]
        for utility in self._question.utilities:
            for subgroup in self._question.subgroups.names:
                place = {"utility": utility.name, "subgroup": subgroup}
                allowed = current.values(**place, name="tolerance")
                changed = dict.fromkeys(current.changes(**place, bound="lower"), self._min_change)
                for kind, limits in ((HUCMoment, allowed), (HUCChange, changed)):
                    tests = {label: [lte(float(value))] for label, value in limits.items()}
                    metrics += [
                        kind(
                            **place,
                            bound=bound,
                            preset=self.name,
                            tests=tests if self.include_tests and bound == "lower" else {},
                            audits=audits,
                        )
                        for bound in (BOUNDS if limits else ())
                    ]
        return metrics

    def render(self, context: Any, child_widgets: Any = None) -> list[Any]:  # noqa: ARG002
        """Draw all metrics together: the tree, the worst moments, and a table."""
        audits = self._audits(context)
        return nothing_to_draw() if audits is None else draw(*audits, name=self.name)

    def _audits(self, context: Any) -> tuple[WindowAudit, WindowAudit | None] | None:
        """Return the audits of the current data and the reference; None if there is no label."""
        current, reference = context._input_data  # noqa: SLF001 - there is no other way to it
        tolerance = self._question.tolerance
        before = None
        if reference is not None and self._question.has_answer(reference.as_dataframe()):
            before = self._audit(reference)
        after = self._audit(current)
        if after is None:
            return None
        if before is None:
            return WindowAudit.of(after, tolerance, None), None
        change = self._change(reference, current)
        return WindowAudit.of(after, tolerance, before, change), WindowAudit.of(
            before, tolerance, before
        )

    def _change(self, reference: Any, current: Any) -> pd.DataFrame | None:
        """Compare two data sets once, however many metrics ask."""
        if self._min_change is None:
            return None
        kept = self._compared.setdefault(current, WeakKeyDictionary())
        if reference not in kept:
            frames = reference.as_dataframe(), current.as_dataframe()
            kept[reference] = self._question.compare(*frames)
        found: pd.DataFrame = kept[reference]
        return found

    def _audit(self, data: Any) -> AuditResult | None:
        """Audit a data set once, however many metrics and reports ask."""
        if data not in self._kept:
            self._kept[data] = self._question.ask(data.as_dataframe())
        found: AuditResult | None = self._kept[data]
        return found
