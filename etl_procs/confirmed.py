"""What warehouses have confirmed of a dataflow, and what is forgotten of what was staged for them.

A batch is forgotten when every warehouse that the dataflow feeds has confirmed it, and it has been
kept for as long afterwards as is asked for. What a warehouse has is its own ledger's word: this
is what it said last.
"""

import sqlite3
from collections.abc import Iterable

from etl_procs import staging

KNOWN = "SELECT warehouse, batch FROM headrace_confirmed WHERE dataflow = :dataflow"

FEED = """\
INSERT INTO headrace_confirmed VALUES (:dataflow, :warehouse, 0) ON CONFLICT DO NOTHING"""

LEAVE = "DELETE FROM headrace_confirmed WHERE dataflow = :dataflow AND warehouse = :warehouse"

# It may go back: a warehouse can be restored from a backup.
CONFIRM = """\
UPDATE headrace_confirmed SET batch = :batch
WHERE dataflow = :dataflow AND warehouse = :warehouse"""

NOTE = """\
INSERT INTO headrace_kept
SELECT :dataflow, batch, :at
FROM (SELECT min(batch) AS batch FROM headrace_confirmed WHERE dataflow = :dataflow)
WHERE batch > max(
    (SELECT coalesce(max(batch), 0) FROM headrace_kept WHERE dataflow = :dataflow),
    (SELECT coalesce(max(batch), 0) FROM headrace_forgotten WHERE dataflow = :dataflow))"""

DUE = """\
SELECT min((
    SELECT coalesce(max(batch), 0) FROM headrace_kept WHERE dataflow = :dataflow AND at <= :before
), (SELECT coalesce(min(batch), 0) FROM headrace_confirmed WHERE dataflow = :dataflow))"""

PRUNE = "DELETE FROM headrace_kept WHERE dataflow = :dataflow AND batch <= :through"

FORGOTTEN = "SELECT batch FROM headrace_forgotten WHERE dataflow = :dataflow"

FORGET = """\
INSERT INTO headrace_forgotten VALUES (:dataflow, :through)
ON CONFLICT DO UPDATE SET batch = :through"""


def of(connection: sqlite3.Connection, dataflow: str) -> dict[str, int]:
    """Tell through which batch each warehouse that a dataflow feeds has confirmed."""
    return dict(connection.execute(KNOWN, {"dataflow": dataflow}).fetchall())


def feed(connection: sqlite3.Connection, dataflow: str, warehouses: Iterable[str]) -> list[str]:
    """Keep batches for these warehouses from now on, and for no others; name those that go."""
    wanted = set(warehouses)
    gone = sorted(of(connection, dataflow).keys() - wanted)
    of_flow = {"dataflow": dataflow}
    connection.executemany(FEED, [{**of_flow, "warehouse": name} for name in sorted(wanted)])
    connection.executemany(LEAVE, [{**of_flow, "warehouse": name} for name in gone])
    return gone


def confirm(connection: sqlite3.Connection, dataflow: str, warehouse: str, through: int) -> None:
    """Take note that a warehouse, if it is fed, has the batches through `through`."""
    at = {"dataflow": dataflow, "warehouse": warehouse, "batch": through}
    connection.execute(CONFIRM, at)


def forgotten(connection: sqlite3.Connection, dataflow: str) -> int:
    """Tell through which batch everything that was staged is gone."""
    row = connection.execute(FORGOTTEN, {"dataflow": dataflow}).fetchone()
    return int(row[0]) if row else 0


def forget(connection: sqlite3.Connection, dataflow: str, *, at: float, keep_s: float) -> int:
    """Drop what all have confirmed `keep_s` ago; tell through which batch all is gone."""
    connection.execute(NOTE, {"dataflow": dataflow, "at": at})
    (through,) = connection.execute(DUE, {"dataflow": dataflow, "before": at - keep_s}).fetchone()
    if through > forgotten(connection, dataflow):
        staging.forget(connection, dataflow, through)
        connection.execute(FORGET, {"dataflow": dataflow, "through": through})
        connection.execute(PRUNE, {"dataflow": dataflow, "through": through})
    return forgotten(connection, dataflow)
