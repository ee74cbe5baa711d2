"""Spark's session: what becomes of it where its memory ends."""

import subprocess
import sys
from pathlib import Path

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


def test_a_jvm_that_is_out_of_memory_ends_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TAKES_TOO_MUCH, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Terminating due to java.lang.OutOfMemoryError" in ended.stdout + ended.stderr
