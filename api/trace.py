"""Tracing: from a row back to its batch, the procedures that gave it, and its tuples in Kafka."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from api.grant import Scope
from api.guard import Needed, guarded
from api.line import Line
from api.past import TUPLES_MAX, Asked, Finder, Past
from api.values import to_json
from etl_procs.batch import index_of, offset_of
from etl_procs.dataflow import Dataflow
from etl_procs.history import Taken
from etl_procs.letter import shown_place, text_or_base64
from etl_procs.model import Outlet
from headrace.config import Broker
from headrace.errors import HeadraceError
from ingest import recall
from migrations import rows

AT_ONCE, WAITING_MAX = 2, 16
ANY = "-"
"""Stands for the dataflow, where only one has a table of that name."""

SENT = Needed((Scope.SUBSCRIBE,), keeps_to_tables=False)


class PlaceOut(BaseModel):
    """Where in a topic the tuples of a batch are: from the first one on, and before the next."""

    stream: str
    topic: str
    partition: int
    first_offset: int
    first_index: int | None = Field(
        None,
        description="Which of the tuples of its record the first one is, from 0 on; null: the "
        "last, or the only one.",
    )
    next_offset: int
    next_index: int = Field(description="Above 0: the batch ends amid that record.")


class TupleOut(BaseModel):
    """A tuple, as its source sent it."""

    stream: str
    partition: int
    offset: int
    index: int | None = None
    source: str | None = None
    seq: int | None = None
    value: str | None = Field(None, description="Its bytes, where they are text.")
    value_base64: str | None = Field(None, description="Where they are not.")
    reason: str | None = Field(None, description="Why it did not decode.")


class RowOut(BaseModel):
    """A row, and where it came from."""

    where: rows.Where
    operation: str = Field(description="append; of a table with a key, upsert or delete.")
    values: dict[str, Any] = Field(description="The row; of a deletion, its key.")
    partition: int | None = Field(None, description="The partition of the dataflow that gave it.")
    batch: int | None = Field(None, description="null: it was merged before main kept batches.")
    committed_at: str | None = Field(None, description="null: that is forgotten.")
    arrived_by: str | None = Field(
        None,
        description="When the last push to the warehouse was, which may not be the one that "
        "brought it; null: it has not arrived.",
    )
    again: list[int] = Field(
        description="The batches whose dead letters it ran again: the last is what took the tuples."
    )
    places: list[PlaceOut] | None = Field(None, description="null: they are forgotten.")
    tuples: list[TupleOut] | None = Field(
        None, description="null: not asked for, or not to be told."
    )
    lacking: str = Field(description="Why there are not all of these tuples.")


class TraceOut(BaseModel):
    """Rows of a table, and what gave them."""

    table: str
    warehouse: str
    procedures: list[str] = Field(description="Those that give to the table.")
    streams: list[str] = Field(description="The border streams from which batches come to them.")
    rows: list[RowOut]
    more: bool = Field(description="There are more rows with these values, which are older.")


@dataclass(frozen=True, slots=True)
class Tracer:
    """Traces rows of the loaded dataflows' tables."""

    finder: Finder
    broker: Callable[[], Broker]

    def trace(self, dataflow: str, table: str, asked: Asked) -> TraceOut:
        """Find rows, and tell where they came from."""
        found = self.finder.find("" if dataflow == ANY else dataflow, table, asked)
        most = max(TUPLES_MAX // len(found.pasts), 1) if asked.tuples else 0
        return TraceOut(
            table=found.outlet.full_name,
            warehouse=found.warehouse,
            procedures=[procedure.name for procedure in found.procedures],
            streams=[stream.name for stream in found.streams],
            rows=[self._told(found.flow, found.outlet, past, most) for past in found.pasts],
            more=found.more,
        )

    def _told(self, flow: Dataflow, outlet: Outlet, past: Past, most: int) -> RowOut:
        row = past.row
        operation = "append" if not outlet.key else "delete" if row.is_deleted else "upsert"
        tuples, lacking = self._recalled(flow, past, most) if most else (None, "")
        return RowOut(
            where=row.where,
            operation=operation,
            values={name: to_json(value) for name, value in row.values.items()},
            partition=row.partition,
            batch=row.batch,
            committed_at=_moment(past.committed_at),
            arrived_by=_moment(past.arrived_by),
            again=past.again,
            places=None if past.taken is None else [_place(flow, one) for one in past.taken],
            tuples=tuples,
            lacking=lacking,
        )

    def _recalled(self, flow: Dataflow, past: Past, most: int) -> tuple[list[TupleOut] | None, str]:
        """Read the tuples of a batch back, and say why some are not there."""
        if past.taken is None or past.row.partition is None:
            return None, "it is forgotten where they are"
        found: list[TupleOut] = []
        lacking = []
        mine = recall.Mine(past.row.partition, flow.partitions)
        for name, some in groupby(past.taken, attrgetter("stream")):
            if len(found) == most:
                lacking.append(f"none of {name} is among them")
                continue
            stretches = [recall.Stretch(one.partition, one.first, one.next) for one in some]
            topic_id = past.topic_ids[name]
            assert topic_id is not None, "a batch was read from it"
            try:
                recalled = recall.recall(
                    self.broker(), flow.streams[name], topic_id, stretches, mine, most - len(found)
                )
            except HeadraceError as error:
                lacking.append(error.what)
            else:
                found += map(tuple_out, recalled.tuples)
                lacking += [recalled.lacking] if recalled.lacking else []
        return found, "; ".join(lacking)


def router(tracer: Tracer) -> APIRouter:
    """Make the route."""
    made = APIRouter(prefix="/v1/tables", tags=["tables"])
    line = Line("traces", at_once=AT_ONCE, waiting_max=WAITING_MAX)

    @made.get(
        "/{dataflow}/{table}/trace",
        **guarded(Scope.QUERY, 400, 404, 409, 422, 503, 504),
    )
    async def trace_row(
        request: Request,
        dataflow: Annotated[
            str,
            Path(description=f"The dataflow; {ANY}: the only one with such a table."),
        ],
        table: str,
        asked: Annotated[Asked, Query()],
    ) -> TraceOut:
        """Tell where a row is, and where it came from.

        Which batch of which procedures brought it there last, when that was committed, and where in
        Kafka the tuples of that batch are.
        """
        if asked.tuples:
            await SENT(request)
        return await line.run(partial(tracer.trace, dataflow, table, asked))

    return made


def _place(flow: Dataflow, taken: Taken) -> PlaceOut:
    first = shown_place(taken.first)
    return PlaceOut(
        stream=taken.stream,
        topic=flow.streams[taken.stream].topic,
        partition=taken.partition,
        first_offset=offset_of(taken.first),
        first_index=first["_index"],
        next_offset=offset_of(taken.next),
        next_index=index_of(taken.next),
    )


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def tuple_out(one: recall.Recalled) -> TupleOut:
    """Write a tuple's bytes as text where they are text, and in base64 where they are not."""
    return TupleOut(**asdict(one) | {"value": None, **text_or_base64("value", one.value)})
