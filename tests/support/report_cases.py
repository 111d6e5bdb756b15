"""Records and audits for tests of the report: small, made without an audit, with any names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

import huc_monitor as hm
from huc_monitor.audit.curves import reliability_curve
from huc_monitor.audit.scan import Groups
from huc_monitor.monitor.records import AlertState, AlertTransition, DriftFinding, WindowRecord

DAY = datetime(2024, 3, 1, tzinfo=UTC)
NASTY = (
    "<script>alert(1)</script>",
    '"; DROP TABLE windows; --',
    "</script><!-- <b>&amp;",
    "'><img src=x onerror=alert(2)>",
    "${x} {{y}} `z` \\u003c &lt;",
)


def small_tree(names: tuple[str, ...] = ("cat", "dog")) -> hm.LabelTree:
    """A root over two nodes with two leaves each, of which names may be given."""
    first, second = names
    return hm.LabelTree.from_parents(
        {
            first: "animals",
            second: "animals",
            "leaf 1": first,
            "leaf 2": first,
            "leaf 3": second,
            "leaf 4": second,
        }
    )


def candidate(**given: Any) -> dict[str, Any]:
    """One row of an audit's candidates."""
    moment = given.get("moment", 0.01)
    radius = given.pop("radius", 0.005)
    row = {
        "utility": "top1",
        "subgroup": "all",
        "moment": moment,
        "lower": max(0.0, abs(moment) - radius),
        "upper": abs(moment) + radius,
        "radius": radius,
        "interval_low": 0.25,
        "interval_high": 0.75,
        "n_in_interval": 500.0,
        "n_in_subgroup": 1000.0,
        "moment_in_subgroup": moment,
        "on_uc_interval": moment,
        "on_worst_interval": moment,
        "moment_in_units": moment,
        "units": None,
    }
    return row | given


def audit_dict(candidates: list[dict[str, Any]], tree: hm.LabelTree) -> dict[str, Any]:
    """An AuditResult's to_dict() with these candidates."""
    sizes = [abs(row["moment"]) for row in candidates]
    pairs = dict.fromkeys((row["utility"], row["subgroup"]) for row in candidates)
    return {
        "schema_version": 1,
        "n": 1000.0,
        "huc": max(sizes, default=0.0),
        "huc_lower": max((row["lower"] for row in candidates), default=0.0),
        "huc_upper": max((row["upper"] for row in candidates), default=0.0),
        "uc": 0.001,
        "method": "bootstrap",
        "confidence_level": 0.95,
        "n_draws": 1000,
        "interiorized": False,
        "tree": tree.fingerprint,
        "candidates": candidates,
        "totals": [
            {
                "utility": u,
                "subgroup": c,
                "moment": 0.001,
                "interval_low": 0.1,
                "interval_high": 0.9,
                "n_in_interval": 800.0,
            }
            for u, c in pairs
        ],
    }


def record(ordinal: int, audit: dict[str, Any] | None, **given: Any) -> WindowRecord:
    """One day's record; 0.02 is tolerated."""
    start = DAY + timedelta(days=ordinal - 1)
    rows = [] if audit is None else audit["candidates"]
    values: dict[str, Any] = {
        "monitor": "pets",
        "identity": "5f1c33aa90b2c1d0",
        "window_id": f"w{ordinal:03d}",
        "ordinal": ordinal,
        "start": start,
        "end": start + timedelta(days=1),
        "due_at": start + timedelta(days=2),
        "status": "thin" if audit is None else "audited",
        "reason": "few labels" if audit is None else None,
        "n_predictions": 1100,
        "n_labelled": 1000,
        "coverage": 1000 / 1100,
        "audit": audit,
        "tolerances": (0.02,) * len(rows),
        "levels": tuple(_level(row) for row in rows),
    }
    return WindowRecord(**(values | given))


def _level(row: dict[str, Any]) -> str | None:
    if row["lower"] > 0.02:
        return "critical"
    return "warning" if abs(row["moment"]) > 0.02 else None


def alert(record_: WindowRecord, row: dict[str, Any], level: str) -> dict[str, Any]:
    """The alert state and transition of one candidate, as fields of a record."""
    names = {key: row[key] for key in ("utility", "subgroup", "node")}
    state = AlertState(
        **names,
        level=level,
        first_seen=record_.start,
        last_seen=record_.end,
        first_ordinal=record_.ordinal,
        last_ordinal=record_.ordinal,
        n_windows=1,
    )
    step = AlertTransition(
        **names,
        kind="opened",
        level=level,
        announced=True,
        moment=row["moment"],
        lower=row["lower"],
        upper=row["upper"],
        tolerance=0.02,
        interval_low=0.25,
        interval_high=0.75,
        units=None,
        scale=1.0,
        reasons=("bound",),
        uc=0.001,
        cancels_node=None,
        cancels_moment=None,
        first_seen=record_.start,
        n_windows=1,
        hints=(f"Of the cases under *{row['node']}*, more than predicted ended well.",),
        window_id=record_.window_id,
        window_end=record_.end,
    )
    return {"alerts": (state,), "transitions": (step,)}


def story(names: tuple[str, ...] = ("cat", "dog"), *, subgroup: str = "fur=long") -> Any:
    """A tree and the records of four days: calm, not audited, a warning, and critical."""
    tree = small_tree(names)
    first, second = names
    records = []
    for ordinal, moment in enumerate((0.004, None, -0.022, -0.04), start=1):
        if moment is None:
            records.append(record(ordinal, None))
            continue
        rows = [
            candidate(node="animals", moment=-0.7 * moment),
            candidate(node=first, moment=moment),
            candidate(node=second, moment=0.001),
            candidate(node=first, moment=moment / 2, subgroup=subgroup, utility="top2"),
        ]
        shares = {"leaf 1": {"predicted": 0.5, "observed": 0.4}}
        shares["leaf 2"] = {"predicted": 0.5, "observed": 0.6}
        new = record(ordinal, audit_dict(rows, tree), frequencies={first: shares})
        level = new.levels[1]
        if level is not None:
            found = alert(new, rows[1], level)
            new = record(ordinal, audit_dict(rows, tree), frequencies={first: shares}, **found)
        records.append(new)
    moved = DriftFinding(kind="branch", name=first, distance=0.2, lower=0.1, drifted=True)
    records.append(record(5, None, status="pending", reason=None, drift=(moved,)))
    return tree, records


def seeded_audit() -> dict[str, Any]:
    """A real audit of 500 rows, with its curve, as arguments of a report."""
    rng = np.random.default_rng(20240301)
    tree = hm.LabelTree.from_nested(
        {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}, "died": None}
    )
    # Sixteenths keep every sum exact, so that no platform rounds differently.
    cuts = np.sort(rng.integers(1, 60, size=(500, 4)), axis=1)
    parts = np.diff(np.concatenate([np.zeros((500, 1)), cuts, np.full((500, 1), 64)], axis=1)) / 64
    labels = (parts.cumsum(axis=1) < rng.random((500, 1))).sum(axis=1)
    labels[(labels == 0) & (parts[:, 0] < 0.5)] = 3
    utilities = [hm.LevelCorrectness(level=1), hm.TopK(2)]
    result = hm.audit(parts, labels, tree=tree, utilities=utilities, bounds="theorem")
    rows = hm.decompose(parts, labels, tree=tree, utilities=utilities)
    groups = Groups.of(result.subgroups.weights(None, 500), None)
    curve = reliability_curve(rows, groups, result.worst, subgroups=result.subgroups)
    return {"source": result, "curve": curve, "tolerance": 0.02}
