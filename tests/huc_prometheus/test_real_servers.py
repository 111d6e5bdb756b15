"""A real Prometheus scrapes a watch, a Pushgateway, node-exporter and a very large monitor."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import huc_prometheus
import numpy as np
import pandas as pd
import pytest
import yaml
from huc_prometheus import PrometheusExporter
from support.mlflow_servers import free_port, process
from support.production_log import make_log, write_project

import huc_monitor as hm
from huc_monitor.monitor import Monitor
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.sources import Columns, FrameTable, TableSource

PROGRAMS = ("prometheus", "prometheus-pushgateway", "prometheus-node-exporter", "promtool")
missing = [name for name in PROGRAMS if shutil.which(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)} on PATH"),
]

LIMIT = 400
PUSHED = "huc_monitor"  # the job that pushed, honoured by Prometheus
N_NODES, N_SUBGROUPS = 500, 10
SECONDS = 60


def ask(address, path, **parameters):
    url = f"{address}{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own server
        return json.load(answer)["data"]


def query(world, expression):
    found = ask(world.prometheus, "/api/v1/query", query=expression)["result"]
    return [(item["metric"], float(item["value"][1])) for item in found]


def value(world, expression):
    ((_, number),) = query(world, expression)
    return number


def wait_for(condition, what):
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.3)
    return found


def project(folder, name, **settings):
    """A project with a broken branch whose monitor has a name and an exporter of its own."""
    hosts = {"metrics": {"name": "prometheus", "settings": settings}}
    more = yaml.safe_dump({"exporters": hosts})
    config = write_project(folder, *make_log(4, 1000, broken_from=2), more=more)
    config.write_text(config.read_text("utf-8").replace("model: intrusion", f"model: {name}"))
    return config


def check(config):
    command = [Path(sys.executable).parent / "huc-monitor", "check", "--config", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    assert "exporter" not in done.stderr


def large_monitor(exporter):
    """500 nodes below the root, each with two leaves, and 10 subgroups, at one look."""
    rng = np.random.default_rng(0)
    tree = hm.LabelTree.from_nested({f"n{i}": [f"n{i}a", f"n{i}b"] for i in range(N_NODES)})
    n = 1500
    p = rng.dirichlet(np.full(tree.n_leaves, 0.05), n) + 1e-6
    p /= p.sum(axis=1, keepdims=True)
    codes = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=tree.n_leaves - 1)
    log = pd.DataFrame({"at": pd.date_range("2024-01-01", periods=n, freq="1min", tz="UTC")})
    log["p"] = list(p)
    log["y"] = np.array(tree.leaves)[codes]
    log["site"] = rng.integers(0, N_SUBGROUPS, n).astype(str)
    columns = Columns(
        time="at", label="y", list_column="p", classes=tuple(tree.leaves), features=("site",)
    )
    return Monitor(
        source=TableSource(FrameTable(log), tree=tree, columns=columns),
        windows=hm.TimeWindows(length="2d"),
        tree=tree,
        utilities=[hm.LevelCorrectness(level=2)],
        subgroups=lambda rows: hm.Subgroups.from_reference(rows, {"site": "each"}),
        policy=hm.Policy(
            tolerance=0.001,
            audit={"bounds": "sharp"},
            sequential={"enabled": False},
            drift={"enabled": False},
        ),
        name="large",
        hosts=hm.Hosts(exporters={"metrics": exporter}),
    )


def configure(folder, ports):
    def job(name, port, **more):
        return {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}], **more}

    jobs = [job("watch", ports["watch"]), job("large", ports["large"]), job("node", ports["node"])]
    jobs.append(job("push", ports["push"], honor_labels=True))
    content = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(content), "utf-8")
    command = [sys.executable, "-m", "huc_prometheus", "rules", "--out", folder / "rules.yaml"]
    subprocess.run(command, check=True)
    subprocess.run(["promtool", "check", "config", folder / "prometheus.yaml"], check=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """All servers, each with something to tell."""
    ports = {name: free_port() for name in ("watch", "large", "node", "push", "prometheus")}
    folders = {name: tmp_path_factory.mktemp(name) for name in (*ports, "text", "batch")}
    configure(folders["prometheus"], ports)
    at = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    batch = project(
        folders["batch"] / "project",
        "batch",
        textfile=str(folders["text"]),
        pushgateway=at["push"],
        max_series=200,
    )
    watched = project(folders["watch"] / "project", "watched", listen=f"127.0.0.1:{ports['watch']}")
    large = PrometheusExporter(MonitorInfo("large", "5f"), listen=ports["large"], max_series=LIMIT)
    local = "--web.listen-address=127.0.0.1:{}"
    with contextlib.ExitStack() as stack:

        def start(command, name, url):
            stack.enter_context(process(command, url, folder=folders[name]))

        stack.callback(large.close)
        large.serve()
        record = large_monitor(large).check(now="2024-01-03T00:00Z")[0]
        push = ["prometheus-pushgateway", local.format(ports["push"])]
        start(push, "push", f"{at['push']}/-/ready")
        check(batch)
        node = ["prometheus-node-exporter", local.format(ports["node"])]
        node += ["--collector.disable-defaults", "--collector.textfile"]
        node.append(f"--collector.textfile.directory={folders['text']}")
        start(node, "node", f"{at['node']}/metrics")
        watch = [Path(sys.executable).parent / "huc-monitor", "watch", "--config", watched]
        start([*watch, "--every", "1h"], "watch", f"{at['watch']}/metrics")
        server = ["prometheus", local.format(ports["prometheus"])]
        server += ["--config.file=prometheus.yaml", "--storage.tsdb.path=data"]
        start(server, "prometheus", f"{at['prometheus']}/-/ready")
        world = SimpleNamespace(**at, batch=batch, text=folders["text"], record=record)
        all_there = 'huc_moment_alert{subgroup="protocol=udp"} == 2 or huc_candidates{job="large"}'
        log = folders["watch"] / "server.log"
        wait_for(lambda: len(query(world, all_there)) >= 4, log.read_text("utf-8"))
        yield world


def test_every_way_to_prometheus_names_the_guilty_branch(world):
    for job, monitor in (("watch", "watched"), (PUSHED, "batch"), ("node", "batch")):
        found = query(world, f'huc_moment_alert{{job="{job}", subgroup="protocol=udp"}} == 2')
        assert {(labels["monitor"], labels["node"]) for labels, _ in found} == {(monitor, "attack")}
        lower = value(
            world,
            f'huc_moment_lower{{job="{job}", subgroup="protocol=udp", node="attack", '
            'utility="family"}',
        )
        assert lower > 0.03
        assert value(world, f'huc_status{{job="{job}", monitor="{monitor}"}}') == 2


def test_500_nodes_by_10_subgroups_stay_under_the_limit_and_the_rest_is_summed_up(world):
    n_candidates = len(world.record.audit["candidates"])
    assert n_candidates == (N_NODES + 1) * (N_SUBGROUPS + 1)
    assert value(world, 'count({__name__=~"huc_.*", job="large"})') <= LIMIT
    assert value(world, 'huc_candidates{job="large"}') == n_candidates
    kept = query(world, 'huc_moment{job="large"}')
    assert value(world, 'huc_rest_candidates{job="large"}') == n_candidates - len(kept)
    sizes = sorted((abs(row["moment"]) for row in world.record.audit["candidates"]), reverse=True)
    found = sorted((abs(moment) for _, moment in kept), reverse=True)
    assert found == pytest.approx(sizes[: len(kept)])
    assert value(world, 'huc_rest_largest_moment{job="large"}') == pytest.approx(sizes[len(kept)])
    print(f"{n_candidates} candidates, {len(kept)} kept, limit {LIMIT}")


def test_every_panel_of_the_dashboard_has_something_to_show(world):
    empty = []
    for panel in json.loads(huc_prometheus.dashboard())["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$monitor", ".*")
            assert "$" not in expression
            if not query(world, expression):
                empty.append((panel["title"], expression))
    assert empty == []
    variable = json.loads(huc_prometheus.dashboard())["templating"]["list"][1]
    asked = variable["query"]["query"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", asked).groups()
    names = ask(world.prometheus, f"/api/v1/label/{label}/values", **{"match[]": metric})
    assert names == ["batch", "large", "watched"]


def test_the_rules_are_loaded_and_the_right_alerts_fire(world):
    (group,) = ask(world.prometheus, "/api/v1/rules")["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}
    assert len(group["rules"]) == 10
    assert "HUCBranchChanged" in {rule["name"] for rule in group["rules"]}

    def firing():
        found = ask(world.prometheus, "/api/v1/alerts")["alerts"]
        chosen = [
            alert["labels"]
            for alert in found
            if alert["state"] == "firing" and alert["labels"]["alertname"] == "HUCBranchCritical"
        ]
        return {(a["monitor"], a["node"], a["subgroup"]) for a in chosen}

    guilty = ("attack", "protocol=udp")
    wait_for(lambda: {("batch", *guilty), ("watched", *guilty)} <= firing(), "no alert fires")


def test_a_check_without_new_windows_keeps_what_was_pushed_and_renews_the_time(world):
    seconds = f'huc_last_check_timestamp_seconds{{job="{PUSHED}"}}'
    before = value(world, seconds)
    check(world.batch)
    wait_for(lambda: value(world, seconds) > before, "the time of the last check is not renewed")
    pushed = query(world, f'huc_moment{{job="{PUSHED}"}}')
    assert len(pushed) == len(query(world, 'huc_moment{job="node"}')) > 0
    assert value(world, 'node_textfile_scrape_error{job="node"}') == 0
