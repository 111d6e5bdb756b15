from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
import yaml

import huc_monitor as hm
from huc_monitor.audit.bounds.closed_forms import make_bound
from huc_monitor.audit.options import BoundMethod
from huc_monitor.config import ConfigError, _settings, config_schema, load_config, parse_config
from huc_monitor.monitor.windows import CountWindows, TimeWindows

METHODS = get_args(BoundMethod)
TREE = "{survived: {milder: [none, assisted], major: [limited, coma]}, died: null}"
GOOD = """\
model: triage
tree: tree.yaml
source:
  log: {path: log.parquet}
columns: {time: ts, label: y, id: id, probabilities: "p_{leaf}"}
windows: {length: 1d, time_zone: Europe/Berlin, label_lag: 2d}
tolerance: 0.02
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "tree.yaml").write_text(TREE)
    return tmp_path


def parse(text: str, folder: Path, **environ: str):
    return parse_config(text, folder=folder, environ=environ)


def test_a_short_file_is_enough(folder):
    config = parse(GOOD, folder)
    assert config.settings.model.name == "triage"
    assert config.windows == TimeWindows(length="1d", time_zone="Europe/Berlin", label_lag="2d")
    assert [utility.name for utility in config.utilities] == ["level1", "level2", "level3"]
    assert config.settings.tolerance.value == 0.02
    assert config.reference is None
    assert config.state_folder == folder / "huc-state"


def test_everything_can_be_said(folder):
    text = GOOD.replace("tolerance: 0.02\n", "").replace("{length: 1d,", "{rows: 500, stride: 100,")
    text += """
utilities:
  - {type: TopK, k: 2, units: EUR, scale: 20}
  - {type: BinaryAction, name: icu, active: [major], favours: [coma], threshold: 0.2, scale: 90}
subgroups:
  by: {age: [65, 80], sex: each}
  predicates:
    old men: {and: [{column: age, op: ">", value: 65}, {column: sex2, op: "==", value: m}]}
  weights: {risk: score}
  min_size: 20
reference: {start: 2024-03-31, end: 2024-04-01T12:00:00+00:00}
tolerance:
  value: 5
  unit: money
  relative_to: reference
  overrides: [{utility: icu, node: major, value: 9}]
bounds: {method: sharp, confidence_level: 0.9}
sequential: {enabled: false}
alerts: {cool_down: 3d, min_windows: 2, channels: [ops]}
channels:
  ops: {name: apprise, settings: {tag: a}, secrets: {url: "mailto://${KEY}@host"}}
  log: files
recalibration: {enabled: true, promotion: shadow, gate: {min_improvement: 0.01}}
tracker: {name: mlflow, settings: {experiment: x}, secrets: {tracking_uri: "${URI}"}}
state: /var/lib/huc
engine: spark
"""
    config = parse(text, folder, KEY="hunter2", URI="http://x")
    assert config.windows == CountWindows(
        n_rows=500, stride=100, time_zone="Europe/Berlin", label_lag="2d"
    )
    assert [utility.name for utility in config.utilities] == ["top2", "icu"]
    assert config.feature_columns == ("age", "sex", "sex2", "score")
    # A date is midnight where the windows' days begin.
    assert config.reference == (
        datetime(2024, 3, 30, 23, tzinfo=UTC),
        datetime(2024, 4, 1, 12, tzinfo=UTC),
    )
    assert config.settings.channels["ops"].options() == {"tag": "a", "url": "mailto://hunter2@host"}
    assert config.settings.channels["log"].name == "files"
    assert config.settings.tracker.options()["tracking_uri"] == "http://x"
    assert str(config.state_folder) == "/var/lib/huc"


WRONG = [
    (("length: 1d", "length: 1x"), "6:11: `windows.length` must be a whole number and one of"),
    (("{length: 1d, ", "{"), "6:1: `windows` must have either `length` (such as 1d) or `n_rows`"),
    (("length: 1d", "length: 1d, rows: 5"), "6:1: `windows` must have either `length`"),
    (("length: 1d", "length: 1d, stride: 2d"), "6:1: `windows` cannot be used: `stride` must not"),
    (("length: 1d", "length: 1d, stride: 5"), "`windows.stride` must be a whole number and one of"),
    (("length: 1d", "rows: 9, stride: 1d"), "`windows.stride` must be a whole number; got '1d'"),
    (("length: 1d", "rows: 9, stride: 10"), "`windows` cannot be used: `stride` must not exceed"),
    (("length: 1d", "length: 1d, begin: noon"), "6:23: `windows.begin` must be a date or time"),
    (("Europe/Berlin", "Mars/Base"), "`windows.time_zone` must be an IANA time zone"),
    (
        ("0.02", "lots"),
        "7:1: `tolerance` must be a number from 0, or a mapping of settings; got 'lots'.",
    ),
    (("0.02", "-1"), "7:1: `tolerance` must be at least 0; got -1"),
    (("0.02", ".nan"), "7:1: `tolerance` must be a finite number; got nan"),
    (("0.02", "{value: 1, unit: euro}"), "`tolerance.unit` must be 'utility' or 'money'"),
    (("0.02", "{value: 2.5, unit: money}"), "7:25: `tolerance.unit` must be 'utility' where"),
    (("0.02", "{value: 1, overrides: [{value: 2}]}"), "7:35: `tolerance.overrides[0]` must name"),
    (
        ("0.02", "{value: 1, overrides: [{node: mayor, value: 2}]}"),
        "7:36: `tolerance.overrides[0].node` must be a node; got 'mayor'. Did you mean 'major'?",
    ),
    (
        ("0.02", "0.02\nreference: {start: 2024-02-01, end: 2024-01-01}"),
        "8:32: `reference.end` must be after `reference.start`, 2024-02-01; got 2024-01-01.",
    ),
    (("0.02", "{value: 1, relative_to: reference}"), "needs the section `reference`"),
    (
        ("model: triage", "model: 5"),
        "1:1: `model` must be its name as text, or a mapping of settings; got 5. Put it in quotes.",
    ),
    (("model: triage\n", ""), "1:1: `model` must be given"),
    (("model: triage", "model: ''"), "1:1: `model` must not be empty"),
    (("tree.yaml", "no.yaml"), "2:1: `tree` cannot be read: `path` must be an existing file"),
    (("tree.yaml", "${TREE}/a"), "2:1: `tree` must be a plain path; got '${TREE}/a'. Environment"),
    (("path: log.parquet", "pth: x"), "`source.log.pth` is not a setting of `source.log`"),
    (("{path: log.parquet}", "{}"), "`source.log` must have exactly one of path, database, url"),
    (("path: log", "url: x, path: log"), "exactly one of path, database, url; got path, url"),
    (("path: log.parquet", "database: x.db"), "`source.log` must name the `table` to read"),
    (("path: log.parquet", "path: x.csv, table: t"), "must not have a table or schema with `path`"),
    (
        ("label: y, ", ""),
        "5:1: `columns.label` must be given, or else `source.labels`; got neither",
    ),
    (
        ("windows:", "subgroups: {by: {age: median, y: each}}\nwindows:"),
        "`subgroups.by.y` must be known when the model answers; got the label 'y': grouped by what",
    ),
    (
        (
            "windows:",
            "subgroups: {predicates: {bad: {not: {column: y, op: ==, value: died}}}}\nwindows:",
        ),
        "`subgroups.predicates.bad` must be known when the model answers; got the label 'y'",
    ),
    (
        ("windows:", "subgroups: {weights: {bad: y}}\nwindows:"),
        "`subgroups.weights.bad` must be known when the model answers; got the label 'y'",
    ),
    (
        ("windows:", "subgroups: {discover: {columns: [age, y]}}\nwindows:"),
        "`subgroups.discover.columns` must be known when the model answers; got the label 'y'",
    ),
    (("time: ts", "time: 5"), "5:11: `columns.time` must be text; got 5. Put it in quotes"),
    (("time: ts", "time: [ts]"), "5:11: `columns.time` must be text; got ['ts']."),
    (
        ("source:\n", "source:\n  label_mapping: 5\n"),
        "`source.label_mapping` must be the path of a file, or a mapping such as {Katze: cat}; got",
    ),
    (
        ("source:\n", "source:\n  label_mapping: {Exitus: [died]}\n"),
        "`source.label_mapping` cannot be used: `mapping` must lead from text to text; got ['died'",
    ),
    (
        ("source:\n", "source:\n  label_mapping: '${HOME}/a.csv'\n"),
        "`source.label_mapping` must be a plain path; got '${HOME}/a.csv'. Environment variables",
    ),
    (
        ('"p_{leaf}"', "[a, b]"),
        "`columns.probabilities` must be text such as 'p_{leaf}', or a mapping of settings; got",
    ),
    (('"p_{leaf}"', '"p_leaf"'), "`columns.probabilities` must look like 'p_{leaf}'; got 'p_leaf'"),
    (('"p_{leaf}"', "{list: p, pattern: x}"), "`columns.probabilities.pattern` must look like"),
    (('"p_{leaf}"', "{classes: [a]}"), "must have exactly one of pattern, columns, list"),
    (('"p_{leaf}"', "{columns: {a: b}, classes: [a]}"), "must have `classes` only with `list`"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_mistake_is_reported_at_its_line_with_what_would_do(change, message, folder):
    assert change[0] in GOOD
    with pytest.raises(ConfigError) as caught:
        parse(GOOD.replace(*change), folder)
    assert message in str(caught.value)
    assert str(caught.value).startswith("huc.yaml:")
    assert "\n" not in str(caught.value)


def test_a_mistyped_section_is_no_setting_of_the_file(folder):
    with pytest.raises(ConfigError, match=r"`tolerence` is not a setting of `huc\.yaml`\. Did you"):
        parse(f"{GOOD}\ntolerence: 0.1\n", folder)


def test_a_mistyped_setting_is_reported_beside_the_one_that_is_missing(folder):
    with pytest.raises(ConfigError) as caught:
        parse(GOOD.replace("length: 1d", "lenght: 1d"), folder)
    assert str(caught.value).splitlines() == [
        "huc.yaml:6:1: `windows.length` must be given: length of time.",
        "huc.yaml:6:11: `windows.lenght` is not a setting of `windows`. Did you mean 'length'?",
    ]


ADDED = [
    (
        "maintenance: [{start: 2026-01-01, end: 2026-01-02, branch: mayor}]",
        "8:52: `maintenance[0].branch` must be a branch; got 'mayor'. Did you mean 'major'?",
    ),
    (
        "maintenance: [{start: 2026-01-01, end: 2026-01-02, utility: levle2}]",
        "`maintenance[0].utility` must be a utility; got 'levle2'. Did you mean 'level2'?",
    ),
    ("engine: sparc", "8:1: `engine` must be 'local' or 'spark'; got 'sparc'"),
    ("bounds: {method: boot}", "8:10: `bounds.method` must be 'bootstrap', 'sharp' or 'theorem'"),
    ("bounds: {draws: 1.5}", "`bounds.draws` must be a whole number; got 1.5"),
    ("bounds: {confidence_level: 1}", "`bounds.confidence_level` must be less than 1; got 1"),
    ("sequential: {enabled: maybe}", "`sequential.enabled` must be true or false; got 'maybe'"),
    ("alerts: {channels: [ops]}", "8:21: `alerts.channels[0]` must be the name of one of the"),
    ("alerts: {channels: ops}", "`alerts.channels` must be a list; got 'ops'"),
    (
        "channels: {ops: [files]}",
        "`channels.ops` must be its name as text, or a mapping of settings.",
    ),
    ("attachments: {drift: 5}", "`attachments.drift` must be its name as text, or a mapping of"),
    ("channels: {ops: {nam: x}}", "`channels.ops.nam` is not a setting of `channels.ops`. Did you"),
    (
        "utilities:\n  - {type: TopK, k: 3}\n  - {type: TopM}",
        "10:5: `utilities[1]` cannot be used: `type` must be a utility family; got 'TopM'",
    ),
    ("utilities: [{type: TopK, k: 1}, {type: TopK, k: 1}]", "`utilities[1]` must have a name of"),
    ("utilities: [{type: SubtreeIndicator, node: x}]", "`utilities[0]` cannot be used"),
    (
        "recalibration: {promotion: auto}",
        "`recalibration.promotion` must be 'manual', 'gate' or 'shadow'",
    ),
    ("reference: {start: 2024-01-01}", "8:1: `reference.end` must be given: first moment after it"),
    ("windows: {}", "8:1: 'windows' is there twice"),
    ("channels: {'': files}", "`channels` must have names that are not empty"),
    ("version: 2", "8:1: `version` must be 1; got 2"),
]


@pytest.mark.parametrize(("added", "message"), ADDED, ids=[message for _, message in ADDED])
def test_a_wrong_addition_is_reported_at_its_line(added, message, folder):
    with pytest.raises(ConfigError) as caught:
        parse(GOOD + added + "\n", folder)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "huc.yaml:1:5: must be valid YAML"),
        ("- 1", "huc.yaml:1:1: must be a mapping of settings"),
        ("", "huc.yaml:1:1: must be a mapping of settings"),
        ("x: &a 1\ny: *a", "huc.yaml:2: aliases (*a) are not supported"),
        ("x: !!python/object/apply:os.system [true]", "must be valid YAML; could not determine"),
        ("x: \x00", "must be valid YAML"),
        ("a: " + "[" * 5000, "must not nest more than 30 levels"),
        ("a" * (2**20 + 1), "at most 1,048,576 characters"),
    ],
)
def test_what_is_no_yaml_of_ours_is_refused(text, message, folder):
    with pytest.raises(ConfigError) as caught:
        parse(text, folder)
    assert message in str(caught.value)


def test_an_unknown_utility_is_answered_with_the_families_one_can_choose(folder):
    with pytest.raises(ConfigError, match=r"SubtreeIndicator, TopK\.$"):
        parse(GOOD + "utilities: [{type: TopM}]\n", folder)


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(folder):
    text = GOOD.replace("time: ts", "tme: ts").replace("1d", "1x") + "engine: sparc\n"
    with pytest.raises(ConfigError) as caught:
        parse(text, folder)
    lines = [int(line.split(":")[1]) for line in str(caught.value).splitlines()]
    assert lines == [5, 5, 6, 8]


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"existing file; got .*no.yaml'. `huc-monitor init`"):
        load_config(tmp_path / "no.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"model: \xff")
    with pytest.raises(ConfigError, match=r"bad.yaml: must be UTF-8 text; byte 7 is not"):
        load_config(tmp_path / "bad.yaml")


SECRET = GOOD.replace("{path: log.parquet}", '{url: "postgresql://u:${KEY}@h/d", table: "${T}"}')


def test_environment_variables_are_read_in_secrets_only(folder):
    config = parse(SECRET, folder, KEY="hunter2", T="no")
    log = config.settings.source.log
    assert log.url.get_secret_value() == "postgresql://u:hunter2@h/d"
    assert log.table == "${T}"


def test_an_unset_variable_is_an_error_at_its_line(folder):
    message = r"huc.yaml:4:9: `source.log.url` needs the environment variable KEY, which is not set"
    with pytest.raises(ConfigError, match=message):
        parse(SECRET, folder)


def test_a_secret_is_never_shown(folder):
    config = parse(SECRET, folder, KEY="hunter2")
    shown = [repr(config), str(config.settings), json.dumps(config.to_dict())]
    wrong = SECRET.replace("table:", "tabel:")
    with pytest.raises(ConfigError) as caught:
        parse(wrong, folder, KEY="hunter2")
    shown.append(str(caught.value))
    assert caught.value.__cause__ is None
    with pytest.raises(ConfigError, match=r"`source.log.url` must be text\.$") as caught:
        parse(SECRET.replace('"postgresql://u:${KEY}@h/d"', '["${KEY}"]'), folder, KEY="hunter2")
    shown.append(str(caught.value))
    assert not any("hunter2" in text for text in shown)


def test_names_that_yaml_would_misread_stay_names(folder):
    (folder / "tree.yaml").write_text('{a: ["no", "on"], "2024-01-01": null}')
    columns = "{no: p_no, on: p_on, 2024-01-01: p_date}"
    config = parse(GOOD.replace('"p_{leaf}"', f"{{columns: {columns}}}"), folder)
    assert config.settings.columns.probabilities.columns == {
        "no": "p_no",
        "on": "p_on",
        "2024-01-01": "p_date",
    }


SAME = [
    ("path: log.parquet", "path: moved/log.parquet"),
    ("tolerance: 0.02", "tolerance: 0.5"),
    ("tolerance: 0.02", "tolerance: 0.02\nengine: spark\nstate: elsewhere"),
    ("tolerance: 0.02", "tolerance: 0.02\nchannels: {a: files}\nalerts: {channels: [a]}"),
    ("tolerance: 0.02", "tolerance: 0.02\ntracker: mlflow"),
    ("label_lag: 2d", "label_lag: 2d, min_labelled: 7"),
    ("1d", " 1 d "),
]
DIFFERENT = [
    ("model: triage", "model: other"),
    ("label_lag: 2d", "label_lag: 3d"),
    ("length: 1d", "length: 2d"),
    ("label: y", "label: z"),
    ("tolerance: 0.02", "tolerance: 0.02\nbounds: {seed: 1}"),
    ("tolerance: 0.02", "tolerance: 0.02\nutilities: [{type: TopK, k: 2}]"),
    ("tolerance: 0.02", "tolerance: 0.02\nsubgroups: {by: {sex: each}}"),
    ("tolerance: 0.02", "tolerance: 0.02\nreference: {start: 2024-01-01, end: 2024-01-02}"),
]


@pytest.mark.parametrize("change", SAME)
def test_the_identity_leaves_out_what_may_change_while_a_monitor_goes_on(change, folder):
    assert parse(GOOD.replace(*change), folder).identity == parse(GOOD, folder).identity


@pytest.mark.parametrize("change", DIFFERENT)
def test_the_identity_changes_with_what_changes_results(change, folder):
    assert parse(GOOD.replace(*change), folder).identity != parse(GOOD, folder).identity


def test_the_identity_follows_the_content_of_the_tree_not_its_file(folder):
    before = parse(GOOD, folder).identity
    (folder / "same.json").write_text(json.dumps(yaml.safe_load(TREE)))
    assert parse(GOOD.replace("tree.yaml", "same.json"), folder).identity == before
    (folder / "tree.yaml").write_text(TREE.replace("died: null", "died: [early, late]"))
    assert parse(GOOD, folder).identity != before


@pytest.mark.parametrize("mapping", ["names.csv", "{K a: a, 7: b}"])
def test_a_label_mapping_is_a_file_or_written_out(folder, mapping):
    (folder / "names.csv").write_text("spelling,node\nK a,a\n7,b\n")
    times = pd.date_range("2024-01-01", periods=3, freq="h", tz="UTC")
    pd.DataFrame({"at": times, "y": ["K a", "7", "b"], "a": 0.4, "b": 0.6}).to_parquet(
        folder / "spelled.parquet"
    )
    (folder / "flat.json").write_text(json.dumps(hm.LabelTree.flat(["a", "b"]).to_dict()))
    text = f"""
        model: triage
        tree: flat.json
        source: {{log: {{path: spelled.parquet}}, label_mapping: {mapping}}}
        columns: {{time: at, label: y}}
        windows: {{length: 1d}}
    """
    source = parse(text, folder).open_source()
    day = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
    assert source.labelled(*day).labels.tolist() == [0, 1, 1]


def test_probabilities_of_the_base_are_read_apart_and_change_no_identity(folder):
    log = pd.DataFrame(
        {"at": pd.date_range("2024-01-01", periods=4, freq="h", tz="UTC"), "y": list("abab")}
    )
    log["a"], log["b"] = 0.4, 0.6
    log["base_a"], log["base_b"] = [0.1, 0.2, None, None], [0.9, 0.8, None, None]
    log.to_parquet(folder / "served.parquet")
    (folder / "flat.json").write_text(json.dumps(hm.LabelTree.flat(["a", "b"]).to_dict()))
    text = """
        model: triage
        tree: flat.json
        source: {log: {path: served.parquet}}
        columns: {time: at, label: y, base_probabilities: "base_{leaf}"}
        windows: {length: 1d}
        tolerance: 0.02
    """
    config = parse(text, folder)
    plain = parse(text.replace(', base_probabilities: "base_{leaf}"', ""), folder)
    assert plain.identity == config.identity
    times = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
    assert config.open_source().labelled(*times).probabilities[:, 0].tolist() == [0.4] * 4
    base = config.open_source(base=True).labelled(*times)
    assert base.probabilities[:, 0].tolist() == [0.1, 0.2]
    assert base.labels.tolist() == [0, 1]
    with pytest.raises(hm.InvalidInputError, match=r"needs `columns.base_probabilities`"):
        plain.open_source(base=True)


def test_a_log_beside_a_table_of_labels_may_have_a_column_of_their_name(folder):
    text = GOOD.replace("label: y, ", "").replace(
        "path: log.parquet}", "path: log.parquet}\n  labels: {path: l.csv, id: id, label: seen}"
    )
    found = parse(text + "subgroups: {by: {y: each, seen: each}}\n", folder)
    assert found.feature_columns == ("y", "seen")


def test_the_policy_has_an_identity_of_its_own(folder):
    base = parse(GOOD, folder).policy_identity
    assert parse(GOOD.replace("0.02", "0.03"), folder).policy_identity != base
    assert parse(GOOD.replace("label: y", "label: z"), folder).policy_identity == base


def test_the_schema_in_the_package_is_the_schema_of_the_settings():
    stored = Path(_settings.__file__).with_name("huc.schema.json")
    assert json.loads(stored.read_text("utf-8")) == config_schema()


def test_the_schema_lists_choices_and_the_short_forms():
    schema = config_schema()
    assert schema["$defs"]["AuditOptions"]["properties"]["bounds"]["anyOf"][0]["enum"] == list(
        METHODS
    )
    short = [option.get("type") for option in schema["properties"]["tolerance"]["anyOf"]]
    assert "number" in short
    assert schema["additionalProperties"] is False


def test_every_bound_can_be_chosen():
    made = [make_bound(method, n_draws=99, seed=0) for method in METHODS]
    assert len({type(bound) for bound in made}) == len(METHODS) == 3


def test_a_source_that_cannot_be_opened_names_the_line(folder):
    text = GOOD.replace("{path: log.parquet}", "{database: no.duckdb, table: t}")
    with pytest.raises(
        ConfigError, match=r"huc.yaml:4:3: `source.log` cannot be opened: .*existing"
    ):
        parse(text, folder).open_source()


def test_subgroups_that_cannot_be_made_name_the_line(folder):
    import pandas as pd

    config = parse(GOOD + "subgroups: {by: {sex: each, age: [3, 1]}}\n", folder)
    frame = pd.DataFrame({"sex": ["f", "m"], "age": [1, 2]})
    with pytest.raises(
        ConfigError, match=r"huc.yaml:8:1: `subgroups` cannot be used: `subgroups\.by\.age`"
    ):
        config.make_subgroups(frame)
    missing = r"`subgroups\.by\.sex` must name a column with values .*; the column 'sex' has"
    with pytest.raises(ConfigError, match=missing):
        config.make_subgroups(frame.assign(sex=None))
    good = parse(GOOD + "subgroups: {by: {sex: each}}\n", folder)
    assert good.make_subgroups(frame).names == ("all", "sex=f", "sex=m")
    assert isinstance(good.tree, hm.LabelTree)


def test_clusters_and_label_probabilities_change_the_identity_only_where_they_are_given(folder):
    base = parse(GOOD, folder)
    by_user = parse(GOOD.replace("id: id", "id: id, cluster: user"), folder)
    by_hour = parse(GOOD + "clusters: {block: 1h}\n", folder)
    chosen = parse(GOOD.replace("id: id", "id: id, label_probability: pi"), folder)
    assert len({config.identity for config in (base, by_user, by_hour, chosen)}) == 4
    # What earlier versions computed for this file: its state goes on.
    plain = base.to_dict()["columns"]
    assert plain["cluster"] is plain["label_probability"] is None
    with pytest.raises(ConfigError, match=r"must not be given with `clusters.block`"):
        parse(GOOD.replace("id: id", "id: id, cluster: user") + "clusters: {block: 1h}\n", folder)
