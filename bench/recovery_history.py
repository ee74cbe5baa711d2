"""A process that commits many batches and is killed: what recovery has to begin with.

python -m bench.recovery_history ours|bare FOLDER BATCHES
"""

import os
import signal
import sqlite3
import sys
from pathlib import Path

from bench import bare
from bench.bare import GROUP_BATCHES
from bench.ours import ARRIVE_ROWS, Ours, arrivals
from etl_procs import Batch, Dataflow, Transaction, by_count, last_tuples

KEYS = 1_000
REJECTED_EVERY = 100
"""Dead letters stay until somebody drops them, so they are a part of history that grows."""

BARE_FILE = "bare.sqlite"
SEEN = "UPDATE seen SET times = times + 1 WHERE key = ?"
POSITION = "UPDATE position SET next = ?"

flow = Dataflow("history")
ticks = flow.stream("ticks", "key INTEGER NOT NULL", batches=by_count(1))
counted = flow.stream("counted", "key INTEGER NOT NULL")
seen = flow.table(
    "seen",
    "key INTEGER PRIMARY KEY, times INTEGER NOT NULL",
    rows=[(key, 0) for key in range(KEYS)],
)
recent = flow.window("recent", "key INTEGER NOT NULL", last_tuples(100))
often = flow.aggregate("often", recent, by="key", times="count(*)")


@flow.procedure(takes=ticks, writes=[seen], gives=[counted])
def count(tx: Transaction, batch: Batch) -> None:
    """Count a key, or reject one that is not there."""
    for row in batch.rows():
        if not tx.execute(SEEN, (row["key"],)):
            tx.reject(row, "no such key")
        else:
            tx.emit(counted, [row])


@flow.procedure(takes=counted, gives=[recent])
def remember(tx: Transaction, batch: Batch) -> None:
    """Keep the last ones."""
    tx.emit(recent, batch.rows())


def key(number: int) -> int:
    """Give the key of a tick; once in a while, one that is not there."""
    return -1 if number % REJECTED_EVERY == 0 else number * 7_919 % KEYS


def make_ours(folder: Path, first: int, end: int) -> None:
    """Commit these batches with our engine."""
    ours = Ours(folder, flow, "weak")  # faster, and the same file
    for start in range(first, end, ARRIVE_ROWS):
        numbers = range(start, min(start + ARRIVE_ROWS, end))
        ours.feed(arrivals(ticks, [(key(number),) for number in numbers], first_offset=start))


def make_bare(folder: Path, first: int, end: int) -> None:
    """Commit these batches by hand."""
    connection = bare.connect(folder / BARE_FILE, "weak")
    if first == 0:
        _make_tables(connection)

    def take(number: int) -> None:
        take_bare(connection, number)

    bare.run(connection, range(first, end), take, GROUP_BATCHES)


def _make_tables(connection: sqlite3.Connection) -> None:
    bare.make(
        connection,
        [
            "CREATE TABLE seen (key INTEGER PRIMARY KEY, times INTEGER NOT NULL)",
            "CREATE TABLE position (next INTEGER NOT NULL)",
        ],
    )
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO seen VALUES (?, 0)", [(key,) for key in range(KEYS)])
    connection.execute("INSERT INTO position VALUES (0)")
    connection.execute("COMMIT")


def take_bare(connection: sqlite3.Connection, number: int) -> None:
    """Count one key by hand, and remember that it was counted."""
    connection.execute(SEEN, (key(number),))
    connection.execute(POSITION, (number + 1,))


def main(kind: str, folder: str, first: str, end: str) -> None:
    """Make the history, and die without a word."""
    make = {"ours": make_ours, "bare": make_bare}[kind]
    make(Path(folder), int(first), int(end))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
