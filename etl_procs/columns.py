"""Columns: what a user writes in SQL for a stream, a table or an outlet, parsed.

SQLite itself is the parser: the columns are declared to an empty database in memory, which
then tells their names and types. The dialect is thereby exactly the one that will run.
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


class Type(Enum):
    """A column's type: SQLite's strict types, the same everywhere."""

    INTEGER = "INTEGER"
    REAL = "REAL"
    TEXT = "TEXT"

    @property
    def arrow(self) -> pa.DataType:
        """Name Arrow's type for it; integers have 64 bits everywhere."""
        return {"INTEGER": pa.int64(), "REAL": pa.float64(), "TEXT": pa.string()}[self.value]


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    type: Type
    required: bool


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
        fields = [pa.field(c.name, c.type.arrow, nullable=not c.required) for c in self.columns]
        object.__setattr__(self, "arrow", pa.schema(fields))

    def only(self, names: Collection[str]) -> "Columns":
        """Give some of them, in their order."""
        columns = tuple(column for column in self.columns if column.name in names)
        sql = ", ".join(
            f"{c.name} {c.type.value}" + (" NOT NULL" if c.required else "") for c in columns
        )
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
    try:
        with sqlite3.connect(":memory:") as scratch:
            scratch.execute(f"CREATE TABLE t ({sql}) STRICT")
            described = scratch.execute(
                "SELECT name, type, \"notnull\", pk FROM pragma_table_info('t') ORDER BY cid"
            ).fetchall()
    except sqlite3.Error as error:
        raise DefinitionError(
            f"{of}: these columns do not make a table: {error}",
            hint="Write them as in CREATE TABLE: 'phone TEXT NOT NULL, contestant INTEGER'; "
            f"types are {', '.join(t.value for t in Type)}.",
        ) from error
    columns = [
        Column(check_name(name, of), _type(of, name, type_), required=bool(not_null or pk))
        for name, type_, not_null, pk in described
    ]
    return Columns(sql, tuple(columns))


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


def parse_tuple(sql: str, of: str) -> Columns:
    """Parse the columns of a stream or an outlet: names, types and NOT NULL."""
    found = NOT_OF_A_STREAM.search(sql)
    if found:
        raise DefinitionError(
            f"{of}: {found.group(0).upper()} has no meaning here",
            hint="A stream or an outlet has names, types and NOT NULL; keys and constraints "
            "belong to a table.",
        )
    return parse_table(sql, of)


def _type(of: str, name: str, declared: str) -> Type:
    try:
        return Type(declared.upper())
    except ValueError:
        raise DefinitionError(
            f"{of}: column {name} has the type {declared}",
            hint=f"Use one of {', '.join(t.value for t in Type)}.",
        ) from None
