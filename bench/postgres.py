"""A peer PostgreSQL: the one that Headrace starts, reached over a unix socket.

Everything is as PostgreSQL comes, but for what an experiment sets and tells, and a commit is on the
disk when it returns.
"""

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench.part import LOOPBACK, running, settings
from headrace.local import ports, postgres
from headrace.local.home import Home

Connection = psycopg.Connection[tuple[Any, ...]]

DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")


@contextmanager
def server(folder: Path, *more: str) -> Iterator[str]:
    """Run a PostgreSQL with its data in `folder`, and give what psycopg connects with.

    What is set besides may make it faster, and not less durable.
    """
    loaded = settings(folder / "postgres")
    home = Home(loaded.home)
    port = ports.choose([ports.Wanted("postgres", LOOPBACK)], home.ports)["postgres"]
    # A socket's path may be 107 bytes long; only the socket lies here, and no data.
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as socket:
        part = postgres.part(loaded, port)
        given = (f"unix_socket_directories={socket}", *more, *DURABLE)
        argv = (*part.argv, *(word for setting in given for word in ("-c", setting)))
        with running(dataclasses.replace(part, argv=argv), home):
            yield make_conninfo(postgres.url(loaded, port), host=socket)


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
