"""Which files of a partitioned log a window needs."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import Field

from huc_monitor._common.settings import Section, Zone
from huc_monitor._common.times import get_zone


class Partition(Section):
    """How the folders of a hive-partitioned log follow the time column.

    Parameters
    ----------
    columns : mapping of str to str
        Partition column to the strftime format of its values.

        ``{"day": "%Y-%m-%d"}`` or ``{"year": "%Y", "month": "%m"}``, for example.
    time_zone : str, default "UTC"
        The zone in which the folders' dates are meant.

    Notes
    -----
    With it, a window opens the files of its own folders only. It is a promise: rows whose folder
    does not belong to their time would not be found. Without it, DuckDB still skips the parts of
    each file whose times are outside, but has to look into every file.
    """

    columns: dict[str, str] = Field(
        min_length=1, examples=[{"day": "%Y-%m-%d"}, {"year": "%Y", "month": "%m"}]
    )
    time_zone: Zone = "UTC"

    def values(self, start: datetime, end: datetime) -> dict[str, list[str]]:
        """Return the values that a partition column can have between two times.

        Examples
        --------
        >>> from datetime import UTC
        >>> days = Partition(columns={"day": "%d"}, time_zone="Europe/Berlin")
        >>> days.values(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
        {'day': ['01', '02']}
        """
        zone = get_zone(self.time_zone)
        moments = [start]
        while moments[-1] + timedelta(minutes=30) < end:
            moments.append(moments[-1] + timedelta(minutes=30))
        moments.append(max(start, end - timedelta(microseconds=1)))
        local = [moment.astimezone(zone) for moment in moments]
        return {
            column: list(dict.fromkeys(time.strftime(form) for time in local))
            for column, form in self.columns.items()
        }
