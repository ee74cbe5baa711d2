"""What a read over a table and its delta costs beside the same read when they are merged.

python -m bench.migrate_view [--quick]
"""

import statistics
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from typing import LiteralString, NamedTuple

import psycopg
from psycopg import sql

from bench import migrate_tables, postgres
from bench.harness import data_folder, timed
from bench.ingest_data import NAMES
from bench.migrate_tables import COLUMNS
from bench.postgres import Connection

UNTOUCHED: Mapping[str, LiteralString] = {
    "not_exists": """\
SELECT {columns} FROM main WHERE NOT EXISTS (SELECT FROM delta WHERE delta.id = main.id)""",
    "not_in": """\
SELECT {columns} FROM main WHERE id NOT IN (SELECT id FROM delta)""",
    "left_join": """\
SELECT {main_columns} FROM main LEFT JOIN (SELECT DISTINCT id AS touched FROM delta) AS touched
ON touched = id WHERE touched IS NULL""",
    "except": """\
SELECT {columns} FROM main JOIN (SELECT id FROM main EXCEPT SELECT id FROM delta) AS kept
USING (id)""",
}
"""The rows of main that no operation in delta overtakes."""

LATEST: Mapping[str, LiteralString] = {
    "distinct_on": """\
SELECT {columns} FROM (
  SELECT DISTINCT ON (id) {columns}, _deleted FROM delta ORDER BY id, _batch DESC, _partition DESC
) AS latest WHERE NOT _deleted""",
    "max_batch": """\
SELECT {columns} FROM delta JOIN (
  SELECT id, max(_batch) AS _batch FROM delta GROUP BY id
) AS last USING (id, _batch) WHERE NOT _deleted""",
    "no_later": """\
SELECT {columns} FROM delta WHERE NOT _deleted AND NOT EXISTS (
  SELECT FROM delta AS later WHERE later.id = delta.id AND later._batch > delta._batch)""",
}
"""The rows that the last operation of each key in delta leaves."""

READS: Mapping[str, LiteralString] = {
    "aggregate": "SELECT kind, count(*), sum(quantity), avg(price) FROM {table} GROUP BY kind",
    "count": "SELECT count(*) FROM {table}",
    "range": "SELECT sum(quantity) FROM {table} WHERE customer BETWEEN 5000 AND 5999",
    "narrow_range": "SELECT sum(quantity) FROM {table} WHERE customer BETWEEN 5000 AND 5019",
    "point": "SELECT * FROM {table} WHERE id = 4321",
    "join": "SELECT region, sum(quantity) FROM {table} JOIN customers USING (customer) GROUP BY 1",
}

CUSTOMERS: LiteralString = """\
CREATE TABLE customers AS
SELECT n AS customer, n % 10 AS region FROM generate_series(0, 99999) AS of (n);
ALTER TABLE customers ADD PRIMARY KEY (customer);
ANALYZE customers"""

MERGED: LiteralString = """\
CREATE TABLE merged AS SELECT * FROM {view} ORDER BY id;
ALTER TABLE merged ADD PRIMARY KEY (id);
CREATE INDEX merged_customer ON merged (customer)"""

TIMES = 3
ROWS, OPERATIONS = (5_000_000, 200_000), (100_000, 4_000)
"""Of main and of delta, in full and quick."""
WORKERS: LiteralString = "SELECT set_config('max_parallel_workers_per_gather', %s, false)"

MERGED_TABLE = "merged"
SHORT_S = 0.01
SHORT_TIMES = 20


class View(NamedTuple):
    """A way to write the view."""

    untouched: str
    latest: str

    @property
    def name(self) -> str:
        """What it is called in the database."""
        return "_".join(("live", *self))


VIEWS = [View(*both) for both in product(UNTOUCHED, LATEST)]


def make(connection: Connection) -> None:
    """Make every view, the table that they are compared with, and what is joined."""
    connection.execute(sql.SQL(CUSTOMERS))
    for view in VIEWS:
        connection.execute(
            sql.SQL("CREATE VIEW {name} AS {untouched} UNION ALL {latest}").format(
                name=sql.Identifier(view.name),
                untouched=_written(UNTOUCHED[view.untouched]),
                latest=_written(LATEST[view.latest]),
            )
        )
    connection.execute(sql.SQL(MERGED).format(view=sql.Identifier(VIEWS[0].name)))
    connection.execute("VACUUM ANALYZE merged")


def _written(statement: LiteralString) -> sql.Composed:
    main = sql.SQL(", ").join(sql.Identifier("main", name) for name in NAMES)
    return sql.SQL(statement).format(columns=COLUMNS, main_columns=main)


def read(connection: Connection, name: str, table: str) -> tuple[float, list[tuple[object, ...]]]:
    """Tell how long a read takes, and what it finds; a short one is done several times."""
    query = sql.SQL(READS[name]).format(table=sql.Identifier(table))
    with timed() as seconds:
        found = connection.execute(query).fetchall()
    if seconds() > SHORT_S:
        return seconds(), found
    with timed() as all_of_them:
        for _ in range(SHORT_TIMES):
            connection.execute(query).fetchall()
    return all_of_them() / SHORT_TIMES, found


def compared(
    connection: Connection, views: list[View], times: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Give for each read the median of the seconds that each view took, and the merged table."""
    tables = [MERGED_TABLE, "main", *(view.name for view in views)]
    for name in READS:
        seconds: dict[str, list[float]] = {table: [] for table in tables}
        answers = {}
        for _ in range(times):
            for table in tables:
                took, found = read(connection, name, table)
                seconds[table].append(took)
                answers[table] = sorted(
                    [round(float(v), 4) if isinstance(v, float) else str(v) for v in row]
                    for row in found
                )
        assert all(answers[view.name] == answers[MERGED_TABLE] for view in views), answers
        yield name, {table: statistics.median(several) for table, several in seconds.items()}


def main(*, quick: bool) -> None:
    """Print how many times as fast each read is on the merged table."""
    with (
        data_folder() as folder,
        postgres.server(folder) as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
    ):
        migrate_tables.make_main(connection, ROWS[quick])
        migrate_tables.fill_delta(connection, ROWS[quick], OPERATIONS[quick])
        make(connection)
        for index in ("", "CREATE INDEX ON delta (id)"):
            if index:
                connection.execute(index)
                connection.execute("ANALYZE delta")
            for workers in ("0", "2"):
                connection.execute(WORKERS, [workers])
                print(f"{index or 'no index'}, {workers} workers")
                for name, seconds in compared(connection, VIEWS, TIMES):
                    for table, took in seconds.items():
                        print(f"  {name:<13} {table:<30} {seconds[MERGED_TABLE] / took:8.3f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
