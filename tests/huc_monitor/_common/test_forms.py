"""JSON forms of dataclasses: what is written, what is read, and how damage is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pytest

from huc_monitor._common.forms import STORED_AS, Form
from huc_monitor.errors import InvalidInputError

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Plain:
    """A part that is no form itself."""

    pair: tuple[float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg(Form):
    """A part of a trip."""

    at: datetime
    by: Literal["train", "boat"] | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip(Form):
    """Every kind of field there is."""

    name: str
    n: int
    cost: float
    paid: bool
    legs: list[Leg]
    parts: Mapping[str, Plain] = field(default_factory=dict)
    anything: Any = None
    more: Mapping[str, Any] = field(default_factory=dict)
    until: datetime | None = None
    heights: npt.NDArray[np.float64] | None = None

    schema: ClassVar[int | None] = 3


def trip(**given):
    values = {"name": "north", "n": 2, "cost": 1.5, "paid": True, "legs": [Leg(at=NOON)]}
    return Trip(**(values | given))


def test_a_sparse_field_is_written_only_where_it_is_not_its_default():
    @dataclass(frozen=True)
    class Stop(Form):
        zone: str = "UTC"
        names: tuple[str, ...] = ()

        sparse: ClassVar[tuple[str, ...]] = ("zone", "names")

    assert Stop().to_dict() == {}
    told = Stop("Europe/Berlin", ("a",))
    assert told.to_dict() == {"zone": "Europe/Berlin", "names": ["a"]}
    assert (Stop.from_dict({}), Stop.from_dict(told.to_dict())) == (Stop(), told)


def test_every_kind_of_field_comes_back_from_json():
    legs = [Leg(at=NOON, by="boat", tags=("a", "b"))]
    given = {"legs": legs, "parts": {"x": Plain((0.1, "y"))}, "more": {"z": [1]}, "until": NOON}
    one = trip(**given, anything=[None, {"k": 1}])
    text = json.dumps(one.to_dict(), allow_nan=False)
    assert text.startswith('{"schema_version": 3, "name": "north"')
    assert Trip.from_dict(json.loads(text)) == one


def test_times_keep_the_spelling_they_have_on_disk():
    assert Leg(at=NOON).to_dict()["at"] == "2024-03-01T12:00:00+00:00"


def test_arrays_come_back_to_the_last_bit():
    heights = np.random.default_rng(0).normal(size=9)
    found = Trip.from_dict(json.loads(json.dumps(trip(heights=heights).to_dict())))
    np.testing.assert_array_equal(found.heights, heights)


def test_fields_of_a_newer_version_are_left_out_and_those_of_an_older_get_their_defaults():
    plain = trip().to_dict() | {"invented later": 1}
    del plain["until"]
    assert Trip.from_dict(plain) == trip()


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        ({"schema_version": 2}, "`Trip` must have schema_version 3; got 2"),
        ({"name": 7}, "`Trip.name` must be str; got 7"),
        ({"n": 2.5}, "`Trip.n` must be int; got 2.5"),
        ({"n": True}, "`Trip.n` must be int; got True"),
        ({"cost": "1"}, "`Trip.cost` must be float; got '1'"),
        ({"legs": "abc"}, r"`Trip.legs` must be list\[Leg\]; got 'abc'"),
        ({"legs": [3]}, "`Leg` must be an object with the fields of Leg; got 3"),
        ({"legs": [{}]}, "`Leg.at` must be there; it is missing"),
        ({"legs": [{"at": "noon"}]}, "`Leg.at` must be datetime; got 'noon'"),
        ({"legs": [{"at": NOON.isoformat(), "by": "car"}]}, "`Leg.by` must be .*; got 'car'"),
        ({"parts": {"x": {"pair": [1]}}}, r"`Plain.pair` must be tuple\[float, str\]; got \[1\]"),
        ({"more": [1]}, r"`Trip.more` must be Mapping\[str, Any\]; got \[1\]"),
        ({"until": 5}, r"`Trip.until` must be datetime \| None; got 5"),
    ],
)
def test_damage_is_told_by_the_name_of_the_field(damage, match):
    with pytest.raises(InvalidInputError, match=match):
        Trip.from_dict(trip().to_dict() | damage)


@dataclass(frozen=True)
class Renamed(Form):
    """A field with a new name and its first key."""

    boat: str = field(default="", metadata={STORED_AS: "ship"})


def test_a_field_with_a_new_name_is_stored_under_its_first_key():
    assert Renamed("Argo").to_dict() == {"ship": "Argo"}
    assert Renamed.from_dict({"ship": "Argo"}) == Renamed("Argo")
    assert Renamed.from_dict({"boat": "Argo"}) == Renamed()
