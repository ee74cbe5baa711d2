"""The runner: does what the stages of a plan say, and is the only one who does."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, LiteralString

import pyarrow as pa
from psycopg import sql
from psycopg.copy import LibpqWriter, QueuedLibpqWriter

from etl_procs.model import Outlet
from etl_procs.origin import Origin
from etl_procs.reader import Snapshot
from headrace.crash import CrashPoints, Point
from migrations import checksum, ledger, staged, tables
from migrations.errors import NotAlike
from migrations.ledger import Tally
from migrations.plan import (
    Adopt,
    Confirm,
    Copy,
    Merge,
    Refill,
    Stage,
    Step,
    StepMerged,
    Vacuum,
)
from migrations.progress import Progress
from migrations.warehouse import Connection, names

BULK_BYTES = 2**22
"""From so much on, a thread of its own sends what this one encodes and sums up meanwhile."""

LAST_BLOCK: LiteralString = """\
SELECT greatest(
    pg_relation_size({name}::regclass) / current_setting('block_size')::bigint - 1, 0)"""

# Most of what was copied lies behind what was there. Some may have found room before it.
ARRIVED: LiteralString = """\
SELECT count(*), {sum} FROM {delta}
WHERE _partition = %(partition)s AND _batch > %(after)s AND _batch <= %(through)s"""
BEHIND: LiteralString = " AND ctid >= %(first)s::tid"
BEFORE: LiteralString = " AND ctid < %(first)s::tid"

APPEND: LiteralString = """\
WITH put AS (INSERT INTO {main} ({columns}) SELECT {columns} FROM {delta} RETURNING 1)
SELECT (SELECT count(*) FROM {delta}), (SELECT count(*) FROM put)"""

# In the order of the key: in any other it takes 1.3 times as long. And not deleted and inserted:
# what refers to a row of main goes on referring to it.
UPSERT: LiteralString = """\
WITH latest AS MATERIALIZED ({latest}),
gone AS (DELETE FROM {main} AS main USING latest WHERE latest._deleted AND {same}),
put AS (
    INSERT INTO {main} ({columns}) SELECT {columns} FROM latest WHERE NOT _deleted
    ON CONFLICT ({key}) DO UPDATE SET ({columns}) = ROW ({given}) RETURNING 1)
SELECT (SELECT count(*) FROM latest WHERE NOT _deleted), (SELECT count(*) FROM put)"""

# Not TRUNCATE: to a reader whose snapshot is older, the rows would be neither here nor in main.
EMPTY: LiteralString = "DELETE FROM {table}"

VACUUM: LiteralString = "VACUUM (ANALYZE, SKIP_LOCKED) {delta}"

SUMMED: LiteralString = "SELECT count(*), {sum} FROM {table}"
COPY_OUT: LiteralString = "COPY ({rows}) TO STDOUT (FORMAT BINARY)"
COPY_IN: LiteralString = "COPY {main} ({columns}) FROM STDIN (FORMAT BINARY)"


@dataclass(slots=True)
class Runner:
    """Runs the stages of one migration on one warehouse."""

    connection: Connection
    crash: CrashPoints
    migration: str
    """Who moves the ledger: the id of a migration, or what runs by itself."""
    progress: Progress
    origin: Origin | None = None
    snapshot: Snapshot | None = None
    source: Connection | None = None
    """The warehouse whose rows are copied."""
    brought: dict[str, Tally] = field(default_factory=dict)

    def run(self, stages: Iterable[Stage]) -> None:
        """Run stages of a plan: those of one transaction, or those that follow its commit."""
        for stage in stages:
            self.progress.at(str(stage))
            self._do(stage)

    def _do(self, stage: Stage) -> None:
        connection = self.connection
        match stage:
            case Copy():
                self._copy(stage)
            case Step(place, arrived, through, core_id):
                ledger.move(
                    connection,
                    place,
                    arrived,
                    core_id=core_id,
                    through=through,
                    brought=self.brought,
                    migration=self.migration,
                )
            case Confirm((dataflow, _), warehouse, through):
                assert self.origin is not None
                self.origin.confirm(dataflow, warehouse, through)
                self.crash.reached(Point.PUSH_FORGET_AFTER)
            case Merge(outlet):
                self._merge(outlet)
            case StepMerged(dataflow):
                ledger.merge(connection, dataflow, migration=self.migration)
            case Vacuum(outlet):
                connection.execute(_of(outlet, VACUUM))
            case Refill(outlet):
                self._refill(outlet)
            case Adopt(place, arrived):
                ledger.adopt(connection, place, arrived, migration=self.migration)

    def _copy(self, stage: Copy) -> None:
        assert self.snapshot is not None
        outlet = stage.outlet
        batches = staged.Range(self.snapshot, stage.partition, stage.after, stage.through)
        operations, size, sent = 0, 0, Tally()

        def counted() -> Iterator[pa.Table]:
            nonlocal operations, size
            for table in staged.read(outlet, batches):
                operations += table.num_rows
                size += table.nbytes
                yield table

        def summed() -> Iterator[pa.Table]:
            nonlocal sent
            for table in staged.carried(outlet, counted()):
                total = checksum.of(table.select(tables.summed(outlet).names))
                sent += Tally(table.num_rows, total)
                yield table

        table = tables.identifier(tables.delta(outlet))
        ((block,),) = self.connection.execute(
            sql.SQL(LAST_BLOCK).format(name=sql.Literal(table.as_string()))
        )
        writer = QueuedLibpqWriter if stage.size > BULK_BYTES else LibpqWriter
        written = staged.copy(self.connection, outlet, table, summed(), writer)
        self.crash.reached(Point.PUSH_COPY_AFTER)
        found = Tally(written)
        if written == sent.rows:
            found = self._arrived(stage, sent.rows, f"({block},0)")
        if found != sent:
            raise NotAlike(
                f"of {outlet.full_name}, {sent.rows} rows were sent, and {found.rows} "
                f"{'others ' if found.rows == sent.rows else ''}are there: something in the "
                "warehouse changes what is copied",
                hint="Look for triggers and rules on its delta table. Nothing of it was kept.",
            )
        self.brought[outlet.name] = Tally(operations, sent.checksum)
        self.progress.moved(operations, size)

    def _arrived(self, stage: Copy, sent: int, first: str) -> Tally:
        """Count and sum up what a range of batches has in delta now."""
        of = {"partition": stage.partition, "after": stage.after, "through": stage.through}
        total = checksum.expression(tables.summed(stage.outlet))
        found = Tally()
        for statement in (ARRIVED + BEHIND, ARRIVED + BEFORE):
            query = _of(stage.outlet, statement, sum=total)
            ((rows, added),) = self.connection.execute(query, {**of, "first": first})
            found += _tally(rows, added)
            if found.rows == sent:
                break
        return found

    def _merge(self, outlet: Outlet) -> None:
        statement = _of(outlet, UPSERT if outlet.key else APPEND)
        ((given, taken),) = self.connection.execute(statement).fetchall()
        assert isinstance(taken, int)
        if given != taken:
            raise NotAlike(
                f"of {outlet.full_name}, {given} rows were merged, and main took {taken}: "
                "something in the warehouse drops them",
                hint="Look for triggers and rules on its main table. Nothing of it was kept.",
            )
        self.progress.moved(taken, 0)
        table = tables.identifier(tables.delta(outlet))
        self.connection.execute(sql.SQL(EMPTY).format(table=table))
        self.crash.reached(Point.MERGE_TABLE_AFTER)

    def _refill(self, outlet: Outlet) -> None:
        assert self.source is not None
        for table in (tables.main(outlet), tables.delta(outlet)):
            self.connection.execute(sql.SQL(EMPTY).format(table=tables.identifier(table)))
        with (
            self.source.cursor() as giving,
            self.connection.cursor() as taking,
            giving.copy(_of(outlet, COPY_OUT, rows=_shown(outlet))) as reading,
            taking.copy(_of(outlet, COPY_IN)) as writing,
        ):
            size = 0
            for part in reading:
                writing.write(part)
                size += len(part)
        total = checksum.expression(outlet.columns.arrow)
        live = sql.Identifier(outlet.dataflow, outlet.name)
        main = tables.identifier(tables.main(outlet))
        there, here = (
            connection.execute(sql.SQL(SUMMED).format(sum=total, table=table)).fetchall()
            for connection, table in ((self.source, live), (self.connection, main))
        )
        ((rows, _),) = here
        self.progress.moved(_tally(rows, 0).rows, size)
        if there != here:
            raise NotAlike(
                f"{outlet.full_name} was copied, and is not what it is in the other warehouse",
                hint="Look for triggers and rules on its main table. Nothing of it was kept.",
            )
        self.crash.reached(Point.REBUILD_TABLE_AFTER)


def _tally(rows: Any, total: Any) -> Tally:
    return Tally(int(rows), int(total))


def _shown(outlet: Outlet) -> sql.Composable:
    """Write a query of what live shows, and of the batches that brought it."""
    return tables.written(tables.live(outlet, tables.columns_of_main(outlet)))


def _of(outlet: Outlet, statement: LiteralString, **more: sql.Composable) -> sql.Composed:
    """Write a statement over an outlet's tables."""
    columns = tables.columns_of_main(outlet)
    same = sql.SQL(" AND ").join(
        sql.SQL("main.{name} = latest.{name}").format(name=sql.Identifier(name))
        for name in outlet.key
    )
    return sql.SQL(statement).format(
        main=tables.identifier(tables.main(outlet)),
        delta=tables.identifier(tables.delta(outlet)),
        latest=tables.written(tables.latest(outlet)) if outlet.key else sql.SQL(""),
        columns=names(columns),
        key=names(outlet.key),
        same=same,
        given=sql.SQL(", ").join(sql.Identifier("excluded", name) for name in columns),
        **more,
    )
