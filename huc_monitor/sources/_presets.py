"""Logs of request and response payloads, as platforms write them: unpacked into plain columns.

A preset turns every payload into rows of ``id``, ``time``, where known ``model_version``, what the
response says of each instance, and the fields of the request:

* a list of numbers is the column ``probabilities``; an object's keys are columns of their own
  (``probabilities`` and ``labels``, or one number per class);
* the request's records, split frame or single object are columns, for subgroups;
* a request of n > 1 instances becomes n rows whose ids are ``<id>/0``, ``<id>/1``, ...

A payload that cannot be read gives one row without probabilities, which is set aside and counted.
"""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    import duckdb


_MOST_TEXT: Final = 1 << 24
_SAMPLE: Final = 2_000
_WRAPPERS: Final = ("predictions", "outputs", "instances", "inputs", "dataframe_records")


class Preset(NamedTuple):
    """Where a platform keeps what: SQL expressions over its columns."""

    columns: tuple[str, ...]
    id: str
    time: str
    version: str | None
    request: str
    response: str
    where: str = "true"


PRESETS: Final = {
    "sagemaker-capture": Preset(
        columns=("captureData", "eventMetadata"),
        id="coalesce({event}->>'inferenceId', {event}->>'eventId')",
        time="TRY_CAST({event}->>'inferenceTime' AS TIMESTAMPTZ)",
        version=None,
        request="to_json(captureData)->'endpointInput'",
        response="to_json(captureData)->'endpointOutput'",
    ),
    "databricks-inference": Preset(
        columns=("databricks_request_id", "request", "response"),
        id="databricks_request_id",
        time="{time}",
        version="{version}",
        request="request",
        response="response",
        where="status_code = 200",
    ),
}


def find_preset(columns: dict[str, str]) -> str | None:
    """Recognise a platform's log by its columns."""
    for name, preset in PRESETS.items():
        if set(preset.columns) <= set(columns):
            return name
    return None


def unpacked(
    connection: duckdb.DuckDBPyConnection, relation: str, parameters: list[Any], preset: str
) -> str:
    """Return the SQL of a payload log's rows, with the columns that a sample of it has."""
    given = PRESETS[preset]
    types = {
        name: kind
        for name, kind, *_ in connection.sql(
            f"DESCRIBE SELECT * FROM {relation}", params=parameters
        ).fetchall()
    }
    missing = [name for name in given.columns if name not in types]
    if missing:
        msg = (
            f"`preset` {preset!r} needs the columns {', '.join(given.columns)}; the log has no "
            f"{missing[0]!r}. Leave `preset` out, or name another."
        )
        raise InvalidInputError(msg)
    if not connection.sql(
        "SELECT 1 FROM duckdb_functions() WHERE function_name = 'huc_unpack'"
    ).fetchall():
        connection.create_function(  # type: ignore[call-overload] # its stub knows no words
            "huc_unpack", _unpack, ["VARCHAR", "VARCHAR"], "VARCHAR[]", null_handling="special"
        )
    words = _words(types)
    version = (given.version or "").format(**words)
    status = given.where if "status_code" in types else "true"
    rows = (
        f"SELECT {given.id.format(**words)} AS id, {given.time.format(**words)} AS time, "
        f"{f'{version} AS model_version, ' if version else ''}"
        f"unnest(huc_unpack(CAST({given.request} AS VARCHAR), CAST({given.response} AS VARCHAR))) "
        f"AS item FROM {relation} WHERE {status}"
    )
    found = connection.sql(
        f"SELECT json_group_structure(CAST(item AS JSON)) FROM ({rows} LIMIT {_SAMPLE})",
        params=parameters,
    ).fetchall()[0][0]
    structure = json.loads(found or "{}")
    structure = {
        name: _widened(kind)
        for name, kind in (structure.items() if isinstance(structure, dict) else ())
        if name not in {"id", "time", "model_version", "_n"}
    }
    if not structure:
        msg = f"`preset` {preset!r} found no payload that could be read in the log."
        raise InvalidInputError(msg)
    text = json.dumps(structure).replace("'", "''")
    head = "id, time, model_version" if version else "id, time"
    number = "CASE WHEN item->>'$._n' IS NULL THEN id ELSE id || '/' || (item->>'$._n') END AS id"
    return (
        f"(SELECT {head}, unnest(payload) FROM (SELECT {head.replace('id', number, 1)}, "
        f"from_json(CAST(item AS JSON), '{text}') AS payload FROM ({rows})))"
    )


def _words(types: dict[str, str]) -> dict[str, str]:
    """Return what stands in the expressions for this log's own columns."""
    time = "request_time" if "request_time" in types else "epoch_ms(timestamp_ms)::TIMESTAMPTZ"
    version = ""
    if types.get("request_metadata", "").startswith(("MAP", "STRUCT", "JSON", "VARCHAR")):
        version = "to_json(request_metadata)->>'$.model_version'"
    elif "served_entity_id" in types:
        version = "served_entity_id"
    return {"event": "to_json(eventMetadata)", "time": time, "version": version}


def _widened(kind: Any) -> Any:
    """Return a JSON structure in which every number may be any number."""
    if isinstance(kind, list):
        return [_widened(item) for item in kind]
    if isinstance(kind, dict):
        return "JSON"
    if kind in {"UBIGINT", "BIGINT", "DOUBLE", "HUGEINT"}:
        return "DOUBLE"
    return "VARCHAR" if kind == "NULL" else kind


def _unpack(request: str | None, response: str | None) -> list[str]:
    """Return one JSON object per instance of a request and its response."""
    answers, asked = _instances(_content(response)), _instances(_content(request))
    if not answers:
        return ["{}"]
    same = len(asked) == len(answers)
    rows = []
    for k, answer in enumerate(answers):
        row = dict(asked[k]) if same and isinstance(asked[k], dict) else {}
        row |= _fields(answer)
        if len(answers) > 1:
            row["_n"] = str(k)
        rows.append(json.dumps(row, allow_nan=False))
    return rows


def _fields(answer: Any) -> dict[str, Any]:
    if isinstance(answer, dict):
        return {str(name): value for name, value in answer.items()}
    if isinstance(answer, list) and all(_is_number(value) for value in answer):
        return {"probabilities": answer}
    return {}


def _is_number(value: Any) -> bool:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and math.isfinite(value)


def _content(payload: str | None) -> Any:
    """Read a payload: JSON, CSV of numbers, or SageMaker's record of either."""
    if payload is None or len(payload) > _MOST_TEXT:
        return None
    try:
        found = json.loads(payload, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return _csv(payload)
    if isinstance(found, dict) and isinstance(found.get("data"), str) and "encoding" in found:
        text = found["data"]
        if found["encoding"] == "BASE64":
            try:
                text = base64.b64decode(text, validate=True).decode("utf-8")
            except ValueError:
                return None
        return _content(text)
    return found if isinstance(found, dict | list) else None


def _csv(text: str) -> Any:
    """Read lines of numbers between commas; None where it is something else."""
    try:
        rows = [[float(cell) for cell in line.split(",")] for line in text.split("\n") if line]
    except ValueError:
        return None
    if not all(map(_is_number, (cell for row in rows for cell in row))):
        return None
    return rows[0] if len(rows) == 1 else rows


def _instances(content: Any) -> list[Any]:
    """Return the instances of a payload, one or more."""
    if isinstance(content, dict):
        split = content.get("dataframe_split")
        if isinstance(split, dict) and isinstance(split.get("data"), list):
            names = split.get("columns") or []
            return [
                dict(zip(map(str, names), row, strict=False)) if isinstance(row, list) else row
                for row in split["data"]
            ]
        for name in _WRAPPERS:
            if isinstance(content.get(name), list):
                return list(content[name])
        return [content]
    if isinstance(content, list) and content:
        return content if all(isinstance(item, list | dict) for item in content) else [content]
    return []
