"""A book that several warehouses take, and what each of them holds, against a dictionary."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import book
import psycopg
from book import Book, Entry
from psycopg import sql

from etl_procs.origin import Origin
from headrace import config
from headrace.crash import CrashPoints
from migrations import audit, layout, ledger, warehouse
from migrations.errors import Gap
from migrations.merge import Merging
from migrations.push import Push, Pushed
from migrations.rebuild import Filling, Rebuild
from migrations.warehouse import Connection, Warehouse

FLOW = book.flow
CALM = CrashPoints()


class WallClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class Library(Book):
    """A book, and the warehouses that it feeds."""

    def __init__(self, home: Path, *places: Warehouse, **settings: Any) -> None:
        super().__init__(home)
        self.places: list[Warehouse] = []
        self.wall = WallClock()
        self.limits = self.limits_of(**settings)
        self.origin.close()
        self.origin = self.an_origin()
        self.feeds(*places)

    def an_origin(self, crash: CrashPoints = CALM) -> Origin:
        """Open the core as one who moves what it has staged."""
        return Origin(self.path, self.limits, crash, self.wall)

    def reopened(self, **settings: Any) -> None:
        """Close the core, and open it anew with other settings."""
        self.settings |= settings
        self.limits = self.limits_of(**settings)
        self.reopen()
        self.origin = self.an_origin()

    @staticmethod
    def limits_of(**settings: Any) -> config.Core:
        """Give the settings of a core."""
        return config.Core(**settings)

    def feeds(self, *places: Warehouse) -> list[str]:
        """Keep batches for these warehouses, and for no others."""
        self.places = list(places)
        return self.origin.feed(FLOW.name, [place.name for place in places])

    def write(self, count: int = 1) -> None:
        """Commit batches of which each changes every outlet, and undoes some of the one before."""
        for _ in range(count):
            number = len(self.batches)
            name, before = f"a{number % 7}", f"a{(number - 1) % 7}"
            self.commit(
                [
                    Entry(name, number % 3, number + 0.5, f"of {number}"),
                    Entry(before, (number - 1) % 3, number - 0.5, gone=number % 2 == 1),
                    Entry("always", 0, float(number)),
                ]
            )

    def push_to(self, place: Warehouse, crash: CrashPoints = CALM, most: int = 1_000) -> Pushed:
        """Push once, to a warehouse that has its tables."""
        with connected(place) as connection:
            return Push(0, place, self.origin, crash, most).run(connection, FLOW)

    def push_or_begin(self, place: Warehouse, crash: CrashPoints = CALM) -> None:
        """Push all as the engine does: a warehouse to which nothing has come is filled first."""
        with connected(place) as connection:
            push = Push(0, place, self.origin, crash, 2)
            more = True
            while more:
                try:
                    more = push.run(connection, FLOW).more
                except Gap:
                    Filling(place, self.places, FLOW, [self.origin]).begin(connection, 0, crash)

    def merge_in(self, place: Warehouse, crash: CrashPoints = CALM) -> None:
        """Merge what has arrived in a warehouse."""
        with connected(place) as connection:
            Merging(place, crash).run(connection, FLOW)

    def rebuild_in(self, place: Warehouse, source: Warehouse, crash: CrashPoints = CALM) -> None:
        """Replace what a warehouse has by what another one has."""
        with connected(place) as connection:
            Rebuild(place, source, [self.origin], crash).run(connection, FLOW)

    def check(self, place: Warehouse) -> tuple[int, int]:
        """Make sure that a warehouse has what its ledger says; tell that: arrived, and merged."""
        with connected(place) as connection:
            arrived = ledger.read(connection, [FLOW.name])[FLOW.name, 0]
            merged = ledger.merged(connection, [FLOW.name])[FLOW.name, 0]
            assert live(connection) == book.contents(self.batches[: arrived.batch])
            assert main(connection) == book.contents(self.batches[:merged])
            assert arrived.rows == sum(map(book.operations, self.batches[: arrived.batch]))
        return arrived.batch, merged

    def audit(self, place: Warehouse) -> list[str]:
        """Have a warehouse audited; give what is wrong."""
        with connected(place) as connection, self.reader.snapshot() as snapshot:
            return audit.findings(connection, place, FLOW, [snapshot])

    def check_all(self) -> None:
        """Make sure that nothing is missing anywhere once all is pushed and merged."""
        last = len(self.batches)
        for place in self.places:
            self.check(place)
            self.push_to(place)
            assert self.check(place)[0] == last
            assert self.audit(place) == []
            self.merge_in(place)
            assert self.check(place) == (last, last)

    def arrived(self, place: Warehouse) -> int:
        """Tell through which batch a warehouse has it."""
        with connected(place) as connection:
            return ledger.read(connection, [FLOW.name])[FLOW.name, 0].batch

    def has_tables(self, place: Warehouse) -> bool:
        """Tell whether a warehouse has been prepared."""
        with connected(place) as connection:
            return layout.version(connection) == layout.VERSION

    def forgotten(self) -> int:
        """Tell through which batch the core has forgotten what it staged."""
        with self.reader.snapshot() as snapshot:
            return snapshot.forgotten(FLOW.name)

    def confirmed(self) -> dict[str, int]:
        """Tell what the core takes each warehouse to have."""
        with self.reader.snapshot() as snapshot:
            return snapshot.confirmed(FLOW.name)


def live(connection: Connection) -> book.Contents:
    """Give all rows of live."""
    return book.in_order(connection.execute(book.CONTENTS).fetchall())


def main(connection: Connection) -> book.Contents:
    """Give all rows of main."""
    of_main = book.CONTENTS.replace("FROM book.", "FROM book_main.")
    return book.in_order(connection.execute(of_main.encode()).fetchall())


@contextmanager
def connected(place: Warehouse) -> Iterator[Connection]:
    """Connect as a coordinator does."""
    with warehouse.connect(place.url, application="headrace test") as connection:
        yield connection


@contextmanager
def databases(server: str, *names: str) -> Iterator[list[Warehouse]]:
    """Make warehouses of these names, each a database that is prepared."""
    made = [Warehouse(name, new_database(server)) for name in names]
    try:
        for place in made:
            with connected(place) as connection:
                layout.prepare(connection, place, FLOW)
        yield made
    finally:
        for place in made:
            drop(server, database(place.url))


def new_database(server: str, template: str = "template1") -> str:
    """Make a database, as a copy of another one; give its URL."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        connection.execute(copy.format(sql.Identifier(name), sql.Identifier(template)))
    return server.rsplit("/", 1)[0] + "/" + name


def drop(server: str, name: str) -> None:
    """Drop a database, whoever is connected to it."""
    with psycopg.connect(server, autocommit=True) as connection:
        gone = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        connection.execute(gone.format(sql.Identifier(name)))


def database(url: str) -> str:
    """Name the database of a URL."""
    return url.rsplit("/", 1)[1]
