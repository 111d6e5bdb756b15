"""What a changed configuration will do, said before a check does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from huc_monitor.monitor._state import MonitorState, read_state
from huc_monitor.subgroups import Subgroups
from huc_monitor.utilities.program import Floats

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import Monitor


def preview(monitor: Monitor, now: MonitorState) -> list[str]:
    """Compare the configuration, and the state `now` of a dry run, with what the last check left.

    Changes nothing.
    """
    data = monitor.tracker.load_state()
    if data is None:
        previous = monitor.tracker.previous_state()
        if previous is None:
            return []
        given = monitor.identity, monitor.tree, monitor.utilities, monitor.file
        new, before = MonitorState.after(previous, *given), MonitorState.from_dict(previous)
        first = [] if before.is_of_another(monitor.file) else _say_first(before, now)
        return [*new.notes[-1:], *first]
    state = read_state(data, monitor.tracker)
    if state.tree not in {None, monitor.tree.fingerprint}:
        version = None if monitor.changes is None else monitor.changes.find(state.tree)
        if version is None:
            return []  # the check itself says what is wrong
        state.move(version, monitor.utilities)
        return state.notes[-1:]
    return _say_tolerance(monitor, state)


def _say_first(before: MonitorState, now: MonitorState) -> list[str]:
    """Say which utilities and subgroups the monitor before did not have."""
    old, new = ((state.reference or {}).get("drift", {}) for state in (before, now))
    said = [
        f"{kind} {', '.join(names)}"
        for kind, key in (("utilities", "scores"), ("subgroups", "mix"))
        if old and (names := [name for name in new.get(key, ()) if name not in old[key]])
    ]
    return [f"Audited for the first time: {'; '.join(said)}."] if said else []


def _say_tolerance(monitor: Monitor, state: MonitorState) -> list[str]:
    """Say what changed tolerances mean for the newest audited window and for open alerts."""
    policy = monitor.policy.tolerance
    records = monitor.tracker.records()
    audited = [record for record in records if record.audit and record.maintenance is None]
    if not audited or state.subgroups is None or policy.relative:
        return []
    newest = audited[-1]
    given = monitor.tree, monitor.utilities, Subgroups.from_dict(state.subgroups)
    values, frame = policy.values(*given), newest.to_frame(all_columns=True)
    counted = f"window ({newest.ordinal})", frame["moment"].abs().to_numpy()
    said = _count("The tolerance", np.asarray(newest.tolerances), values, *counted)
    if said is not None:
        names = zip(frame["utility"], frame["subgroup"], frame["node"], strict=True)
        limits = dict(zip(names, values.tolist(), strict=True))
        alerts = state.open_alerts
        within = sum(abs(alert.moment) <= limits.get(alert.candidate, 0.0) for alert in alerts)
        said += f" Of {len(alerts)} open alerts, {within} would be within it."
    found, options = [] if said is None else [said], monitor.policy.sequential
    if state.detectors and options.enabled:
        kept = np.asarray(next(reversed(state.detectors.values()))["tolerance"])
        wanted = policy.values(*given, default=options.tolerance)
        said = _count("The e-detector's tolerance", kept, wanted, *counted)
        if said is not None and found and options.tolerance is None:
            found[0] += " The e-detector starts afresh, without the evidence so far."
        elif said is not None:
            found.append(f"{said} It starts afresh, without the evidence so far.")
    return found


def _count(what: str, before: Floats, values: Floats, window: str, sizes: Floats) -> str | None:
    """Say how many candidates have another tolerance, and how many are above the old and new."""
    if values.shape != before.shape or np.allclose(values, before, rtol=1e-12, atol=0.0):
        return None
    moved = int(np.sum(~np.isclose(values, before, rtol=1e-12, atol=0.0)))
    return (
        f"{what} changed for {moved} of {values.size} candidates: in the newest audited {window}, "
        f"{int((sizes > values).sum())} are above the new one and {int((sizes > before).sum())} "
        "were above the old one."
    )
