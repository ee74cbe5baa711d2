"""The layout: which schemas, tables and views a warehouse has for dataflows, made and checked.

It has a version, which the warehouse itself tells. An older one is brought over when somebody says
so: `headrace warehouse upgrade`. What is made is never taken away.
"""

from collections.abc import Iterator, Sequence
from typing import LiteralString

import sqlalchemy as sa
from psycopg import sql

from etl_procs.dataflow import Dataflow
from etl_procs.model import Outlet
from migrations import drift, ledger, roles, tables
from migrations.drift import TABLE_KINDS, VIEW_KINDS, Relation, relations
from migrations.errors import Drift, translated
from migrations.warehouse import Connection, Warehouse

VERSION = 4
"""1: one table for each outlet. 2: and a ledger of partitions. 3: and main, delta and live. 4: and
in main, the batch that brought each row."""

UNVERSIONED = 2
"""That of a warehouse, or one before it, which does not tell it."""

# Whoever prepares takes this lock first: two engines may start at once. "headrace" in ASCII.
PREPARE_LOCK: LiteralString = "SELECT pg_advisory_xact_lock(7522525836635890533)"

CREATE_SCHEMA: LiteralString = "CREATE SCHEMA IF NOT EXISTS {schema}"

FIND: LiteralString = "SELECT to_regclass('headrace.ledger'), to_regclass('headrace.layout')"
CREATE_LAYOUT: LiteralString = """\
CREATE TABLE IF NOT EXISTS headrace.layout AS SELECT %(version)s::integer AS version"""
READ_VERSION: LiteralString = "SELECT version FROM headrace.layout"
WRITE_VERSION: LiteralString = "UPDATE headrace.layout SET version = %(version)s"

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

UPGRADE = "Run `headrace warehouse upgrade`."


def prepare(connection: Connection, place: Warehouse, dataflow: Dataflow) -> None:
    """Make what a dataflow lacks in a warehouse, all or nothing, and refuse drift."""
    outlets = place.outlets(dataflow)
    with translated(f"preparing the tables of {dataflow.name}"), connection.transaction():
        connection.execute(PREPARE_LOCK)
        _require_encoding(connection, place)
        require_version(connection, place)
        ledger.create(connection)
        connection.execute(CREATE_LAYOUT, {"version": VERSION})
        for partition in range(dataflow.partitions):
            ledger.enter(connection, dataflow.name, partition, (o.name for o in outlets))
        for schema in tables.schemas(dataflow.name):
            connection.execute(sql.SQL(CREATE_SCHEMA).format(schema=sql.Identifier(schema)))
        # First the tables: a view over others than these could not be made.
        for kinds in (TABLE_KINDS, VIEW_KINDS):
            wanted = [relation for relation in drift.of(outlets) if relation.kinds is kinds]
            _make(connection, wanted)
            drift.refuse(place, dataflow, drift.find(connection, wanted))
        roles.let_island_read(connection, dataflow.name)


def require(connection: Connection, place: Warehouse, dataflow: Dataflow) -> None:
    """Refuse a layout that is not all as it is defined; change nothing."""
    wanted = drift.of(place.outlets(dataflow))
    with translated(f"checking the tables of {dataflow.name}"), connection.transaction():
        _require_encoding(connection, place)
        require_version(connection, place)
        found = drift.find(connection, wanted) or drift.find_more(connection, wanted)
        drift.refuse(place, dataflow, found)


def upgrade(connection: Connection, place: Warehouse, dataflow: Dataflow) -> list[str]:
    """Bring what is older, or lacks something, to what is defined; tell what was done."""
    outlets = place.outlets(dataflow)
    with translated(f"upgrading the tables of {dataflow.name}"), connection.transaction():
        connection.execute(PREPARE_LOCK)
        was = version(connection)
        done = _bring_over(connection, was)
        if was == UNVERSIONED:
            ledger.enroll(connection, dataflow.name, (outlet.name for outlet in outlets))
        for step in (_move_table, _add_columns, _add_indexes):
            done += [line for outlet in outlets for line in step(connection, outlet)]
    prepare(connection, place, dataflow)
    return done


def version(connection: Connection) -> int | None:
    """Tell the version of the layout that the warehouse has; None where there is nothing yet."""
    there, versioned = connection.execute(FIND).fetchall()[0]
    if versioned:
        ((found,),) = connection.execute(READ_VERSION).fetchall()
        assert isinstance(found, int)
        return found
    return UNVERSIONED if there else None


def require_version(connection: Connection, place: Warehouse) -> None:
    """Refuse a layout of another version than this one; that there is none yet is none."""
    found = version(connection)
    if found not in (None, VERSION):
        raise Drift(
            f"the layout of the warehouse {place.name} has version {found}, and this Headrace "
            f"works with {VERSION}",
            hint=UPGRADE if found is not None and found < VERSION else "Install a newer Headrace.",
        )


def _require_encoding(connection: Connection, place: Warehouse) -> None:
    """Refuse a database of another encoding: checksums are over the bytes of texts in UTF-8."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise Drift(
            f"the database of the warehouse {place.name} is in {encoding}, and not in UTF8",
            hint="Make another: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0.",
        )


def _make(connection: Connection, wanted: Sequence[Relation]) -> None:
    there = drift.look(connection, wanted)
    for relation in wanted:
        if relation.name not in there:
            for statement in relation.made_by:
                connection.execute(statement)


def _bring_over(connection: Connection, was: int | None) -> list[str]:
    """Bring the ledger of an older layout over."""
    if was is None or was >= VERSION:
        return []
    if was == UNVERSIONED:
        connection.execute(DIVIDE)
        connection.execute(EXTEND)
        ledger.create(connection)
        connection.execute(ALL_MERGED)
        connection.execute(CREATE_LAYOUT, {"version": VERSION})
    connection.execute(WRITE_VERSION, {"version": VERSION})
    return [f"the ledger has version {VERSION} now"]


def _move_table(connection: Connection, outlet: Outlet) -> Iterator[str]:
    """Make main of the one table that an outlet had in layouts before."""
    main, _, live = relations(outlet)
    there = drift.look(connection, (main, live))
    if main.name not in there and live.name in there and there[live.name].kind in TABLE_KINDS:
        schema, table = sql.Identifier(main.name.schema), sql.Identifier(*live.name)
        connection.execute(sql.SQL(CREATE_SCHEMA).format(schema=schema))
        connection.execute(sql.SQL(MOVE_TABLE).format(table=table, schema=schema))
        yield f"{live.of} is {main.of} now; {live.of} becomes the view over it"


def _add_columns(connection: Connection, outlet: Outlet) -> Iterator[str]:
    main, delta, live = relations(outlet)
    there = drift.look(connection, relations(outlet))
    for relation, table in ((main, tables.main(outlet)), (delta, tables.delta(outlet))):
        for name in relation.columns if relation.name in there else ():
            if name not in there[relation.name].columns:
                connection.execute(tables.added(table, name))
                yield f"{relation.of} has the column {name} now"
    # In the order of the columns that live shows: new ones come last. What it shows and is not
    # defined any more, PostgreSQL takes from no view, and the check will name it.
    view = there.get(live.name)
    if view and view.kind in VIEW_KINDS and live.columns.keys() > view.columns.keys():
        connection.execute(tables.view(outlet, [*view.columns]))


def _add_indexes(connection: Connection, outlet: Outlet) -> Iterator[str]:
    main, _, _ = relations(outlet)
    there = drift.look(connection, [main]).get(main.name)
    for index in tables.indexes(tables.main(outlet)) if there else ():
        name = tables.index_name(index)
        if there and name not in there.indexes:
            connection.execute(tables.written(sa.schema.CreateIndex(index)))
            yield f"{main.of} has the index {name} now"
