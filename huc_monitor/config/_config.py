"""A configuration file that was read: typed settings, and what they describe."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any, Final

import pandas as pd
from pydantic import ValidationError

from huc_monitor._common.times import get_zone, to_utc
from huc_monitor.config._settings import Settings, TableSettings
from huc_monitor.config._yaml import ConfigError, Document, read_document
from huc_monitor.errors import HUCError, InvalidInputError, did_you_mean
from huc_monitor.monitor.ports import MonitorInfo, make_plugin
from huc_monitor.monitor.windows import WindowSpec
from huc_monitor.sources import Columns, DuckTable, Engine, LabelTable, SQLTable, Table, TableSource
from huc_monitor.sources._keys import likely_keys
from huc_monitor.sources._rows import find_strays
from huc_monitor.sources._spec import LabelColumns, LogColumns
from huc_monitor.sources.large import LargeSource
from huc_monitor.sources.versions import VersionedSource
from huc_monitor.subgroups import Subgroups
from huc_monitor.subgroups._outcome import no_label
from huc_monitor.tree import LabelTree
from huc_monitor.tree.changes import TreeChanges
from huc_monitor.tree.labels import read_mapping
from huc_monitor.utilities import Utility, correct_at_every_level

# What changes a result. Places are not among them: a log that is moved is the same log.
_IDENTITY: Final = ("model", "columns", "subgroups", "reference")
_IDENTITY_LABELS: Final = ("id", "label", "time", "time_zone", "time_unit")
_SPARK_ROWS: Final = 200_000
_REAL: Final = re.compile("double|float|real|decimal|numeric", re.IGNORECASE)
_OLD_WORDS: Final = {"recalibration": "retraining"}  # hashes stay what they were
_POLICY: Final = ("tolerance", "sequential", "recalibration")


@dataclass(frozen=True, slots=True, eq=False)
class Config:
    """What a configuration file says, checked as far as it can be without reading the log.

    Attributes
    ----------
    settings : Settings
        The typed content.
    folder : Path
        Paths in the file are relative to it: the folder of the file.
    tree : LabelTree
    utilities : tuple of Utility
        Those of the file, or correctness at every level of the tree.
    """

    settings: Settings
    folder: Path
    tree: LabelTree
    utilities: tuple[Utility, ...]
    document: Document = field(repr=False)
    changes: TreeChanges | None = None

    @property
    def identity(self) -> str:
        """Hash of everything that changes the result of an audit.

        The model, the content of the tree, columns, utilities, subgroups, reference, windows and
        bounds. Not in it: where data and state are, secrets, channels, trackers, the engine, how
        many labels are enough, and the policy (tolerance, alarms, recalibration): these may change
        while a monitor goes on.
        """
        changes = self.changes
        if changes is not None and changes.monitor is not None:
            return changes.monitor
        plain, options, windows = self.to_dict(), self.settings.audit, self.windows
        chosen: dict[str, Any] = {name: plain[name] for name in _IDENTITY}
        del chosen["columns"]["base_probabilities"]  # audits do not read them
        # As without these settings, so that the state of older files goes on.
        for name in ("cluster", "label_probability"):
            if chosen["columns"][name] is None:
                del chosen["columns"][name]
        if chosen["subgroups"]["discover"] is None:
            del chosen["subgroups"]["discover"]
        if self.settings.clusters.block is not None:
            chosen["clusters"] = plain["clusters"]
        # A tree that changes in known ways is still the same monitor's.
        tree = self.tree if changes is None else changes.first
        own = self.utilities if self.settings.utilities else correct_at_every_level(tree)
        chosen["tree"] = tree.fingerprint
        chosen["utilities"] = [utility.to_dict() for utility in own]
        # In the words of earlier versions, so that their state goes on.
        chosen["bounds"] = {
            "method": options.bounds,
            "confidence_level": options.confidence_level,
            "draws": options.n_draws,
            "seed": options.rng,
        }
        chosen["windows"] = {
            "length": getattr(windows, "length", None),
            "rows": getattr(windows, "n_rows", None),
            "stride": windows.stride,
            "label_lag": windows.label_lag,
            "time_zone": windows.time_zone,
        }
        chosen["sum_tolerance"] = plain["source"]["sum_tolerance"]
        labels = plain["source"]["labels"]
        chosen["labels"] = labels and {name: labels[name] for name in _IDENTITY_LABELS}
        return _hash(chosen)

    @property
    def policy_identity(self) -> str:
        """Hash of what decides on alerts and recalibration, given the audits."""
        plain = self.to_dict()
        telling = {"channels", "page"}
        alerts = {name: value for name, value in plain["alerts"].items() if name not in telling}
        chosen = {_OLD_WORDS.get(name, name): plain[name] for name in _POLICY}
        return _hash({**chosen, "alerts": alerts})

    @property
    def windows(self) -> WindowSpec:
        """What is audited together."""
        return self.settings.windows

    @property
    def reference(self) -> tuple[datetime, datetime] | None:
        """Start and end of the reference window in UTC."""
        given = self.settings.reference
        if given is None:
            return None
        zone = get_zone(self.settings.windows.time_zone)
        start, end = (
            to_utc(time, argument="reference", zone=zone) for time in (given.start, given.end)
        )
        return start, end

    @property
    def state_folder(self) -> Path:
        """Where the monitor keeps its state."""
        return self.folder / self.settings.state

    @property
    def recalibrates(self) -> bool:
        """Whether checks work with a recalibration host.

        A trial goes on in every check, also of a version that a person asked for.
        """
        given = self.settings.recalibration
        return given.enabled or given.promotion == "shadow"

    @property
    def info(self) -> MonitorInfo:
        """What plugins are told about the monitor."""
        name = self.settings.model.name
        return MonitorInfo(
            name,
            self.identity,
            name,
            self.to_dict(),
            self.tree,
            self.folder,
            config=self,
            file=self.document.name,
        )

    def open_source(
        self,
        *,
        features: Sequence[str] | None = None,
        base: bool = False,
        keys: Sequence[str] | None = None,
    ) -> TableSource:
        """Open the log and the labels; checks that their columns are there.

        Parameters
        ----------
        features : sequence of str, optional
            Feature columns to read; those of the subgroups when left out.
        keys : sequence of str, optional
            Columns to test for dependent rows; those that sound like keys when left out.
        base : bool, default False
            Read `columns.base_probabilities` as the probabilities. Rows without them are left out,
            however many: they are from a time before the column was logged.
        """
        given, settings = self.settings.columns, self.settings.source
        labels = settings.labels
        chosen = given.base_probabilities if base else given.probabilities
        if chosen is None:
            msg = "`base` needs `columns.base_probabilities` in the configuration; it has none."
            raise InvalidInputError(msg)
        log = self._table(settings.log, ("source", "log"))
        columns = Columns(
            **{name: getattr(given, name) for name in LogColumns.model_fields},
            probabilities=chosen,
            features=self.feature_columns if features is None else tuple(features),
            cluster_block=self.settings.clusters.block,
            keys=self._keys(log) if keys is None else tuple(keys),
        )
        spelled = settings.label_mapping
        more: dict[str, Any] = {
            "labels": None
            if labels is None
            else LabelTable(
                **{name: getattr(labels, name) for name in LabelColumns.model_fields},
                table=self._table(labels, ("source", "labels")),
            ),
            "plan": self._plan(),
            "max_bad_share": 1.0 if base else settings.max_bad_share,
            "sum_tolerance": settings.sum_tolerance,
            "zone": self.windows.time_zone,
            "label_mapping": read_mapping(
                self._path(spelled) if isinstance(spelled, str) else spelled or {}
            ),
            "reference": self.reference,
        }
        newest = self._open(log, tree=self.tree, columns=columns, **more)
        return newest if self.changes is None else self._versioned(newest, self.changes, more)

    def _versioned(
        self, newest: TableSource, changes: TreeChanges, more: dict[str, Any]
    ) -> VersionedSource:
        """Open the log by every version of the tree."""
        if type(newest) is not TableSource:
            msg = "can be given with `engine: local` and without `large.most_rows` only"
            raise self.document.error(("tree_changes",), msg)
        earlier = []
        for version in changes.versions:
            columns = newest.columns
            if version.classes is not None:
                chosen: Any = columns.probabilities
                chosen = chosen.model_copy(update={"classes": version.classes})
                columns = columns.model_copy(update={"probabilities": chosen})
            # Spellings lead to nodes of the newest tree.
            given = {**more, "tree": version.tree, "columns": columns, "label_mapping": {}}
            try:
                earlier.append((version, TableSource(newest.log, **given)))
            except HUCError as error:
                msg = (
                    f"has a version whose columns the log lacks: {error} Files of several versions "
                    "are read together with `source.log.union_by_name: true`."
                )
                raise self.document.error(("tree_changes",), msg) from error
        return VersionedSource(
            newest.log, tree=self.tree, columns=newest.columns, earlier=earlier, **more
        )

    def _plan(self) -> LabelTable | None:
        given = self.settings.source.plan
        if given is None:
            return None
        if self._engine() is not None:
            text = (
                "must not be given with `engine: spark`, which reads no plans. Join the plan's "
                "probabilities to the log by id, and set `columns.label_probability`."
            )
            raise self.document.error(("source", "plan"), text)
        table = self._table(given, ("source", "plan"))
        return LabelTable(table=table, id=given.id, label=given.probability)

    def _keys(self, log: Table) -> list[str]:
        """Columns to test for dependent rows, where the file names no cluster."""
        given, clusters = self.settings.columns, self.settings.clusters
        if not self.settings.noticing.enabled or given.cluster or clusters.block:
            return []
        # Probabilities of a leaf called "order" are no orders: what has a decimal point is no key.
        kinds = log.columns()
        real = [name for name, kind in kinds.items() if _REAL.match(kind)]
        return likely_keys(kinds, (given.time, given.id or "", given.label or "", *real))

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """The columns of the log that the subgroups need."""
        return tuple(dict.fromkeys(name for _, name in _grouped_by(self.settings)))

    def searchable_columns(self) -> tuple[str, ...]:
        """Columns of the log that describe rows: all that have no other meaning."""
        source = self.open_source(features=(), keys=())
        used, partition = source.used_columns(), self.settings.source.log.partition
        if partition is not None:  # it follows the time
            used |= set(partition.columns)
        if self.settings.columns.base_probabilities is not None:
            used |= self.open_source(features=(), base=True, keys=()).used_columns()
        names = list(source.log.columns())
        # A leaf that the tree lacks has its column of predictions too.
        used |= set(find_strays(names, source.probabilities.given.pattern, used))
        return tuple(name for name in names if name not in used)

    def make_subgroups(self, reference: pd.DataFrame) -> Subgroups:
        """Freeze the subgroups on reference rows, such as the features of the reference window."""
        given = self.settings.subgroups
        try:
            return Subgroups.from_reference(
                reference,
                given.by,
                predicates=given.predicates,
                weights=given.weights,
                min_size=given.min_size,
            )
        except HUCError as error:
            # The function's arguments, in the words of the file.
            said = re.sub(r"`spec\['(.*?)'\]", r"`subgroups.by.\1", str(error))
            said = re.sub(r"`frame\[('.*?')\]`", r"the column \1", said)
            raise self.document.error(("subgroups",), f"cannot be used: {said}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON-safe data; secrets are masked."""
        return self.settings.to_dict()

    def _open(self, log: Table, **given: Any) -> TableSource:
        """Open a source with the chosen engine, for windows of any size."""
        large = self.settings.large
        engine = self._engine()
        if engine is not None:
            return engine.source(log, most_rows=large.most_rows or _SPARK_ROWS, **given)
        if large.most_rows is None:
            return TableSource(log, **given)
        return LargeSource(log, most_rows=large.most_rows, memory_limit=large.memory_limit, **given)

    def _engine(self) -> Engine | None:
        settings = self.settings
        if settings.engine == "local":
            return None
        name, options = settings.engine, settings.spark.model_dump()
        engine: Engine = make_plugin(
            "huc_monitor.engines", name, Engine, self.info, options, role="engine"
        )
        return engine

    def _table(self, given: TableSettings, path: tuple[str, ...]) -> Table:
        engine = self._engine()
        if engine is None and given.is_catalogued:
            raise self.document.error(path, "must have a `path`, `database` or `url` as well")
        if engine is not None and not given.is_catalogued and given.path is None:
            raise self.document.error(path, "must be a `path` or a `table` with `engine: spark`")
        if engine is None and given.format == "orc":
            raise self.document.error(path, "can have this `format` with `engine: spark` only")
        if engine is not None and (given.preset or given.format in {"jsonl", "iceberg"}):
            what = f"preset: {given.preset}" if given.preset else f"format: {given.format}"
            raise self.document.error(path, f"can have `{what}` with `engine: local` only")
        try:
            if engine is not None:
                place = None if given.path is None else self._path(given.path)
                return engine.table(path=place, table=given.table, format=given.format)
            if given.url is not None:
                return SQLTable(given.url.get_secret_value(), str(given.table), given.db_schema)
            if given.database is not None:
                return DuckTable.database(self._path(given.database), str(given.table))
            return DuckTable.files(
                self._path(str(given.path)),
                format=given.format,
                partition=given.partition,
                union_by_name=given.union_by_name,
                preset=given.preset,
            )
        except HUCError as error:
            raise self.document.error(path, f"cannot be opened: {error}") from error

    def _path(self, text: str) -> str:
        return text if "://" in text else str(self.folder / text)


def load_config(path: str | Path, *, environ: Mapping[str, str] | None = None) -> Config:
    """Read and check a configuration file.

    Parameters
    ----------
    path : str or Path
        A YAML file. Paths in it are relative to its folder.
    environ : mapping, optional
        Environment variables for ``${NAME}`` in `url` and `secrets`; those of the process when
        left out.

    Raises
    ------
    ConfigError
        With a line ``file:line:column: ...`` for everything that is wrong.
    """
    file = Path(path)
    if not file.is_file():
        msg = (
            f"`config` must be an existing file; got {str(path)!r}. `huc-monitor init` writes one."
        )
        raise ConfigError(msg)
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{file.name}: must be UTF-8 text; byte {error.start} is not. Save it as UTF-8."
        raise ConfigError(msg) from None
    return parse_config(text, folder=file.parent, name=file.name, environ=environ)


def parse_config(
    text: str,
    *,
    folder: str | Path = ".",
    name: str = "huc.yaml",
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Check the text of a configuration file; see `load_config`.

    Examples
    --------
    >>> parse_config("model: triage, window: {length: 1d}")
    Traceback (most recent call last):
    huc_monitor.config._yaml.ConfigError: huc.yaml:1:22: must be valid YAML; mapping values are
    not allowed here.
    """
    document = read_document(text, name=name)
    try:
        settings = Settings.model_validate(
            document.content, context=os.environ if environ is None else environ
        )
    except ValidationError as error:
        # Not chained: pydantic's own message shows its input, and that may be a secret.
        raise document.explain(error, Settings) from None
    home = Path(folder)
    _check_references(settings, document)
    try:
        tree = LabelTree.from_file(home / settings.tree)
    except HUCError as error:
        raise document.error(("tree",), f"cannot be read: {error}") from error
    changes = None
    if settings.tree_changes is not None:
        try:
            changes = TreeChanges.from_file(home / settings.tree_changes, tree)
        except HUCError as error:
            raise document.error(("tree_changes",), f"cannot be read: {error}") from error
    utilities = _utilities(settings, tree, document)
    _check_names(settings, tree, utilities, document)
    config = Config(settings, home, tree, utilities, document, changes)
    given, times = settings.reference, config.reference
    if given is not None and times is not None and times[0] >= times[1]:
        text = f"must be after `reference.start`, {given.start}; got {given.end}."
        raise document.error(("reference", "end"), text)
    return config


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file: editors complete and check by it while one types."""
    schema = Settings.model_json_schema(by_alias=True)
    own = dict.fromkeys(Settings.__annotations__) | schema["properties"]
    schema["properties"] = {key: schema["properties"][key] for key in own}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _hash(content: Mapping[str, Any]) -> str:
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def _check_references(settings: Settings, document: Document) -> None:
    for i, channel in enumerate(settings.alerts.channels):
        if channel not in settings.channels:
            remedy = did_you_mean(channel, list(settings.channels))
            text = f"must be the name of one of the `channels`; got {channel!r}. {remedy}"
            raise document.error(("alerts", "channels", i), text)
    labels = settings.source.labels
    if (settings.columns.label is None) == (labels is None):
        found = "both" if labels is not None else "neither"
        text = f"must be given, or else `source.labels`; got {found}."
        raise document.error(("columns", "label"), text)
    if labels is not None and settings.columns.id is None:
        text = "must be given: labels in a table of their own are joined by it."
        raise document.error(("columns", "id"), text)
    if settings.columns.cluster is not None and settings.clusters.block is not None:
        text = "must not be given with `clusters.block`: choose one of the two."
        raise document.error(("columns", "cluster"), text)
    for path, name in _grouped_by(settings):
        if name == settings.columns.label:  # a log beside a table of labels has none
            raise document.error(("subgroups", *path), no_label(name))
    if settings.tolerance.relative and settings.reference is None:
        text = "needs the section `reference` with a start and an end."
        raise document.error(("tolerance", "relative_to"), text)


def _utilities(settings: Settings, tree: LabelTree, document: Document) -> tuple[Utility, ...]:
    found: list[Utility] = []
    for i, entry in enumerate(settings.utilities):
        try:
            utility = Utility.from_dict(entry)
            utility.spreads(tree)
        except (HUCError, TypeError) as error:
            raise document.error(("utilities", i), f"cannot be used: {error}") from error
        if any(utility.name == other.name for other in found):
            text = f"must have a name of its own; got {utility.name!r} again. Add `name: ...`."
            raise document.error(("utilities", i), text)
        found.append(utility)
    return tuple(found) or correct_at_every_level(tree)


def _check_names(
    settings: Settings, tree: LabelTree, utilities: Sequence[Utility], document: Document
) -> None:
    names = {"utility": [utility.name for utility in utilities]}
    given: list[tuple[tuple[str, ...], Sequence[Any], dict[str, list[str]]]] = [
        (("tolerance", "overrides"), settings.tolerance.overrides, {"node": list(tree.nodes)}),
        (("maintenance",), settings.maintenance, {"branch": list(tree.branches)}),
    ]
    for section, rules, nodes in given:
        for (i, rule), (kind, known) in product(enumerate(rules), (names | nodes).items()):
            name = getattr(rule, kind)
            if name is not None and name not in known:
                text = f"must be a {kind}; got {name!r}. {did_you_mean(name, known)}"
                raise document.error((*section, i, kind), text)
    bare = settings.tolerance.say_without_units(utilities)
    if bare is not None:
        raise document.error(("tolerance", "unit"), bare)


def _grouped_by(settings: Settings) -> list[tuple[tuple[str, ...], str]]:
    """List the columns that subgroups are made by, each with its place in their section."""
    given = settings.subgroups
    searched = () if given.discover is None else given.discover.columns
    return [
        *((("by", name), name) for name in given.by),
        *(
            (("predicates", key), name)
            for key, rule in given.predicates.items()
            for name in _columns_in(rule)
        ),
        *((("weights", key), name) for key, name in given.weights.items()),
        *((("discover", "columns"), name) for name in searched),
    ]


def _columns_in(rule: Any) -> list[str]:
    if isinstance(rule, dict):
        own = [rule["column"]] if isinstance(rule.get("column"), str) else []
        return own + [name for value in rule.values() for name in _columns_in(value)]
    if isinstance(rule, list | tuple):
        return [name for value in rule for name in _columns_in(value)]
    return []
