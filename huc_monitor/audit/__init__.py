"""The audit: utility residuals, split over branches, scanned over score intervals, bounded."""

from __future__ import annotations

from huc_monitor.audit._audit import audit, audit_rows
from huc_monitor.audit.result import AuditResult

__all__ = ["AuditResult", "audit", "audit_rows"]
