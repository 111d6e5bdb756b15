"""``huc-monitor sample`` writes a plan, and a check reads it back."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from support.production_log import after, make_log, write_project

from huc_monitor.cli import main
from huc_monitor.config.opening import open_monitor


@pytest.fixture
def project(tmp_path):
    log, labels = make_log(3, 1500)
    rng = np.random.default_rng(0)
    truth = labels.set_index("id")["label"].reindex(log["id"]).to_numpy()
    other = rng.choice(labels["label"].unique(), len(log))
    log["judge"] = np.where(rng.random(len(log)) < 0.9, truth, other)
    return write_project(tmp_path, log, labels, more=""), log, labels


def sample(path, *more):
    return main(["sample", "--config", str(path), "--out", str(path.parent / "plan.csv"), *more])


def test_a_plan_is_written_read_back_and_weighs_the_labels(project, capsys):
    path, log, _ = project
    assert sample(path, "--budget", "400", "--window", "2024-03-02", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["n_rows"] == 1500
    assert said["n_chosen"] == 400
    assert said["saving"] > 0
    plan = pd.read_csv(path.parent / "plan.csv")
    assert list(plan) == ["id", "label_probability", "label"]
    assert set(plan["id"]) <= set(log["id"][log["at"].dt.day == 2])
    text = path.read_text("utf-8").replace(
        "  log: {path: log}", "  log: {path: log}\n  plan: {path: plan.csv}"
    )
    path.write_text(text, "utf-8")
    source = open_monitor(path).source
    day = source.labelled(after(1), after(2))
    chance = plan.set_index("id")["label_probability"]
    assert day.n == 400
    assert day.label_probability == pytest.approx(chance[list(day.ids)].to_numpy())
    assert day.counts == source.counts(after(1), after(2))
    other = source.labelled(after(0), after(1))
    assert other.label_probability is None
    assert other.n == 1500
    both = source.labelled(after(0), after(2))
    assert both.n == 400  # one range with planned rows: only these were chosen by chance
    records = open_monitor(path).check(after(3.5)).records
    assert [record.status for record in records] == ["audited"] * 3
    assert [round(record.audit["n"]) for record in records] == [1500, 400, 1500]
    assert records[1].audit["design"]["min_label_probability"] < 1
    assert not any("no random choice" in note for record in records for note in record.notes)


def test_labels_of_a_window_that_is_not_held_stand_for_all_of_its_rows(project):
    path, _, _ = project
    path.write_text(path.read_text("utf-8") + "large: {most_rows: 600}\n", "utf-8")
    assert sample(path, "--budget", "200", "--window", "2024-03-02") == 0
    plan = pd.read_csv(path.parent / "plan.csv")
    stands_for = (1 / plan["label_probability"]).sum()
    # The sum over a sample estimates the number of rows: with even chances it would be exact.
    assert stands_for == pytest.approx(1500, rel=0.1)


def test_a_second_opinion_is_measured_on_audited_windows_and_used(project, capsys):
    path, _, _ = project
    assert sample(path, "--budget", "300", "--window", "2024-03-03", "--proxy", "judge") == 0
    assert "not used, too few labelled rows" in capsys.readouterr().out
    open_monitor(path).check(after(2.5))
    arguments = ("--budget", "300", "--window", "2024-03-03", "--proxy", "judge", "--json")
    assert sample(path, *arguments) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["proxy_odds"] > 10


@pytest.mark.parametrize(
    ("more", "match"),
    [
        (("--window", "2025-01-01"), "--window"),
        (("--proxy", "jugde"), "judge"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(project, capsys, more, match):
    assert sample(project[0], "--budget", "100", *more) == 2
    assert match in capsys.readouterr().err


def test_a_plan_with_a_bad_probability_sets_the_row_aside(project):
    path, _, _ = project
    assert sample(path, "--budget", "400", "--window", "2024-03-02", "--json") == 0
    plan = pd.read_csv(path.parent / "plan.csv")
    plan.loc[0, "label_probability"] = 1.5
    plan.to_csv(path.parent / "plan.csv", index=False)
    text = path.read_text("utf-8").replace(
        "  log: {path: log}", "  log: {path: log}\n  plan: {path: plan.csv}"
    )
    path.write_text(text, "utf-8")
    day = open_monitor(path).source.labelled(after(1), after(2))
    assert day.n == 399
    assert day.bad_reasons == {"label probability not in (0, 1]": 1}
