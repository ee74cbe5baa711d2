"""What a task does, in Airflow's Python, and what an API does to it that has troubles."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from airflows import BIN, TESTS, Airflow, connection
from fake_headrace import KEY, Headrace, problem, serving
from waiting import until

FAILS, FAILS_FOR_GOOD = "AirflowException", "AirflowFailException"
"""What Airflow tries again, and what it does not."""


class Worker:
    """A process that runs tasks one after the other, and may be killed."""

    def __init__(self, airflow: Airflow) -> None:
        self.process = subprocess.Popen(
            [BIN / "python", TESTS / "operating.py"],
            env=airflow.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def give(self, do: str, **what: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **what}) + "\n")
        self.process.stdin.flush()

    def take(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def run(self, do: str, **what: Any) -> dict[str, Any]:
        self.give(do, **what)
        return self.take()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def headrace() -> Headrace:
    return Headrace()


@pytest.fixture(scope="module")
def airflow(headrace: Headrace, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    with serving(headrace):
        url = f"{headrace.url}/alerts"
    variables = {
        "AIRFLOW_CONN_HEADRACE_DEFAULT": connection(headrace.url, KEY),
        "AIRFLOW_VAR_HEADRACE_ALERT_URL": url,
    }
    return Airflow(tmp_path_factory.mktemp("home"), variables)


@pytest.fixture(scope="module")
def worker(airflow: Airflow) -> Iterator[Worker]:
    started = Worker(airflow)
    yield started
    started.kill()


@pytest.fixture(autouse=True)
def up(headrace: Headrace) -> Iterator[ExitStack]:
    """An API that knows nothing yet; it is down when this is closed."""
    headrace.forget()
    with ExitStack() as stack:
        stack.enter_context(serving(headrace))
        yield stack


# A migration


def test_a_task_succeeds_with_its_migration_and_gives_its_document(
    headrace: Headrace, worker: Worker
) -> None:
    idle = {"query_s_max": 60, "active_max": 4, "deadline_s": 900}
    asked = {"kind": "merge", "warehouse": "second", "dataflows": ["shop"], "idle": idle}
    found = worker.run("migrate", operator=asked)["result"]
    assert found["state"] == "succeeded"
    assert found["reached"] == {"shop": 12}
    assert headrace.migrations == {"dag.task.run": found}
    assert asked.items() <= found.items()


def test_a_task_that_is_run_again_has_the_effect_of_one(headrace: Headrace, worker: Worker) -> None:
    first = worker.run("migrate")
    assert worker.run("migrate") == first
    assert headrace.begun == 1
    worker.run("migrate", run="another")
    assert headrace.begun == 2


def test_a_task_that_is_killed_while_its_migration_runs_goes_on_with_it(
    headrace: Headrace, worker: Worker, airflow: Airflow
) -> None:
    headrace.holding.set()
    killed = Worker(airflow)
    killed.give("migrate")
    until(lambda: headrace.requests["GET"] > 3, 60, lambda: str(headrace.requests))
    killed.kill()
    headrace.holding.clear()
    assert worker.run("migrate")["result"]["state"] == "succeeded"
    assert list(headrace.migrations) == ["dag.task.run"]


def test_two_tasks_that_were_scheduled_for_the_same_have_the_effect_of_one(
    headrace: Headrace, worker: Worker, airflow: Airflow
) -> None:
    headrace.holding.set()
    double = Worker(airflow)
    worker.give("migrate")
    double.give("migrate")
    until(lambda: headrace.requests["PUT"] == 2, 60, lambda: str(headrace.requests))
    headrace.holding.clear()
    assert worker.take() == double.take()
    double.kill()
    assert headrace.begun == 1


def test_a_migration_that_failed_fails_its_task_and_is_followed_by_another(
    headrace: Headrace, worker: Worker
) -> None:
    headrace.errors = ["Away"]
    failed = worker.run("migrate")
    assert failed["raised"] == FAILS
    assert "failed with Away: it failed\n  mend it" in failed["says"]
    assert worker.run("migrate")["result"]["id"] == "dag.task.run.2"
    assert worker.run("migrate")["result"]["id"] == "dag.task.run.2"
    assert headrace.begun == 2


@pytest.mark.parametrize("code", ["AuditFailed", "Drift", "WarehouseError"])
def test_what_would_fail_again_is_not_repeated(
    headrace: Headrace, worker: Worker, code: str
) -> None:
    headrace.errors = [code]
    failed = worker.run("migrate")
    assert failed["raised"] == FAILS_FOR_GOOD
    assert f"failed with {code}" in failed["says"]


def test_a_task_that_is_brought_the_event_of_another_waits_for_its_own(
    headrace: Headrace, worker: Worker
) -> None:
    other = {"id": "dag.other.run", "state": "succeeded"}
    for event in ({"migration": "dag.other.run", "document": other}, {"arrival": "default"}):
        assert worker.run("migrate", event=event)["result"]["id"] == "dag.task.run"
        has(headrace, flow(arrived=9))
        late = worker.run(
            "arrive", operator={"warehouse": "default", "late_s": 0}, event={"migration": "x"}
        )
        assert late["raised"] == FAILS_FOR_GOOD
    assert headrace.begun == 1


def test_what_somebody_cancelled_stays_so_until_the_task_is_cleared(
    headrace: Headrace, worker: Worker
) -> None:
    headrace.holding.set()
    worker.give("migrate")
    until(lambda: bool(headrace.migrations), 60, lambda: "")
    headrace.answer("DELETE", "/v1/migrations/dag.task.run", f"Bearer {KEY}", None)
    assert worker.take()["raised"] == FAILS_FOR_GOOD
    headrace.holding.clear()
    assert worker.run("migrate")["result"]["id"] == "dag.task.run.2"


def test_another_body_for_the_same_run_is_refused_for_good(worker: Worker) -> None:
    worker.run("migrate")
    refused = worker.run("migrate", operator={"kind": "merge"})
    assert refused["raised"] == FAILS_FOR_GOOD
    assert "MigrationConflict" in refused["says"]


def test_a_wrong_key_fails_for_good(headrace: Headrace, worker: Worker) -> None:
    headrace.troubles = [problem(401, "Unauthorized")]
    refused = worker.run("migrate")
    assert refused["raised"] == FAILS_FOR_GOOD
    assert "Unauthorized" in refused["says"]


def test_an_api_that_is_away_when_the_task_begins_is_tried_again_by_airflow(
    headrace: Headrace, worker: Worker
) -> None:
    headrace.troubles = [problem(503, "Starting")]
    assert worker.run("migrate")["raised"] == "Unreachable"


def test_troubles_of_the_api_while_a_migration_runs_go_unnoticed(
    headrace: Headrace, worker: Worker
) -> None:
    headrace.holding.set()
    worker.give("migrate")
    until(lambda: headrace.requests["GET"] > 2, 60, lambda: str(headrace.requests))
    headrace.troubles = [problem(503, "Busy"), problem(500, "Bug"), problem(502, "Gateway")]
    until(lambda: not headrace.troubles, 60, lambda: str(headrace.troubles))
    headrace.holding.clear()
    assert worker.take()["result"]["state"] == "succeeded"


def test_a_restart_of_the_api_while_a_migration_runs_goes_unnoticed(
    headrace: Headrace, worker: Worker, up: ExitStack
) -> None:
    headrace.holding.set()
    worker.give("migrate")
    until(lambda: headrace.requests["GET"] > 2, 60, lambda: str(headrace.requests))
    up.close()
    time.sleep(0.3)  # a few looks at nobody; were it none, the test would only see less
    headrace.holding.clear()
    up.enter_context(serving(headrace))
    assert worker.take()["result"]["id"] == "dag.task.run"
    assert headrace.begun == 1


def test_a_migration_that_takes_too_long_is_cancelled_and_its_task_fails(
    headrace: Headrace, worker: Worker
) -> None:
    headrace.holding.set()
    failed = worker.run("migrate", limit_s=0.3)
    assert failed["raised"] == FAILS
    assert "was cancelled: after 0:00:00.300000, it has not ended" in failed["says"]
    assert headrace.migrations["dag.task.run"]["state"] == "cancelled"


def test_a_migration_that_the_api_no_longer_knows_fails_its_task(
    headrace: Headrace, worker: Worker
) -> None:
    headrace.holding.set()
    worker.give("migrate")
    until(lambda: headrace.requests["GET"] > 2, 60, lambda: str(headrace.requests))
    headrace.migrations.clear()
    assert "MigrationUnknown" in worker.take()["says"]


def test_who_marks_or_clears_a_waiting_task_cancels_its_migration(
    headrace: Headrace, worker: Worker
) -> None:
    headrace.holding.set()
    headrace.answer("PUT", "/v1/migrations/id", f"Bearer {KEY}", {"kind": "pull"})
    worker.run("cancel", migration="id")
    assert headrace.migrations["id"]["state"] == "cancelled"


# Freshness


def flow(name: str = "shop", **more: Any) -> dict[str, Any]:
    at = {"committed": 12, "arrived": 12, "merged": 10, "waiting_rows": 0, "moved_at": None}
    return {"name": name, **at, **more}


def has(headrace: Headrace, *flows: dict[str, Any]) -> None:
    headrace.warehouses = [{"name": "default", "state": "it is full", "dataflows": list(flows)}]


def arrive(worker: Worker, late_s: float, warehouse: str = "default") -> dict[str, Any]:
    return worker.run("arrive", operator={"warehouse": warehouse, "late_s": late_s})


def test_a_warehouse_that_has_everything_is_fresh(headrace: Headrace, worker: Worker) -> None:
    has(headrace, flow(), flow("empty", committed=0, arrived=None))
    assert arrive(worker, 0) == {"result": None}


def test_what_is_kept_after_it_has_arrived_is_not_waited_for(
    headrace: Headrace, worker: Worker
) -> None:
    has(headrace, flow(waiting_rows=7), flow("no core", committed=None, arrived=None))
    assert arrive(worker, 0) == {"result": None}


def test_a_warehouse_is_fresh_when_it_gets_in_time_what_was_on_its_way(
    headrace: Headrace, worker: Worker
) -> None:
    has(headrace, flow("shop[0]", arrived=None, waiting_rows=7), flow("shop[1]"))
    worker.give("arrive", operator={"warehouse": "default", "late_s": 60})
    until(lambda: headrace.requests["GET"] > 2, 60, lambda: str(headrace.requests))
    has(headrace, flow("shop[0]", committed=30, waiting_rows=5), flow("shop[1]"))
    assert worker.take() == {"result": None}


def test_a_warehouse_that_does_not_move_is_late(headrace: Headrace, worker: Worker) -> None:
    has(headrace, flow(arrived=9, waiting_rows=7), flow("other"))
    late = arrive(worker, 0.3)
    assert late["raised"] == FAILS_FOR_GOOD
    assert "default is late: what was there 0.3 s ago has not arrived" in late["says"]
    assert "it is full. shop is at batch 9, the core at 12 with 7 rows kept" in late["says"]
    assert "other" not in late["says"]


def test_whether_a_warehouse_is_late_is_not_known_while_the_api_is_away(
    headrace: Headrace, worker: Worker, up: ExitStack
) -> None:
    has(headrace, flow(arrived=9, waiting_rows=7))
    worker.give("arrive", operator={"warehouse": "default", "late_s": 1})
    until(lambda: headrace.requests["GET"] > 2, 60, lambda: str(headrace.requests))
    up.close()
    away = worker.take()
    assert away["raised"] == FAILS
    assert "does not answer" in away["says"]


def test_a_warehouse_that_headrace_does_not_have_fails_for_good(
    headrace: Headrace, worker: Worker
) -> None:
    has(headrace)
    unknown = arrive(worker, 60, "second")
    assert unknown["raised"] == FAILS_FOR_GOOD
    assert "WarehouseUnknown" in unknown["says"]


# Alerts


def test_a_task_that_failed_is_told_to_the_webhook(headrace: Headrace, worker: Worker) -> None:
    assert worker.run("alert", context={"exception": "no room"}) == {"result": None}
    (told,) = headrace.alerts
    assert told["text"] == "dag.task failed in run run: no room"
    assert told["url"] == "http://airflow/log"


def test_a_run_that_timed_out_is_told_and_one_whose_task_told_is_not(
    headrace: Headrace, worker: Worker
) -> None:
    worker.run("alert", context={"reason": "task_failure"})
    worker.run("alert", context={"reason": "timed_out"})
    assert [told["text"] for told in headrace.alerts] == ["dag failed in run run: timed_out"]


def test_an_alert_that_cannot_be_posted_does_no_harm(worker: Worker, up: ExitStack) -> None:
    up.close()
    assert worker.run("alert", context={"exception": "no room"}) == {"result": None}
