"""A core on trial: its dataflows, a log that outlives it, a clock, and all that can be seen of it.

What is fed is also kept in a log, as Kafka would keep it, and given again to a core that is opened
anew. Offsets and punctuations are counted here, so that a test says only what is in a batch.
"""

import functools
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from flows import HeldClock, arrived, ended, punctuation

from etl_procs import Batch, Dataflow, Outlet, Stream, Transaction, letters
from etl_procs.batch import Arrived
from etl_procs.core import Core
from etl_procs.dead_letters import DeadLetters
from etl_procs.flow import Committed
from etl_procs.letter import DeadLetter
from etl_procs.origin import Origin
from etl_procs.reader import Reader
from headrace import config
from headrace.crash import CrashPoints

Body = Callable[..., Any]
Tuples = Iterable[Sequence[object]]


class JumpingClock(HeldClock):
    """A clock that goes on by `step` seconds whenever somebody looks at it."""

    step = 0.0

    def monotonic(self) -> float:
        self.seconds += self.step
        return self.seconds


class Trial:
    """One core under test."""

    def __init__(self, path: Path, *flows: Dataflow, **settings: Any) -> None:
        self.path = path
        self.flows = list(flows)
        self.clock = JumpingClock()
        self.settings = settings
        self.partitions: dict[str, list[int]] = {}
        """By topic; one partition unless a test says otherwise."""
        self.reader = Reader(path)
        self.log: list[Arrived] = []
        self.said: list[str] = []
        self._ends: dict[tuple[str, int], int] = {}
        self._marks: dict[str, int] = {}
        self.cores: list[Core] = []
        self.core = self.opened()

    def opened(self) -> Core:
        """Open a core on the file, as a new engine would; nothing is fed to it yet."""
        core = Core(
            self.path,
            settings=config.Core(**self.settings),
            clock=self.clock,
            crash=CrashPoints(),
        )
        self.cores.append(core)
        self.said = core.prepare(self.flows)
        for flow in self.flows:
            core.open(flow.name, {s.name: self.partitions.get(s.topic, [0]) for s in flow.borders})
        return core

    def reopen(self, *flows: Dataflow, read_again: bool = True) -> list[str]:
        """Close the core and open it anew, with other definitions if given; the log comes again."""
        self.close()
        self.flows = list(flows) or self.flows
        self.core = self.opened()
        if read_again:
            for part in self.log:
                self.core.feed(part)
        return self.said

    def forget(self, through: int) -> None:
        """Drop what its first dataflow has staged, as if a warehouse had it."""
        with closing(Origin(self.path, config.Core(**self.settings), CrashPoints())) as origin:
            forget(origin, self.flows[0].name, through)

    def close(self) -> None:
        while self.cores:
            self.cores.pop().close()

    def feed(self, stream: Stream, rows: Tuples, *, partition: int = 0) -> None:
        """Let tuples arrive, and end no batch."""
        rows = list(rows)
        first = self._first(stream, len(rows), partition)
        self.give(arrived(stream, rows, partition=partition, first=first))

    def end(self, stream: Stream, rows: Tuples = ()) -> None:
        """Let tuples arrive in partition 0, and the punctuation that makes a batch of them."""
        rows = list(rows)
        mark = self._marks[stream.topic] = self._marks.get(stream.topic, 0) + 1
        first = self._first(stream, len(rows) + 1, 0)
        self.give(ended(stream, rows, batch=mark, first=first))

    def mark(self, stream: Stream, batch: int, *, partition: int = 0) -> None:
        """Let a punctuation arrive in one partition."""
        offset = self._first(stream, 1, partition)
        self.give(punctuation(stream, batch, offset=offset, partition=partition))

    def give(self, part: Arrived) -> None:
        """Write to the log, and feed the core."""
        self.log.append(part)
        self.core.feed(part)

    def run(self, stream: Stream, *batches: Tuples) -> list[Committed]:
        """Make these batches arrive on one stream, and run all that is complete."""
        for rows in batches:
            self.end(stream, rows)
        return self.core.drain()

    def _first(self, stream: Stream, count: int, partition: int) -> int:
        first = self._ends.get((stream.topic, partition), 0)
        self._ends[stream.topic, partition] = first + count
        return first

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the file what is committed."""
        with self.reader.snapshot() as snapshot:
            return list(snapshot.query(sql)[1])

    def batch(self, flow: Dataflow) -> int:
        with self.reader.snapshot() as snapshot:
            return snapshot.batch(flow.name)

    def ledger(self) -> dict[str, int]:
        """Tell the last batch of each procedure."""
        return dict(self.query("SELECT procedure, batch FROM headrace_ledger"))

    def pending(self) -> list[tuple[str, int]]:
        """Name the batches that lie in the core, still to be taken."""
        return self.query("SELECT stream, batch FROM headrace_pending ORDER BY stream, batch")

    def staged(self, outlet: Outlet) -> list[tuple[Any, ...]]:
        """Give what waits for the warehouse, each row after its batch, in order."""
        with self.reader.snapshot() as snapshot:
            tables = list(snapshot.staged(outlet, after=0, through=2**62))
        return [tuple(row.values()) for table in tables for row in table.to_pylist()]

    def letters(self) -> list[DeadLetter]:
        with self.reader.snapshot() as snapshot:
            return list(snapshot.dead_letters)

    def changing(self) -> AbstractContextManager[DeadLetters]:
        """Open the dead letters to replay or drop some, as a command does."""
        return letters.changing([self.path], config.Core(), CrashPoints())

    def reasons(self) -> list[str]:
        return [letter.reason for letter in self.letters()]

    def only_reason(self) -> str:
        (reason,) = self.reasons()
        return reason

    def state(self) -> dict[str, Any]:
        """Give all that can be seen, apart from who holds the core and how batches were grouped."""
        schema = self.query("SELECT name FROM sqlite_schema WHERE type = 'table'")
        leave = {"headrace_core", "headrace_staged", "headrace_history", "headrace_epochs"}
        found: dict[str, Any] = {
            name: sorted(map(repr, self.query(f'SELECT * FROM "{name}"')))
            for (name,) in schema
            if name not in leave and not name.startswith("sqlite_")
        }
        found["epochs"] = self.query("SELECT dataflow, rule, epoch FROM headrace_epochs")
        for flow in self.flows:
            for outlet in flow.outlets.values():
                found[f"{flow.name} > {outlet.name}"] = self.staged(outlet)
            with self.reader.snapshot() as core:
                batches = range(1, core.batch(flow.name) + 1)
                found[f"{flow.name} < log"] = [core.origins(flow.name, b) for b in batches]
        return found

    def pragma(self, text: str) -> Any:
        """Set something on the connection that writes."""
        return self.core._store.connection.execute(f"PRAGMA {text}").fetchall()

    def disk_is_full(self) -> None:
        """Let the core's file not grow any more."""
        ((pages,),) = self.pragma("page_count")
        self.pragma(f"max_page_count = {pages}")

    def disk_has_room(self) -> None:
        self.pragma("max_page_count = 1000000")


def dump(path: Path) -> list[str]:
    """Write a file of the core out as SQL, apart from who holds it."""
    with closing(sqlite3.connect(path)) as connection:
        return [line for line in connection.iterdump() if '"headrace_core"' not in line]


def named(name: str, body: Body) -> Body:
    """Give a function the name that its routine shall have."""

    @functools.wraps(body)
    def routine(*arguments: Any, **more: Any) -> Any:
        return body(*arguments, **more)

    routine.__name__ = name
    return routine


def pass_on(*targets: Any) -> Body:
    """Make a body that gives each of its batches on, whole."""

    def body(tx: Transaction, *batches: Batch) -> None:
        for target, batch in itertools.product(targets, batches):
            tx.emit(target, batch.table)

    return body


def nothing(tx: Transaction, *_batches: Batch) -> None:
    """Do nothing with a batch."""


def forget(origin: Origin, dataflow: str, through: int) -> None:
    """Drop what a dataflow has staged, as if a warehouse had it."""
    origin.feed(dataflow, ["somewhere"])
    origin.confirm(dataflow, "somewhere", through)
