"""The Spark session: started with our jars, quiet, on loopback, in UTC."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from headrace.config import Engine
from headrace.errors import HeadraceError

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -XX:+ExitOnOutOfMemoryError"
"""Spark reads and plans, and Python decodes: compiling for longer took more time than it saved. And
where memory ends, Spark would go on without the thread that had none, and wait for it for ever.
"""

DECODED_BYTES = 2**20


def start(engine: Engine, *, jars: Sequence[Path], scratch: Path) -> SparkSession:
    """Start Spark's driver in a child JVM; `scratch` holds what it may lose."""
    log4j = files("ingest").joinpath("log4j2.properties")
    temporary = scratch / "tmp"
    temporary.mkdir(exist_ok=True)
    builder = (
        SparkSession.builder.appName("headrace")
        .master(engine.master)
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.driver.memory", f"{engine.memory_mb}m")
        .config("spark.executor.memory", f"{engine.executor_memory_mb}m")
        .config(
            "spark.driver.extraJavaOptions",
            f'"-Dlog4j2.configurationFile={log4j}" "-Djava.io.tmpdir={temporary}" {JAVA}',
        )
        .config("spark.executor.extraJavaOptions", JAVA)
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # Otherwise each file of a checkpoint has a checksum, and both a process for their rights.
        .config(
            "spark.hadoop.fs.AbstractFileSystem.file.impl", "org.apache.hadoop.fs.local.RawLocalFs"
        )
        # What is decoded at once goes through Java as one value, and may be much more than it was.
        .config("spark.sql.execution.arrow.maxBytesPerBatch", str(DECODED_BYTES))
        .config("spark.python.daemon.module", "ingest.daemon")
        .config("spark.executorEnv.JE_ARROW_MALLOC_CONF", "background_thread:false")
        .config("spark.scheduler.mode", "FAIR")  # each stream has a pool, and its share
        .config("spark.ui.enabled", "false")
        # Each micro-batch is planned anew: what plans cost counts, more than what rows do.
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.ui.showConsoleProgress", "false")
    )
    host = engine.driver_host
    if engine.master.startswith("local"):
        host = host or "127.0.0.1"
        builder = builder.config("spark.driver.bindAddress", host)
    if host:
        builder = builder.config("spark.driver.host", host)
    with alive("started"):
        started = builder.getOrCreate()
    # Otherwise it is whatever `python3` is on the PATH, without our libraries.
    started.sparkContext.pythonExec = engine.executor_python or sys.executable
    return started


@contextmanager
def alive(doing: str) -> Iterator[None]:
    """Say of an error that Spark's JVM has gone while it was `doing` something."""
    try:
        yield
    except (Py4JError, PySparkRuntimeError, OSError) as error:
        raise HeadraceError(
            f"Spark's JVM is gone while it {doing}: {error}",
            hint="Was it killed, or out of memory (engine.memory_mb)? `headrace logs engine` "
            "may tell.",
        ) from error
