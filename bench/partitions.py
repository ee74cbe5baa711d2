"""Deposits on one partition, and on as many as there are processors: worker processes and all."""

import os
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random

from bench import deposits
from bench.harness import Result, Setup, in_turns_per, timed
from bench.ours import arrivals
from bench.pace import Pace
from etl_procs.batch import Arrived
from etl_procs.core import core_path
from etl_procs.flow import Committed
from etl_procs.partitions import Partitions, Start, Topic
from headrace import config

ACCOUNTS = 10_000
SEED = 2026


def run(setup: Setup) -> Result:
    """Pay in, in turns."""
    count = setup.size(full=100_000, quick=20_000)
    random = Random(SEED)  # noqa: S311 - the same in every run
    rows = [(random.randrange(ACCOUNTS), random.randrange(1, 100)) for _ in range(count)]
    arrived = arrivals(deposits.paid_in, rows)
    total = sum(cents for _, cents in rows)
    many = max(2, os.cpu_count() or 1)
    trials = {
        "divided": partial(_paid_in, arrived, count, total, many),
        "one": partial(_paid_in, arrived, count, total, 1),
    }
    times = in_turns_per(trials, setup, count)
    return Result(
        figures={"divided_batches_per_s": times.rate("divided")},
        peers={"one_partition": {"batches_per_s": times.rate("one")}},
        ratios={"divided_to_one": times.ratios("divided", "one")},
        settings={
            "batches": count,
            "accounts": ACCOUNTS,
            "partitions": many,
            "durability": "strong",
            "seed": SEED,
        },
    )


def _paid_in(
    arrived: list[Arrived], count: int, total: int, partitions: int, folder: Path
) -> float:
    text = Path(deposits.__file__).read_text(encoding="utf-8")
    flow = folder / "deposits.py"
    divided = text.replace("PARTITIONS = 1\n", f"PARTITIONS = {partitions}\n")
    flow.write_text(divided, encoding="utf-8")
    pace = Pace(count)

    def committed(_partition: int, what: Committed) -> None:
        pace.add(what.through - what.first + 1)

    settings = config.Config(home=folder, flows=(flow,))
    workers = Partitions(
        [Start(settings, n, folder / f"metrics-{n}.json") for n in range(partitions)],
        on_commit=committed,
        on_failure=pace.fail,
    )
    try:
        workers.start()
        workers.open({"deposits": {"paid_in": Topic("topic", (0,))}})
        with timed() as seconds:
            for part in arrived:
                workers.take(part, partitions)
            pace.wait()
    finally:
        workers.stop()
    assert total == sum(_cents(core_path(folder, n)) for n in range(partitions))
    return seconds()


def _cents(core: Path) -> int:
    with closing(sqlite3.connect(core)) as connection:
        (cents,) = connection.execute("SELECT coalesce(sum(cents), 0) FROM accounts").fetchone()
    return int(cents)
