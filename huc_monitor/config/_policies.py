"""Settings of what is done with an audit: tolerances, bounds, alerts, retraining and hosts."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, SecretStr, model_validator

from huc_monitor.config._types import Name, Section, SpanText

# The choices of `bounds.make_bound`, written out so that reading a file loads no kernels.
BoundMethod: TypeAlias = Literal["bootstrap", "sharp", "theorem"]


class ToleranceOverride(Section):
    """Another tolerance where all the given names match; the one with most names wins."""

    utility: Name | None = None
    node: Name | None = None
    subgroup: Name | None = None
    value: Annotated[float, Field(ge=0)]

    @model_validator(mode="after")
    def _some_name(self) -> ToleranceOverride:
        if (self.utility, self.node, self.subgroup) == (None, None, None):
            msg = "must name a utility, a node or a subgroup"
            raise ValueError(msg)
        return self


class ToleranceSettings(Section):
    """The largest absolute moment that is accepted."""

    value: Annotated[float, Field(ge=0)] = Field(description="For every candidate.")
    unit: Literal["utility", "money"] = Field(
        default="utility", description="utility: in [-1, 1]; money: in each utility's own units."
    )
    relative_to: Literal["zero", "reference"] = Field(
        default="zero",
        description="reference: how far a moment may move from the reference window's.",
    )
    overrides: tuple[ToleranceOverride, ...] = Field(
        default=(), description="Other tolerances for utilities, nodes or subgroups."
    )


class BoundSettings(Section):
    """How sure a finding must be."""

    method: BoundMethod = "bootstrap"
    confidence_level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    draws: Annotated[int, Field(ge=100, le=100_000)] = Field(
        default=1000, description="Of the bootstrap."
    )
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="Of the bootstrap.")


class SequentialSettings(Section):
    """Alarms that stay valid however often one looks."""

    enabled: bool = True
    average_run_length: Annotated[float, Field(ge=1)] = Field(
        default=100.0, description="Windows between false alarms, at least, on average."
    )
    tolerance: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="In [-1, 1]; the `tolerance` above when left out."
    )


class AlertSettings(Section):
    """When people are told."""

    cool_down: SpanText = Field(default="1d", description="Time before the same alert is repeated.")
    min_windows: Annotated[int, Field(ge=1)] = Field(
        default=1, description="Windows in a row that must exceed the tolerance."
    )
    resolve_after: Annotated[int, Field(ge=1)] = Field(
        default=1, description="Windows in a row at a lower level before it takes effect."
    )
    quiet_after: Annotated[int, Field(ge=1)] = Field(
        default=2,
        description="More windows in a row that must add nothing to the evidence of a sequential "
        "alarm before its alert is resolved.",
    )
    channels: tuple[str, ...] = Field(default=(), description="Names of `channels`.")


class DriftSettings(Section):
    """What is told of predictions that move, also before their labels are there."""

    enabled: bool = True
    min_distance: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.05, description="Distances that are surely larger than this are told."
    )
    confidence_level: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.95, description="That none is overstated, all taken together."
    )


class HostSettings(Section):
    """An installed tracker or notifier, and its own settings."""

    name: Name = Field(description="As the package registers it, such as mlflow or files.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Its options.")
    secrets: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Options that must not be shown. ${NAME} is an environment variable.",
    )

    def options(self) -> dict[str, Any]:
        """Return settings and secrets together, in the clear: for the host only."""
        return {**self.settings, **{k: v.get_secret_value() for k, v in self.secrets.items()}}


class GateSettings(Section):
    """What a candidate must show on held-out labels before it may replace the model."""

    min_improvement: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.1,
        description="Share of the serving model's HUC that must be gone; 0.1 is a tenth.",
    )
    max_log_loss_increase: Annotated[float, Field(ge=0)] = Field(
        default=0.0, description="In nats per row."
    )
    max_accuracy_drop: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.005, description="In shares of rows; 0.005 is one row in 200."
    )


class RetrainingSettings(Section):
    """When a recalibration is fitted, and who decides on it."""

    enabled: bool = False
    critical_windows: Annotated[int, Field(ge=1)] = Field(
        default=3, description="Critical windows in a row that trigger it."
    )
    on_sequential_alarm: bool = True
    gate: GateSettings = GateSettings()
    promotion: Literal["manual", "gate", "shadow"] = Field(
        default="manual",
        description="manual: a person promotes; gate: passing the gate does; shadow: staying "
        "better than the champion for `shadow_windows` does.",
    )
    shadow_windows: Annotated[int, Field(ge=1, le=50)] = Field(
        default=3, description="Windows in which a challenger is audited beside the champion."
    )
    cool_down: SpanText = "7d"
