"""The query island: one SELECT over what is staged and what has arrived, as if it were one table.

The query is parsed, checked against the lists of what is allowed, and written anew with a
subquery in the place of each table. It runs in the warehouse, in a read-only transaction, next to
a temporary table with what has not yet arrived: rows that are added to those there or, for an
outlet with a key, the last operation of each key, in place of the row of that key.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from sqlglot import exp

from api import cut
from api.catalogue import Catalogue
from api.cut import Cut, Freshness
from api.errors import LimitExceeded, NotReady, QueryRefused
from api.parse import render
from api.resolve import Resolved, resolve
from etl_procs import staging
from etl_procs.model import Outlet
from etl_procs.reader import Reader
from migrations.errors import translated
from migrations.warehouse import Connection, Warehouse

# No name outside pg_catalog can take the place of a function; whole answers are wanted, not first
# rows; and text means the same whatever the server's own settings.
SETTINGS: LiteralString = """\
SELECT set_config('search_path', 'pg_catalog', false),
       set_config('standard_conforming_strings', 'on', false),
       set_config('timezone', 'UTC', false),
       set_config('cursor_tuple_fraction', '1', false),
       set_config('statement_timeout', %(timeout_ms)s, false)"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer, with PostgreSQL's name for its type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows, and the batch of each dataflow, or of each of its partitions, that they are as of."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    as_of: dict[str, int]
    freshness: Freshness


@dataclass(frozen=True, slots=True)
class Island:
    """Answers queries over warehouses and the cores that feed them. Safe to share by threads."""

    warehouses: Sequence[Warehouse]
    """A query is answered by the first that has all of its tables."""
    cores: Sequence[Path]
    """The core of each partition."""
    catalogue: Catalogue
    timeout_ms: int
    rows_max: int

    def query(self, sql: str, freshness: Freshness) -> Answer:
        """Answer one SELECT at one cut."""
        try:
            resolved = resolve(sql, self.catalogue)
            place = self._place(resolved.outlets)
            with translated("answering a query"), self._connection(place) as connection:
                with self._cut(connection, resolved.outlets, freshness) as at:
                    columns, rows = self._run(connection, _text(resolved, at))
                return Answer(columns, rows, dict(at.as_of), freshness)
        except RecursionError as error:
            raise QueryRefused("the query is nested too deeply", hint="Flatten it.") from error

    def check_core(self) -> None:
        """Raise what keeps a core from being read."""
        for path in self.cores:
            with Reader(path).snapshot():
                pass

    def check_warehouse(self) -> None:
        """Raise what keeps the first warehouse from answering: it is away, or has no tables yet."""
        place = self.warehouses[0]
        outlets = [outlet for outlet in self.catalogue.outlets if place.takes(outlet)]
        with (
            translated("asking the warehouse"),
            self._connection(place) as connection,
            cut.of_main(connection, outlets, self.catalogue.dataflows),
        ):
            pass

    def _place(self, outlets: Sequence[Outlet]) -> Warehouse:
        for place in self.warehouses:
            if all(map(place.takes, outlets)):
                return place
        names = ", ".join(outlet.full_name for outlet in outlets)
        raise QueryRefused(
            f"no warehouse has all of {names}",
            hint="Ask one of them at a time, or route them to one warehouse: see warehouse.tables.",
        )

    @contextmanager
    def _connection(self, place: Warehouse) -> Iterator[Connection]:
        # One for each query: its temporary tables and settings end with it.
        with place.connect(application="headrace api") as connection:
            connection.execute(SETTINGS, {"timeout_ms": str(self.timeout_ms)})
            yield connection

    def _cut(
        self, connection: Connection, outlets: Sequence[Outlet], freshness: Freshness
    ) -> AbstractContextManager[Cut]:
        match freshness:
            case Freshness.MAIN:
                return cut.of_main(connection, outlets, self.catalogue.dataflows)
            case Freshness.DELTA:
                return cut.of_delta(connection, outlets, self.catalogue.dataflows)
            case Freshness.STAGED:
                return cut.of_staged(connection, outlets, self.catalogue.dataflows, self.cores)

    def _run(
        self, connection: Connection, text: str
    ) -> tuple[tuple[Column, ...], tuple[tuple[Any, ...], ...]]:
        with self._told_apart(), connection.cursor("answer") as cursor:
            cursor.execute(text.encode())
            rows = cursor.fetchmany(self.rows_max + 1)
            if len(rows) > self.rows_max:
                raise LimitExceeded(
                    f"the answer has more than {self.rows_max} rows",
                    hint="Filter, aggregate or LIMIT it; the limit is api.query_rows_max.",
                )
            columns = tuple(
                Column(column.name, _type_name(connection, column.type_code))
                for column in cursor.description or ()
            )
            return columns, tuple(rows)

    @contextmanager
    def _told_apart(self) -> Iterator[None]:
        """Tell what is wrong with the query from what is wrong with the warehouse."""
        try:
            yield
        except psycopg.errors.QueryCanceled as error:
            raise LimitExceeded(
                f"the query took longer than {self.timeout_ms} ms",
                hint="Ask for less at once; the limit is api.query_timeout_ms.",
            ) from error
        except psycopg.errors.UndefinedTable as error:
            raise NotReady(
                f"the warehouse lacks a table of the query: {error.diag.message_primary}",
                hint="The engine makes it when it is started with the dataflow that defines it.",
            ) from error
        except psycopg.Error as error:
            too_complex = (error.sqlstate or "").startswith("54")
            if isinstance(error, psycopg.OperationalError) and not too_complex:
                raise
            raise QueryRefused(
                f"PostgreSQL refuses the query: {error.diag.message_primary or error}",
                hint=error.diag.message_hint or "Mend the query and ask again.",
            ) from error


def _text(resolved: Resolved, at: Cut) -> str:
    """Write the query, with both halves of each table in its place."""

    def source(outlet: Outlet) -> exp.Query:
        schema = outlet.dataflow + at.ending
        there = _select(outlet, exp.table_(outlet.name, db=schema, alias="there"))
        name = at.staged.get(outlet)
        if name is None:
            return there
        table = exp.table_(name, db="pg_temp", alias="staged")
        staged = _select(outlet, table)
        if outlet.key:
            there = there.where(exp.not_(exp.Exists(this=_of_same_key(outlet, table))))
            staged = staged.where(exp.not_(exp.column(staging.DELETED)))
        return exp.union(there, staged, distinct=False)

    return render(resolved.with_sources(source))


def _select(outlet: Outlet, table: exp.Table) -> exp.Select:
    columns = [exp.column(exp.to_identifier(name)) for name in outlet.columns.names]
    return exp.select(*columns).from_(table)


def _of_same_key(outlet: Outlet, staged: exp.Table) -> exp.Select:
    """Select the operation that is staged for a row that is there."""
    same = [
        exp.column(name, table="staged").eq(exp.column(name, table="there")) for name in outlet.key
    ]
    return exp.select("1").from_(staged.copy()).where(*same)


def _type_name(connection: Connection, oid: int) -> str:
    info = connection.adapters.types.get(oid)
    if info is None:
        return "unknown"
    return info.regtype if info.oid == oid else f"{info.regtype}[]"
