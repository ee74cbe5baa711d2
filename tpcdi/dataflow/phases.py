"""Phases: which batch of the benchmark is being loaded, and what of it is complete.

A source is complete when the loader says so; a stage (a set of dimensions) when its procedure has
done all that its sources brought. What depends on them is held until then.
"""

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from etl_procs import Batch, Stream, Transaction
from tpcdi.dataflow.outlets import day, is_day
from tpcdi.dataflow.sources import flow, marks

phases = flow.table(
    "phases",
    "batch INTEGER PRIMARY KEY, day INTEGER NOT NULL, is_open INTEGER NOT NULL, "
    "UNIQUE (is_open, batch)",
)
complete = flow.table("complete", "batch INTEGER NOT NULL, what TEXT, PRIMARY KEY (batch, what)")
marked = flow.stream("marked", "batch INTEGER NOT NULL, source TEXT NOT NULL")

BEGINS, ENDS = "BatchDate", "Phase"


class Phase(NamedTuple):
    """A batch of the benchmark, and its day."""

    batch: int
    day: int


@flow.procedure(takes=marks, writes=[phases, complete], gives=[marked])
def announce(tx: Transaction, batch: Batch) -> None:
    """Write down what the loader says about phases and sources, and pass it on."""
    for row in batch.rows():
        number, source = row["batch"], row["source"]
        if source == BEGINS:
            if not row["day"] or not is_day(str(row["day"])):
                tx.reject(row, "a phase begins on a day")
                continue
            tx.execute(
                "INSERT OR IGNORE INTO phases VALUES (?, ?, 1)", [number, day(str(row["day"]))]
            )
        elif source == ENDS:
            if not tx.execute("UPDATE phases SET is_open = 0 WHERE batch = ?", [number]):
                tx.reject(row, "a phase ends that has not begun")
                continue
        else:
            tx.execute("INSERT OR IGNORE INTO complete VALUES (?, ?)", [number, source])
        tx.emit(marked, [{"batch": number, "source": source}])


def current(tx: Transaction) -> Phase | None:
    """Tell which phase is open."""
    found = tx.query("SELECT batch, day FROM phases WHERE is_open = 1")
    return Phase(**found[0]) if found else None


def has(tx: Transaction, phase: Phase | None, *whats: str) -> bool:
    """Tell if sources and stages are complete in a phase."""
    if phase is None:
        return False
    rows = tx.query("SELECT what FROM complete WHERE batch = ?", [phase.batch])
    return {row["what"] for row in rows} >= set(whats)


class Held:
    """Rows of a stream that wait, in their order: until something is complete, or for a key.

    A key is waited for from one phase to a later one, which alone may bring it.
    """

    def __init__(self, stream: Stream, name: str = "") -> None:
        self._schema = stream.columns.arrow
        self._name = name or f"held_{stream.name}"
        names, count = ", ".join(stream.columns.names), len(stream.columns.names)
        self.table = flow.table(
            self._name,
            "number INTEGER PRIMARY KEY, since INTEGER NOT NULL, "
            f"{stream.columns.sql}, UNIQUE (since, number)",
            parks=True,
        )
        self._insert = f"INSERT INTO {self._name} (since, {names}) VALUES (?{', ?' * count})"
        self._select = f"SELECT {names} FROM {self._name} WHERE since < ? ORDER BY since, number"
        self._delete = f"DELETE FROM {self._name} WHERE since < ?"

    def put(self, tx: Transaction, rows: pa.Table, since: int = 0) -> None:
        """Hold rows, since a phase."""
        columns = [column.to_pylist() for column in rows.columns]
        tx.executemany(self._insert, zip(repeat(since, rows.num_rows), *columns, strict=True))

    def put_rows(self, tx: Transaction, rows: Sequence[Mapping[str, Any]], since: int = 0) -> None:
        """Hold rows that are dicts."""
        self.put(tx, pa.Table.from_pylist(rows, self._schema), since)

    def take(self, tx: Transaction, before: int = 1) -> pa.Table:
        """Give what is held since before a phase, and hold it no more."""
        rows = tx.table(self._select, [before])
        if rows.num_rows:
            tx.execute(self._delete, [before])
        return rows.cast(self._schema)

    def admit(self, tx: Transaction, rows: pa.Table, *, when: bool) -> pa.Table:
        """Give what was held and what has come, or hold it."""
        if when:
            return pa.concat_tables([self.take(tx), rows])
        self.put(tx, rows)
        return self._schema.empty_table()


def finish(tx: Transaction, phase: Phase, stage: str) -> None:
    """Say that a stage is complete."""
    tx.execute("INSERT INTO complete VALUES (?, ?)", [phase.batch, stage])
