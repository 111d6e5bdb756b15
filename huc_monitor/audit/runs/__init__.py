"""Audits of rows that come in sorted runs: mergeable summaries for large windows and engines."""
