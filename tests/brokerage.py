"""Tables of TPC-DI's warehouse, as they are declared, with random rows that refer to each other."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

from etl_procs import Batch, Dataflow, Transaction, by_punctuation
from etl_procs.columns import Column, Type
from tpcdi import schema

NAMES = ("taxrate", "dimbroker", "dimsecurity", "dimtrade", "factcashbalances", "factholdings")

flow = Dataflow("brokerage")
numbers = flow.stream("numbers", "number INTEGER NOT NULL", batches=by_punctuation())
OUTLETS = {
    name: flow.outlet(name, schema.TABLES[name].columns, key=schema.TABLES[name].key)
    for name in NAMES
}

Row = dict[str, Any]


class Change(NamedTuple):
    """A row of a table; or that there is none of its key any more."""

    table: str
    row: Row
    is_deleted: bool


GIVEN: list[Change] = []
"""What the procedure gives for each number."""

VALUES: dict[Type, Sequence[Any]] = {
    Type.INTEGER: [*range(12), *range(12), 2**40, -3],
    Type.TEXT: ["", "a", "ab", "B", "it's", "z%", "\\", "ä"],
    Type.BOOLEAN: [True, False],
    Type.DATE: [date(2000, 1, 1) + timedelta(days=n) for n in range(4)] + [date(9999, 12, 31)],
    Type.TIMESTAMP: [datetime(2026, 5, 6, 12)],  # noqa: DTZ001 - a timestamp has no zone
}


@flow.procedure(takes=numbers, gives=list(OUTLETS.values()))
def give(tx: Transaction, batch: Batch) -> None:
    """Give each row to its table, or delete it there."""
    for number in batch.rows():
        table, row, is_deleted = GIVEN[int(number["number"] or 0)]
        outlet = OUTLETS[table]
        if is_deleted:
            tx.delete(outlet, [{name: row[name] for name in outlet.key}])
        else:
            tx.emit(outlet, [row])


def a_change(random: Random) -> Change:
    """Change one table or another."""
    table = random.choice(NAMES)
    outlet = OUTLETS[table]
    row = {c.name: _value(random, c, is_key=c.name in outlet.key) for c in outlet.columns.columns}
    return Change(table, row, bool(outlet.key) and random.random() < 0.2)


def _value(random: Random, column: Column, *, is_key: bool) -> Any:
    if not column.required and random.random() < 0.15:
        return None
    if is_key:
        return random.randrange(12)
    if column.type is Type.NUMERIC:
        units = random.choice([0, 1, -1, 250, 12345, 10**column.precision - 1])
        return Decimal(units).scaleb(-column.scale)
    return random.choice(VALUES[column.type])


def batches(parts: Iterable[Sequence[Change]]) -> list[list[tuple[int]]]:
    """Have the procedure give these changes, batch by batch: what is to be run."""
    found = []
    for part in parts:
        first = len(GIVEN)
        GIVEN.extend(part)
        found.append([(number,) for number in range(first, len(GIVEN))])
    return found


def held(changes: Sequence[Change]) -> dict[str, list[tuple[Any, ...]]]:
    """Give the rows that each table has after these changes."""
    rows: dict[str, dict[Any, tuple[Any, ...]]] = {name: {} for name in NAMES}
    for nth, (table, row, is_deleted) in enumerate(changes):
        key = tuple(row[name] for name in OUTLETS[table].key) or nth
        if is_deleted:
            rows[table].pop(key, None)
        else:
            rows[table][key] = tuple(row.values())
    return {table: list(of.values()) for table, of in rows.items()}
