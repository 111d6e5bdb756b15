"""Hostile names as labels: the exposition stays readable, and every series stays its own."""

from __future__ import annotations

from datetime import UTC, datetime

from huc_prometheus import PrometheusExporter
from prometheus_client.parser import text_string_to_metric_families
from support.hostile import NAMES, assert_clean
from support.report_cases import audit_dict, candidate, small_tree

from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.ports.exporter import Standing
from huc_monitor.monitor.records import WindowRecord

DAY = datetime(2024, 3, 1, tzinfo=UTC)


def exposed(folder, names, monitor="tri\nage"):
    rows = [
        candidate(utility=name, subgroup=name, node=name, moment=0.1, radius=0.1) for name in names
    ]
    audit = audit_dict(rows, small_tree())
    times = {"start": DAY, "end": DAY, "due_at": DAY}
    record = WindowRecord(
        monitor=monitor,
        identity="5f",
        window_id="w",
        ordinal=3,
        status="audited",
        audit=audit,
        tolerances=(0.02,) * len(rows),
        model_version="1\n\x1b[2J\u202e",
        **times,
    )
    exporter = PrometheusExporter(MonitorInfo(monitor, "5f", model="m"), textfile=folder)
    exporter.export(Standing("ok", (), 0, (record,), list))
    return [path.read_text("utf-8") for path in sorted(folder.glob("*.prom"))]


def test_the_exposition_is_clean_and_every_candidate_has_one_series(tmp_path):
    names = [*NAMES, r"ok\nCRITICAL\nBranch root"]
    for text in exposed(tmp_path, names):
        assert_clean(text, is_output=False)
        assert len(text) < 100_000
        families = {f.name: f for f in text_string_to_metric_families(text)}
        if "huc_moment" in families:
            found = [tuple(sorted(s.labels.items())) for s in families["huc_moment"].samples]
            assert len(found) == len(set(found)) == len(names)


def test_other_users_may_read_what_node_exporter_reads(tmp_path):
    exposed(tmp_path, ["a"])
    assert {path.stat().st_mode & 0o444 for path in tmp_path.glob("*.prom")} == {0o444}
