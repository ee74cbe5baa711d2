"""Whole runs: by `airflow dags test`, and by a scheduler whose tasks are killed."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

import pytest
from airflows import Airflow, connection, migrated
from fake_headrace import KEY, Headrace, serving
from fakes import is_gone
from forwarding import Way
from waiting import until

from headrace import config
from headrace.errors import Exit
from headrace_airflow.identity import attempt_id, migration_id

STOP_S = 90
TASK_S = 180
ASKING = 4
"""How many tasks ask for a migration, of all DAGs."""


@dataclass(frozen=True)
class Served:
    """The API that these runs speak to."""

    url: str
    key: str

    def migrations(self, dag_id: str = "") -> list[dict[str, Any]]:
        """List the migrations that a DAG has asked for, or all."""
        headers = {"Authorization": f"Bearer {self.key}"}
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        connection.request("GET", "/v1/migrations?limit=100", headers=headers)
        found = json.loads(connection.getresponse().read())["migrations"]
        connection.close()
        return [one for one in found if one["id"].startswith(dag_id and f"{dag_id}.")]


@pytest.fixture(scope="module")
def headrace() -> Iterator[Headrace]:
    made = Headrace()
    flow = {"name": "shop", "committed": 12, "arrived": 12, "merged": 10, "waiting_rows": 0}
    made.warehouses = [{"name": "default", "state": "ok", "dataflows": [flow | {"moved_at": None}]}]
    with serving(made):
        yield made


@pytest.fixture(scope="module")
def served(headrace: Headrace) -> Served:
    return Served(headrace.url, KEY)


@pytest.fixture(scope="module")
def airflow(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    """An Airflow with a connection to it."""
    bare = migrated(tmp_path_factory.mktemp("airflow") / "home")
    variables = {"AIRFLOW_CONN_HEADRACE_DEFAULT": connection(served.url, served.key)}
    return Airflow(bare.home, variables)


def test_a_run_of_the_pull_moves_what_is_staged(airflow: Airflow, served: Served) -> None:
    assert airflow.test("headrace_pull_default", dataflows=["shop"]) == "success"
    (migration,) = served.migrations("headrace_pull_default")
    assert migration["kind"] == "pull"
    assert migration["state"] == "succeeded"
    assert migration["dataflows"] == ["shop"]
    assert migration["idle"] == {"query_s_max": 60, "active_max": 16, "deadline_s": 300}


def test_a_run_of_the_freshness_makes_one_event_when_the_warehouse_has_moved(
    airflow: Airflow,
) -> None:
    assert airflow.test("headrace_freshness") == "success"
    (event,) = airflow.events()
    assert event["asset"] == "headrace_default"
    assert event["reached"]["shop"] == 12
    assert airflow.test("headrace_freshness") == "success"
    assert airflow.tasks("headrace_freshness")["moved_default"] == "skipped"
    assert airflow.events() == [event]


@pytest.mark.parametrize("dag", ["merge", "retention", "audit"])
def test_a_run_of_each_other_dag_succeeds(airflow: Airflow, served: Served, dag: str) -> None:
    assert airflow.test(f"headrace_{dag}") == "success"
    (migration,) = served.migrations(f"headrace_{dag}")
    assert migration["kind"] == dag
    assert migration["state"] == "succeeded"


def test_an_audit_that_finds_something_fails_its_run_and_alerts_once(
    airflow: Airflow, tmp_path: Path
) -> None:
    headrace = Headrace(errors=["AuditFailed"])
    with serving(headrace):
        other = airflow.copy(
            tmp_path / "home",
            AIRFLOW_CONN_HEADRACE_DEFAULT=connection(headrace.url, KEY),
            AIRFLOW_VAR_HEADRACE_ALERT_URL=f"{headrace.url}/alerts",
        )
        assert other.test("headrace_audit") == "failed"
    assert headrace.begun == 1
    (alert,) = headrace.alerts
    assert alert["dag_id"] == "headrace_audit"
    assert alert["task_id"] == "audit_default"
    assert "failed with AuditFailed: it failed\n  mend it" in alert["error"]


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
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", "airflow"],
            env=config.child_environment(flags),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def until_up(self) -> str:
        """Give what it told until it was up."""
        assert self.process.stdout is not None
        told = ""
        while "Ctrl-C" not in told:
            line = self.process.stdout.readline()
            assert line, told + self.log.read_text()[-4000:]
            told += line
        return told

    def end(self) -> None:
        """End it as Ctrl-C does; then nothing that it started lives."""
        started = descendants(self.process.pid)
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(STOP_S) == Exit.OK
        until(lambda: all(map(is_gone, started)), 30, lambda: str(descendants(1)))

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
    served: Served, tmp_path: Path
) -> None:
    way = Way(served.url)
    with way.open(), Scheduled(tmp_path / "home", way.url, served.key) as airflow:
        way.held = "PUT"
        assert "http://127.0.0.1:" in airflow.until_up()
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
    asked = {one["id"]: one["state"] for one in served.migrations()}
    assert {asked[id_] for id_ in tries} == {"succeeded"}
    assert not [attempt_id(id_, 2) for id_ in tries if attempt_id(id_, 2) in asked]
