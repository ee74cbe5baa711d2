"""Columns: what a user writes in SQL for a stream, a table or an outlet, parsed.

SQLite itself is the parser: the columns are declared to an empty database in memory, which
then tells their names and types. The dialect is thereby exactly the one that will run; of the types
it only tells the words, and which they may be is said here.
"""

import re
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from headrace.errors import DefinitionError

NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
"""Names that every engine takes as they are; short enough for PostgreSQL with our suffixes."""

NOT_OF_A_STREAM = re.compile(
    r"\b(PRIMARY\s+KEY|UNIQUE|CHECK|REFERENCES|DEFAULT|COLLATE|GENERATED|CONSTRAINT)\b",
    re.IGNORECASE,
)


NUMERIC = re.compile(r"NUMERIC\s*\(\s*([0-9]{1,4})\s*(?:,\s*([0-9]{1,4})\s*)?\)", re.IGNORECASE)
PRECISION_MOST = 38
"""What Arrow holds in 16 bytes."""


class Type(Enum):
    """A column's type: SQLite's strict types, the same everywhere, and more for outlets."""

    INTEGER = "INTEGER"
    REAL = "REAL"
    TEXT = "TEXT"
    BOOLEAN = "BOOLEAN"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    """Without a time zone, to the microsecond."""
    NUMERIC = "NUMERIC"
    """With so many digits, and so many of them behind the point, as the column says."""


OF_THE_CORE = (Type.INTEGER, Type.REAL, Type.TEXT)
OF_OUTLETS = tuple(Type)

ARROW = {
    Type.INTEGER: pa.int64(),
    Type.REAL: pa.float64(),
    Type.TEXT: pa.string(),
    Type.BOOLEAN: pa.bool_(),
    Type.DATE: pa.date32(),
    Type.TIMESTAMP: pa.timestamp("us"),
}
"""Arrow's types; of NUMERIC, each column has its own. Integers have 64 bits everywhere."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    type: Type
    required: bool
    precision: int = 0
    """Of NUMERIC(p, s), p."""
    scale: int = 0

    @property
    def arrow(self) -> pa.DataType:
        """Name Arrow's type for it."""
        if self.type is Type.NUMERIC:
            return pa.decimal128(self.precision, self.scale)
        return ARROW[self.type]

    @property
    def sql(self) -> str:
        """Name its type as it is declared."""
        is_numeric = self.type is Type.NUMERIC
        return self.type.value + (f"({self.precision},{self.scale})" if is_numeric else "")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a stream, a table or an outlet, in order, and the SQL they came from."""

    sql: str
    columns: tuple[Column, ...]
    names: tuple[str, ...] = field(init=False, compare=False)
    arrow: pa.Schema = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Once, because they are asked for with every batch.
        object.__setattr__(self, "names", tuple(column.name for column in self.columns))
        fields = [pa.field(c.name, c.arrow, nullable=not c.required) for c in self.columns]
        object.__setattr__(self, "arrow", pa.schema(fields))

    def __hash__(self) -> int:
        # Tables are looked up by all that they are, several times for each query.
        return hash(self.sql)

    def only(self, names: Collection[str]) -> "Columns":
        """Give some of them, in their order."""
        columns = tuple(column for column in self.columns if column.name in names)
        sql = ", ".join(f"{c.name} {c.sql}" + (" NOT NULL" if c.required else "") for c in columns)
        return Columns(sql, columns)


def check_name(name: str, of: str) -> str:
    """Return `name`, or refuse it."""
    if (
        not isinstance(name, str)
        or not NAME.fullmatch(name)
        or name.startswith(("headrace", "sqlite", "pg_"))
    ):
        raise DefinitionError(
            f"{of}: {name!r} is not a name that every engine takes",
            hint="Use lower-case letters, digits and _, a letter first, at most 48, "
            "and not beginning with headrace, sqlite or pg_.",
        )
    return name


def check_bare(name: str, of: str) -> None:
    """Refuse a name that SQL would have to write in quotes."""
    try:
        with sqlite3.connect(":memory:") as scratch:
            scratch.execute(f"CREATE TABLE {name} ({name} TEXT)")
    except sqlite3.Error:
        raise DefinitionError(
            f"{of}: {name!r} is a word of SQL", hint="Give it another name."
        ) from None


def parse_table(sql: str, of: str) -> Columns:
    """Parse a table's columns: anything that SQLite allows in a strict table."""
    if re.search(r"\bAUTOINCREMENT\b", sql, re.IGNORECASE):
        # At its last number SQLite says that the disk is full, and a full disk is waited for.
        raise DefinitionError(
            f"{of}: AUTOINCREMENT has no place in a core",
            hint="INTEGER PRIMARY KEY alone gives numbers; or take them from the tuples.",
        )
    return _parse(sql, of, OF_THE_CORE)


def check_rows(rows: Collection[tuple[object, ...]], columns: Columns, of: str) -> None:
    """Refuse first rows that a table of these columns would not take."""
    places = ", ".join("?" for _ in columns.columns)
    try:
        with sqlite3.connect(":memory:") as scratch:
            scratch.execute(f"CREATE TABLE t ({columns.sql}) STRICT")
            scratch.executemany(f"INSERT INTO t VALUES ({places})", rows)  # noqa: S608 - ? only
    except (sqlite3.Error, OverflowError) as error:
        raise DefinitionError(
            f"{of}: its first rows do not fit: {error}",
            hint=f"Give one value for each of {', '.join(columns.names)}, as they are declared.",
        ) from error


def parse_tuple(sql: str, of: str, types: Collection[Type] = OF_THE_CORE) -> Columns:
    """Parse the columns of a stream, or with its types an outlet's: names, types and NOT NULL."""
    found = NOT_OF_A_STREAM.search(sql)
    if found:
        raise DefinitionError(
            f"{of}: {found.group(0).upper()} has no meaning here",
            hint="A stream or an outlet has names, types and NOT NULL; keys and constraints "
            "belong to a table.",
        )
    return _parse(sql, of, types)


def _parse(sql: str, of: str, types: Collection[Type]) -> Columns:
    try:
        with sqlite3.connect(":memory:") as scratch:
            scratch.execute(f"CREATE TABLE t ({sql})")
            described = scratch.execute(
                "SELECT name, type, \"notnull\", pk FROM pragma_table_info('t') ORDER BY cid"
            ).fetchall()
    except sqlite3.Error as error:
        raise DefinitionError(
            f"{of}: these columns do not make a table: {error}",
            hint="Write them as in CREATE TABLE: 'phone TEXT NOT NULL, contestant INTEGER'; "
            f"types are {_named(types)}.",
        ) from error
    columns = [
        _column(of, name, declared, bool(not_null or pk), types)
        for name, declared, not_null, pk in described
    ]
    return Columns(sql, tuple(columns))


def _column(of: str, name: str, declared: str, required: bool, types: Collection[Type]) -> Column:
    check_name(name, of)
    numeric = NUMERIC.fullmatch(declared)
    word = Type.NUMERIC.value if numeric else declared.upper()
    type_ = next((known for known in Type if known.value == word), None)
    if type_ is None or type_ not in types:
        only = ", which only an outlet's column may have" if type_ else ""
        raise DefinitionError(
            f"{of}: column {name} has {f'the type {declared}' if declared else 'no type'}{only}",
            hint=f"Use one of {_named(types)}.",
        )
    precision, scale = (int(n or 0) for n in numeric.groups()) if numeric else (0, 0)
    if type_ is Type.NUMERIC and not (1 <= precision <= PRECISION_MOST and scale <= precision):
        raise DefinitionError(
            f"{of}: column {name} has the type {declared}",
            hint=f"Write NUMERIC(p, s): 1 to {PRECISION_MOST} digits, at most all of them behind "
            "the point.",
        )
    return Column(name, type_, required, precision, scale)


def _named(types: Collection[Type]) -> str:
    return ", ".join("NUMERIC(p, s)" if t is Type.NUMERIC else t.value for t in types)
