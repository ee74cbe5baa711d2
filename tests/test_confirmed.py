"""What the core keeps for warehouses, and when it forgets it, at its limits."""

from pathlib import Path

import psycopg
import pytest
import shop
from psycopg import sql
from trial import Trial

from etl_procs.core import core_path
from etl_procs.errors import StagedFull
from etl_procs.origin import Origin
from headrace import config
from headrace.crash import CrashPoints
from headrace.errors import ConfigError
from migrations import warehouse
from migrations.push import Push

KEEP_S = 1


def test_what_was_kept_for_long_enough_makes_room_though_nothing_is_pushed(
    tmp_path: Path, connection: warehouse.Connection
) -> None:
    """While the core waits for room it stages nothing, so no push comes and tells it of any."""
    made = Trial(core_path(tmp_path), shop.flow, staged_mb_max=1, keep_s=KEEP_S)
    origin = Origin(made.path, config.Core(keep_s=KEEP_S), CrashPoints(), made.clock)
    try:
        origin.feed("shop", [shop.HERE.name])
        made.run(shop.orders, [(1, 1.0, "x" * 2**21)])
        Push(0, shop.HERE, origin, CrashPoints(), 1_000).run(connection, shop.flow)
        with pytest.raises(StagedFull):
            made.run(shop.orders, [(2, 1.0, "y")])
        made.clock.seconds += KEEP_S + 1
        with pytest.raises(StagedFull):
            made.core.drain()
        assert [committed.through for committed in made.core.drain()] == [2]
    finally:
        origin.close()
        made.close()


def test_a_warehouse_says_that_it_has_what_is_on_its_disk(warehouse_url: str) -> None:
    """The core forgets what a commit has told; a server may be set to tell it before."""
    with psycopg.connect(warehouse_url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(name))
    with warehouse.connect(warehouse_url, application="test") as connection:
        assert connection.execute("SHOW synchronous_commit").fetchall() == [("on",)]
    url = f"{warehouse_url}?options=-csynchronous_commit%3Dremote_apply"
    with warehouse.connect(url, application="test") as connection:
        assert connection.execute("SHOW synchronous_commit").fetchall() == [("remote_apply",)]


def test_one_database_has_one_name() -> None:
    """It has one ledger: what one of two has moved, the other would never move."""
    settings = {
        "warehouse.url": "postgresql://a/a",
        "warehouse.tables": "shop.sales",
        "warehouses.b.url": "postgresql://a/a",
        "warehouses.b.tables": "shop.refunds",
    }
    with pytest.raises(ConfigError, match="the warehouses default and b are one database"):
        warehouse.warehouses(config.load(settings, environment={}).config)
