"""The past of a row: where it is, which batch brought it there, and where that took its tuples.

All of it at one point of the cores and a warehouse, as a query's answer is: see `api/cut.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

import psycopg
from psycopg import IsolationLevel
from pydantic import BaseModel, Field

from api.errors import NoSuchRow, NoSuchTable, NotReady, QueryRefused, TooSlow
from api.island import Setting
from etl_procs import graph, reader
from etl_procs.dataflow import Dataflow
from etl_procs.history import Taken
from etl_procs.model import Kept, Outlet, Procedure, Stream
from etl_procs.reader import Reader, Snapshot
from headrace.errors import Refused
from migrations import ledger, rows, staged
from migrations.errors import translated
from migrations.push import check_continues
from migrations.rows import Row, Wanted, Where
from migrations.warehouse import Connection, Warehouse, named

ROWS_MAX = 20
"""So many rows are told of a table without a key."""
TUPLES_MAX = 100
"""So many tuples are read back for one request, or one for each row."""

TIMEOUT: LiteralString = "SELECT set_config('statement_timeout', %(timeout_ms)s, false)"


class Asked(BaseModel):
    """What is to be traced."""

    key: list[str] = Field([], description="The values of the table's key, in its order.")
    where: list[str] = Field([], description="Of a table without a key: COLUMN=VALUE.")
    warehouse: str = Field(
        "", description="Where it is looked for; empty: the first that has the table."
    )
    tuples: bool = Field(
        False,
        description=f"Read the tuples back, {TUPLES_MAX} of them. It takes the scope `subscribe` "
        "as well: sources may have sent more than tables show.",
    )


@dataclass(frozen=True, slots=True)
class Past:
    """A row, and what is known of its batch."""

    row: Row
    committed_at: datetime | None
    arrived_by: datetime | None
    """When the last push was, if the row has arrived."""
    again: list[int]
    """The batches whose dead letters it ran again, each those of the one before."""
    taken: Sequence[Taken] | None
    """What the last of these took from the log; None: that is forgotten."""
    topic_ids: Mapping[str, str | None]
    """By border stream."""


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a table, with their pasts, and who may have given them."""

    outlet: Outlet
    flow: Dataflow
    warehouse: str
    procedures: Sequence[Procedure]
    streams: Sequence[Stream]
    """The border streams from which batches come to these procedures."""
    pasts: Sequence[Past]
    more: bool
    """Whether there are others with these values, which are older."""


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds rows of the loaded dataflows' tables."""

    setting: Setting
    dataflows: Mapping[str, Dataflow]
    timeout_ms: int

    def find(self, dataflow: str, table: str, asked: Asked) -> Found:
        """Find rows; the dataflow may be empty where only one has a table of that name."""
        outlet = self._outlet(dataflow, table)
        if outlet.dataflow not in self.dataflows or isinstance(outlet, Kept):
            raise Refused(
                f"{outlet.full_name} is no table of a warehouse",
                hint="What can be traced is a row of a dataflow's outlet.",
            )
        flow, place = self.dataflows[outlet.dataflow], self._place(outlet, asked)
        alike = rows.wanted(outlet, _texts(outlet, asked))
        procedures = graph.writers(flow, outlet)
        streams = graph.upstream(flow, procedures)
        # No longer than it takes: while a core is read, its log of writes cannot be cleared.
        with reader.cut([*map(Reader, self.setting.cores[: flow.partitions])]) as snapshots:
            found, arrived = self._found(place, flow, outlet, alike, snapshots)
            pasts = [_past(flow, streams, row, snapshots, arrived) for row in found[:ROWS_MAX]]
        if not pasts:
            raise NoSuchRow(
                f"{outlet.full_name} has no such row: none is staged, in delta or in main of the "
                f"warehouse {place.name}",
                hint="Of a row whose deletion was merged, nothing is left.",
            )
        more = len(found) > ROWS_MAX
        return Found(outlet, flow, place.name, procedures, streams, pasts, more)

    def _outlet(self, dataflow: str, table: str) -> Outlet:
        catalogue = self.setting.catalogue
        try:
            return catalogue.find(dataflow, table).outlet
        except QueryRefused as error:
            if catalogue.called(dataflow, table):
                raise
            raise NoSuchTable(error.what, hint=error.hint) from error

    def _place(self, outlet: Outlet, asked: Asked) -> Warehouse:
        places = self.setting.warehouses
        for place in [named(places, asked.warehouse)] if asked.warehouse else places:
            if place.takes(outlet):
                return place
        raise Refused(
            f"{outlet.full_name} is not routed to the warehouse {asked.warehouse}",
            hint="Leave the warehouse away, or name one that takes it: see warehouse.tables.",
        )

    def _found(
        self,
        place: Warehouse,
        flow: Dataflow,
        outlet: Outlet,
        alike: Wanted,
        snapshots: Sequence[Snapshot],
    ) -> tuple[list[Row], dict[int, datetime]]:
        """Find rows, at one point of cores and warehouse; tell when that was last brought any."""
        ranges, moved_at = [], {}
        with translated("tracing a row"), self._reading(place, outlet) as connection:
            arrived = ledger.read(connection, [flow.name])
            for partition, snapshot in enumerate(snapshots):
                row = arrived.get((flow.name, partition))
                if row is None:
                    raise _unprepared(outlet)
                check_continues(row, snapshot, flow.name, place.name)
                last = snapshot.batch(flow.name)
                ranges.append(staged.Range(snapshot, partition, row.batch, last))
                moved_at[partition] = row.moved_at
            return rows.find(connection, outlet, alike, ranges, ROWS_MAX + 1), moved_at

    @contextmanager
    def _reading(self, place: Warehouse, outlet: Outlet) -> Iterator[Connection]:
        with place.connect(application="headrace api") as connection:
            connection.execute(TIMEOUT, {"timeout_ms": str(self.timeout_ms)})
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            try:
                with connection.transaction():
                    yield connection
            except psycopg.errors.QueryCanceled as error:
                raise TooSlow(
                    f"it took longer than {self.timeout_ms} ms to look for it",
                    hint="Name a column that has an index; the limit is api.query_timeout_ms.",
                ) from error
            except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
                raise _unprepared(outlet) from error


def _texts(outlet: Outlet, asked: Asked) -> dict[str, str]:
    """Tell which columns are to have which values, as texts."""
    if outlet.key:
        if asked.where or len(asked.key) != len(outlet.key):
            raise Refused(
                f"{outlet.full_name} has the key ({', '.join(outlet.key)}), and a row is asked for "
                f"by {len(asked.key)} values" + (" and by a condition" if asked.where else ""),
                hint="Give a value for each of its columns, in this order, and nothing else.",
            )
        return dict(zip(outlet.key, asked.key, strict=True))
    told = [text.partition("=") for text in asked.where]
    if asked.key or not told or not all(equals for _, equals, _ in told):
        raise Refused(
            f"{outlet.full_name} has no key by which a row could be asked for",
            hint="Say what its columns are equal to: --where COLUMN=VALUE, or ?where=COLUMN=VALUE.",
        )
    return {name: value for name, _, value in told}


def _past(
    flow: Dataflow,
    streams: Sequence[Stream],
    row: Row,
    snapshots: Sequence[Snapshot],
    arrived: Mapping[int, datetime],
) -> Past:
    if row.batch is None or row.partition is None:
        return Past(row, None, None, [], None, {})
    core, again, batch = snapshots[row.partition], list[int](), row.batch
    found = core.origins(flow.name, batch)
    while found is not None and found.again is not None:
        batch = found.again
        again.append(batch)
        found = core.origins(flow.name, batch)
    names = [stream.name for stream in streams]
    return Past(
        row,
        core.committed_at(flow.name, row.batch),
        None if row.where is Where.STAGED else arrived[row.partition],
        again,
        None if found is None else [one for one in found.taken if one.stream in names],
        {name: core.topic(flow.name, name) for name in names},
    )


def _unprepared(outlet: Outlet) -> NotReady:
    return NotReady(
        f"the warehouse has no tables of {outlet.dataflow} yet, or an older layout of them",
        hint="The engine makes them when it first reaches the warehouse: see `headrace status`; "
        "`headrace warehouse upgrade` brings older ones over.",
    )
