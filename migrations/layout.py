"""The layout: which schemas, tables and views a warehouse has for dataflows, made and checked.

It has a version, which the warehouse itself tells. An older one is brought over when somebody says
so: `headrace warehouse upgrade`. What is made is never taken away.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import LiteralString

import sqlalchemy as sa
from psycopg import sql

from etl_procs.dataflow import Dataflow
from etl_procs.model import Outlet
from migrations import ledger, tables
from migrations.errors import Drift, translated
from migrations.warehouse import Connection, Warehouse

VERSION = 3
"""1: one table for each outlet. 2: and a ledger of partitions. 3: and main, delta and live."""

# Whoever prepares takes this lock first: two engines may start at once. "headrace" in ASCII.
PREPARE_LOCK: LiteralString = "SELECT pg_advisory_xact_lock(7522525836635890533)"

CREATE_SCHEMA: LiteralString = "CREATE SCHEMA IF NOT EXISTS {schema}"

FIND: LiteralString = "SELECT to_regclass('headrace.ledger'), to_regclass('headrace.layout')"
CREATE_LAYOUT: LiteralString = """\
CREATE TABLE IF NOT EXISTS headrace.layout AS SELECT %(version)s::integer AS version"""
READ_VERSION: LiteralString = "SELECT version FROM headrace.layout"

# Dataflows had no partitions at first: all that a row of theirs says is of partition 0.
DIVIDE: LiteralString = """\
DO $$ BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = 'headrace.ledger'::regclass AND attname = 'partition'
    ) THEN
        ALTER TABLE headrace.ledger ADD COLUMN partition integer NOT NULL DEFAULT 0;
        ALTER TABLE headrace.ledger
            DROP CONSTRAINT ledger_pkey, ADD PRIMARY KEY (dataflow, partition);
    END IF;
END $$"""

# Whatever had arrived was in main.
EXTEND: LiteralString = """\
ALTER TABLE headrace.ledger
    ADD COLUMN tables jsonb NOT NULL DEFAULT '{}', ADD COLUMN migration text NOT NULL DEFAULT ''"""
ALL_MERGED: LiteralString = """\
INSERT INTO headrace.merged SELECT dataflow, partition, batch, moved_at FROM headrace.ledger"""
MOVE_TABLE: LiteralString = "ALTER TABLE {table} SET SCHEMA {schema}"

RELATION: LiteralString = """\
SELECT relkind FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %(schema)s AND relname = %(table)s"""

# It, or a part of it: its rows would not outlive a crash of the server, and nobody keeps others.
UNLOGGED: LiteralString = """\
SELECT EXISTS (
    SELECT FROM pg_class AS part
    WHERE relpersistence = 'u' AND (
        part.oid = whole.oid OR part.oid IN (SELECT relid FROM pg_partition_tree(whole.oid))))
FROM pg_class AS whole JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %(schema)s AND relname = %(table)s"""

COLUMNS: LiteralString = """\
SELECT attname, format_type(atttypid, atttypmod), attnotnull
FROM pg_attribute
JOIN pg_class ON pg_class.oid = attrelid
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %(schema)s AND relname = %(table)s AND attnum > 0 AND NOT attisdropped
ORDER BY attnum"""

# A merge matches by the key, and a deferrable one lets two rows of it be there for a while.
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
TABLE_KINDS, VIEW_KINDS = frozenset("rp"), frozenset("v")
UPGRADE = "Run `headrace warehouse upgrade`."

Columns = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or a view that is to be there."""

    schema: str
    name: str
    kinds: frozenset[str]
    columns: Columns
    made_by: tuple[sql.SQL, ...]
    key: str | None = None

    @property
    def place(self) -> dict[str, str]:
        """Name it, as parameters of a statement."""
        return {"schema": self.schema, "table": self.name}

    @property
    def of(self) -> str:
        """Name it, for people."""
        return f"{self.schema}.{self.name}"


def prepare(connection: Connection, place: Warehouse, dataflow: Dataflow) -> None:
    """Make what a dataflow lacks in a warehouse, all or nothing, and refuse drift."""
    outlets = place.outlets(dataflow)
    with translated(f"preparing the tables of {dataflow.name}"), connection.transaction():
        connection.execute(PREPARE_LOCK)
        require_version(connection)
        ledger.create(connection)
        connection.execute(CREATE_LAYOUT, {"version": VERSION})
        for partition in range(dataflow.partitions):
            ledger.enter(connection, dataflow.name, partition, (o.name for o in outlets))
        for schema in tables.schemas(dataflow.name):
            connection.execute(sql.SQL(CREATE_SCHEMA).format(schema=sql.Identifier(schema)))
        # First the tables: a view over others than these could not be made.
        for kinds in (TABLE_KINDS, VIEW_KINDS):
            wanted = [r for outlet in outlets for r in relations(outlet) if r.kinds is kinds]
            _make(connection, wanted)
            _refuse(dataflow, [line for each in wanted for line in _drift(connection, each)])


def require(connection: Connection, place: Warehouse, dataflow: Dataflow) -> None:
    """Refuse a layout that is not as it is defined; change nothing."""
    with translated(f"checking the tables of {dataflow.name}"), connection.transaction():
        require_version(connection)
        _refuse(dataflow, drift(connection, place.outlets(dataflow)))


def _refuse(dataflow: Dataflow, found: Collection[str]) -> None:
    """Refuse what is not as the dataflow defines it, naming each column."""
    if found:
        raise Drift(
            f"the warehouse's tables are not those of dataflow {dataflow.name}: "
            + "; ".join(found),
            hint="Change the outlet's definition, or ALTER the table in the warehouse, so that "
            "both say the same; what is only missing, `headrace warehouse upgrade` adds. Nothing "
            "was moved.",
        )


def drift(connection: Connection, outlets: Iterable[Outlet]) -> list[str]:
    """Tell what is not as it is defined, each column by its name."""
    return [
        line
        for outlet in outlets
        for relation in relations(outlet)
        for line in _drift(connection, relation)
    ]


def upgrade(connection: Connection, place: Warehouse, dataflow: Dataflow) -> list[str]:
    """Bring what is older, or lacks something, to what is defined; tell what was done."""
    outlets = place.outlets(dataflow)
    with translated(f"upgrading the tables of {dataflow.name}"), connection.transaction():
        connection.execute(PREPARE_LOCK)
        done = _bring_over(connection)
        if done:
            ledger.enroll(connection, dataflow.name, (outlet.name for outlet in outlets))
        done += _move_tables(connection, outlets)
        done += _add_columns(connection, outlets)
        done += _add_indexes(connection, outlets)
    prepare(connection, place, dataflow)
    return done


def relations(outlet: Outlet) -> tuple[Relation, Relation, Relation]:
    """Describe the tables of an outlet, and the view over them."""
    main, delta = tables.main(outlet), tables.delta(outlet)
    of_main, of_delta = tables.created(main), tables.created(delta)
    key = f"PRIMARY KEY ({', '.join(sorted(outlet.key))})" if outlet.key else NO_KEY
    shown = {name: _type(main.c[name]) for name in outlet.columns.names}
    live = Relation(outlet.dataflow, outlet.name, VIEW_KINDS, shown, (tables.view(outlet),))
    return (
        Relation(str(main.schema), main.name, TABLE_KINDS, _defined(main), of_main, key),
        Relation(str(delta.schema), delta.name, TABLE_KINDS, _defined(delta), of_delta),
        live,
    )


def version(connection: Connection) -> int | None:
    """Tell the version of the layout that the warehouse has; None where there is nothing yet."""
    there, versioned = connection.execute(FIND).fetchall()[0]
    if versioned:
        ((found,),) = connection.execute(READ_VERSION).fetchall()
        assert isinstance(found, int)
        return found
    return VERSION - 1 if there else None


def require_version(connection: Connection) -> None:
    """Refuse a layout of another version than this one; that there is none yet is none."""
    found = version(connection)
    if found not in (None, VERSION):
        raise Drift(
            f"the warehouse's layout has version {found}, and this Headrace works with {VERSION}",
            hint=UPGRADE if found is not None and found < VERSION else "Install a newer Headrace.",
        )


def _make(connection: Connection, wanted: Iterable[Relation]) -> None:
    for relation in wanted:
        if _kind(connection, relation) is None:
            for statement in relation.made_by:
                connection.execute(statement)


def _kind(connection: Connection, relation: Relation) -> str | None:
    row = connection.execute(RELATION, relation.place).fetchone()
    return None if row is None else str(row[0])


def _there(connection: Connection, relation: Relation) -> dict[str, str]:
    """Describe the columns that a relation has."""
    rows = connection.execute(COLUMNS, relation.place)
    return {str(name): _described(str(type_), bool(required)) for name, type_, required in rows}


def _drift(connection: Connection, relation: Relation) -> Iterator[str]:
    kind = _kind(connection, relation)
    if kind is None or kind not in relation.kinds:
        what = "table" if relation.kinds is TABLE_KINDS else "view"
        yield f"{relation.of} is not a {what} there"
        return
    ((is_unlogged,),) = connection.execute(UNLOGGED, relation.place).fetchall()
    if is_unlogged:
        yield f"{relation.of} is UNLOGGED, and a crash would empty it: ALTER TABLE ... SET LOGGED"
    defined, there = relation.columns, _there(connection, relation)
    for name in [*defined, *(name for name in there if name not in defined)]:
        if defined.get(name) != there.get(name):
            yield (
                f"{relation.of}.{name} is defined as {defined.get(name, 'nothing')} "
                f"and is {there.get(name, 'not there')}"
            )
    if relation.key is not None:
        row = connection.execute(KEY, relation.place).fetchone()
        key = str(row[0]) if row else NO_KEY
        if key != relation.key:
            yield f"{relation.of} is defined with {relation.key} and is there with {key}"


def _bring_over(connection: Connection) -> list[str]:
    """Bring the ledger of an older layout over."""
    found = version(connection)
    if found is None or found >= VERSION:
        return []
    connection.execute(DIVIDE)
    connection.execute(EXTEND)
    ledger.create(connection)
    connection.execute(ALL_MERGED)
    connection.execute(CREATE_LAYOUT, {"version": VERSION})
    return [f"the ledger has version {VERSION} now"]


def _move_tables(connection: Connection, outlets: Iterable[Outlet]) -> list[str]:
    """Make main of the one table that an outlet had in layouts before."""
    done = []
    for outlet in outlets:
        main, _, live = relations(outlet)
        if _kind(connection, live) in TABLE_KINDS and _kind(connection, main) is None:
            schema, table = sql.Identifier(main.schema), sql.Identifier(live.schema, live.name)
            connection.execute(sql.SQL(CREATE_SCHEMA).format(schema=schema))
            connection.execute(sql.SQL(MOVE_TABLE).format(table=table, schema=schema))
            done.append(f"{live.of} is {main.of} now; {live.of} becomes the view over it")
    return done


def _add_columns(connection: Connection, outlets: Iterable[Outlet]) -> list[str]:
    done: list[str] = []
    for outlet in outlets:
        main, delta, live = relations(outlet)
        for relation, table in ((main, tables.main(outlet)), (delta, tables.delta(outlet))):
            there = _there(connection, relation)
            for name in relation.columns:
                if there and name not in there:
                    connection.execute(tables.added(table, name))
                    done.append(f"{relation.of} has the column {name} now")
        # In the order of the columns that live shows: new ones come last. What it shows and is not
        # defined any more, PostgreSQL takes from no view, and the check will name it.
        shown = [*_there(connection, live)] if _kind(connection, live) in VIEW_KINDS else []
        if shown and live.columns.keys() > set(shown):
            connection.execute(tables.view(outlet, shown))
    return done


def _add_indexes(connection: Connection, outlets: Iterable[Outlet]) -> list[str]:
    done = []
    for outlet in outlets:
        main, _, _ = relations(outlet)
        for index in tables.indexes(tables.main(outlet)) if _kind(connection, main) else ():
            name = tables.DIALECT.identifier_preparer.format_index(index).strip('"')
            place = {"schema": main.schema, "table": name}
            if connection.execute(RELATION, place).fetchone() is None:
                connection.execute(tables.written(sa.schema.CreateIndex(index)))
                done.append(f"{main.of} has the index {name} now")
    return done


def _defined(table: sa.Table) -> dict[str, str]:
    return {column.name: _described(_type(column), not column.nullable) for column in table.c}


def _type(column: "sa.Column[object]") -> str:
    return column.type.compile(dialect=tables.DIALECT).lower().replace(", ", ",")


def _described(type_: str, required: bool) -> str:
    return f"{type_} NOT NULL" if required else type_
