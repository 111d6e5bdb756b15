"""How moments are bounded: the same words and defaults for audits, monitors, planning and files."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from huc_monitor._common.settings import Number, Section, Whole, renamed

BoundMethod: TypeAlias = Literal["bootstrap", "sharp", "theorem"]
ConfidenceLevel: TypeAlias = Annotated[Number, Field(gt=0, lt=1)]


def _seed(rng: Any) -> Any:
    """Draw a seed, if a generator is given."""
    from numpy.random import Generator

    return int(rng.integers(0, 1 << 63)) if isinstance(rng, Generator) else rng


class AuditOptions(Section):
    """How sure a finding must be.

    Parameters
    ----------
    bounds : {"bootstrap", "sharp", "theorem"} or None, default "bootstrap"
        How bounds are made: bootstrap is the narrowest and approximate; sharp holds for any
        distribution, 3 to 6 times as wide; theorem is the paper's; null makes none.
    confidence_level : float, default 0.95
        Probability that all bounds of a window hold at once.
    n_draws : int, default 1000
        Draws of the bootstrap.
    rng : int or numpy Generator, default 0
        Seed of the bootstrap.

        All as in `audit`.

    Examples
    --------
    >>> AuditOptions(n_draws=0)
    Traceback (most recent call last):
    huc_monitor.errors.InvalidInputError: `n_draws` must be at least 1; got 0.
    """

    bounds: BoundMethod | None = Field(
        default="bootstrap", validation_alias=renamed("bounds", "method")
    )
    confidence_level: ConfidenceLevel = 0.95
    n_draws: Annotated[Whole, Field(ge=1, le=100_000)] = Field(
        default=1000, validation_alias=renamed("n_draws", "draws")
    )
    rng: Annotated[Whole, Field(ge=0, lt=1 << 64), BeforeValidator(_seed)] = Field(
        default=0, validation_alias=renamed("rng", "seed")
    )


DEFAULTS: Final = AuditOptions()
