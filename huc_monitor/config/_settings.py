"""The settings of ``huc.yaml``: names, types, defaults and what each is for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from huc_monitor._common.settings import (
    Name,
    PathText,
    Plain,
    Secret,
    Section,
    TimeText,
    Whole,
    check_path,
)
from huc_monitor.audit.forms.spec import PredictionColumns
from huc_monitor.monitor.alerts import AlertPolicy
from huc_monitor.monitor.discovering import DiscoveryPolicy
from huc_monitor.monitor.policy import Policy
from huc_monitor.monitor.windows import CountWindows, TimeWindows
from huc_monitor.sources._spec import (
    ClusterOptions,
    FileOptions,
    LabelColumns,
    LargeWindows,
    LogColumns,
    RowChecks,
)
from huc_monitor.subgroups import MIN_SIZE
from huc_monitor.tree.labels import read_mapping


class SparkSettings(Section):
    """The Spark session of `engine: spark`; one that is already running is used as it is.

    Parameters
    ----------
    master : str, optional
        Its master, where spark-submit does not say.
    options : dict, optional
        Spark's own settings.
    partitions : int, optional
        Ranges of score that are scanned apart.
    """

    master: Name | None = Field(default=None, examples=["yarn"])
    options: dict[str, str] = Field(
        default_factory=dict, examples=[{"spark.executor.memory": "8g"}]
    )
    partitions: Annotated[Whole, Field(ge=1)] | None = None


class ModelSettings(Section):
    """The model that is watched.

    Parameters
    ----------
    name : str
        Its name, as in the model registry.
    """

    name: Name


class TableSettings(FileOptions):
    """Where rows are: files (`path`), a DuckDB file (`database`) or an SQL database (`url`).

    Parameters
    ----------
    path : str, optional
        A Parquet or CSV file, a folder of Parquet files, or a glob pattern.
    database : str, optional
        A DuckDB database file.
    url : str, optional
        SQLAlchemy URL of a database. ${NAME} is the environment variable NAME.
    table : str, optional
        Table or view, with `database` or `url`; by itself, one that Spark knows.
    db_schema : str, optional
        Schema of an SQL table.
    """

    path: PathText | None = None
    database: PathText | None = None
    url: Secret | None = Field(
        default=None, examples=["postgresql+psycopg://reader:${DB_PASSWORD}@host/predictions"]
    )
    table: Name | None = None
    db_schema: Name | None = Field(default=None, alias="schema")

    @property
    def is_catalogued(self) -> bool:
        """Whether this is a table that is found by its name alone, as Spark's are."""
        elsewhere = (self.path, self.database, self.url, self.db_schema)
        return self.table is not None and elsewhere == (None,) * 4

    @model_validator(mode="after")
    def _one_place(self) -> TableSettings:
        given = [name for name in ("path", "database", "url") if getattr(self, name) is not None]
        if self.is_catalogued:
            return self
        if len(given) != 1:
            msg = f"must have exactly one of path, database, url; got {', '.join(given) or 'none'}"
            raise ValueError(msg)
        if given[0] == "path":
            extra = [name for name in ("table", "db_schema") if getattr(self, name) is not None]
            if extra:
                msg = "must not have a table or schema with `path`; use `database` or `url`"
                raise ValueError(msg)
        elif self.table is None:
            msg = f"must name the `table` to read from the {given[0]}"
            raise ValueError(msg)
        return self


class LabelTableSettings(TableSettings, LabelColumns):
    """Labels in a table of their own; the latest of each id counts."""


class PlanSettings(TableSettings):
    """A sampling plan, as `huc-monitor sample` writes it: which rows were chosen to be labelled.

    Parameters
    ----------
    id : str, default "id"
        Column that equals the log's `columns.id`.
    probability : str, default "label_probability"
        Column of the probability with which the row was chosen.
    """

    id: Name = "id"
    probability: Name = "label_probability"


def _spellings(value: Any) -> Any:
    """Read spellings that are written out, or check the path of a file of them."""
    if isinstance(value, dict):
        return read_mapping(value)
    if value is not None and not (isinstance(value, str) and value):
        msg = f"must be the path of a file, or a mapping such as {{Katze: cat}}; got {value!r}"
        raise ValueError(msg)
    return value if value is None else check_path(value)


class SourceSettings(RowChecks):
    """Where predictions and labels are.

    Parameters
    ----------
    log : TableSettings
        The prediction log.
    labels : LabelTableSettings, optional
        Labels, where they are not in the log (`columns.label`).
    plan : PlanSettings, optional
        Sampling plans of `huc-monitor sample`, where labels were chosen by them. In a window with
        planned rows, labels of other rows are left out.
    label_mapping : str or dict, optional
        Which node other spellings of labels mean: a mapping, or a CSV, JSON or YAML file of it.
    """

    log: TableSettings
    labels: LabelTableSettings | None = None
    plan: PlanSettings | None = None
    label_mapping: Annotated[str | dict[str, str] | None, BeforeValidator(_spellings)] = Field(
        default=None, examples=["labels.csv", {"Katze": "cat"}]
    )


def _pattern(value: Any) -> Any:
    return {"pattern": value} if isinstance(value, str) else value


Predictions = Annotated[
    PredictionColumns,
    BeforeValidator(_pattern, json_schema_input_type=str | PredictionColumns),
]


class ColumnSettings(LogColumns):
    """Which columns of the log mean what.

    Parameters
    ----------
    probabilities : PredictionColumns or str, optional
        Where the predictions are: exactly one of pattern, columns, list, pairs, map; a text is a
        pattern.
    base_probabilities : PredictionColumns or str, optional
        Where the base model's own probabilities are, for logs whose `probabilities` are those of a
        recalibrated version; recalibration is fitted to them.
    """

    probabilities: Predictions = Field(
        default_factory=lambda: PredictionColumns(pattern="{leaf}"), examples=["p_{leaf}"]
    )
    base_probabilities: Predictions | None = Field(default=None, examples=["base_{leaf}"])


class SubgroupSettings(Section):
    """For whom calibration is measured, besides everyone.

    Parameters
    ----------
    by : dict, optional
        Column to each, median, cut points, or {quantiles: [...]}. Not the label: grouped by what
        happened, even a perfect model looks miscalibrated.
    predicates : dict, optional
        Name to predicate.
    weights : dict, optional
        Name to weight column.
    min_size : int
        Subgroups with fewer reference rows are left out.
    discover : DiscoveryPolicy, optional
        Look for subgroups that nobody named, and watch what is certified.
    """

    by: dict[str, Any] = Field(default_factory=dict, examples=[{"age": [65, 80], "sex": "each"}])
    predicates: dict[str, Any] = Field(default_factory=dict)
    weights: dict[str, str] = Field(default_factory=dict)
    min_size: Annotated[Whole, Field(ge=0)] = MIN_SIZE
    discover: DiscoveryPolicy | None = None


class ReferenceSettings(Section):
    """The frozen past that later windows are compared with: cut points, normal moments, drift.

    Parameters
    ----------
    start : str
        First moment; a date means its midnight.
    end : str
        First moment after it; before that, and before its labels are due, nothing is audited.
    """

    start: TimeText
    end: TimeText


class AlertSettings(AlertPolicy):
    """When people are told, and through which channels.

    Parameters
    ----------
    channels : tuple of str, optional
        Names of `channels`.
    page : str, optional
        Address of a page that shows the monitor, such as that of `huc-monitor ui`; messages of
        alerts end with it.
    """

    channels: tuple[str, ...] = ()
    page: Name | None = Field(default=None, examples=["https://monitor.example.org/"])


class HostSettings(Section):
    """An installed tracker, notifier, exporter or attachment, and its own settings.

    Parameters
    ----------
    name : str
        As the package registers it, such as mlflow or files.
    settings : dict, optional
        Its options. Environment variables (${NAME}) are read in `secrets` only.
    secrets : dict, optional
        Options that must not be shown. ${NAME} is an environment variable.
    """

    name: Name
    settings: dict[str, Plain] = Field(default_factory=dict)
    secrets: dict[str, Secret] = Field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """Return settings and secrets together, in the clear: for the host only."""
        return {**self.settings, **{k: v.get_secret_value() for k, v in self.secrets.items()}}


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


Host = Annotated[HostSettings, BeforeValidator(_named, json_schema_input_type=str | HostSettings)]


_ROWS = frozenset({"n_rows", "rows"})


def _one_kind(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    by_time, by_count = "length" in value, _kind(value) == "by count"
    mistyped = value.keys() - TimeWindows.model_fields.keys() - _ROWS
    if by_time == by_count and not mistyped:
        msg = "must have either `length` (such as 1d) or `n_rows` (such as 10000)"
        raise ValueError(msg)
    return value


def _kind(value: Any) -> str:
    counts = isinstance(value, CountWindows) or (isinstance(value, dict) and _ROWS & value.keys())
    return "by count" if counts else "by time"


Windows = Annotated[
    Annotated[TimeWindows, Tag("by time")] | Annotated[CountWindows, Tag("by count")],
    Discriminator(_kind),
    BeforeValidator(_one_kind),
]


class Settings(Policy):
    """The whole file.

    Parameters
    ----------
    version : int, default 1
        Of this format.
    tree : str
        Label tree: a .yaml, .json or .csv file.
    tree_changes : str, optional
        Earlier versions of the tree and what became of their nodes: a .yaml or .json file. The
        monitor goes on with its history and open alerts.
    utilities : tuple of dict, optional
        What a prediction is worth. Correctness at every level when left out.
    channels : dict of str to HostSettings, optional
        Ways to reach people, by the names alerts use.
    attachments : dict of str to HostSettings, optional
        Files made about a window that alerts, by names of your choice.
    exporters : dict of str to HostSettings, optional
        Other systems that are shown where the monitor stands after every check.
    tracker : HostSettings or str, default "files"
        Where records are kept.
    state : str, default "huc-state"
        Folder of the monitor's state.
    engine : {"local", "spark"}, default "local"
        Who computes an audit.
    """

    model_config = ConfigDict(title="huc-monitor configuration")

    version: Literal[1] = 1
    model: Annotated[
        ModelSettings, BeforeValidator(_named, json_schema_input_type=str | ModelSettings)
    ]
    tree: PathText
    tree_changes: PathText | None = None
    source: SourceSettings
    columns: ColumnSettings
    clusters: ClusterOptions = ClusterOptions()
    utilities: tuple[dict[str, Any], ...] = Field(
        default=(), examples=[[{"type": "TopK", "k": 3}, {"type": "LevelCorrectness", "level": 1}]]
    )
    subgroups: SubgroupSettings = SubgroupSettings()
    reference: ReferenceSettings | None = None
    windows: Windows
    alerts: AlertSettings = AlertSettings()
    channels: dict[str, Host] = Field(default_factory=dict)
    attachments: dict[str, Host] = Field(
        default_factory=dict,
        examples=[{"drift": {"name": "evidently", "settings": {"columns": ["age"]}}}],
    )
    exporters: dict[str, Host] = Field(
        default_factory=dict,
        examples=[{"metrics": {"name": "prometheus", "settings": {"listen": "127.0.0.1:9464"}}}],
    )
    tracker: Host = HostSettings(name="files")
    state: PathText = "huc-state"
    engine: Literal["local", "spark"] = "local"
    large: LargeWindows = LargeWindows()
    spark: SparkSettings = SparkSettings()

    @field_validator("channels")
    @classmethod
    def _channel_names(cls, value: dict[str, HostSettings]) -> dict[str, HostSettings]:
        if "" in value:
            msg = "must have names that are not empty"
            raise ValueError(msg)
        return value
