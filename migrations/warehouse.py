"""The warehouse's side: connections, and one table for each outlet in the dataflow's schema.

A key of an outlet is the primary key of its table.
"""

from collections.abc import Iterable, Mapping
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from etl_procs.columns import Column, Type
from etl_procs.dataflow import Dataflow
from etl_procs.model import Outlet
from headrace.errors import ConfigError
from migrations import ledger
from migrations.errors import Drift, translated

Connection = psycopg.Connection[tuple[object, ...]]

TYPES: dict[Type, LiteralString] = {
    Type.INTEGER: "bigint",
    Type.REAL: "double precision",
    Type.TEXT: "text",
}

# Whoever prepares takes this lock first: CREATE ... IF NOT EXISTS alone fails when two engines
# start at once. The number is "headrace" in ASCII.
PREPARE_LOCK: LiteralString = "SELECT pg_advisory_xact_lock(7522525836635890533)"

CREATE_SCHEMA: LiteralString = "CREATE SCHEMA IF NOT EXISTS {schema}"
CREATE_TABLE: LiteralString = "CREATE TABLE IF NOT EXISTS {table} ({columns})"

ADD_COLUMN: LiteralString = "ALTER TABLE {table} ADD COLUMN {column};"

COLUMNS: LiteralString = """\
SELECT attname, format_type(atttypid, atttypmod), attnotnull
FROM pg_attribute
JOIN pg_class ON pg_class.oid = attrelid AND relkind IN ('r', 'p')
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %(schema)s AND relname = %(table)s AND attnum > 0 AND NOT attisdropped
ORDER BY attnum"""

# A push names the key in ON CONFLICT, which takes no deferrable one.
KEY: LiteralString = """\
SELECT 'PRIMARY KEY (' || string_agg(attname, ', ' ORDER BY attname) || ')'
    || CASE WHEN condeferrable THEN ' DEFERRABLE' ELSE '' END
FROM pg_constraint
JOIN pg_class ON pg_class.oid = conrelid
JOIN pg_namespace ON pg_namespace.oid = relnamespace
JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
WHERE nspname = %(schema)s AND relname = %(table)s AND contype = 'p'
GROUP BY condeferrable"""

NO_KEY = "no PRIMARY KEY"

# A server that vanished without a word is noticed within half a minute, not within two hours.
CONNECT_TIMEOUT_S = 5
KEEPALIVES_IDLE_S = 10
KEEPALIVES_INTERVAL_S = 5
TCP_USER_TIMEOUT_MS = 30_000

# Somebody's forgotten transaction must not hold up a push, or the engine's end, for ever.
LOCK_TIMEOUT_MS = 10_000
SET_LOCK_TIMEOUT: LiteralString = "SELECT set_config('lock_timeout', %(timeout_ms)s, false)"


def connect(url: str, *, application: str) -> Connection:
    """Connect in autocommit mode: what must hold together says so by a transaction block."""
    _check_url(url)
    with translated("connecting to the warehouse"):
        connection = psycopg.connect(
            url,
            autocommit=True,
            application_name=application,
            client_encoding="utf8",
            connect_timeout=CONNECT_TIMEOUT_S,
            keepalives_idle=KEEPALIVES_IDLE_S,
            keepalives_interval=KEEPALIVES_INTERVAL_S,
            tcp_user_timeout=TCP_USER_TIMEOUT_MS,
        )
        connection.execute(SET_LOCK_TIMEOUT, {"timeout_ms": str(LOCK_TIMEOUT_MS)})
        return connection


def _check_url(url: str) -> None:
    """Refuse what is no connection URL. What PostgreSQL's library says quotes it: never pass it on.

    A password with a raw @ or / spills over into what is taken for the host and the port.
    """
    try:
        parts = conninfo_to_dict(url)
        spilt = any("@" in host[1:] for host in str(parts.get("host") or "").split(","))
        ports = str(parts.get("port") or "").split(",")
        understood = not spilt and all(port.isdecimal() or not port for port in ports)
    except (psycopg.Error, UnicodeError):
        understood = False
    if not understood:
        raise ConfigError(
            "warehouse.url is not a connection URL that PostgreSQL's library understands",
            hint="Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %XX in place of what "
            "is special in a URL (%40 for @, %2F for /, %25 for %).",
        )


def table_of(outlet: Outlet) -> sql.Identifier:
    """Name an outlet's table."""
    return sql.Identifier(outlet.dataflow, outlet.name)


def names(columns: Iterable[str]) -> sql.Composed:
    """Name columns, as in a list of them."""
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def prepare(connection: Connection, dataflow: Dataflow) -> None:
    """Make what a dataflow lacks in the warehouse, all or nothing, and refuse drift."""
    with translated(f"preparing the tables of {dataflow.name}"), connection.transaction():
        connection.execute(PREPARE_LOCK)
        ledger.create(connection)
        for partition in range(dataflow.partitions):
            ledger.enter(connection, dataflow.name, partition)
        connection.execute(sql.SQL(CREATE_SCHEMA).format(schema=sql.Identifier(dataflow.name)))
        for outlet in dataflow.outlets.values():
            connection.execute(_create_table(outlet))
        check(connection, dataflow)


def check(connection: Connection, dataflow: Dataflow) -> None:
    """Refuse tables that are not as the dataflow defines them, naming each column."""
    found, missing = [], []
    for outlet in dataflow.outlets.values():
        there = _there(connection, outlet)
        found += _drift(connection, outlet, there)
        missing += [
            sql.SQL(ADD_COLUMN)
            .format(table=table_of(outlet), column=_column(column))
            .as_string(connection)
            for column in outlet.columns.columns
            if there and column.name not in there
        ]
    if found:
        raise Drift(
            f"the warehouse's tables are not those of dataflow {dataflow.name}: "
            + "; ".join(found),
            hint="Change the outlet's definition, or ALTER the table in the warehouse, so that "
            f"both say the same. {' '.join([*missing, 'Nothing was moved.'])}",
        )


def _column(column: Column) -> sql.Composed:
    return sql.SQL("{name} {type}{required}").format(
        name=sql.Identifier(column.name),
        type=sql.SQL(TYPES[column.type]),
        required=sql.SQL(" NOT NULL" if column.required else ""),
    )


def _create_table(outlet: Outlet) -> sql.Composed:
    lines = [_column(column) for column in outlet.columns.columns]
    if outlet.key:
        lines.append(sql.SQL("PRIMARY KEY ({key})").format(key=names(outlet.key)))
    return sql.SQL(CREATE_TABLE).format(table=table_of(outlet), columns=sql.SQL(", ").join(lines))


def _there(connection: Connection, outlet: Outlet) -> dict[str, str]:
    """Describe the columns that an outlet's table has."""
    rows = connection.execute(COLUMNS, _place(outlet))
    return {str(name): _described(str(type_), bool(required)) for name, type_, required in rows}


def _place(outlet: Outlet) -> dict[str, str]:
    return {"schema": outlet.dataflow, "table": outlet.name}


def _drift(connection: Connection, outlet: Outlet, there: Mapping[str, str]) -> list[str]:
    defined = {c.name: _described(TYPES[c.type], c.required) for c in outlet.columns.columns}
    of = outlet.full_name
    if not there:
        return [f"{of} is not a table there"]
    lines = [
        f"{of}.{name} is defined as {defined.get(name, 'nothing')} "
        f"and is {there.get(name, 'not there')}"
        for name in [*defined, *(name for name in there if name not in defined)]
        if defined.get(name) != there.get(name)
    ]
    row = connection.execute(KEY, _place(outlet)).fetchone()
    key_there = str(row[0]) if row else NO_KEY
    key = f"PRIMARY KEY ({', '.join(sorted(outlet.key))})" if outlet.key else NO_KEY
    if key != key_there:
        lines.append(f"{of} is defined with {key} and is there with {key_there}")
    return lines


def _described(type_: str, required: bool) -> str:
    return f"{type_} NOT NULL" if required else type_
