"""Delta and Iceberg tables on a disk, without Spark: which files are their present version.

The log of the table says which Parquet files count; DuckDB reads those. What files alone cannot
tell (rows deleted by a mark, columns under other names) is refused with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from huc_monitor.errors import InvalidInputError, MissingExtraError

_NUMBER = re.compile(r"v?(\d+)(?:-[^/]*)?\.metadata\.json")


def is_delta(folder: Path) -> bool:
    """Whether a folder is a Delta table."""
    return (folder / "_delta_log").is_dir()


def is_iceberg(folder: Path) -> bool:
    """Whether a folder is an Iceberg table."""
    return any((folder / "metadata").glob("*.metadata.json"))


def lake_files(kind: str, folder: Path) -> Callable[[], list[str]]:
    """Return what lists the files of a table's present version, anew at every call."""
    reader = {"delta": _delta_files, "iceberg": _iceberg_files}[kind]
    return lambda: reader(folder)


def _delta_files(folder: Path) -> list[str]:
    deltalake = _load("deltalake")
    if not is_delta(folder):
        msg = f"`path` must be a Delta table, a folder with _delta_log; got {str(folder)!r}."
        raise InvalidInputError(msg)
    try:
        table = deltalake.DeltaTable(str(folder))
    except deltalake.exceptions.DeltaError as error:
        msg = f"The Delta table {str(folder)!r} could not be read: {error}"
        raise InvalidInputError(msg) from error
    features: set[Any] = set(table.protocol().reader_features or ())
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    elif "deletionVectors" in features and not _has_marks(table):
        features.discard("deletionVectors")
    _refuse(folder, "Delta", features & {"columnMapping", "deletionVectors"})
    return [_local(uri) for uri in table.file_uris()]


def _load(module: str) -> Any:
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingExtraError.of(package) from error


def _has_marks(table: Any) -> bool:
    return any(len(batch) for batch in table.deletion_vectors())


def _iceberg_files(folder: Path) -> list[str]:
    pyiceberg = _load("pyiceberg.table")
    if not is_iceberg(folder):
        msg = f"`path` must be an Iceberg table, a folder with metadata; got {str(folder)!r}."
        raise InvalidInputError(msg)
    found = [(_NUMBER.fullmatch(file.name), file) for file in (folder / "metadata").iterdir()]
    newest = max(
        (int(match[1]), file.stat().st_mtime, file) for match, file in found if match is not None
    )[2]
    table = pyiceberg.StaticTable.from_metadata(str(newest))
    names: dict[int, set[str]] = {}
    for schema in table.metadata.schemas:
        for field in schema.fields:
            names.setdefault(field.field_id, set()).add(field.name)
    planned = list(table.scan().plan_files())
    faults = {"renamed columns"} if any(len(known) > 1 for known in names.values()) else set()
    faults |= {"delete files"} if any(task.delete_files for task in planned) else set()
    _refuse(folder, "Iceberg", faults)
    return [_local(task.file.file_path) for task in planned]


def _refuse(folder: Path, kind: str, faults: set[str]) -> None:
    if faults:
        msg = (
            f"The {kind} table {str(folder)!r} cannot be read without its own engine: it uses "
            f"{', '.join(sorted(faults))}. Rewrite it (OPTIMIZE, or compact and copy), or use "
            "`engine: spark`."
        )
        raise InvalidInputError(msg)


def _local(uri: str) -> str:
    """Return a path; only file URIs are quoted."""
    parts = urlparse(uri)
    if parts.scheme == "file":
        return unquote(parts.path)
    if parts.scheme and len(parts.scheme) > 1:
        msg = f"Tables must lie on a disk to be read without Spark; got a file at {uri!r}."
        raise InvalidInputError(msg)
    return uri
