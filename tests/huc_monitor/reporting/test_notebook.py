from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from support.production_log import after, make_log, write_project
from support.report_cases import NASTY, seeded_audit, story

import huc_monitor as hm
from huc_monitor._common.views import Plotted, Shown
from huc_monitor.audit.compare import make_sample
from huc_monitor.audit.inputs import check_predictions
from huc_monitor.detection.change import ChangeTest
from huc_monitor.monitor import CheckResult
from huc_monitor.monitor.change import CandidateChange, WindowChange
from huc_monitor.monitor.findings import Finding
from huc_monitor.reporting import notebook

VOID = {"img", "br", "rect", "line", "path", "input", "meta", "link"}
HOSTILE = NASTY[0]
TREE = hm.LabelTree.from_nested({HOSTILE: ["a", "b"], NASTY[3]: ["c", "d"]})
PAY = hm.Payoff(NASTY[1], {"a": -1, "b": 1, "c": 1, "d": 1}, units=NASTY[4])


class Tags(HTMLParser):
    """Collects tags and attributes, and refuses what is not nested properly."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.attributes, self.words = [], set(), [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes += attrs
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.words.append(data)


def drawn_rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(4), n)
    return p, rng.choice(4, size=n, p=(0.6, 0.1, 0.2, 0.1))


def a_change():
    day = datetime(2024, 3, 1, tzinfo=UTC)
    return CandidateChange(
        utility=NASTY[1],
        subgroup=NASTY[2],
        node=HOSTILE,
        before=0.01,
        after=-0.03,
        difference=-0.04,
        lower=-0.06,
        upper=-0.02,
        interval_low=0.1,
        interval_high=0.9,
        n_windows=4,
        onset_first=day,
        onset_last=day,
    )


def made_views():
    p, codes = drawn_rows()
    shared = {"tree": TREE, "utilities": [PAY]}
    features = pd.DataFrame({NASTY[2]: np.where(p[:, 0] > 0.2, NASTY[0], NASTY[3])})
    groups = hm.Subgroups.from_reference(features, {NASTY[2]: "each"})
    change = a_change()
    window = WindowChange(
        average_run_length=200.0, pools=(1, 4), n_before=9.0, n_after=(1.0, 4.0), changes=(change,)
    )
    finding = Finding(
        kind="changed",
        node=HOSTILE,
        subgroups=(NASTY[2],),
        utilities=(PAY.name,),
        change=change,
        causes=(f"More of *{NASTY[3]}* than before.",),
    )
    audited = hm.audit(p, codes, **shared, subgroups=groups, features=features)
    test = ChangeTest(**shared)
    even = check_predictions(p, tree=TREE)
    before, now = (make_sample(even, labels, test.plan) for labels in (codes, codes[::-1] // 2))
    tree, records = story((NASTY[0], NASTY[3]), subgroup=NASTY[2])
    return {
        "audit": audited,
        "comparison": hm.compare((p, codes), (p, codes[::-1]), **shared),
        "boost": hm.HUCBoost(**shared).fit(p, codes, validation=(p, codes)),
        "not fitted": hm.HUCBoost(**shared),
        "uc boost": hm.UCBoost(**shared, max_updates=2).fit(p, codes),
        "temperature": hm.TemperatureScaling().fit(p, codes, tree=TREE),
        "vector": hm.VectorScaling(regularization=1.0).fit(p, codes, tree=TREE),
        "no scaling yet": hm.DirichletScaling(),
        "discovery": hm.discover(p, codes, **shared, features=features),
        "finding": finding,
        "standing": Finding(kind="standing", node=HOSTILE, subgroups=("all",), utilities=("u",)),
        "change": change,
        "window change": window,
        "record": records[3],
        "not audited": records[1],
        "check": CheckResult(tuple(records), None, "critical", records[3].alerts),
        "empty check": CheckResult((), None, "ok", ()),
        "pictures": hm.draw_pictures(records, tree=tree),
        "step": test.look(before, [now]),
    }


@pytest.fixture(scope="module")
def views():
    return made_views()


def test_every_view_is_escaped_nested_and_makes_no_request(views):
    for name, shown in views.items():
        html = shown._repr_html_()
        page = Tags(html)
        assert not page.seen & {"script", "img", "b onclick", "iframe", "link", "a"}, name
        assert not [key for key, _ in page.attributes if key.startswith("on") or key == "src"], name
        assert "http" not in html.lower(), name
        assert "url(" not in html, name
        assert len(html) < 60_000, (name, len(html))


def test_hostile_names_are_shown_as_they_are(views):
    for name in ("audit", "comparison", "boost", "finding", "change", "record"):
        assert HOSTILE in "".join(Tags(views[name]._repr_html_()).words), name


def test_everything_that_says_it_is_shown_has_a_view():
    def below(kind):
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    default = notebook._parts.dispatch(object)
    # `slots=True` makes a class twice: what counts is the one its module holds.
    found = [k for k in below(Shown) if vars(sys.modules[k.__module__]).get(k.__name__) is k]
    missing = [k for k in found if k is not Plotted and notebook._parts.dispatch(k) is default]
    assert len(found) > 10
    assert missing == []


def test_the_five_worst_come_with_signed_bounds():
    result = seeded_audit()["source"]
    words = Tags(result._repr_html_()).words
    worst = result.to_frame().sort_values("moment", key=abs, ascending=False).iloc[0]
    signed = [f"{worst[f'moment_{end}']:+.3f}".replace("-", "\u2212") for end in ("lower", "upper")]
    assert f"[{signed[0]}, {signed[1]}]" in words
    assert words.count("all") == 5


def test_a_short_frame_has_signed_bounds_and_the_long_one_everything():
    result = seeded_audit()["source"]
    short, full = result.to_frame(), result.to_frame(all_columns=True)
    assert list(short) == [
        "utility",
        "subgroup",
        "node",
        "moment",
        "moment_lower",
        "moment_upper",
        "interval_low",
        "interval_high",
        "n_in_interval",
    ]
    np.testing.assert_allclose(short["moment_lower"], full["moment"] - full["radius"])
    np.testing.assert_allclose(short["moment_upper"], full["moment"] + full["radius"])
    assert list(full)[4:8] == ["lower", "upper", "radius", "detectable"]


def test_columns_that_matter_only_sometimes_are_in_the_short_frame_when_they_do(views):
    assert "moment_in_units" in views["audit"].to_frame()
    assert "label_coverage" not in views["audit"].to_frame()
    partly = hm.audit([[0.25] * 4] * 4, ["a", "b", HOSTILE, "c"], tree=TREE, utilities=[PAY])
    assert "label_coverage" in partly.to_frame()
    assert "interval_low" not in views["comparison"].to_frame()
    assert "interval_low" in views["comparison"].to_frame(all_columns=True)
    assert "rule" not in views["discovery"].to_frame()


def test_a_picture_has_a_short_repr_and_shows_as_svg(views):
    picture = views["audit"].plot("moments")
    assert repr(picture).startswith("Picture('Worst moment of each branch")
    assert len(repr(picture)) < 100
    assert ET.fromstring(picture._repr_svg_()).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314
    assert len(repr(views["pictures"])) < 800


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("audit", {"moments", "icicle", "waterfall"}),
        ("comparison", {"differences", "by_subgroup"}),
        ("boost", {"history"}),
        ("step", {"differences", "by_subgroup"}),
        ("check", {"moments", "waterfall", "heat_map", "timeline"}),
        ("record", {"moments", "waterfall"}),
    ],
)
def test_a_plot_is_one_of_the_pictures_by_name(views, name, kinds):
    assert {kind: views[name].plot(kind).title != "" for kind in kinds} == dict.fromkeys(
        kinds, True
    )
    assert views[name].plot().title in {views[name].plot(kind).title for kind in kinds}
    with pytest.raises(hm.UnknownNameError, match=r"`kind` must be one of .*got 'pie'"):
        views[name].plot("pie")


def test_what_has_nothing_to_draw_says_so(views):
    with pytest.raises(hm.InvalidInputError, match="nothing to draw of this CheckResult"):
        views["empty check"].plot()
    loaded = hm.HUCBoost.from_dict(views["boost"].to_dict())
    with pytest.raises(hm.InvalidInputError, match="nothing to draw of this HUCBoost"):
        loaded.plot()
    assert f"{len(loaded.updates_)} update" in loaded._repr_html_()


def test_a_monitor_shows_its_newest_window_and_its_open_alerts(tmp_path):
    log, labels = make_log(6, 800, broken_from=2)
    monitor = hm.open_monitor(write_project(tmp_path, log, labels))
    assert "No window has been audited yet." in Tags(monitor._repr_html_()).words
    checked = monitor.check(now=after(8))
    words = "".join(Tags(monitor._repr_html_()).words)
    assert "Status: critical" in words
    assert "attack" in words
    assert monitor.plot("timeline").title == "HUC, UC and alerts over windows"
    assert "6 new records" in "".join(Tags(checked._repr_html_()).words)


@pytest.mark.seconds
def test_an_audit_loads_nothing_that_draws_until_it_is_shown():
    script = """
import sys, huc_monitor as hm
tree = hm.LabelTree.flat(["a", "b"])
found = hm.audit([[0.5, 0.5]] * 8, list("aaaaabbb"), tree=tree, utilities=[hm.TopK(1)])
drawing = [name for name in sys.modules if name.startswith("huc_monitor.reporting")]
assert not drawing, drawing
assert found._repr_html_().startswith("<div")
assert "huc_monitor.reporting.notebook" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
