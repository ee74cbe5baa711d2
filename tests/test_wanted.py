"""Which staged rows can count for a query: none that does is left out, and few others are read."""

from random import Random
from typing import Any

import duckdb
import every
import pyarrow as pa
import pytest

from api.catalogue import Catalogue
from api.parse import Parameter, values
from api.resolve import resolve
from api.split import Split, split
from api.wanted import wanted

CATALOGUE = Catalogue.of({"every": every.flow})
RANDOM = Random(7)  # noqa: S311
ROWS = pa.Table.from_pylist(
    [
        dict(zip(every.facts.columns.names, every.a_row(RANDOM, 20), strict=True))
        for _ in range(2_000)
    ],
    schema=every.facts.columns.arrow,
)


def asked(where: str, parameters: tuple[Parameter, ...], table: str = "facts") -> Split:
    marked = set(range(1, len(parameters) + 1))
    resolved = resolve(
        f"SELECT count(*) FROM {table} AS f WHERE {where}", CATALOGUE, parameters, marked
    )
    return split(resolved, orders_text=True).bound(values(parameters, marked))


def left(where: str, *parameters: Parameter, table: str = "facts") -> Any:
    divided = asked(where, parameters, table)
    (source,) = divided.sources
    return wanted(source, divided.values, ROWS).to_pylist()


def met(where: str, *parameters: Parameter) -> Any:
    with duckdb.connect() as connection:
        connection.register("f", ROWS)
        sql = f"SELECT * FROM f WHERE {where}"
        return connection.sql(sql, params=list(parameters)).to_arrow_table().to_pylist()


@pytest.mark.parametrize(
    ("where", "parameters"),
    [
        ("id = 3", ()),
        ("id = $1", (3,)),
        ("$1 <= id AND f.id < $2", (3, 5)),
        ("7 > id AND (n = 2)", ()),
        ("id BETWEEN $1 AND $2", (4, 6)),
        ("id BETWEEN 6 AND 4", ()),
        ("t = 'it''s'", ()),
        ("t = $1", ("it's",)),
        ("$1 = t AND n >= 0", ("",)),
        ("id = 2000000000", ()),
        ("t = 'a' /* of 'it' */", ()),
        ("id = $1 -- the first\n AND -- and\n t = 'a' -- the second", (3,)),
    ],
)
def test_what_compares_columns_with_values_is_all_that_is_left(
    where: str, parameters: tuple[Parameter, ...]
) -> None:
    assert left(where, *parameters) == met(where, *parameters)


@pytest.mark.parametrize(
    "where",
    [
        "id = 3 OR n = 2",
        "id = n",
        "id + 1 = 3",
        "t > 'a'",
        "t = '\\'",
        "n <> 1",
        "id IN (1, 2)",
        "b",
    ],
)
def test_what_is_not_understood_leaves_nothing_out(where: str) -> None:
    assert left(where) == ROWS.to_pylist()
    assert left(f"({where}) AND id = 3") == met("id = 3")


def test_of_operations_by_key_only_the_key_tells_which_can_count() -> None:
    assert left("id = 3 AND n = 2", table="states") == met("id = 3")
    assert left("n = 2", table="states") == ROWS.to_pylist()


def test_rows_that_a_join_fills_with_nulls_can_all_count() -> None:
    sql = (
        "SELECT count(*) FROM facts f LEFT JOIN states s ON f.id = s.id WHERE s.id = 3 AND f.id = 4"
    )
    divided = split(resolve(sql, CATALOGUE), orders_text=True)
    facts, states = (wanted(source, {}, ROWS).to_pylist() for source in divided.sources)
    assert facts == met("id = 4")
    assert states == ROWS.to_pylist()
