"""A chain of small steps: triggers inside one transaction, procedures one after another, by hand.

Each step counts the tuple in a table and hands it on. The first and the last step are procedures
everywhere; those between are triggers on streams, or procedures of their own.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench import bare
from bench.bare import GROUP_BATCHES
from bench.harness import Figures, Result, Setup, Trial, in_turns_per
from bench.ours import GROUP_MS, fed
from etl_procs import Batch, Dataflow, Stream, Transaction, by_count

STEPS = (3, 10)
"""With the first and the last."""

TUPLE = "number INTEGER NOT NULL"
STEP = "UPDATE steps SET seen = seen + 1, last = ? WHERE step = ?"
STEPS_COLUMNS = "step INTEGER PRIMARY KEY, seen INTEGER NOT NULL, last INTEGER NOT NULL"


def run(setup: Setup) -> Result:
    """Compare at each length of the chain, in turns."""
    count = setup.size(full=20_000, quick=4_000)
    figures: Figures = {}
    peers: dict[str, Figures] = {"procedures": {}, "bare": {}, "bare_procedures": {}}
    found: dict[str, list[float]] = {}
    for steps in STEPS:
        times = in_turns_per(trials(count, steps), setup, count)
        figures[f"strong_batches_per_s_{steps}_steps"] = times.rate("triggers")
        figures[f"strong_us_per_batch_{steps}_steps"] = times.us("triggers")
        for name, peer in peers.items():
            peer[f"batches_per_s_{steps}_steps"] = times.rate(name)
        found[f"triggers_to_procedures_{steps}_steps"] = times.ratios("triggers", "procedures")
        found[f"strong_to_bare_{steps}_steps"] = times.ratios("triggers", "bare")
        found[f"procedures_to_bare_{steps}_steps"] = times.ratios("procedures", "bare_procedures")
    return Result(
        figures=figures,
        peers=peers,
        ratios=found,
        settings={
            "batches": count,
            "rounds": min(map(len, found.values())),
            "group_batches": GROUP_BATCHES,
            "group_ms_max": GROUP_MS,
        },
    )


def trials(count: int, steps: int) -> dict[str, Trial]:
    """Both ways, in our engine and by hand."""
    return {
        "triggers": partial(_ours, with_triggers(steps), count, steps),
        "bare": partial(_bare, 2, count, steps),
        "procedures": partial(_ours, with_procedures(steps), count, steps),
        "bare_procedures": partial(_bare, steps, count, steps),
    }


def with_triggers(steps: int) -> Dataflow:
    """Declare a chain whose inner steps are triggers on the streams."""
    flow, first, streams = _declared(steps)
    table = flow.tables["steps"]

    @flow.procedure(takes=first, writes=[table], gives=[streams[0]])
    def enter(tx: Transaction, batch: Batch) -> None:
        _step(tx, batch, 0)
        tx.emit(streams[0], batch.rows())

    for step in range(1, steps - 1):
        body = _inner(step, streams[step])
        flow.trigger(on=streams[step - 1], writes=[table], gives=[streams[step]])(body)

    @flow.procedure(takes=streams, writes=[table])
    def leave(tx: Transaction, *batches: Batch) -> None:
        _step(tx, batches[-1], steps - 1)

    return flow


def with_procedures(steps: int) -> Dataflow:
    """Declare a chain whose steps are procedures, each a transaction."""
    flow, first, streams = _declared(steps)
    table = flow.tables["steps"]
    for step, taken in enumerate([first, *streams[:-1]]):
        body = _inner(step, streams[step])
        flow.procedure(takes=taken, writes=[table], gives=[streams[step]])(body)

    @flow.procedure(takes=streams[-1], writes=[table])
    def leave(tx: Transaction, batch: Batch) -> None:
        _step(tx, batch, steps - 1)

    return flow


def _declared(steps: int) -> tuple[Dataflow, Stream, list[Stream]]:
    flow = Dataflow("chain")
    first = flow.stream("numbers", TUPLE, batches=by_count(1))
    flow.table("steps", STEPS_COLUMNS, rows=[(step, 0, 0) for step in range(steps)])
    return flow, first, [flow.stream(f"after_{step}", TUPLE) for step in range(steps - 1)]


def _inner(step: int, given: Stream) -> Callable[[Transaction, Batch], None]:
    def body(tx: Transaction, batch: Batch) -> None:
        _step(tx, batch, step)
        tx.emit(given, batch.rows())

    body.__name__ = f"step_{step}"
    return body


def _step(tx: Transaction, batch: Batch, step: int) -> None:
    for (number,) in batch.tuples:
        tx.execute(STEP, (number, step))


def _ours(flow: Dataflow, count: int, steps: int, folder: Path) -> float:
    rows = [(number,) for number in range(count)]
    return fed(folder, flow, rows, partial(_compare, count, steps))


def _bare(procedures: int, count: int, steps: int, folder: Path) -> float:
    """Take the steps in so many savepoints; the first has all those that have none of their own."""
    connection = bare.connect(folder / "bare.sqlite", "strong")
    bare.make(connection, [f"CREATE TABLE steps ({STEPS_COLUMNS})"])
    connection.executemany("INSERT INTO steps VALUES (?, 0, 0)", [(n,) for n in range(steps)])
    alone = range(steps - procedures + 1, steps)
    together = range(alone.start)

    def take(number: int) -> None:
        bare.savepoint(connection, _take, connection, together, number)
        for step in alone:
            bare.savepoint(connection, _take, connection, (step,), number)

    return bare.ran(connection, range(count), take, partial(_compare, count, steps))


def _take(connection: sqlite3.Connection, steps: Sequence[int], number: int) -> None:
    for step in steps:
        connection.execute(STEP, (number, step))


def _compare(count: int, steps: int, connection: sqlite3.Connection) -> None:
    found = connection.execute("SELECT step, seen, last FROM steps ORDER BY step").fetchall()
    assert found == [(step, count, count - 1) for step in range(steps)], found
