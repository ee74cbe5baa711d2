"""Declared: the loaded dataflows, with the tables that can be asked for, and how far each is."""

from dataclasses import fields
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi import Path as OfPath
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from api.catalogue import Catalogue
from api.grant import Grant, Restriction, Scope
from api.guard import guarded
from api.line import Line
from api.resources import Resources
from etl_procs.dataflow import Dataflow
from etl_procs.errors import NoSuchDataflow
from etl_procs.model import Kept, Outlet, Stream, Window
from etl_procs.reader import Reader
from etl_procs.rules import (
    ByCount,
    ByInterval,
    ByPunctuation,
    LastBatches,
    LastInterval,
    LastTuples,
)
from etl_procs.wire import Avro, Delimited, FixedWidth, Format, Json, Xml
from headrace.errors import NotRunning
from migrations import tables

FORMATS: dict[type[Format], str] = {
    Json: "json",
    Delimited: "delimited",
    FixedWidth: "fixed-width",
    Xml: "xml",
    Avro: "avro",
}
RULES = {ByCount: "count", ByInterval: "interval", ByPunctuation: "punctuation"}
EXTENTS = {LastTuples: "tuples", LastBatches: "batches", LastInterval: "interval"}
ALL = Restriction()


class Told(BaseModel):
    """Told of a value of the model: each of its fields by the attribute of that name."""

    model_config = ConfigDict(from_attributes=True)


def _word(value: object) -> object:
    """Say what stands for something: of an enum its value, of a stream its name, of code `fill`."""
    if isinstance(value, Enum):
        return value.value
    return value.name if isinstance(value, Stream) else "fill" if callable(value) else value


Word = BeforeValidator(_word)
Names = Annotated[list[str], BeforeValidator(lambda some: [one.name for one in some])]


class FieldOut(Told):
    """A column of a stream, a table, a window, or a call."""

    name: str
    type: Annotated[str, Word] = Field(description="INTEGER (64 bits), REAL or TEXT.")
    required: bool = Field(description="Whether it is never null.")


Fields = Annotated[list[FieldOut], BeforeValidator(attrgetter("columns"))]


class RuleOut(Told):
    """How a border stream is cut into batches."""

    by: Literal["count", "interval", "punctuation"]
    tuples: int | None = Field(None, description="By count: so many are a batch.")
    linger_s: float | None = Field(None, description="By count: a batch waits for others so long.")
    column: str | None = Field(None, description="By interval: the column of event times.")
    length: int | None = Field(None, description="By interval: of each.")
    late: Annotated[str | None, Word] = Field(
        None,
        description="By interval: what comes too late belongs to the `next` batch, or is `dead`, "
        "or goes to the stream that is named.",
    )
    timeout_s: float | None = Field(None, description="After this a batch is said to be missing.")
    on_timeout: Annotated[Literal["wait", "close", "fill"] | None, Word] = Field(
        None, description="What becomes of it then: it stays open, is closed, or is filled by code."
    )


class StreamOut(Told):
    """A stream."""

    name: str
    kind: Literal["border", "interior"] = Field(
        description="A border stream comes from outside, an interior one from a procedure."
    )
    columns: Fields
    topic: str | None = Field(description="Of a border stream, its Kafka topic.")
    format: Literal["json", "delimited", "fixed-width", "xml", "avro"] | None = Field(
        description="Of a border stream: how its tuples are written in Kafka."
    )
    batches: RuleOut | None = Field(description="Of a border stream.")
    key: str = Field(description="The column by which partitions divide tuples; or none.")
    order: str = Field(description="The column by which a batch is ordered; or none.")


class ExtentOut(Told):
    """What a window holds."""

    by: Literal["tuples", "batches", "interval"]
    size: int
    slide: int
    column: str | None = Field(None, description="By interval: the column of event times.")


class AggregateOut(BaseModel):
    """Counts and sums over a window."""

    name: str
    by: list[str]
    values: dict[str, str] = Field(description="By their names: count(*), or sum(COLUMN).")


class WindowOut(Told):
    """A window."""

    name: str
    columns: Fields
    extent: ExtentOut
    aggregates: list[AggregateOut]


class StateTableOut(Told):
    """A table of the core."""

    name: str
    columns: Fields
    parks: bool = Field(description="Whether its rows wait for something.")


class RoutineOut(Told):
    """What a procedure, a trigger or a call may touch, by names."""

    name: str
    reads: Names
    writes: Names
    gives: Names = Field(description="Streams, windows and outlets.")
    looks: Names = Field(description="Lookups.")


class ProcedureOut(RoutineOut):
    """A procedure."""

    takes: Names = Field(description="The streams whose batches it takes.")
    nested: list[str] = Field(
        description="The procedures that commit with it as one, itself among them; or none."
    )


class TriggerOut(RoutineOut):
    """Work inside a transaction."""

    on: Annotated[str, BeforeValidator(attrgetter("name"))] = Field(
        description="The stream or the window."
    )


class FlowCallOut(RoutineOut):
    """A call."""

    arguments: Fields
    returns: Fields
    key: str = Field(description="The argument that says on which partition it runs; or none.")


class PartitionOut(BaseModel):
    """A partition of a dataflow."""

    name: str = Field(description="As answers name it.")
    partition: int
    last_batch: int | None = Field(description="The last batch committed; null: no core yet.")


class TableColumnOut(BaseModel):
    """A column of a table."""

    name: str
    type: str = Field(description="PostgreSQL's name of its type.", examples=["numeric(9,2)"])
    required: bool = Field(description="Whether it is never null.")


class OutletOut(BaseModel):
    """A table that can be asked for: what a dataflow's outlet brings to warehouses, what is kept of
    a published stream, or files.
    """

    name: str = Field(
        description="As DATAFLOW.OUTLET, or as files.NAME of the configuration and the folder; in "
        "SQL what stands before the dot can be left out where it is plain. As DATAFLOW.STREAM, "
        "whole."
    )
    columns: list[TableColumnOut]
    key: list[str] = Field(
        description="The columns by which rows are replaced and deleted; none: they are appended."
    )
    indexes: list[list[str]] = Field(description="The columns of each index in the warehouse.")
    warehouses: list[str] = Field(
        description="Those that take it; the first answers queries. Of files and streams: none."
    )


class TablesOut(BaseModel):
    """All tables that the caller's key sees."""

    tables: list[OutletOut]


class DataflowOut(BaseModel):
    """A dataflow as it is declared, and how far it has come."""

    name: str
    partitions: list[PartitionOut]
    streams: list[StreamOut]
    procedures: list[ProcedureOut]
    tables: list[StateTableOut]
    windows: list[WindowOut]
    triggers: list[TriggerOut]
    calls: list[FlowCallOut]
    lookups: list[str] = Field(description="Their names; GET /v1/lookups tells the rest.")
    outlets: list[OutletOut]


class DataflowsOut(BaseModel):
    """All dataflows."""

    dataflows: list[DataflowOut]


def router(resources: Resources) -> APIRouter:
    """Make the routes."""
    made = APIRouter(prefix="/v1")
    line = Line("requests for what is declared")
    flows = resources.dataflows
    given = (outlet for flow in flows.values() for outlet in flow.outlets.values())
    outlets = {outlet.full_name: outlet for outlet in (*given, *resources.files)}

    @made.get(
        "/flows",
        tags=["flows"],
        response_model_exclude_unset=True,
        **guarded(Scope.LOOK, 503),
    )
    async def list_flows() -> DataflowsOut:
        """List the dataflows, each as it is declared, with the last batch of each partition."""
        told = await line.run(lambda: [_flow(flow, resources) for flow in flows.values()])
        return DataflowsOut(dataflows=told)

    @made.get(
        "/flows/{dataflow}",
        tags=["flows"],
        response_model_exclude_unset=True,
        **guarded(Scope.LOOK, 404, 503),
    )
    async def get_flow(
        dataflow: Annotated[str, OfPath(description="The dataflow's name.")],
    ) -> DataflowOut:
        """Tell how one dataflow is declared, and the last batch of each of its partitions."""
        if (found := flows.get(dataflow)) is None:
            known = ", ".join(flows)
            raise NoSuchDataflow(f"there is no dataflow {dataflow}", hint=f"There are: {known}.")
        return await line.run(lambda: _flow(found, resources))

    @made.get("/tables", tags=["tables"], **guarded(Scope.LOOK, 503, keeps_to_tables=True))
    async def list_tables(request: Request) -> TablesOut:
        """List the tables that can be asked for in SQL: streams are among them while they are
        published.

        A key that is for some tables sees those, and of them the columns that it may see.
        """
        held: Grant = request.state.grant
        published = await line.run(lambda: _published(resources))
        known = outlets | {stream.full_name: stream for stream in published}
        seen = dict.fromkeys(known, ALL) if held.tables is None else held.tables
        shown = [(outlet, seen[name]) for name, outlet in known.items() if name in seen]
        return TablesOut(tables=[_outlet(one, resources, limits) for one, limits in shown])

    return made


def _flow(flow: Dataflow, resources: Resources) -> DataflowOut:
    nests = {name: group for group in flow.nests for name in group}
    return DataflowOut(
        name=flow.name,
        partitions=[
            PartitionOut(name=flow.place(number), partition=number, last_batch=_last(flow, path))
            for number, path in enumerate(resources.cores[: flow.partitions])
        ],
        streams=[_stream(stream) for stream in flow.streams.values()],
        procedures=[
            ProcedureOut.model_validate({**_fields(one), "nested": nests.get(one.name, ())})
            for one in flow.procedures.values()
        ],
        tables=[StateTableOut.model_validate(table) for table in flow.tables.values()],
        windows=[_window(flow, window) for window in flow.windows.values()],
        triggers=[TriggerOut.model_validate(one) for one in flow.triggers.values()],
        calls=[FlowCallOut.model_validate(one) for one in flow.calls.values()],
        lookups=list(flow.lookups),
        outlets=[_outlet(one, resources, ALL) for one in flow.outlets.values()],
    )


def _fields(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


def _last(flow: Dataflow, core: Path) -> int | None:
    try:
        with Reader(core).snapshot() as snapshot:
            return snapshot.batch(flow.name)
    except NotRunning:  # there is no core yet: nothing has been committed
        return None


def _published(resources: Resources) -> list[Kept]:
    """Find the streams of which something is kept, in each partition: they are tables, too."""
    return [
        stream
        for stream in Catalogue.of(resources.dataflows).streams
        for flow in [resources.dataflows[stream.dataflow]]
        if all(_is_kept(stream, core) for core in resources.cores[: flow.partitions])
    ]


def _is_kept(stream: Kept, core: Path) -> bool:
    try:
        with Reader(core).snapshot() as snapshot:
            return snapshot.kept_after(stream) is not None
    except NotRunning:
        return False


def _stream(stream: Stream) -> StreamOut:
    outside: dict[str, Any] = {"kind": "interior", "topic": None, "format": None}
    if (rule := stream.batches) is not None:
        outside = {
            "kind": "border",
            "topic": stream.topic,
            "format": FORMATS[type(stream.wire.format)],
            "batches": {"by": RULES[type(rule)], **_fields(rule)},
        }
    return StreamOut.model_validate({**_fields(stream), **outside})


def _window(flow: Dataflow, window: Window) -> WindowOut:
    extent = {"by": EXTENTS[type(window.extent)], **_fields(window.extent)}
    aggregates = [
        {
            **_fields(one),
            "values": {name: f"sum({of})" if of else "count(*)" for name, of in one.values},
        }
        for one in flow.aggregates.values()
        if one.window is window
    ]
    return WindowOut.model_validate({**_fields(window), "extent": extent, "aggregates": aggregates})


def _outlet(outlet: Outlet, resources: Resources, seen: Restriction) -> OutletOut:
    """Tell what a table is like, with the columns that are seen."""
    names = outlet.columns.names if seen.columns is None else seen.columns
    return OutletOut(
        name=outlet.full_name,
        columns=[
            TableColumnOut(
                name=column.name,
                type=column.type.compile(dialect=tables.DIALECT).lower().replace(", ", ","),
                required=not column.nullable,
            )
            for column in tables.main(outlet).columns
            if column.name in names
        ],
        key=list(outlet.key) if set(outlet.key) <= set(names) else [],
        indexes=[list(index) for index in outlet.indexes if set(index) <= set(names)],
        warehouses=[
            place.name
            for place in resources.warehouses
            if place.takes(outlet)
            and outlet not in resources.files
            and not isinstance(outlet, Kept)
        ],
    )
