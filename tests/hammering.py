"""Programs that append to and read the same lists: an engine with a dataflow, and its clients.

    hammering.py engine HOME NAME CRASH_AT BATCHES
    hammering.py client HOME NAME CRASH_AT BATCHES

Both end when every procedure has done BATCHES batches. What a transaction read and appended goes
to HOME/NAME.jsonl before it commits; that it has committed, or not, goes there afterwards.
"""

import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from etl_procs import Batch, Dataflow, Transaction, by_count, ledger
from etl_procs.batch import ARRIVAL, Arrived, place_of
from etl_procs.calls import Caller
from etl_procs.core import Core, core_path
from etl_procs.store import connected
from headrace.clock import SystemClock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints

FLOW, PAIR = "flow", "pair"
AFTER = {
    "first": (),
    "second": ("first",),
    "third": ("second",),
    "fourth": ("third",),
    "fifth": ("first",),
}
SETTINGS = Settings(durability="weak", group_ms_max=1, attempts_max=2)
TUPLES = 3
ROUNDS = 4
LIST_LENGTH = 100  # after so many appends, other lists are taken: reads stay short


class Log:
    """What one process writes down of its transactions."""

    def __init__(self, home: Path, name: str) -> None:
        self.path = home / f"{name}.jsonl"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.run: list[str] = []
        """Those that are in no commit yet."""
        self.attempts = 0

    def write(self, **line: Any) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def ran(self, id_: str, began: float, ops: list[list[Any]], **of: Any) -> None:
        self.write(id=id_, began=began, ops=ops, **of)
        self.run.append(id_)

    def undo(self, ids: Sequence[str]) -> None:
        for id_ in ids:
            self.run.remove(id_)
            self.write(id=id_, committed=False)

    def runs_again(self, start: str) -> None:
        """Note that what is about to run has run in a group that was taken back, with all of it."""
        if any(id_.startswith(start) for id_ in self.run):
            assert self.run[0].startswith(start), "a group runs again from its beginning"
            self.undo([*self.run])

    def ended(self, *, committed: bool) -> None:
        for id_ in self.run:
            self.write(id=id_, committed=committed, ended=time.monotonic())
        self.run.clear()

    def lines(self) -> Iterator[dict[str, Any]]:
        with self.path.open() as file:
            yield from map(json.loads, file)


def act(tx: Transaction, id_: str, choose: random.Random) -> list[list[Any]]:
    """Read some lists and append to some, in any order; to one at least."""
    ops: list[list[Any]] = []
    ((length,),) = ((row["n"],) for row in tx.query("SELECT count(*) AS n FROM lists"))
    for appends in choose.choice([[1], [0, 1], [1, 0], [0, 1, 1], [1, 0, 1, 0]]):
        key = f"{length // LIST_LENGTH}.{choose.randrange(3)}"
        if appends:
            tx.execute("INSERT INTO lists (key, id) VALUES (?, ?)", (key, id_))
            ops.append(["append", key])
        else:
            rows = tx.query("SELECT id FROM lists WHERE key = ? ORDER BY number", (key,))
            ops.append(["read", key, [row["id"] for row in rows]])
    return ops


def dataflow(log: Log) -> Dataflow:
    """Declare first -> (second -> third) -> fourth, and first -> fifth."""
    flow, choose = Dataflow(FLOW), random.Random()  # noqa: S311
    n = "n INTEGER NOT NULL"
    lists = flow.table("lists", "number INTEGER PRIMARY KEY, key TEXT NOT NULL, id TEXT NOT NULL")
    streams = {
        "source": flow.stream("source", n, batches=by_count(TUPLES)),
        **{name: flow.stream(f"from_{name}", n) for name in ("first", "second", "third")},
    }
    bodies = {}

    def declare(name: str) -> None:
        def body(tx: Transaction, batch: Batch) -> None:
            log.attempts += 1
            log.runs_again(f"{name}-{tx.batch}-")
            began, id_ = time.monotonic(), f"{name}-{tx.batch}-{os.getpid()}-{log.attempts}"
            ops = act(tx, id_, choose)
            if name in streams:
                tx.emit(streams[name], batch.table)
            fails = tx.batch % 17 == 0 if name == "fifth" else choose.random() < 0.02
            if fails:
                log.ran(id_, began, ops, procedure=name, batch=tx.batch)
                undone = [id_]
                if name == "third":  # what second has done is undone with it
                    undone += [
                        other for other in log.run if other.startswith(f"second-{tx.batch}-")
                    ]
                log.undo(undone)
                raise ValueError(id_)
            log.ran(id_, began, ops, procedure=name, batch=tx.batch)

        body.__name__ = name
        (giver,) = AFTER[name] or ("source",)
        gives = [streams[name]] if name in streams else []
        bodies[name] = flow.procedure(takes=streams[giver], writes=[lists], gives=gives)(body)

    for name in AFTER:
        declare(name)
    flow.nest(bodies["second"], bodies["third"])

    @flow.call(arguments="id TEXT NOT NULL, began REAL NOT NULL", writes=[lists])
    def change(tx: Transaction, id: str, began: float) -> None:
        log.ran(id, began, act(tx, id, choose))

    return flow


def engine(home: Path, log: Log, crash: CrashPoints, batches: int) -> None:
    """Run batches; before each few, wait until somebody has made a call."""
    flow = dataflow(log)
    core = Core(core_path(home), settings=SETTINGS, clock=SystemClock(), crash=crash)
    core.prepare([flow])
    core.open(FLOW, {"source": [0]})
    stream, connection = flow.streams["source"], connected(core_path(home))
    schema = pa.schema([*ARRIVAL, *stream.columns.arrow])

    def commit() -> None:
        while core.commit_next() is not None:
            log.ended(committed=True)

    commit()
    called = calls = 0
    while (done := ledger.last_batch(connection, FLOW)) < batches:
        rows = [
            {"_partition": 0, "_place": place_of(offset), "n": offset}
            for offset in range(done * TUPLES, (done + ROUNDS) * TUPLES)
        ]
        core.feed(Arrived(stream, pa.Table.from_pylist(rows, schema)))
        commit()
        while calls == called:
            time.sleep(0.001)
            ((calls,),) = connection.execute("SELECT count(*) FROM headrace_calls")
        called = calls


def client(home: Path, log: Log, crash: CrashPoints, batches: int) -> None:
    """Make calls; first the last one again, if nothing is known of what became of it."""
    calls: dict[str, dict[str, Any]] = {}
    for line in log.lines():
        calls.setdefault(line["id"], {}).update(line)
    last = list(calls.values())[-1:]
    caller = Caller(core_path(home), {FLOW: dataflow(log)}, SETTINGS, crash)
    connection = connected(core_path(home))

    def call(id_: str, began: float) -> None:
        caller.call(FLOW, "change", {"id": id_, "began": began}, key=id_)
        log.run[:] = [id_]  # it may be that it was not run, because it had been
        log.ended(committed=True)

    if last and "committed" not in last[0]:
        call(last[0]["id"], last[0]["began"])
    number = 0
    while ledger.last_batch(connection, FLOW) < batches:
        number += 1
        call(f"{log.path.stem}-{os.getpid()}-{number}", time.monotonic())


def main() -> None:
    role, home, name, crash_at, batches = sys.argv[1:]
    program = {"engine": engine, "client": client}[role]
    program(Path(home), Log(Path(home), name), CrashPoints(crash_at), int(batches))


if __name__ == "__main__":
    main()
