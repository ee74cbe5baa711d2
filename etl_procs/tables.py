"""Tables: making what users declare, and bringing over what was declared otherwise before.

Columns added at the end of a table come by themselves. Any other change needs a migration that
the user has written, or it is refused: state is never dropped or changed in silence. Windows are
as private as they are recent: one that is declared otherwise must have another name.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from etl_procs import windows
from etl_procs.access import Access, Rights
from etl_procs.dataflow import Dataflow
from etl_procs.errors import CoreError, DefinitionChanged, is_of_the_machine
from etl_procs.execution import Plan, alone
from etl_procs.model import Step, Table, Window
from headrace.errors import DefinitionError

HELD = "SELECT name, kind, definition FROM headrace_tables"

NOTE = """\
INSERT INTO headrace_tables VALUES (:name, :kind, :definition)
ON CONFLICT DO UPDATE SET definition = excluded.definition"""

DROP_NOTE = "DELETE FROM headrace_tables WHERE name = :name"

WORD = re.compile(r"'(?:[^']|'')*'|--.*|[^\s'-]+|-")
"""What stays together however SQL is laid out: a text, a comment, or what white space divides."""


class Held(NamedTuple):
    """What the core holds under a name, or is to hold."""

    kind: str
    definition: str


def make(connection: sqlite3.Connection, plan: Plan) -> list[str]:
    """Make what is missing and change what may be changed; say what was done."""
    found = connection.execute(HELD)
    held = {name: Held(kind, words(text)) for name, kind, text in found}
    declared = {name: Held(kind, words(text)) for name, kind, text in _declared(plan.dataflow)}
    for name in declared.keys() & held.keys():
        if declared[name].kind != held[name].kind:
            raise DefinitionChanged(
                f"{name} is declared as a {declared[name].kind}, and the core holds a "
                f"{held[name].kind} of that name",
                hint="Give the new one another name.",
            )
    new = {name: thing for name, thing in declared.items() if held.get(name) != thing}
    said = _make_tables(connection, plan, held, new)
    _make_windows(connection, plan, held, new)
    said += _make_aggregates(connection, plan, held, new)
    for name, thing in new.items():
        connection.execute(NOTE, {"name": name, **thing._asdict()})
    return said


def _declared(dataflow: Dataflow) -> Iterator[tuple[str, str, str]]:
    for table in dataflow.tables.values():
        yield table.name, "table", table.columns.sql
    for window in dataflow.windows.values():
        yield window.name, "window", f"({window.columns.sql}) {window.extent}"
    for aggregate in dataflow.aggregates.values():
        values = f"{_of(aggregate.window)}{aggregate.by}: {aggregate.values}"
        yield aggregate.name, "aggregate", values


def _of(window: Window) -> str:
    """Say how the definition of each aggregate over a window begins."""
    return f"of {window.name} by "


def _make_tables(
    connection: sqlite3.Connection, plan: Plan, held: Mapping[str, Held], new: Mapping[str, Held]
) -> list[str]:
    said = []
    tables = [table for name, table in plan.dataflow.tables.items() if name in new]
    for table in tables:
        if table.name in held:
            said.append(_change(connection, plan, table, held[table.name].definition))
        else:
            _create(connection, table)
            places = ", ".join("?" for _ in table.columns.columns)
            insert = f"INSERT INTO {table.name} VALUES ({places})"  # noqa: S608 - a checked name
            connection.executemany(insert, table.rows)
    # References are not enforced while tables are brought over: see Store.without_references.
    found = connection.execute("PRAGMA foreign_key_check").fetchone() if tables else None
    if found is not None:
        table, _, parent, _ = found
        raise DefinitionChanged(
            f"table {table} has rows that refer to rows of {parent} which are not there",
            hint="Mend the first rows, or the migration, of one of them.",
        )
    return said


def _change(connection: sqlite3.Connection, plan: Plan, table: Table, held: str) -> str:
    for step in plan.dataflow.steps:
        if step.table is table and words(step.was.sql) == held:
            _migrate(connection, plan, step)
            return f"table {table.name} was brought over by {step.body.__name__}"
    added = _added(connection, table, held)
    if added:
        return f"table {table.name} has new columns: {added}"
    raise DefinitionChanged(
        f"table {table.name} is declared with other columns than the core holds: "
        f"{_differing(table.columns.sql, held)}. It is declared as ({table.columns.sql}), and the "
        f"core holds ({held})",
        hint="New columns at the end that may be NULL or have a default come by themselves. For "
        f"anything else write how its rows come over: @{plan.dataflow.name}.migration("
        f'{table.name}, was="{held}") on a function of tx, which reads {table.name}_was and writes '
        f"{table.name}; or declare it as it was, or give the new one another name. If the dataflow "
        "is not yours, go on with its former version, or begin anew in another data folder (--home "
        "DIR).",
    )


def _differing(declared: str, held: str) -> str:
    """Say which columns are not the same in two definitions of a table."""
    new, old = _columns(declared), _columns(held)
    found = {
        "new": new.keys() - old.keys(),
        "gone": old.keys() - new.keys(),
        "changed": {name for name in new.keys() & old.keys() if new[name] != old[name]},
    }
    said = [f"{kind}: {', '.join(sorted(names))}" for kind, names in found.items() if names]
    if not said and list(new) != list(old):
        said = ["the same in another order"]
    return "; ".join(said) or "the same, with other constraints"


def _columns(definition: str) -> dict[str, tuple[object, ...]]:
    """Give the columns that a definition makes: type, NOT NULL, default, place in the key."""
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.execute(f"CREATE TABLE one ({definition}) STRICT")
        found = empty.execute("PRAGMA table_info(one)").fetchall()
    return {name: tuple(of) for _, name, *of in found}


def _added(connection: sqlite3.Connection, table: Table, held: str) -> str:
    """Add the columns that are declared after those that a table has; nothing if more is new."""
    added = words(table.columns.sql).removeprefix(held).strip()
    if not added.startswith(","):
        return ""
    column = ""
    for piece in added[1:].split(","):
        column += piece
        try:
            connection.execute(f"ALTER TABLE {table.name} ADD COLUMN {column}")
        except sqlite3.Error as error:
            if is_of_the_machine(error):
                raise
            column += ","  # it was one within a column: a column that is whole goes in
        else:
            column = ""
    return "" if column else added[1:].strip()


def _migrate(connection: sqlite3.Connection, plan: Plan, step: Step) -> None:
    table, was = step.table, f"{step.table.name}_was"
    connection.execute("PRAGMA legacy_alter_table = ON")  # references stay with the table's name
    connection.execute(f"ALTER TABLE {table.name} RENAME TO {was}")
    connection.execute("PRAGMA legacy_alter_table = OFF")
    _create(connection, table)
    rights = Rights(
        f"migration {plan.dataflow.name}.{step.body.__name__}",
        frozenset({table.name, was}),
        frozenset({table.name}),
    )
    access = Access(connection)  # no other connection sees what this transaction has made
    try:
        with alone(plan, connection.cursor(), access, None, rights, step.body) as tx:
            step.body(tx)
    except CoreError as error:
        hint = "The table is as it was. Mend the migration, and start again."
        what = f"{error.what}. {error.hint}".removesuffix(". ")
        raise DefinitionError(what, hint=hint) from error
    connection.execute(f"DROP TABLE {was}")


def _create(connection: sqlite3.Connection, table: Table) -> None:
    connection.execute(f"CREATE TABLE {table.name} ({table.columns.sql}) STRICT")


def _make_windows(
    connection: sqlite3.Connection, plan: Plan, held: Mapping[str, Held], new: Mapping[str, Held]
) -> None:
    for name, window in plan.windows.items():
        if name in held and name in new:
            raise DefinitionChanged(
                f"window {name} is declared as {new[name].definition}, and the core holds "
                f"{held[name].definition}",
                hint="Declare it as it was, or give the new one another name: it begins empty.",
            )
        if name in new:
            window.make(connection)


def _make_aggregates(
    connection: sqlite3.Connection, plan: Plan, held: Mapping[str, Held], new: Mapping[str, Held]
) -> list[str]:
    said = []
    declared = plan.dataflow.aggregates
    ours = tuple(map(_of, plan.dataflow.windows.values()))
    for name, (kind, definition) in held.items():
        if kind == "aggregate" and definition.startswith(ours) and name not in declared:
            windows.drop_aggregate(connection, name)
            connection.execute(DROP_NOTE, {"name": name})
            said.append(f"aggregate {name} is gone")
    for name in [name for name in declared if name in new]:
        if name in held:
            windows.drop_aggregate(connection, name)
            said.append(f"aggregate {name} was computed anew from its window")
        windows.make_aggregate(connection, declared[name])
    return said


def words(sql: str) -> str:
    """Write SQL without comments, and with its white space evened out but for that of texts."""
    return " ".join(word for word in WORD.findall(sql) if not word.startswith("--"))
