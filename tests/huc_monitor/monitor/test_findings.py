"""Findings of realistic logs: what is told of a fault, and what is part of it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

import pytest
from support.intents import FAULTS, TREE, day, make_intents, watch_intents

from huc_monitor.monitor.change import CandidateChange
from huc_monitor.monitor.findings import Finding, branches_above, find_changed
from huc_monitor.monitor.records import WindowRecord


@cache
def results(fault):
    monitor = watch_intents(make_intents(fault=fault, days=9))
    return [monitor.check(day(k)) for k in (7, 8, 9)]


def told(fault):
    return results(fault)[1].records[-1].findings


def kinds(fault):
    return [(finding.kind, finding.node, finding.subgroups[0]) for finding in told(fault)]


@pytest.mark.seconds
@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_standing_error_is_told_once_with_a_way_out(fault):
    texts = [result.message.text for result in results(fault) if result.message is not None]
    assert sum("Standing since the reference: root is" in text for text in texts) == 1
    assert "huc-monitor recalibrate" in texts[0]


def test_without_a_fault_only_what_stands_is_found():
    assert kinds(None) == [("standing", "root", "all")]
    assert [result.message is not None for result in results(None)] == [True, False, False]


def test_a_fault_of_one_subgroup_in_one_branch_is_told_as_such_beside_what_stands():
    assert kinds("app") == [("changed", "billing", "channel=app"), ("standing", "root", "all")]
    finding = told("app")[0]
    assert finding.change.onset_first <= day(7) <= finding.change.onset_last
    size, confused, moved = finding.causes
    assert "of the window's 2,000 labels lie under this branch" in size
    assert "was the likeliest under *billing*" in confused
    assert "*refund* happened in" in confused or "*chargeback* happened in" in confused
    assert confused.endswith("so it is new by more than chance).")
    assert "since the reference (2026-09-01 to 2026-09-04)" in moved


def test_a_fault_everywhere_is_one_finding_of_the_root_in_both_utilities():
    (finding,) = told("everywhere")
    assert (finding.kind, finding.node, finding.subgroups[0]) == ("both", "root", "all")
    assert sorted(finding.utilities) == ["level1", "level2"]
    text = results("everywhere")[1].message.text
    assert "*root*, everywhere (utilities *level1* and *level2*): changed since" in text
    assert text.count("changed since the reference by") == 1


def test_opposite_changes_of_siblings_are_two_findings():
    found = {finding.node: finding for finding in told("opposite") if finding.change}
    assert set(found) == {"access", "product"}
    assert found["access"].change.difference < 0 < found["product"].change.difference
    assert kinds("opposite")[-1] == ("standing", "root", "all")


def test_a_change_of_what_stood_is_both():
    assert kinds("root") == [("both", "root", "all")]


def test_the_moment_of_every_window_is_kept_on_the_interval_that_changed():
    change = told("app")[0].change
    assert [start for start, _ in change.track] == [day(k) for k in range(3, 8)]
    inside = [value for start, value in change.track[:-1]]
    assert all(abs(value - change.before) < 3 * change.before_radius for value in inside)
    assert change.track[-1][1] == pytest.approx(change.after)


def test_findings_are_read_back_from_a_record():
    record = results("app")[1].records[-1]
    again = WindowRecord.from_json(record.to_json())
    assert again.findings == record.findings
    plain = record.to_dict()
    del plain["findings"]  # as earlier versions wrote it
    assert WindowRecord.from_dict(plain).findings == ()


def changed(node, difference, *, subgroup="all", share=1.0, first=7, last=7):
    return CandidateChange(
        utility="u",
        subgroup=subgroup,
        node=node,
        before=0.0,
        after=difference,
        difference=difference,
        lower=difference - 0.01,
        upper=difference + 0.01,
        interval_low=0.1,
        interval_high=0.9,
        n_windows=1,
        share=share,
        onset_first=datetime(2026, 9, first, tzinfo=UTC),
        onset_last=datetime(2026, 9, last, tzinfo=UTC),
    )


def grouped(*changes):
    limits = {change.candidate: 0.02 for change in changes}
    return {found.node: found for found in find_changed(changes, limits, branches_above(TREE))}


@pytest.mark.parametrize(
    ("below", "parts"),
    [
        (changed("billing", -0.04), ("billing",)),
        (changed("billing", -0.06), ()),  # more than half of it
        (changed("billing", 0.04), ()),  # the other way
        (changed("billing", -0.04, first=8, last=9), ()),  # at another time
        (changed("billing", -0.04, subgroup="app", share=0.3), ()),  # of fewer rows
    ],
)
def test_what_changed_below_is_part_of_a_larger_change_above_if_it_is_the_same(below, parts):
    found = grouped(changed("root", -0.1), below)
    assert found["root"].below == parts
    assert ("billing" in found) == (not parts)


def test_what_changed_above_by_less_is_part_of_the_change_below():
    found = grouped(changed("root", -0.03), changed("billing", -0.04))
    assert list(found) == ["billing"]
    assert found["billing"].above == ("root",)


def test_every_change_is_part_of_exactly_one_finding():
    found = grouped(
        changed("root", -0.2),
        changed("billing", -0.05),
        changed("access", -0.3),
        changed("product", 0.05),
    )
    parts = [name for one in found.values() for name in (one.node, *one.above, *one.below)]
    assert sorted(parts) == ["access", "billing", "product", "root"]


def test_a_finding_survives_its_json_form():
    finding = Finding(kind="standing", node="root", subgroups=("all",), utilities=("u",))
    assert Finding.from_dict(finding.to_dict()) == finding
