"""What scikit-learn asks of an estimator, for classes that must load without it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from huc_monitor.errors import UnknownNameError, did_you_mean


class Parametrised:
    """Read and set constructor arguments by name, so that ``clone`` and grid searches work.

    Importing scikit-learn costs a second, which a server that only replays a recalibrator should
    not pay; what it needs from an estimator is this.
    """

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002
        """Return constructor arguments by name."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def plain_params(self) -> dict[str, Any]:
        """Return constructor arguments as JSON takes them: numbers of NumPy as plain ones."""
        return {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params().items()
        }

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments by name."""
        self.check_names("params", params)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @classmethod
    def check_names(cls, argument: str, names: Iterable[str]) -> None:
        """Refuse what is no constructor argument."""
        known = cls._parameter_names()
        for name in names:
            if name not in known:
                msg = (
                    f"`{argument}` must be constructor arguments of {cls.__name__}; "
                    f"got {name!r}. {did_you_mean(name, known, limit=len(known))}"
                )
                raise UnknownNameError(msg)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True))

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not defaults[name].default and value != defaults[name].default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"
