"""What tests share: a real PostgreSQL, with a database of its own for each test."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import shop
from psycopg import sql

from headrace import config
from headrace.local import ports, postgres
from headrace.local.alone import Alone
from headrace.local.home import Home


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of this test run's own."""
    home = Home(tmp_path_factory.mktemp("postgres") / "home")
    loaded = config.load({"home": str(home.root)}, environment={}).config
    home.create()
    port = ports.choose([ports.Wanted("postgres", "127.0.0.1")], home.ports)["postgres"]
    with Alone(postgres.part(loaded, port), loaded):
        yield postgres.url(loaded, port)


@pytest.fixture
def warehouse_url(postgres_url: str) -> Iterator[str]:
    """An empty database."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield postgres_url.rsplit("/", 1)[0] + "/" + name
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[shop.Shop]:
    """A core with the dataflow of `shop`, in its own data folder."""
    made = shop.Shop(tmp_path)
    yield made
    made.close()
