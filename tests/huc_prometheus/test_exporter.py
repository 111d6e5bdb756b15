"""The exporter on a real port and in real files."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import urllib.request

import huc_prometheus
import pytest
from huc_prometheus import PrometheusExporter
from huc_prometheus.__main__ import main
from prometheus_client.parser import text_string_to_metric_families
from support.production_log import after, make_log
from support.watched import make

from huc_monitor._common.safe_text import distinct
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.ports import MemoryTracker, MonitorInfo

INFO = MonitorInfo("intrusion", "5f", model="nids")


@pytest.fixture(scope="module")
def log():
    return make_log(4, 1000, broken_from=2)


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def read(text):
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels) if key != "monitor")): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return read(answer.read().decode())


def check(log, exporter, tracker, days):
    return make(*log, tracker=tracker, exporters={"metrics": exporter}).check(now=after(days))


def test_a_check_writes_two_files_that_name_the_guilty_branch(log, tmp_path):
    exporter = PrometheusExporter(INFO, textfile=tmp_path)
    check(log, exporter, MemoryTracker(), 4.6)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"huc_intrusion_window.prom", "huc_intrusion_check.prom"}
    window = read((tmp_path / "huc_intrusion_window.prom").read_text("utf-8"))
    assert window["huc_moment_alert", "attack", "protocol=udp", "family"] == 2
    assert window["huc_moment_tolerance", "attack", "protocol=udp", "family"] == 0.03
    assert window["huc_window_ordinal",] == 4
    assert window["huc_rest_candidates",] == 0
    assert read((tmp_path / "huc_intrusion_check.prom").read_text("utf-8"))["huc_status",] == 2


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool on PATH")
def test_promtool_has_nothing_against_what_is_written(log, tmp_path):
    check(log, PrometheusExporter(INFO, textfile=tmp_path), MemoryTracker(), 4.6)
    for path in tmp_path.iterdir():
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=path.read_bytes(),
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_check_without_new_windows_renews_only_that_there_was_one(log, tmp_path):
    tracker = MemoryTracker()
    check(log, PrometheusExporter(INFO, textfile=tmp_path), tracker, 4.6)
    window, last = (tmp_path / f"huc_intrusion_{part}.prom" for part in ("window", "check"))
    before = window.stat().st_mtime_ns, last.stat().st_mtime_ns
    check(log, PrometheusExporter(INFO, textfile=tmp_path), tracker, 4.6)
    assert window.stat().st_mtime_ns == before[0]
    assert last.stat().st_mtime_ns > before[1]


def test_a_file_that_was_removed_is_written_again_from_the_records(log, tmp_path):
    tracker = MemoryTracker()
    check(log, PrometheusExporter(INFO, textfile=tmp_path), tracker, 4.6)
    window = tmp_path / "huc_intrusion_window.prom"
    before = window.read_bytes()
    window.unlink()
    check(log, PrometheusExporter(INFO, textfile=tmp_path), tracker, 4.6)
    assert window.read_bytes() == before


def test_a_watch_that_starts_anew_shows_the_last_window_before_a_new_one_is_due(log, port):
    tracker = MemoryTracker()
    check(log, PrometheusExporter(INFO, listen=port), tracker, 4.6)
    exporter = PrometheusExporter(INFO, listen=f"127.0.0.1:{port}")
    exporter.serve()
    try:
        assert scrape(port) == {}
        check(log, exporter, tracker, 4.6)
        found = scrape(port)
    finally:
        exporter.close()
    assert found["huc_window_ordinal",] == 4
    assert found["huc_moment_alert", "attack", "protocol=udp", "family"] == 2
    with pytest.raises(OSError, match="refused"):
        scrape(port)


def test_only_a_watch_listens(log, port):
    check(log, PrometheusExporter(INFO, listen=port), MemoryTracker(), 2)
    with pytest.raises(OSError, match="refused"):
        scrape(port)


def test_a_port_that_is_taken_is_tried_again_with_the_next_check(log, port):
    tracker = MemoryTracker()
    exporter = PrometheusExporter(INFO, listen=port)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            exporter.serve()
        assert len(check(log, exporter, tracker, 2)) > 0
    check(log, exporter, tracker, 2)
    try:
        assert scrape(port)["huc_window_ordinal",] == 1
    finally:
        exporter.close()


def test_one_place_that_fails_does_not_keep_the_others_from_being_written(log, tmp_path, port):
    tracker = MemoryTracker()
    gone = PrometheusExporter(INFO, textfile=tmp_path / "gone", listen=port)
    gone.serve()
    try:
        assert len(check(log, gone, tracker, 4.6)) == 4
        assert scrape(port)["huc_status",] == 2
        (tmp_path / "gone").mkdir()
        check(log, gone, tracker, 4.6)
    finally:
        gone.close()
    text = (tmp_path / "gone" / "huc_intrusion_window.prom").read_text("utf-8")
    assert read(text)["huc_window_ordinal",] == 4


def test_names_that_would_break_the_format_are_escaped(tmp_path, log):
    nasty = 'a "b"\\c\nd'
    exporter = PrometheusExporter(MonitorInfo(nasty, "5f"), textfile=tmp_path)
    check(log, exporter, MemoryTracker(), 2)
    for path in tmp_path.iterdir():
        families = list(text_string_to_metric_families(path.read_text("utf-8")))
        assert {s.labels["monitor"] for f in families for s in f.samples} == {distinct(nasty)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "at least one of listen, textfile, pushgateway; got none"),
        ({"listen": "9464x"}, "`listen` must be an address and a port.*; got '9464x'"),
        ({"listen": "127.0.0.1:70000"}, "`listen` must be an address and a port"),
        ({"listen": 9464, "max_series": 3}, "`max_series` must be a whole number of at least"),
        ({"pushgateway": "http://me:secret@host:9091"}, "`pushgateway` must not hold a password"),
    ],
)
def test_settings_that_cannot_work_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        PrometheusExporter(INFO, **options)


def test_doctor_is_told_what_the_settings_lead_to(tmp_path):
    found = PrometheusExporter(INFO, listen=9464, textfile=tmp_path).ping()
    assert found == f"listens at 127.0.0.1:9464 in watch, writes to {tmp_path}"
    with pytest.raises(InvalidInputError, match="`textfile` must be a folder"):
        PrometheusExporter(INFO, textfile=tmp_path / "gone").ping()


@pytest.mark.parametrize("what", ["rules", "dashboard"])
def test_what_comes_with_the_package_is_printed_or_written(what, tmp_path, capsys):
    assert main([what]) == 0
    assert capsys.readouterr().out == getattr(huc_prometheus, what)()
    assert main([what, "--out", str(tmp_path / "file")]) == 0
    assert (tmp_path / "file").read_text("utf-8") == getattr(huc_prometheus, what)()


def test_the_package_can_be_imported_and_read_without_the_client_library():
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import huc_prometheus; huc_prometheus.rules()\n"
        "try: huc_prometheus.PrometheusExporter\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("pip install 'huc-monitor[prometheus]'")
