"""The dataflow: what a user declares, checked as it is declared; the message names the fix."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from etl_procs import checks, graph
from etl_procs.columns import (
    OF_OUTLETS,
    Columns,
    check_bare,
    check_name,
    check_rows,
    parse_table,
    parse_tuple,
)
from etl_procs.model import (
    Aggregate,
    Call,
    Foreign,
    Given,
    Lookup,
    Outlet,
    Procedure,
    Routine,
    Step,
    Strategy,
    Stream,
    Table,
    Trigger,
    Window,
)
from etl_procs.rules import ByInterval, Extent, LastInterval, Late, Rule, Value
from etl_procs.wire import Format, Wire
from headrace.errors import DefinitionError

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Some: TypeAlias = T | Sequence[T]

DEFAULT_WIRE = Wire()


@dataclass(slots=True)
class Dataflow:
    """Streams, tables, windows, outlets and the procedures between them, under one name.

    Its name is also the schema of its outlets' tables in the warehouse, and the first half of
    its streams' topics. It may run on several `partitions`: each has the state of its own keys,
    a process that runs it, and a ledger.
    """

    name: str
    partitions: int = 1
    streams: dict[str, Stream] = field(default_factory=dict, init=False)
    tables: dict[str, Table] = field(default_factory=dict, init=False)
    windows: dict[str, Window] = field(default_factory=dict, init=False)
    aggregates: dict[str, Aggregate] = field(default_factory=dict, init=False)
    lookups: dict[str, Lookup] = field(default_factory=dict, init=False)
    outlets: dict[str, Outlet] = field(default_factory=dict, init=False)
    procedures: dict[str, Procedure] = field(default_factory=dict, init=False)
    triggers: dict[str, Trigger] = field(default_factory=dict, init=False)
    calls: dict[str, Call] = field(default_factory=dict, init=False)
    nests: list[tuple[str, ...]] = field(default_factory=list, init=False)
    steps: list[Step] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        checks.check_flow(self.name, self.partitions)

    def stream(
        self,
        name: str,
        columns: str,
        *,
        batches: Rule | None = None,
        key: str = "",
        order: str = "",
        wire: Wire | Format = DEFAULT_WIRE,
    ) -> Stream:
        """Declare a stream; `columns` as in CREATE TABLE.

        One that comes from outside needs a rule for its `batches`, and where the dataflow runs on
        several partitions, the column that is its `key`; one that a procedure gives has neither.
        From outside, the tuples of a batch may come in the `order` of a column, and are written in
        Kafka as its `wire` says: by itself, one JSON object each.
        """
        of = self._new("stream", name, self.streams)
        parsed = parse_tuple(columns, of)
        if batches is not None:
            checks.things(of, "is cut by", [batches], Rule)
        if isinstance(batches, ByInterval):
            checks.check_event_time(of, batches.column, parsed)
            if not isinstance(batches.late, Late):
                (late,) = self._own(of, "gives what is late to", [batches.late], Stream)
                checks.check_corrections(of, late, parsed, [s.batches for s in self.borders])
        if key:
            checks.check_key(of, key, parsed)
        if order:
            checks.column_of(of, order, parsed)
        how = checks.written(of, wire, parsed)
        if batches is None:
            checks.check_interior(of, order, how)
        made = Stream(self.name, name, parsed, batches, key, order, how)
        self.streams[name] = made
        return made

    def table(
        self,
        name: str,
        columns: str,
        rows: Iterable[Sequence[Value]] = (),
        *,
        parks: bool = False,
    ) -> Table:
        """Declare a table of the core, and the rows that it has when it is first made.

        One that `parks` holds rows that wait, such as for a key: how many is measured.
        """
        of = self._new("table", name, self.tables, self.windows, self.aggregates)
        parsed = parse_table(columns, of)
        checks.check_constraints(of, parsed)
        first = tuple(tuple(row) for row in rows)
        check_rows(first, parsed, of)
        made = Table(name, parsed, first, parks)
        self.tables[name] = made
        return made

    def foreign(
        self, name: str, columns: str, *, warehouse: str = "default", version: str = ""
    ) -> Foreign:
        """Declare a table, or a view, SCHEMA.TABLE of a warehouse, for lookups.

        `version` is a column that grows with each change, in the order of commits, where rows stay,
        with key and moment: with it, only what has changed is copied again.
        """
        of = f"foreign table {name} of dataflow {self.name}"
        return checks.check_foreign(of, Foreign(name, parse_table(columns, of), warehouse, version))

    def window(self, name: str, columns: str, extent: Extent) -> Window:
        """Declare a window; the one procedure that gives it may read it, as a table of its name."""
        of = self._new("window", name, self.tables, self.windows, self.aggregates)
        parsed = parse_tuple(columns, of)
        checks.things(of, "holds", [extent], Extent)
        checks.check_window(of, parsed)
        if isinstance(extent, LastInterval):
            checks.check_event_time(of, extent.column, parsed)
        made = Window(self.name, name, parsed, extent)
        self.windows[name] = made
        return made

    def aggregate(
        self, name: str, window: Window, *, by: str | Sequence[str] = (), **values: str
    ) -> Aggregate:
        """Declare counts and sums over a window: by="state", votes="count(*)", spent="sum(price)".

        It is a table of this name, private as the window is, and kept as tuples come and go.
        """
        of = self._new("aggregate", name, self.tables, self.windows, self.aggregates)
        self._own(of, "is over", [window], Window)
        keys = _names(by)
        checks.check_counted(of, keys, window.columns)
        parsed = tuple((check_name(n, of), checks.summed(of, v, window)) for n, v in values.items())
        if not parsed:
            raise DefinitionError(f"{of} has no values", hint='Give one: votes="count(*)".')
        made = Aggregate(name, window, keys, parsed)
        self.aggregates[name] = made
        return made

    def lookup(
        self,
        name: str,
        table: Table | Foreign,
        *,
        key: str | Sequence[str],
        at: str = "",
        gives: str | Sequence[str],
        or_earliest: bool = False,
        strategy: Strategy = Strategy.AUTO,
        max_age_s: float = 0.0,
    ) -> Lookup:
        """Declare a lookup: for each key the columns it `gives` of the row that is in force.

        That is the one with the greatest `at` that is not after the moment asked for;
        `or_earliest`: before all of them, the earliest. Without `at`, a key has one row. A table
        that is a warehouse's is answered by a `strategy`; of a copy, `max_age_s` is the age.
        """
        of = self._new("lookup", name, self.lookups)
        by, given = _names(key), _names(gives)
        made = Lookup(self.name, name, table, by, at, given, or_earliest, strategy, max_age_s)
        checks.check_lookup(of, made)
        self.lookups[name] = made
        return made

    def outlet(
        self,
        name: str,
        columns: str,
        *,
        key: str | Sequence[str] = (),
        indexes: Sequence[str | Sequence[str]] = (),
    ) -> Outlet:
        """Declare an outlet: a warehouse table of this name, in the schema of the dataflow.

        Without a `key` its rows are appended; with one, they are upserted and deleted by it. Each
        of `indexes` is a column, or several, by which the warehouse finds rows. Columns may be of
        types that the core does not have: BOOLEAN, DATE, TIMESTAMP and NUMERIC(p, s).
        """
        of = self._new("outlet", name, self.outlets)
        parsed = parse_tuple(columns, of, OF_OUTLETS)
        keys, indexed = _names(key), tuple(map(_names, indexes))
        checks.check_outlet(of, parsed, keys, indexed)
        made = Outlet(self.name, name, parsed, keys, indexed)
        self.outlets[name] = made
        return made

    def procedure(
        self,
        *,
        takes: Some[Stream],
        reads: Some[Table] = (),
        writes: Some[Table] = (),
        gives: Some[Given] = (),
        looks: Some[Lookup] = (),
        was: str = "",
    ) -> Callable[[F], F]:
        """Declare the decorated function as a procedure: body(tx, batch), a batch for each stream.

        It runs once for each batch of the streams it `takes`, in order. It may read the tables
        in `reads` and `writes`, change those in `writes`, emit into the streams, windows and
        outlets in `gives`, and use the lookups in `looks`. `was` is the name it had before, if it
        was renamed. Each of them is one thing, or several.
        """

        def declare(body: F) -> F:
            name = body.__name__
            of = self._new("procedure", name, self.procedures, self.triggers, self.calls)
            taken = self._own(of, "takes", takes, Stream)
            if not taken:
                raise DefinitionError(f"{of} takes nothing", hint="Give it a stream: takes=[...].")
            checks.check_body(of, body, *(stream.name for stream in taken))
            checks.things(of, "was", [was], str)
            may = self._touched(of, reads, writes, gives, looks)
            self.procedures[name] = Procedure(self.name, name, body, taken, *may, was)
            return body

        return declare

    def trigger(
        self,
        *,
        on: Stream | Window,
        reads: Some[Table] = (),
        writes: Some[Table] = (),
        gives: Some[Given] = (),
        looks: Some[Lookup] = (),
    ) -> Callable[[F], F]:
        """Declare the decorated function as work inside a transaction.

        On a stream: body(tx, batch), with the tuples that were just given to it. On a window:
        body(tx), after each slide. What it does commits, or fails, with the procedure.
        """

        def declare(body: F) -> F:
            name = body.__name__
            of = self._new("trigger", name, self.procedures, self.triggers, self.calls)
            (watched,) = self._own(of, "is on", [on], Stream | Window)
            checks.check_body(of, body, *(["batch"] if isinstance(on, Stream) else []))
            may = self._touched(of, reads, writes, gives, looks)
            self.triggers[name] = Trigger(self.name, name, body, watched, *may)
            return body

        return declare

    def call(
        self,
        *,
        arguments: str = "",
        returns: str = "",
        key: str = "",
        reads: Some[Table] = (),
        writes: Some[Table] = (),
        looks: Some[Lookup] = (),
    ) -> Callable[[F], F]:
        """Declare the decorated function as a call that clients make: body(tx, **arguments).

        It runs as one transaction, serializable with every batch, and returns rows of `returns`;
        where the dataflow runs on several partitions, on that of the argument that is its `key`.
        """

        def declare(body: F) -> F:
            name = body.__name__
            of = self._new("call", name, self.procedures, self.triggers, self.calls)
            taken = parse_tuple(arguments, of) if arguments else Columns("", ())
            given = parse_tuple(returns, of) if returns else Columns("", ())
            if key:
                checks.check_key(of, key, taken)
            checks.check_body(of, body, named=taken.names)
            read, written, _, looked = self._touched(of, reads, writes, (), looks)
            touched = (read, written, looked)
            self.calls[name] = Call(self.name, name, body, taken, given, *touched, key)
            return body

        return declare

    def nest(self, *bodies: Callable[..., Any]) -> None:
        """Make one group of procedures: they commit as one, and nobody comes in between."""
        names = checks.nested(self.name, bodies, self.procedures, self.nests)
        self.nests.append(names)

    def migration(self, table: Table, *, was: str) -> Callable[[F], F]:
        """Declare how a table's rows come over from the columns it had: body(tx).

        It reads `<table>_was`, which holds the old rows, and writes the new table. It runs once,
        when the core is opened and holds the table as it was.
        """
        of = f"migration of dataflow {self.name}"
        self._own(of, "fills", [table], Table)

        def declare(body: F) -> F:
            checks.check_body(of, body)
            self.steps.append(Step(table, parse_table(was, of), body))
            return body

        return declare

    def check(self) -> None:
        """Refuse a dataflow that could not run; called when it is loaded."""
        graph.check(self)

    def place(self, partition: int) -> str:
        """Name one of its partitions, as logs and answers do; the only one is as the dataflow."""
        return self.name if self.partitions == 1 else f"{self.name}[{partition}]"

    @property
    def routines(self) -> list[Routine]:
        """Give its procedures, triggers and calls."""
        return [*self.procedures.values(), *self.triggers.values(), *self.calls.values()]

    @property
    def borders(self) -> tuple[Stream, ...]:
        """Give the streams that come from outside."""
        return tuple(stream for stream in self.streams.values() if stream.batches is not None)

    def _new(self, kind: str, name: str, *existing: Mapping[str, object]) -> str:
        of = f"{kind} {self.name}.{name}"
        check_name(name, of)
        if kind in ("table", "window", "aggregate"):
            check_bare(name, of)
        if any(name in names for names in existing):
            raise DefinitionError(f"{of} is declared twice", hint="Give one of them another name.")
        return of

    def _own(self, of: str, how: str, given: object, kind: Any) -> tuple[Any, ...]:
        """Give what is named as a tuple; refuse what this dataflow does not declare."""
        some = checks.things(of, how, given, kind)
        declared = (self.streams, self.windows, self.outlets, self.tables, self.lookups)
        for thing in some:
            if not any(names.get(thing.name) is thing for names in declared):
                raise DefinitionError(
                    f"{of} {how} {thing.name}, which dataflow {self.name} does not declare",
                    hint=f"Declare it on the same Dataflow object: {self.name}.",
                )
        return some

    def _touched(
        self,
        of: str,
        reads: Some[Table],
        writes: Some[Table],
        gives: Some[Given],
        looks: Some[Lookup],
    ) -> tuple[tuple[Table, ...], tuple[Table, ...], tuple[Given, ...], tuple[Lookup, ...]]:
        """Give what a routine may touch; tables may be another dataflow's."""
        read, written = (
            checks.things(of, "reads", reads, Table),
            checks.things(of, "writes", writes, Table),
        )
        given = self._own(of, "gives", gives, Given)
        return read, written, given, self._own(of, "looks up in", looks, Lookup)


def _names(some: str | Sequence[str]) -> tuple[str, ...]:
    """Give one name, or several, as a tuple; the empty one is none."""
    return (some,) * bool(some) if isinstance(some, str) else tuple(some)
