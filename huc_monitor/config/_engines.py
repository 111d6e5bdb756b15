"""Settings of who computes an audit, and of windows that are too large to hold."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from huc_monitor._common.settings import Name, Section, Whole


class LargeSettings(Section):
    """What happens to windows with more labelled rows than are held in memory."""

    rows: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None,
        description="Labelled rows that are held. Larger windows are audited from disk, or on "
        "Spark; a sample of this size explains what is found. No limit when left out; "
        "200,000 with `engine: spark`.",
    )
    memory_limit: str = Field(
        default="1GB",
        description="What sorting a larger window may take with `engine: local`.",
        examples=["512MB", "4GB"],
    )

    @field_validator("memory_limit")
    @classmethod
    def _is_size(cls, value: str) -> str:
        from huc_monitor.errors import InvalidInputError
        from huc_monitor.sources.large import bytes_of

        try:
            bytes_of(value)
        except InvalidInputError:
            msg = f"must be a size such as 512MB; got {value!r}"
            raise ValueError(msg) from None
        return value


class SparkSettings(Section):
    """The Spark session of `engine: spark`; one that is already running is used as it is."""

    master: Name | None = Field(
        default=None, description="Its master, where spark-submit does not say.", examples=["yarn"]
    )
    options: dict[str, str] = Field(
        default_factory=dict,
        description="Spark's own settings.",
        examples=[{"spark.executor.memory": "8g"}],
    )
    partitions: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None, description="Ranges of score that are scanned apart."
    )
