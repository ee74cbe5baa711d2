"""`headrace migrate` and `headrace warehouse`, as processes, and what the roles may do."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import shop
from serving import KEY
from test_api_commands import FLOW, api_process, headrace
from waiting import until

from etl_procs.dataflow import Dataflow
from headrace.cli import main, migrate
from headrace.client import Client
from headrace.errors import DefinitionError, Exit, NotRunning
from migrations import ids, layout, roles, warehouse
from migrations.warehouse import Connection

AWAY = "postgresql://postgres@127.0.0.1:1/postgres"


@contextmanager
def commands(store: shop.Shop, url: str) -> Iterator[dict[str, str]]:
    """Run the API, and give the environment of commands that ask it."""
    with api_process(store.home, url) as port:
        yield {
            "HEADRACE_API_KEY": KEY,
            "HEADRACE_API_PORT": str(port),
            "HEADRACE_WAREHOUSE_URL": url,
        }


def test_what_is_planned_is_done_when_it_is_asked_for(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell_all([[(1, 1.0, "a"), (2, -2.0, None)], [(3, 3.0, None)]])
    with commands(store, warehouse_url) as where:
        planned = headrace("migrate", "plan", *FLOW, home=store.home, **where)
        assert re.sub(r"\d+ B", "N B", planned.stdout).splitlines() == [
            "warehouse default",
            "in one transaction of the warehouse:",
            "  copy 3 rows (N B) of batches 1 to 2 of partition 0 into shop_delta.sales",
            "  copy 1 row (N B) of batches 1 to 2 of partition 0 into shop_delta.refunds",
            "  step the ledger of shop[0] from 0 to 2",
            "then:",
            "  confirm shop[0] through batch 2 to the core, which forgets what all warehouses have",
        ]
        assert store.unsent() == 3
        for _ in range(2):
            pulled = headrace("migrate", "pull", "--id", "mine", home=store.home, **where)
            assert pulled.stdout.splitlines()[0] == "pull mine (default): succeeded"
            assert pulled.stdout.splitlines()[2] == "  reached shop batch 2"
        assert store.unsent() == 0
        planned = headrace("migrate", "plan", *FLOW, home=store.home, **where)
        assert planned.stdout.splitlines() == ["warehouse default", "nothing of shop"]
        merged = headrace("migrate", "merge", "--json", home=store.home, **where)
        assert json.loads(merged.stdout)["rows"] == 4
        listed = headrace("migrate", "list", home=store.home, **where).stdout.splitlines()
        assert [line.split()[1] for line in listed[2:]] == ["merge", "pull"]
        shown = headrace("migrate", "show", "mine", "--json", home=store.home, **where)
        assert json.loads(shown.stdout)["rows"] == 4
        told = headrace("warehouse", "status", *FLOW, "--json", home=store.home, **where)
        ((place,),) = [json.loads(told.stdout)]
        assert place["dataflows"][0]["merged"] == 2
        assert "shop" in headrace("warehouse", "status", *FLOW, home=store.home, **where).stdout


def test_what_is_not_waited_for_can_be_looked_at_and_cancelled(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, None))
    with commands(store, warehouse_url) as where, connection.transaction():
        connection.execute("SELECT FROM headrace.ledger FOR UPDATE")

        def run(*words: str) -> dict[str, object]:
            told = headrace("migrate", *words, "--json", home=store.home, **where)
            assert told.returncode == Exit.OK, told
            found: dict[str, object] = json.loads(told.stdout)
            return found

        asked = run("pull", "--id", "p", "--idle-for", "0", "--dataflow", "shop", "--no-wait")
        assert asked["state"] in ("waiting", "running")
        assert asked["idle"] == {"query_s_max": 60.0, "active_max": 4, "deadline_s": 0.0}
        run("audit", "--no-wait", "--id", "a")
        assert run("list", "-n", "1")["id"] == "a"
        run("cancel", "p")
        until(lambda: run("show", "p")["state"] == "cancelled", 30, lambda: str(run("show", "p")))


@pytest.mark.parametrize("id_", ["x?y=1", "a b", "é", "", ".", "..", "a/b", "x" * 201])
def test_an_id_that_none_can_be_is_refused_before_anything_is_sent(
    id_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["pull", "--id", id_], ["show", id_], ["cancel", id_]):
        assert main(["migrate", *words, "--home", str(tmp_path)]) == Exit.CONFIG
        said = capsys.readouterr().err
        assert f"{id_!r} is no id of a migration" in said
        assert "letters, digits and . _ : + ~ -, 200 at most" in said
    assert not ids.is_one(id_)


@pytest.mark.parametrize("id_", ["x", ".x", "~", "cli-7.2", "a:b+c_d", "x" * 200])
def test_an_id_that_can_be_is_one(id_: str) -> None:
    assert ids.is_one(id_)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "--json"], "unrecognized arguments: --json"),
        (["retention", "--warehouse", "x"], "unrecognized arguments: --warehouse x"),
        (["pull", "--source", "x"], "unrecognized arguments: --source x"),
        (["merge", "-n", "5"], "unrecognized arguments: -n 5"),
        (["list", "--state", "x"], "invalid choice: 'x'"),
        (["list", "-n", "0"], "'0' is no number from 1 to 1,000"),
        (["list", "-n", "1001"], "'1001' is no number from 1 to 1,000"),
        (["pull", "--idle-for", "nan"], "'nan' is no number of seconds"),
        (["pull", "--idle-for", "-1"], "'-1' is no number of seconds"),
    ],
)
def test_what_would_have_no_effect_or_cannot_be_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["migrate", *words])
    assert ended.value.code == Exit.CONFIG
    assert said in capsys.readouterr().err


def test_a_migration_that_was_cancelled_is_no_success(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    with commands(store, warehouse_url) as where:
        with connection.transaction():
            store.sell((1, 1.0, None))
            connection.execute("SELECT FROM headrace.ledger FOR UPDATE")
            headrace("migrate", "pull", "--id", "x", "--no-wait", home=store.home, **where)
            cancelled = headrace("migrate", "cancel", "x", home=store.home, **where)
        assert cancelled.stdout.splitlines()[0] == "pull x (default): cancelled"
        assert cancelled.returncode == Exit.OK
        pulled = headrace("migrate", "pull", "--id", "x", home=store.home, **where)
        assert pulled.returncode == Exit.FAILED
        assert "the migration x was cancelled" in pulled.stderr


def test_who_waits_outlives_an_api_that_is_started_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: dict[str, object] = {
        "id": "x",
        "kind": "pull",
        "warehouse": "default",
        "state": "succeeded",
        "stage": "",
    }
    done |= {"rows": 1, "bytes": 7, "reached": {}, "findings": [], "error": None}
    running = {**done, "state": "running", "ended_at": None, "stage": "copy 1 row"}
    away = [NotRunning("the API does not answer", hint="")] * 3
    answers: Iterator[Any] = iter([running, *away, running, {**done, "ended_at": "now"}])

    def ask(*_: object) -> Any:
        answer = next(answers)
        if isinstance(answer, NotRunning):
            raise answer
        return answer

    monkeypatch.setenv("HEADRACE_API_PORT", "1")
    monkeypatch.setenv("HEADRACE_API_KEY", KEY)
    monkeypatch.setattr(Client, "ask", ask)
    monkeypatch.setattr(migrate, "POLL_S", 0.01)
    monkeypatch.setattr(migrate, "SAY_EVERY_S", 0.0)
    assert main(["migrate", "pull", "--id", "x"]) == Exit.OK
    said = capsys.readouterr()
    assert said.out.splitlines()[1:] == ["  1 row, 7 bytes"]
    assert said.err == "x: copy 1 row\n"
    answers = iter([running, *away])
    monkeypatch.setattr(migrate, "AWAY_S", 0.0)
    assert main(["migrate", "pull", "--id", "x"]) == Exit.NOT_RUNNING
    assert "headrace migrate show x" in capsys.readouterr().err


REFUSALS: Sequence[tuple[tuple[str, ...], Exit, str]] = [
    (("show",), Exit.CONFIG, "arguments are required: ID"),
    (("pull", "x"), Exit.CONFIG, "unrecognized arguments: x"),
    (("show", "x"), Exit.REFUSED, "there is no migration x"),
    (("cancel", "x"), Exit.REFUSED, "there is no migration x"),
    (("pull", "--warehouse", "x"), Exit.REFUSED, "there is no warehouse 'x'"),
    (("pull", "--dataflow", "x"), Exit.REFUSED, "there is no dataflow x"),
    (("rebuild",), Exit.FAILED, "no other warehouse has them for all of its tables"),
    (("rebuild", "--source", "x"), Exit.REFUSED, "there is no warehouse 'x'"),
    (("rebuild", "--source", "default"), Exit.REFUSED, "cannot be copied from itself"),
    (("list", "--warehouse", "x"), Exit.REFUSED, "there is no warehouse 'x'"),
    (("plan", "--dataflow", "x", *FLOW), Exit.REFUSED, "there is no dataflow x"),
]


def test_what_cannot_be_done_is_said(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    with commands(store, warehouse_url) as where:
        for words, code, said in REFUSALS:
            done = headrace("migrate", *words, home=store.home, **where)
            assert done.returncode == code, done
            assert said in done.stderr


def test_the_tables_are_made_checked_and_upgraded(tmp_path: Path, warehouse_url: str) -> None:
    def run(action: str) -> subprocess.CompletedProcess[str]:
        where = {"HEADRACE_WAREHOUSE_URL": warehouse_url}
        return headrace("warehouse", action, *FLOW, home=tmp_path, **where)

    missing = run("check")
    assert missing.returncode == Exit.CONFIG
    assert "shop_main.sales is not a table there" in missing.stderr
    assert run("init").stdout == "default has the tables of shop\n"
    assert run("check").stdout == "default has the tables of shop as they are defined\n"
    with psycopg.connect(warehouse_url, autocommit=True) as connection:
        connection.execute("DROP VIEW shop.sales")
        connection.execute("ALTER TABLE shop_main.sales DROP COLUMN note")
    assert "shop_main.sales.note is defined as text and is not there" in run("check").stderr
    assert "shop_main.sales has the column note now" in run("upgrade").stdout
    assert run("check").returncode == Exit.OK


@pytest.mark.parametrize(
    "words",
    [
        ("warehouse", "check", "x"),
        ("warehouse", "status", "x"),
        ("migrate", "plan", "--warehouse", "x"),
    ],
)
def test_a_warehouse_that_is_not_configured_is_refused(
    tmp_path: Path, warehouse_url: str, words: tuple[str, ...]
) -> None:
    done = headrace(*words, *FLOW, home=tmp_path, HEADRACE_WAREHOUSE_URL=warehouse_url)
    assert done.returncode == Exit.REFUSED, done
    assert "there is no warehouse 'x'" in done.stderr


def test_the_migrator_writes_and_a_reader_reads_what_is_its_own_and_nothing_else(
    store: shop.Shop, warehouse_url: str
) -> None:
    other = Dataflow("other")
    other.outlet("things", "id INTEGER NOT NULL")
    with psycopg.connect(warehouse_url, autocommit=True) as admin:
        for _ in range(2):
            admin.execute(roles.script([shop.flow, other]).split("\n", 2)[2].encode())
        with warehouse.connect(warehouse_url, application="test") as connection:
            connection.execute("SET ROLE headrace_migrator")
            for flow in (shop.flow, other):
                layout.prepare(connection, shop.HERE, flow)
            store.sell((1, -1.0, "a"))
            store.push(connection)
            store.merge(connection)
        admin.execute("SET ROLE headrace_reads_shop")
        assert admin.execute("SELECT id FROM shop.sales").fetchall() == [(1,)]
        for refused in [
            "SELECT * FROM shop_main.sales",
            "SELECT * FROM shop_delta.sales",
            "SELECT * FROM headrace.ledger",
            "SELECT * FROM other.things",
            "DELETE FROM shop_main.sales",
            "CREATE TABLE shop.mine (id bigint)",
        ]:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                admin.execute(refused.encode())


def test_roles_take_over_what_another_role_has_made(
    connection: Connection, warehouse_url: str
) -> None:
    """What psql is told stops at the first error; here it is told by nobody."""
    first, command, script = roles.script([shop.flow]).split("\n", 2)
    assert first.startswith("-- Run by psql")
    assert command == "\\set ON_ERROR_STOP on"
    connection.execute(script.encode())
    owners = """\
SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
WHERE nspname IN ('headrace', 'shop', 'shop_main', 'shop_delta') AND relkind IN ('r', 'v')
UNION SELECT pg_get_userbyid(nspowner) FROM pg_namespace
WHERE nspname IN ('headrace', 'shop', 'shop_main', 'shop_delta')"""
    assert connection.execute(owners).fetchall() == [("headrace_migrator",)]
    connection.execute("SET ROLE headrace_migrator")
    layout.require(connection, shop.HERE, shop.flow)


def test_one_warehouse_that_is_not_as_defined_keeps_no_other_from_being_checked(
    connection: Connection,
    warehouse_url: str,
    second_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["--home", str(tmp_path), *FLOW, "--set", f"warehouse.url={AWAY}"]
    asked += ["--set", f"warehouses.bare.url={second_url}"]
    asked += ["--set", f"warehouses.good.url={warehouse_url}"]
    assert main(["warehouse", "check", *asked]) == Exit.CONFIG
    told = capsys.readouterr()
    assert told.out == "good has the tables of shop as they are defined\n"
    assert "connecting to the warehouse default: " in told.err
    assert "user, password and database of the URL are right" in told.err
    assert "the tables of the warehouse bare are not those of dataflow shop" in told.err
    assert main(["warehouse", "status", *asked]) == Exit.NOT_RUNNING
    out = capsys.readouterr().out
    assert max(map(len, out.split("default: ")[0].splitlines())) < 100
    assert "bare: has no tables yet" in out
    assert main(["warehouse", "status", "good", *asked]) == Exit.OK
    (row,) = capsys.readouterr().out.splitlines()[2:]
    assert row.split()[-1] == "-", "nothing has been moved to it"
    assert main(["migrate", "plan", *asked]) == Exit.NOT_RUNNING
    assert "warehouse good" in capsys.readouterr().out


def test_tables_that_no_outlet_is_called_are_refused(
    warehouse_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["warehouse", "check", "--home", str(tmp_path), *FLOW, "--set"]
    asked += [
        f"warehouse.url={warehouse_url}",
        "--set",
        "warehouse.tables=shop.sales shop.refnds *",
    ]
    assert main(asked) == Exit.CONFIG
    assert "default is to take shop.refnds, and no outlet is called so" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["shop_main", "shop_delta"])
def test_a_dataflow_has_no_name_that_a_schema_of_another_may_have(name: str) -> None:
    with pytest.raises(DefinitionError, match="is the name of a warehouse's schema"):
        Dataflow(name)


def test_what_cannot_be_planned_yet_is_said(store: shop.Shop, warehouse_url: str) -> None:
    store.sell((1, 1.0, None))
    where = {"HEADRACE_WAREHOUSE_URL": warehouse_url}
    planned = headrace("migrate", "plan", *FLOW, home=store.home, **where)
    assert planned.stdout.splitlines() == [
        "warehouse default",
        "there are no tables of shop yet: warehouse init",
    ]
