"""A log of six intents in three branches, overconfident from the start, with a fault on demand."""

from __future__ import annotations

import numpy as np
import pandas as pd

import huc_monitor as hm
from huc_monitor.monitor import Monitor
from huc_monitor.monitor.policy import Policy
from huc_monitor.monitor.windows import TimeWindows
from huc_monitor.sources import Columns, FrameTable, TableSource

NESTED = {
    "billing": ["refund", "chargeback"],
    "access": ["login", "password"],
    "product": ["crash", "feature"],
}
TREE = hm.LabelTree.from_nested(NESTED)
FIRST = pd.Timestamp("2026-09-01", tz="UTC")
FAULTS = ("app", "everywhere", "opposite", "root")


def day(k: float):
    return (FIRST + pd.Timedelta(days=k)).to_pydatetime()


def make_intents(
    *,
    days: int = 10,
    per_day: int = 2000,
    fault: str | None = None,
    fault_from: int = 7,
    overconfident: float = 1.6,
    seed: int = 0,
) -> pd.DataFrame:
    """Make rows whose predictions are sharper than the truth.

    Faults: "app" swaps refund and chargeback in half of the rows of channel=app; "everywhere" makes
    half of all labels random; "opposite" turns most login labels into password, and makes product's
    labels follow the likeliest of the two; "root" moves a fifth of the labels to the next branch;
    "new" are labels of feature, which has no mass and never happened before.
    """
    rng = np.random.default_rng(seed)
    n = days * per_day
    logits = 1.4 * rng.standard_normal((n, 6))
    truth, told = (np.exp(c * logits) for c in (1.0, overconfident))
    truth, told = truth / truth.sum(axis=1, keepdims=True), told / told.sum(axis=1, keepdims=True)
    label = (truth.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=5)
    channel = rng.choice(["app", "web", "mail"], size=n, p=[0.3, 0.5, 0.2])
    region = rng.choice(["eu", "us"], size=n)
    late = np.arange(n) >= fault_from * per_day
    hit = rng.random(n)
    if fault == "app":
        swapped = late & (channel == "app") & (label < 2) & (hit < 0.6)
        label = np.where(swapped, 1 - label, label)
    elif fault == "everywhere":
        label = np.where(late & (hit < 0.5), rng.integers(0, 6, n), label)
    elif fault == "opposite":
        label = np.where(late & (label == 2) & (hit < 0.7), 3, label)
        likeliest = 4 + (logits[:, 5] > logits[:, 4])
        label = np.where(late & (label >= 4), likeliest, label)
    elif fault == "root":
        label = np.where(late & (hit < 0.2), (label + 2) % 6, label)
    elif fault == "new":
        label = np.where(label == 5, 4, label)
        label = np.where(late & (hit < 0.02), 5, label)
        told[:, 4], told[:, 5] = told[:, 4] + told[:, 5], 0.0
    frame = pd.DataFrame(told, columns=list(TREE.leaves))
    frame["at"] = FIRST + pd.to_timedelta(np.arange(n) * 86400.0 / per_day, unit="s")
    frame["channel"], frame["region"] = channel, region
    frame["y"] = np.array(TREE.leaves)[label]
    return frame


def watch_intents(log: pd.DataFrame, **more) -> Monitor:
    """Watch it as `init` would: three reference days, alerts by change."""
    policy = {
        "tolerance": 0.02,
        "audit": {"n_draws": 200},
        "change": {"alerts": "change"},
        **more.pop("policy", {}),
    }
    columns = Columns(time="at", label="y", features=("channel", "region"))
    return Monitor(
        source=TableSource(FrameTable(log), tree=TREE, columns=columns),
        windows=TimeWindows(length="1d"),
        tree=TREE,
        utilities=[hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2)],
        subgroups=lambda rows: hm.Subgroups.from_reference(
            rows, {"channel": "each", "region": "each"}
        ),
        reference=(day(0), day(3)),
        policy=Policy(**policy),
        **more,
    )
