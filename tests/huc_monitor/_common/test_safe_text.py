"""Names in every medium: nothing forged, nothing hidden, nothing endless."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hostile import NAMES, assert_clean

from huc_monitor._common.safe_text import (
    LONGEST,
    chat,
    code,
    distinct,
    file_name,
    json_line,
    line,
    metric_keys,
    plain,
    quoted,
    table_cell,
    visible,
)

ANY = st.one_of(st.text(), st.text("\n\r\x1b\u202e\u200b:#[]*`ab", max_size=30))
ORDINARY = (
    "sex=f",
    "65<=age<80",
    "Zoë",
    "猫/犬",
    "Ж",
    "नमस्ते",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian
    "👩\u200d🔬",
    "a b",
    "_x_",
)
MEDIA = (chat, code, distinct, line, plain, quoted)


@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_no_medium_shows_a_hostile_name_raw(medium, name):
    shown = medium(name)
    if medium is distinct:
        shown = plain(shown)  # it names things; what shows them makes commands harmless
    assert_clean(shown)
    assert "\n" not in shown
    assert len(shown) <= 5_000 if medium is line else len(shown) <= 6 * LONGEST


@given(ANY)
def test_whatever_a_name_holds_it_stays_on_its_line(name):
    for medium in (*MEDIA, visible):
        shown = medium(name)
        assert "\n" not in shown
        if medium not in {visible, distinct}:
            assert_clean(shown)


@pytest.mark.parametrize("name", ORDINARY)
def test_what_people_write_with_stays_as_it_is(name):
    for medium in (visible, distinct, plain, chat, line):
        assert medium(name) == name
    assert code(name) == f"`{name}`"


def test_a_joiner_between_latin_letters_is_shown():
    assert visible("pay\u200dpal") == r"pay\u200dpal"


@given(st.lists(ANY, min_size=2, max_size=2, unique=True))
def test_names_that_enter_records_stay_different(names):
    escaped = any("~" in name for name in names)
    assert escaped or distinct(names[0]) != distinct(names[1])
    assert max(len(distinct(name)) for name in names) <= LONGEST


def test_long_names_that_differ_at_the_end_stay_different():
    one, other = ("x" * 2_000_000 + end for end in "ab")
    for medium in (distinct, plain, quoted):
        assert medium(one) != medium(other)
    assert len(set(metric_keys([one, other]).values())) == 2


def test_chat_has_no_markup_no_link_and_calls_nobody():
    shown = chat("*bold* `code` [click](http://evil.example) @everyone")
    assert "*" not in shown
    assert "`" not in shown
    assert "](" not in shown
    assert "@everyone" not in shown


def test_json_keeps_names_to_the_last_character():
    for name in NAMES[:-2]:
        text = json_line({"name": name})
        assert_clean(text)
        assert text.isascii()
        assert json.loads(text) == {"name": name}


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "=cmd|' /C calc'!A0"])
def test_a_spreadsheet_sees_text_and_no_formula(name):
    buffer = io.StringIO()
    csv.writer(buffer).writerow([table_cell(name)])
    (cell,) = next(csv.reader(io.StringIO(buffer.getvalue())))
    assert cell == f"'{name}"


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_files_and_metric_keys_have_safe_short_names(name):
    made = file_name(name)
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,70}", made)
    assert made.strip(".")
    key = metric_keys([name])[name]
    assert re.fullmatch(r"[\w. -]{1,70}", key)
    assert key.strip(". ") == key


@given(st.lists(ANY, max_size=8, unique=True), st.lists(ANY, max_size=8, unique=True))
def test_metric_keys_differ_where_names_differ_alone_and_joined(nodes, groups):
    ours, theirs = metric_keys(nodes), metric_keys(groups)
    joined = [f"{ours[one]} - {theirs[other]}".casefold() for one in nodes for other in groups]
    assert len(set(joined)) == len(nodes) * len(groups)
    for name, key in ours.items():
        if re.fullmatch(r"[a-z0-9]{1,20}", name) and len(nodes) == 1:
            assert key == name
