"""A fitted recalibrator as a JSON file."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from huc_monitor._common.private_files import write_atomically
from huc_monitor.errors import InvalidInputError


class Saved:
    """Base of recalibrators, which are written as JSON: reading one runs no code of the file."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Write the fitted recalibrator as JSON-safe data."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""

    def save(self, path: str | Path) -> None:
        """Write the fitted recalibrator to a JSON file, which only this user can read.

        A file that is there is replaced as a whole. `load` of the same class reads it back.

        Examples
        --------
        >>> import tempfile, huc_monitor as hm
        >>> scaling = hm.TemperatureScaling().fit([[0.9, 0.1]] * 4, [0, 0, 0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     scaling.save(f"{folder}/repair.json")
        ...     again = hm.TemperatureScaling.load(f"{folder}/repair.json")
        >>> again.to_dict() == scaling.to_dict()
        True
        """
        text = json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False, indent=1)
        write_atomically(Path(path), text.encode())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote; predictions are the same to the last bit."""
        content = Path(path).read_bytes()
        try:
            return cls.from_dict(json.loads(content))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            reason = str(error) if isinstance(error, ValueError) else repr(error)
            msg = f"`path` must be a {cls.__name__} that `save` wrote; got {str(path)!r}: {reason}"
            raise InvalidInputError(msg) from error
