"""A program that numbers and doubles: a core that others subscribe to, while it is killed.

numbering.py HOME [POINT:TIMES]    publish the streams, run all batches that are left, and end;
                                   or be killed at that crash point
"""

import sys
from pathlib import Path
from typing import Any

from flows import arrived

from etl_procs import Batch, Dataflow, Transaction, by_count
from etl_procs.core import Core, core_path
from etl_procs.publisher import Publisher
from headrace.clock import SystemClock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints

FILE = Path(__file__)
LAST, TUPLES = 300, 3
SETTINGS = Settings(group_batches_max=4, attempts_max=2)

flow = Dataflow("numbering")
source = flow.stream("source", "n INTEGER NOT NULL", batches=by_count(TUPLES))
doubled = flow.stream("doubled", "n INTEGER NOT NULL")
out = flow.outlet("out", "n INTEGER NOT NULL")


@flow.procedure(takes=source, gives=[doubled])
def double(tx: Transaction, batch: Batch) -> None:
    tx.emit(doubled, tx.query("SELECT 2 * value AS n FROM json_each(?)", [str(numbers(tx.batch))]))
    if fails(tx.batch):
        tx.abort("it is to be a dead letter")


@flow.procedure(takes=doubled, gives=[out])
def tell(tx: Transaction, batch: Batch) -> None:
    tx.emit(out, batch.table)


def numbers(batch: int) -> list[int]:
    """Give the numbers of a batch of the source."""
    return list(range((batch - 1) * TUPLES, batch * TUPLES))


def fails(batch: int) -> bool:
    """Whether a batch is given up on its way."""
    return batch % 7 == 0


def expected(stream: str) -> list[tuple[int, list[dict[str, Any]]]]:
    """Give what is to be told of a stream, or of the table."""
    factor = 1 if stream == "source" else 2
    return [
        (batch, [{"n": factor * n} for n in numbers(batch) if factor == 1 or not fails(batch)])
        for batch in range(1, LAST + 1)
    ]


def main() -> None:
    home, crash = Path(sys.argv[1]), CrashPoints("".join(sys.argv[2:3]))
    core = Core(core_path(home), settings=SETTINGS, clock=SystemClock(), crash=crash)
    core.prepare([flow])
    core.open("numbering", {"source": [0]})
    publisher = Publisher([core_path(home)], SETTINGS, crash)
    for stream in (source, doubled):
        publisher.publish(stream, 1)
    core.feed(arrived(source, [(n,) for n in range(LAST * TUPLES)]))
    core.drain()


if __name__ == "__main__":
    main()
