"""A made-up help desk whose errors cancel: the data behind ``huc-monitor demo``.

Tickets are routed by a classifier over a small tree of causes, and each cause has a handling
cost. On the day of the drift, app users who cannot log in are locked out far more often than
before, which is dear; and their outages turn out milder, which saves just as much, ticket by
ticket. Mean cost, accuracy and calibration error stay as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Payoff
from huc_monitor.utilities.program import Floats, Ints

TREE = LabelTree.from_nested(
    {
        "technical": {"login": ["password_reset", "lockout"], "outage": ["slow", "down"]},
        "billing": {"payment": ["refund", "card_declined"], "invoice": None},
    },
    root="ticket",
)
COSTS = {
    "password_reset": -4.0,
    "lockout": -34.0,
    "slow": -5.0,
    "down": -40.0,
    "refund": -9.0,
    "card_declined": -6.0,
    "invoice": -3.0,
}
UTILITY = Payoff("handling_cost", COSTS, units="EUR", scale=40.0)
CHANNELS = ("web", "app", "phone")
FEATURES = [f"x{j}" for j in range(6)] + ["channel"]

# Which way each feature pushes each branch, and how often the branch is taken on average.
_BRANCHES = ("billing", "outage", "lockout", "down", "invoice", "card_declined")
_PUSH = np.random.default_rng(1).normal(size=(6, 6)) * np.array([0.9, 0.55, 0.8, 0.65, 0.9, 0.9])
_BASE = np.array([-0.8, 0.2, -0.9, 0.6, -0.3, 0.0])
_UTILITY_OF_LEAF = np.array([COSTS[leaf] for leaf in TREE.leaves]) / UTILITY.scale


@dataclass(frozen=True, slots=True)
class Tickets:
    """Features of a batch of tickets and what they turned out to be."""

    features: pd.DataFrame
    labels: Ints

    @property
    def names(self) -> Any:
        """Leaf names of the labels."""
        return np.array(TREE.leaves)[self.labels]


def tickets(n: int, rng: np.random.Generator, *, drift: float = 0.0) -> Tickets:
    """Draw tickets; ``drift`` is the logit by which lockouts of app users rise."""
    x = rng.normal(size=(n, len(_BRANCHES)))
    channel = rng.choice(CHANNELS, n, p=[0.45, 0.35, 0.2])
    features = pd.DataFrame(x, columns=FEATURES[:-1]).assign(channel=channel)
    truth = _leaves(_drifted(_branches(x), channel == "app", drift))
    draws = rng.random((n, 1)) > np.cumsum(truth, axis=1)
    return Tickets(features, np.minimum(draws.sum(axis=1), TREE.n_leaves - 1))


def _branches(x: Floats) -> dict[str, Floats]:
    chance = 1.0 / (1.0 + np.exp(-(x @ _PUSH + _BASE)))
    return dict(zip(_BRANCHES, chance.T, strict=True))


def _leaves(q: dict[str, Floats]) -> Floats:
    technical, billing = 1.0 - q["billing"], q["billing"]
    login, outage = technical * (1.0 - q["outage"]), technical * q["outage"]
    payment = billing * (1.0 - q["invoice"])
    return np.stack(
        [
            login * (1.0 - q["lockout"]),
            login * q["lockout"],
            outage * (1.0 - q["down"]),
            outage * q["down"],
            payment * (1.0 - q["card_declined"]),
            payment * q["card_declined"],
            billing * q["invoice"],
        ],
        axis=1,
    )


def _drifted(q: dict[str, Floats], app: Any, drift: float) -> dict[str, Floats]:
    """More lockouts among app users, and just as much saved on their outages, row by row."""
    if drift == 0.0:
        return q
    before = _leaves(q) @ _UTILITY_OF_LEAF
    odds = q["lockout"] / (1.0 - q["lockout"]) * np.exp(drift)
    moved = q | {"lockout": np.where(app, odds / (1.0 + odds), q["lockout"])}
    never = _leaves(moved | {"down": np.zeros(app.size)}) @ _UTILITY_OF_LEAF
    always = _leaves(moved | {"down": np.ones(app.size)}) @ _UTILITY_OF_LEAF
    level = np.clip((before - never) / (always - never), 0.02, 0.98)
    return moved | {"down": np.where(app, level, q["down"])}


def train_router(rng: np.random.Generator, n: int = 30_000) -> Any:
    """Fit a real classifier on tickets from before the drift; its classes are the leaves."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    past = tickets(n, rng)
    columns = make_column_transformer(
        (StandardScaler(), FEATURES[:-1]), (OneHotEncoder(), ["channel"])
    )
    return make_pipeline(columns, LogisticRegression(max_iter=500)).fit(past.features, past.names)
