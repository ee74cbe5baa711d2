"""A big table with a key and an index, and a delta of operations on it, made in PostgreSQL itself.

The columns are those of the trades; the values are random, and the same at each run.
"""

from typing import LiteralString

from psycopg import sql

from bench.ingest_data import NAMES
from bench.postgres import Connection

OPERATIONS_A_BATCH = 100
SEED: LiteralString = "SELECT setseed(0.2026)"
KEYS_OF_TEN = 4
"""So many keys of main do ten operations take turns in; of new keys it is three."""

# 14 columns of about the widths of ingest_data.trades.
VALUES: LiteralString = """\
floor(random() * 100000)::bigint AS customer,
floor(random() * 100000)::bigint AS account,
substr(upper(md5(floor(random() * 500)::text)), 1, 6) AS symbol,
(ARRAY['TMB', 'TMS', 'TLB'])[1 + floor(random() * 3)] AS kind,
(ARRAY['CMPT', 'PNDG', 'SBMT'])[1 + floor(random() * 3)] AS status,
to_char(timestamp '2026-01-01' + n % 40000 * interval '1 minute', 'YYYY-MM-DD"T"HH24:MI:SS')
  AS placed,
100 * floor(1 + random() * 99)::bigint AS quantity,
round(random() * 99999)::float8 / 100 AS bid,
round(random() * 99999)::float8 / 100 AS price,
round(random() * 999)::float8 / 100 AS fee,
round(random() * 999)::float8 / 100 AS commission,
round(random() * 999)::float8 / 100 AS tax,
(ARRAY['Ada Ito', 'Kurt Lem', 'Emmy Roe', 'Alan Ito'])[1 + floor(random() * 4)] AS broker"""

FILL_MAIN: LiteralString = """\
INSERT INTO {main} ({columns}) SELECT n AS id, {values} FROM generate_series(1, {rows}) AS of (n)"""

# Of ten operations four bring new keys, four replace, two delete. In a batch a key is there once.
FILL_DELTA: LiteralString = """\
INSERT INTO {delta} ({columns}, _batch, _partition, _deleted)
SELECT DISTINCT ON (_batch, id)
  id, customer, account, symbol, kind, status, placed, quantity, bid, price, fee, commission, tax,
  broker, _batch, (id % 2)::integer AS _partition, _deleted
FROM (
  SELECT
    CASE
      WHEN dice < 4 OR dice >= 9.5 THEN {rows} + 1 + floor(random() * {operations} * 3 / 10)::bigint
      ELSE 1 + abs(hashint8extended(floor(random() * {operations} * {keys} / 10)::bigint, 0)
        % {rows})
    END AS id,
    {values}, n / {per_batch} AS _batch, dice >= 8 AS _deleted
  FROM (SELECT n, 10 * random() AS dice FROM generate_series(1, {operations}) AS of (n)) AS diced
) AS made
ORDER BY _batch, id"""

FILL_APPENDED: LiteralString = """\
INSERT INTO {delta} ({columns}, _batch, _partition)
SELECT {rows} + n AS id, {values}, n / {per_batch}, n % 2
FROM generate_series(1, {operations}) AS of (n)"""

COLUMNS = sql.SQL(", ").join(map(sql.Identifier, NAMES))


def fill_main(connection: Connection, rows: int, main: sql.Identifier) -> None:
    """Bring so many rows into main."""
    connection.execute(SEED)
    connection.execute(
        sql.SQL(FILL_MAIN).format(
            main=main, columns=COLUMNS, values=sql.SQL(VALUES), rows=sql.Literal(rows)
        )
    )


def fill_delta(
    connection: Connection,
    rows: int,
    operations: int,
    *,
    delta: sql.Identifier,
    statement: LiteralString = FILL_DELTA,
) -> None:
    """Bring so many operations into delta, which is analyzed afterwards."""
    connection.execute(SEED)
    connection.execute(
        sql.SQL(statement).format(
            delta=delta,
            columns=COLUMNS,
            values=sql.SQL(VALUES),
            rows=sql.Literal(rows),
            operations=sql.Literal(operations),
            keys=sql.Literal(KEYS_OF_TEN),
            per_batch=sql.Literal(OPERATIONS_A_BATCH),
        )
    )
    connection.execute(sql.SQL("VACUUM ANALYZE {}").format(delta))
