"""Lookups abroad: what a warehouse holds is read alike, whatever its settings and types are."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from abroad import configured
from library import database, drop

from etl_procs import Dataflow, Lookup, Strategy
from etl_procs.errors import CoreError
from headrace.errors import DefinitionError
from migrations.asking import Asker

UUID = "3f2a3f5e-5a6b-4c3d-8e9f-0a1b2c3d4e5f"


def looked(key: str = "b TEXT NOT NULL", moment: str = "d TEXT NOT NULL") -> Lookup:
    """Declare a lookup by these columns."""
    flow = Dataflow("abroad")
    names = key.split()[0], moment.split()[0]
    unique = f"UNIQUE ({', '.join(names)})"
    table = flow.foreign("crm.dim", f"sk INTEGER NOT NULL, {key}, {moment}, {unique}")
    how: dict[str, Any] = {"strategy": Strategy.WAREHOUSE}
    return flow.lookup("found", table, key=names[0], at=names[1], gives="sk", **how)


def filled(url: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
    with psycopg.connect(url, autocommit=True, client_encoding="utf8") as made:
        made.execute("CREATE SCHEMA crm")
        made.execute(f"CREATE TABLE crm.dim (sk bigint, {columns})")
        with made.cursor() as cursor:
            cursor.executemany("INSERT INTO crm.dim VALUES (%s, %s, %s)", rows)


@pytest.fixture
def asker(warehouse_url: str) -> Iterator[Asker]:
    made = Asker(configured(warehouse_url))
    yield made
    made.close()


def read(asker: Asker, lookup: Lookup) -> list[Any]:
    return sorted(row for rows in asker.read(lookup) for row in rows)


def test_a_moment_is_written_alike_whatever_the_database_says(
    asker: Asker, warehouse_url: str
) -> None:
    filled(
        warehouse_url,
        "b text, d timestamptz",
        [(1, "x", "2025-12-31 23:30:00+00"), (2, "x", "2026-01-31 12:00:00+00")],
    )
    with psycopg.connect(warehouse_url, autocommit=True) as made:
        for setting in (
            "DateStyle = German, DMY",
            "TimeZone = 'Asia/Tokyo'",
            "IntervalStyle = iso_8601",
            "extra_float_digits = -5",
        ):
            made.execute(f'ALTER DATABASE "{database(warehouse_url)}" SET {setting}')
    assert read(asker, looked()) == [
        ("x", "2025-12-31 23:30:00+00", 1),
        ("x", "2026-01-31 12:00:00+00", 2),
    ]
    moments = ("2025-12-31", "2026-01-01", "2026-02-01")
    found = asker.ask(looked(), [("x", moment) for moment in moments])
    assert found == [(2, 1), (3, 2)]


@pytest.fixture
def latin_url(postgres_url: str) -> Iterator[str]:
    """A database whose encoding has no more than 256 characters."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(
            f'CREATE DATABASE "{name}" TEMPLATE template0 ENCODING LATIN1 '
            "LOCALE_PROVIDER libc LOCALE 'C'"
        )
    yield postgres_url.rsplit("/", 1)[0] + "/" + name
    drop(postgres_url, name)


def test_a_key_that_the_encoding_cannot_hold_is_not_there(latin_url: str) -> None:
    filled(latin_url, "b text, d text", [(1, "x", "2020"), (2, "\u00e9", "2020")])
    asker = Asker(configured(latin_url))
    keys = ("x", "\u65e5\u672c", "\u00e9", "x\u20ac")
    assert asker.ask(looked(), [(key, "2026") for key in keys]) == [(1, 1), (3, 2)]
    with pytest.raises(CoreError, match="which the encoding of the warehouse default cannot hold"):
        asker.ask(looked(), [("x", "2026\u65e5")])
    assert asker.ask(looked(), [("x", "2026")]) == [(1, 1)]
    asker.close()


def test_a_key_that_is_no_text_there_is_compared_as_it_is_written(
    asker: Asker, warehouse_url: str
) -> None:
    filled(warehouse_url, "b uuid, d date", [(1, UUID, "2020-01-01")])
    assert read(asker, looked()) == [(UUID, "2020-01-01", 1)]
    for _ in range(2):
        assert asker.ask(looked(), [(UUID, "2026"), ("x", "2026")]) == [(1, 1)]


def test_a_number_that_is_no_integer_is_no_key(asker: Asker, warehouse_url: str) -> None:
    filled(warehouse_url, "a numeric, t numeric", [(1, 1, 1.5), (2, 1.5, 1), (3, None, 1)])
    lookup = looked("a INTEGER NOT NULL", "t INTEGER NOT NULL")
    assert read(asker, lookup) == [(1, 2, 1)]
    assert asker.ask(lookup, [(1, 1), (1, 2), (2, 9)]) == [(2, 1)]


@pytest.mark.parametrize("columns", ["a boolean, t bigint", "a bigint, t date", "a text, t bigint"])
def test_a_column_that_is_not_as_it_is_declared_is_said(
    asker: Asker, warehouse_url: str, columns: str
) -> None:
    filled(warehouse_url, columns, [])
    lookup = looked("a INTEGER NOT NULL", "t INTEGER NOT NULL")
    with pytest.raises(DefinitionError, match=r"operator does not exist|cannot cast"):
        asker.ask(lookup, [(1, 1)])
    with pytest.raises(DefinitionError, match=r"operator does not exist|cannot cast"):
        read(asker, lookup)
