"""The checksum of rows: ours is PostgreSQL's, whatever they are, and any difference changes it."""

import math
import struct
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import typed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from migrations import checksum

Connection = psycopg.Connection[Any]
Row = tuple[Any, ...]


def double(bits: int) -> float:
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    assert isinstance(value, float)
    return value


BIGINTS = [0, 1, -1, 2**31, -(2**31), 2**32 - 1, 2**32, -(2**32), 2**63 - 1, -(2**63)]
INTEGERS = [0, 1, -1, 2**31 - 1, -(2**31)]
NANS = [double(bits) for bits in (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF0 << 48) + 1, 2**64 - 1)]
DOUBLES = [0.0, -0.0, 1.5, -1e308, 5e-324, double(0x000F << 48), math.inf, -math.inf, *NANS]
DATES = [date.min, date.max, date(1999, 12, 31), date(2000, 1, 1), date(1970, 1, 1)]
TIMES = [datetime.combine(day, hour) for day in DATES for hour in (time.min, time.max)]
ALPHABET = "abcdefgh ijklmnop é€😀"
TEXTS = [(ALPHABET * 3)[at : at + length] for length in range(41) for at in (0, 17, 20)]
LONG = ["é" * 50_000, "x" * 100_003, *("y" * (12 * n) for n in range(60, 85))]

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.sampled_from(BIGINTS)),
    "integer": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "double precision": (pa.float64(), st.integers(0, 2**64 - 1).map(double) | st.floats()),
    "text": (
        pa.string(),
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=45),
    ),
    **typed.KINDS,
}


def around(precision: int) -> set[int]:
    """Give numbers with every number of digits, and of zeros at their end."""
    powers = [10**places for places in range(precision)]
    return {0, *powers, *(10 * power - 1 for power in powers), *(7 * power for power in powers)}


EXTREMES: list[tuple[str, list[Any]]] = [
    ("bigint", BIGINTS),
    ("integer", INTEGERS),
    ("boolean", [True, False]),
    ("double precision", DOUBLES),
    ("text", TEXTS),
    ("text", LONG),
    ("text", ["", ""]),
    ("text", []),
    ("date", DATES),
    ("timestamp", TIMES),
    *(
        (
            f"numeric({p},{s})",
            [typed.decimal(sign * n, s) for n in around(p) for sign in (1, -1)],
        )
        for p, s in typed.NUMERICS
    ),
]


def schema(kinds: list[str]) -> pa.Schema:
    return pa.schema([(f"c{at}", KINDS[kind][0]) for at, kind in enumerate(kinds)])


def made(kinds: list[str], *pieces: list[Row]) -> pa.Table:
    """Lay rows into a table, a piece within a longer one: none begins or ends with its buffers."""
    columns = schema(kinds)
    around: Row = (None,) * len(kinds)
    tables = [
        pa.Table.from_arrays(
            [
                pa.array(values, field.type)
                for values, field in zip(
                    zip(around, *piece, around, strict=True), columns, strict=True
                )
            ],
            schema=columns,
        ).slice(1, len(piece))
        for piece in pieces
    ]
    return pa.concat_tables([columns.empty_table(), *tables])


def of_rows(kinds: list[str], *rows: Row) -> int:
    return checksum.of(made(kinds, list(rows)))


def told(connection: Connection, kinds: list[str], *pieces: list[Row]) -> tuple[int, int]:
    """Have PostgreSQL count and sum rows that were copied into it."""
    columns = sql.SQL(", ").join(sql.SQL(f"c{at} {kind}") for at, kind in enumerate(kinds))
    connection.execute("DROP TABLE IF EXISTS pg_temp.copied", prepare=False)
    connection.execute(sql.SQL("CREATE TEMPORARY TABLE copied ({})").format(columns))
    copy = "COPY pg_temp.copied FROM STDIN (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(copy) as writing:
        writing.set_types([kind.partition("(")[0] for kind in kinds])
        for piece in pieces:
            for row in piece:
                writing.write_row(row)
    select = sql.SQL("SELECT count(*), {} FROM pg_temp.copied")
    query = select.format(checksum.expression(schema(kinds)))
    ((count, total),) = connection.execute(query, prepare=False).fetchall()
    return count, total


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[Row]]]:
    """Columns, and rows in pieces: as a table has that was joined of several."""
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=6))
    values = [
        KINDS[kind][1] | st.none() if draw(st.booleans()) else KINDS[kind][1] for kind in kinds
    ]
    return kinds, draw(st.lists(st.lists(st.tuples(*values), max_size=5), max_size=4))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tables())
def test_postgresql_says_the_same_of_every_table(
    connection: Connection, table: tuple[list[str], list[list[Row]]]
) -> None:
    kinds, pieces = table
    ours = made(kinds, *pieces)
    assert told(connection, kinds, *pieces) == (ours.num_rows, checksum.of(ours))


@pytest.mark.parametrize(("kind", "values"), EXTREMES)
def test_postgresql_says_the_same_of_each_value_that_is_special(
    connection: Connection, kind: str, values: list[Any]
) -> None:
    """Each with a number of its own, so that two mistakes cannot make up for each other."""
    rows = list(enumerate([*values, None]))
    kinds = ["bigint", kind]
    assert told(connection, kinds, rows) == (len(rows), of_rows(kinds, *rows))


def test_postgresql_says_the_same_of_more_rows_than_are_summed_at_once(
    connection: Connection,
) -> None:
    kinds = ["bigint", "text", "double precision"]
    rows: list[Row] = [
        (n, None if n % 7 == 0 else "x" * (n % 30), n / 3)
        for n in range(2 * checksum.ROWS_AT_ONCE + 1)
    ]
    pieces = [rows[:20_000], [], rows[20_000:20_001], rows[20_001:]]
    assert told(connection, kinds, *pieces) == (len(rows), checksum.of(made(kinds, *pieces)))


def test_no_rows_have_the_checksum_0_on_both_sides(connection: Connection) -> None:
    assert told(connection, list(KINDS)) == (0, 0)
    assert checksum.of(made(list(KINDS))) == 0


def test_what_lies_behind_a_text_is_not_of_it() -> None:
    around = pa.py_buffer(b"abcdefghijklm" + bytes(range(64)))
    ends = pa.py_buffer(struct.pack("<4i", 0, 6, 6, 13))
    for length in (13, 14, 24, 25, 77):
        texts = pa.Array.from_buffers(pa.string(), 3, [None, ends, around.slice(0, length)])
        assert checksum.of(pa.table({"c0": texts})) == of_rows(
            ["text"], ("abcdef",), ("",), ("ghijklm",)
        )


@pytest.mark.parametrize("bytes_at_once", [1, 100, 10**9])
def test_the_sum_does_not_depend_on_how_much_is_summed_at_once(
    bytes_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(["text"], [(text,) for text in [*TEXTS, *LONG]])
    whole = checksum.of(table)
    monkeypatch.setattr(checksum, "BYTES_AT_ONCE", bytes_at_once)
    assert checksum.of(table) == whole


MIXED = ["bigint", "text", "double precision", "boolean", "integer", "bigint"]
ROWS: list[Row] = [
    (1, "Ada Lovelace, Countess", 0.0, True, 7, 2),
    (2, "Kurt", 2.5, False, 7, 1),
    (3, "", None, None, 8, 3),
]


def test_the_order_of_the_rows_does_not_matter() -> None:
    assert of_rows(MIXED, *ROWS) == of_rows(MIXED, *reversed(ROWS))


@pytest.mark.parametrize("column", range(len(MIXED)))
def test_one_changed_value_changes_the_sum(column: int) -> None:
    others: Row = (4, "Ada Lovelace, Countesz", 0.5, False, 9, None)
    first = tuple(others[at] if at == column else value for at, value in enumerate(ROWS[0]))
    assert of_rows(MIXED, first, *ROWS[1:]) != of_rows(MIXED, *ROWS)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", 0),
        ("integer", 0),
        ("double precision", 0.0),
        ("boolean", False),
        ("text", ""),
        ("numeric(8,2)", Decimal(0)),
        ("date", date(2000, 1, 1)),
        ("timestamp", TIMES[6]),
    ],
)
def test_null_is_not_what_stands_in_for_it(kind: str, value: object) -> None:
    assert of_rows([kind], (None,)) != of_rows([kind], (value,))


def test_a_number_is_not_what_it_is_with_the_other_sign() -> None:
    """PostgreSQL's own hash of a numeric does not tell them apart."""
    assert of_rows(["numeric(8,2)"], (Decimal(1),)) != of_rows(["numeric(8,2)"], (Decimal(-1),))


def test_a_row_more_or_less_changes_the_sum() -> None:
    assert of_rows(MIXED, *ROWS, ROWS[0]) != of_rows(MIXED, *ROWS)
    assert of_rows(MIXED, *ROWS[1:]) != of_rows(MIXED, *ROWS)
    assert of_rows(["bigint"], (None,)) != of_rows(["bigint"])


def test_two_columns_that_are_exchanged_change_the_sum() -> None:
    exchanged = [(row[5], *row[1:5], row[0]) for row in ROWS]
    assert of_rows(MIXED, *exchanged) != of_rows(MIXED, *ROWS)


@pytest.mark.parametrize("column", [0, 1, 2, 3, 5])
def test_two_rows_that_exchange_a_value_change_the_sum(column: int) -> None:
    first, second = (
        tuple(taken[at] if at == column else value for at, value in enumerate(row))
        for row, taken in ((ROWS[0], ROWS[1]), (ROWS[1], ROWS[0]))
    )
    assert of_rows(MIXED, first, second, ROWS[2]) != of_rows(MIXED, *ROWS)


def test_a_texts_own_collation_does_not_matter(connection: Connection) -> None:
    query = checksum.expression(schema(["bigint", "text"])).as_string(connection)
    assert '"c1" COLLATE "C"' in query
    assert '"c0" COLLATE' not in query
