"""What a server may do to a migration: it is tried again, or it fails and says why; never half."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
import shop
from alone import a_postgres, data_folder
from moving import jobs_on
from waiting import until

from api.migrations import Moved
from migrations import audit, layout, ledger, warehouse
from migrations.errors import NotAlike
from migrations.registry import Asked, Kind, Migration, State
from migrations.warehouse import DEFAULT, Connection, Warehouse

PULL = Asked(Kind.PULL, DEFAULT)


@contextmanager
def running(store: shop.Shop, url: str) -> Iterator[Moved]:
    moved = jobs_on(store, Warehouse(DEFAULT, url), give_up_s=120)
    try:
        yield moved
    finally:
        moved.jobs.close()


def until_told(
    moved: Moved, id_: str, condition: Callable[[Migration], bool], limit_s: float = 60
) -> Migration:
    until(
        lambda: condition(moved.registry.find(id_)), limit_s, lambda: str(moved.registry.find(id_))
    )
    return moved.registry.find(id_)


def until_retried(moved: Moved, id_: str, why: str) -> None:
    until_told(moved, id_, lambda told: "tries again" in told.stage and why in told.stage)


def ended(moved: Moved, id_: str) -> Migration:
    return until_told(moved, id_, lambda told: told.ended_at is not None)


def check(store: shop.Shop, connection: Connection, sold: list[int]) -> None:
    found = connection.execute("SELECT id FROM shop.sales ORDER BY id").fetchall()
    assert found == [(number,) for number in sold]
    with store.reader.snapshot() as snapshot:
        assert audit.findings(connection, shop.HERE, shop.flow, [snapshot]) == []


def as_role(admin: Connection, url: str, rights: str) -> tuple[str, str]:
    """Make a role of a test's own; give its name, and the URL by which it comes in."""
    name = f"role_{uuid4().hex}"
    admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'p' {rights}".encode())
    parts = urlsplit(url)
    place = f"{name}:p@{parts.hostname}:{parts.port}"
    return name, urlunsplit(parts._replace(netloc=place))


def test_too_many_connections_are_waited_for(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, "a"))
    role, url = as_role(connection, warehouse_url, "SUPERUSER CONNECTION LIMIT 0")
    connection.execute(f"ALTER ROLE {role} NOSUPERUSER".encode())
    connection.execute(f"GRANT {connection.info.user} TO {role}".encode())
    with running(store, url) as moved:
        moved.jobs.put("p", PULL)
        until_retried(moved, "p", "too many connections")
        connection.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1".encode())
        assert ended(moved, "p").state is State.SUCCEEDED
    check(store, connection, [1])
    connection.execute(f"DROP ROLE {role}".encode())


def test_a_server_that_is_read_only_is_waited_for(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, "a"))
    database = connection.info.dbname
    connection.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on".encode())
    with running(store, warehouse_url) as moved:
        moved.jobs.put("p", PULL)
        until_retried(moved, "p", "read-only transaction")
        connection.execute(
            f"ALTER DATABASE {database} RESET default_transaction_read_only".encode()
        )
        assert ended(moved, "p").state is State.SUCCEEDED
    check(store, connection, [1])


def test_what_is_not_permitted_is_told_and_nothing_of_it_is_done(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, "a"))
    role, url = as_role(connection, warehouse_url, "")
    with running(store, url) as moved:
        moved.jobs.put("p", PULL)
        told = ended(moved, "p")
    assert told.state is State.FAILED
    assert told.error is not None
    assert told.error["code"] == "WarehouseError"
    assert "permission denied" in told.error["what"]
    assert store.unsent() == 1
    connection.execute(f"DROP ROLE {role}".encode())


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("RETURN NULL", "2 rows were sent, and 0 are there"),
        ("NEW.note = NULL; RETURN NEW", "2 rows were sent, and 2 others are there"),
        ("NEW._batch = 99; RETURN NEW", "2 rows were sent, and 0 are there"),
    ],
)
def test_a_trigger_on_delta_that_changes_what_is_copied_is_told_before_the_commit(
    store: shop.Shop, connection: Connection, does: str, told: str
) -> None:
    store.sell((1, 1.0, "a"), (2, 2.0, "b"))
    function = f"CREATE FUNCTION changes() RETURNS trigger AS 'BEGIN {does}; END' LANGUAGE plpgsql"
    connection.execute(function.encode())
    connection.execute(
        "CREATE TRIGGER t BEFORE INSERT ON shop_delta.sales FOR EACH ROW EXECUTE FUNCTION changes()"
    )
    with pytest.raises(NotAlike, match=told):
        store.push(connection)
    assert ledger.read(connection, ["shop"])["shop", 0].batch == 0
    assert store.unsent() == 2
    connection.execute("DROP TRIGGER t ON shop_delta.sales")
    store.push(connection)
    check(store, connection, [1, 2])


def test_a_deadlock_is_tried_again(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, -1.0, "a"))
    with running(store, warehouse_url) as moved, connection.transaction():
        connection.execute("SET LOCAL deadlock_timeout = '60s'")  # it is the push that gives way
        connection.execute("LOCK TABLE shop_delta.refunds")
        moved.jobs.put("p", PULL)
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        until(lambda: connection.execute(waits).fetchall() != [(0,)], 60, lambda: "nobody waits")
        connection.execute("SELECT FROM headrace.ledger FOR UPDATE")
        until_retried(moved, "p", "deadlock detected")
    with running(store, warehouse_url) as moved:
        moved.jobs.resume()
        assert ended(moved, "p").state is State.SUCCEEDED
    check(store, connection, [1])


@pytest.mark.parametrize("kind", [Kind.PULL, Kind.MERGE])
def test_a_server_that_is_killed_amid_a_migration_is_waited_for(
    store: shop.Shop, tmp_path: Path, kind: Kind
) -> None:
    with a_postgres(data_folder(tmp_path / "postgres")) as server:
        store.sell((1, 1.0, "a"))
        with warehouse.connect(server.url, application="test") as connection:
            layout.prepare(connection, shop.HERE, shop.flow)
            store.push(connection)
        store.sell((2, 2.0, "b"))
        with running(store, server.url) as moved:
            with holding(server.url, "LOCK TABLE shop_delta.sales, headrace.ledger") as wait:
                moved.jobs.put("p", Asked(kind, DEFAULT))
                wait()
                server.kill()
            until_retried(moved, "p", "")
            server.start()
            assert ended(moved, "p").state is State.SUCCEEDED
        with warehouse.connect(server.url, application="test") as connection:
            store.push(connection)
            check(store, connection, [1, 2])


@contextmanager
def holding(url: str, lock: str) -> Iterator[Callable[[], Any]]:
    """Let somebody else hold a lock; give what waits until another waits for it."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with psycopg.connect(url) as connection:
                connection.execute(lock.encode())
                held.set()
                release.wait()
        except psycopg.OperationalError:
            pass  # the server was killed

    def until_waiting() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            until(lambda: connection.execute(waits).fetchall() != [(0,)], 60, lambda: "none waits")

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        yield until_waiting
    finally:
        release.set()
        holder.join()
