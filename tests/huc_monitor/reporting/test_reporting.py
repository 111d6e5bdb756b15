from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pandas as pd
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from support.intents import TREE as INTENTS
from support.intents import day as intent_day
from support.intents import make_intents, watch_intents
from support.report_cases import (
    DAY,
    NASTY,
    alert,
    audit_dict,
    candidate,
    record,
    seeded_audit,
    small_tree,
    story,
)
from support.report_page import Page

import huc_monitor as hm
from huc_monitor._common.safe_text import visible
from huc_monitor.cli import main
from huc_monitor.monitor.people import Action
from huc_monitor.reporting import _page, _words, draw_pictures, render_report, write_report
from huc_monitor.reporting._looks import DARK, LIGHT, SHADES
from huc_monitor.reporting._model import CandidateView
from huc_monitor.reporting.ui._pages import AlertGroup

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def told():
    tree, records = story()
    return Page(render_report(records, tree=tree))


# -- golden


def test_a_fixed_seeded_audit_renders_byte_for_byte_the_same_page(monkeypatch):
    monkeypatch.setitem(_page._templates().globals, "version", "0.0.0")
    page = render_report(**seeded_audit(), title="Golden report")
    assert page == (GOLDEN / "report.html").read_text("utf-8")


def test_the_same_records_give_the_same_bytes_in_any_order(tmp_path):
    tree, records = story()
    one = write_report(records, tmp_path / "one.html", tree=tree)
    two = write_report(records[::-1], tmp_path / "two.html", tree=tree)
    assert one.read_bytes() == two.read_bytes()


# -- words


@pytest.mark.parametrize(
    ("status", "moment", "lower", "said"),
    [
        ("sure", -0.05, 0.04, "above tolerance by more than chance"),
        ("sure", -0.03, 0.01, "off by more than chance by the evidence of all windows"),
        ("possible", -0.03, 0.0, "above tolerance, may be chance"),
        ("possible", -0.01, 0.0, "suspected by the evidence of all windows"),
        ("within", -0.01, 0.0, "within tolerance"),
    ],
)
def test_what_only_the_e_detector_knows_is_not_said_of_the_window(status, moment, lower, said):
    scored = {"low": 0.1, "high": 0.7, "n": 900.0, "tolerance": 0.02, "scale": 0.02}
    found = CandidateView(
        node="shoes",
        subgroup="all",
        utility="level2",
        moment=moment,
        lower=lower,
        upper=0.06,
        in_units=None,
        units=None,
        status=status,
        **scored,
    )
    assert _words.status(found) == said


@pytest.mark.parametrize(
    ("moments", "radius", "verdict"),
    [
        ((0.05, -0.03), 0.005, "2 branches are above tolerance by more than chance."),
        ((0.05, -0.03), 0.02, "One branch is above tolerance by more than chance."),
        ((0.05, -0.03), 0.04, "2 branches are above tolerance, but it may be chance."),
        ((0.015, 0.0), 0.001, "Every branch is shown to be within tolerance."),
        (
            (0.015, 0.0),
            0.01,
            "No branch exceeds its tolerance, but 0.025 cannot be ruled out.",
        ),
    ],
)
def test_the_verdict_counts_branches_by_how_sure_the_audit_is(moments, radius, verdict):
    rows = [
        candidate(node=n, moment=m, radius=radius)
        for n, m in zip(("cat", "dog"), moments, strict=True)
    ]
    page = Page(render_report(audit_dict(rows, small_tree()), tree=small_tree(), tolerance=0.02))
    assert verdict in page.words


def test_the_story_says_where_for_whom_how_much_and_how_certain(told):
    assert (
        "At branch “cat”, predictions overstate the utility “top1” for everyone by 0.040 per "
        "prediction of the window, where the predicted utility is 0.250 to 0.750 (500 rows)."
    ) in told.words
    assert "Its true size lies between 0.035 and 0.045 with confidence 0.95" in told.words
    assert "mostly at “animals” (+0.028)" in told.words.replace("\u2212", "-")


def test_what_is_sure_comes_before_what_is_large():
    rows = [
        candidate(node="cat", moment=0.2, radius=0.19),
        candidate(node="dog", moment=0.03, radius=0.005),
    ]
    page = Page(render_report(audit_dict(rows, small_tree()), tree=small_tree(), tolerance=0.02))
    assert "At branch “dog”" in page.words


def test_windows_name_the_branch_of_huc_and_the_marked_branch_each_with_its_own_number():
    rows = [
        candidate(node="root", moment=0.038, radius=0.05),
        candidate(node="cat", moment=-0.008, radius=0.02),
    ]
    audit = audit_dict(rows, small_tree())
    limits = {"tolerances": (0.07, 0.07), "levels": (None, "critical")}
    calm = {**limits, "levels": (None, None)}
    windows = [record(1, audit, **calm), record(2, audit, **limits)]
    page = render_report(windows, tree=small_tree())
    newest, older = page.split("Marked branch</th>")[1].split("</tr>")[1:3]
    assert re.findall("<bdi>(.*?)</bdi>", newest) == ["root", "cat"]
    assert "\u25c6 \u22120.008</span>" in newest
    assert re.findall("<bdi>(.*?)</bdi>", older) == ["root"]
    page = Page(page)
    assert "Branches: marked first, then the largest against their tolerance" in page.words
    assert "worst first" not in page.words


def test_notices_tell_of_windows_that_wait_or_were_skipped(told):
    assert "1 window still waits for labels. Predictions moved at: cat." in told.words
    assert "1 window was not audited (few labels)." in told.words


def test_the_last_revision_of_a_window_is_shown_and_pending_ones_are_not():
    tree = small_tree()
    first = record(1, audit_dict([candidate(node="cat", moment=0.05)], tree))
    second = record(1, audit_dict([candidate(node="cat", moment=0.01)], tree), revision=1)
    waiting = record(1, None, status="pending", reason=None)
    page = Page(render_report([second, waiting, first], tree=tree))
    assert "Every branch is shown to be within tolerance." in page.words
    assert len(page.data["windows"]) == 1
    assert "revision 1" in page.words
    assert "waits for labels" not in page.words


def test_a_monitor_without_an_audited_window_says_so():
    page = Page(render_report([record(1, None), record(2, None)], tree=small_tree()))
    assert "No window has been audited yet." in page.words
    assert "2 windows were not audited (few labels)." in page.words


def test_an_audit_without_bounds_claims_no_certainty():
    result = hm.audit(
        [[0.25] * 4] * 8,
        ["leaf 1", "leaf 1", *["leaf 3"] * 6],
        tree=small_tree(),
        utilities=[hm.LevelCorrectness(level=1)],
        bounds=None,
    )
    page = Page(render_report(result, tolerance=0.02))
    assert "without bounds, so this says nothing about chance" in page.words
    assert "by more than chance" not in page.words.replace(
        "◆ above tolerance by more than chance", ""
    )


def test_a_perfect_audit_has_no_worst_range():
    rows = [candidate(node="cat", moment=0.0, interval_low=None, interval_high=None)]
    page = Page(render_report(audit_dict(rows, small_tree()), tree=small_tree(), tolerance=0.02))
    assert "Every moment is exactly zero." in page.words
    assert "How the branches add up" not in page.words


def test_moments_in_money_are_told_in_money():
    rows = [candidate(node="cat", moment=-0.05, units="EUR", moment_in_units=-125.0)]
    page = Page(render_report(audit_dict(rows, small_tree()), tree=small_tree(), tolerance=0.02))
    assert "by 125 EUR (0.050) per prediction of the window," in page.words
    tiles = page.words.split("Its true size")[1]
    assert tiles.index("Money, worst branch") < tiles.index("HUC, largest gap of a branch")
    assert "\u2212125,000 EUR in this window" in page.words


def test_all_alerts_of_one_branch_are_one_row_with_the_most_urgent_first():
    groups = ("all", "a", "b", "c")
    rows = [
        candidate(node="cat", utility=utility, subgroup=group, moment=-0.05 - 0.01 * k)
        for utility in ("top1", "cost")
        for k, group in enumerate(groups)
    ]
    windows = [record(1, audit_dict(rows, small_tree())), record(2, audit_dict(rows, small_tree()))]
    found = [alert(windows[1], row, "critical") for row in rows]
    states = [dataclasses.replace(one["alerts"][0], moment=-0.05) for one in found]
    states[3] = dataclasses.replace(states[3], moment=-0.08)
    steps = tuple(one["transitions"][0] for one in found)
    windows[1] = dataclasses.replace(windows[1], alerts=tuple(states), transitions=steps)
    page = Page(render_report(windows, tree=small_tree()))
    table = page.words.split("In its newest window")[1].split("Windows as a table")[0]
    assert table.count("critical") == 1
    assert "subgroup c" in table
    assert "8 open alerts" in table


def test_the_report_counts_open_alerts_and_says_of_how_many_people_spoke():
    groups = ("all", "a", "b", "c")
    rows = [candidate(node="cat", subgroup=group, moment=-0.05) for group in groups]
    windows = [record(n, audit_dict(rows, small_tree())) for n in (1, 2)]
    found = [[alert(one, row, "critical")["alerts"][0] for row in rows] for one in windows]
    did = (Action(kind="ack", at=DAY, by="ann"),)
    still = (dataclasses.replace(found[1][0], actions=did), *found[1][1:3])
    windows[0] = dataclasses.replace(windows[0], alerts=tuple(found[0]))
    windows[1] = dataclasses.replace(windows[1], alerts=still)
    page = Page(render_report(windows, tree=small_tree()))
    table = page.words.split("In its newest window")[1].split("Windows as a table")[0]
    assert "3 open alerts" in table
    assert "1 of 3 alerts: acknowledged by ann" in table
    group = AlertGroup("cat", still, None)
    assert group.people == ["1 of 3 alerts: acknowledged by ann, 2024-03-01 00:00 UTC."]


def test_on_narrow_screens_the_tree_is_a_list_that_opens_down_to_what_is_marked():
    tree, records = story()
    page = Page(render_report(records, tree=tree))
    start = next(i for i, (_, a) in enumerate(page.tags) if a.get("class") == "outline")
    inside = page.tags[start : start + 40]
    assert ("details", {"open": None}) in inside
    wide = hm.LabelTree.from_nested({f"g{i}": [f"{i}a", f"{i}b"] for i in range(60)})
    rows = [candidate(node=name, moment=0.001) for name in wide.branches]
    text = render_report(audit_dict(rows, wide), tree=wide, tolerance=0.02)
    assert 'class="outline always"' in text


def test_records_bring_their_own_tolerances_and_levels():
    tree = small_tree()
    audit = audit_dict([candidate(node="cat", moment=0.05)], tree)
    page = Page(render_report([record(1, audit, tolerances=(0.1,), levels=(None,))], tree=tree))
    assert "Every branch is shown to be within tolerance." in page.words
    own = Page(render_report([record(1, audit, tolerances=(0.1,))], tree=tree, tolerance=0.01))
    assert "One branch is above tolerance by more than chance." in own.words


# -- names stay text


def page_of(names, subgroup):
    tree, records = story(names, subgroup=subgroup)
    return Page(render_report(records, tree=tree, title=subgroup)), tree, records


def test_nasty_names_change_nothing_but_the_text(told):
    shape = [tag for tag, _ in told.tags if tag != "wbr"]
    for name in NASTY:
        page, _, _ = page_of((name, "dog"), f"\u2028\u202e\x00\ud800{name}")
        assert [tag for tag, _ in page.tags if tag != "wbr"] == shape
        assert name in page.words
        assert page.data["nodes"][1]["name"] == name


@settings(max_examples=25, deadline=None)
@given(name=st.text(min_size=1, max_size=30), subgroup=st.text(min_size=1, max_size=30))
def test_any_name_stays_text(name, subgroup):
    try:
        small_tree((name, "dog"))
    except hm.InvalidTreeError:
        reject()
    page, tree, records = page_of((name, "dog"), subgroup)
    assert page.count("script") == 2
    assert page.count("style") == 1
    assert page.data["nodes"][1]["name"] == visible(name)
    assert visible(subgroup) in page.data["subgroups"]
    for tag, attributes in page.tags:
        assert not any(key.startswith("on") or key == "style" for key in attributes), tag
    for picture in draw_pictures(records, tree=tree).values():
        root = ET.fromstring(picture.to_svg())  # noqa: S314 - our own file
        assert not root.findall(".//{http://www.w3.org/2000/svg}script")


def test_the_data_block_cannot_be_left():
    tree, records = story(("</script><script>alert(1)", "<!--"))
    page = render_report(records, tree=tree)
    block = page.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&\u2028") & set(block)
    json.loads(block)


# -- nothing leaves the page


def test_no_element_refers_outside_the_page(told):
    for tag, attributes in told.tags:
        for key in ("src", "href", "action", "srcset", "xlink:href"):
            value = attributes.get(key)
            assert value is None or value.startswith("#") or value == "data:,", (tag, value)
    assert not re.search(r"url\(|@import", told.styles[0])


def test_the_policy_admits_exactly_the_pages_own_style_and_script(told):
    (policy,) = [a["content"] for t, a in told.tags if t == "meta" and "http-equiv" in a]

    def digest(text):
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest(told.styles[0])}'",
        f"script-src 'sha256-{digest(told.scripts[1])}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]


# -- accessible


def test_every_picture_has_words_and_every_id_is_unique(told):
    for tag, attributes in told.tags:
        if tag == "svg":
            assert attributes["role"] in {"img", "tree"}
            assert len(attributes["aria-label"]) > 40
    ids = [a["id"] for _, a in told.tags if "id" in a]
    assert len(ids) == len(set(ids))
    labelled = {a["aria-labelledby"] for _, a in told.tags if "aria-labelledby" in a}
    assert labelled - {"story-title"} <= set(ids)


def test_the_tree_is_one_tab_stop_whose_items_say_everything(told):
    items = [a for _, a in told.tags if a.get("role") == "treeitem"]
    assert [a["tabindex"] for a in items] == ["0", "-1", "-1"]
    assert [a["aria-level"] for a in items] == ["1", "2", "2"]
    said = items[1]["aria-label"].replace("\u2212", "-")
    assert said == (
        "cat: -0.040 [-0.045, -0.035], above tolerance by more than chance; everyone, "
        "utility top1, predicted utility 0.250 to 0.750"
    )


def test_pictures_come_with_tables(told):
    captions = re.findall(r"(Branches|Windows|Moments on|Subgroups|Alerts)", told.words)
    assert set(captions) == {"Branches", "Windows", "Moments on", "Subgroups", "Alerts"}


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_all_text_has_the_contrast_that_wcag_asks_for(palette):
    for shade in SHADES:
        assert contrast(palette[shade], palette[f"on-{shade}"]) >= 4.5, shade
    for ink in ("ink", "muted", "accent", "sure"):
        for ground in ("paper", "panel"):
            assert contrast(palette[ink], palette[ground]) >= 4.5, (ink, ground)


def test_both_palettes_have_the_same_names():
    assert list(LIGHT) == list(DARK)


# -- mistakes


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), "much", True])
def test_a_tolerance_must_be_a_number_of_at_least_zero(tolerance):
    with pytest.raises(hm.InvalidInputError, match="`tolerance` must be a number of at least 0"):
        render_report(audit_dict([], small_tree()), tolerance=tolerance)


def test_what_is_no_audit_and_no_record_is_refused(tmp_path):
    with pytest.raises(hm.InvalidInputError, match="must be an AuditResult, its to_dict"):
        write_report([3], tmp_path / "report.html")
    tree, even = hm.LabelTree.flat(["a", "b"]), ([[0.5, 0.5]] * 400, list("aabb") * 100)
    found = hm.compare(even, even, tree=tree, utilities=hm.LevelCorrectness(level=1))
    for wrong in (found, 3):
        with pytest.raises(hm.InvalidInputError, match=f"got '{type(wrong).__name__}'"):
            write_report(wrong, tmp_path / "report.html")
    with pytest.raises(hm.InvalidInputError, match="'candidates' is missing"):
        write_report({"schema_version": 1, "n": 3}, tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


# -- command line


def run(capsys, *arguments) -> tuple[int, str, str]:
    code = main(["report", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_report_reads_what_audit_prints(tmp_path, capsys):
    labels = ["worse"] * 20 + ["slow"] * 30 + ["well"] * 30
    even = dict.fromkeys(["worse", "stable", "slow", "well"], 0.25)
    pd.DataFrame(even, index=range(80)).assign(y=labels).to_parquet(tmp_path / "log.parquet")
    tree = tmp_path / "tree.json"
    tree.write_text('{"ward": ["worse", "stable"], "home": ["slow", "well"]}')
    worth = {"worse": -1, "stable": 1, "slow": 1, "well": 1}
    utility = json.dumps({"type": "Payoff", "name": "outcome", "payoffs": worth})
    given = ["--tree", str(tree), "--label", "y", "--utility", utility]
    assert main(["audit", str(tmp_path / "log.parquet"), *given, "--json"]) == 0
    stored = tmp_path / "audit.json"
    stored.write_text(capsys.readouterr().out)
    out = tmp_path / "page.html"
    code, said, err = run(capsys, stored, "--out", out, "--tolerance", "0.005", "--json")
    assert (code, err) == (0, "")
    assert json.loads(said) == {"path": str(out), "bytes": out.stat().st_size}
    page = Page(out.read_text("utf-8"))
    assert re.search(r"2 branches are above tolerance( by more than chance)?", page.words)
    assert [a["aria-label"][:9] for _, a in page.tags if a.get("role") == "treeitem"] == [
        "root: +0.",
        "ward: \u22120.",
        "home: no ",
    ]


def test_report_shows_the_records_of_a_monitor(tmp_path, capsys):
    from huc_monitor.config import load_config
    from huc_monitor.config.opening import open_tracker

    tree, records = story()
    (tmp_path / "tree.json").write_text(json.dumps(tree.to_dict()))
    (tmp_path / "huc.yaml").write_text(
        "model: pets\ntree: tree.json\nsource: {log: {path: log.parquet}}\n"
        "columns: {time: t, label: y, probabilities: 'p_{leaf}'}\n"
        "windows: {length: 1d}\ntolerance: 0.02\n"
    )
    out = tmp_path / "page.html"
    code, _, err = run(capsys, "--config", tmp_path / "huc.yaml", "--out", out)
    assert code == 2
    assert "has no records. Run: huc-monitor check" in err
    tracker = open_tracker(load_config(tmp_path / "huc.yaml"))
    for item in records:
        tracker.record(item)
    code, said, err = run(capsys, "--config", tmp_path / "huc.yaml", "--out", out)
    assert (code, err) == (0, "")
    assert said.startswith(f"Wrote {out}")
    assert out.read_text("utf-8") == render_report(records, tree=tree)


def test_report_reads_one_record(tmp_path, capsys):
    _, records = story()
    stored = tmp_path / "record.json"
    stored.write_text(records[0].to_json())
    code, _, _ = run(capsys, stored, "--out", tmp_path / "page.html")
    assert code == 0
    assert f"{DAY:%Y-%m-%d}, 1,000 labelled" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "must be a JSON file"), ("[1]", "must hold what `huc-monitor audit --json` prints")],
)
def test_report_refuses_other_files(tmp_path, capsys, content, message):
    stored = tmp_path / "audit.json"
    stored.write_text(content)
    code, _, err = run(capsys, stored, "--out", tmp_path / "page.html")
    assert code == 2
    assert message in err
    assert not (tmp_path / "page.html").exists()


def visible_text(page):
    return re.sub(r"\s+", " ", "".join(Page(page).text))


@pytest.fixture(scope="module")
def changed_page():
    records = watch_intents(make_intents(fault="app", days=9)).check(intent_day(9)).records
    return records, render_report(records, tree=INTENTS)


def test_what_changed_comes_first_with_its_onset_and_the_confused_pair(changed_page):
    _, page = changed_page
    text = visible_text(page)
    assert "One branch changed since the reference: billing, for channel=app." in text
    assert "It began with the window of 2026-09-08 (90 % confidence)." in text
    assert "was the likeliest under “billing”" in text
    assert "so it is new by more than chance" in text
    assert "Besides, “root” is above the tolerance, about as far as in the reference" in text
    assert "huc-monitor recalibrate" in text
    assert "Change from reference" in text
    assert "Worst branch for" not in text
    assert "evidence of all windows" not in text


def test_the_windows_by_branches_come_right_after_the_headline(changed_page):
    _, page = changed_page
    places = [page.index(f'id="h-{name}"') for name in ("heat", "windows", "tree", "subgroups")]
    assert places == sorted(places)


def test_what_changed_is_drawn_against_the_reference_with_its_onset(changed_page):
    records, page = changed_page
    pictures = draw_pictures(records, tree=INTENTS)
    assert pictures["changes"].inline() in page
    change = records[-1].findings[0].change
    drawn = pictures["changes"].to_svg()
    assert ">billing, for channel=app</text>" in drawn
    assert ">utility level2; reference" in drawn
    assert "began with the window of 2026-09-08" in drawn
    assert drawn.count('class="m-dot"') == len(change.track) == 6
    assert drawn.count('class="m-quiet-band"') == 1
    assert drawn.count('class="m-shaded"') == 1


def test_alerts_of_one_branch_are_one_line_of_the_page(changed_page):
    _, page = changed_page
    body = page[page.index("<caption>Alerts</caption>") :]
    body = body[: body.index("</table>")]
    assert body.count("<tr>") == 3  # the head, what changed, what stands
    assert "Standing: about as far off as in the reference" in body


def test_labels_that_nobody_foresaw_are_told_and_drawn_as_a_share_of_rows():
    records = watch_intents(make_intents(fault="new", days=9)).check(intent_day(9)).records
    found = records[-1].findings[0]
    assert (found.node, found.change.counted) == ("product", True)
    page = render_report(records, tree=INTENTS)
    text = visible_text(page)
    said = f"{found.change.unforeseen.n_seen} of "
    assert said in text
    assert "rows in which “feature” had a probability below 1 % turned out to be “feature”" in text
    assert "share of rows that were feature, unforeseen" in page
    assert found.causes[0].startswith("Of the ")


def test_where_nothing_changed_the_page_says_what_stands():
    records = watch_intents(make_intents(days=5)).check(intent_day(5)).records
    text = visible_text(render_report(records, tree=INTENTS))
    nothing = "Nothing changed by more than chance since the reference"
    assert f"{nothing}; root stands above tolerance." in text
    assert "none by more than chance" in text
    assert "changes" not in draw_pictures(records, tree=INTENTS)


def test_records_of_alerts_by_tolerance_keep_their_words_and_show_what_changed():
    log = make_intents(fault="app", days=8)
    policy = {"change": {"alerts": "tolerance"}}
    records = watch_intents(log, policy=policy).check(intent_day(8)).records
    text = visible_text(render_report(records, tree=INTENTS))
    assert "above tolerance by more than chance." in text
    assert "Worst branch" in text
    assert "billing for channel=app, utility level2" in text
