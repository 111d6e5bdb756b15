"""Compile and keep every kernel, so that nobody waits for it: for container images.

A kernel is compiled the first time it meets arguments of a kind, so each step below does, on a few
made-up rows, what the commands and the API do with real ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from time import perf_counter
from typing import Any

import numpy as np

from huc_monitor.cli.doctor.findings import Diagnosis, in_one_line

_ROWS = 64


def warm(names: Collection[str] | None = None) -> Iterator[Diagnosis]:
    """Do a little of everything, and say how many functions each step compiled or found."""
    for name, step in _steps().items():
        if names is not None and name not in names:
            continue
        before, started = _counts(), perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few made-up rows say nothing
                step()
        except Exception as error:  # noqa: BLE001 - the error is the finding
            yield Diagnosis(f"warm {name}", "wrong", in_one_line(error), "report this as a bug")
            continue
        compiled, found = (after - then for after, then in zip(_counts(), before, strict=True))
        text = f"{compiled} functions compiled, {found} found, {perf_counter() - started:.1f} s"
        yield Diagnosis(f"warm {name}", "ok", text)


def _counts() -> tuple[int, int]:
    """How many functions this process compiled, and how many it read from the cache."""
    found = [item.stats for item in _dispatchers()]
    return (
        sum(sum(stats.cache_misses.values()) for stats in found),
        sum(sum(stats.cache_hits.values()) for stats in found),
    )


def _dispatchers() -> list[Any]:
    from numba.core.dispatcher import Dispatcher

    import huc_monitor._kernels as package

    unique: dict[int, Any] = {}
    for info in iter_modules([str(Path(str(package.__file__)).parent)]):
        module = import_module(f"{package.__name__}.{info.name}")
        items = [item for item in vars(module).values() if isinstance(item, Dispatcher)]
        unique |= {id(item): item for item in items}
    return list(unique.values())


def _steps() -> dict[str, Callable[[], object]]:
    return {
        "audit": _audit,
        "larger than memory": _pieces,
        "compare": _compare,
        "check": _check,
        "recalibrate": _recalibrate,
    }


def _audit() -> None:
    import huc_monitor as hm

    for repeats in (None, np.linspace(0.5, 2.0, _ROWS)):
        given = {**_asked(), "features": _features(), "weights": repeats}
        hm.audit(*_rows(), n_draws=50, **given)
    hm.audit(*_rows(), bounds="sharp", **given)


def _pieces() -> None:
    from huc_monitor.audit.plan import AuditPlan
    from huc_monitor.sources.large import Rows, audit_pieces, compare_pieces

    def read() -> list[Rows]:
        return [Rows(*_rows(), _features())]

    for bounds in ("bootstrap", "sharp"):
        audit_pieces(read, bounds=bounds, n_draws=50, **_asked())
    compare_pieces([read, read], plan=AuditPlan.of(n_draws=50, **_asked()))


def _compare() -> None:
    import huc_monitor as hm

    before, after = _rows(), _rows(seed=1)
    given = {**_asked(), "n_draws": 50}
    hm.compare(before, after, features=(_features(), _features()), **given)
    hm.compare(before, (after[0], before[1]), paired=True, features=_features(), **given)


def _check() -> None:
    import pandas as pd

    import huc_monitor as hm
    from huc_monitor.sources import Columns, FrameTable, TableSource

    asked = _asked()
    tree = asked["tree"]
    at = pd.date_range("2024-01-01", periods=_ROWS, freq="1h", tz="UTC")
    log = pd.DataFrame(_rows()[0], columns=tree.leaves)
    log = log.assign(at=at, label=_rows()[1], group=_features()["group"])
    columns = Columns(time="at", label="label", features=("group",))
    hm.Monitor(
        source=TableSource(FrameTable(log), tree=tree, columns=columns),
        windows=hm.TimeWindows(length="1d", min_labelled=1),
        policy=hm.Policy(audit=hm.AuditOptions(n_draws=50)),
        **asked,
    ).check("2024-01-05T00:00Z")


def _recalibrate() -> None:
    import huc_monitor as hm

    asked = _asked()
    for boost in (hm.HUCBoost(**asked), hm.UCBoost(**asked)):
        boost.fit(*_rows(), features=_features())
        boost.predict_proba(_rows(seed=1)[0], features=_features())


def _asked() -> dict[str, Any]:
    """Return a tree, one utility of every kind that kernels tell apart, and two subgroups."""
    import huc_monitor as hm

    tree = hm.LabelTree.from_nested({"a": ["x", "y"], "b": ["v", "w"]})
    payoffs = {"x": 1.0, "y": -0.5, "v": 0.25, "w": 0.0}
    utilities = [
        hm.LevelCorrectness(level=1),
        hm.GreedyPathCorrectness(level=2),
        hm.SelectiveReport(0.5, 0.25, level=2),
        hm.Payoff("payoff", payoffs),
        hm.ActionPayoff("action", {"wait": payoffs, "act": {"x": -1.0, "w": 1.0}}),
        hm.TopK(2),
        hm.CustomUtility("custom", lambda p: 2 * p**2 - 1),
    ]
    subgroups = hm.Subgroups.from_reference(_features(), {"group": "each"})
    return {"tree": tree, "utilities": utilities, "subgroups": subgroups}


def _rows(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(4), _ROWS), np.array(list("xyvw"))[rng.integers(0, 4, _ROWS)]


def _features() -> dict[str, Any]:
    return {"group": np.resize(["m", "n"], _ROWS)}
