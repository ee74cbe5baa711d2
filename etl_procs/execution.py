"""The execution: one unit on one batch, and what it has done when its body returns.

SQL takes effect at once, inside the transaction of the group; what is emitted and rejected is
collected here, and counts when the execution has succeeded.
"""

import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from etl_procs import windows
from etl_procs.access import Access, Rights, rights_of
from etl_procs.batch import Batch, tuples_of
from etl_procs.dataflow import Dataflow
from etl_procs.errors import OF_THE_MACHINE, CoreError, blamed, primary_code
from etl_procs.fitting import Fitter, Part, Rows
from etl_procs.graph import Unit, consumers, reached_by, units
from etl_procs.lookups import Lookups
from etl_procs.model import Body, Given, Outlet, Procedure, Stream, Trigger, Window
from etl_procs.rules import LastBatches
from etl_procs.staging import Staged
from etl_procs.transaction import OVER, Transaction

if TYPE_CHECKING:
    from etl_procs.dead_letters import Replay


class Plan:
    """What is worked out once about a dataflow, so that an execution has little to do."""

    def __init__(self, dataflow: Dataflow) -> None:
        self.dataflow = dataflow
        self.units = units(dataflow)
        self.consumers = consumers(dataflow)
        self.rights = {routine.name: rights_of(routine, dataflow) for routine in dataflow.routines}
        self.members = {
            unit.name: [self._member(p) for p in unit.procedures] for unit in self.units
        }
        self.windows = {w.name: windows.table_for(w) for w in dataflow.windows.values()}
        self.fitters: dict[int, Fitter] = {}
        self.key_fitters: dict[int, Fitter] = {}
        self.triggers: dict[int, list[Trigger]] = {}
        watched: list[Stream | Window] = [*dataflow.streams.values(), *dataflow.windows.values()]
        for thing in watched:
            self.triggers[id(thing)] = [t for t in dataflow.triggers.values() if t.on is thing]
            self.fitters[id(thing)] = Fitter(thing.columns)
        for outlet in dataflow.outlets.values():
            self.fitters[id(outlet)] = Fitter(outlet.columns)
            self.key_fitters[id(outlet)] = Fitter(outlet.columns.only(outlet.key))

    def _member(self, procedure: Procedure) -> "Member":
        reached = reached_by(procedure, self.dataflow.triggers)
        return Member(
            procedure.body,
            self.rights[procedure.name],
            [stream.name for stream in procedure.takes],
            [w for w in reached if isinstance(w, Window) and isinstance(w.extent, LastBatches)],
        )


class Member(NamedTuple):
    """A procedure of a unit, as an execution runs it."""

    body: Body
    rights: Rights
    takes: list[str]
    """The streams whose batches its body is given, in order."""
    ages: list[Window]
    """The windows by batches that it fills, or its triggers do."""


class Execution:
    """One unit on one batch."""

    __slots__ = (
        "_inputs",
        "_replay",
        "_taken",
        "access",
        "batch",
        "broken",
        "cursor",
        "filled",
        "given",
        "lookups",
        "plan",
        "rejected",
        "staged",
    )

    def __init__(
        self,
        plan: Plan,
        cursor: sqlite3.Cursor,
        access: Access,
        lookups: Lookups | None,
        batch: int,
        inputs: dict[str, Batch],
        replay: "Replay | None" = None,
    ) -> None:
        self.plan = plan
        self.cursor = cursor
        """One for all statements, each of which is done before the next: to make one costs much."""
        self.access = access
        self.lookups = lookups
        """None where a table is brought over: nobody looks up there."""
        self.batch = batch
        self._inputs = inputs
        self._replay = replay
        self._taken: frozenset[str] = frozenset()
        self.given: dict[str, list[Part]] = {}
        """What was emitted, by stream."""
        self.staged: list[Staged] = []
        self.rejected: dict[tuple[str, Batch, int], str] = {}
        """The reason, by procedure, batch and index."""
        self.filled: set[str] = set()
        """The windows by batches that have had this batch."""
        self.broken: Exception | None = None
        """The error after which nothing can be kept, even if the body caught it."""

    def run(self, unit: Unit) -> None:
        """Run a unit's procedures, one after the other."""
        for body, rights, takes, ages in self.plan.members[unit.name]:
            self._taken, inputs = rights.takes, self._inputs
            if self._replay is not None and rights.name in self._replay.procedures:
                self._inputs = inputs | self._with_letters(takes, self._replay.batches)
            said = body(Transaction(rights, self), *map(self.batch_of, takes))
            if said is not None:
                check_ran(said, rights.of)
            if self._replay is not None:
                self._inputs = inputs  # the letters were for this one alone
            for window in ages:
                if window.name not in self.filled:  # it ages although nothing was put into it
                    self._fill(window, [])
            if self.broken is not None:
                raise self.broken  # whatever the body made of it

    def _with_letters(self, takes: list[str], letters: Mapping[str, Batch]) -> dict[str, Batch]:
        """Put letters that run again after what a procedure is given anyway."""
        return {
            name: self.batch_of(name).with_more(letters[name]) for name in takes if name in letters
        }

    def batch_of(self, stream: str) -> Batch:
        """Give a stream's batch: as it was taken, or as it has been given so far."""
        batch = self._inputs.get(stream)
        if batch is None:
            declared = self.plan.dataflow.streams[stream]
            batch = joined(declared, self.batch, self.given.get(stream, []))
            if stream in self._taken:  # within a nested group: its producer is done
                self._inputs = {**self._inputs, stream: batch}  # the next attempt has none
        return batch

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
                self._trigger(trigger, joined(target, self.batch, [part]))
        else:
            self.staged.append(Staged(target, False, part))

    def delete(self, rights: Rights, outlet: Outlet, keys: Rows) -> None:
        """Keep the keys that a body deletes from an outlet."""
        what = f"{rights.of} deletes from {outlet.name}"
        part = self.plan.key_fitters[id(outlet)].fit(keys, what)
        if len(part):
            self.staged.append(Staged(outlet, True, part))

    def end(self) -> None:
        """Let nobody do more with it: what came late would be another batch's, or nobody's."""
        self.broken = OVER

    def failed(self, error: sqlite3.Error) -> None:
        """Note an error of a statement of the body's."""
        # SQLite may have ended the transaction by itself. What ran after that would commit.
        if not self.cursor.connection.in_transaction or primary_code(error) in OF_THE_MACHINE:
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
                self._trigger(trigger)

        table = self.plan.windows[window.name]
        try:
            table.put(self.cursor, tuples_of(part), self.batch, slid if triggers else None)
        except Exception as error:
            self.broken = self.broken or error  # half of it is there, even if the body goes on
            raise

    def _trigger(self, trigger: Trigger, *batches: Batch) -> None:
        rights = self.plan.rights[trigger.name]
        try:
            said = trigger.body(Transaction(rights, self), *batches)
            if said is not None:
                check_ran(said, rights.of)
        except Exception as error:
            self.broken = self.broken or error  # it fails with its procedure, and that with it
            raise


@contextmanager
def alone(
    plan: Plan,
    cursor: sqlite3.Cursor,
    access: Access,
    lookups: Lookups | None,
    rights: Rights,
    body: Body,
    hint: str = "",
) -> Iterator[Transaction]:
    """Give the transaction of a body that is of no unit, and say what failed if it does."""
    execution = Execution(plan, cursor, access, lookups, 0, {})
    try:
        yield Transaction(rights, execution)
        if execution.broken is not None:
            raise execution.broken
    except Exception as error:
        cause = execution.broken or error  # whatever the body made of it
        raise blamed(f"{rights.of} failed", cause, [body], hint) from error
    finally:
        execution.end()


def check_ran(said: object, of: str) -> None:
    """Refuse a body that has not run: what it returned would have to be run first."""
    if isinstance(said, Generator | Awaitable | AsyncGenerator):
        raise CoreError(
            f"{of} has not run: its body gives a {type(said).__name__}",
            hint="Write a plain function: no yield, no async.",
        )


def joined(stream: Stream, batch: int, parts: list[Part]) -> Batch:
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
