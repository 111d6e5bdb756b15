"""What an older version wrote is data here, also where it is Python."""

from __future__ import annotations

collect_ignore = ["old_model", "old_state"]
