"""The utility families: what a prediction is worth once the label is known."""

from __future__ import annotations

from huc_monitor.utilities._base import Utility
from huc_monitor.utilities._custom import CustomUtility
from huc_monitor.utilities._payoffs import ActionPayoff, BinaryAction, Payoff, SubtreeIndicator
from huc_monitor.utilities._ranks import RankPayoff, TopK
from huc_monitor.utilities._reports import (
    GreedyPathCorrectness,
    LevelCorrectness,
    SelectiveReport,
    correct_at_every_level,
)

__all__ = [
    "ActionPayoff",
    "BinaryAction",
    "CustomUtility",
    "GreedyPathCorrectness",
    "LevelCorrectness",
    "Payoff",
    "RankPayoff",
    "SelectiveReport",
    "SubtreeIndicator",
    "TopK",
    "Utility",
    "correct_at_every_level",
]
