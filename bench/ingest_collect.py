"""A file into Kafka: `headrace produce`, and bare kafka-python with the same frames.

Each is a process of its own, from its start to its end; the most memory that it had comes with it.
"""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench import ingest_framed
from bench.ingest_data import lines
from bench.ingest_load import fill
from headrace import config


class Sent(NamedTuple):
    """What sending a file took."""

    seconds: float
    peak_mb: float


def make(path: Path, count: int) -> int:
    """Write a file of so many lines, and tell its bytes."""
    with path.open("wb") as file:
        file.writelines(line + b"\n" for line in lines(count))
    return path.stat().st_size


def ours(bootstrap: str, path: Path, home: Path) -> Sent:
    """Send it by the collector."""
    settings = {
        "home": str(home),
        "flows": str(Path(ingest_framed.__file__)),
        "broker.bootstrap": bootstrap,
    }
    stream = ingest_framed.trades.full_name
    return _sent(["headrace.cli", "produce", stream, str(path)], config.child_environment(settings))


def bare(bootstrap: str, path: Path) -> Sent:
    """Send it by a loop over kafka-python."""
    stream = replace(ingest_framed.trades, dataflow="bare")
    fill(bootstrap, stream, [])  # makes the topic
    argv = ["bench.ingest_load", "file", bootstrap, stream.topic, str(path)]
    return _sent(argv, config.child_environment({}))


def _sent(argv: list[str], environment: dict[str, str]) -> Sent:
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", *argv], env=environment, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, argv
    return Sent(time.perf_counter() - began, used.ru_maxrss / 1024)
