"""What a user declares: a dataflow, its streams, tables, outlets and procedures.

Definitions are checked when they are made, and the message names the fix.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etl_procs.columns import Columns, check_name, parse_table, parse_tuple
from headrace.errors import DefinitionError

if TYPE_CHECKING:
    from etl_procs.batch import Batch
    from etl_procs.transaction import Transaction

Body = Callable[["Transaction", "Batch"], None]
Value = int | float | str | None


@dataclass(frozen=True, slots=True)
class Stream:
    """An ordered, append-only sequence of tuples; this one comes from outside, through Kafka."""

    dataflow: str
    name: str
    columns: Columns

    @property
    def topic(self) -> str:
        """The Kafka topic whose records are its tuples."""
        return f"{self.dataflow}.{self.name}"


@dataclass(frozen=True, slots=True)
class Table:
    """Shared, mutable state in the core, and the rows it is made with."""

    name: str
    columns: Columns
    rows: tuple[tuple[Value, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Outlet:
    """Rows on their way to a warehouse table; they are appended there, batch by batch."""

    dataflow: str
    name: str
    columns: Columns


@dataclass(frozen=True, slots=True)
class Procedure:
    """User code that runs as one transaction on one atomic batch."""

    dataflow: str
    name: str
    body: Body
    takes: Stream
    reads: tuple[Table, ...]
    writes: tuple[Table, ...]
    gives: tuple[Outlet, ...]


@dataclass(slots=True)
class Dataflow:
    """Streams, tables, outlets and the procedure between them, under one name.

    Its name is also the schema of its outlets' tables in the warehouse, and the first half of
    its streams' topics.
    """

    name: str
    streams: dict[str, Stream] = field(default_factory=dict, init=False)
    tables: dict[str, Table] = field(default_factory=dict, init=False)
    outlets: dict[str, Outlet] = field(default_factory=dict, init=False)
    procedures: dict[str, Procedure] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        check_name(self.name, "dataflow")

    def stream(self, name: str, columns: str) -> Stream:
        """Declare a stream of tuples from outside; `columns` as in CREATE TABLE."""
        of = self._new("stream", name, self.streams)
        made = Stream(self.name, name, parse_tuple(columns, of))
        self.streams[name] = made
        return made

    def table(self, name: str, columns: str, rows: Iterable[Sequence[Value]] = ()) -> Table:
        """Declare a table of the core, and the rows that it has when it is first made."""
        of = self._new("table", name, self.tables)
        parsed = parse_table(columns, of)
        first = tuple(tuple(row) for row in rows)
        for row in first:
            if len(row) != len(parsed.columns):
                raise DefinitionError(
                    f"{of}: the row {row} has {len(row)} values for {len(parsed.columns)} columns",
                    hint=f"Give one value for each of {', '.join(parsed.names)}.",
                )
        made = Table(name, parsed, first)
        self.tables[name] = made
        return made

    def outlet(self, name: str, columns: str) -> Outlet:
        """Declare an outlet: a warehouse table of this name, in the schema of the dataflow."""
        of = self._new("outlet", name, self.outlets)
        made = Outlet(self.name, name, parse_tuple(columns, of))
        self.outlets[name] = made
        return made

    def procedure(
        self,
        *,
        takes: Stream,
        reads: Sequence[Table] = (),
        writes: Sequence[Table] = (),
        gives: Sequence[Outlet] = (),
    ) -> Callable[[Body], Body]:
        """Declare the decorated function as a procedure.

        It runs once for each batch of the stream it `takes`, in order. It may read the tables
        in `reads` and `writes`, change those in `writes`, and emit into the outlets in `gives`.
        """

        def declare(body: Body) -> Body:
            name = body.__name__
            of = self._new("procedure", name, self.procedures)
            self._own(of, "takes", takes, self.streams)
            for outlet in gives:
                self._own(of, "gives", outlet, self.outlets)
            self.procedures[name] = Procedure(
                self.name, name, body, takes, tuple(reads), tuple(writes), tuple(gives)
            )
            return body

        return declare

    def check(self) -> None:
        """Refuse a dataflow that could not run; called when it is loaded."""
        if len(self.streams) != 1 or len(self.procedures) != 1:
            raise DefinitionError(
                f"dataflow {self.name} has {len(self.streams)} streams and "
                f"{len(self.procedures)} procedures",
                hint="A dataflow has one stream and one procedure that takes it.",
            )

    def _new(self, kind: str, name: str, existing: Mapping[str, object]) -> str:
        of = f"{kind} {self.name}.{name}"
        check_name(name, of)
        if name in existing:
            raise DefinitionError(f"{of} is declared twice", hint="Give one of them another name.")
        return of

    def _own(self, of: str, how: str, thing: Stream | Outlet, mine: Mapping[str, object]) -> None:
        if mine.get(thing.name) is not thing:
            raise DefinitionError(
                f"{of} {how} {thing.name}, which dataflow {self.name} does not declare",
                hint=f"Declare it on the same Dataflow object: {self.name}.",
            )
