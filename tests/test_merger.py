"""The merger: it goes on, whatever a merge has met."""

import pytest
import shop
from waiting import until

from headrace.crash import CrashPoints
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
