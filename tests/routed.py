"""A shop whose outlets go to several warehouses, one refund a batch."""

from collections.abc import Iterator
from contextlib import contextmanager

import shop

from headrace.crash import CrashPoints
from migrations import audit, layout, warehouse
from migrations.push import Push
from migrations.warehouse import Connection, Warehouse

ALL, SALES = ("*",), ("shop.sales",)


@contextmanager
def connected(place: Warehouse) -> Iterator[Connection]:
    with warehouse.connect(place.url, application="test") as connection:
        layout.prepare(connection, place, shop.flow)
        yield connection


def push(store: shop.Shop, place: Warehouse, connection: Connection) -> int:
    return Push(0, place, store.origin, CrashPoints(), 1_000).run(connection, shop.flow).through


def ids(connection: Connection, table: str) -> list[object]:
    found = connection.execute(f"SELECT id FROM shop.{table} ORDER BY id".encode())
    return [number for (number,) in found]


def check(store: shop.Shop, place: Warehouse, connection: Connection, through: int) -> None:
    """Hold a warehouse against what was sold, one refund a batch."""
    assert ids(connection, "sales") == list(range(1, through + 1))
    if place.tables == ALL:
        assert ids(connection, "refunds") == list(range(1, through + 1))
    with store.reader.snapshot() as snapshot:
        assert audit.findings(connection, place, shop.flow, [snapshot]) == []


def sell(store: shop.Shop, *numbers: int) -> None:
    store.sell_all([[(number, -1.0, None)] for number in numbers])
