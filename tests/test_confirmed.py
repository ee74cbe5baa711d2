"""What the core keeps for warehouses, and when it forgets it, at its limits."""

import psycopg
import pytest
from psycopg import sql

from headrace import config
from headrace.errors import ConfigError
from migrations import warehouse


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
