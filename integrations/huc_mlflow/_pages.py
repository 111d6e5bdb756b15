"""The report and its pictures, as files beside a window or an evaluation."""

from __future__ import annotations

from huc_monitor.audit.result import AuditResult
from huc_monitor.monitor.records import WindowRecord
from huc_monitor.tree import LabelTree


def report_files(
    source: AuditResult | WindowRecord, tree: LabelTree | None = None
) -> dict[str, bytes]:
    """Write the report and draw the pictures of one audit, by file name."""
    from huc_monitor.reporting import draw_pictures, render_report

    texts = {"report.html": render_report(source, tree=tree)}
    pictures = draw_pictures(source, tree=tree)
    texts |= {f"{name}.svg": picture.to_svg() for name, picture in pictures.items()}
    return {name: text.encode() for name, text in texts.items()}
