"""What a warehouse holds, held against what the oracle says."""

from dataclasses import dataclass

import duckdb

from tpcdi import schema
from tpcdi.oracle.canon import canonical, fetch
from tpcdi.snapshot import Connection

SHOWN = 5
"""How many rows of a side are told."""

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Difference:
    """What of a table is not the same: how many rows, and the first of them."""

    table: str
    missing: int
    """Rows of the oracle that the warehouse lacks; one that is other counts on both sides."""
    unexpected: int
    first_missing: list[Row]
    first_unexpected: list[Row]

    def __str__(self) -> str:
        lines = [f"{self.table}: {self.missing} rows missing, {self.unexpected} unexpected"]
        lines += [f"  - {_told(row)}" for row in self.first_missing]
        lines += [f"  + {_told(row)}" for row in self.first_unexpected]
        return "\n".join(lines)


def _told(row: Row) -> str:
    return ", ".join(f"{name}={'NULL' if of is None else of}" for name, of in row.items())


def compare(warehouse: Connection, oracle: duckdb.DuckDBPyConnection) -> list[Difference]:
    """Compare all tables, as multisets of canonical rows; none differs: an empty list."""
    oracle.execute("DROP SCHEMA IF EXISTS warehouse CASCADE")
    fetch(warehouse, oracle, "warehouse")
    return differences(oracle, "warehouse")


def differences(oracle: duckdb.DuckDBPyConnection, place: str) -> list[Difference]:
    """Compare the tables of a schema beside the oracle's."""
    found = []
    for table in schema.TABLES:
        missing, first_missing = _without(oracle, table, "oracle", place)
        unexpected, first_unexpected = _without(oracle, table, place, "oracle")
        if missing or unexpected:
            found.append(Difference(table, missing, unexpected, first_missing, first_unexpected))
    return found


def _without(
    connection: duckdb.DuckDBPyConnection, table: str, one: str, other: str
) -> tuple[int, list[Row]]:
    """Count the rows that one side has more often than the other, and give the first."""
    rows = [canonical(connection, place, table) for place in (one, other)]
    connection.execute(f"CREATE OR REPLACE TEMP TABLE extra AS {' EXCEPT ALL '.join(rows)}")
    (count,) = connection.execute("SELECT count(*) FROM extra").fetchall()[0]
    shown = connection.execute(f"FROM extra ORDER BY ALL LIMIT {SHOWN}")
    names = [name for name, *_ in shown.description or ()]
    return count, [dict(zip(names, row, strict=True)) for row in shown.fetchall()]
