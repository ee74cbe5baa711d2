"""What all DAGs share: which warehouses there are, how often a task is tried, who is told."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Param, Variable

from headrace_airflow.alert import Alert

WAREHOUSES_VARIABLE = "headrace_warehouses"
WAREHOUSE = re.compile(r"[A-Za-z0-9_-]{1,100}")

TASKS: Mapping[str, Any] = {
    "owner": "headrace",
    "retries": 5,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=10),
    "execution_timeout": timedelta(minutes=5),  # a worker's time: the triggerer waits, not it
    "on_failure_callback": [Alert()],
}

RUNS: Mapping[str, Any] = {
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,
    "max_active_runs": 1,
    "render_template_as_native_obj": True,
    "on_failure_callback": [Alert()],
    "default_args": TASKS,
}

DATAFLOWS_PARAM = Param(
    None,
    type=["null", "array"],
    items={"type": "string"},
    description="Only these; empty: all of them.",
)
DATAFLOWS = "{{ params.dataflows }}"

IDLE = {
    "query_s_max": "{{ params.query_s_max }}",
    "active_max": "{{ params.active_max }}",
    "deadline_s": "{{ params.deadline_s }}",
}


def warehouses() -> list[str]:
    """List the warehouses, by the Variable `headrace_warehouses`: a JSON list of names."""
    found = Variable.get(WAREHOUSES_VARIABLE, default=None, deserialize_json=True)
    named = ["default"] if found is None else found
    if not (isinstance(named, list) and named and all(map(_is_name, named))):
        raise ValueError(f"the Variable {WAREHOUSES_VARIABLE} is no JSON list of names: {named!r}")
    return list(dict.fromkeys(named))


def idle_params(*, query_s_max: int, active_max: int, deadline_s: int) -> dict[str, Param]:
    """Let whoever triggers a run say what counts as an idle warehouse, beginning with these."""
    return {
        "query_s_max": _number(query_s_max, "Hold back while a query runs for longer (s)."),
        "active_max": _number(active_max, "Hold back while more sessions are active."),
        "deadline_s": _number(deadline_s, "After so many seconds, run anyway."),
    }


def _number(default: int, description: str) -> Param:
    return Param(default, type="integer", minimum=0, description=description)


def _is_name(item: object) -> bool:
    return isinstance(item, str) and WAREHOUSE.fullmatch(item) is not None
