"""The DAGs as Airflow loads them: without an error, quickly, and built like ones to rely on."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflows import BIN, DAGS, ROOT, Airflow

SOURCES = sorted(DAGS.rglob("*.py"))
OURS = "headrace_airflow"
TRIGGERS = "airflow.triggers.base"
"""What airflow.sdk does not have, and a trigger cannot do without."""

KINDS = {
    "headrace_pull_default": {"pull": "pull"},
    "headrace_merge": {"merge_default": "merge"},
    "headrace_retention": {"forget": "retention"},
    "headrace_audit": {"audit_default": "audit"},
    "headrace_freshness": {"moved_default": None, "arrival_default": None},
}


LISTED = ('["default", "second", "second"]', "[]", '["a b"]')
"""Values of the Variable of the warehouses: the first is a good one."""


@pytest.fixture(scope="module")
def described(migrated: Airflow) -> list[dict[str, Any]]:
    """What Airflow makes of the DAGs: without the Variable, and with each of its values."""
    done = migrated.python("describe_dags.py", str(DAGS), *LISTED)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def loaded(described: list[dict[str, Any]]) -> dict[str, Any]:
    return described[0]


@pytest.fixture(scope="module")
def dags(loaded: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = loaded["dags"]
    return found


@pytest.fixture(scope="module")
def tasks(dags: dict[str, Any]) -> list[dict[str, Any]]:
    return [task for dag in dags.values() for task in dag["tasks"].values()]


# Loading them


def imported(source: Path) -> set[str]:
    """Name the modules that a module imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(f"{'.' * node.level}{node.module}")
    return found


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(DAGS)))
def test_only_the_standard_library_airflows_sdk_and_providers_are_imported(source: Path) -> None:
    others = {
        name
        for name in imported(source)
        if name.split(".")[0] not in (*sys.stdlib_module_names, OURS)
        and not f"{name}.".startswith(("airflow.sdk.", "airflow.providers."))
    }
    assert others <= {TRIGGERS}


def test_no_dag_has_an_import_error_and_none_opens_a_connection(loaded: dict[str, Any]) -> None:
    assert loaded["errors"] == {}
    assert set(loaded["dags"]) == set(KINDS)


def test_the_dags_are_imported_within_two_seconds(loaded: dict[str, Any]) -> None:
    assert loaded["cpu_s"] < 2  # of this process alone: a busy machine does not count


def test_the_types_of_the_dags_agree_with_airflows_own() -> None:
    mypy = [sys.executable, "-m", "mypy", "--python-executable", str(BIN / "python")]
    done = subprocess.run(
        [*mypy, "--cache-dir", ".mypy_cache/airflow", "dags"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_warehouse_of_the_variable_has_its_dag_and_its_tasks(
    described: list[dict[str, Any]],
) -> None:
    found = described[1]
    pulls = {
        dag_id: dag["tasks"]["pull"]["warehouse"]
        for dag_id, dag in found["dags"].items()
        if "pull" in dag["tags"]
    }
    assert pulls == {"headrace_pull_default": "default", "headrace_pull_second": "second"}
    assert set(found["dags"]["headrace_merge"]["tasks"]) == {"merge_default", "merge_second"}
    assert set(found["dags"]["headrace_audit"]["tasks"]) == {"audit_default", "audit_second"}
    assert len(found["dags"]["headrace_freshness"]["tasks"]) == 4


def test_a_bad_list_of_warehouses_is_an_import_error_that_names_the_variable(
    described: list[dict[str, Any]],
) -> None:
    for found in described[2:]:
        errors = found["errors"].values()
        assert len(errors) == 5
        assert all("headrace_warehouses is no JSON list" in text for text in errors)


# How they are built


def test_each_dag_asks_for_its_kind_of_migration(dags: dict[str, Any]) -> None:
    found = {
        dag_id: {task_id: task["kind"] for task_id, task in dag["tasks"].items()}
        for dag_id, dag in dags.items()
    }
    assert found == KINDS


def test_a_dag_has_a_schedule_and_its_runs_do_not_pile_up(dags: dict[str, Any]) -> None:
    for dag in dags.values():
        assert dag["schedule"]
        assert dag["catchup"] is False
        assert dag["max_active_runs"] == 1


def test_no_two_dags_begin_in_the_same_minute_of_the_day(dags: dict[str, Any]) -> None:
    daily = [dag["schedule"] for dag in dags.values() if not dag["schedule"].startswith("*/")]
    assert len(daily) == len(set(daily)) == 3


def test_a_task_is_tried_again_with_longer_and_longer_pauses(tasks: list[dict[str, Any]]) -> None:
    for task in tasks:
        assert task["retries"] >= 3
        assert task["backoff"] >= 2
        assert 0 < task["retry_delay"] < task["retry_delay_max"]


def test_everything_has_a_limit_and_a_run_lasts_longer_than_its_tasks(
    dags: dict[str, Any],
) -> None:
    for dag in dags.values():
        for task in dag["tasks"].values():
            assert 0 < task["execution_timeout"] + task["limit"] < dag["dagrun_timeout"]


def test_a_worker_is_not_kept_while_a_migration_runs(tasks: list[dict[str, Any]]) -> None:
    waiting = [task for task in tasks if task["operator"] == "MigrationOperator"]
    assert len(waiting) == 4
    for task in waiting:
        assert task["execution_timeout"] < task["limit"]


def test_tasks_and_runs_alert(dags: dict[str, Any], tasks: list[dict[str, Any]]) -> None:
    assert {tuple(one["alerts"]) for one in [*dags.values(), *tasks]} == {("Alert",)}


def test_a_dag_says_on_its_page_what_it_does_and_what_to_do_when_it_fails(
    dags: dict[str, Any],
) -> None:
    for dag in dags.values():
        assert dag["description"]
        assert dag["doc"].startswith("### ")
        assert "fails" in dag["doc"]
        assert "headrace" in dag["tags"]


def test_who_loads_a_warehouse_looks_at_its_load_first(tasks: list[dict[str, Any]]) -> None:
    assert {task["kind"] for task in tasks if task["idle"]} == {"pull", "merge"}


def test_the_events_of_a_warehouse_are_those_of_its_asset(dags: dict[str, Any]) -> None:
    outlets = {
        task_id: task["outlets"]
        for dag in dags.values()
        for task_id, task in dag["tasks"].items()
        if task["outlets"]
    }
    assert outlets == {"moved_default": ["headrace_default"]}
