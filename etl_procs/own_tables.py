"""The core's own tables: made, given the columns that they have had only for some time, or refused
where another version of Headrace has made them otherwise.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib.resources import files

from headrace.errors import Refused

ADDED = {
    "headrace_core": "published INTEGER NOT NULL DEFAULT 0",
    "headrace_epochs": "recent TEXT NOT NULL DEFAULT ''",
}
"""The columns that come to an older core by themselves."""

NAMES = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'headrace\\_%' ESCAPE '\\'"
)
COLUMNS = "SELECT name FROM pragma_table_info(:table)"


def make(connection: sqlite3.Connection) -> None:
    """Make those that are missing, and the columns that they lack."""
    for table, column in ADDED.items():
        names = _columns(connection, table)
        if names and column.partition(" ")[0] not in names:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    check(connection)
    for statement in _statements():
        connection.execute(statement)


def check(connection: sqlite3.Connection) -> None:
    """Refuse a core whose own tables have other columns than this version knows."""
    other = "; ".join(_others(connection))
    if other:
        raise Refused(
            f"another version of Headrace has made this core: {other}",
            hint="Go on with the version that has made it; or begin anew in another data folder "
            "(--home DIR), or in this one after `headrace reset`, which deletes all that is in it.",
        )


def _others(connection: sqlite3.Connection) -> Iterator[str]:
    """Say of each table what columns it lacks, and which nobody knows."""
    for table, wanted in _declared().items():
        held = _columns(connection, table)
        by_itself = ADDED.get(table, "").partition(" ")[0]
        lacking = [name for name in wanted if name not in (*held, by_itself)]
        unknown = [name for name in held if name not in wanted]
        if held and (lacking or unknown):
            said = [f"has no {', '.join(lacking)}"] if lacking else []
            said += [f"has {', '.join(unknown)}"] if unknown else []
            yield f"{table} {' and '.join(said)}"


def _declared() -> Mapping[str, list[str]]:
    with closing(sqlite3.connect(":memory:")) as empty:
        for statement in _statements():
            empty.execute(statement)
        return {table: _columns(empty, table) for (table,) in empty.execute(NAMES).fetchall()}


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [name for (name,) in connection.execute(COLUMNS, {"table": table})]


def _statements() -> list[str]:
    schema = files("etl_procs").joinpath("schema.sql").read_text(encoding="utf-8")
    return schema.split(";\n")
