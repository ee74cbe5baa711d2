"""What is brought in: trades, as delimited lines in frames and as single JSON records."""

import json
from collections.abc import Iterator
from itertools import cycle, islice
from random import Random

from psycopg import sql

from etl_procs.columns import Type, parse_tuple
from etl_procs.wire import Delimited
from ingest import records

SEED = 2026
LINES_A_FRAME = 500
DIFFERENT = 100_000
"""Lines in frames that are made anew; after them come the same ones, with other numbers."""
FORMAT = Delimited("|")

COLUMNS = (
    "id INTEGER NOT NULL, customer INTEGER NOT NULL, account INTEGER NOT NULL, "
    "symbol TEXT NOT NULL, kind TEXT NOT NULL, status TEXT, placed TEXT NOT NULL, "
    "quantity INTEGER NOT NULL, bid REAL NOT NULL, price REAL, fee REAL, commission REAL, "
    "tax REAL, broker TEXT"
)
PARSED = parse_tuple(COLUMNS, "trades").columns
TYPES = {Type.INTEGER: "BIGINT", Type.REAL: "DOUBLE PRECISION", Type.TEXT: "TEXT"}
NAMES = tuple(column.name for column in PARSED)

Trade = tuple[int, int, int, str, str, str, str, int, float, float, float, float, float, str]
Headers = list[tuple[str, bytes]]


def declared(*, required: bool) -> sql.Composed:
    """Write the columns as PostgreSQL declares them; what must be there is, if it is `required`."""
    return sql.SQL(", ").join(
        sql.SQL("{} {}{}").format(
            sql.Identifier(column.name),
            sql.SQL(TYPES[column.type]),
            sql.SQL(" NOT NULL" if required and column.required else ""),
        )
        for column in PARSED
    )


def trades(count: int, first: int = 0) -> Iterator[Trade]:
    """Make trades, the first of this number: 14 columns, about 96 bytes as a line; never others."""
    random = Random(SEED)  # noqa: S311 - no secret
    symbols = ["".join(random.choices("ABCDEFGHIKLMNOPRSTUVWXYZ", k=6)) for _ in range(500)]
    brokers = [f"{a} {b}" for a in ("Ada", "Kurt", "Emmy", "Alan") for b in ("Ito", "Lem", "Roe")]
    for number in range(first, first + count):
        bid = random.randrange(100, 99_999) / 100
        yield (
            1_000_000 + number,
            random.randrange(100_000),
            random.randrange(100_000),
            random.choice(symbols),
            random.choice(("TMB", "TMS", "TLB")),
            random.choice(("CMPT", "PNDG", "SBMT")),
            f"2026-01-{number % 28 + 1:02}T{number % 24:02}:{number % 60:02}:00",
            100 * random.randrange(1, 100),
            bid,
            round(bid * 1.01, 2),
            random.randrange(100, 999) / 100,
            random.randrange(100, 999) / 100,
            random.randrange(10, 999) / 100,
            random.choice(brokers),
        )


def lines(count: int) -> Iterator[bytes]:
    """Write trades as lines of a delimited file."""
    for trade in trades(count):
        yield "|".join(map(str, trade)).encode()


def frames(count: int) -> Iterator[tuple[bytes, Headers]]:
    """Write trades as frames, as the collector does: the value of each record, and its headers."""
    again, first = cycle(list(lines(min(count, DIFFERENT)))), 1
    while some := list(islice(again, min(LINES_A_FRAME, count + 1 - first))):
        headers = [
            (records.SOURCE, b"trades"),
            (records.SEQ, str(first).encode()),
            (records.FRAME, str(len(some)).encode()),
        ]
        yield records.SEPARATOR.join(some), headers
        first += len(some)


def documents(count: int, first: int = 0) -> Iterator[tuple[bytes, Headers]]:
    """Write trades as JSON objects, one a record, without headers."""
    for trade in trades(count, first):
        yield json.dumps(dict(zip(NAMES, trade, strict=True))).encode(), []
