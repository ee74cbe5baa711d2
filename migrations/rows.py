"""Rows: where one is - staged in a core, in delta or in main - and which batch brought it there.

Of an outlet with a key it is one row at most, or the deletion that took it away. Without a key they
are all that have some values, the newest first.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice
from typing import Any, LiteralString

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from psycopg import sql

from etl_procs.model import Outlet
from headrace.errors import Refused
from migrations import staged, tables
from migrations.tables import BATCH, DELETED, PARTITION
from migrations.warehouse import Connection, names

FIND: LiteralString = """\
SELECT {columns} FROM {table} WHERE {alike}
ORDER BY _batch DESC NULLS LAST, _partition DESC LIMIT %(_most)s"""


class Where(Enum):
    """Where a row is."""

    STAGED = "staged"
    DELTA = "delta"
    MAIN = "main"


@dataclass(frozen=True, slots=True)
class Row:
    """A row, or the deletion of one, which has only its key."""

    where: Where
    is_deleted: bool
    partition: int | None
    """None, and so the batch, of what was merged before main kept them."""
    batch: int | None
    values: Mapping[str, Any]


Wanted = Mapping[str, pa.Scalar]
"""What columns are to be equal to."""


def wanted(outlet: Outlet, texts: Mapping[str, str]) -> Wanted:
    """Read what columns of an outlet are to be equal to."""
    found = {}
    for name, text in texts.items():
        if name not in outlet.columns.names:
            raise Refused(
                f"{outlet.full_name} has no column {name}",
                hint=f"It has {', '.join(outlet.columns.names)}.",
            )
        type_ = outlet.columns.arrow.field(name).type
        try:
            found[name] = pa.scalar(text).cast(type_)
        except pa.ArrowInvalid as error:
            declared = next(c.sql for c in outlet.columns.columns if c.name == name)
            raise Refused(
                f"{text!r} is no {declared}, and {outlet.full_name}.{name} is one",
                hint="Write it as PostgreSQL shows it.",
            ) from error
    return found


def find(
    connection: Connection,
    outlet: Outlet,
    alike: Wanted,
    ranges: Sequence[staged.Range],
    most: int,
) -> list[Row]:
    """Find rows; `ranges` is what is staged after that which has arrived."""
    of_staged = _staged(outlet, alike, ranges, most)
    places = ((Where.DELTA, tables.delta(outlet)), (Where.MAIN, tables.main(outlet)))
    there = chain.from_iterable(
        _there(connection, outlet, where, table, alike, most) for where, table in places
    )
    return list(islice(chain(of_staged, there), 1 if outlet.key else most))


def _staged(
    outlet: Outlet, alike: Wanted, ranges: Sequence[staged.Range], most: int
) -> Iterable[Row]:
    """Find what is staged: the last of it."""
    found: deque[Row] = deque(maxlen=most)
    for table in staged.read(outlet, *ranges):
        some = table
        for name, value in alike.items():
            some = some.filter(pc.equal(some[name], value))
        last = some.slice(max(some.num_rows - most, 0))
        found.extend(_row(outlet, Where.STAGED, values) for values in last.to_pylist())
    return reversed(found)


def _there(
    connection: Connection,
    outlet: Outlet,
    where: Where,
    table: sa.Table,
    alike: Wanted,
    most: int,
) -> Iterator[Row]:
    same = sql.SQL("{} = {}")
    query = sql.SQL(FIND).format(
        columns=names(table.c.keys()),
        table=tables.identifier(table),
        alike=sql.SQL(" AND ").join(
            same.format(sql.Identifier(name), sql.Placeholder(name)) for name in alike
        ),
    )
    given = {name: value.as_py() for name, value in alike.items()}
    for values in connection.execute(query, {**given, "_most": most}):
        yield _row(outlet, where, dict(zip(table.c.keys(), values, strict=True)))


def _row(outlet: Outlet, where: Where, found: dict[str, Any]) -> Row:
    deleted = bool(found.get(DELETED))
    shown = outlet.key if deleted else outlet.columns.names
    values = {name: found[name] for name in shown}
    return Row(where, deleted, found[PARTITION], found[BATCH], values)
