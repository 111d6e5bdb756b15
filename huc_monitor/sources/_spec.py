"""What the user says about a prediction log and its labels, in the file and in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, SkipValidation, field_validator, model_validator

from huc_monitor._common.settings import (
    Name,
    Number,
    Section,
    Share,
    SpanText,
    Whole,
    Zone,
    renamed,
)
from huc_monitor._common.times import TimeUnit
from huc_monitor.audit.forms.reader import SUM_TOLERANCE
from huc_monitor.audit.forms.spec import LEAF, PredictionColumns, as_columns
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources._partition import Partition


class LogColumns(Section):
    """Which columns of the log mean what.

    Parameters
    ----------
    time : str
        When the prediction was made; rows without a time are in no window.
    label : str, optional
        The label, where it is in the log.
    id : str, optional
        Id of a prediction; labels are joined by it. One that comes twice in a window counts once;
        windows are not compared with each other.
    model_version : str, optional
        Version of the model that answered.
    cluster : str, optional
        Rows of equal value may depend on each other: user, patient, session, or the request that
        was sent again. For blocks of time see `clusters`.
    label_probability : str, optional
        With which probability the row was chosen to be labelled, where that was not the same for
        all rows.
    time_zone : str, default "UTC"
        What times without a zone mean.
    time_unit : {"s", "ms", "us", "ns"}, optional
        For times that are numbers.
    """

    time: Name
    label: Name | None = None
    id: Name | None = None
    model_version: Name | None = None
    cluster: Name | None = Field(default=None, examples=["user_id"])
    label_probability: Name | None = None
    time_zone: Zone = "UTC"
    time_unit: TimeUnit | None = None


class ClusterOptions(Section):
    """Rows that depend on their neighbours in time; see also `columns.cluster`.

    Parameters
    ----------
    block : str, optional
        Rows of the same block of time may depend on each other. Choose it several times as long as
        the dependence lasts. Blocks are counted in UTC.
    """

    block: SpanText | None = Field(default=None, examples=["1h", "1d"])


class Columns(LogColumns):
    """Which columns of a prediction log mean what.

    Parameters
    ----------
    time : str, optional
        When the prediction was made. Rows without a time belong to no window. Left out for a log
        that is read as a whole, by `TableSource.everything`.
    probabilities : str, mapping of leaf to column, or PredictionColumns, default "{leaf}"
        A pattern for one column per leaf, such as "p_{leaf}", or the columns one by one. Their
        order in the log does not matter. Where no columns are called like the leaves, the default
        takes what comes before and after all of them, if there is one such pattern. Every other
        form of predictions is said by `PredictionColumns`.
    list_column : str, optional
        Instead: one column with a list of all probabilities.
    classes : sequence of str, optional
        The order of that list; the order of ``tree.leaves`` when left out.
    id, label, model_version : str, optional
        `label` is left out where labels are in a table of their own, which needs the `id`.
    cluster, label_probability : str, optional
        As `clusters` and `label_probability` of `audit`. A row without a value is unusable.
    cluster_block : str, optional
        Instead of `cluster`: rows of the same block of time, such as "1h", are a cluster.
    features : sequence of str
        Columns that subgroups need; no others are read.
    keys : sequence of str
        Columns within which rows may depend on each other: tested, and told if they do.
    time_zone : str, default "UTC"
        What times without a zone mean.
    time_unit : {"s", "ms", "us", "ns"}, optional
        For times that are numbers.
    """

    time: Name | None = None  # type: ignore[assignment] # a file has one, a log need not
    probabilities: PredictionColumns | str | Mapping[str, str] = LEAF
    list_column: Name | None = None
    classes: Sequence[str] | None = None
    features: Annotated[Sequence[str], AfterValidator(tuple)] = ()
    cluster_block: SpanText | None = None
    keys: Annotated[Sequence[str], AfterValidator(tuple)] = ()

    @property
    def clustered(self) -> bool:
        """Whether rows are in clusters."""
        return self.cluster is not None or self.cluster_block is not None

    @model_validator(mode="after")
    def _one_cluster(self) -> Columns:
        if self.cluster is not None and self.cluster_block is not None:
            msg = "must have a column `cluster` or blocks of time, not both"
            raise ValueError(msg)
        return self

    @property
    def predictions(self) -> PredictionColumns:
        """Where the predictions are, also where a pattern or a mapping was given."""
        given = self.probabilities
        if self.list_column is not None:
            classes = None if self.classes is None else tuple(self.classes)
            return PredictionColumns(list=self.list_column, classes=classes)
        return as_columns(given)


class LabelColumns(Section):
    """Which columns of a table of labels mean what.

    Parameters
    ----------
    id : str
        Column that equals the log's `columns.id`.
    label : str
        Column of the label.
    time : str, optional
        When the label became known; makes audits repeatable.
    time_zone : str, default "UTC"
        What label times without a zone mean.
    time_unit : {"s", "ms", "us", "ns"}, optional
        For label times that are numbers.
    """

    id: Name
    label: Name
    time: Name | None = None
    time_zone: Zone = "UTC"
    time_unit: TimeUnit | None = None


class LabelTable(LabelColumns):
    """Labels in a table of their own, which may arrive late and more than once.

    The label with the latest time wins, and replaced labels are counted. Different labels of equal
    times (and without a time column) contradict each other: the row is set aside as unusable.

    Parameters
    ----------
    table : Table
    id, label : str
        Their columns.
    time : str, optional
        When the label became known. Without it, `as_of` has no effect. A row without a time counts
        as known from the beginning, and any with a time replaces it. A row with a time that cannot
        be read makes its id unusable: it may be the latest.
    time_zone, time_unit
        As in `Columns`.
    """

    table: SkipValidation[Any]


class RowChecks(Section):
    """Which rows can be used, and how many may not.

    Parameters
    ----------
    max_bad_share : float, default 0.05
        Share of unusable rows above which a window is an error.
    sum_tolerance : float
        Rows that sum to 1 within this are rescaled: for rounded numbers.
    """

    max_bad_share: Share = 0.05
    sum_tolerance: Annotated[Number, Field(ge=0, le=0.1)] = SUM_TOLERANCE


class FileOptions(Section):
    """How files are read.

    Parameters
    ----------
    format : {"auto", "parquet", "csv", "jsonl", "delta", "iceberg", "orc"}, default "auto"
        Of the files at `path`; Delta also with `engine: spark`, ORC only there.
    preset : {"sagemaker-capture", "databricks-inference"}, optional
        Unpack the request and response payloads that this platform logs: into the columns id, time,
        those of the response, and those of the request.
    partition : Partition, optional
        Lets a window open only the files of its own folders.
    union_by_name : bool, default False
        Accept files with different columns.
    """

    format: Literal["auto", "parquet", "csv", "jsonl", "delta", "iceberg", "orc"] = "auto"
    preset: Literal["sagemaker-capture", "databricks-inference"] | None = None
    partition: Partition | None = None
    union_by_name: bool = False


class LargeWindows(Section):
    """What happens to windows with more labelled rows than are held in memory.

    Parameters
    ----------
    most_rows : int, optional
        Labelled rows that are held. Larger windows are audited from disk, or on Spark; a sample of
        this size explains what is found. No limit when left out; 200,000 with `engine: spark`.
    memory_limit : str, default "1GB"
        What sorting a larger window may take with `engine: local`.
    """

    most_rows: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None, validation_alias=renamed("most_rows", "rows")
    )
    memory_limit: str = Field(default="1GB", examples=["512MB", "4GB"])

    @field_validator("memory_limit")
    @classmethod
    def _is_size(cls, value: str) -> str:
        from huc_monitor.sources.large import bytes_of

        try:
            bytes_of(value)
        except InvalidInputError:
            msg = f"must be a size such as 512MB; got {value!r}"
            raise ValueError(msg) from None
        return value


ROW_CHECKS: Final = RowChecks()
FILES: Final = FileOptions()
LARGE: Final = LargeWindows()
