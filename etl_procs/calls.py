"""Calls: routines that a client runs as one transaction, serializable with every batch.

Any process may make them: each call takes the core's write lock for its own short transaction.
With a key of the caller's, a call that is made again gives the first one's result.
"""

import json
import sqlite3
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from etl_procs.asking import Connects
from etl_procs.batch import tuples_of
from etl_procs.columns import Columns
from etl_procs.core import core_path
from etl_procs.dataflow import Dataflow
from etl_procs.errors import Aborted, BadCall, CoreError, KeyReused, NoSuchCall
from etl_procs.execution import Plan, alone
from etl_procs.fitting import Fitter, Rows
from etl_procs.model import Call
from etl_procs.reader import Reader
from etl_procs.routing import partition_of
from etl_procs.store import GuardedStore, Write
from headrace.clock import Clock, SystemClock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints

KEPT = """\
SELECT arguments, result FROM headrace_calls
WHERE dataflow = :dataflow AND call = :call AND key = :key"""

KEEP = """\
INSERT INTO headrace_calls (dataflow, call, key, arguments, result)
VALUES (:dataflow, :call, :key, :arguments, :result)"""

FORGET = "DELETE FROM headrace_calls WHERE number <= (SELECT max(number) FROM headrace_calls) - ?"

REACH = """\
INSERT INTO headrace_callers (source, number, row) VALUES (:source, :number, :row)
ON CONFLICT DO UPDATE SET number = excluded.number, row = excluded.row
WHERE (number, row) < (excluded.number, excluded.row)"""

KEY_LENGTH_MAX = 200
NOTHING_KEPT = "Nothing of it was kept."
CLOCK = SystemClock()

Result = list[dict[str, Any]]


class Turn(NamedTuple):
    """Which of a source's calls one is: of a result of this number, that for this row. A source
    makes its calls in this order; one that was made is not made again, however long ago it was.
    """

    source: str
    number: int
    row: int


class Caller:
    """Makes calls on one core; its methods may be called from any thread, one at a time."""

    def __init__(
        self,
        path: Path,
        dataflows: Mapping[str, Dataflow],
        settings: Settings,
        crash: CrashPoints,
        clock: Clock = CLOCK,
        warehouses: Connects | None = None,
    ) -> None:
        Reader(path).check()
        # Kafka has no copy of a call: it is on disk, and so is what it saw, before it is answered.
        strong = replace(settings, durability="strong")
        self._store = GuardedStore(path, strong, crash, clock, warehouses)
        self._kept_max = settings.calls_kept_max
        self._statement_ms_max = settings.statement_ms_max
        self._clock = clock
        self._lock = threading.Lock()
        self._plans = {name: Plan(dataflow) for name, dataflow in dataflows.items()}

    def call(
        self, dataflow: str, name: str, arguments: Mapping[str, Any], *, key: str = ""
    ) -> Result:
        """Run a call and give its rows; with a `key`, run it at most once."""
        call = self._find(dataflow, name)
        given = _arguments(call, arguments)
        if len(key) > KEY_LENGTH_MAX or not key.isprintable():
            raise BadCall(
                f"the key of a call is {key[:KEY_LENGTH_MAX]!r}, of {len(key)} characters",
                hint=f"It may have {KEY_LENGTH_MAX}, all of them printable.",
            )
        with self._lock, self._store.commit(Write.CALL) as connection:
            of = {"dataflow": dataflow, "call": name, "key": key}
            kept = connection.execute(KEPT, of).fetchone() if key else None
            if kept is not None:
                return _repeated(call, key, given, *kept)
            result = self._run(connection, call, given)
            if key:
                texts = {"arguments": _text(given), "result": _text(result)}
                connection.execute(KEEP, {**of, **texts})
                connection.execute(FORGET, [self._kept_max])
        return result

    def call_once(self, dataflow: str, name: str, arguments: Mapping[str, Any], turn: Turn) -> None:
        """Run a call, unless it was run already."""
        call = self._find(dataflow, name)
        given = _arguments(call, arguments)
        with self._lock, self._store.commit(Write.CALL) as connection:
            if connection.execute(REACH, turn._asdict()).rowcount:
                self._run(connection, call, given)

    def close(self) -> None:
        """Close the core's file."""
        with self._lock:
            self._store.close()

    def _find(self, dataflow: str, name: str) -> Call:
        plan = self._plans.get(dataflow)
        call = plan and plan.dataflow.calls.get(name)
        if not call:
            flows = [plan.dataflow for plan in self._plans.values()]
            known = sorted(f"{flow.name}.{call}" for flow in flows for call in flow.calls)
            raise NoSuchCall(
                f"there is no call {dataflow}.{name}",
                hint=f"The calls are: {', '.join(known) or 'none'}.",
            )
        return call

    def _run(self, connection: sqlite3.Connection, call: Call, given: Mapping[str, Any]) -> Result:
        plan, store, cursor = self._plans[call.dataflow], self._store, connection.cursor()
        rights = plan.rights[call.name]
        store.overdue_at = self._clock.monotonic() + self._statement_ms_max / 1000
        try:
            with alone(
                plan, cursor, store.access, store.lookups, rights, call.body, NOTHING_KEPT
            ) as tx:
                return _result(call, call.body(tx, **given))
        except Aborted as error:
            raise Aborted(error.what, hint=NOTHING_KEPT) from error
        finally:
            store.overdue_at = inf


class Callers:
    """Makes calls on the cores of a data folder, from any thread; each core is opened when it is
    first needed.
    """

    def __init__(
        self,
        home: Path,
        dataflows: Mapping[str, Dataflow],
        settings: Settings,
        crash: CrashPoints,
        warehouses: Connects | None = None,
    ) -> None:
        self.dataflows = dataflows

        def opened(partition: int) -> Caller:
            path = core_path(home, partition)
            return Caller(path, dataflows, settings, crash, warehouses=warehouses)

        self._open = opened
        self._opening = threading.Lock()
        self._opened: dict[int, Caller] = {}
        self._closing = ExitStack()

    def call(
        self, dataflow: str, name: str, arguments: Mapping[str, Any], *, key: str = ""
    ) -> Result:
        """Run a call and give its rows; with a `key`, run it at most once."""
        caller = self._caller(dataflow, name, arguments)
        return caller.call(dataflow, name, arguments, key=key)

    def call_once(self, dataflow: str, name: str, arguments: Mapping[str, Any], turn: Turn) -> None:
        """Run a call, unless it was run already."""
        self._caller(dataflow, name, arguments).call_once(dataflow, name, arguments, turn)

    def close(self) -> None:
        """Close the cores' files."""
        with self._opening:
            self._opened.clear()
            self._closing.close()

    def _partition(self, dataflow: str, name: str, arguments: Mapping[str, Any]) -> int:
        flow = self.dataflows.get(dataflow)
        call = flow.calls.get(name) if flow else None
        if flow is None or call is None or flow.partitions == 1:
            return 0  # any core refuses what nobody declares
        return partition_of(arguments.get(call.key), flow.partitions)

    def _caller(self, dataflow: str, name: str, arguments: Mapping[str, Any]) -> Caller:
        partition = self._partition(dataflow, name, arguments)
        with self._opening:
            if partition not in self._opened:
                caller = self._opened[partition] = self._open(partition)
                self._closing.callback(caller.close)
            return self._opened[partition]


def _arguments(call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check what a call is given; an argument that may be NULL is so when it is left out."""
    columns = call.arguments
    hint = f"Its arguments: {columns.sql or 'none'}."
    if unknown := sorted(arguments.keys() - set(columns.names)):
        raise BadCall(f"call {call.full_name} has no argument {', '.join(unknown)}", hint=hint)
    try:
        return _fitted(columns, [arguments], f"call {call.full_name} is given")[0]
    except CoreError as error:
        raise BadCall(error.what, hint=hint) from None


def _result(call: Call, rows: Any) -> Result:
    """Check what a body returned: one row, several, or nothing."""
    several = [rows] if isinstance(rows, Mapping) else () if rows is None else rows
    return _fitted(call.returns, several, f"call {call.full_name} returns")


def _fitted(columns: Columns, rows: Rows, what: str) -> Result:
    part = Fitter(columns).fit(rows, what)
    return [dict(zip(columns.names, values, strict=True)) for values in tuples_of(part)]


def _repeated(call: Call, key: str, given: Any, arguments: str, result: str) -> Result:
    if arguments != _text(given):
        raise KeyReused(
            f"the key {key!r} was used for {call.full_name} with other arguments: {arguments}",
            hint="A key names one call: give this one another key.",
        )
    kept: Result = json.loads(result)
    return kept


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
