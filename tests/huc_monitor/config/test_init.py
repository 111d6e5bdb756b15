from __future__ import annotations

import json
import re

import duckdb
import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from support.scans import profile

import huc_monitor as hm
from huc_monitor.cli import main
from huc_monitor.config import config_schema, init_config, load_config, parse_config

LEAVES = ("none", "assisted", "limited", "coma", "died")
TREE = "{survived: {milder: [none, assisted], major: [limited, coma]}, died: null}"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tree.yaml").write_text(TREE)
    return tmp_path


def make_log(n: int = 4_000, *, freq: str = "2min", wrong: float = 1.0) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    logits = 1.5 * rng.normal(size=(n, 5)) + np.linspace(1, -1, 5)
    truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    served = truth**wrong / (truth**wrong).sum(axis=1, keepdims=True)
    label = (truth.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    names = np.array(LEAVES, dtype=object)
    return pd.DataFrame(
        {
            "request_id": [f"r{i}" for i in range(n)],
            "predicted_at": pd.date_range("2024-03-01", periods=n, freq=freq, tz="UTC"),
            **{f"prob_{leaf}": served[:, k] for k, leaf in reversed(list(enumerate(LEAVES)))},
            "predicted_class": names[served.argmax(axis=1)],
            "outcome": names[label],
            "sex": rng.choice(["f", "m"], n),
            "age": rng.integers(18, 95, n),
            "model_version": 7,
            "day": pd.date_range("2024-03-01", periods=n, freq=freq, tz="UTC").strftime("%Y-%m-%d"),
        }
    )


def read(text: str, folder):
    config = parse_config(text, folder=folder)
    source = config.open_source()
    extent = source.time_range()
    return config, source, extent


def test_a_leaf_that_is_called_as_keys_are_is_no_key(folder):
    log = make_log().drop(columns="day")
    log = log.rename(columns={"prob_died": "prob_order"}).replace({"died": "order"})
    log.to_parquet(folder / "log.parquet")
    (folder / "orders.yaml").write_text(TREE.replace("died", "order"))
    text = init_config(folder / "log.parquet", folder / "orders.yaml", folder=folder)
    assert read(text, folder)[1].columns.keys == ()


def test_a_parquet_log_needs_nothing_but_its_tree(folder):
    log = make_log().drop(columns="day")
    log.to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    config, source, _ = read(text, folder)
    columns = config.settings.columns
    assert (columns.time, columns.id, columns.label) == ("predicted_at", "request_id", "outcome")
    assert columns.probabilities.pattern == "prob_{leaf}"
    assert columns.model_version == "model_version"
    assert config.settings.subgroups.by == {"sex": "each"}
    assert "#   age: median" in text
    assert config.settings.windows.length == "1d"
    assert config.settings.source.log.path == "log.parquet"
    window = source.labelled(*config.reference)
    assert window.n == window.n_predictions > 500
    names = np.array(config.tree.leaves)[window.labels]
    assert names.tolist() == log["outcome"].iloc[: window.n].tolist()


def test_a_column_that_the_window_tells_is_no_subgroup(folder):
    log = make_log(20_000).drop(columns="day")
    days = log["predicted_at"].dt
    log.assign(weekday=days.weekday, day_of_month=days.day).to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    assert read(text, folder)[0].feature_columns == ("sex",)
    assert "# Not by weekday, day_of_month: almost all rows of one window" in text
    assert "age: median" in text


def test_rows_in_the_future_are_told_and_left_out(folder):
    log = make_log().drop(columns="day")
    log.to_parquet(folder / "log.parquet")
    place = folder / "log.parquet", folder / "tree.yaml"
    without = init_config(*place, folder=folder)
    wrong = log.iloc[:1].assign(predicted_at=pd.Timestamp("2206-03-01", tz="UTC"), request_id="w")
    pd.concat([log, wrong], ignore_index=True).to_parquet(folder / "log.parquet")
    with pytest.warns(hm.HUCWarning, match=r"1 of 4,001 rows lie in the future \(the last: 2206"):
        text = init_config(*place, folder=folder)
    assert "# 1 of 4,001 rows lie in the future" in text
    assert text[text.index("version:") :] == without[without.index("version:") :]


def test_rows_long_before_the_rest_are_told_and_left_out(folder):
    log = make_log().drop(columns="day")
    log.to_parquet(folder / "log.parquet")
    place = folder / "log.parquet", folder / "tree.yaml"
    without = init_config(*place, folder=folder)
    wrong = log.iloc[:1].assign(predicted_at=pd.Timestamp(0, tz="UTC"), request_id="w")
    pd.concat([log, wrong], ignore_index=True).to_parquet(folder / "log.parquet")
    said = "1 of 4,001 rows lie 19,783 days and more before the rest, which begins 2024-03-01"
    with pytest.warns(hm.HUCWarning, match=said):
        text = init_config(*place, folder=folder)
    assert "# 1 of 4,001 rows lie 19,783 days" in text
    begin = "  begin: 2024-03-01  # no window starts earlier\n"
    assert text[text.index("version:") :].replace(begin, "") == without[without.index("version:") :]
    config, source, _ = read(text, folder)
    assert next(config.windows.ranges(source, None))[0] == config.reference[0]


def test_a_log_that_grows_begins_with_its_first_row(folder):
    log = make_log().drop(columns="day")
    first = log["predicted_at"][0]
    log["predicted_at"] = first + pd.to_timedelta(200 * np.linspace(0, 1, len(log)) ** 0.1, "D")
    log.to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    assert "  begin:" not in text


def test_the_tolerance_is_what_chance_does_and_a_real_excess_is_told(folder):
    make_log(20_000).to_parquet(folder / "fine.parquet")
    make_log(20_000, wrong=2.0).to_parquet(folder / "wrong.parquet")
    fine = init_config(folder / "fine.parquet", folder / "tree.yaml", folder=folder)
    wrong = init_config(folder / "wrong.parquet", folder / "tree.yaml", folder=folder)
    tolerances = [parse_config(t, folder=folder).settings.tolerance.value for t in (fine, wrong)]
    assert all(0.02 < tolerance < 0.12 for tolerance in tolerances)
    assert "chance alone moves the largest moment" in " ".join(fine.split())
    assert "real and above the tolerance" not in " ".join(fine.replace("#", "").split())
    assert "real and above the tolerance" in " ".join(wrong.replace("#", "").split())


def test_labels_that_are_no_node_of_the_tree_are_told(folder):
    log = make_log()
    log.loc[::60, "outcome"] = "transferred"
    log.to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    said = " ".join(text.replace("#", "").split())
    assert "Labels that are no node of the tree: 'transferred' (" in said
    assert "Put it into the tree, or into `source.label_mapping` (" in said


@pytest.mark.parametrize("apart", [False, True])
def test_labels_in_other_spellings_are_read_by_a_mapping(apart, folder, capsys):
    log = make_log().drop(columns="day")
    log["outcome"] = log["outcome"].replace({"died": "Death", "coma": "Coma"})
    log.loc[5, "outcome"] = "unknown"
    command = ["init", str(folder / "log.parquet"), "--tree", str(folder / "tree.yaml")]
    command += ["--out", str(folder / "huc.yaml"), "--label", "outcome"]
    if apart:
        log[["request_id", "outcome"]].to_csv(folder / "labels.csv", index=False)
        log = log.drop(columns="outcome")
        command += ["--labels", str(folder / "labels.csv")]
    log.to_parquet(folder / "log.parquet")
    assert main(command) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--label-mapping of commands that take a file). Or repair these rows:" in said
    (folder / "names.csv").write_text("spelling,node\nDeath,died\nComa,coma\n")
    command = [word for word in command if word not in {"--label", "outcome"}]
    assert main([*command, "--label-mapping", str(folder / "names.csv")]) == 0
    config = load_config(folder / "huc.yaml")
    assert config.settings.source.label_mapping == "names.csv"
    assert config.open_source().labelled(*config.reference).n_quarantined == 1


def test_labels_in_a_late_table_are_found_with_the_time_they_take(folder):
    log = make_log()
    labels = pd.DataFrame(
        {
            "request_id": log["request_id"],
            "true_label": log["outcome"],
            "labelled_at": log["predicted_at"] + pd.Timedelta(hours=49),
        }
    )
    log.drop(columns=["outcome", "day"]).to_parquet(folder / "log.parquet")
    labels.iloc[: len(labels) * 3 // 4].to_parquet(folder / "labels.parquet")
    text = init_config(
        folder / "log.parquet",
        folder / "tree.yaml",
        labels=folder / "labels.parquet",
        folder=folder,
    )
    config, source, extent = read(text, folder)
    found = config.settings.source.labels
    assert (found.id, found.label, found.time) == ("request_id", "true_label", "labelled_at")
    assert config.settings.windows.label_lag == "3d"
    assert source.labelled(extent.first, extent.last).n_labelled == 3_000
    with pytest.raises(hm.InvalidInputError, match="labels are elsewhere, where with --labels"):
        init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)


@pytest.mark.parametrize("at", [2, 400])
def test_a_label_time_that_cannot_be_read_does_not_cost_the_column(at, folder):
    log = make_log().drop(columns="day")
    known = (log["predicted_at"] + pd.Timedelta(hours=49)).dt.strftime("%Y-%m-%d %H:%M:%S")
    known[at] = "soon"
    labels = log[["request_id", "outcome"]].assign(labelled_at=known)
    labels.to_csv(folder / "labels.csv", index=False)
    log.loc[9, "predicted_at"] = None
    log.drop(columns="outcome").to_parquet(folder / "log.parquet")
    place = {"labels": folder / "labels.csv", "folder": folder}
    said = "'labelled_at' holds no time that can be read in 1 of 4,000 rows looked at, such as 'so"
    with pytest.warns(hm.HUCWarning, match=said):
        text = init_config(folder / "log.parquet", folder / "tree.yaml", **place)
    assert f"    time: labelled_at  # {said}on'\n" in text
    config = read(text, folder)[0]
    assert config.settings.source.labels.time == "labelled_at"
    assert config.settings.windows.label_lag == "3d"


def test_the_time_that_labels_take_is_that_of_those_whose_time_can_be_read(folder):
    log = make_log()
    known = log["predicted_at"] + pd.Timedelta(hours=49)
    labels = pd.DataFrame({"request_id": log["request_id"], "outcome": log["outcome"]})
    labels["labelled_at"] = known.dt.strftime("%Y-%m-%d %H:%M:%S").where(labels.index != 7)
    log.drop(columns=["outcome", "day"]).to_parquet(folder / "log.parquet")
    labels.to_csv(folder / "labels.csv", index=False)
    text = init_config(
        folder / "log.parquet", folder / "tree.yaml", labels=folder / "labels.csv", folder=folder
    )
    assert read(text, folder)[0].settings.windows.label_lag == "3d"


def test_folders_that_follow_the_time_are_used_and_others_are_not(folder):
    log = make_log()
    for name, shift in (("good", 0), ("bad", 1)):
        moved = (log["predicted_at"] + pd.Timedelta(days=shift)).dt.strftime("%Y-%m-%d")
        for day, rows in log.drop(columns="day").groupby(moved):
            place = folder / name / f"day={day}"
            place.mkdir(parents=True)
            rows.to_parquet(place / "a.parquet")
    good = init_config(folder / "good", folder / "tree.yaml", folder=folder)
    assert parse_config(good, folder=folder).settings.source.log.partition.columns == {
        "day": "%Y-%m-%d"
    }
    bad = init_config(folder / "bad", folder / "tree.yaml", folder=folder)
    assert parse_config(bad, folder=folder).settings.source.log.partition is None


@pytest.mark.seconds
def test_year_month_and_day_folders_are_understood(folder):
    log = make_log(30_000)
    parts = [log["predicted_at"].dt.strftime(form) for form in ("%Y", "%m", "%d")]
    for (year, month, day), rows in log.drop(columns="day").groupby(parts):
        place = folder / "log" / f"year={year}" / f"month={month}" / f"day={day}"
        place.mkdir(parents=True)
        rows.to_parquet(place / "a.parquet")
    text = init_config(folder / "log", folder / "tree.yaml", folder=folder)
    config, source, _ = read(text, folder)
    assert config.settings.source.log.partition.columns == {
        "year": "%Y",
        "month": "%m",
        "day": "%d",
    }
    start, end = pd.Timestamp("2024-03-31", tz="UTC"), pd.Timestamp("2024-04-02", tz="UTC")
    assert source.labelled(start, end).n == log["predicted_at"].between(start, end).sum() - 1
    found = profile(source, start, end)
    assert found.n_files_read < found.n_files


@pytest.mark.parametrize("order", ["tree", "alphabet"])
def test_the_order_of_a_list_is_chosen_by_the_labels_and_said(folder, order):
    log = make_log().drop(columns="day")
    tree = hm.LabelTree.from_file(folder / "tree.yaml")
    classes = list(tree.leaves) if order == "tree" else sorted(tree.leaves)
    lists = log[[f"prob_{leaf}" for leaf in classes]].to_numpy().tolist()
    log = log[["request_id", "predicted_at", "outcome"]].assign(scores=lists)
    log.to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    config = parse_config(text, folder=folder)
    assert config.settings.columns.probabilities.list == "scores"
    assert list(config.settings.columns.probabilities.classes) == classes
    assert "the log does not say the order of the list" in text


def test_rounded_probabilities_and_odd_spellings_are_no_obstacle(folder):
    log = make_log().drop(columns="day")
    renamed = {f"prob_{leaf}": f"P({leaf.title()})" for leaf in LEAVES}
    log = log.round(dict.fromkeys(renamed, 3)).rename(columns=renamed)
    log.to_csv(folder / "log.csv", index=False)
    text = init_config(folder / "log.csv", folder / "tree.yaml", folder=folder)
    config, source, extent = read(text, folder)
    assert config.settings.columns.probabilities.columns["coma"] == "P(Coma)"
    assert "probabilities are rounded" in text
    assert source.labelled(extent.first, extent.last).n > 3_900


def test_a_duckdb_file_and_a_database_in_a_variable_work_alike(folder, monkeypatch):
    log = make_log().drop(columns="day")
    with duckdb.connect(folder / "log.duckdb") as connection:
        connection.register("given", log)
        connection.execute("CREATE TABLE served AS SELECT * FROM given")
    engine = sa.create_engine(f"sqlite:///{folder / 'log.sqlite'}")
    texts = log["predicted_at"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    log.assign(predicted_at=texts).to_sql("served", engine, index=False)
    engine.dispose()
    monkeypatch.setenv("LOG_URL", f"sqlite:///{folder / 'log.sqlite'}")
    found = []
    for place in (str(folder / "log.duckdb"), "${LOG_URL}"):
        text = init_config(place, folder / "tree.yaml", table="served", folder=folder)
        assert str(folder) not in text
        _, source, extent = read(text, folder)
        found.append(source.labelled(extent.first, extent.last))
    assert found[0].ids.tolist() == found[1].ids.tolist()
    assert found[0].n == 3_999


def test_epoch_times_are_recognised(folder):
    log = make_log().drop(columns="day")
    log["predicted_at"] = log["predicted_at"].dt.as_unit("ms").astype("int64")
    log.to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    config, source, _ = read(text, folder)
    assert config.settings.columns.time_unit == "ms"
    assert source.time_range().first == pd.Timestamp("2024-03-01", tz="UTC")


def test_a_small_log_gets_windows_by_count(folder):
    make_log(300, freq="1h").to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    config = parse_config(text, folder=folder)
    assert config.settings.windows.n_rows == 75


@pytest.mark.parametrize(("every", "n_rows"), [(10, 1_000), (80, 4_000)])
def test_windows_are_longer_where_few_predictions_have_a_label(every, n_rows, folder):
    log = make_log().drop(columns="day")
    log.loc[np.arange(len(log)) % every > 0, "outcome"] = None
    log.to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    settings = parse_config(text, folder=folder).settings
    assert settings.windows.n_rows == n_rows, "a quarter of the labels, and not fewer than 50"
    assert settings.windows.min_labelled <= n_rows / every
    assert settings.tolerance.value < 0.5


def test_labels_too_few_for_any_window_are_told(folder):
    log = make_log().drop(columns="day")
    log.loc[np.arange(len(log)) % 200 > 0, "outcome"] = None
    log.to_parquet(folder / "log.parquet")
    few = "The log has about 20 labels, too few for an audit: the first window ends when"
    with pytest.warns(hm.HUCWarning, match=few):
        text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    assert few in " ".join(text.replace("#", "").split())
    settings = parse_config(text, folder=folder).settings
    assert (settings.windows.n_rows, settings.tolerance.value) == (10_000, 0.22)


def test_a_log_whose_older_half_has_no_label_is_refused(folder):
    log = make_log().drop(columns="day")
    log.loc[:2_100, "outcome"] = None
    log.to_parquet(folder / "log.parquet")
    with pytest.raises(hm.InvalidInputError, match=r"older half of .*newer ones .*these alone"):
        init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)


def test_a_few_ids_that_meet_are_told(folder):
    log = make_log().drop(columns="day")
    labels = log[["request_id", "outcome"]]
    other = labels["request_id"].where(labels.index % 400 == 0, labels["request_id"].str.upper())
    labels.assign(request_id=other).to_parquet(folder / "labels.parquet")
    log.drop(columns="outcome").to_parquet(folder / "log.parquet")
    place = {"labels": folder / "labels.parquet", "folder": folder}
    with pytest.warns(hm.HUCWarning) as told:
        text = init_config(folder / "log.parquet", folder / "tree.yaml", **place)
    said = str(told[0].message)
    assert "5 of 2,000 ids in 'request_id' of" in said
    assert "they differ in upper and lower case; write them alike in both" in said
    assert "    # 5 of 2,000 ids in " in text


def test_a_label_by_another_name_is_proposed_and_not_just_taken(folder):
    log = make_log().drop(columns="day").rename(columns={"outcome": "category"})
    log.to_parquet(folder / "log.parquet")
    place = folder / "log.parquet", folder / "tree.yaml"
    with pytest.raises(hm.InvalidInputError, match=r"By its values it may be: --label category\."):
        init_config(*place, folder=folder)
    text = init_config(*place, folder=folder, columns={"label": "category"})
    config, source, extent = read(text, folder)
    assert config.settings.columns.label == "category"
    assert source.labelled(extent.first, extent.last).n > 0
    log.assign(reviewed=log["category"]).to_parquet(folder / "log.parquet")
    with pytest.raises(hm.InvalidInputError, match="--label category or --label reviewed"):
        init_config(*place, folder=folder)


def test_a_missing_leafs_column_is_named(folder):
    log = make_log().drop(columns="day")
    log.drop(columns=f"prob_{LEAVES[2]}").to_parquet(folder / "log.parquet")
    with pytest.raises(
        hm.InvalidInputError, match=rf"4 of 5 columns match `prob_{{leaf}}`; missing: {LEAVES[2]}\."
    ):
        init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: 100 * p, r"all 5 columns `prob_{leaf}`, but they sum to 100 in .*by 100"),
        (lambda p: 0.9 * p, r"they sum to 0\.9 in the first row\. Divide each by their sum"),
        (lambda p: p.astype(str) + " %", r"but they hold \['0\..* %'.*not all numbers"),
    ],
)
def test_probabilities_that_do_not_sum_to_1_are_said_to_be_there(change, message, folder):
    log = make_log(200).drop(columns="day")
    names = [f"prob_{leaf}" for leaf in LEAVES]
    log.assign(**change(log[names])).to_parquet(folder / "log.parquet")
    with pytest.raises(hm.InvalidInputError, match=message):
        init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)


@pytest.mark.parametrize("columns", [{}, {"time": "predicted_at"}])
def test_a_time_that_cannot_be_read_is_shown(columns, folder):
    log = make_log(200).drop(columns="day")
    texts = log["predicted_at"].dt.strftime("%d.%m.%Y %H:%M")
    log.assign(predicted_at=texts).to_parquet(folder / "log.parquet")
    with pytest.raises(hm.InvalidInputError, match=r"'predicted_at' .* holds '01\.03\.2024 00:00'"):
        init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder, columns=columns)


def test_dates_of_a_csv_log_are_not_read_in_a_guessed_order(folder):
    log = make_log(4_000).drop(columns="day")
    at = log["predicted_at"]
    log = log.assign(predicted_at=at.dt.strftime("%m/%d/%Y %H:%M:%S"))
    log.to_csv(folder / "log.csv", index=False)
    place = folder / "log.csv", folder / "tree.yaml"
    message = r"'predicted_at' .* holds '03/01/2024 00:00:00'.*is the day first, or the month\?"
    for columns in ({}, {"time": "predicted_at"}):
        with pytest.raises(hm.InvalidInputError, match=message):
            init_config(*place, folder=folder, columns=columns)
    # Nor is another column taken in its place.
    log.assign(stored=at + pd.Timedelta(days=9)).to_csv(folder / "log.csv", index=False)
    with pytest.raises(hm.InvalidInputError, match=message):
        init_config(*place, folder=folder)
    text = init_config(*place, folder=folder, columns={"time": "stored"})
    assert "time: stored" in text
    birthdays = log.assign(predicted_at=at, date_of_birth="03/04/1971")
    birthdays.to_csv(folder / "log.csv", index=False)
    assert "time: predicted_at" in init_config(*place, folder=folder)


def test_dates_of_csv_labels_are_not_read_in_a_guessed_order(folder):
    log = make_log(200).drop(columns="day")
    labels = log[["request_id", "outcome"]]
    known = (log["predicted_at"] + pd.Timedelta(hours=5)).dt.strftime("%m/%d/%Y %H:%M")
    labels.assign(known_at=known).to_csv(folder / "labels.csv", index=False)
    log.drop(columns="outcome").to_parquet(folder / "log.parquet")
    place = folder / "log.parquet", folder / "tree.yaml"
    with pytest.raises(hm.InvalidInputError, match=r"'known_at' .* holds '03/01/2024 05:00'"):
        init_config(*place, folder=folder, labels=folder / "labels.csv")


def test_labels_in_another_spelling_are_told_as_such(folder):
    log = make_log(200).drop(columns="day")
    log["outcome"] = log["outcome"].str.upper()
    log.to_parquet(folder / "log.parquet")
    place = folder / "log.parquet", folder / "tree.yaml"
    message = r"'outcome' holds '[A-Z]+'\. Did you mean '[a-z]+'\? .*label_mapping"
    with pytest.raises(hm.InvalidInputError, match=message):
        init_config(*place, folder=folder)
    with pytest.raises(hm.InvalidInputError, match=message):
        init_config(*place, folder=folder, labels=folder / "log.parquet")


def test_ids_that_repeat_are_said_to_repeat(folder):
    log = make_log(200).drop(columns="day")
    log["request_id"] = [f"r{i // 10}" for i in range(200)]
    log.drop(columns="outcome").to_parquet(folder / "log.parquet")
    log[["request_id", "outcome"]].to_csv(folder / "labels.csv", index=False)
    given = {"labels": folder / "labels.csv", "folder": folder}
    message = r"'request_id' has 20 values in 200 rows; 'r0' comes 10 times"
    with pytest.raises(hm.InvalidInputError, match=message):
        init_config(folder / "log.parquet", folder / "tree.yaml", **given)


@pytest.mark.parametrize("labels_apart", [False, True])
def test_ids_of_which_a_few_come_again_or_are_missing_are_taken_and_told(labels_apart, folder):
    log = make_log().drop(columns="day")
    log["number"] = np.arange(len(log), dtype=np.int64)
    log = log.drop(columns="request_id").rename(columns={"number": "request_id"})
    log = pd.concat([log, log.iloc[::20]], ignore_index=True).astype({"request_id": "Int64"})
    log.loc[[5, 7], "request_id"] = None
    place: dict[str, object] = {"folder": folder}
    if labels_apart:
        labels = log[["request_id", "outcome"]].dropna().drop_duplicates("request_id")
        labels.to_parquet(folder / "labels.parquet")
        log, place["labels"] = log.drop(columns="outcome"), folder / "labels.parquet"
    log.to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", **place)
    said = "200 repeated (an id counts once), 2 without an id"
    assert f"  id: request_id  # of 4,200 rows looked at, {said}\n" in text
    _, source, extent = read(text, folder)
    data = source.labelled(extent.first, extent.last)
    assert data.n_duplicate_ids == 200
    assert data.n == 3_999 - (2 if labels_apart else 0), "the range leaves out the last row"


def test_a_user_who_comes_again_with_another_prediction_has_no_id(folder):
    log = make_log().drop(columns="day").rename(columns={"request_id": "user_id"})
    log["user_id"] = np.where(np.arange(len(log)) % 20, log["user_id"], log["user_id"].shift(7))
    log.to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    assert read(text, folder)[0].settings.columns.id is None


def test_a_session_whose_rows_have_one_prediction_has_no_id(folder):
    log = make_log().drop(columns="day").rename(columns={"request_id": "session_id"})
    log = log.loc[np.repeat(np.arange(0, len(log), 4), 4)].assign(predicted_at=log["predicted_at"])
    log.to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    columns = read(text, folder)[0].settings.columns
    assert (columns.id, columns.cluster) == (None, "session_id")


def test_a_log_with_retries_is_refused_with_the_option_that_takes_it(folder):
    log = make_log(400).drop(columns="day")
    log["request_id"] = [f"r{i}" for i in range(400)]
    log = pd.concat([log, log.iloc[:80]])
    log.drop(columns="outcome").to_parquet(folder / "log.parquet")
    labels = log[["request_id", "outcome"]].drop_duplicates("request_id")
    labels.to_csv(folder / "labels.csv", index=False)
    given = {"labels": folder / "labels.csv", "folder": folder}
    with pytest.raises(hm.InvalidInputError, match=r"where these are retries, say --id request_id"):
        init_config(folder / "log.parquet", folder / "tree.yaml", **given)
    taken = {**given, "columns": {"id": "request_id"}}
    text = init_config(folder / "log.parquet", folder / "tree.yaml", **taken)
    assert read(text, folder)[0].settings.columns.id == "request_id"


def test_names_that_need_quotes_survive_the_file(folder):
    weird = 'age"; DROP TABLE x: #'
    log = make_log().drop(columns="day").rename(columns={"sex": weird, "outcome": "true label: é"})
    log.to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder, model="no: 1")
    config, source, extent = read(text, folder)
    assert config.settings.model.name == "no: 1"
    assert config.settings.columns.label == "true label: é"
    assert config.feature_columns == (weird,)
    assert set(source.labelled(extent.first, extent.last).features[weird]) == {"f", "m"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda log: log.drop(columns="prob_coma"),
            r"must have a column of numbers per leaf .*found",
        ),
        (lambda log: log.drop(columns="predicted_at"), r"must have a column of times; found none"),
        (
            lambda log: log.rename(columns={"predicted_at": "x1"}).assign(x2=lambda f: f["x1"]),
            r"column of times; found several: x1, x2",
        ),
        (lambda log: log.drop(columns="outcome"), r"must have a column of labels"),
        (lambda log: log.assign(outcome="unknown"), r"must have a column of labels"),
        (lambda log: log.iloc[:0], r"must have rows to look at"),
    ],
)
def test_what_cannot_be_found_is_answered_with_what_is_there(change, message, folder):
    change(make_log(200).drop(columns="day")).to_parquet(folder / "log.parquet")
    with pytest.raises(hm.InvalidInputError, match=message) as caught:
        init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    if "rows" not in message:
        assert "request_id (VARCHAR)" in str(caught.value)


def test_a_column_of_predictions_that_is_no_leaf_is_named_where_rows_miss_one(folder):
    place = folder / "log.parquet", folder / "tree.yaml"
    log = make_log().drop(columns="day")
    leaves = [name for name in log if name.startswith("prob_")]
    log.assign(prob_drone=0.03, **0.97 * log[leaves]).to_parquet(place[0])
    with pytest.raises(hm.InvalidInputError, match=r"sum to 0.97 .* the log also has 'prob_drone'"):
        init_config(*place, folder=folder)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("postgresql://u:hunter2@h/d", r"must not be a database URL.*environment variable"),
        ("${NOT_SET_ANYWHERE}", r"needs the environment variable NOT_SET_ANYWHERE"),
        ("x.duckdb", r"name the table to read, with --table"),
        ("no.parquet", r"could not be read"),
    ],
)
def test_a_place_that_cannot_be_opened_is_refused(log, message, folder):
    with pytest.raises(hm.InvalidInputError, match=message) as caught:
        init_config(log, folder / "tree.yaml", folder=folder)
    assert "hunter2" not in str(caught.value)


def test_the_command_writes_a_file_once(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    make_log().drop(columns="day").to_parquet("log.parquet")
    assert main(["init", "log.parquet", "--tree", "tree.yaml"]) == 0
    assert "Wrote huc.yaml" in capsys.readouterr().out
    before = (folder / "huc.yaml").read_text()
    assert load_config("huc.yaml").open_source().time_range() is not None
    assert main(["init", "log.parquet", "--tree", "tree.yaml"]) == 2
    assert "'huc.yaml' exists. Use --force" in capsys.readouterr().err
    (folder / "huc.yaml").write_text("mine")
    assert main(["init", "log.parquet", "--tree", "tree.yaml", "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"status": "ok", "path": "huc.yaml"}
    assert (folder / "huc.yaml").read_text() == before
    assert sorted(path.name for path in folder.iterdir()) == [
        "huc.yaml",
        "log.parquet",
        "tree.yaml",
    ]


def test_the_command_prints_the_schema_and_names_what_is_missing(capsys):
    assert main(["init", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == config_schema()
    assert main(["init", "--tree", "x.yaml"]) == 2
    assert "`LOG` must be given" in capsys.readouterr().err
    assert main(["init", "x.parquet"]) == 2
    assert "`--tree` must be given" in capsys.readouterr().err


def test_ids_are_found_by_their_values_where_names_do_not_tell(folder):
    log = make_log().drop(columns=["day", "model_version"])
    labels = log[["request_id", "outcome"]].rename(columns={"request_id": "ticket"})
    labels = pd.concat([labels, labels.head(100)]).assign(clerk="a")
    renamed = log.drop(columns="outcome").rename(columns={"request_id": "reference"})
    renamed.assign(line=range(len(log))).to_parquet(folder / "log.parquet")
    labels.to_parquet(folder / "labels.parquet")
    text = init_config(
        folder / "log.parquet",
        folder / "tree.yaml",
        labels=folder / "labels.parquet",
        folder=folder,
    )
    config, source, _ = read(text, folder)
    assert config.settings.columns.id == "reference"
    assert config.settings.source.labels.id == "ticket"
    assert source.labelled(*config.reference).n > 500


def test_the_only_column_of_leaves_in_a_table_of_labels_is_the_label(folder):
    log = make_log().drop(columns="day")
    labels = log[["request_id", "outcome"]].rename(columns={"outcome": "category"})
    log.drop(columns="outcome").to_parquet(folder / "log.parquet")
    labels.to_parquet(folder / "labels.parquet")
    place = {"labels": folder / "labels.parquet", "folder": folder}
    text = init_config(folder / "log.parquet", folder / "tree.yaml", **place)
    config, _, _ = read(text, folder)
    assert config.settings.source.labels.label == "category"
    labels.assign(reviewed=labels["category"]).to_parquet(folder / "labels.parquet")
    with pytest.raises(hm.InvalidInputError, match=r"has 2.*--label category or --label reviewed"):
        init_config(folder / "log.parquet", folder / "tree.yaml", **place)
    labels.drop(columns="category").to_parquet(folder / "labels.parquet")
    with pytest.raises(hm.InvalidInputError, match=r"has 0.*which is meant: --label"):
        init_config(folder / "log.parquet", folder / "tree.yaml", **place)


def test_labels_whose_ids_meet_nothing_are_refused_with_both_lists(folder):
    log = make_log().drop(columns="day")
    log.drop(columns="outcome").to_parquet(folder / "log.parquet")
    labels = pd.DataFrame({"ticket": [f"t{i}" for i in range(99)], "outcome": log["outcome"][:99]})
    labels.to_parquet(folder / "labels.parquet")
    with pytest.raises(hm.InvalidInputError, match="Say which with --id and --labels-id"):
        init_config(folder / "log.parquet", folder / "tree.yaml", labels=folder / "labels.parquet")


def written(log, **ways):
    """Tables of a log and its labels, whose ids are numbers written in the ways given."""
    numbers = pd.Series(range(len(log)))
    mine, theirs = (numbers.map(ways[name]) for name in ("mine", "theirs"))
    labels = pd.DataFrame({"request_id": theirs, "outcome": log["outcome"]})
    return log.drop(columns="outcome").assign(request_id=mine), labels


@pytest.mark.parametrize(
    ("mine", "theirs", "shown", "difference"),
    [
        ("{:09d}".format, int, ("000000000", "0"), "leading zeros"),
        ("R{}".format, "r{}".format, ("R0", "r0"), "upper and lower case"),
        ("x{}".format, " x{} ".format, ("x0", " x0 "), "surrounding spaces"),
        ("{}.0".format, "n{}.0".format, ("0.0", "n0.0"), None),
        ("{}.0".format, str, ("0.0", "0"), "'.0' at the end"),
        ("{}.0".format, "{:09d}".format, ("0.0", "000000000"), "'.0' at the end and leading zeros"),
    ],
)
def test_ids_that_two_tables_write_differently_are_told(folder, mine, theirs, shown, difference):
    log, labels = written(make_log().drop(columns="day"), mine=mine, theirs=theirs)
    log.to_parquet(folder / "log.parquet")
    labels.to_parquet(folder / "labels.parquet")
    place = {"labels": folder / "labels.parquet", "folder": folder}
    unmet = "No prediction of the older half of .*: 0 of 2,000 ids in 'request_id' of"
    with pytest.raises(hm.InvalidInputError, match=unmet) as caught:
        init_config(folder / "log.parquet", folder / "tree.yaml", **place)
    said = str(caught.value)
    assert all(f"(such as {one!r})" in said for one in shown)
    assert "have a label by 'request_id' of" in said
    if difference is None:
        assert "check which columns hold the ids: columns.id and source.labels.id (--id" in said
    else:
        assert f": they differ in {difference}; write them alike in both" in said
    labels.rename(columns={"request_id": "ticket"}).to_parquet(folder / "labels.parquet")
    refused = f"they differ in {difference}. Write" if difference else "Say which with --id"
    with pytest.raises(hm.InvalidInputError, match=re.escape(refused)):
        init_config(folder / "log.parquet", folder / "tree.yaml", **place)


def test_ids_that_are_text_in_one_table_and_numbers_in_the_other_are_joined_and_not_told(folder):
    log, labels = written(make_log().drop(columns="day"), mine=str, theirs=int)
    log.to_parquet(folder / "log.parquet")
    labels.to_parquet(folder / "labels.parquet")
    place = {"labels": folder / "labels.parquet", "folder": folder}
    text = init_config(folder / "log.parquet", folder / "tree.yaml", **place)
    assert "100% of the older half with a label" in text


@pytest.mark.parametrize("apart", [False, True])
def test_the_share_with_a_label_is_said_to_be_that_of_the_older_half(apart, folder):
    log = make_log().drop(columns="day")
    log.loc[np.arange(4_000) % 5 == 0, "outcome"] = None
    log.loc[3_000:, "outcome"] = None
    place: dict[str, object] = {"folder": folder}
    if apart:
        log[["request_id", "outcome"]].dropna().to_parquet(folder / "labels.parquet")
        log, place["labels"] = log.drop(columns="outcome"), folder / "labels.parquet"
    log.to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", **place)
    assert "a day, 80% of the older half with a label." in text


def test_columns_can_be_named_on_the_command_line(folder, capsys):
    log = make_log().drop(columns="day").assign(shown=make_log()["predicted_at"])
    log = log.assign(second_opinion=log["outcome"].iloc[::-1].to_numpy())
    log.to_parquet(folder / "log.parquet")
    out = folder / "huc.yaml"
    command = ["init", str(folder / "log.parquet"), "--tree", str(folder / "tree.yaml")]
    options = ["--time", "shown", "--label", "second_opinion", "--id", "request_id"]
    assert main([*command, *options, "--out", str(out)]) == 0
    columns = load_config(out).settings.columns
    assert (columns.time, columns.label, columns.id) == ("shown", "second_opinion", "request_id")
    assert main([*command, "--time", "showm", "--out", str(out), "--force"]) == 2
    assert "Did you mean 'shown'?" in capsys.readouterr().err
    assert main([*command, "--labels-id", "x", "--out", str(out), "--force"]) == 2


def test_the_detector_is_given_a_smaller_tolerance_than_a_noisy_window(folder):
    make_log().drop(columns="day").to_parquet(folder / "log.parquet")
    text = init_config(folder / "log.parquet", folder / "tree.yaml", folder=folder)
    settings = parse_config(text, folder=folder).settings
    assert settings.sequential.tolerance < settings.tolerance.value


def test_the_tolerance_leaves_room_above_what_the_reference_shows(tmp_path, monkeypatch):
    from support.production_log import TREE as NESTED
    from support.production_log import make_log as production_log

    from huc_monitor.config import _init

    found = _init._Pilot(chance=0.03, largest=0.05, lower=0.01, radius=0.04, finding="so")
    monkeypatch.setattr(_init, "_pilot", lambda *_: found)
    log, labels = production_log(6, 600)
    log.assign(label=labels.sort_values("id")["label"].to_numpy()).to_parquet(
        tmp_path / "log.parquet"
    )
    (tmp_path / "tree.json").write_text(json.dumps(NESTED), "utf-8")
    text = _init.init_config(tmp_path / "log.parquet", tmp_path / "tree.json", folder=tmp_path)
    assert "\ntolerance: 0.1\n" in text, "0.05 and sqrt(0.03^2 + 0.04^2) on top"
