"""Staging: what a batch gives to an outlet, kept until the warehouse has it."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from etl_procs.errors import DefinitionChanged
from etl_procs.dataflow import Dataflow
from etl_procs.model import Outlet
from headrace import arrow

INSERT = """\
INSERT INTO headrace_staged (dataflow, batch, outlet, row_count, data)
VALUES (:dataflow, :batch, :outlet, :row_count, :data)"""

RANGE = """\
SELECT batch, data FROM headrace_staged
WHERE dataflow = :dataflow AND outlet = :outlet AND batch > :after AND batch <= :through
ORDER BY batch"""

LAST = """\
SELECT outlet, data FROM headrace_staged
WHERE dataflow = :dataflow GROUP BY outlet HAVING batch = max(batch)"""

FORGET = "DELETE FROM headrace_staged WHERE dataflow = :dataflow AND batch <= :through"

WAITING = """\
SELECT coalesce(sum(row_count), 0) FROM headrace_staged WHERE dataflow = :dataflow"""


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """What one batch gave to one outlet."""

    batch: int
    table: pa.Table


def add(connection: sqlite3.Connection, outlet: Outlet, batch: int, table: pa.Table) -> None:
    """Stage what `batch` gives to `outlet`."""
    connection.execute(
        INSERT,
        {
            "dataflow": outlet.dataflow,
            "batch": batch,
            "outlet": outlet.name,
            "row_count": table.num_rows,
            "data": arrow.to_bytes(table),
        },
    )


def check(connection: sqlite3.Connection, dataflow: Dataflow) -> None:
    """Refuse definitions under which what is staged could not be moved any more."""
    for name, data in connection.execute(LAST, {"dataflow": dataflow.name}):
        outlet = dataflow.outlets.get(name)
        if outlet is None or not arrow.from_bytes(data).schema.equals(outlet.columns.arrow):
            raise DefinitionChanged(
                f"rows wait for the warehouse in outlet {dataflow.name}.{name}, which is "
                + ("no longer defined" if outlet is None else "now defined with other columns"),
                hint="Bring the old definition back until `headrace status` shows 0 rows of lag.",
            )


def between(
    connection: sqlite3.Connection, outlet: Outlet, *, after: int, through: int
) -> Iterator[StagedBatch]:
    """Read what the batches of (after, through] gave to `outlet`, in order."""
    for batch, data in connection.execute(
        RANGE,
        {"dataflow": outlet.dataflow, "outlet": outlet.name, "after": after, "through": through},
    ):
        yield StagedBatch(batch, arrow.from_bytes(data))


def forget(connection: sqlite3.Connection, dataflow: str, through: int) -> None:
    """Drop what a warehouse has confirmed."""
    connection.execute(FORGET, {"dataflow": dataflow, "through": through})


def waiting(connection: sqlite3.Connection, dataflow: str) -> int:
    """Count the rows that wait for the warehouse."""
    (rows,) = connection.execute(WAITING, {"dataflow": dataflow}).fetchone()
    return int(rows)
