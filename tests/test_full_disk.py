"""A warehouse whose disk is full, for real: what it lacks is told, and done when there is room."""

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import shop
from alone import Alone, a_postgres, data_folder
from moving import jobs_on
from pushing import pushing
from waiting import until

from headrace.local.home import Home
from migrations import audit, layout, ledger, warehouse
from migrations.registry import Asked, Kind, State
from migrations.warehouse import DEFAULT, Connection, Warehouse

NO_SPACE = "No space left on device"
MB = 2**20
ROOM = MB
"""Left when somebody else has filled a disk: some rows find it, and the others do not."""
LONG = 1_000
ROWS = 4 * ROOM // LONG
BATCHES = 24
"""Of a MB each: more than a file of PostgreSQL's log has room for, which are of 16 MB."""


class Disk:
    """A small file system, and a file of somebody else's that takes its room."""

    def __init__(self, at: Path) -> None:
        self.at = at
        self._other = at / "other"

    def fill(self, room: int) -> None:
        """Take all but so much."""
        found = os.statvfs(self.at)
        with self._other.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - room)

    def make_room(self) -> None:
        self._other.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk of a test's own, where this machine lets one be mounted."""
    at = tmp_path / "disk"
    at.mkdir()
    try:
        mount = ["mount", "-t", "tmpfs", "-o", "size=128m,mode=0700", "tmpfs", str(at)]
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        pytest.skip(f"no disk can be mounted here: {error}")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no disk can be mounted here: {error.stderr.strip()}")
    yield Disk(at)
    subprocess.run(["umount", "--lazy", str(at)], check=True)


@pytest.fixture
def server(tmp_path: Path, disk: Disk) -> Iterator[Alone]:
    """A PostgreSQL of a test's own: it is gone before the disk is."""
    with a_postgres(data_folder(tmp_path / "postgres")) as started:
        yield started


def shown(connection: Connection) -> int:
    """Count the rows that live shows: each is there once."""
    ((rows, ids),) = connection.execute("SELECT count(*), count(DISTINCT id) FROM shop.sales")
    assert rows == ids
    assert isinstance(rows, int)
    return rows


def check(store: shop.Shop, connection: Connection, rows: int, merged: int = 0) -> None:
    """Make sure that so many rows are there, and of them so many in main, and all is well."""
    assert shown(connection) == rows
    in_main = connection.execute("SELECT count(*) FROM shop_main.sales").fetchall()
    assert in_main == [(merged,)]
    with store.reader.snapshot() as snapshot:
        assert audit.findings(connection, shop.HERE, shop.flow, [snapshot]) == []


@pytest.mark.parametrize(
    ("kind", "table", "before", "merged"),
    [(Kind.PULL, "shop_delta.sales", 1, 0), (Kind.MERGE, "shop_main.sales", 1 + ROWS, 1 + ROWS)],
)
def test_a_table_whose_disk_is_full_gets_all_or_nothing_and_gets_it_when_there_is_room(
    store: shop.Shop,
    server: Alone,
    disk: Disk,
    kind: Kind,
    table: str,
    before: int,
    merged: int,
) -> None:
    with warehouse.connect(server.url, application="test") as connection:
        layout.prepare(connection, shop.HERE, shop.flow)
        store.sell((0, 1.0, "a"))
        store.push(connection)
        connection.execute(f"CREATE TABLESPACE small LOCATION '{disk.at}'".encode())
        connection.execute(f"ALTER TABLE {table} SET TABLESPACE small".encode())
        store.sell(*((number, 1.0, "x" * LONG) for number in range(1, 1 + ROWS)))
        if kind is Kind.MERGE:
            store.push(connection)
        disk.fill(ROOM)
        moved = jobs_on(store, Warehouse(DEFAULT, server.url), give_up_s=120)
        with closing(moved.jobs):
            moved.jobs.put("m", Asked(kind, DEFAULT))
            until(
                lambda: NO_SPACE in moved.registry.find("m").stage,
                60,
                lambda: str(moved.registry.find("m")),
            )
            assert moved.registry.find("m").state is State.RUNNING
            check(store, connection, before)
            disk.make_room()
            until(
                lambda: moved.registry.find("m").state is State.SUCCEEDED,
                60,
                lambda: str(moved.registry.find("m")),
            )
        check(store, connection, 1 + ROWS, merged)
        assert store.unsent() == 0


def test_a_server_that_stops_because_its_log_finds_no_room_has_all_of_it_when_it_is_back(
    store: shop.Shop, server: Alone, tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with warehouse.connect(server.url, application="test") as connection:
        layout.prepare(connection, shop.HERE, shop.flow)
    server.stop()
    home = Home(tmp_path / "postgres")
    log, said = home.postgres / "pg_wal", home.log("postgres")
    shutil.move(log, disk.at / "pg_wal")
    log.symlink_to(disk.at / "pg_wal")
    server.start()
    disk.fill(ROOM)
    for number in range(BATCHES):
        store.sell((number, 1.0, os.urandom(MB // 2).hex()))  # of what is compressed, more has room
    with pushing(shop.flow, store.a_push(3), Warehouse(DEFAULT, server.url)):
        until(lambda: "pushing to default again" in caplog.text, 60, lambda: caplog.text)
        until(lambda: NO_SPACE in said.read_text(), 60, said.read_text)
        assert store.unsent() > 0
        disk.make_room()
        server.kill()
        server.start()
        until(lambda: store.unsent() == 0, 60, lambda: caplog.text)
    with warehouse.connect(server.url, application="test") as connection:
        assert ledger.read(connection, ["shop"])["shop", 0].rows == BATCHES
        check(store, connection, BATCHES)
