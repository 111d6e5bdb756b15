"""A picture of what a recalibrator did to HUC, update by update."""

from __future__ import annotations

from huc_monitor.recalibration._base import Boost
from huc_monitor.reporting import _words
from huc_monitor.reporting._drawing import Line, Mark, Path, Picture, Text, points, scale, ticks

_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 700.0, 28.0, 188.0
_TRACKS = (("huc", "strong", "calibration rows"), ("validation_huc", "quiet", "validation rows"))


def fit_history(boost: Boost) -> Picture | None:
    """Draw HUC after every update; None of a recalibrator that was read from a file."""
    history = getattr(boost, "history_", None)
    if history is None:
        return None
    tracks = [
        (history[name].tolist(), look, of)
        for name, look, of in _TRACKS
        if history[name].notna().all()
    ]
    high = max(max(values) for values, _, _ in tracks)
    x = scale(0.0, max(1.0, len(history) - 1.0), _LEFT, _RIGHT)
    y = scale(0.0, max(high, 1e-6) * 1.05, _BOTTOM, _TOP)
    marks: list[Mark] = []
    for value in ticks(0.0, y.high, 4):
        marks.append(Line(_LEFT, y(value), _RIGHT, y(value), "grid"))
        marks.append(Text(_LEFT - 8, y(value) + 4, _words.plain(value), "note", "end"))
    whole = [value for value in ticks(0.0, x.high, 6) if value == int(value)]
    marks += [Text(x(v), _BOTTOM + 18, f"{v:.0f}", "note", "middle") for v in whole]
    for i, (values, look, of) in enumerate(tracks):
        marks.append(Path(points([x(j) for j in range(len(values))], [y(v) for v in values]), look))
        at = _LEFT + 170 * i
        marks += [Line(at, 10, at + 22, 10, look), Text(at + 28, 14, f"HUC, {of}", "note")]
    kept = len(boost.updates_)
    if 0 < kept < len(history) - 1:
        marks += [
            Line(x(kept), _TOP, x(kept), _BOTTOM, "edge"),
            Text(x(kept) + 4, _TOP + 10, f"{kept} kept", "note"),
        ]
    losses = history["log_loss"].tolist()
    (before, *_), now = tracks[0][0], tracks[0][0][kept]
    return Picture(
        _RIGHT + 16,
        _BOTTOM + 26,
        tuple(marks),
        "HUC after every update",
        f"On calibration rows HUC went from {_words.plain(before)} to {_words.plain(now)} and log "
        f"loss from {_words.plain(losses[0])} to {_words.plain(losses[kept])}.",
    )
