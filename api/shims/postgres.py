"""PostgreSQL: a session of two connections.

One sees a state: it looks at the ledger, has what is shipped in temporary tables, which are there
for one transaction, and brings rows as Arrow. The other asks what PostgreSQL would do: that needs
no state.
"""

import logging
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, LiteralString, cast

import adbc_driver_manager as adbc
import psycopg
import pyarrow as pa
from adbc_driver_manager._reader import AdbcRecordBatchReader
from adbc_driver_postgresql import dbapi
from psycopg import sql

from api import sources
from api.answer import Column
from api.catalogue import Flow, Shown
from api.costs import Estimate
from api.cut import Part, Seen, There
from api.errors import SLOW, NotReady, QueryRefused, TooSlow
from api.few import Few, are_few
from api.shims.exact import exact, lendable
from etl_procs.model import Kept, Outlet
from headrace.errors import HeadraceError
from migrations import ledger, roles, warehouse
from migrations.errors import Away, WarehouseError, translated
from migrations.warehouse import Warehouse

# No name outside pg_catalog can take the place of a function; whole answers are wanted, not first
# rows; text means the same whatever the server's own settings; a query ends with who asked it; and
# a transaction is idle while what comes of it goes out.
SETTINGS: LiteralString = """\
SELECT set_config('search_path', 'pg_catalog', false),
       set_config('standard_conforming_strings', 'on', false),
       set_config('timezone', 'UTC', false),
       set_config('cursor_tuple_fraction', '1', false),
       set_config('idle_in_transaction_session_timeout', '0', false),
       set_config('client_connection_check_interval', '1000', false)"""
ONLY_READS: LiteralString = "SET default_transaction_read_only TO on"
IS_MEMBER: LiteralString = """\
SELECT EXISTS (
    SELECT FROM pg_roles WHERE rolname = %s AND pg_has_role(current_user, oid, 'MEMBER')
)"""
AS_ISLAND: LiteralString = "SET ROLE headrace_island"
LIMIT: LiteralString = "SELECT set_config('statement_timeout', {timeout_ms}::text, false)"

BEGIN: LiteralString = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
ANALYZE: LiteralString = "ANALYZE pg_temp.{name}"

EXPLAIN = b"EXPLAIN (FORMAT JSON) "
ORDERS_BY_BYTES: LiteralString = """\
SELECT datlocprovider = 'b' OR datlocprovider = 'c' AND datcollate IN ('C', 'POSIX', 'C.UTF-8')
FROM pg_database WHERE datname = current_database()"""

ANALYZED_ROWS_MIN = 1_000
"""With fewer, what PostgreSQL supposes of a table that it does not know does no harm."""

log = logging.getLogger(__name__)

BATCH_BYTES = "adbc.postgresql.batch_size_hint_bytes"
BY_COPY = "adbc.postgresql.use_copy"

TABLE = re.compile(r'"[^"]+\.[^"]+"')
"""One of ours, as PostgreSQL names it when it is not there."""
SAID = re.compile(r"(?:ERROR|FATAL): *(.*?) *(?:Query was: .*|\. SQLSTATE: \w+|$)")

CANCELED, NO_TABLE, NO_SCHEMA, NOT_ALLOWED = "57014", "42P01", "3F000", "42501"
AWAY = ("08", "53", "57", "58", "40", "25P")
"""Classes of errors that are the server's and not the query's."""


class Postgres:
    """A session with a warehouse, kept from query to query."""

    dialect = "postgres"

    def __init__(self, place: Warehouse) -> None:
        self.name = place.name
        self._place = place
        self._timeout_ms = 0
        self._made: dict[Outlet, str] = {}
        self._lent: dict[Outlet, str] = {}
        """Temporary tables for what is staged, and for what another engine has."""
        self._written: dict[Outlet, Few] = {}
        """Rows that are to be written into the query at hand."""
        self._coming: Generator[pa.RecordBatch] | None = None
        """The rows of a query that have not all come yet."""
        with translated("connecting to the warehouse"):
            self._looking = place.connect(application="headrace api")
            self._looking.execute(SETTINGS)
            self._looking.execute(ONLY_READS)
            ((can_only_read,),) = self._looking.execute(IS_MEMBER, [roles.ISLAND]).fetchall()
            if can_only_read:
                self._looking.execute(AS_ISLAND)
            else:
                log.warning(
                    "queries run as the user of %s, for there is no %s", place.name, roles.ISLAND
                )
        with _told(0):
            self._asking = dbapi.connect(warehouse.watchful(place.url), autocommit=True)
            self._do(sql.SQL("SET application_name TO 'headrace api'"))
            self._do(sql.SQL(SETTINGS))
            if can_only_read:
                self._do(sql.SQL(AS_ISLAND))

    def limit(self, timeout_ms: int) -> None:
        """Have PostgreSQL end what takes longer."""
        if timeout_ms != self._timeout_ms:
            statement = sql.SQL(LIMIT).format(timeout_ms=timeout_ms)
            with translated("limiting a query"):
                self._looking.execute(statement)
            with _told(timeout_ms):
                self._do(statement)
            self._timeout_ms = timeout_ms

    def prepare(self, outlets: Sequence[Outlet], lent: Sequence[Outlet] = ()) -> None:
        """Make the temporary tables that are not there yet."""
        for outlet in (*outlets, *lent):
            if outlet in self._made:
                continue
            name = f"staged_{len(self._made)}"
            has_delta = outlet not in lent and not isinstance(outlet, Kept)
            try:
                with _told(self._timeout_ms):
                    self._do(sources.created(name, outlet, has_delta=has_delta))
            except NotReady as error:
                if not _is_lacking(error):
                    raise
                raise _unprepared(outlet.dataflow) from error
            self._made[outlet] = name
        for outlet in lent:
            if outlet not in self._lent:
                name = f"lent_{len(self._lent)}"
                with _told(self._timeout_ms):
                    self._do(sources.created_for_lent(name, outlet))
                self._lent[outlet] = name

    def snapshot(self, flows: Sequence[Flow]) -> Seen:
        """Begin a transaction, and look at the ledger."""
        names = [flow.name for flow in flows]
        try:
            with _told(self._timeout_ms):
                self._do(sql.SQL(BEGIN))
                seen = ledger.standings(self._told_of(ledger.standing(names))) if names else {}
        except NotReady as error:
            if not _is_lacking(error):
                raise
            raise _unprepared(", ".join(names)) from error
        except QueryRefused as error:
            raise WarehouseError(
                f"the ledger of {self.name} cannot be read: {error.what}",
                hint="`headrace warehouse status` tells what is wrong with it.",
            ) from error
        for flow in flows:
            if any((flow.name, partition) not in seen for partition in range(len(flow.places))):
                raise _unprepared(flow.name)
        return seen

    @cached_property
    def orders_text(self) -> bool:
        """Whether the database's collation is that of bytes."""
        with translated("looking at the warehouse's collation"):
            ((found,),) = self._looking.execute(ORDERS_BY_BYTES).fetchall()
        return bool(found)

    def there(self, shown: Shown, part: Part) -> str:
        """Select what the warehouse has of a table."""
        return sources.there(shown, part).as_string(None)

    def there_unless(self, shown: Shown, part: Part) -> str:
        """Select it but for the keys that were shipped."""
        if are_few(part):
            few = self._written.get(shown.outlet)
            return sources.there_unless_written(shown, part, few).as_string(None)
        return sources.there_unless(shown, part, self._made[shown.outlet]).as_string(None)

    def whole(self, shown: Shown, part: Part) -> str:
        """Select it, and what was shipped."""
        if are_few(part):
            few = self._written.get(shown.outlet)
            return sources.whole_written(shown, part, few).as_string(None)
        return sources.whole(shown, part, self._made[shown.outlet]).as_string(None)

    def estimate(self, query: str) -> Estimate:
        """Have PostgreSQL's planner say what it expects."""
        with translated("asking for a plan"), _told(self._timeout_ms):
            ((found,),) = self._looking.execute(EXPLAIN + query.encode()).fetchall()
        plan = cast(Any, found)[0]["Plan"]
        return Estimate(plan["Plan Rows"], plan["Plan Width"], plan["Total Cost"])

    def ship(self, outlet: Outlet, rows: Few | Iterable[pa.Table]) -> None:
        """Copy rows into a temporary table, and have PostgreSQL look at them; keep a few for the
        text of the query.
        """
        if isinstance(rows, Few):
            self._written[outlet] = rows
            return
        self._copy(self._made[outlet], rows)

    def lend(self, outlet: Outlet, rows: Iterable[pa.RecordBatch]) -> None:
        """Copy rows into a temporary table."""
        self._copy(self._lent[outlet], (lendable(outlet, batch) for batch in rows))

    def lent(self, outlet: Outlet, part: Part) -> Part:
        """Name that table."""
        return replace(part, there=There.LENT, bounds=(), lent=self._lent[outlet])

    def _copy(self, name: str, rows: Iterable[pa.Table]) -> None:
        count = 0
        with _told(self._timeout_ms), self._asking.cursor() as cursor:
            for table in rows:
                cursor.adbc_ingest(name, table, mode="append", temporary=True)
                count += table.num_rows
        if count >= ANALYZED_ROWS_MIN:
            with _told(self._timeout_ms):
                self._do(sql.SQL(ANALYZE).format(name=sql.Identifier(name)))

    def columns(self, query: str) -> tuple[Column, ...]:
        """Have PostgreSQL say what it would give."""
        with translated("asking for types"), _told(self._timeout_ms, query):
            pgconn = self._looking.pgconn
            _checked(pgconn.prepare(b"", query.encode()))
            said = _checked(pgconn.describe_prepared(b""))
        return tuple(
            Column(
                (said.fname(number) or b"").decode(),
                self._type(said.ftype(number)),
                _digits(said.ftype(number), said.fmod(number)),
            )
            for number in range(said.nfields)
        )

    def rows(self, query: str, columns: Sequence[Column]) -> Generator[pa.RecordBatch]:
        """Ask on the other connection."""
        self._coming = self._rows(query, columns)
        return self._coming

    def _rows(self, query: str, columns: Sequence[Column]) -> Generator[pa.RecordBatch]:
        schema = pa.schema([pa.field(column.name, column.arrow) for column in columns])
        with _told(self._timeout_ms), self._asking.cursor() as cursor:
            cursor.adbc_statement.set_options(**{BATCH_BYTES: str(2**20)})
            cursor.execute(_as_text(query, columns))
            if not columns:
                yield from _without_columns(cursor.fetchall())
            else:
                for batch in _batches(cursor):
                    yield exact(batch, columns, schema)
            self._coming = None

    def end(self) -> None:
        """End the transaction. Only a commit takes away what was shipped, files and all."""
        self._written.clear()
        with _told(self._timeout_ms):
            if self._coming is not None:  # all that nobody wants any more would be read first
                self._asking.adbc_cancel()
                self._coming.close()
                self._coming = None
            self._do(sql.SQL("COMMIT"))

    def cancel(self) -> None:
        """Cancel on both connections. If the server is away, the query at hand will say so."""
        with suppress(adbc.Error):
            self._asking.adbc_cancel()
        with suppress(psycopg.Error):
            warehouse.cancel(self._looking)

    def close(self) -> None:
        """Close both connections."""
        with suppress(adbc.Error):
            self._asking.close()
        self._looking.close()

    def _do(self, statement: sql.Composable) -> None:
        with self._asking.cursor() as cursor:
            cursor.executescript(statement.as_string(self._looking))

    def _told_of(self, statement: sql.Composable) -> list[tuple[Any, ...]]:
        with self._asking.cursor() as cursor:
            cursor.adbc_statement.set_options(**{BY_COPY: "false"})  # which takes longer to begin
            cursor.execute(statement.as_string(self._looking))
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def _type(self, oid: int) -> str:
        info = self._looking.adapters.types.get(oid)
        if info is None:
            return "unknown"
        return info.regtype if info.oid == oid else f"{info.regtype}[]"


def _digits(oid: int, modifier: int) -> tuple[int, int] | None:
    numeric = psycopg.postgres.types["numeric"].oid
    if oid != numeric or modifier < 4:
        return None
    return (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4) & 0x7FF ^ 0x400) - 0x400


def _as_text(query: str, columns: Sequence[Column]) -> str:
    """Have PostgreSQL write the values of which Arrow has no type."""
    if all(column.is_native for column in columns):
        return query
    names = [sql.Identifier(f"c{number}") for number in range(len(columns))]
    values = [
        name if column.is_native else sql.SQL("{}::{}").format(name, sql.SQL(column.text_type))
        for name, column in zip(names, columns, strict=True)
    ]
    outer = sql.SQL("SELECT {} FROM (").format(sql.SQL(", ").join(values)).as_string(None)
    return outer + query + sql.SQL(") AS a ({})").format(sql.SQL(", ").join(names)).as_string(None)


def _batches(cursor: dbapi.Cursor) -> Iterator[pa.RecordBatch]:
    # What DB-API gives, and iterating, would tell errors as Arrow's own and not as the server's.
    handle = cursor.fetch_arrow()
    reader = AdbcRecordBatchReader._import_from_c(handle.address)
    with closing(reader), suppress(StopIteration):
        while True:
            yield reader.read_next_batch()


def _without_columns(rows: list[Any]) -> Iterator[pa.RecordBatch]:
    """Give rows of no column, as SELECT FROM makes them."""
    yield cast(pa.RecordBatch, pa.record_batch([pa.nulls(len(rows))], names=[""]).select([]))


def _checked(result: Any) -> Any:
    if result.status not in (psycopg.pq.ExecStatus.COMMAND_OK, psycopg.pq.ExecStatus.TUPLES_OK):
        raise psycopg.errors.error_from_result(result)
    return result


def _is_lacking(error: NotReady) -> bool:
    """Tell whether there is no such table or schema."""
    return getattr(error.__cause__, "sqlstate", None) in (NO_TABLE, NO_SCHEMA)


def _unprepared(dataflow: str) -> NotReady:
    return NotReady(
        f"the warehouse has no tables of {dataflow} yet",
        hint="The engine makes them when it first reaches the warehouse: see `headrace status`.",
    )


@contextmanager
def _told(timeout_ms: int, query: str = "") -> Iterator[None]:
    """Tell what is wrong with the query from what is wrong with the warehouse."""
    try:
        yield
    except adbc.Error as error:
        said = {key: value.decode(errors="replace") for key, value in error.details or ()}
        text = " ".join(str(error).split())
        found = SAID.search(text)  # the only way while rows come
        primary = said.get("PG_DIAG_MESSAGE_PRIMARY") or (found[1] if found else text)
        hint = said.get("PG_DIAG_MESSAGE_HINT", "")
        raise _error(error.sqlstate or "", primary, hint, timeout_ms) from error
    except psycopg.Error as error:
        primary = error.diag.message_primary or " ".join(str(error).split())
        hint = error.diag.message_hint or ""
        told = _error(error.sqlstate or "", primary, hint, timeout_ms)
        if error.diag.statement_position and isinstance(told, QueryRefused):
            told.sent, told.offset = query, int(error.diag.statement_position) - 1
        raise told from error


def _error(state: str, primary: str, hint: str, timeout_ms: int) -> HeadraceError:
    if state == CANCELED:
        return TooSlow(f"the query took longer than {timeout_ms} ms", hint=SLOW)
    if state == NOT_ALLOWED:
        return NotReady(
            f"the role {roles.ISLAND}, as which queries are asked, may not: {primary}",
            hint="The engine lets it read its dataflows' tables when it starts.",
        )
    if state == NO_SCHEMA or (state == NO_TABLE and TABLE.search(primary)):
        return NotReady(
            f"the warehouse lacks a table of the query: {primary}",
            hint="The engine makes it when it is started with the dataflow that defines it.",
        )
    if not state or state.startswith(AWAY):
        return Away(
            f"answering a query: the warehouse could not do it: {primary}",
            hint="Check that PostgreSQL runs and takes connections; asking again is safe.",
        )
    return QueryRefused(
        f"PostgreSQL refuses the query: {primary}", hint=hint or "Mend the query and ask again."
    )
