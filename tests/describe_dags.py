"""Describes the DAGs as JSON, as Airflow's own Python loads them: a program for test_airflow.py.

Nothing may be asked over the network meanwhile.
"""

import json
import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any


def refuse(*_: object) -> None:
    raise AssertionError("a connection is opened while a DAG is read")


def seconds(time: timedelta | None) -> float:
    return time.total_seconds() if time else 0.0


def task(of: Any) -> dict[str, Any]:
    return {
        "operator": type(of).__name__,
        "retries": of.retries,
        "retry_delay": seconds(of.retry_delay),
        "retry_delay_max": seconds(of.max_retry_delay),
        "backoff": of.retry_exponential_backoff,
        "execution_timeout": seconds(of.execution_timeout),
        "limit": seconds(getattr(of, "limit", None)),
        "alerts": [type(one).__name__ for one in of.on_failure_callback],
        "outlets": [one.name for one in of.outlets],
        "kind": getattr(of, "kind", None),
        "warehouse": of.warehouse,
        "idle": getattr(of, "idle", None) is not None,
    }


def dag(of: Any) -> dict[str, Any]:
    return {
        "schedule": of.schedule,
        "catchup": of.catchup,
        "max_active_runs": of.max_active_runs,
        "dagrun_timeout": seconds(of.dagrun_timeout),
        "alerts": [type(one).__name__ for one in of.on_failure_callback],
        "tags": sorted(of.tags),
        "doc": of.doc_md,
        "description": of.description,
        "params": sorted(of.params),
        "tasks": {one.task_id: task(one) for one in of.tasks},
    }


def main(folder: str, *listed: str) -> None:
    """Describe them without the variable of the warehouses, and with each of these values."""
    out = os.dup(1)
    os.dup2(2, 1)  # Airflow logs to where the answer is to be
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG

    assert DAG  # it is loaded when it is first asked for
    socket.socket.connect = refuse  # type: ignore[method-assign]
    documents = []
    for value in (None, *listed):
        if value is not None:
            os.environ["AIRFLOW_VAR_HEADRACE_WAREHOUSES"] = value
        began = time.process_time()
        bag = DagBag(folder)
        documents.append(
            {
                "cpu_s": time.process_time() - began,
                "errors": {Path(name).name: text for name, text in bag.import_errors.items()},
                "dags": {dag_id: dag(one) for dag_id, one in bag.dags.items()},
            }
        )
    os.write(out, json.dumps(documents).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
