"""A dataflow whose two outlets, one with a key, have every type; and random rows for them."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from etl_procs import Batch, Dataflow, Transaction, by_punctuation

COLUMNS = """\
id INTEGER NOT NULL, n INTEGER, r REAL, t TEXT, b BOOLEAN, d DATE, m TIMESTAMP,
p NUMERIC(8,2), w NUMERIC(38,10)"""

flow = Dataflow("every")
numbers = flow.stream("numbers", "number INTEGER NOT NULL", batches=by_punctuation())
facts = flow.outlet("facts", COLUMNS)
states = flow.outlet("states", COLUMNS, key=["id"])

Row = tuple[Any, ...]
GIVEN: list[tuple[Row, bool | None]] = []
"""What the procedure gives for each number, and whether it is deleted from `states`; None: these
have nothing to do with it.
"""

TEXTS = ["", "a", "B", "b", "ä", "Z", "z%", "a_b", "\\", "it's", "\U0001f30a", "ab" * 20]
DAYS = [date(1999, 12, 31), date(2000, 1, 1), date(2026, 5, 6), date(1, 1, 1), date(9999, 12, 31)]
NOON = datetime(2026, 5, 6, 12)  # noqa: DTZ001 - a timestamp has no zone
REALS = [0.0, -0.0, 1.5, -2.25, 1e300, float("inf"), float("-inf"), 0.1]


@flow.procedure(takes=numbers, gives=[facts, states])
def give(tx: Transaction, batch: Batch) -> None:
    """Give each row to both outlets, or delete it from the second."""
    given = [GIVEN[int(row["number"] or 0)] for row in batch.rows()]
    names = facts.columns.names
    rows = [dict(zip(names, row, strict=True)) for row, _ in given]
    tx.emit(facts, pa.Table.from_pylist(rows, schema=facts.columns.arrow))
    for row, (_, is_deleted) in zip(rows, given, strict=True):
        if is_deleted is None:
            continue
        if is_deleted:
            tx.delete(states, [{"id": row["id"]}])
        else:
            tx.emit(states, [row])


def a_row(random: Random, ids: int) -> Row:
    def maybe(value: Any) -> Any:
        return None if random.random() < 0.15 else value

    return (
        random.randrange(ids),
        maybe(random.choice([random.randrange(-5, 6), 2**40, -(2**40)])),
        maybe(random.choice(REALS)),
        maybe(random.choice(TEXTS)),
        maybe(random.random() < 0.5),
        maybe(random.choice(DAYS)),
        maybe(NOON + timedelta(microseconds=random.choice([0, 1, 10**6, -(10**12)]))),
        maybe(Decimal(random.randrange(-(10**5), 10**5)).scaleb(-2)),
        maybe(Decimal(random.choice([0, 1, -1, 10**20, 12345])).scaleb(-10)),
    )


def batches(rows: Iterable[Sequence[tuple[Row, bool | None]]]) -> list[list[tuple[int]]]:
    """Have the procedure give these rows, batch by batch: what is to be run."""
    found = []
    for batch in rows:
        first = len(GIVEN)
        GIVEN.extend(batch)
        found.append([(number,) for number in range(first, len(GIVEN))])
    return found
