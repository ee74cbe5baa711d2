"""The picture: a dataflow as nodes and edges, as the status page draws it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from etl_procs import graph
from etl_procs.dataflow import Dataflow
from etl_procs.model import Outlet, Procedure, Stream, Table, Window
from migrations.warehouse import Warehouse


class Kind(StrEnum):
    """What a node is."""

    BORDER = "border"
    """A stream from outside."""
    STREAM = "stream"
    """A stream that a procedure gives."""
    PROCEDURE = "procedure"
    WINDOW = "window"
    TABLE = "table"
    """One that several routines use."""
    OUTLET = "outlet"
    WAREHOUSE = "warehouse"


class Way(StrEnum):
    """What goes along an edge."""

    FLOWS = "flows"
    READS = "reads"
    WRITES = "writes"


@dataclass(frozen=True, slots=True)
class Node:
    """Something that the picture shows."""

    id: str
    kind: Kind
    name: str
    unit: str = ""
    """Of a procedure, or a stream that one gives: what commits as one."""
    nested: bool = False
    """Whether that unit has several procedures."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Who gives to whom."""

    giver: str
    taker: str
    way: Way = Way.FLOWS


@dataclass(frozen=True, slots=True)
class Picture:
    """A dataflow, drawn."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


Thing = Stream | Procedure | Window | Table | Outlet | Warehouse


def draw(flow: Dataflow, warehouses: Iterable[Warehouse]) -> Picture:
    """Draw a dataflow, and the warehouses that it feeds."""
    units = {p.name: unit for unit in graph.units(flow) for p in unit.procedures}
    shared = dict(_shared(flow))
    fed = {place: place.outlets(flow) for place in warehouses}
    edges: dict[Edge, None] = {}
    givers: dict[str, str] = {}
    for procedure in flow.procedures.values():
        edges |= dict.fromkeys(_edge(stream, procedure) for stream in procedure.takes)
        for given in graph.reached_by(procedure, flow.triggers):
            edges[_edge(procedure, given)] = None
            givers[given.name] = units[procedure.name].name
    edges |= {edge: None for of in shared.values() for edge in of}
    edges |= {_edge(outlet, place): None for place, outlets in fed.items() for outlet in outlets}
    nodes = [
        *(_node(stream, givers.get(stream.name, "")) for stream in flow.streams.values()),
        *(
            _node(flow.procedures[name], unit.name, nested=len(unit.procedures) > 1)
            for name, unit in units.items()
        ),
        *map(_node, flow.windows.values()),
        *(_node(flow.tables[name]) for name in shared),
        *map(_node, flow.outlets.values()),
        *(_node(place) for place, outlets in fed.items() if outlets),
    ]
    return Picture(tuple(nodes), tuple(edges))


def _shared(flow: Dataflow) -> Iterator[tuple[str, list[Edge]]]:
    """Draw who reads and writes the tables that several procedures use."""
    found: dict[str, dict[Edge, Procedure]] = {}
    for procedure in flow.procedures.values():
        looked = [one.table for one in procedure.looks if isinstance(one.table, Table)]
        for table in (*procedure.reads, *looked):
            found.setdefault(table.name, {})[_edge(table, procedure, Way.READS)] = procedure
        for table in procedure.writes:
            found.setdefault(table.name, {})[_edge(procedure, table, Way.WRITES)] = procedure
    for name, edges in found.items():
        if len({procedure.name for procedure in edges.values()}) > 1:
            yield name, list(edges)


def _node(thing: Thing, unit: str = "", *, nested: bool = False) -> Node:
    return Node(_id(thing), _kind(thing), thing.name, unit, nested)


def _edge(giver: Thing, taker: Thing, way: Way = Way.FLOWS) -> Edge:
    return Edge(_id(giver), _id(taker), way)


def _id(thing: Thing) -> str:
    return f"{_kind(thing).value}:{thing.name}"


def _kind(thing: Thing) -> Kind:
    if isinstance(thing, Stream):
        return Kind.BORDER if thing.batches is not None else Kind.STREAM
    return Kind[type(thing).__name__.upper()]
