"""Which attempt of a task's migration counts now: decided by what the API has, not by Airflow.

A task that is tried again because its worker was lost goes on with the migration it had; only one
that has failed, or was cancelled, is followed by another.
"""

from enum import StrEnum

from headrace_airflow.api import Api, Problem
from headrace_airflow.identity import ATTEMPTS_MAX, attempt_id


class State(StrEnum):
    """The state of a migration."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


NOT_AGAIN = frozenset(
    {
        "AuditFailed",
        "Drift",
        "Gap",
        "LedgerMismatch",
        "NoSuchDataflow",
        "NoSuchWarehouse",
        "NotAlike",
        "Refused",
        "WarehouseError",
    }
)
"""The codes of failures that come again until somebody acts: others may pass by themselves."""

LOST = frozenset({State.FAILED, State.CANCELLED})
ENDED = LOST | {State.SUCCEEDED}


def standing(api: Api, first: str) -> str:
    """Give the id of the attempt that stands, or of the next one."""
    for attempt in range(1, ATTEMPTS_MAX + 1):
        id_ = attempt_id(first, attempt)
        found = api.migration(id_)
        if found is None or found["state"] not in LOST:
            return id_
    raise Problem(
        409,
        "TooManyAttempts",
        f"{ATTEMPTS_MAX} attempts of {first} have failed",
        "Mend the cause that each names, and trigger a new run.",
    )
