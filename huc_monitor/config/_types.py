"""The kinds of values that settings share, and what a section of the file is."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from huc_monitor._common.times import Span, TimeUnit, get_zone, to_utc

__all__ = ["Name", "PathText", "Section", "Share", "SpanText", "TimeText", "TimeUnit", "Zone"]


def _check_span(text: str) -> str:
    return str(Span.parse(text, argument="span"))


def _check_zone(name: str) -> str:
    return get_zone(name).key


def _check_time(text: str) -> str:
    to_utc(text, argument="time", zone=get_zone("UTC"))
    return text


def _check_path(text: str) -> str:
    if "${" in text:
        msg = (
            f"must be a plain path; got {text!r}. Environment variables are read in `url` and "
            "`secrets` only"
        )
        raise ValueError(msg)
    return text


SpanText: TypeAlias = Annotated[
    str,
    AfterValidator(_check_span),
    Field(pattern=r"^\s*[0-9]{1,6}\s*[smhdw]\s*$", examples=["15m", "6h", "1d", "2w"]),
]
Zone: TypeAlias = Annotated[
    str, AfterValidator(_check_zone), Field(examples=["UTC", "Europe/Berlin"])
]
TimeText: TypeAlias = Annotated[
    str, AfterValidator(_check_time), Field(examples=["2024-03-31", "2024-03-31T06:00:00+02:00"])
]
PathText: TypeAlias = Annotated[str, Field(min_length=1), AfterValidator(_check_path)]
Name: TypeAlias = Annotated[str, Field(min_length=1)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A part of the file: frozen, and without keys that nobody reads."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
