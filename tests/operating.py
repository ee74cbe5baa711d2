"""Runs our operators without a scheduler, in Airflow's Python: a program for test_airflow_tasks.py.

Reads what to do as lines of JSON; each is answered by one line: what came of it.
"""

import asyncio
import json
import os
import sys
from datetime import timedelta
from pydoc import locate
from types import SimpleNamespace
from typing import Any

Given = dict[str, Any]


def migrate(given: Given) -> Any:
    """Run a MigrationOperator's task to its end."""
    from headrace_airflow.migration import MigrationOperator

    of = {"kind": "pull", "warehouse": "default", "pause_s": 0.05, **given.get("operator", {})}
    limit = timedelta(seconds=given.get("limit_s", 60))
    return _run(MigrationOperator(task_id="task", limit=limit, **of), given)


def arrive(given: Given) -> Any:
    """Run an ArrivalOperator's task to its end."""
    from headrace_airflow.freshness import ArrivalOperator

    return _run(ArrivalOperator(task_id="task", pause_s=0.05, **given["operator"]), given)


def cancel(given: Given) -> Any:
    """Do what Airflow does to the trigger of a task that somebody marks or clears."""
    from headrace_airflow.migration import MigrationTrigger

    trigger = MigrationTrigger("headrace_default", given["migration"], 0, 1)
    asyncio.run(trigger.on_kill())


def alert(given: Given) -> Any:
    """Tell of a failure."""
    from headrace_airflow.alert import Alert

    ti = SimpleNamespace(dag_id="dag", task_id="task", log_url="http://airflow/log")
    Alert().notify({"ti": ti, "run_id": "run", **given["context"]})


def _run(operator: Any, given: Given) -> Any:
    from airflow.sdk.exceptions import TaskDeferred

    run = {"dag_id": "dag", "task_id": "task", "run_id": given.get("run", "run"), "map_index": -1}
    context = {"ti": SimpleNamespace(**run)}
    try:
        if "event" in given:  # of another: whatever it is, it is not believed
            return operator.resume(context, given["event"])
        return operator.execute(context)
    except TaskDeferred as deferred:
        event = asyncio.run(_event(*deferred.trigger.serialize()))
        return getattr(operator, deferred.method_name)(context, event)


async def _event(path: str, arguments: Given) -> Any:
    """Make the trigger anew from what it serializes to, as the triggerer does, and run it."""
    trigger: Any = locate(path)
    async for event in trigger(**arguments).run():
        return event.payload
    raise AssertionError("a trigger ended without an event")


def answer(line: str) -> Given:
    given = json.loads(line)
    try:
        return {"result": globals()[given["do"]](given)}
    except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
        return {"raised": type(error).__name__, "says": str(error)}


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # Airflow logs to where the answers are to be
    for line in sys.stdin:
        os.write(out, json.dumps(answer(line)).encode() + b"\n")


if __name__ == "__main__":
    main()
