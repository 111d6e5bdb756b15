"""The report and its pictures, as files beside a window or an evaluation."""

from __future__ import annotations

import tempfile
from pathlib import Path

from huc_monitor.audit.result import AuditResult
from huc_monitor.monitor.records import WindowRecord
from huc_monitor.tree import LabelTree


def report_files(
    source: AuditResult | WindowRecord, tree: LabelTree | None = None
) -> dict[str, bytes]:
    """Write the report and draw the pictures of one audit, by file name."""
    from huc_monitor.reporting import draw_pictures, write_report

    with tempfile.TemporaryDirectory() as folder:
        page = write_report(source, Path(folder) / "report.html", tree=tree)
        files = {"report.html": page.read_bytes()}
    pictures = draw_pictures(source, tree=tree)
    return files | {f"{name}.svg": picture.to_svg().encode() for name, picture in pictures.items()}
