"""Latency: from the moment that a tuple was due to be sent to its commit in the core.

A producer in a process of its own sends at a clock's pace, and does not wait for anybody. From
outside, this process reads the core's ledger again and again, at most LOOK_EVERY_S apart, and notes
when it first saw which positions committed. So a figure is never too small, and too large by no
more than one look. What the producer's own batching takes (linger_ms=5) is in it.
"""

import subprocess
import sys
import time
from bisect import bisect_right
from math import ceil

from bench.ingest_engine import Engine
from bench.ingest_load import PARTITIONS
from etl_procs.batch import offset_of
from etl_procs.core import core_path
from etl_procs.reader import Reader

LOOK_EVERY_S = 0.001

Look = tuple[float, int]
"""When a partition was seen committed up to where: the records of this run."""


def latencies_ms(
    engine: Engine,
    bootstrap: str,
    flow: str,
    stream: str,
    rate: int,
    warm_s: float,
    seconds: float,
) -> list[float]:
    """Send for so long after a warm-up, and tell the latency of each tuple, in rising order."""
    reader = Reader(core_path(engine.home))
    base = _positions(reader, flow, stream)
    passed_over, count = round(rate * warm_s), round(rate * (warm_s + seconds))
    argv = ("paced", bootstrap, f"{flow}.{stream}", str(rate), str(warm_s + seconds))
    looks: dict[int, list[Look]] = {lane: [] for lane in range(PARTITIONS)}
    with subprocess.Popen(
        [sys.executable, "-m", "bench.ingest_load", *argv], stdout=subprocess.PIPE, text=True
    ) as producer:
        assert producer.stdout is not None
        began = float(producer.stdout.readline())

        def all_are_seen() -> bool:
            found = _positions(reader, flow, stream)
            now = time.monotonic()
            for lane, seen in looks.items():
                done = found.get(lane, 0) - base.get(lane, 0)
                if not seen or seen[-1][1] < done:
                    seen.append((now, done))
            return sum(seen[-1][1] for seen in looks.values()) >= count

        engine.until(all_are_seen, "done with all tuples", every_s=LOOK_EVERY_S)
    assert producer.returncode == 0
    return sorted(latencies_of(looks, began, rate, range(passed_over, count)))


def percentile(sorted_values: list[float], share: float) -> float:
    """Give the value below which a share of them lies."""
    return sorted_values[ceil(share * len(sorted_values)) - 1]


def latencies_of(
    looks: dict[int, list[Look]], began: float, rate: int, numbers: range
) -> list[float]:
    """Tell for tuples when they were first seen committed, after they were due."""
    found = []
    ends = {lane: [done for _, done in seen] for lane, seen in looks.items()}
    for number in numbers:
        lane = number % PARTITIONS
        at, _ = looks[lane][bisect_right(ends[lane], number // PARTITIONS)]
        found.append(1e3 * (at - began - number / rate))
    return found


def _positions(reader: Reader, flow: str, stream: str) -> dict[int, int]:
    with reader.snapshot() as snapshot:
        found = snapshot.positions(flow, stream)
    return {lane: offset_of(place) for lane, place in found.items()}
