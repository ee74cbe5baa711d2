"""A peer PostgreSQL: the one that Headrace starts, reached over a unix socket.

Everything is as PostgreSQL comes, but for what an experiment sets and tells, and a commit is on the
disk when it returns.
"""

import dataclasses
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headrace import config
from headrace.errors import HeadraceError
from headrace.local import child, ports, postgres
from headrace.local.home import Home

Connection = psycopg.Connection[tuple[Any, ...]]

LOOPBACK = "127.0.0.1"
READY_TIMEOUT_S = 60.0
PROBE_EVERY_S = 0.05
DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")


@contextmanager
def server(folder: Path, *settings: str) -> Iterator[str]:
    """Run a PostgreSQL with its data in `folder`, and give what psycopg connects with.

    What is set besides may make it faster, and not less durable.
    """
    loaded = config.load({"home": str(folder / "postgres")}, environment={}).config
    home = Home(loaded.home)
    home.create()
    port = ports.choose([ports.Wanted("postgres", LOOPBACK)], home.ports)["postgres"]
    # A socket's path may be 107 bytes long; only the socket lies here, and no data.
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as socket:
        part = postgres.part(loaded, port)
        given = (f"unix_socket_directories={socket}", *settings, *DURABLE)
        more = [word for setting in given for word in ("-c", setting)]
        running = child.spawn(
            dataclasses.replace(part, argv=(*part.argv, *more)), home, lambda _child: None
        )
        assert running is not None, "the folder is new"
        try:
            password = urlsplit(postgres.url(loaded, port)).password
            conninfo = psycopg.conninfo.make_conninfo(
                host=socket,
                port=port,
                user=postgres.USER,
                password=password,
                dbname=postgres.DATABASE,
            )
            _wait_until_ready(conninfo, running)
            yield conninfo
        finally:
            running.stop()
            if not running.dead.wait(part.stop_timeout_s):
                running.kill()
                running.dead.wait()


def connect(conninfo: str) -> Connection:
    """Connect so that every statement with parameters is prepared when it is first run."""
    connection = psycopg.connect(conninfo, autocommit=True)
    connection.prepare_threshold = 0
    connection.prepared_max = None
    return connection


def url(conninfo: str) -> str:
    """Give the address that all clients of the peers take, over TCP."""
    at = conninfo_to_dict(conninfo)
    return "postgresql://{user}:{password}@127.0.0.1:{port}/{dbname}".format_map(at)


def _wait_until_ready(conninfo: str, running: child.Child) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            psycopg.connect(conninfo).close()
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline or running.dead.wait(PROBE_EVERY_S):
                raise HeadraceError(
                    f"the peer PostgreSQL did not become ready: {error}",
                    hint="Look whether another one runs in the folder .bench.",
                ) from error
        else:
            return
