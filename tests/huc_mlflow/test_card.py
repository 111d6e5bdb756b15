"""The model card names the versions whose figures it shows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from huc_mlflow._card import alert_lines, model_card

import huc_monitor as hm
from huc_monitor.monitor.records import AlertState, RecalibrationTrigger
from huc_monitor.recalibration.choosing import Figures, Recalibration

TRIGGER = RecalibrationTrigger(
    id="0011223344556677",
    reason="a branch is off",
    window_id="0001",
    ordinal=1,
    window_end=datetime(2024, 3, 2, tzinfo=UTC),
    candidates=(),
)


@pytest.fixture
def repair():
    def figures(huc):
        return Figures(100, huc, huc / 2, huc * 2, huc / 4, 1 + huc, 1 - huc)

    p = [[0.8, 0.2]] * 50 + [[0.2, 0.8]] * 50
    scaling = hm.recalibration.TemperatureScaling().fit(p, [0] * 40 + [1] * 50 + [0] * 10)
    base, serving, after = figures(0.4), figures(0.2), figures(0.1)
    return Recalibration(
        "temperature",
        scaling,
        passed=True,
        reasons=(),
        base=base,
        before=serving,
        after=after,
        choices={},
        held_out=None,
    )


def table(repair, serving):
    card = model_card(
        repair,
        trigger=TRIGGER,
        alerts=(),
        base_version="1",
        serving_version=serving,
        window="2024-03-01 to 2024-03-02",
    )
    rows = [line.strip("|").split("|") for line in card.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


def test_base_serving_and_candidate_have_columns_of_their_own(repair):
    header, _, huc, uc, log_loss, accuracy, rows = table(repair, "3")
    assert header == ["", "base (version 1)", "serving (version 3)", "candidate (this version)"]
    assert huc[1:] == [
        "0.4000 [0.2000, 0.8000]",
        "0.2000 [0.1000, 0.4000]",
        "0.1000 [0.0500, 0.2000]",
    ]
    assert uc[1:] == ["0.1000", "0.0500", "0.0250"]
    assert log_loss[1:] == ["1.4000", "1.2000", "1.1000"]
    assert accuracy[1:] == ["0.6000", "0.8000", "0.9000"]
    assert rows[1:] == ["100"] * 3


def test_a_base_that_serves_has_one_column(repair):
    header, _, huc, *_ = table(repair, "1")
    assert header == ["", "base, which serves (version 1)", "candidate (this version)"]
    assert [cell.split()[0] for cell in huc[1:]] == ["0.2000", "0.1000"]


@pytest.mark.parametrize(
    ("zone", "said"), [("UTC", "2024-03-30 23:00 UTC"), ("Europe/Berlin", "2024-03-31")]
)
def test_an_alert_is_dated_in_the_zone_of_the_windows(zone, said):
    night = datetime(2024, 3, 30, 23, tzinfo=UTC)
    names = {"utility": "pay", "subgroup": "all", "node": "sick", "level": "critical"}
    times = {"first_seen": night, "last_seen": night, "first_ordinal": 1, "last_ordinal": 1}
    (line,) = alert_lines((AlertState(**names, **times, n_windows=1),), zone)
    assert line.endswith(f"since {said}")
