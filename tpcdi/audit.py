"""The audit: every check of TPC-DI, put to a warehouse's live views at one moment."""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from psycopg.sql import SQL

from tpcdi.checks import PRELUDE, Checks, contents, messages, references
from tpcdi.snapshot import Connection, snapshot

CHECKS: Checks = messages.CHECKS | contents.CHECKS | references.CHECKS

NAMES = tuple(sorted(CHECKS))

RELATIONS: dict[object, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a check."""

    name: str
    wrong: str = ""
    """What was found where other was wanted; nothing if the check is OK."""

    @property
    def ok(self) -> bool:
        """Tell whether the warehouse passed it."""
        return not self.wrong


def run(connection: Connection, names: Iterable[str] = NAMES) -> list[Verdict]:
    """Put checks to a warehouse, all of them to the same moment."""
    with snapshot(connection):
        return [_verdict(connection, name) for name in names]


def last_batch(connection: Connection) -> int | None:
    """Tell the last batch of which there is anything; None before any load.

    It is that of a message: every batch has some, and 0 is what comes before the first.
    """
    with snapshot(connection):
        row = connection.execute("SELECT max(batchid) FROM dimessages").fetchone()
    return None if row is None or row[0] is None else int(str(row[0]))


def _verdict(connection: Connection, name: str) -> Verdict:
    rows = connection.execute(SQL(PRELUDE) + CHECKS[name]).fetchall()
    wrong = [
        f"{'' if batch is None else f'batch {batch}: '}{'nothing' if found is None else found}"
        + (
            ", and the files do not say what is wanted"
            if wanted is None
            else f" where {relation} {wanted} is wanted"
        )
        for batch, found, relation, wanted in rows
        if found is None or wanted is None or not RELATIONS[relation](found, wanted)
    ]
    return Verdict(name, "; ".join(wrong) if rows else "there is nothing to check")
