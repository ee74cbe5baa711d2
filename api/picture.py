"""The picture: a dataflow as nodes and edges, as the status page draws it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from etl_procs import graph
from etl_procs.dataflow import Dataflow
from etl_procs.model import Foreign, Outlet, Stream, Window
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


def draw(flow: Dataflow, warehouses: Iterable[Warehouse]) -> Picture:
    """Draw a dataflow, and the warehouses that it feeds."""
    units = graph.units(flow)
    unit_of = {p.name: unit for unit in units for p in unit.procedures}
    edges: dict[Edge, None] = {}
    givers: dict[str, str] = {}
    for procedure in flow.procedures.values():
        me = _id(Kind.PROCEDURE, procedure.name)
        for stream in procedure.takes:
            edges[Edge(_of(stream), me)] = None
        for given in graph.reached_by(procedure, flow.triggers):
            edges[Edge(me, _of(given))] = None
            givers[given.name] = unit_of[procedure.name].name
    for edge in _tables(flow):
        edges[edge] = None
    takers = {place.name: place.outlets(flow) for place in warehouses}
    for name, outlets in takers.items():
        for outlet in outlets:
            edges[Edge(_of(outlet), _id(Kind.WAREHOUSE, name))] = None
    nodes = [
        *(
            Node(_of(stream), _kind(stream), stream.name, givers.get(stream.name, ""))
            for stream in flow.streams.values()
        ),
        *(
            Node(
                _id(Kind.PROCEDURE, p.name),
                Kind.PROCEDURE,
                p.name,
                unit.name,
                len(unit.procedures) > 1,
            )
            for unit in units
            for p in unit.procedures
        ),
        *(Node(_of(window), Kind.WINDOW, window.name) for window in flow.windows.values()),
        *(
            Node(id, Kind.TABLE, id.partition(":")[2])
            for id in dict.fromkeys(_table_of(edge) for edge in _tables(flow))
        ),
        *(Node(_of(outlet), Kind.OUTLET, outlet.name) for outlet in flow.outlets.values()),
        *(
            Node(_id(Kind.WAREHOUSE, name), Kind.WAREHOUSE, name)
            for name, outlets in takers.items()
            if outlets
        ),
    ]
    return Picture(tuple(nodes), tuple(edges))


def _tables(flow: Dataflow) -> Iterator[Edge]:
    """Draw who reads and writes the tables that several procedures use."""
    found: dict[str, dict[Edge, None]] = {}
    for procedure in flow.procedures.values():
        me = _id(Kind.PROCEDURE, procedure.name)
        looked = [one.table for one in procedure.looks if not isinstance(one.table, Foreign)]
        for table in (*procedure.reads, *looked):
            found.setdefault(table.name, {})[Edge(_table(table.name), me, Way.READS)] = None
        for table in procedure.writes:
            found.setdefault(table.name, {})[Edge(me, _table(table.name), Way.WRITES)] = None
    for edges in found.values():
        if len({edge.giver if edge.way is Way.WRITES else edge.taker for edge in edges}) > 1:
            yield from edges


def _table(name: str) -> str:
    return _id(Kind.TABLE, name)


def _table_of(edge: Edge) -> str:
    return edge.giver if edge.way is Way.READS else edge.taker


def _of(thing: Stream | Window | Outlet) -> str:
    return _id(_kind(thing), thing.name)


def _kind(thing: Stream | Window | Outlet) -> Kind:
    match thing:
        case Window():
            return Kind.WINDOW
        case Outlet():
            return Kind.OUTLET
        case _:
            return Kind.BORDER if thing.batches is not None else Kind.STREAM


def _id(kind: Kind, name: str) -> str:
    return f"{kind.value}:{name}"
