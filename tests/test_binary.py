"""Rows of Arrow in PostgreSQL's binary format: what is read back is what was there."""

import math
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import typed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from migrations import binary

TYPES = {
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double precision": (pa.float64(), st.floats()),
    "text": (pa.string(), st.text(st.characters(exclude_characters="\0", codec="utf-8"))),
    **typed.KINDS,
}
Kinds = list[str]
Row = tuple[Any, ...]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Kinds, list[list[Row]]]:
    """Columns, and rows in pieces: as a table has that was joined of several."""
    kinds = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=6))
    values = [
        TYPES[kind][1] | st.none() if draw(st.booleans()) else TYPES[kind][1] for kind in kinds
    ]
    return kinds, draw(st.lists(st.lists(st.tuples(*values), max_size=5), max_size=4))


def made(kinds: Kinds, pieces: list[list[Row]]) -> pa.Table:
    """Lay rows into a table, a piece within a longer one: none begins at its buffers' beginning."""
    schema = pa.schema([(f"c{at}", TYPES[kind][0]) for at, kind in enumerate(kinds)])
    nulls: Row = (None,) * len(kinds)
    tables = [
        pa.Table.from_arrays(
            [
                pa.array(column, field.type)
                for column, field in zip(
                    zip(nulls, *piece, nulls, strict=True), schema, strict=True
                )
            ],
            schema=schema,
        ).slice(1, len(piece))
        for piece in pieces
    ]
    return pa.concat_tables([schema.empty_table(), *tables])


def read_back(
    connection: psycopg.Connection[Any], kinds: Kinds, table: pa.Table
) -> tuple[int, list[Row]]:
    connection.execute("DROP TABLE IF EXISTS pg_temp.copied")
    columns = [sql.SQL(f"c{at} {kind}") for at, kind in enumerate(kinds)]
    connection.execute(
        sql.SQL("CREATE TEMPORARY TABLE copied (n serial, {})").format(sql.SQL(", ").join(columns))
    )
    names = sql.SQL(", ").join(sql.Identifier(name) for name in table.column_names)
    copy = sql.SQL("COPY pg_temp.copied ({}) FROM STDIN (FORMAT BINARY)").format(names)
    with connection.cursor() as cursor, cursor.copy(copy) as writing:
        writing.write(binary.BEGIN)
        parts = list(binary.encoded(table))
        for part in parts:
            writing.write(part)
        writing.write(binary.END)
    select = sql.SQL("SELECT {} FROM pg_temp.copied ORDER BY n").format(names)
    return len(parts), connection.execute(select, prepare=False).fetchall()


def shown(rows: list[Row]) -> list[str]:
    """Write rows so that NaN is NaN, and -0.0 is not 0.0."""
    return [repr(tuple(row)) for row in rows]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tables())
def test_every_table_comes_back_as_it_was(
    connection: psycopg.Connection[Any], table: tuple[Kinds, list[list[Row]]]
) -> None:
    kinds, pieces = table
    _, rows = read_back(connection, kinds, made(kinds, pieces))
    assert shown(rows) == shown([row for piece in pieces for row in piece])


@pytest.mark.parametrize(
    ("text", "count", "parts"),
    [("é" * 2**20, 5, 5), ("x", 2 * binary.ROWS_AT_ONCE + 1, 3)],
    ids=["long texts", "many rows"],
)
def test_no_more_is_made_at_once_than_some_megabytes(
    connection: psycopg.Connection[Any], text: str, count: int, parts: int
) -> None:
    kinds: Kinds = ["text", "double precision", "bigint"]
    rows = [(text, math.inf if n % 2 else None, n) for n in range(count)]
    made_of, found = read_back(connection, kinds, made(kinds, [rows]))
    assert found == rows
    assert made_of == parts
