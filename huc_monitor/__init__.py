"""Monitor and repair the utility calibration of hierarchical multiclass classifiers.

Names are loaded on first use, so that ``import huc_monitor`` costs little more than
numpy and pandas: compiled kernels, scipy and the command line load only when called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huc_monitor.audit import AuditResult, audit
    from huc_monitor.audit.decomposition import UtilityRows, decompose
    from huc_monitor.config.opening import open_monitor
    from huc_monitor.detection import EDetector, EDetectorStep
    from huc_monitor.errors import (
        HUCError,
        InvalidInputError,
        InvalidTreeError,
        MissingExtraError,
        UnknownNameError,
    )
    from huc_monitor.monitor import CheckResult, Monitor
    from huc_monitor.monitor.alerts import AlertPolicy
    from huc_monitor.monitor.drift import DriftPolicy
    from huc_monitor.monitor.records import WindowRecord
    from huc_monitor.monitor.retraining import RetrainingPolicy
    from huc_monitor.monitor.tolerance import Tolerance, ToleranceRule
    from huc_monitor.monitor.windows import CountWindows, TimeWindows
    from huc_monitor.planning import (
        AlarmDelay,
        InitialModel,
        detectable_size,
        labels_needed,
        n_star,
        pilot_candidates,
        simulate_alarm,
    )
    from huc_monitor.recalibration import (
        DirichletScaling,
        HUCBoost,
        HUCCalibratedClassifier,
        TemperatureScaling,
        UCBoost,
        Update,
        VectorScaling,
    )
    from huc_monitor.reporting import draw_pictures, write_report
    from huc_monitor.subgroups import Subgroups
    from huc_monitor.tree import LabelTree
    from huc_monitor.utilities import (
        ActionPayoff,
        BinaryAction,
        CustomUtility,
        GreedyPathCorrectness,
        LevelCorrectness,
        Payoff,
        RankPayoff,
        SelectiveReport,
        SubtreeIndicator,
        TopK,
        Utility,
    )

__version__ = "0.1.0"

__all__ = [
    "ActionPayoff",
    "AlarmDelay",
    "AlertPolicy",
    "AuditResult",
    "BinaryAction",
    "CheckResult",
    "CountWindows",
    "CustomUtility",
    "DirichletScaling",
    "DriftPolicy",
    "EDetector",
    "EDetectorStep",
    "GreedyPathCorrectness",
    "HUCBoost",
    "HUCCalibratedClassifier",
    "HUCError",
    "InitialModel",
    "InvalidInputError",
    "InvalidTreeError",
    "LabelTree",
    "LevelCorrectness",
    "MissingExtraError",
    "Monitor",
    "Payoff",
    "RankPayoff",
    "RetrainingPolicy",
    "SelectiveReport",
    "Subgroups",
    "SubtreeIndicator",
    "TemperatureScaling",
    "TimeWindows",
    "Tolerance",
    "ToleranceRule",
    "TopK",
    "UCBoost",
    "UnknownNameError",
    "Update",
    "Utility",
    "UtilityRows",
    "VectorScaling",
    "WindowRecord",
    "__version__",
    "audit",
    "decompose",
    "detectable_size",
    "draw_pictures",
    "labels_needed",
    "n_star",
    "open_monitor",
    "pilot_candidates",
    "simulate_alarm",
    "write_report",
]

_HOME = {
    "ActionPayoff": "utilities",
    "AlarmDelay": "planning",
    "AlertPolicy": "monitor.alerts",
    "AuditResult": "audit",
    "BinaryAction": "utilities",
    "CheckResult": "monitor",
    "CountWindows": "monitor.windows",
    "CustomUtility": "utilities",
    "DirichletScaling": "recalibration",
    "DriftPolicy": "monitor.drift",
    "EDetector": "detection",
    "EDetectorStep": "detection",
    "GreedyPathCorrectness": "utilities",
    "HUCBoost": "recalibration",
    "HUCCalibratedClassifier": "recalibration",
    "HUCError": "errors",
    "InitialModel": "planning",
    "InvalidInputError": "errors",
    "InvalidTreeError": "errors",
    "LabelTree": "tree",
    "LevelCorrectness": "utilities",
    "MissingExtraError": "errors",
    "Monitor": "monitor",
    "Payoff": "utilities",
    "RankPayoff": "utilities",
    "RetrainingPolicy": "monitor.retraining",
    "SelectiveReport": "utilities",
    "Subgroups": "subgroups",
    "SubtreeIndicator": "utilities",
    "TemperatureScaling": "recalibration",
    "TimeWindows": "monitor.windows",
    "Tolerance": "monitor.tolerance",
    "ToleranceRule": "monitor.tolerance",
    "TopK": "utilities",
    "UCBoost": "recalibration",
    "UnknownNameError": "errors",
    "Update": "recalibration",
    "Utility": "utilities",
    "UtilityRows": "audit.decomposition",
    "VectorScaling": "recalibration",
    "WindowRecord": "monitor.records",
    "audit": "audit",
    "decompose": "audit.decomposition",
    "detectable_size": "planning",
    "draw_pictures": "reporting",
    "labels_needed": "planning",
    "n_star": "planning",
    "open_monitor": "config.opening",
    "pilot_candidates": "planning",
    "simulate_alarm": "planning",
    "write_report": "reporting",
}


class _Package(ModuleType):
    """The package, in which a function may share its module's name.

    Importing ``huc_monitor.audit`` makes Python bind the submodule to the package, over the
    public function ``huc_monitor.audit``. Refusing that one binding keeps the function, whatever
    was imported first; the submodule stays reachable by ``from huc_monitor.audit import ...``.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in _HOME):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, ...]:
        # Functions that mention the package travel to worker processes, which import it by name.
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package


if not TYPE_CHECKING:  # a type checker sees the imports above, and reports names that are not there

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
