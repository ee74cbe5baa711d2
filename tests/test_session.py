"""Spark's session: whose settings it has, and what becomes of it where its memory ends."""

import subprocess
import sys
from pathlib import Path

from alone import Alone

from headrace import config

TAKES_TOO_MUCH = """
import sys
from pathlib import Path
from headrace import config
from ingest import session
settings = {"engine.memory_mb": "512"}
engine = config.load(settings, environment={}).config.engine
spark = session.start(engine, jars=[], scratch=Path(sys.argv[1]))
spark.sparkContext._jvm.java.nio.ByteBuffer.allocate(2**30)
"""

SHOWS = """
import os
import sys
from pathlib import Path
import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf
from headrace import config
from ingest import session
scratch, python = map(Path, sys.argv[1:])
settings = {
    "engine.master": "local[3]",
    "engine.driver_host": "127.0.0.2",
    "engine.memory_mb": "600",
    "engine.executor_memory_mb": "700",
    "engine.executor_python": str(python),
}
engine = config.load(settings, environment={}).config.engine
spark = session.start(engine, jars=[], scratch=scratch)

def told(values: pa.Array) -> pa.Array:
    threads = os.listdir(f"/proc/{os.getppid()}/task")
    return pa.array([len(threads) if "ingest.decode" in sys.modules else 0] * len(values))

assert spark.range(1).select(arrow_udf(told, "bigint")("id")).collect() == [(1,)]
conf = spark.sparkContext.getConf()
for name in ("master", "driver.host", "driver.memory", "executor.memory"):
    print(conf.get(f"spark.{name}"))
"""

STARTS = """
import sys
from pathlib import Path
from headrace import config
from headrace.errors import HeadraceError
from ingest import session
engine = config.load({}, environment={}).config.engine
try:
    session.start(engine, jars=[], scratch=Path(sys.argv[1]))
except HeadraceError as error:
    print(error)
"""


def test_a_session_has_the_settings_of_the_engine_and_python_forked_of_one_thread_that_can_decode(
    tmp_path: Path,
) -> None:
    python, ran = tmp_path / "python", tmp_path / "ran"
    python.write_text(f'#!/bin/sh\ntouch "{ran}"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o700)
    shown = subprocess.run(
        [sys.executable, "-c", SHOWS, str(tmp_path), str(python)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert shown.stdout.split() == ["local[3]", "127.0.0.2", "600m", "700m"], shown.stderr
    assert ran.exists(), "executors run another Python"


LOOKS = """
import sys
from pathlib import Path
from etl_procs import Dataflow, by_count
from headrace import config
from headrace.clock import SystemClock
from headrace.local import jars
from ingest import session, topics
from ingest.batcher import Batcher
from ingest.crowd import Crowd
scratch, bootstrap = Path(sys.argv[1]), sys.argv[2]
settings = {"broker.bootstrap": bootstrap, "engine.trigger_ms": "700"}
loaded = config.load(settings, environment={}).config
stream = Dataflow("looks").stream("s", "n INTEGER", batches=by_count(1))
spark = session.start(loaded.engine, jars=jars.spark_jars(loaded), scratch=scratch)
batcher = Batcher(spark, stream, loaded, Crowd(lambda: 2, SystemClock()), SystemClock())
batcher.start(topics.ensure(loaded.broker, stream), {}, lambda *_: None, scratch)
print(batcher._query._jsq.streamingQuery().trigger().toString())
batcher.stop()
"""


def test_spark_looks_at_kafka_as_often_as_is_configured(kafka: Alone, tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", LOOKS, str(tmp_path), kafka.address],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert shown.stdout == "ProcessingTimeTrigger(700)\n", shown.stderr


def test_a_jvm_that_is_out_of_memory_ends_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TAKES_TOO_MUCH, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Terminating due to java.lang.OutOfMemoryError" in ended.stdout + ended.stderr


def test_a_jvm_that_is_killed_while_it_starts_is_no_bug_of_ours(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nkill -9 $$\n")
    java.chmod(0o700)
    told = subprocess.run(
        [sys.executable, "-c", STARTS, str(tmp_path)],
        env={**config.child_environment({}), "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.stdout.startswith("Spark's JVM is gone while it started: "), told.stderr
