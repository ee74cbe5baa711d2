"""Flows: the loaded dataflows as they are declared, and how far each has come."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Path as OfPath
from starlette.responses import Response

from api import tables
from api.declared import DataflowOut, DataflowsOut
from api.grant import Scope
from api.guard import needs
from api.line import Line
from api.problem import JSON, problems
from api.resources import Resources
from api.values import dump
from etl_procs.columns import Columns
from etl_procs.dataflow import Dataflow
from etl_procs.errors import NoSuchDataflow
from etl_procs.model import Given, Lookup, Routine, Stream, Table, Window
from etl_procs.reader import Reader
from etl_procs.rules import (
    ByCount,
    ByPunctuation,
    LastBatches,
    LastInterval,
    LastTuples,
    OnTimeout,
    Rule,
)
from etl_procs.wire import Avro, Delimited, FixedWidth, Format, Json, Xml
from headrace.errors import NotRunning

AT_ONCE, WAITING_MAX = 4, 64

Named = Given | Table | Lookup
Told = dict[str, Any]

FORMATS: dict[type[Format], str] = {
    Json: "json",
    Delimited: "delimited",
    FixedWidth: "fixed-width",
    Xml: "xml",
    Avro: "avro",
}


def router(resources: Resources) -> APIRouter:
    """Make the routes."""
    made = APIRouter(prefix="/v1/flows", tags=["flows"])
    line = Line("requests for flows", at_once=AT_ONCE, waiting_max=WAITING_MAX)

    @made.get(
        "",
        response_model=DataflowsOut,
        responses=problems(401, 503),
        dependencies=needs(Scope.LOOK),
    )
    async def list_flows() -> Response:
        """List the dataflows, each as it is declared, with the last batch of each partition."""
        return Response(await line.run(partial(_flows, resources)), media_type=JSON)

    @made.get(
        "/{dataflow}",
        response_model=DataflowOut,
        responses=problems(401, 404, 503),
        dependencies=needs(Scope.LOOK),
    )
    async def get_flow(
        dataflow: Annotated[str, OfPath(description="The dataflow's name.")],
    ) -> Response:
        """Tell how one dataflow is declared, and the last batch of each of its partitions."""
        return Response(await line.run(partial(_flow, resources, dataflow)), media_type=JSON)

    return made


def _flows(resources: Resources) -> bytes:
    told = [described(flow, resources) for flow in resources.dataflows.values()]
    return dump({"dataflows": told})


def _flow(resources: Resources, name: str) -> bytes:
    found = resources.dataflows.get(name)
    if found is None:
        raise NoSuchDataflow(
            f"there is no dataflow {name}", hint=f"There are: {', '.join(resources.dataflows)}."
        )
    return dump(described(found, resources))


def described(flow: Dataflow, resources: Resources) -> Told:
    """Tell what a dataflow is, and how far it has come: see `DataflowOut`."""
    nests = {name: group for group in flow.nests for name in group}
    return {
        "name": flow.name,
        "partitions": list(_partitions(flow, resources.cores)),
        "streams": [_stream(stream) for stream in flow.streams.values()],
        "procedures": [
            {**_touched(one), "takes": _names(one.takes), "nested": nests.get(one.name, ())}
            for one in flow.procedures.values()
        ],
        "tables": [
            {"name": table.name, "columns": _columns(table.columns), "parks": table.parks}
            for table in flow.tables.values()
        ],
        "windows": [_window(flow, window) for window in flow.windows.values()],
        "triggers": [{**_touched(one), "on": one.on.name} for one in flow.triggers.values()],
        "calls": [
            {
                **_touched(one),
                "arguments": _columns(one.arguments),
                "returns": _columns(one.returns),
                "key": one.key,
            }
            for one in flow.calls.values()
        ],
        "lookups": list(flow.lookups),
        "outlets": [
            tables.described(one, resources.warehouses).model_dump()
            for one in flow.outlets.values()
        ],
    }


def _partitions(flow: Dataflow, cores: Iterable[Path]) -> Iterator[Told]:
    for partition, path in zip(range(flow.partitions), cores, strict=False):
        last_batch = None
        try:
            with Reader(path).snapshot() as snapshot:
                last_batch = snapshot.batch(flow.name)
        except NotRunning:
            pass  # there is no core yet: nothing has been committed
        yield {"name": flow.place(partition), "partition": partition, "last_batch": last_batch}


def _stream(stream: Stream) -> Told:
    is_border = stream.batches is not None
    return {
        "name": stream.name,
        "kind": "border" if is_border else "interior",
        "columns": _columns(stream.columns),
        "topic": stream.topic if is_border else None,
        "format": FORMATS[type(stream.wire.format)] if is_border else None,
        "batches": None if stream.batches is None else _rule(stream.batches),
        "key": stream.key,
        "order": stream.order,
    }


def _rule(rule: Rule) -> Told:
    if isinstance(rule, ByCount):
        return {"by": "count", "tuples": rule.tuples, "linger_s": rule.linger_s}
    what = rule.on_timeout.value if isinstance(rule.on_timeout, OnTimeout) else "fill"
    ends = {"timeout_s": rule.timeout_s, "on_timeout": what}
    if isinstance(rule, ByPunctuation):
        return {"by": "punctuation", **ends}
    late = rule.late.name if isinstance(rule.late, Stream) else rule.late.value
    return {"by": "interval", "column": rule.column, "length": rule.length, "late": late, **ends}


def _window(flow: Dataflow, window: Window) -> Told:
    extent = window.extent
    by = {LastTuples: "tuples", LastBatches: "batches", LastInterval: "interval"}[type(extent)]
    held = {"by": by, "size": extent.size, "slide": extent.slide}
    if isinstance(extent, LastInterval):
        held["column"] = extent.column
    counted = [one for one in flow.aggregates.values() if one.window is window]
    return {
        "name": window.name,
        "columns": _columns(window.columns),
        "extent": held,
        "aggregates": [
            {
                "name": one.name,
                "by": one.by,
                "values": {name: f"sum({of})" if of else "count(*)" for name, of in one.values},
            }
            for one in counted
        ],
    }


def _touched(routine: Routine) -> Told:
    return {
        "name": routine.name,
        "reads": _names(routine.reads),
        "writes": _names(routine.writes),
        "gives": _names(routine.gives),
        "looks": _names(routine.looks),
    }


def _names(some: Iterable[Named]) -> list[str]:
    return [one.name for one in some]


def _columns(columns: Columns) -> list[Told]:
    return [
        {"name": column.name, "type": column.type.value, "required": column.required}
        for column in columns.columns
    ]
