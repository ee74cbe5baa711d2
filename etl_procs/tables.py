"""Tables: making what users declare, and bringing over what was declared otherwise before.

Columns added at the end of a table come by themselves. Any other change needs a migration that
the user has written, or it is refused: state is never dropped or changed in silence. Windows are
as private as they are recent: one that is declared otherwise must have another name.
"""

import inspect
import sqlite3
from collections.abc import Mapping

from etl_procs.access import Access, Rights
from etl_procs.columns import Columns
from etl_procs.errors import (
    OF_THE_MACHINE,
    DefinitionChanged,
    ProcedureFailed,
    line_of,
    primary_code,
)
from etl_procs.execution import Execution, Plan
from etl_procs.model import Aggregate, Step, Table, Window
from etl_procs.transaction import Transaction
from etl_procs.windows import drop_aggregate, make_aggregate
from headrace.errors import HeadraceError

KINDS = "SELECT name, kind FROM headrace_tables"

HELD = "SELECT name, definition FROM headrace_tables WHERE kind = :kind"

NOTE = """\
INSERT INTO headrace_tables VALUES (:name, :kind, :definition)
ON CONFLICT DO UPDATE SET definition = excluded.definition"""

DROP_NOTE = "DELETE FROM headrace_tables WHERE name = :name"

DESCRIBE = """\
SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo('t') ORDER BY cid"""

INDEXES = "SELECT count(*), sum(\"unique\") FROM pragma_index_list('t')"

KEYS = 'SELECT "table", "from", "to", on_delete FROM pragma_foreign_key_list(\'t\')'


def make(connection: sqlite3.Connection, plan: Plan) -> list[str]:
    """Make what is missing and change what may be changed; say what was done."""
    dataflow = plan.dataflow
    said = []
    _check_kinds(connection, plan)
    held = _held(connection, "table")
    for table in dataflow.tables.values():
        definition = held.get(table.name)
        if definition is None:
            _create(connection, table, with_rows=True)
        elif _words(definition) != _words(table.columns.sql):
            said.append(_change(connection, plan, table, definition))
    if said or dataflow.tables.keys() - held.keys():
        _check_references(connection)
    said += _make_windows(connection, plan)
    return said


def _check_kinds(connection: sqlite3.Connection, plan: Plan) -> None:
    dataflow = plan.dataflow
    kinds = {
        **dict.fromkeys(dataflow.tables, "table"),
        **dict.fromkeys(dataflow.windows, "window"),
        **dict.fromkeys(dataflow.aggregates, "aggregate"),
    }
    for name, held in connection.execute(KINDS):
        if kinds.get(name, held) != held:
            raise DefinitionChanged(
                f"{name} is declared as a {kinds[name]}, and the core holds a {held} of that name",
                hint="Give the new one another name.",
            )


def _check_references(connection: sqlite3.Connection) -> None:
    # They are not enforced while tables are brought over: see Core.prepare.
    found = connection.execute("PRAGMA foreign_key_check").fetchone()
    if found is not None:
        table, _, parent, _ = found
        raise DefinitionChanged(
            f"table {table} has rows that refer to rows of {parent} which are not there",
            hint="Mend the first rows, or the migration, of one of them.",
        )


def _change(connection: sqlite3.Connection, plan: Plan, table: Table, held: str) -> str:
    for step in plan.dataflow.steps:
        if step.table is table and _words(step.was.sql) == _words(held):
            _migrate(connection, plan, step)
            return f"table {table.name} was brought over by {step.body.__name__}"
    added = additions(held, table.columns)
    if added and _are_added(connection, table, added):
        return f"table {table.name} has new columns: {', '.join(added)}"
    raise DefinitionChanged(
        f"table {table.name} is declared as ({table.columns.sql}), and the core holds ({held})",
        hint="New columns at the end that may be NULL or have a default come by themselves. For "
        f'anything else write how its rows come over: @{plan.dataflow.name}.migration(..., was="'
        f'{held}"), a body(tx) that reads {table.name}_was and writes {table.name}; or declare '
        "it as it was, or give the new one another name.",
    )


def _are_added(connection: sqlite3.Connection, table: Table, added: list[str]) -> bool:
    """Add columns; False if the rows that are there would not have them."""
    try:
        for column in added:
            connection.execute(f"ALTER TABLE {table.name} ADD COLUMN {column}")
    except sqlite3.Error as error:
        if primary_code(error) in OF_THE_MACHINE:
            raise
        return False
    _note(connection, table.name, "table", table.columns.sql)
    return True


def additions(held: str, columns: Columns) -> list[str]:
    """Give the columns that a table has more than before, if that is all that is new in it."""
    old, new = held.strip().rstrip(","), columns.sql.strip()
    if not _words(new).startswith(_words(old)):
        return []
    # What stands after the old text, cut at the commas that are in no brackets.
    rest, depth, part = [], 0, ""
    for character in _words(new)[len(_words(old)) :].lstrip(" ,"):
        if part.count("'") % 2 == 0:
            depth += (character == "(") - (character == ")")
        if character == "," and not depth and part.count("'") % 2 == 0:
            rest.append(part.strip())
            part = ""
        else:
            part += character
    rest.append(part.strip())
    with sqlite3.connect(":memory:") as changed, sqlite3.connect(":memory:") as made:
        try:
            changed.execute(f"CREATE TABLE t ({old}) STRICT")
            for column in rest:
                changed.execute(f"ALTER TABLE t ADD COLUMN {column}")
            made.execute(f"CREATE TABLE t ({new}) STRICT")
        except sqlite3.Error:
            return []
        same = all(
            changed.execute(query).fetchall() == made.execute(query).fetchall()
            for query in (DESCRIBE, INDEXES, KEYS)
        )
    return rest if same else []


def _migrate(connection: sqlite3.Connection, plan: Plan, step: Step) -> None:
    table, was = step.table, f"{step.table.name}_was"
    connection.execute("PRAGMA legacy_alter_table = ON")  # references stay with the table's name
    connection.execute(f"ALTER TABLE {table.name} RENAME TO {was}")
    connection.execute("PRAGMA legacy_alter_table = OFF")
    _create(connection, table, with_rows=False)
    rights = Rights(
        f"migration {plan.dataflow.name}.{step.body.__name__}",
        frozenset({table.name, was}),
        frozenset({table.name}),
    )
    access = Access(connection)  # no other connection sees what this transaction has made
    execution = Execution(plan, connection, access, 0, {})
    try:
        step.body(Transaction(connection, access, rights, execution))
        if execution.broken is not None:
            raise execution.broken
    except HeadraceError:
        raise
    except Exception as error:
        if isinstance(error, sqlite3.Error) and primary_code(error) in OF_THE_MACHINE:
            raise
        file = inspect.unwrap(step.body).__code__.co_filename
        raise ProcedureFailed(
            f"{rights.of} failed: {type(error).__name__}: {error} ({line_of(file, error)})",
            hint="The table is as it was. Mend the migration, and start again.",
        ) from error
    finally:
        execution.end()
    connection.execute(f"DROP TABLE {was}")


def _make_windows(connection: sqlite3.Connection, plan: Plan) -> list[str]:
    said = []
    held = _held(connection, "window")
    aggregates = _held(connection, "aggregate")
    for window in plan.dataflow.windows.values():
        definition, before = _of_window(window), held.get(window.name)
        if before is None:
            plan.windows[window.name].make(connection)
            _note(connection, window.name, "window", definition)
        elif _words(before) != _words(definition):
            raise DefinitionChanged(
                f"window {window.name} is declared as {definition}, and the core holds {before}",
                hint="Declare it as it was, or give the new one another name: it begins empty.",
            )
    for name, definition in aggregates.items():
        of_ours = any(definition.startswith(f"of {w} by ") for w in plan.dataflow.windows)
        if of_ours and name not in plan.dataflow.aggregates:
            drop_aggregate(connection, name)
            connection.execute(DROP_NOTE, {"name": name})
            said.append(f"aggregate {name} is gone")
    for aggregate in plan.dataflow.aggregates.values():
        definition, before = _of_aggregate(aggregate), aggregates.get(aggregate.name)
        if before == definition:
            continue
        if before is not None:
            drop_aggregate(connection, aggregate.name)
            said.append(f"aggregate {aggregate.name} was computed anew from its window")
        make_aggregate(connection, aggregate)
        _note(connection, aggregate.name, "aggregate", definition)
    return said


def _create(connection: sqlite3.Connection, table: Table, *, with_rows: bool) -> None:
    connection.execute(f"CREATE TABLE {table.name} ({table.columns.sql}) STRICT")
    if with_rows:
        places = ", ".join("?" for _ in table.columns.columns)
        insert = f"INSERT INTO {table.name} VALUES ({places})"  # noqa: S608 - a checked name
        connection.executemany(insert, table.rows)
    _note(connection, table.name, "table", table.columns.sql)


def _held(connection: sqlite3.Connection, kind: str) -> Mapping[str, str]:
    return dict(connection.execute(HELD, {"kind": kind}))


def _note(connection: sqlite3.Connection, name: str, kind: str, definition: str) -> None:
    connection.execute(NOTE, {"name": name, "kind": kind, "definition": definition})


def _of_window(window: Window) -> str:
    return f"({_words(window.columns.sql)}) {window.extent}"


def _of_aggregate(aggregate: Aggregate) -> str:
    return f"of {aggregate.window.name} by {aggregate.by}: {aggregate.values}"


def _words(sql: str) -> str:
    return " ".join(sql.split())
