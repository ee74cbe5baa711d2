"""The execution: one unit on one batch, and what it has done when its body returns.

SQL takes effect at once, inside the savepoint; what is emitted and rejected is collected here
and counts when the savepoint is released.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from etl_procs import windows
from etl_procs.access import Access, Rights, rights_of
from etl_procs.batch import Batch, tuples_of
from etl_procs.dataflow import Dataflow
from etl_procs.errors import OF_THE_MACHINE, CoreError, primary_code
from etl_procs.fitting import Fitter, Part, Rows
from etl_procs.graph import Unit, consumers, units
from etl_procs.model import Given, Outlet, Procedure, Stream, Trigger, Window
from etl_procs.rules import LastBatches
from etl_procs.transaction import Transaction


class Plan:
    """What is worked out once about a dataflow, so that an execution has little to do."""

    def __init__(self, dataflow: Dataflow) -> None:
        self.dataflow = dataflow
        self.units = units(dataflow)
        self.consumers = consumers(dataflow)
        routines: list[Procedure | Trigger] = [
            *dataflow.procedures.values(),
            *dataflow.triggers.values(),
        ]
        self.rights = {routine.name: rights_of(routine, dataflow) for routine in routines}
        self.windows = {w.name: windows.table_for(w) for w in dataflow.windows.values()}
        self.fitters: dict[int, Fitter] = {}
        self.key_fitters: dict[int, Fitter] = {}
        self.triggers: dict[int, list[Trigger]] = {}
        self.by_batches = {
            p.name: [
                g for g in p.gives if isinstance(g, Window) and isinstance(g.extent, LastBatches)
            ]
            for p in dataflow.procedures.values()
        }
        watched: list[Stream | Window] = [*dataflow.streams.values(), *dataflow.windows.values()]
        for thing in watched:
            self.triggers[id(thing)] = [t for t in dataflow.triggers.values() if t.on is thing]
            self.fitters[id(thing)] = Fitter(thing.columns)
        for outlet in dataflow.outlets.values():
            self.fitters[id(outlet)] = Fitter(outlet.columns)
            self.key_fitters[id(outlet)] = Fitter(outlet.columns.only(outlet.key))


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows for an outlet, or the keys of rows that are deleted from it."""

    outlet: Outlet
    deleted: bool
    part: Part


@dataclass(slots=True)
class Execution:
    """One unit on one batch."""

    plan: Plan
    connection: sqlite3.Connection
    access: Access
    batch: int
    given: dict[str, list[Part]] = field(default_factory=dict)
    """What was emitted, by stream."""
    staged: list[Staged] = field(default_factory=list)
    rejected: dict[tuple[str, int], str] = field(default_factory=dict)
    """The reason, by stream and index."""
    filled: set[str] = field(default_factory=set)
    """The windows by batches that have had this batch."""
    broken: sqlite3.Error | None = None
    """The error after which nothing can be kept, even if the body caught it."""

    def run(self, unit: Unit, inputs: Mapping[str, Batch]) -> dict[str, Batch]:
        """Run a unit's procedures, and give the batches of its streams: taken and given."""
        known = dict(inputs)
        for procedure in unit.procedures:
            for stream in procedure.takes:
                if stream.name not in known:  # from within the nested group
                    known[stream.name] = self._collected(stream)
            self._run(procedure, [known[stream.name] for stream in procedure.takes])
        for name in self.given:
            if name not in known:
                known[name] = self._collected(self.plan.dataflow.streams[name])
        return known

    def _run(self, procedure: Procedure, batches: list[Batch]) -> None:
        procedure.body(self._transaction(procedure.name), *batches)
        for window in self.plan.by_batches[procedure.name]:
            if window.name not in self.filled:  # it ages although nothing was put into it
                self._fill(window, [])
        if self.broken is not None:
            raise self.broken  # whatever the body made of it

    def emit(self, rights: Rights, target: Given, rows: Rows) -> None:
        """Keep what a body emits, and run the triggers on it."""
        part = self.plan.fitters[id(target)].fit(rows, f"{rights.of} emits into {target.name}")
        if isinstance(target, Window):
            self._fill(target, part)
        elif len(part) == 0:
            return
        elif isinstance(target, Stream):
            self.given.setdefault(target.name, []).append(part)
            for trigger in self.plan.triggers[id(target)]:
                trigger.body(self._transaction(trigger.name), batch_of(target, self.batch, [part]))
        else:
            self.staged.append(Staged(target, deleted=False, part=part))

    def delete(self, rights: Rights, outlet: Outlet, keys: Rows) -> None:
        """Keep the keys that a body deletes from an outlet."""
        what = f"{rights.of} deletes from {outlet.name}"
        part = self.plan.key_fitters[id(outlet)].fit(keys, what)
        self.staged.append(Staged(outlet, deleted=True, part=part))

    def failed(self, error: sqlite3.Error) -> None:
        """Note an error of a statement of the body's."""
        # SQLite may have ended the transaction by itself. What ran after that would commit.
        if not self.connection.in_transaction or primary_code(error) in OF_THE_MACHINE:
            self.broken = error

    def _fill(self, window: Window, part: Part) -> None:
        if isinstance(window.extent, LastBatches):
            if window.name in self.filled:
                raise CoreError(
                    f"window {window.name} is by batches, and was given this one already",
                    hint="Emit into it once for each batch, with all of the rows.",
                )
            self.filled.add(window.name)
        triggers = self.plan.triggers[id(window)]

        def slid() -> None:
            for trigger in triggers:
                trigger.body(self._transaction(trigger.name))

        tuples = part if isinstance(part, list) else tuples_of(part)
        table = self.plan.windows[window.name]
        table.put(self.connection, tuples, self.batch, slid if triggers else None)

    def _transaction(self, routine: str) -> Transaction:
        return Transaction(self.connection, self.access, self.plan.rights[routine], self)

    def _collected(self, stream: Stream) -> Batch:
        return batch_of(stream, self.batch, self.given.get(stream.name, []))


def batch_of(stream: Stream, batch: int, parts: list[Part]) -> Batch:
    """Make a batch of what was emitted into a stream, piece by piece."""
    if len(parts) == 1 and isinstance(parts[0], list):
        return Batch(stream, batch, tuples=parts[0])
    if all(isinstance(part, list) for part in parts):
        return Batch(stream, batch, tuples=[values for part in parts for values in part])
    tables = [
        Batch(stream, batch, tuples=part).table if isinstance(part, list) else part
        for part in parts
    ]
    return Batch(stream, batch, table=pa.concat_tables(tables))
