"""The catalogue: which tables can be asked for, by the names that people use for them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from api.errors import QueryRefused
from api.grant import Restriction
from etl_procs.dataflow import Dataflow
from etl_procs.model import Kept, Outlet
from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Flow:
    """What the island knows of a dataflow: not its code, so that it can be told to a process."""

    name: str
    places: tuple[str, ...]
    """Its partitions, as answers name them."""
    is_moved: bool = True
    """Whether it gives anything to warehouses."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a caller sees of an outlet."""

    outlet: Outlet
    columns: tuple[str, ...]
    where: str = ""
    """A predicate in PostgreSQL's SQL over all of its columns; empty: all rows."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tables: outlets and streams of the loaded dataflows, and files; as a caller sees them."""

    flows: Mapping[str, Flow]
    outlets: tuple[Outlet, ...]
    streams: tuple[Kept, ...] = ()
    """Those that no outlet of their dataflow has the name of."""
    restrictions: Mapping[str, Restriction] = field(default_factory=dict)
    """By the full names of outlets; those that are not here are seen whole."""
    columns: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        tables = (*self.outlets, *self.streams)
        names = frozenset(name for table in tables for name in self.shown(table).columns)
        object.__setattr__(self, "columns", names)

    @classmethod
    def of(cls, dataflows: Mapping[str, Dataflow], files: Iterable[Outlet] = ()) -> "Catalogue":
        """Make the catalogue of some dataflows, and of tables that are files."""
        flows = {
            name: Flow(name, tuple(map(flow.place, range(flow.partitions))), bool(flow.outlets))
            for name, flow in dataflows.items()
        }
        given = [outlet for flow in dataflows.values() for outlet in flow.outlets.values()]
        for outlet in files:
            if outlet.dataflow in flows:
                raise ConfigError(
                    f"files.{outlet.dataflow} has the name of a dataflow",
                    hint="Give it another: queries name its tables by it.",
                )
            given.append(outlet)
        streams = tuple(
            Kept(flow.name, stream.name, stream.columns)
            for flow in dataflows.values()
            for stream in flow.streams.values()
            if stream.name not in flow.outlets
        )
        return cls(flows, tuple(given), streams)

    def only(self, tables: Mapping[str, Restriction]) -> "Catalogue":
        """Give what a caller sees who may see these tables alone."""
        outlets = tuple(outlet for outlet in self.outlets if outlet.full_name in tables)
        streams = tuple(stream for stream in self.streams if stream.full_name in tables)
        return replace(self, outlets=outlets, streams=streams, restrictions=tables)

    def shown(self, outlet: Outlet) -> Shown:
        """Tell what is seen of an outlet."""
        restriction = self.restrictions.get(outlet.full_name, Restriction())
        names = outlet.columns.names
        if restriction.columns is not None:
            names = tuple(name for name in names if name in restriction.columns)
        return Shown(outlet, names, restriction.where)

    def called(self, schema: str, name: str) -> list[Outlet]:
        """List the tables called `name`; streams only with their schema."""
        known = (*self.outlets, *self.streams) if schema else self.outlets
        return [o for o in known if o.name == name and schema in ("", o.dataflow)]

    def find(self, schema: str, name: str) -> Shown:
        """Find the table called `name`; the schema may be left out when only one is, and it is no
        stream.
        """
        found = self.called(schema, name)
        asked = f"{schema}.{name}" if schema else name
        if not found:
            names = ", ".join(sorted(outlet.full_name for outlet in self.outlets)) or "none"
            raise QueryRefused(
                f"there is no table {asked}",
                hint=f"The tables are: {names}. Those of the core are read by `headrace core`.",
            )
        if len(found) > 1:
            raise QueryRefused(
                f"the table {asked} is in {len(found)} dataflows",
                hint=f"Write one of: {', '.join(outlet.full_name for outlet in found)}.",
            )
        return self.shown(found[0])
