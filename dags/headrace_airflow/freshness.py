"""How fresh a warehouse is: an asset event when it has moved, a failure when it is late."""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)

# airflow.sdk has operators, but no triggers (3.3): a trigger's base is to be had here alone.
from airflow.triggers.base import BaseTrigger, TriggerEvent

from headrace_airflow import connection, waiting
from headrace_airflow.api import Api, Document, Problem
from headrace_airflow.migration import GRACE, PAUSE_S, refusals_are_final

Batches = dict[str, int]
"""Dataflow (and partition) -> a batch of it."""


def asset_of(warehouse: str) -> Asset:
    """Name a warehouse as others may schedule on it: `schedule=[asset_of("default")]`."""
    return Asset(name=f"headrace_{warehouse}", uri=f"headrace://{warehouse}")


class MovedOperator(BaseOperator):
    """Makes an asset event if a warehouse has moved since the last one; else it is skipped."""

    ui_color = "#e4f4d7"

    def __init__(self, *, warehouse: str, conn_id: str = connection.DEFAULT, **more: Any) -> None:
        self.asset = asset_of(warehouse)
        super().__init__(inlets=[self.asset], outlets=[self.asset], **more)
        self.warehouse = warehouse
        self.conn_id = conn_id

    def execute(self, context: Context) -> Document:
        """Compare what is there with what the last event said."""
        with refusals_are_final():
            found = connection.connect(self.conn_id).warehouse(self.warehouse)
        if not any(flow["arrived"] for flow in found["dataflows"]):
            raise AirflowSkipException(
                f"nothing is known to have arrived in {self.warehouse}: {found['state']}"
            )
        news: Document = {
            "warehouse": self.warehouse,
            "reached": _batches(found, "arrived"),
            "merged": _batches(found, "merged"),
        }
        events = context["inlet_events"][self.asset].ascending(False).limit(1)
        if [event.extra for event in events] == [news]:
            raise AirflowSkipException(f"{self.warehouse} has not moved: {news['reached']}")
        context["outlet_events"][self.asset].extra = news
        return news


class ArrivalTrigger(BaseTrigger):
    """Waits in the triggerer until a warehouse has the batches that were asked for."""

    def __init__(
        self, conn_id: str, warehouse: str, targets: Batches, until: float, pause_s: float
    ) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.warehouse = warehouse
        self.targets = targets
        self.until = until
        self.pause_s = pause_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Say how another triggerer makes it again."""
        names = ("conn_id", "warehouse", "targets", "until", "pause_s")
        own = {name: getattr(self, name) for name in names}
        return f"{__name__}.{type(self).__qualname__}", own

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Tell that all has arrived, or what has not in its time."""
        api = await connection.connect_in_trigger(self.conn_id)
        look = partial(arrived, api, self.warehouse, self.targets)
        yield TriggerEvent({"arrival": self.warehouse, **await self._outcome(look)})

    async def _outcome(self, look: Callable[[], bool | None]) -> Document:
        try:
            await waiting.told(look, self.until, self.pause_s)
        except waiting.Overdue as overdue:
            unreachable = overdue.__cause__
            return {"unreachable": str(unreachable)} if unreachable else {"late": self.targets}
        except Problem as problem:
            return {"problem": str(problem)}
        return {"arrived": self.targets}


class ArrivalOperator(BaseOperator):
    """Succeeds when what the core has now is in the warehouse; fails when that takes too long."""

    template_fields: Sequence[str] = ("late_s",)
    ui_color = "#f4ecd7"

    def __init__(
        self,
        *,
        warehouse: str,
        late_s: int | str = 900,
        pause_s: float = PAUSE_S,
        conn_id: str = connection.DEFAULT,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.warehouse = warehouse
        self.late_s = late_s
        self.pause_s = pause_s
        self.conn_id = conn_id

    def execute(self, context: Context) -> None:
        """Look what is on its way, and let the triggerer wait for it."""
        with refusals_are_final():
            found = connection.connect(self.conn_id).warehouse(self.warehouse)
        targets = {flow["name"]: flow["committed"] for flow in behind(found["dataflows"])}
        if not targets:
            self.log.info("%s has all that the core has", self.warehouse)
            return
        self.log.info("on its way to %s: %s", self.warehouse, targets)
        late_s = float(self.late_s)
        until = time.time() + late_s
        raise TaskDeferred(
            trigger=ArrivalTrigger(self.conn_id, self.warehouse, targets, until, self.pause_s),
            method_name="resume",
            timeout=timedelta(seconds=late_s) + GRACE,
        )

    def resume(self, context: Context, event: Document) -> None:
        """Go on when all has arrived, or time is up; see `MigrationOperator.resume`."""
        if event.get("arrival") != self.warehouse:
            self.execute(context)
            return
        if "problem" in event:
            raise AirflowFailException(event["problem"])
        if "unreachable" in event:
            raise AirflowException(event["unreachable"])
        if "late" in event:
            raise AirflowFailException(self._late(event["late"]))
        self.log.info("%s has reached %s", self.warehouse, event["arrived"])

    def _late(self, targets: Batches) -> str:
        found = connection.connect(self.conn_id).warehouse(self.warehouse)
        lags = "; ".join(
            f"{flow['name']} is at batch {flow['arrived']}, the core at {flow['committed']} "
            f"with {flow['waiting_rows']} rows kept, last moved {flow['moved_at'] or 'never'}"
            for flow in _missing(found, targets)
        )
        return (
            f"{self.warehouse} is late: what was there {self.late_s} s ago has not arrived. "
            f"Its state: {found['state']}. {lags}"
        )


def behind(flows: Iterable[Document]) -> list[Document]:
    """List the dataflows of which the warehouse lacks batches that the core has."""
    return [flow for flow in flows if _number(flow["arrived"]) < _number(flow["committed"])]


def arrived(api: Api, warehouse: str, targets: Batches) -> bool | None:
    """Give True when a warehouse has reached these batches, and nothing before."""
    return None if _missing(api.warehouse(warehouse), targets) else True


def _missing(found: Document, targets: Batches) -> list[Document]:
    """List what has not reached its batch; a dataflow that is gone is waited for no longer."""
    late = behind(found["dataflows"])
    return [f for f in late if _number(f["arrived"]) < targets.get(f["name"], 0)]


def _batches(found: Document, of: str) -> Document:
    return {flow["name"]: flow[of] for flow in found["dataflows"]}


def _number(batch: int | None) -> int:
    return 0 if batch is None else batch  # the first one is 1
