from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
import sqlalchemy as sa

from huc_monitor.sources import DuckTable, FrameTable, Partition, SQLTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd


@pytest.fixture
def make_table(tmp_path, request):
    """Write a frame into a table of a kind, and open it."""
    count = 0

    def make(kind: str, frame: pd.DataFrame, time: str):
        nonlocal count
        count += 1
        place = tmp_path / f"{kind}{count}"
        if kind == "frame":
            return FrameTable(frame)
        if kind == "parquet":
            frame.to_parquet(place.with_suffix(".parquet"))
            return DuckTable.files(place.with_suffix(".parquet"))
        if kind == "hive":
            return DuckTable.files(
                _hive(frame, time, place), partition=Partition(columns={"day": "%F"})
            )
        if kind == "csv":
            text = frame.assign(**{time: _texts(frame[time])})
            text.to_csv(place.with_suffix(".csv"), index=False)
            return DuckTable.files(place.with_suffix(".csv"))
        if kind == "duckdb":
            with duckdb.connect(place) as connection:
                connection.register("given", frame)
                connection.execute("CREATE TABLE log AS SELECT * FROM given")
            return DuckTable.database(place, "log")
        if kind == "sqlite":
            url = f"sqlite:///{place}"
            _to_sql(frame.assign(**{time: _texts(frame[time])}), "log", url)
            return SQLTable(url, "log")
        url = request.getfixturevalue("postgres")
        _to_sql(frame, f"log{os.getpid()}_{id(frame)}", url)
        return SQLTable(url, f"log{os.getpid()}_{id(frame)}")

    return make


def _texts(times: pd.Series) -> pd.Series:
    if times.dtype.kind != "M":
        return times
    form = "%Y-%m-%d %H:%M:%S" if times.dt.tz is None else "%Y-%m-%dT%H:%M:%SZ"
    return times.dt.strftime(form)


def _hive(frame: pd.DataFrame, time: str, place: Path) -> Path:
    for day, rows in frame.groupby(frame[time].dt.strftime("%Y-%m-%d")):
        folder = place / f"day={day}"
        folder.mkdir(parents=True)
        rows.to_parquet(folder / "part.parquet")
    return place


def _to_sql(frame: pd.DataFrame, name: str, url: str) -> None:
    engine = sa.create_engine(url)
    frame.to_sql(name, engine, index=False, if_exists="replace")
    engine.dispose()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server of our own, on a socket only we know."""
    found = [shutil.which("initdb"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    if not any(found):
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    programs = Path(next(path for path in found if path)).resolve().parent
    # Not under pytest's folder: the server refuses to run as root, and its user cannot enter there.
    folder = Path(tempfile.mkdtemp(prefix="huc-pg-", dir="/tmp"))
    who = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def run(program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(programs / program), *arguments],
            stdout=subprocess.DEVNULL,  # not a pipe: the server would hold it open
            cwd=folder,
            timeout=120,
            check=False,
            **who,
        )
        assert done.returncode == 0, program

    data = str(folder / "data")
    try:
        run("initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync", "-E", "UTF8")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c timezone=Asia/Kolkata"
        log = str(folder / "log")
        run("pg_ctl", "-D", data, "-l", log, "-w", "-t", "60", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://tester@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
