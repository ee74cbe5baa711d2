"""An audit: what a warehouse has of a dataflow, held against its definition, ledger and cores."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, LiteralString

from psycopg import IsolationLevel, sql

from etl_procs.dataflow import Dataflow
from etl_procs.model import Outlet
from etl_procs.reader import Snapshot
from migrations import checksum, drift, layout, ledger, tables
from migrations.errors import LedgerMismatch, translated
from migrations.plan import counted
from migrations.push import check_continues
from migrations.warehouse import Connection, Warehouse, names

SUMMED: LiteralString = "SELECT count(*), {sum} FROM {live}"
KEYS: LiteralString = "SELECT count(*) - count(DISTINCT ({key})) FROM {live}"

# What is in delta has arrived after the merge, and not after the ledger.
STRAY: LiteralString = """\
SELECT count(*) FROM {delta} AS delta
LEFT JOIN headrace.ledger AS arrived
    ON arrived.dataflow = %(dataflow)s AND arrived.partition = delta._partition
LEFT JOIN headrace.merged AS merged
    ON merged.dataflow = %(dataflow)s AND merged.partition = delta._partition
WHERE (delta._batch > merged.batch AND delta._batch <= arrived.batch) IS NOT TRUE"""


def findings(
    connection: Connection,
    place: Warehouse,
    dataflow: Dataflow,
    cores: Sequence[Snapshot],
    before: Mapping[ledger.Place, ledger.Migrated] | None = None,
) -> list[str]:
    """Tell what is wrong; nothing, when all is as it should be.

    `before` is what had arrived before the cores' snapshots were opened: what a push has brought
    since may be of batches that these do not see.
    """
    outlets = place.outlets(dataflow)
    with translated(f"auditing {dataflow.name} in {place.name}"):
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        try:
            with connection.transaction():
                drifted = drift.find(connection, drift.of(outlets))
                if drifted:
                    return drifted
                return [
                    *_of_ledger(connection, place, dataflow, cores, before or {}),
                    *(line for outlet in outlets for line in _of_outlet(connection, outlet)),
                ]
        finally:
            connection.isolation_level = None


def blind(place: Warehouse, dataflow: Dataflow) -> list[str]:
    """Tell what no audit sees."""
    keyed = ", ".join(outlet.full_name for outlet in place.outlets(dataflow) if outlet.key)
    return [f"not looked at: whether somebody has changed rows of {keyed} by hand"] if keyed else []


def arrived(connection: Connection, dataflow: Dataflow) -> dict[ledger.Place, ledger.Migrated]:
    """Read what has arrived, if there is a ledger."""
    with translated(f"auditing {dataflow.name}"):
        has_ledger = layout.version(connection) == layout.VERSION
        return ledger.read(connection, [dataflow.name]) if has_ledger else {}


def _of_ledger(
    connection: Connection,
    place: Warehouse,
    dataflow: Dataflow,
    cores: Sequence[Snapshot],
    before: Mapping[ledger.Place, ledger.Migrated],
) -> Iterator[str]:
    arrived = ledger.read(connection, [dataflow.name])
    merged = ledger.merged(connection, [dataflow.name])
    for partition, core in enumerate(cores):
        at = dataflow.name, partition
        if at not in arrived or at not in merged:
            yield f"{dataflow.place(partition)} has no row in the ledger"
            continue
        if merged[at] > arrived[at].batch:
            yield (
                f"{dataflow.place(partition)} is merged through batch {merged[at]}, and only "
                f"{arrived[at].batch} has arrived"
            )
        committed = core.batch(dataflow.name)
        if at in before and before[at].batch <= committed < arrived[at].batch:
            continue  # a push has come in between
        try:
            check_continues(arrived[at], core, dataflow.name, place.name)
        except LedgerMismatch as error:
            yield error.what


def _of_outlet(connection: Connection, outlet: Outlet) -> Iterator[str]:
    def asked(statement: LiteralString) -> list[int]:
        query = sql.SQL(statement).format(
            live=sql.Identifier(outlet.dataflow, outlet.name),
            delta=tables.identifier(tables.delta(outlet)),
            key=names(outlet.key),
            sum=checksum.expression(tables.summed(outlet)),
        )
        found: Iterable[Any] = connection.execute(query, {"dataflow": outlet.dataflow})
        return [int(number) for row in found for number in row]

    of = outlet.full_name
    if (stray := asked(STRAY)) != [0]:
        told = counted(stray[0], "row")
        yield f"{of}: {told} of delta are of batches that have not arrived, or are merged"
    if outlet.key:
        if (doubled := asked(KEYS)) != [0]:
            yield f"{of}: {counted(doubled[0], 'row')} have the key of another"
        return
    rows = ledger.read(connection, [outlet.dataflow]).values()
    if all(sum(tally.rows for tally in row.tables.values()) == row.rows for row in rows):
        tallies = (row.tables.get(outlet.name, ledger.Tally()) for row in rows)
        wanted, (there, total) = sum(tallies, ledger.Tally()), asked(SUMMED)
        if there != wanted.rows:
            yield f"{of} has {counted(there, 'row')}, and {wanted.rows} have arrived"
        elif wanted.is_of_main and (total - wanted.checksum) % 2**64:
            yield f"{of} has {counted(there, 'row')}, and these are not those that have arrived"
