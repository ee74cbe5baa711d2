"""The shelf: a few staged rows are read once for the queries of one cut, and never for another."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flows import ended
from shop import Answering, Shop, ask, orders
from trial import Trial

from api import few
from etl_procs.model import Outlet
from migrations import staged, warehouse
from migrations.staged import Range

SUM = "SELECT sum(id) AS ids, count(*) AS n FROM sales"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batches after which something was read of a core."""
    read: list[int] = []
    real = staged.read

    def counting(outlet: Outlet, *ranges: Range) -> Iterator[Any]:
        read.extend(after for _, _, after, _ in ranges)
        yield from real(outlet, *ranges)

    monkeypatch.setattr(staged, "read", counting)
    return read


def test_rows_are_read_once_at_each_cut(
    island: Answering, store: Shop, connection: warehouse.Connection, reads: list[int]
) -> None:
    store.sell((1, 1.0, "a"), (2, 2.0, None))
    others = f"{SUM} WHERE price > 1", "SELECT max(note) AS most FROM sales", f"{SUM} WHERE id = 2"
    assert ask(island, SUM) == [(3, 2)]
    assert [ask(island, sql) for sql in others] == [[(2, 1)], [("a",)], [(2, 1)]]
    assert reads == [0]
    store.sell((3, 3.0, "c"))
    assert ask(island, SUM) == [(6, 3)]
    assert reads == [0, 0]
    store.push(connection)
    reads.clear()
    store.sell((4, 4.0, "d"))
    assert ask(island, SUM) == [(10, 4)]
    assert reads == [2]


def test_a_restored_core_gives_other_rows_by_the_same_numbers(
    island: Answering, store: Shop
) -> None:
    store.sell((1, 1.0, "a"))
    kept = store.path.with_name("kept")
    copy(store.path, kept)
    store.sell((2, 2.0, "lost"))
    assert ask(island, SUM) == [(3, 2)]
    Trial.close(store)
    copy(kept, store.path)
    store.clock.seconds += 1.0
    store.core = store.opened()
    store.give(ended(orders, [(40, 2.0, "anew")], batch=2, first=2))
    store.core.drain()
    assert island.query(SUM).as_of == {"shop": 2}
    assert ask(island, SUM) == [(41, 2)]


def copy(core: Path, to: Path) -> None:
    with closing(sqlite3.connect(core)) as opened, closing(sqlite3.connect(to)) as other:
        opened.backup(other)


def test_what_stays_is_bounded(
    island: Answering, store: Shop, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few, "SHELF_BYTES", 20)
    store.sell((1, -1.0, "a"), (2, 2.0, None))
    for _ in range(2):
        assert ask(island, SUM) == [(3, 2)], "more than there is room for"
    assert len(reads) == 2
    for _ in range(2):
        assert ask(island, "SELECT id FROM refunds") == [(1,)]
    assert len(reads) == 3
