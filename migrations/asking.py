"""Asking: the lookups of the core that a warehouse answers, each with one statement.

Statements are read-only, and each sees one state that was committed. Whatever keeps the warehouse
from answering may pass, or somebody mends it there: the batch waits, for its rows are not to blame.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, LiteralString

from psycopg import errors, sql

from etl_procs.asking import Connects, Row
from etl_procs.columns import Type
from etl_procs.dataflow import Dataflow
from etl_procs.errors import CoreError, Unanswered
from etl_procs.model import Foreign, Lookup
from headrace.clock import Clock, SystemClock
from headrace.config import Config
from headrace.errors import DefinitionError
from migrations.errors import Away, WarehouseError, translated
from migrations.warehouse import Connection, named, warehouses

AGAIN_S = 1.0
"""After it could not be connected to, a warehouse is not tried again for so long: who asks holds
the core's write lock."""
ROWS_AT_ONCE = 50_000
CLOCK = SystemClock()

READ_ONLY: LiteralString = """\
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"""
SET: LiteralString = """\
SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)"""
WRITTEN = {
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
}
"""How values are written as texts, whatever a database or a role says."""

ASK: LiteralString = """\
SELECT DISTINCT ON (asked.n) asked.n, {gives}
FROM unnest({arrays}) WITH ORDINALITY AS asked ({names}, n)
JOIN {table} AS held ON {same}
ORDER BY asked.n{latest}"""

READ: LiteralString = "SELECT {columns} FROM {table} AS held WHERE {known}"
CHANGED: LiteralString = """\
 AND ({key}) IN (SELECT {key} FROM {table} AS held WHERE held.{version} > {after})"""
VERSION: LiteralString = "SELECT coalesce(max(held.{version})::text, '') FROM {table} AS held"
PLAN: LiteralString = "EXPLAIN (FORMAT JSON, VERBOSE) SELECT 1 FROM {table} AS held"
COUNT: LiteralString = """\
SELECT least(%s::bigint, sum(coalesce(nullif(
  greatest(class.reltuples::bigint, pg_stat_get_live_tuples(class.oid), 0), 0), scanned.rows)))
FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS scanned (schema, name, rows)
JOIN pg_namespace ON nspname = schema
JOIN pg_class AS class ON relnamespace = pg_namespace.oid AND relname = name"""
"""Those that are alive, as counted when they were analysed, or written: a plan takes for more of
them what updates have left in the file. (Of what a view reads, its reader may not use the schema.)
"""
SCANNED = "Schema", "Relation Name", "Plan Rows"
"""What a plan says of each table that it reads."""

UNSTORABLE = errors.UntranslatableCharacter, errors.CharacterNotInRepertoire
"""What the server's encoding cannot hold."""
UNLIKE = errors.UndefinedFunction, errors.CannotCoerce
"""What PostgreSQL says of a column whose type is not to be compared with, or read as, what is
declared."""

TYPES: dict[Type, LiteralString] = {
    Type.INTEGER: "bigint",
    Type.REAL: "double precision",
    Type.TEXT: "text",
}


class Asker:
    """Asks the configured warehouses. It connects when it has to, and after an error anew."""

    def __init__(self, config: Config, clock: Clock = CLOCK) -> None:
        self._places = warehouses(config)
        self._timeout_ms = config.core.statement_ms_max
        self._clock = clock
        self._opened: dict[str, Connection] = {}
        self._refused: dict[str, tuple[float, Away]] = {}
        self._written: set[str] = set()
        """The lookups with a key that is compared as it is written: a date's, for one."""

    def ask(self, lookup: Lookup, asked: Sequence[Row]) -> Sequence[Row]:
        """Give what is in force for each key and moment of which there is something."""
        columns = _arrays(lookup, asked)
        with self._connected(_foreign(lookup)) as connection:
            try:
                return self._answers(connection, lookup, columns)
            except UNSTORABLE:
                columns = _storable(connection, lookup, columns)
                return self._answers(connection, lookup, columns)

    def count(self, foreign: Foreign) -> int:
        """Tell how many rows a table has, as PostgreSQL estimates; a view, no more than what it is
        of has.
        """
        with self._connected(foreign) as connection:
            found: Any = connection.execute(sql.SQL(PLAN).format(table=_table(foreign))).fetchone()
            plan = found[0][0]["Plan"]
            scans = list(_scans(plan))
            columns = [[scan[what] for scan in scans] for what in SCANNED]
            found = connection.execute(COUNT, [plan["Plan Rows"], *columns]).fetchone()
        return int(found[0])

    def version(self, foreign: Foreign) -> str:
        """Tell the greatest version; empty if there is none."""
        column = sql.Identifier(foreign.version)
        statement = sql.SQL(VERSION).format(version=column, table=_table(foreign))
        with self._connected(foreign) as connection:
            ((found,),) = connection.execute(statement).fetchall()
        return str(found)

    def read(self, lookup: Lookup, after: str = "") -> Generator[Sequence[Row], None, None]:
        """Read the rows, a piece at a time."""
        foreign = _foreign(lookup)
        with (
            self._connected(foreign) as connection,
            connection.transaction(),
            connection.cursor(name="headrace_copy") as cursor,
        ):
            cursor.execute(_read(lookup, after))
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield rows

    def close(self) -> None:
        """Close the connections."""
        while self._opened:
            self._opened.popitem()[1].close()

    def _answers(
        self, connection: Connection, lookup: Lookup, columns: list[list[Any]]
    ) -> Sequence[Row]:
        name = lookup.full_name
        if name not in self._written:
            try:
                return connection.execute(_ask(lookup), columns, prepare=False).fetchall()
            except errors.UndefinedFunction:
                self._written.add(name)
        return connection.execute(_ask(lookup, written=True), columns, prepare=False).fetchall()

    @contextmanager
    def _connected(self, foreign: Foreign) -> Iterator[Connection]:
        """Give a connection to a table's warehouse, and say if that does not answer."""
        name = foreign.warehouse
        try:
            with translated(f"looking up in {foreign.name} of the warehouse {name}"):
                yield self._opened.get(name) or self._connect(name)
        except (Away, WarehouseError) as error:
            if name in self._opened:
                self._opened.pop(name).close()
            self._written.clear()
            if isinstance(error.__cause__, UNLIKE):
                raise DefinitionError(
                    error.what,
                    hint="Declare the column as what it is there: INTEGER, REAL, or TEXT for all "
                    "that is read as it is written.",
                ) from error
            raise Unanswered(
                error.what, hint=f"Until it answers the batch waits. {error.hint}"
            ) from error

    def _connect(self, name: str) -> Connection:
        again_at, refused = self._refused.get(name, (0.0, None))
        if refused is not None and self._clock.monotonic() < again_at:
            raise refused
        try:
            connection = named(self._places, name).connect(application="headrace lookups")
        except Away as error:
            self._refused[name] = (self._clock.monotonic() + AGAIN_S, error)
            raise
        self._opened[name] = connection
        connection.execute(READ_ONLY)
        wanted = {**WRITTEN, "statement_timeout": str(self._timeout_ms)}
        connection.execute(SET, [list(wanted), list(wanted.values())])
        return connection


def connects(config: Config, dataflows: Iterable[Dataflow]) -> Connects | None:
    """Give what connects to the warehouses in whose tables dataflows look up; None if in none."""
    tables = [one.table for flow in dataflows for one in flow.lookups.values()]
    foreign = [table for table in tables if isinstance(table, Foreign)]
    for table in foreign:
        named(warehouses(config), table.warehouse)
    return partial(Asker, config) if foreign else None


def _foreign(lookup: Lookup) -> Foreign:
    assert isinstance(lookup.table, Foreign)
    return lookup.table


def _scans(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Give the parts of a plan that read a table."""
    if "Relation Name" in plan:
        yield plan
    for part in plan.get("Plans", ()):
        yield from _scans(part)


def _arrays(lookup: Lookup, asked: Sequence[Row]) -> list[list[Any]]:
    """Give what is asked by columns. PostgreSQL's texts have no NUL: no key is one with it, and
    between a moment and what is before its NUL lies no other.
    """
    columns: list[list[Any]] = [list(column) for column in zip(*asked, strict=True)]
    for number, column in enumerate(columns):
        if number == len(lookup.key):
            columns[number] = [v.partition("\0")[0] if isinstance(v, str) else v for v in column]
        else:
            columns[number] = [None if isinstance(v, str) and "\0" in v else v for v in column]
    return columns


def _storable(connection: Connection, lookup: Lookup, columns: list[list[Any]]) -> list[list[Any]]:
    """Leave away the keys that the server's encoding cannot hold: none of them is there. How such
    a moment lies among others it cannot say.
    """
    texts = {value for column in columns for value in column if isinstance(value, str)}
    lacking = _lacking(connection, "".join({c for text in texts for c in text if not c.isascii()}))

    def lacks(value: Any) -> bool:
        return isinstance(value, str) and not lacking.isdisjoint(value)

    for moment in filter(lacks, columns[len(lookup.key)] if lookup.at else []):
        raise CoreError(
            f"lookup {lookup.full_name} is asked as of {moment!r}, which the encoding of the "
            f"warehouse {_foreign(lookup).warehouse} cannot hold",
            hint="Ask as of a moment that is written as those of the table are.",
        )
    return [[None if lacks(value) else value for value in column] for column in columns]


def _lacking(connection: Connection, characters: str) -> set[str]:
    """Tell which characters the server's encoding lacks."""
    try:
        connection.execute("SELECT %s::text", [characters], prepare=False)
    except UNSTORABLE:
        if len(characters) == 1:
            return {characters}
        half = len(characters) // 2
        first, rest = characters[:half], characters[half:]
        return _lacking(connection, first) | _lacking(connection, rest)
    return set()


def _ask(lookup: Lookup, *, written: bool = False) -> sql.Composed:
    """Write the statement that asks for many keys; compared as they are held, an index serves."""
    types = _types(lookup)
    names = [sql.Identifier(f"asked_{n}") for n in range(len(lookup.key) + bool(lookup.at))]
    by = [*lookup.key, *([lookup.at] if lookup.at else [])]
    arrays = [sql.SQL("%s::{}[]").format(sql.SQL(TYPES[types[name]])) for name in by]
    same = [
        sql.SQL("{} = asked.{}").format(
            _cast(column, types) if written and types[column] is Type.TEXT else _held(column), name
        )
        for column, name in zip(lookup.key, names, strict=False)
    ]
    latest = sql.Composed([])
    if lookup.at:
        at = _moment(lookup, types)
        is_before = sql.SQL("{} <= asked.{}").format(at, names[-1])
        if lookup.or_earliest:
            same.append(sql.SQL("{} IS NOT NULL").format(at))
            latest = sql.SQL(
                ", {is_before} DESC, CASE WHEN {is_before} THEN {at} END DESC, {at}"
            ).format(is_before=is_before, at=at)
        else:
            same.append(is_before)
            latest = sql.SQL(", {} DESC").format(at)
    return sql.SQL(ASK).format(
        gives=_listed(_cast(name, types) for name in lookup.gives),
        arrays=_listed(arrays),
        names=_listed(names),
        table=_table(_foreign(lookup)),
        same=sql.SQL(" AND ").join(same),
        latest=latest,
    )


def _read(lookup: Lookup, after: str) -> sql.Composed:
    """Write the statement that reads all rows, or those of keys that have changed. A number that is
    no INTEGER is no key, as none that is asked for is equal to it.
    """
    types, foreign = _types(lookup), _foreign(lookup)
    by = [*lookup.key, *([lookup.at] if lookup.at else [])]
    read = sql.SQL(READ).format(
        columns=_listed(_cast(name, types) for name in (*by, *lookup.gives)),
        table=_table(foreign),
        known=sql.SQL(" AND ").join(
            sql.SQL("coalesce({} = {}, false)").format(_held(name), _cast(name, types))
            if name in lookup.key and types[name] is Type.INTEGER
            else sql.SQL("{} IS NOT NULL").format(_held(name))
            for name in by
        ),
    )
    if not after:
        return read
    # As a literal, it is of the column's own type.
    return read + sql.SQL(CHANGED).format(
        key=_listed(map(_held, lookup.key)),
        table=_table(foreign),
        version=sql.Identifier(foreign.version),
        after=sql.Literal(after),
    )


def _types(lookup: Lookup) -> Mapping[str, Type]:
    return {column.name: column.type for column in lookup.table.columns.columns}


def _held(name: str) -> sql.Composed:
    return sql.SQL("held.{}").format(sql.Identifier(name))


def _cast(name: str, types: Mapping[str, Type]) -> sql.Composed:
    return sql.SQL("{}::{}").format(_held(name), sql.SQL(TYPES[types[name]]))


def _moment(lookup: Lookup, types: Mapping[str, Type]) -> sql.Composed:
    """Write the moment as the core compares it: texts by their bytes, and dates as texts."""
    if types[lookup.at] is Type.TEXT:
        return sql.SQL('{} COLLATE "C"').format(_cast(lookup.at, types))
    return _cast(lookup.at, types)


def _table(foreign: Foreign) -> sql.Identifier:
    return sql.Identifier(*foreign.name.split("."))


def _listed(some: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(some)
