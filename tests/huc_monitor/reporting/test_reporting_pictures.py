from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from support.report_cases import (
    audit_dict,
    candidate,
    record,
    seeded_audit,
    small_tree,
    story,
)
from support.report_page import Page

import huc_monitor as hm
from huc_monitor.monitor.findings import Finding
from huc_monitor.reporting import draw_pictures, render_report, save_picture
from huc_monitor.reporting._compared import differences

# -- pictures


def test_there_is_a_picture_for_everything_that_is_known():
    tree, records = story()
    assert set(draw_pictures(records, tree=tree)) == {
        "moments",
        "icicle",
        "waterfall",
        "heat_map",
        "timeline",
    }
    assert set(draw_pictures(records[-2].audit)) == {"moments", "waterfall"}
    assert set(draw_pictures(**seeded_audit())) == {
        "moments",
        "icicle",
        "waterfall",
        "reliability",
    }


OUT = "for maintenance from 2024-03-02 to 2024-03-03 (<b>migration</b>)"


@pytest.fixture
def with_maintenance():
    """Records of three days, of which the second was in maintenance and far off."""
    tree = small_tree()
    rows = [candidate(node="cat", moment=0.09), candidate(node="animals", moment=0.001)]
    audit = audit_dict(rows, tree)
    days = [record(k, audit, maintenance=OUT if k == 2 else None) for k in (1, 2, 3)]
    return [*days, record(4, None, maintenance=OUT)], tree


def test_the_map_of_a_page_shows_which_windows_were_in_maintenance_and_why(with_maintenance):
    records, tree = with_maintenance
    page = render_report(records, tree=tree)
    why = "no evidence: maintenance from 2024-03-02 to 2024-03-03 (&lt;b&gt;migration&lt;/b&gt;)"
    assert "Grey numbers: the window was in maintenance and is no evidence." in page
    assert "<b>migration" not in page
    row = re.search(r'<table class="heat">.*?</table>', page, re.DOTALL).group()
    assert row.count('<small class="under">maintenance</small>') == 2
    cells = re.findall(r'<td class="([^"]*)" title="([^"]*)">([^<]*)</td>', row)[4:8]
    assert [kind for kind, *_ in cells] == ["s-u4 sure", "none", "s-u4 sure", "none"]
    assert ["◆" in text for *_, text in cells] == [True, False, True, False]
    assert why in cells[1][1]
    listed = page[page.index("Windows, newest first") :]
    assert f'<td class="">{why}</td>' in listed
    assert f'<td class="">few labels; {why.partition(": ")[2]}</td>' in listed


def test_pictures_show_which_windows_were_in_maintenance(with_maintenance):
    records, tree = with_maintenance
    heat = draw_pictures(records, tree=tree)["heat_map"].to_svg()
    titles = re.findall(r"<title>(2024-03-0[123].*?)</title>(.*?)</g>", heat)
    cats = [(title, marks) for title, marks in titles if "0.09" in title]
    assert ["no evidence: maintenance" in title for title, _ in cats] == [False, True, False]
    assert ["m-sure" in marks for _, marks in cats] == [True, False, True]
    assert ["m-empty" in marks for _, marks in cats] == [False, True, False]
    assert "Grey with a stroke: in maintenance" in heat
    ET.fromstring(heat)  # noqa: S314 - our own


def test_the_headline_of_a_page_is_of_the_newest_window_that_was_not_in_maintenance():
    tree = small_tree()
    calm, odd = (audit_dict([candidate(node="cat", moment=m)], tree) for m in (0.001, 0.09))
    stands = Finding(kind="standing", node="cat", subgroups=("all",), utilities=("top1",))
    shut = record(2, odd, maintenance=OUT, findings=(stands,), notes=("This window is out.",))
    page = render_report([record(1, calm, notes=("Said of the first.",)), shut], tree=tree)
    head = re.sub("<[^>]*>", "", page[page.index('class="verdict"') : page.index('class="heat"')])
    assert "Every branch is shown to be within tolerance." in head
    assert "The newest window, 2024-03-02, is no evidence: maintenance from" in head
    assert "Said of the first." in head
    assert "This window is out." not in page
    alone = render_report([shut], tree=tree)
    assert "Nothing is known: all audited windows were in maintenance." in alone
    assert "stands above tolerance" not in alone
    assert 'class="sign"' not in alone


def test_without_maintenance_nothing_is_said_of_it():
    tree, records = story()
    assert "aintenance" not in render_report(records, tree=tree)
    assert "aintenance" not in draw_pictures(records, tree=tree)["heat_map"].to_svg()


def test_the_curve_is_drawn_for_its_own_candidate_not_for_the_worst():
    given = seeded_audit()
    frame = given["source"].to_frame(all_columns=True)
    other = frame[frame["node"] != given["curve"].node].iloc[0]
    curve = dataclasses.replace(
        given["curve"], node=other["node"], utility=other["utility"], subgroup="all"
    )
    picture = draw_pictures(**given | {"curve": curve})["reliability"]
    assert picture.description.startswith(f"{other['node']}: ")
    page = Page(render_report(**given | {"curve": curve}))
    assert f"“{other['node']}” for everyone. On the dotted line" in page.words


def numbers(text: str) -> list[float]:
    return [float(n) for n in re.findall(r"[+-]?\d\.\d+", text.replace("\u2212", "-"))]


def test_the_waterfall_adds_up():
    tree = small_tree()
    rows = [
        candidate(node=node, moment=moment)
        for node, moment in (("animals", 0.05), ("cat", -0.03), ("dog", -0.015))
    ]
    described = draw_pictures(audit_dict(rows, tree), tree=tree)["waterfall"].description
    *parts, total = numbers(described.split(": ", 1)[1])
    assert parts == [0.05, -0.03, -0.015]
    assert total == pytest.approx(sum(parts))


def test_the_waterfall_sums_what_it_does_not_show():
    tree = hm.LabelTree.from_nested({f"n{i:02d}": [f"a{i}", f"b{i}"] for i in range(30)})
    rows = [candidate(node=f"n{i:02d}", moment=0.001 * (i + 1)) for i in range(30)]
    described = draw_pictures(audit_dict(rows, tree), tree=tree)["waterfall"].description
    assert "22 other branches +0.253" in described
    assert "sum +0.465" in described


def test_the_icicle_of_a_large_tree_accounts_for_every_branch():
    nested = {f"group {i}": {f"node {i}-{j}": ["a", "b"] for j in range(20)} for i in range(20)}
    tree = hm.LabelTree.from_nested(nested)
    rows = [candidate(node=node, moment=0.01) for node in tree.branches]
    rows[300]["moment"], rows[300]["lower"] = -0.3, 0.29
    picture = draw_pictures(audit_dict(rows, tree), tree=tree, tolerance=0.02)["icicle"]
    svg = picture.to_svg()
    drawn = set(re.findall(r'data-node="(\d+)"', svg))
    folded = re.findall(r"<title>(\d+) more, up to", svg)
    # None is cut short: a box has room for how many and how large.
    assert sorted(re.findall(r">(\d+) more, up to \S+</text>", svg)) == sorted(folded)
    assert len(drawn) + sum(map(int, folded)) == len(tree.branches)
    assert str(list(tree.nodes).index(tree.branches[300])) in drawn
    assert picture.height <= 60 * 30


@pytest.mark.seconds
def test_pictures_are_saved_as_svg_and_png(tmp_path):
    picture = draw_pictures(**seeded_audit())["reliability"]
    svg = save_picture(picture, tmp_path / "curve.svg").read_text("utf-8")
    assert svg == picture.to_svg()
    png = save_picture(picture, tmp_path / "curve.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    size = [int.from_bytes(png[i : i + 4], "big") for i in (16, 20)]
    assert size == [round(2 * picture.width), round(2 * picture.height)]
    with pytest.raises(hm.InvalidInputError, match=r"must end in .svg or .png; got '.gif'"):
        save_picture(picture, tmp_path / "curve.gif")


def test_names_with_dollar_signs_are_not_read_as_formulas(tmp_path):
    tree, records = story(("$\\frac{1}{0", "$$"))
    png = save_picture(draw_pictures(records, tree=tree)["icicle"], tmp_path / "icicle.png")
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_png_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    picture = draw_pictures(**seeded_audit())["icicle"]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(hm.MissingExtraError, match=r"pip install 'huc-monitor\[png\]'"):
        save_picture(picture, tmp_path / "icicle.png")
    assert not (tmp_path / "icicle.png").exists()


# -- size


@pytest.mark.seconds
def test_a_large_report_stays_under_six_megabytes():
    nested = {
        f"group {i}": {f"node {i}-{j} of some length": ["a", "b"] for j in range(25)}
        for i in range(20)
    }
    tree = hm.LabelTree.from_nested(nested)
    assert len(tree.branches) > 500
    groups = ["all", *(f"region=district {k}" for k in range(9))]
    rows = [
        candidate(node=node, subgroup=c, moment=0.001 * ((i * 7 + k * 11) % 37 - 18))
        for k, c in enumerate(groups)
        for i, node in enumerate(tree.branches)
    ]
    audit = audit_dict(rows, tree)
    records = [record(k + 1, audit) for k in range(30)]
    assert len(render_report(records, tree=tree).encode()) < 2_500_000


@pytest.mark.seconds
def test_many_more_branches_than_fit_are_cut_by_what_matters():
    tree = hm.LabelTree.from_nested({f"n{i:04d}": ["a", "b"] for i in range(3000)})
    rows = [candidate(node=node, moment=0.00001 * i) for i, node in enumerate(tree.branches)]
    records = [record(k + 1, audit_dict(rows, tree)) for k in range(20)]
    page = render_report(records, tree=tree)
    data = Page(page).data
    assert len(page.encode()) < 6_000_000
    assert len(data["history"]) == 2000
    assert str(len(tree.branches) - 1) in data["history"]


# -- the README's picture


@pytest.mark.seconds
def test_the_readme_picture_can_be_drawn_again(tmp_path):
    script = Path(__file__).parents[3] / "examples" / "draw_cancellation.py"
    target = tmp_path / "cancellation.svg"
    subprocess.run([sys.executable, script, target], check=True, timeout=120)
    words = "".join(ET.fromstring(target.read_text("utf-8")).itertext())  # noqa: S314
    for part in ("outcome", "survived", "sum: what UC sees"):
        assert part in words


def compared(*, paired=False, n=800):
    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.ones(4), n)
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=3)
    tree = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "<d>"]})
    sharp = p**2 / (p**2).sum(axis=1, keepdims=True)
    channel = pd.DataFrame({"channel": rng.choice(["app", "web"], n)})
    return hm.compare(
        (p, labels),
        (sharp, labels),
        tree=tree,
        utilities=[hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2)],
        subgroups=hm.Subgroups.from_reference(channel, {"channel": "each"}),
        features=channel if paired else (channel, channel),
        paired=paired,
        n_draws=200,
    )


@pytest.mark.parametrize("paired", [False, True])
def test_every_difference_of_a_comparison_is_drawn_with_its_bounds(paired):
    found = compared(paired=paired)
    pictures = draw_pictures(found)
    assert list(pictures) == ["differences", "by_subgroup"]
    bars = pictures["differences"].to_svg()
    assert bars.count('class="m-bar-') == len(found)
    assert bars.count("◆") == len(found.sure) > 0
    assert bars.count('class="m-whisker"') == 3 * len(found)
    assert ("negative is better" in bars) == paired
    grid = pictures["by_subgroup"].to_svg()
    cells = {(one.node, one.subgroup) for one in map(found.__getitem__, range(len(found)))}
    assert grid.count("<g>") == len(cells) == 9


def test_what_is_worse_has_one_colour_whichever_way_the_numbers_go():
    found = compared(paired=True)
    worst = found.worst
    assert worst.difference > 0  # sharper than the truth: a larger absolute moment
    bars = draw_pictures(found)["differences"].to_svg()
    assert bars.count('class="m-bar-o') == len(found)
    assert 'class="m-bar-u' not in bars


def test_a_comparison_with_many_candidates_shows_those_that_differ_most():
    picture = differences(compared(), max_rows=3)
    assert picture.to_svg().count('class="m-bar-') == 3
    assert picture.description.endswith("9 more")


def test_a_uc_above_huc_and_its_bounds_stays_on_the_picture():
    tree = small_tree()
    audits = [audit_dict([candidate(node="cat", moment=0.01)], tree) for _ in range(2)]
    records = [record(k + 1, {**audit, "uc": 0.5}) for k, audit in enumerate(audits)]
    picture = draw_pictures(records, tree=tree)["timeline"]
    ys = [y for mark in picture.marks if hasattr(mark, "points") for _, y in mark.points]
    assert min(ys) >= 24  # the axis begins there
