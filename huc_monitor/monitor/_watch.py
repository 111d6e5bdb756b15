"""Checking again and again: a loop that outlives errors and stops when it is asked to."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING

from huc_monitor.monitor._lock import CheckInProgressError

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import CheckResult

log = logging.getLogger("huc_monitor")

FIRST_RETRY = timedelta(seconds=30)
LONGEST_RETRY = timedelta(hours=1)


class StoppedError(BaseException):
    """The watch was asked to stop; raised between two windows, where nothing is half done."""


@dataclass(slots=True, eq=False)
class Watch:
    """Call a check every so often.

    Parameters
    ----------
    check : callable
        Gets a progress callback, which raises between two windows once the watch is to stop.
    every : timedelta
        From the start of a check to the start of the next.
    jitter : float, default 0.1
        Each pause is longer or shorter by up to this share, so that many monitors do not ask the
        same database at the same second.
    tell : callable, optional
        Gets each result.
    """

    check: Callable[[Callable[[int, int, str], None]], CheckResult]
    every: timedelta
    jitter: float = 0.1
    tell: Callable[[CheckResult], None] | None = None
    stop: Event = field(default_factory=Event)
    rng: random.Random = field(default_factory=random.Random)
    n_errors: int = 0

    def run(self, most: int | None = None) -> int:
        """Check until asked to stop, or `most` times; return the number of checks."""
        n_checks = 0
        while not self.stop.is_set():
            n_checks += 1
            self._once()
            if most is not None and n_checks >= most:
                break
            self.stop.wait(self.pause().total_seconds())
        return n_checks

    def _once(self) -> None:
        try:
            result = self.check(self._between_windows)
        except StoppedError:
            return
        except CheckInProgressError as error:
            log.info("skipped: %s", error)
        except Exception as error:  # the next attempt may succeed, and a watch must outlive it
            self.n_errors += 1
            log.error("check failed (%s in a row): %s", self.n_errors, error)  # noqa: TRY400
            log.debug("traceback", exc_info=True)
        else:
            self.n_errors = 0
            if self.tell is not None:
                self.tell(result)

    def _between_windows(self, done: int, total: int, text: str) -> None:
        # After the last window the text is a stage of a recalibration, which must not be cut short.
        if self.stop.is_set() and not (text and done == total):
            raise StoppedError

    def pause(self) -> timedelta:
        """How long to wait: `every`, or after errors half a minute, doubled with each of them."""
        length = self.every
        if self.n_errors:
            doubled = FIRST_RETRY * 2 ** min(self.n_errors - 1, 20)
            length = min(doubled, max(self.every, LONGEST_RETRY))
        return length * (1.0 + self.jitter * self.rng.uniform(-1.0, 1.0))
