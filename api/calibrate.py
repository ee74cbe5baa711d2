"""Calibrating: the rates of this machine and its warehouse, measured in some seconds.

What is measured is what a plan is made of: rows of two widths are shipped into a temporary table or
written into a query, read there, fetched as Arrow, and read by the island.
"""

import json
import statistics
from collections.abc import Callable
from typing import LiteralString

import pyarrow as pa
from adbc_driver_postgresql import dbapi

from api.costs import Rates
from api.few import FEW_ROWS, Few
from api.finish import Finisher
from api.shims.postgres import BY_COPY
from api.sources import written
from etl_procs.columns import Column, Type
from headrace.clock import Clock
from migrations.errors import translated
from migrations.warehouse import Warehouse

ROWS, FEW = 200_000, 10
NARROW, WIDE = 16, 116
"""Bytes of a row: of a number and a short text, or a longer one."""
MORE, VALUE = 6, 8
"""So many more columns of numbers, and their bytes."""
ROUNDS = 3

READ: LiteralString = "SELECT count(*), sum(n) FROM {}"
FETCH: LiteralString = "SELECT n, t FROM {}"
EXPLAIN: LiteralString = "EXPLAIN (FORMAT JSON) {}"
TABLES = {NARROW: "narrow", WIDE: "wide"}
COLUMNS = Column("n", Type.INTEGER, required=True), Column("t", Type.TEXT, required=True)


class Calibration:
    """One measurement, over a connection of its own."""

    def __init__(self, place: Warehouse, clock: Clock) -> None:
        with translated("connecting to the warehouse"):
            place.connect(application="headrace calibrate").close()  # it says best what is wrong
        self._connection = dbapi.connect(place.url, autocommit=True)
        self._clock = clock

    def rates(self) -> Rates:
        """Measure them."""
        ship = {width: self._median(self._shipping(width, ROWS)) for width in TABLES}
        broad = self._median(self._shipping(NARROW, ROWS, MORE))
        ship_ms = self._median(self._shipping(NARROW, FEW)) * 1_000
        for width in TABLES:
            self._shipping(width, ROWS)()
        fetch = {width: self._median(self._fetching(width)) for width in TABLES}
        reads = self._median(lambda: self._ask(READ.format(TABLES[NARROW])))
        island_few, island = (self._median(self._finishing(rows)) for rows in (FEW, ROWS))
        ship_byte, ship_row = _by_byte_and_row(ship)
        ship_value = max(_us(broad - ship[NARROW]) / ROWS / MORE - ship_byte * VALUE, 0.0)
        fetch_byte, fetch_row = _by_byte_and_row(fetch)
        reading = reads / ROWS * FEW_ROWS
        write = {w: self._median(self._writing(w)) - reading for w in TABLES}
        write_byte, write_row = _by_byte_and_row(write, FEW_ROWS)
        return Rates(
            fetch_us_per_row=fetch_row,
            fetch_us_per_byte=fetch_byte,
            ship_us_per_row=max(ship_row - len(COLUMNS) * ship_value, 0.0),
            ship_us_per_value=ship_value,
            ship_us_per_byte=ship_byte,
            write_us_per_value=write_row / len(COLUMNS),
            write_us_per_byte=write_byte,
            shipped_us_per_row=_us(reads) / ROWS,
            island_us_per_row=_us(max(island - island_few, 0.0)) / ROWS,
            unit_us=_us(reads) / self._cost(READ.format(TABLES[NARROW])),
            ship_ms=ship_ms,
            island_ms=island_few * 1_000,
        )

    def close(self) -> None:
        """Close the connection: what was made there ends with it."""
        self._connection.close()

    def _median(self, work: Callable[[], object]) -> float:
        work()
        seconds = []
        for _ in range(ROUNDS):
            began = self._clock.monotonic()
            work()
            seconds.append(self._clock.monotonic() - began)
        return statistics.median(seconds)

    def _shipping(self, width: int, rows: int, more: int = 0) -> Callable[[], object]:
        table, name = _rows(width, rows), TABLES[width]
        for number in range(more):
            table = table.append_column(f"n{number}", table["n"])

        def ship() -> None:
            with self._connection.cursor() as cursor:
                cursor.execute(f"DROP TABLE IF EXISTS pg_temp.{name}")
                cursor.adbc_ingest(name, table, mode="create", temporary=True)
                if rows > FEW:
                    cursor.execute(f"ANALYZE pg_temp.{name}")

        return ship

    def _writing(self, width: int) -> Callable[[], object]:
        table = _rows(width, FEW_ROWS)
        return lambda: self._ask(READ.format(written(COLUMNS, Few(table)).as_string(None)))

    def _fetching(self, width: int) -> Callable[[], object]:
        return lambda: self._ask(FETCH.format(TABLES[width]))

    def _finishing(self, rows: int) -> Callable[[], object]:
        table, finisher = _rows(NARROW, rows), Finisher(memory_mb=512)
        return lambda: finisher.read(table)

    def _ask(self, query: str) -> pa.Table:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()

    def _cost(self, query: str) -> float:
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{BY_COPY: "false"})
            cursor.execute(EXPLAIN.format(query))
            (found,) = cursor.fetch_arrow_table().to_pylist()
        return float(json.loads(next(iter(found.values())))[0]["Plan"]["Total Cost"])


def _rows(width: int, rows: int) -> pa.Table:
    text = "x" * (width - 8)
    return pa.table({"n": pa.array(range(rows), pa.int64()), "t": pa.repeat(text, rows)})


def _by_byte_and_row(seconds: dict[int, float], rows: int = ROWS) -> tuple[float, float]:
    """Divide what two widths took into what bytes and what rows did."""
    by_byte = max(_us(seconds[WIDE] - seconds[NARROW]) / rows / (WIDE - NARROW), 0.0)
    return by_byte, max(_us(seconds[NARROW]) / rows - by_byte * NARROW, 0.0)


def _us(seconds: float) -> float:
    return seconds * 1e6
