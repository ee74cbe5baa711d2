"""The merger goes on, whatever a merge has met; and a merge loses nothing that it takes."""

from pathlib import Path

import book
import pytest
import shop
from waiting import until

from headrace.crash import CrashPoints
from migrations import layout
from migrations.errors import NotAlike
from migrations.merge import Merging
from migrations.merger import Merger
from migrations.warehouse import DEFAULT, Connection, Warehouse


def test_a_merger_outlives_a_merge_that_fails_for_no_known_reason(
    store: shop.Shop, connection: Connection, warehouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, bugs = Merging.run, iter([KeyError("a bug")])

    def fails_once(*values: object) -> int:
        for bug in bugs:
            raise bug
        return run(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(Merging, "run", fails_once)
    store.sell((1, 1.0, "a"))
    store.push(connection)
    merger = Merger(
        Warehouse(DEFAULT, warehouse_url), [shop.flow], every_s=0.1, crash=CrashPoints()
    )
    merger.start()
    try:
        rows = "SELECT count(*) FROM shop_main.sales"
        until(lambda: connection.execute(rows).fetchall() == [(1,)], 30, lambda: "nothing merges")
    finally:
        assert merger.stop(10)


def test_a_trigger_on_main_that_drops_rows_loses_none(
    store: shop.Shop, connection: Connection
) -> None:
    """They would be gone from delta, and from live."""
    connection.execute(
        """CREATE FUNCTION dropped() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER t BEFORE INSERT ON shop_main.sales
        FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION dropped()"""
    )
    store.sell((1, 1.0, "a"), (2, 1.0, "b"))
    store.push(connection)
    with pytest.raises(NotAlike, match="2 rows were merged, and main took 1"):
        store.merge(connection)
    assert connection.execute("SELECT id FROM shop.sales ORDER BY id").fetchall() == [(1,), (2,)]


def test_a_trigger_on_main_that_drops_rows_of_a_key_loses_none(
    connection: Connection, tmp_path: Path
) -> None:
    layout.prepare(connection, shop.HERE, book.flow)
    made = book.Book(tmp_path / "book")
    made.commit([book.Entry("a", 1, 1.0), book.Entry("b", 1, 2.0), book.Entry("c", 1, 3.0)])
    made.commit([book.Entry("c", 1, 3.0, gone=True)])
    connection.execute(
        """CREATE FUNCTION dropped() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER t BEFORE INSERT ON book_main.latest
        FOR EACH ROW WHEN (NEW.account = 'b') EXECUTE FUNCTION dropped()"""
    )
    made.push(connection)
    with pytest.raises(NotAlike, match=r"book\.latest, 2 rows were merged, and main took 1"):
        made.merge(connection)
    made.check_main(connection)
    made.close()
