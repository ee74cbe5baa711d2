"""Aggregates: counts and sums over a window, each in a table of its own.

SQLite's own triggers keep them, as tuples come and go.
"""

import sqlite3

from etl_procs.model import Aggregate


def make(connection: sqlite3.Connection, aggregate: Aggregate) -> None:
    """Create an aggregate's table and what keeps it, and fill it from the window as it is."""
    name, window, by = aggregate.name, aggregate.window.name, aggregate.by
    counts = [value for value, summed in aggregate.values if not summed]
    # Somebody has to know when the last tuple of a key is gone.
    values = aggregate.values if counts else (*aggregate.values, ("_count", ""))
    count = counts[0] if counts else "_count"

    def share(row: str) -> list[str]:
        """Say what one row adds to each value."""
        return [f"coalesce({row}.{summed}, 0)" if summed else "1" for _, summed in values]

    def changed(row: str, sign: str) -> str:
        shares = zip(values, share(row), strict=True)
        return ", ".join(f"{value} = {value} {sign} {of_row}" for (value, _), of_row in shares)

    if by:
        keys = ", ".join(by)
        new = ", ".join([*(f"NEW.{key}" for key in by), *share("NEW")])
        is_old = " AND ".join(f"{key} = OLD.{key}" for key in by)
        more, grouped = [f"PRIMARY KEY ({keys})"], f" GROUP BY {keys}"
        add = f"INSERT INTO {name} VALUES ({new}) ON CONFLICT DO UPDATE SET {changed('NEW', '+')}"
        take = (
            f"UPDATE {name} SET {changed('OLD', '-')} WHERE {is_old}; "
            f"DELETE FROM {name} WHERE {is_old} AND {count} = 0"
        )
    else:  # one row, which is always there
        more, grouped = [], ""
        add = f"UPDATE {name} SET {changed('NEW', '+')}"
        take = f"UPDATE {name} SET {changed('OLD', '-')}"
    types = {column.name: column.type.value for column in aggregate.window.columns.columns}
    columns = [f"{key} {types[key]} NOT NULL" for key in by]
    columns += [f"{value} INTEGER NOT NULL" for value, _ in values]
    sums = [f"coalesce(sum({summed}), 0)" if summed else "count(*)" for _, summed in values]
    for statement in (
        f"CREATE TABLE {name} ({', '.join([*columns, *more])}) STRICT",
        f"INSERT INTO {name} SELECT {', '.join([*by, *sums])} FROM {window}{grouped}",
        f"CREATE TRIGGER headrace_add_{name} AFTER INSERT ON {window} BEGIN {add}; END",
        f"CREATE TRIGGER headrace_take_{name} AFTER DELETE ON {window} BEGIN {take}; END",
    ):
        connection.execute(statement)


def drop(connection: sqlite3.Connection, name: str) -> None:
    """Drop an aggregate, and what keeps it."""
    connection.execute(f"DROP TRIGGER IF EXISTS headrace_add_{name}")
    connection.execute(f"DROP TRIGGER IF EXISTS headrace_take_{name}")
    connection.execute(f"DROP TABLE IF EXISTS {name}")
