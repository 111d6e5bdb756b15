"""The monitor: audits windows as their labels mature, keeps state, raises alerts.

What it does in the cases that go wrong elsewhere; each has a test of that name.

* **It dies half-way**, anywhere, and is run again: records, state and messages come out as if it
  had not died. A message may be delivered twice, with the same key.
* **Two checks at once**: one works; the other leaves, or waits if told to.
* **Clock changes, label lag**: see `huc_monitor.monitor.windows`.
* **An empty day** is recorded as empty; alerts stay as they are.
* **Few labels**: recorded as thin, with the reason. The e-detector, which is valid for any number
  of rows, still gets them.
* **Late labels**: within `revisit` of its end, a window whose counts have changed is audited again
  as a new revision. The first audit stays on record. Only a revision of the newest judged window
  can change an alert. The e-detector gets rows whose labels were late when they come, once; without
  a label time they cannot be told from the others, and are left out.
* **A changed tree**, utility, subgroup rule, window or bound is another monitor, with windows,
  records and state of its own. The old ones stay where they are. It says so, and begins with the
  open alerts whose branch and utility are still there; windows older than they are do not end
  them.
* **A changed tolerance** keeps the monitor; the e-detector starts afresh, and its record says so.
* **A changed model version** has an e-detector of its own, without evidence at first, and its
  record says so; versions that serve side by side keep theirs, and one average run length holds
  for all of them together. The change test pools windows of one version. Alerts go on: a new
  version resolves them with its first two windows in a row that do not show them. Windows are not
  split: they say what was served.
* **Class columns in another order** do not matter.
* **An unknown label** or unusable row is set aside and counted. Too many of them: that window is
  recorded as failed, people are told, and the others are audited. It is read again at every check
  (the newest 16 of them; older ones when their counts change), and the status is "failed" until it
  is audited, as a revision, or a person dismisses it.
* **A changed subgroup value**: cut points and values are frozen from the reference.
* **A message that cannot be sent**, or a recalibration that fails, is kept and tried again.
* **An exporter that fails** gets all it missed the next time; **an attachment that fails** leaves
  its error beside the window.
"""

from __future__ import annotations

from huc_monitor.monitor._lock import CheckInProgressError, watch_lock
from huc_monitor.monitor._monitor import CheckResult, Monitor
from huc_monitor.monitor._state import MonitorState, TrendPoint, open_state, read_state
from huc_monitor.monitor._watch import Watch

__all__ = [
    "CheckInProgressError",
    "CheckResult",
    "Monitor",
    "MonitorState",
    "TrendPoint",
    "Watch",
    "open_state",
    "read_state",
    "watch_lock",
]
