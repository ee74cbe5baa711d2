"""Twins: two names of one database, which must not be: it has one ledger.

A host has many spellings - a name, an address, a socket - so the server itself is asked, as any
role may: a lock that is held under one name is seen under the other, if they are one database. A
number that a database is given at its birth would be that of its copies, too.
"""

import secrets
from collections.abc import Iterable
from typing import LiteralString

from headrace.errors import HeadraceError
from migrations import warehouse
from migrations.errors import translated
from migrations.warehouse import Connection, Warehouse

HOLD: LiteralString = "SELECT pg_advisory_xact_lock(%(key)s)"
IS_FREE: LiteralString = "SELECT pg_try_advisory_xact_lock(%(key)s)"


def refuse(connection: Connection, place: Warehouse, others: Iterable[Warehouse]) -> None:
    """Refuse a warehouse whose database another one of these is, too.

    One that is away is passed over: whoever connects to it later, compares it.
    """
    key = secrets.randbits(62)
    with translated(f"comparing {place.name} with others"), connection.transaction():
        connection.execute(HOLD, {"key": key})
        for other in others:
            if other.name != place.name and _sees(other, key):
                raise warehouse.one_database(place.name, other.name)


def _sees(other: Warehouse, key: int) -> bool:
    try:
        with (
            translated(f"looking at {other.name}"),
            other.connect(application="headrace twins") as connection,
        ):
            ((is_free,),) = connection.execute(IS_FREE, {"key": key}).fetchall()
    except HeadraceError:
        return False
    return not is_free
