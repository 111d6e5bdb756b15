"""Secrets are found by their type, wherever they stand."""

from __future__ import annotations

import json

import pytest

from huc_monitor.config import ConfigError, parse_config

BASE = """\
model: triage
tree: tree.yaml
source:
  log: {path: log.parquet}
columns: {time: ts, label: y}
windows: {length: 1d}
"""
HOST = '{name: x, settings: {plain: "$KEY"}, secrets: {token: "a-${KEY}-b"}}'
PLACES = {
    "channels": (f"channels: {{ops: {HOST}}}", lambda s: s.channels["ops"]),
    "exporters": (f"exporters: {{ops: {HOST}}}", lambda s: s.exporters["ops"]),
    "attachments": (f"attachments: {{ops: {HOST}}}", lambda s: s.attachments["ops"]),
    "tracker": (f"tracker: {HOST}", lambda s: s.tracker),
}


@pytest.fixture
def parse(tmp_path):
    (tmp_path / "tree.yaml").write_text("{a: [b, c], d: null}")
    return lambda text, **environ: parse_config(text, folder=tmp_path, environ=environ)


@pytest.mark.parametrize("place", PLACES)
def test_a_variable_is_read_in_the_secrets_of_every_host_and_nowhere_else(place, parse):
    text, find = PLACES[place]
    config = parse(BASE + text, KEY="hunter2")
    assert find(config.settings).options() == {"plain": "$KEY", "token": "a-hunter2-b"}
    assert "hunter2" not in json.dumps(config.to_dict()) + repr(config) + str(config.settings)


@pytest.mark.parametrize("option", ['"${KEY}/x"', '[1, "${KEY}"]', '{a: [{b: "-${KEY}"}]}'])
@pytest.mark.parametrize("place", PLACES)
def test_a_variable_in_the_settings_of_a_host_is_not_taken_as_it_stands(place, option, parse):
    text = PLACES[place][0].replace('"$KEY"', option)
    path = r"\.ops\.settings\.plain" if place != "tracker" else r"\.settings\.plain"
    message = (
        rf"huc.yaml:7:\d+: `{place}{path}` must not hold \$\{{NAME\}}; got '.*\$\{{KEY\}}.*'\. "
        r"Environment variables are read in `secrets` only: move the option there"
    )
    with pytest.raises(ConfigError, match=message):
        parse(BASE + text, KEY="hunter2")


@pytest.mark.parametrize("table", ["log", "labels"])
def test_a_variable_is_read_in_the_url_of_every_table(table, parse):
    url = 'url: "postgresql://u:${KEY}@h/d", table: t'
    text = BASE.replace("path: log.parquet", url)
    if table == "labels":
        labels = f"  labels: {{{url}, id: i, label: y}}\ncolumns: {{time: ts, id: i}}"
        text = BASE.replace("columns: {time: ts, label: y}", labels)
    config = parse(text, KEY="hunter2")
    found = getattr(config.settings.source, table).url
    assert found.get_secret_value() == "postgresql://u:hunter2@h/d"
    assert "hunter2" not in json.dumps(config.to_dict())


@pytest.mark.parametrize("place", PLACES)
def test_a_variable_that_is_not_set_is_an_error_at_its_line(place, parse):
    text, _ = PLACES[place]
    path = r"\.ops\.secrets\.token" if place != "tracker" else r"\.secrets\.token"
    message = rf"huc.yaml:7:\d+: `{place}{path}` needs the environment variable KEY, which is not"
    with pytest.raises(ConfigError, match=message):
        parse(BASE + text)


@pytest.mark.parametrize(
    "wrong",
    [
        'exporters: {ops: {name: x, secrets: "hunter2"}}',
        "exporters: {ops: {name: x, secrets: [hunter2]}}",
        "attachments: {ops: {name: x, secrets: {token: [hunter2]}}}",
        "channels: {ops: [hunter2]}",
        "channels: [hunter2]",
        "tracker: [hunter2]",
        "source: {log: [hunter2]}",
        'exporters: {ops: {name: x, secret: hunter2, secrets: {a: "${KEY}"}}}',
    ],
)
def test_an_error_shows_no_secret_even_where_one_is_misplaced(wrong, parse):
    text = (
        BASE
        if not wrong.startswith("source")
        else BASE.replace("source:\n  log: {path: log.parquet}\n", "")
    )
    with pytest.raises(ConfigError) as caught:
        parse(text + wrong, KEY="hunter2")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
