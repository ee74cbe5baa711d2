"""Rows of a catalogue's tables, divided at random between staged, delta and main; and PostgreSQL's
own answers over plain tables of the same rows.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import brokerage
import every
import psycopg
from shop import HERE, Answering, Warehoused, island_over

from api.cut import Freshness
from api.errors import Unfinished
from api.plans import Plan
from etl_procs import Outlet, Stream
from etl_procs.dataflow import Dataflow
from headrace.errors import Refused
from migrations import layout, warehouse
from migrations.warehouse import Connection

DIGITS = 9
"""Of sums of doubles, which depend on the order in which they are added."""
INNER = re.compile(r"\([^()]*\)")
Batches = Sequence[Sequence[tuple[int]]]


@dataclass
class Divided:
    """Rows that are staged, in delta and in main, and all of them in plain tables."""

    island: Answering
    connection: Connection

    def expected(self, query: str) -> tuple[list[str], list[str]] | None:
        """Ask PostgreSQL of the plain tables; None: it refuses."""
        try:
            cursor = self.connection.execute(query.encode())
            rows = cursor.fetchall()
        except psycopg.Error:
            return None
        names = [self._type(column.type_code) for column in cursor.description or ()]
        return names, written(query, rows)

    def _type(self, oid: int) -> str:
        found = self.connection.adapters.types[oid]
        return found.regtype + ("[]" if oid == found.array_oid else "")

    def found(self, query: str, plan: Plan | None) -> tuple[list[str], list[str]] | None:
        try:
            answer = self.island.query(query, Freshness.STAGED, plan=plan)
        except Unfinished:  # which is no refusal where no plan is asked for
            if plan is None:
                raise
            return self.found(query, None)
        except Refused:
            return None
        return [column.type for column in answer.columns], written(query, answer.rows)


def written(query: str, rows: Any) -> list[str]:
    found = [repr([plain(value) for value in row]) for row in rows]
    return found if is_ordered(query) else sorted(found)


def is_ordered(query: str) -> bool:
    """Tell whether a query orders its answer, and not only what is between brackets."""
    outer = query
    while (shorter := INNER.sub("", outer)) != outer:
        outer = shorter
    return " ORDER BY " in outer


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if not math.isfinite(value) else float(f"{value + 0.0:.{DIGITS}g}")
    if isinstance(value, Decimal):
        return format(value, "f")
    return value


@contextmanager
def divided(
    home: Path, url: str, random: Random, *, stages_states: bool = True
) -> Iterator[Divided]:
    """Divide random rows of `every`."""
    every.GIVEN.clear()
    rows: list[tuple[every.Row, bool | None]] = [
        (every.a_row(random, 40), random.random() < 0.2) for _ in range(120)
    ]
    parts, merged, arrived = _parts(random, rows)
    if not stages_states:
        parts[arrived:] = [[(row, None) for row, _ in part] for part in parts[arrived:]]
        rows = [row for part in parts for row in part]
    batches = [batch for batch in every.batches(parts) if batch]
    with _moved(home, url, every.flow, every.numbers, batches, merged, arrived) as found:
        make_plain(found.connection, rows)
        yield found


@contextmanager
def divided_brokerage(home: Path, url: str, random: Random) -> Iterator[Divided]:
    """Divide random rows of `brokerage`."""
    brokerage.GIVEN.clear()
    changes = [brokerage.a_change(random) for _ in range(200)]
    parts, merged, arrived = _parts(random, changes)
    batches = [batch for batch in brokerage.batches(parts) if batch]
    flow, numbers = brokerage.flow, brokerage.numbers
    with _moved(home, url, flow, numbers, batches, merged, arrived) as found:
        _fill(found.connection, list(brokerage.OUTLETS.values()), brokerage.held(changes))
        yield found


def _parts(random: Random, rows: Sequence[Any]) -> tuple[list[Any], int, int]:
    """Cut rows into batches; choose through which of them is merged, and has arrived."""
    cuts = sorted(random.randrange(len(rows) + 1) for _ in range(5))
    parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    merged, arrived = sorted(random.randrange(len(parts) - 1) for _ in range(2))
    return parts, merged, arrived


@contextmanager
def _moved(
    home: Path,
    url: str,
    flow: Dataflow,
    numbers: Stream,
    batches: Batches,
    merged: int,
    arrived: int,
) -> Iterator[Divided]:
    store = Warehoused(home, flow)
    island = island_over(url, store.reader, flow)
    with warehouse.connect(url, application="test") as connection:
        schemas = f"{flow.name}, {flow.name}_main, {flow.name}_delta, headrace, plain"
        connection.execute(f"DROP SCHEMA IF EXISTS {schemas} CASCADE".encode())
        layout.prepare(connection, HERE, flow)
        store.run(numbers, *batches[:merged])
        store.push(connection)
        store.merge(connection)
        store.run(numbers, *batches[merged:arrived])
        store.push(connection)
        store.run(numbers, *batches[arrived:])
        yield Divided(island, connection)
    island.close()
    store.close()


def make_plain(connection: Connection, rows: Sequence[tuple[every.Row, bool | None]]) -> None:
    """Make plain tables of the rows of `every`."""
    states: dict[int, every.Row] = {}
    for row, is_deleted in rows:
        if is_deleted is not None:
            states.pop(row[0], None)
        if is_deleted is False:
            states[row[0]] = row
    held = {"facts": [row for row, _ in rows], "states": list(states.values())}
    _fill(connection, [every.facts, every.states], held)


def _fill(
    connection: Connection, outlets: Sequence[Outlet], held: Mapping[str, Sequence[every.Row]]
) -> None:
    connection.execute("CREATE SCHEMA plain")
    with connection.cursor() as cursor:
        for outlet in outlets:
            columns = ", ".join(f"{column.name} {column.sql}" for column in outlet.columns.columns)
            typed = columns.replace("INTEGER", "bigint").replace("REAL", "double precision")
            cursor.execute(f"CREATE TABLE plain.{outlet.name} ({typed})".encode())
            places = ", ".join(["%s"] * len(outlet.columns.names))
            into = f"INSERT INTO plain.{outlet.name} VALUES ({places})"
            cursor.executemany(into.encode(), held[outlet.name])
    connection.execute("SET search_path TO plain; SET timezone TO 'UTC'")
