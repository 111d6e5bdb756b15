"""One boosting step, as people read it and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from huc_monitor.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Update:
    """Tilt the choice at ``node`` for rows of a subgroup whose score lies in a closed interval.

    The branch logits of the node move by ``step * c(x) * Delta_{u,v}(p)`` (Algorithm 1), that is
    towards children that pay more when ``step`` is positive. ``node`` is None for a UC-Boost
    update, which moves all leaf logits. Scores are those of the prediction as it stands when the
    update's turn comes.
    """

    subgroup: str
    utility: str
    interval_low: float
    interval_high: float
    node: str | None
    step: float

    def to_dict(self) -> dict[str, Any]:
        """JSON form; floats keep every bit."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Update:
        """Read what `to_dict` wrote."""
        names = [field.name for field in fields(cls)]
        if sorted(data) != sorted(names):
            msg = f"`updates` must have the keys {', '.join(names)}; got {sorted(data)}."
            raise InvalidInputError(msg)
        update = cls(**data)
        numbers = {key: data[key] for key in ("interval_low", "interval_high", "step")}
        for key, value in numbers.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value):
                msg = f"`{key}` of an update must be a finite number; got {value!r}."
                raise InvalidInputError(msg)
        if update.interval_low > update.interval_high:
            msg = (
                "`interval_low` of an update must be at most `interval_high`; got "
                f"{update.interval_low!r} and {update.interval_high!r}."
            )
            raise InvalidInputError(msg)
        return update
