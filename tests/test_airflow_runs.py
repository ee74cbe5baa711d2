"""Whole runs: by `airflow dags test`, and by a scheduler whose tasks are killed."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pytest
import shop
from airflows import Airflow, Commands
from airflows import connection as connection_to
from fake_headrace import Headrace
from fake_headrace import serving as hooked
from fakes import is_gone
from forwarding import Way
from moving import api_over
from psycopg import sql
from serving import KEY, Client
from waiting import until

from headrace import config
from headrace.errors import Exit
from headrace_airflow.identity import attempt_id, migration_id
from migrations.warehouse import Connection

STOP_S = 90
TASK_S = 180
ASKING = 4
"""How many tasks ask for a migration, of all DAGs."""
NOWHERE = "postgresql://postgres@127.0.0.1:1/postgres"


def migrations(client: Client, dag_id: str = "") -> list[dict[str, Any]]:
    """List the migrations that a DAG has asked for, or all, the oldest first."""
    found = client.send("GET", "/v1/migrations?limit=1000").document["migrations"]
    return [one for one in found[::-1] if one["id"].startswith(dag_id and f"{dag_id}.")]


@pytest.fixture(scope="module")
def way() -> Iterator[Way]:
    """Where Airflow finds the API; each test has its own behind it."""
    with Way().open() as opened:
        yield opened


@pytest.fixture(scope="module")
def webhook() -> Iterator[Headrace]:
    """Where alerts go."""
    with hooked(Headrace()) as listening:
        yield listening


@pytest.fixture(scope="module")
def commands(way: Way, webhook: Headrace, migrated: Airflow) -> Iterator[Commands]:
    """Commands of an Airflow with a connection to that."""
    variables = {
        "AIRFLOW_CONN_HEADRACE_DEFAULT": connection_to(way.url, KEY),
        "AIRFLOW_VAR_HEADRACE_ALERT_URL": f"{webhook.url}/alerts",
    }
    started = Commands(Airflow(migrated.home, variables))
    yield started
    started.end()


@pytest.fixture
def api(store: shop.Shop, warehouse_url: str, way: Way) -> Iterator[Client]:
    with api_over(store, warehouse_url) as client:
        way.leads_to(client.port)
        yield client


@pytest.fixture
def alerts(webhook: Headrace) -> list[dict[str, Any]]:
    """What is told from now on."""
    webhook.forget()
    return webhook.alerts


def ids(connection: Connection, schema: str = "shop", table: str = "sales") -> list[object]:
    """List what has arrived."""
    query = sql.SQL("SELECT id FROM {} ORDER BY id").format(sql.Identifier(schema, table))
    return [id_ for (id_,) in connection.execute(query)]


def test_a_run_of_the_pull_moves_what_is_staged_and_repeated_it_moves_nothing(
    commands: Commands, api: Client, store: shop.Shop, connection: Connection
) -> None:
    store.sell((1, -1.0, "a"), (2, 1.0, "b"))
    assert commands.test("headrace_pull_default", dataflows=["shop"]) == "success"
    (first,) = migrations(api)
    assert (first["kind"], first["state"]) == ("pull", "succeeded")
    assert (first["rows"], first["reached"]) == (3, {"shop": 1})
    assert first["idle"] == {"query_s_max": 60, "active_max": 16, "deadline_s": 300}
    assert ids(connection) == [1, 2]
    assert ids(connection, table="refunds") == [1]
    store.sell((3, 1.0, "c"))
    assert commands.again("headrace_pull_default", "pull")
    assert migrations(api) == [first]
    assert ids(connection) == [1, 2]
    for _ in range(2):
        assert commands.test("headrace_pull_default", deadline_s=0, dataflows=[]) == "success"
    assert [one["rows"] for one in migrations(api)] == [3, 1, 0]
    assert ids(connection) == [1, 2, 3]


def test_a_run_of_the_freshness_makes_an_event_when_the_warehouse_has_moved_and_tells_of_delay(
    commands: Commands,
    store: shop.Shop,
    connection: Connection,
    alerts: list[dict[str, Any]],
    api: Client,
) -> None:
    airflow = commands.airflow
    assert commands.test("headrace_freshness") == "success"
    assert airflow.tasks("headrace_freshness")["moved_default"] == "skipped"
    store.sell((1, 1.0, "a"))
    store.push(connection)
    assert commands.test("headrace_freshness") == "success"
    moved = {"asset": "headrace_default", "warehouse": "default"}
    first = {**moved, "reached": {"shop": 1}, "merged": {"shop": 0}}
    assert airflow.events() == [first]
    store.sell((2, 1.0, "b"))
    assert commands.test("headrace_freshness", late_s=1) == "failed"
    assert airflow.tasks("headrace_freshness") == {
        "moved_default": "skipped",
        "arrival_default": "failed",
    }
    (alert,) = alerts
    assert "default is late: what was there 1 s ago has not arrived" in alert["error"]
    assert "Its state: ok. shop is at batch 1, the core at 2 with 1 rows kept" in alert["error"]
    store.push(connection)
    store.merge(connection)
    assert commands.test("headrace_freshness") == "success"
    assert airflow.events() == [first, {**moved, "reached": {"shop": 2}, "merged": {"shop": 2}}]
    assert migrations(api) == []


def test_a_warehouse_that_is_away_makes_no_event_and_is_late(
    commands: Commands, store: shop.Shop, way: Way, alerts: list[dict[str, Any]]
) -> None:
    before = commands.airflow.events()
    store.sell((1, 1.0, "a"))
    with api_over(store, NOWHERE) as client:
        way.leads_to(client.port)
        assert commands.test("headrace_freshness", late_s=1) == "failed"
    assert commands.airflow.tasks("headrace_freshness")["moved_default"] == "skipped"
    assert commands.airflow.events() == before
    (alert,) = alerts
    assert "Its state: connecting to the warehouse" in alert["error"]


def test_runs_of_merge_retention_and_audit_do_what_they_say(
    commands: Commands,
    api: Client,
    store: shop.Shop,
    connection: Connection,
    alerts: list[dict[str, Any]],
) -> None:
    store.keep(3600)
    store.sell((1, 1.0, "a"), (2, 1.0, "b"))
    store.push(connection)
    assert ids(connection, "shop_delta") == [1, 2]
    assert commands.test("headrace_merge") == "success"
    assert ids(connection, "shop_main") == [1, 2]
    assert ids(connection, "shop_delta") == []
    assert store.unsent() == 2
    assert commands.test("headrace_retention") == "success"
    assert store.unsent() == 0
    assert commands.test("headrace_audit") == "success"
    connection.execute("DELETE FROM shop_main.sales WHERE id = 1")
    assert alerts == []
    assert commands.test("headrace_audit") == "failed"
    (alert,) = alerts
    assert (alert["dag_id"], alert["task_id"]) == ("headrace_audit", "audit_default")
    assert "failed with AuditFailed: shop.sales has 1 row, and 2 have arrived" in alert["error"]
    ended = [(one["kind"], one["state"]) for one in migrations(api)]
    good = [(kind, "succeeded") for kind in ("merge", "retention", "audit")]
    assert ended == [*good, ("audit", "failed")]


# make airflow


def parents() -> dict[int, int]:
    """Map each process that lives to its parent."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            _, _, rest = (entry / "stat").read_text().rpartition(")")
        except OSError:  # gone meanwhile
            continue
        found[int(entry.name)] = int(rest.split()[1])
    return found


def descendants(pid: int) -> list[int]:
    """List all that a process has started, and what those have."""
    of = parents()
    found = [pid]
    for one in found:
        found += [child for child, parent in of.items() if parent == one]
    return found[1:]


def tasks(pid: int) -> list[int]:
    """List the processes of tasks among the descendants of a process: by the id in their title."""
    named = re.compile("airflow worker -- [0-9a-f]{8}-")
    return [one for one in descendants(pid) if named.match(title(one))]


def title(pid: int) -> str:
    with suppress(OSError):  # gone meanwhile
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


class Scheduled:
    """`headrace airflow`, as `make airflow` runs it."""

    def __init__(self, home: Path, url: str, key: str) -> None:
        flags = {"home": str(home), "api.port": url.rpartition(":")[2], "api.key": key}
        self.airflow = Airflow(home / "airflow", {})
        self.log = home / "logs" / "airflow.log"
        self.address = ""
        self._token = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", "airflow"],
            env=config.child_environment(flags),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def until_up(self) -> None:
        """Wait until it has told where it is."""
        assert self.process.stdout is not None
        told = ""
        while "Ctrl-C" not in told:
            line = self.process.stdout.readline()
            assert line, told + self.log.read_text()[-4000:]
            told += line
        (self.address,) = re.findall(r"http://(127\.0\.0\.1:\d+) ", told)

    def end(self) -> None:
        """End it as Ctrl-C does; then nothing that it started lives."""
        started = descendants(self.process.pid)
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(STOP_S) == Exit.OK
        until(lambda: all(map(is_gone, started)), 30, lambda: str(descendants(1)))

    def ask(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        """Ask Airflow's own API as its user does."""
        if not self._token:
            file = self.airflow.home / "simple_auth_manager_passwords.json.generated"
            ((name, password),) = json.loads(file.read_text()).items()
            known = {"username": name, "password": password}
            self._token = self._send("POST", "/auth/token", known)["access_token"]
        return self._send(method, path, body)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        connection = HTTPConnection(self.address, timeout=30)
        connection.request(method, path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        raw = response.read()
        connection.close()
        assert response.status in (200, 201), raw
        return json.loads(raw)

    def runs(self, dag_id: str) -> list[str]:
        """List the runs of a DAG, the oldest first."""
        rows = self.airflow.rows("SELECT run_id FROM dag_run WHERE dag_id = ? ORDER BY id", dag_id)
        return [run_id for (run_id,) in rows]

    def began(self, dag_id: str, *, ago: timedelta) -> None:
        """Have it that the last run of a DAG began so long ago."""
        then = datetime.now(UTC).replace(tzinfo=None) - ago
        with sqlite3.connect(self.airflow.database, timeout=30) as database:
            database.execute(
                "UPDATE dag_run SET start_date = ? WHERE id = "
                "(SELECT max(id) FROM dag_run WHERE dag_id = ?)",
                (then.isoformat(" ", "microseconds"), dag_id),
            )

    def is_at_rest(self) -> bool:
        """Whether every DAG has run, and no task is on its way to a worker or at one."""
        rows = self.airflow.rows("SELECT dag_id, state FROM task_instance")
        resting = {"deferred", "success", "skipped", "failed"}
        return len({dag for dag, _ in rows}) > ASKING and {state for _, state in rows} <= resting

    def tries(self) -> dict[str, tuple[str, int]]:
        """Tell of each DAG's first task that asks for a migration how it is, and its tries."""
        rows = self.airflow.rows(
            "SELECT dag_id, task_id, run_id, state, try_number FROM task_instance "
            "ORDER BY run_id DESC"
        )
        first = {row[0]: row for row in rows if row[0] != "headrace_freshness"}
        return {
            migration_id(dag, task, run): (state, tried)
            for dag, task, run, state, tried in first.values()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end()


@pytest.mark.slow  # a minute and a half: Airflow starts, and waits before it tries a task again
def test_tasks_of_a_scheduler_that_are_killed_are_run_again_with_the_effect_of_one(
    api: Client, way: Way, store: shop.Shop, connection: Connection, tmp_path: Path
) -> None:
    store.sell((1, -1.0, "a"), (2, 1.0, "b"))
    way.held = "PUT"
    with Scheduled(tmp_path / "home", way.url, KEY) as airflow:
        airflow.until_up()
        until(lambda: way.arrived["PUT"] >= ASKING, TASK_S, lambda: str(airflow.tries()))
        killed = tasks(airflow.process.pid)
        assert len(killed) >= ASKING
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        way.held = ""
        until(
            lambda: {state for state, _ in airflow.tries().values()} == {"success"},
            TASK_S,
            lambda: f"{airflow.tries()}\n{airflow.log.read_text()[-8000:]}",
        )
        tries = airflow.tries()
    assert len(tries) == ASKING
    assert all(tried >= 2 for _, tried in tries.values())
    asked = {one["id"]: one["state"] for one in migrations(api)}
    assert {asked[id_] for id_ in tries} == {"succeeded"}
    assert not [attempt_id(id_, 2) for id_ in tries if attempt_id(id_, 2) in asked]
    assert ids(connection) == [1, 2]


PULL = "headrace_pull_default"


@contextmanager
def waiting(
    way: Way, store: shop.Shop, connection: Connection, url: str, home: Path
) -> Iterator[tuple[Scheduled, Client, str]]:
    """Have a scheduler's pull wait for a migration that does not end; give where that is."""
    store.sell((1, 1.0, "a"))
    connection.execute("SET idle_in_transaction_session_timeout = 0")  # Airflow may take long
    with (
        api_over(store, url, give_up_s=2 * TASK_S) as api,
        connection.transaction(),
    ):
        connection.execute("SELECT FROM headrace.ledger FOR UPDATE")
        way.leads_to(api.port)
        with Scheduled(home, way.url, KEY) as airflow:
            airflow.until_up()
            until(lambda: bool(migrations(api, PULL)), TASK_S, airflow.log.read_text)
            pull = f"/v1/migrations/{quote(migrations(api, PULL)[0]['id'], safe='')}"
            until(lambda: way.arrived[f"GET {pull}"] >= 2, TASK_S, airflow.log.read_text)
            # On SQLite, a task that begins to wait just then gets the id of the trigger marked.
            until(airflow.is_at_rest, TASK_S, airflow.log.read_text)
            assert api.send("GET", pull).document["state"] == "running"
            yield airflow, api, pull


def until_cancelled(airflow: Scheduled, api: Client, pull: str) -> None:
    until(
        lambda: api.send("GET", pull).document["state"] == "cancelled",
        TASK_S,
        airflow.log.read_text,
    )


@pytest.mark.slow  # a minute: Airflow starts
def test_who_marks_a_run_of_a_scheduler_as_failed_cancels_the_migration_that_it_waits_for(
    way: Way, store: shop.Shop, connection: Connection, warehouse_url: str, tmp_path: Path
) -> None:
    with waiting(way, store, connection, warehouse_url, tmp_path / "home") as (airflow, api, pull):
        run = f"/api/v2/dags/{PULL}/dagRuns/{quote(airflow.runs(PULL)[0])}"
        airflow.ask("PATCH", run, {"state": "failed"})
        until_cancelled(airflow, api, pull)
    assert ids(connection) == []


@pytest.mark.slow  # a minute: Airflow starts
def test_a_run_of_a_scheduler_whose_time_is_up_alerts_and_cancels_the_migration_it_waits_for(
    way: Way,
    webhook: Headrace,
    alerts: list[dict[str, Any]],
    store: shop.Shop,
    connection: Connection,
    warehouse_url: str,
    tmp_path: Path,
) -> None:
    with waiting(way, store, connection, warehouse_url, tmp_path / "home") as (airflow, api, pull):
        told = {"key": "headrace_alert_url", "value": f"{webhook.url}/alerts"}
        airflow.ask("POST", "/api/v2/variables", told)
        (run,) = airflow.runs(PULL)
        airflow.began(PULL, ago=timedelta(hours=2, minutes=1))
        until_cancelled(airflow, api, pull)
        until(lambda: bool(alerts), TASK_S, airflow.log.read_text)
        assert airflow.airflow.tasks(PULL) == {"pull": "skipped"}
        state = f"/api/v2/dags/{PULL}/dagRuns/{quote(run)}"
        assert airflow.ask("GET", state, None)["state"] == "failed"
    (alert,) = alerts
    assert alert["text"] == f"{PULL} failed in run {run}: timed_out"
    assert ids(connection) == []
    store.push(connection)  # what was cancelled is moved by the next
    assert ids(connection) == [1]
