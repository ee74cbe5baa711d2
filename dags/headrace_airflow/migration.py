"""A migration as a task: asked for by a worker, waited for by the triggerer, told by a worker."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

# airflow.sdk has operators, but no triggers (3.3): a trigger's base is to be had here alone.
from airflow.triggers.base import BaseTrigger, TriggerEvent

from headrace_airflow import connection, waiting
from headrace_airflow.api import Api, Document, Problem, Unreachable
from headrace_airflow.attempts import ENDED, NOT_AGAIN, State, standing
from headrace_airflow.identity import is_attempt, migration_id

PAUSE_S = 10.0
GRACE = timedelta(minutes=2)
"""What the triggerer may take over the limit before Airflow itself ends the waiting."""


class MigrationTrigger(BaseTrigger):
    """Waits in the triggerer until a migration has ended."""

    def __init__(self, conn_id: str, migration: str, until: float, pause_s: float) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.migration = migration
        self.until = until
        self.pause_s = pause_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Say how another triggerer makes it again."""
        own = {name: getattr(self, name) for name in ("conn_id", "migration", "until", "pause_s")}
        return f"{__name__}.{type(self).__qualname__}", own

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Tell how the migration has ended, or that it has not in its time."""
        api = await connection.connect_in_trigger(self.conn_id)
        yield TriggerEvent({"migration": self.migration, **await self._outcome(api)})

    async def on_kill(self) -> None:
        """Cancel the migration: somebody has marked or cleared the task that waits for it."""
        api = await connection.connect_in_trigger(self.conn_id)
        await asyncio.to_thread(api.cancel, self.migration)

    async def _outcome(self, api: Api) -> Document:
        look = partial(_ended, api, self.migration)
        try:
            return {"document": await waiting.told(look, self.until, self.pause_s)}
        except waiting.Overdue as overdue:
            return {"overdue": str(overdue)}
        except Problem as problem:
            return {"problem": str(problem)}


class MigrationOperator(BaseOperator):
    """Has Headrace run one migration, and succeeds with it; its document is the task's result."""

    template_fields: Sequence[str] = ("dataflows", "idle")
    ui_color = "#d7e8f4"

    def __init__(
        self,
        *,
        kind: str,
        warehouse: str,
        dataflows: Sequence[str] | str | None = None,
        idle: Mapping[str, Any] | None = None,
        limit: timedelta = timedelta(hours=1),
        pause_s: float = PAUSE_S,
        conn_id: str = connection.DEFAULT,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.kind = kind
        self.warehouse = warehouse
        self.dataflows = dataflows
        self.idle = idle
        self.limit = limit
        self.pause_s = pause_s
        self.conn_id = conn_id
        self.migration = ""

    def execute(self, context: Context) -> Document:
        """Ask for the migration, and let the triggerer wait for its end."""
        first = _first(context)
        api = connection.connect(self.conn_id)
        with refusals_are_final():
            self.migration = standing(api, first)
            document = api.put(self.migration, self._body())
        self.log.info("migration %s is %s", self.migration, document["state"])
        if document["state"] in ENDED:
            return self._result(document)
        raise self._waiting()

    def resume(self, context: Context, event: Document) -> Document:
        """Go on when the triggerer has told how it ended.

        On SQLite, Airflow gives the id of a trigger that is gone to the next one, and may bring a
        task the event of another: then it asks again.
        """
        if not is_attempt(event.get("migration"), _first(context)):
            return self.execute(context)
        if "document" in event:
            return self._result(event["document"])
        if "problem" in event:
            raise AirflowFailException(event["problem"])
        self.migration = event["migration"]
        self.on_kill()
        raise AirflowException(
            f"migration {self.migration} was cancelled: after {self.limit}, {event['overdue']}"
        )

    def on_kill(self) -> None:
        """Cancel what nobody waits for any more."""
        if self.migration:
            with contextlib.suppress(Problem, Unreachable):
                connection.connect(self.conn_id).cancel(self.migration)

    def _body(self) -> Document:
        return {
            "kind": self.kind,
            "warehouse": self.warehouse,
            "dataflows": self.dataflows or None,  # a form that is left empty gives []
            "idle": self.idle,
        }

    def _waiting(self) -> TaskDeferred:
        until = time.time() + self.limit.total_seconds()
        return TaskDeferred(
            trigger=MigrationTrigger(self.conn_id, self.migration, until, self.pause_s),
            method_name="resume",
            timeout=self.limit + GRACE,
        )

    def _result(self, document: Document) -> Document:
        """Give the document of a migration that succeeded; of another, raise what it says."""
        for finding in document.get("findings") or ():
            self.log.warning("finding: %s", finding)
        if document["state"] == State.SUCCEEDED:
            self.log.info(
                "%s rows, %s bytes; reached: %s",
                *(document.get(name) for name in ("rows", "bytes", "reached")),
            )
            return document
        if document["state"] == State.CANCELLED:
            raise AirflowFailException(
                f"migration {document['id']} was cancelled; clear the task to have another"
            )
        raise _failure(document)


@contextlib.contextmanager
def refusals_are_final() -> Iterator[None]:
    """Fail without another try where the API refuses: it would do so again."""
    try:
        yield
    except Problem as problem:
        raise AirflowFailException(str(problem)) from problem


def _ended(api: Api, id_: str) -> Document | None:
    """Give a migration's document if it has ended."""
    document = api.migration(id_)
    if document is None:
        raise Problem(404, "MigrationUnknown", f"{id_} is no longer known", "Clear the task.")
    return document if document["state"] in ENDED else None


def _failure(document: Document) -> AirflowException:
    error = document.get("error") or {}
    code = error.get("code", "MigrationFailed")
    says = f"migration {document['id']} failed with {code}: {error.get('what', 'no reason given')}"
    kind = AirflowFailException if code in NOT_AGAIN else AirflowException
    return kind("\n  ".join([says, *filter(None, [error.get("hint")])]))


def _first(context: Context) -> str:
    ti = context["ti"]
    return migration_id(ti.dag_id, ti.task_id, ti.run_id, _map_index(ti.map_index))


def _map_index(map_index: int | None) -> int:
    return -1 if map_index is None else map_index
