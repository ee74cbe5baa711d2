"""A program with a fixed workload, which reaches every crash point of the core.

    crashing.py HOME              run it through, in HOME
    crashing.py HOME POINT STEP   for n = 1, 2, .. 12, 12 + STEP, ..: run it in HOME/n, to be killed
                                  when POINT is reached for the nth time, then run it through; tell
                                  how often it was killed
    crashing.py HOME POINT again  run it in HOME, killed at POINT each time, until it gets through

Whatever is done, is done the same way again after a kill: groups end at the same places, so that
in the end not only the rows are the same, but every byte.
"""

import os
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from trial import forget

from etl_procs import Batch, Dataflow, Transaction, by_count, last_tuples, ledger
from etl_procs.batch import ARRIVAL, Arrived, place_of
from etl_procs.calls import Caller
from etl_procs.core import Core, core_path
from etl_procs.dead_letters import DeadLetters
from etl_procs.origin import Origin
from etl_procs.publisher import Publisher
from etl_procs.store import Store, Write
from headrace.config import Core as Settings
from headrace.crash import CrashPoints

COLUMNS = "k INTEGER NOT NULL, v INTEGER NOT NULL"
AGAIN = "again"
CLOSELY = 12
"""So many of the first kills are one after the other, whatever the step."""
TUPLES = 2
FIRST, REPLAYED, LAST = 9, 10, 15
"""Batches: in groups of three; then one that runs a dead letter again; then each unit alone."""
SETTINGS = Settings(durability="weak", group_batches_max=3, attempts_max=2)


class Clock:
    """A clock that stands still, or goes on by a second whenever it is looked at."""

    pace_s = time_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, 12, tzinfo=UTC)

    def monotonic(self) -> float:
        self.time_s += self.pace_s
        return self.time_s


def dataflow() -> Dataflow:
    """Declare first -> (second, third as one), and first -> fourth."""
    flow = Dataflow("flow")
    tuples = flow.stream("tuples", COLUMNS, batches=by_count(TUPLES))
    known, inner = flow.stream("known", COLUMNS), flow.stream("within", COLUMNS)
    sums = flow.table("sums", "k INTEGER PRIMARY KEY, v INTEGER NOT NULL")
    recent = flow.window("recent", COLUMNS, last_tuples(5, slide=4))
    flow.aggregate("by_key", recent, by="k", n="count(*)", total="sum(v)")
    log = flow.outlet("log", COLUMNS)
    latest = flow.outlet("latest", COLUMNS, key="k")
    upsert = "INSERT INTO sums VALUES (:k, :v) ON CONFLICT DO UPDATE SET v = v + excluded.v"

    @flow.procedure(takes=tuples, writes=[sums], gives=[known, recent])
    def first(tx: Transaction, batch: Batch) -> None:
        for row in batch.rows():
            if row["v"] == 11:
                tx.reject(row, "eleven")
            else:
                tx.execute(upsert, row)
                tx.emit(recent, [row])
                tx.emit(known, [row])

    @flow.procedure(takes=known, writes=[sums], gives=[inner, latest])
    def second(tx: Transaction, batch: Batch) -> None:
        tx.emit(inner, batch.table)
        tx.emit(latest, tx.query("SELECT k, v FROM sums ORDER BY k"))

    @flow.procedure(takes=inner, writes=[sums], gives=[log])
    def third(tx: Transaction, batch: Batch) -> None:
        tx.execute(upsert, {"k": 100, "v": len(batch)})
        tx.emit(log, batch.table)
        if tx.batch <= FIRST and any(v == 7 for _, v in batch.tuples):
            raise ValueError("seven")

    @flow.procedure(takes=known, writes=[sums], gives=[log])
    def fourth(tx: Transaction, batch: Batch) -> None:
        tx.execute(upsert, {"k": 200, "v": len(batch)})
        tx.emit(log, batch.table)

    @flow.call(arguments=COLUMNS, returns=COLUMNS, writes=[sums])
    def bump(tx: Transaction, k: int, v: int) -> object:
        tx.execute(upsert, {"k": k, "v": v})
        return tx.query("SELECT k, v FROM sums WHERE k = ?", [k])

    flow.nest(second, third)
    return flow


def run(home: Path, crash: CrashPoints) -> None:
    """Run the workload, from wherever it was left."""
    flow, clock, path = dataflow(), Clock(), core_path(home)
    core = Core(path, settings=SETTINGS, clock=clock, crash=crash)
    core.prepare([flow])
    core.claim(flow.name, "tuples", "topic")
    core.open(flow.name, {"tuples": [0]})
    origin = Origin(path, SETTINGS, crash)
    caller, store = Caller(path, {flow.name: flow}, SETTINGS, crash), Store(path, SETTINGS, crash)

    def feed(after: int, through: int) -> None:
        stream = flow.streams["tuples"]
        rows = [
            {"_partition": 0, "_place": place_of(n), "_value": b"%d" % n, "k": n % 4, "v": n % 13}
            for n in range(after * TUPLES, through * TUPLES)
        ]
        schema = pa.schema([*ARRIVAL, *stream.columns.arrow])
        core.feed(Arrived(stream, pa.Table.from_pylist(rows, schema)))
        core.drain()

    def letters(word: Callable[[DeadLetters, list[int]], object], unit: str) -> None:
        with store.commit(Write.LETTERS) as connection:
            dead = DeadLetters(connection)
            word(dead, [x.id for x in dead if x.unit == unit and x.batch <= FIRST])

    if ledger.last_batch(store.connection, flow.name) >= REPLAYED:
        clock.pace_s = 1.0
    publisher = Publisher([path], SETTINGS, crash)
    for name in ("tuples", "within", "known"):
        publisher.publish(flow.streams[name], 1)
    feed(0, FIRST)
    caller.call(flow.name, "bump", {"k": 1, "v": 1000}, key="one")
    letters(DeadLetters.replay, "second+third")
    core.drain()
    letters(DeadLetters.drop, "first")
    forget(origin, flow.name, 3)
    publisher.unpublish(flow.streams["known"], 1)
    clock.pace_s = 1.0
    caller.call(flow.name, "bump", {"k": 2, "v": 2000}, key="two")
    feed(0, LAST - 1)
    forget(origin, flow.name, FIRST)
    assert ledger.last_batch(store.connection, flow.name) == LAST


def run_apart(home: Path, crash_at: str) -> int:
    """Run the workload in a process of its own, and tell how that ended: -9 if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            run(home, CrashPoints(crash_at))
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    home, point, how = Path(sys.argv[1]), "".join(sys.argv[2:3]), "".join(sys.argv[3:4])
    times = 0
    if point and how != AGAIN:
        nth, step = 1, int(how)
        while (ended := run_apart(home / str(nth), f"{point}:{nth}")) == -9:
            assert run_apart(home / str(nth), "") == 0, f"after {point}:{nth}"
            times += 1
            nth += 1 if nth < CLOSELY else step
    else:
        while (ended := run_apart(home, point)) == -9:
            times += 1
    assert ended == 0, ended
    print(times)


if __name__ == "__main__":
    main()
