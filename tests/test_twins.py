"""Two names of one database are refused, however they are spelled: it has one ledger."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import shop
from live import Board, Parts
from moving import jobs_on
from psycopg import conninfo, sql
from shop import HERE
from test_jobs import end
from test_push import Watched

from headrace.cli import main
from headrace.errors import Exit
from migrations import twins
from migrations.errors import Twins
from migrations.registry import Asked, Kind, State
from migrations.warehouse import DEFAULT, Connection, Warehouse

AWAY = Warehouse("away", "postgresql://postgres@127.0.0.1:1/postgres")


@pytest.fixture
def spelled(warehouse_url: str) -> str:
    """The same database, its host written in another way."""
    assert "@127.0.0.1:" in warehouse_url
    return warehouse_url.replace("@127.0.0.1:", "@localhost:")


@pytest.fixture
def by_nobody(warehouse_url: str, connection: Connection) -> Iterator[str]:
    """The same database, as a role that may do nothing but connect."""
    name = f"nobody_{uuid4().hex}"
    made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'")
    connection.execute(made.format(sql.Identifier(name)))
    yield conninfo.make_conninfo(warehouse_url, user=name, password="x")
    connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_another_spelling_of_a_host_and_another_role_are_the_same_database(
    connection: Connection, spelled: str, by_nobody: str
) -> None:
    for url in (spelled, by_nobody):
        with pytest.raises(Twins, match="the warehouses default and b are one database") as caught:
            twins.refuse(connection, HERE, [HERE, AWAY, Warehouse("b", url)])
        assert caught.value.hint == "Give it one name, and both their tables."


def test_another_database_of_the_same_server_is_another_one_and_one_that_is_away_is_passed_over(
    connection: Connection,
    second_url: str,
) -> None:
    twins.refuse(connection, HERE, [HERE, AWAY, Warehouse("b", second_url)])


def test_nothing_is_pushed_or_migrated_under_a_second_name(
    store: shop.Shop, connection: Connection, warehouse_url: str, spelled: str
) -> None:
    other = Warehouse("b", spelled)
    store.sell((1, 1.0, None))
    watched = Watched(store, warehouse_url, others=[other])
    with pytest.raises(Twins):
        watched.pusher.prepare()
    watched.pusher.start()
    assert "default and b are one database" in watched.until_stopped().what
    assert watched.pusher.stop(30)
    moved = jobs_on(store, Warehouse(DEFAULT, warehouse_url), other)
    for kind in (Kind.PULL, Kind.MERGE, Kind.REBUILD):
        moved.jobs.put(kind.value, Asked(kind, DEFAULT))
        failed = end(moved, kind.value)
        assert failed.state is State.FAILED
        assert failed.error
        assert failed.error["code"] == "Twins"
    moved.jobs.close()
    assert connection.execute("SELECT FROM shop.sales").fetchall() == []


def test_no_engine_starts_with_two_names_and_the_check_names_them(
    running: Parts,
    tmp_path: Path,
    warehouse_url: str,
    spelled: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    board = Board(running, tmp_path, f"t{uuid4().hex[:8]}")
    asked = ["--home", str(board.home), "--flow", str(board.file)]
    asked += ["--set", f"warehouse.url={warehouse_url}", "--set", f"warehouses.b.url={spelled}"]
    for words in (["warehouse", "check"], ["warehouse", "init", "b"], ["engine"]):
        given = [*words, *asked, "--set", f"broker.bootstrap={running.bootstrap}"]
        assert main(given) == Exit.CONFIG, words
        assert "are one database" in capsys.readouterr().err
    assert main(["warehouse", "status", "--json", *asked]) == Exit.OK
    assert len(json.loads(capsys.readouterr().out)) == 2
