"""Random dataflows: what they are made of, and one interpreter of their bodies.

A body is a list of operations, each a few lines over `Hands`. The core gives it hands that run
SQL; the reference model gives it hands that change dicts. So the two can only differ in what is
around a body: order, atomicity, windows, batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from hypothesis import strategies as st

from etl_procs import (
    Batch,
    Dataflow,
    Stream,
    Transaction,
    by_count,
    by_interval,
    by_punctuation,
    last_batches,
    last_interval,
    last_tuples,
)
from etl_procs.model import Given
from etl_procs.rules import Extent, Rule

COLUMNS = "k INTEGER NOT NULL, v INTEGER NOT NULL, t INTEGER NOT NULL"
TABLES = ("t0", "t1")
APPENDED, KEYED = "log", "latest"
FLOW = "flow"


class Values(NamedTuple):
    """A tuple of every stream, window and outlet."""

    k: int
    v: int
    t: int


class Op(NamedTuple):
    """One operation of a body: on every tuple, or on those whose v leaves rest `b` by `a`."""

    kind: str
    target: str = ""
    a: int = 2
    b: int = 0


@dataclass(frozen=True)
class WindowSpec:
    name: str
    kind: str
    size: int
    slide: int

    @property
    def extent(self) -> Extent:
        if self.kind == "tuples":
            return last_tuples(self.size, slide=self.slide)
        if self.kind == "batches":
            return last_batches(self.size, slide=self.slide)
        return last_interval("t", self.size, slide=self.slide)


@dataclass(frozen=True)
class ProcedureSpec:
    name: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    ops: tuple[Op, ...]
    window: WindowSpec | None


@dataclass(frozen=True)
class Spec:
    """A dataflow. Border streams have the tuples of a batch, or 0: cut by punctuations; or all of
    them have the interval of event time, less than 0.
    """

    borders: tuple[tuple[str, int], ...]
    procedures: tuple[ProcedureSpec, ...]
    nest: tuple[str, ...]
    triggered: tuple[str, ...]
    """Streams with a trigger, which adds what they are given to the first table."""

    @property
    def interval(self) -> int:
        return max(0, -self.borders[0][1])

    def partitions(self, stream: str) -> tuple[int, ...]:
        return (0,) if dict(self.borders)[stream] > 0 else (0, 1)


class Hands(Protocol):
    """What an operation may do."""

    def add(self, table: str, key: int, value: int) -> None: ...
    def put(self, table: str, key: int, value: int) -> None: ...
    def get(self, table: str, key: int) -> int: ...
    def totals(self, aggregate: str) -> list[tuple[int, int, int]]: ...
    def emit(self, target: str, rows: list[Values], *, as_arrow: bool) -> None: ...
    def delete(self, keys: list[int]) -> None: ...
    def reject(self, row: Any, reason: str) -> None: ...
    def ruin(self) -> None: ...


class Raised(Exception):
    """What a body raises."""


def perform(
    procedure: ProcedureSpec, hands: Hands, rows: Sequence[tuple[Any, Values]], attempt: int
) -> None:
    """Run a body: on its rows, each with what `reject` takes."""
    kept = list(rows)
    for op in procedure.ops:
        chosen = [values for _, values in kept if values.v % op.a == op.b]
        others = [values for _, values in kept if values.v % op.a != op.b]
        match op.kind:
            case "add":
                for k, v, _ in others:
                    hands.add(op.target, k % 3, v)
            case "copy":
                hands.emit(op.target, others, as_arrow=op.b == 1)
            case "look":
                found = [Values(k, hands.get(TABLES[0], k % 3) % 13, t) for k, _, t in others]
                hands.emit(op.target, found, as_arrow=False)
            case "window":
                if others:
                    hands.emit(op.target, others, as_arrow=op.b == 1)
            case "total":
                for key, count, total in hands.totals(op.target):
                    hands.put(TABLES[1], 100 + key, 1000 * count + total)
            case "log":
                hands.emit(APPENDED, others, as_arrow=op.b == 1)
            case "latest":
                hands.emit(KEYED, others, as_arrow=False)
                hands.delete([values.k for values in chosen])
            case "reject":
                for row, values in kept:
                    if values in chosen:
                        hands.reject(row, f"{values.v} by {procedure.name}")
                kept = [(row, values) for row, values in kept if values not in chosen]
            case "raise":
                if chosen:
                    raise Raised(f"{procedure.name} on {chosen[0].v}")
            case "ruin":
                if chosen:
                    hands.ruin()
            case "flaky":
                if chosen and attempt == 1:
                    raise Raised("only the first time")
            case _:
                raise AssertionError(op.kind)


class CoreHands:
    """Hands over a transaction of the core."""

    def __init__(self, tx: Transaction, flow: Dataflow) -> None:
        self._tx, self._flow = tx, flow

    def add(self, table: str, key: int, value: int) -> None:
        self._tx.execute(
            f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT DO UPDATE SET v = v + excluded.v",
            (key, value),
        )

    def put(self, table: str, key: int, value: int) -> None:
        self._tx.execute(
            f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT DO UPDATE SET v = excluded.v",
            (key, value),
        )

    def get(self, table: str, key: int) -> int:
        found = self._tx.query(f"SELECT v FROM {table} WHERE k = ?", (key,))
        return int(found[0]["v"]) if found else 0

    def totals(self, aggregate: str) -> list[tuple[int, int, int]]:
        rows = self._tx.query(f"SELECT k, n, total FROM {aggregate} ORDER BY k")
        return [(row["k"], row["n"], row["total"]) for row in rows]

    def emit(self, target: str, rows: list[Values], *, as_arrow: bool) -> None:
        flow = self._flow
        things: dict[str, Given] = {**flow.streams, **flow.windows, **flow.outlets}
        dicts = [values._asdict() for values in rows]
        schema = pa.schema([(name, pa.int64()) for name in Values._fields])
        self._tx.emit(things[target], pa.Table.from_pylist(dicts, schema) if as_arrow else dicts)

    def delete(self, keys: list[int]) -> None:
        self._tx.delete(self._flow.outlets[KEYED], [{"k": key} for key in keys])

    def reject(self, row: Any, reason: str) -> None:
        self._tx.reject(row, reason)

    def ruin(self) -> None:
        """Fail so that SQLite ends the whole transaction, and not just this execution."""
        for _ in range(2):
            self._tx.execute(f"INSERT OR ROLLBACK INTO {TABLES[0]} VALUES (-1, 0)")


def build(spec: Spec) -> Dataflow:
    """Declare a dataflow as a user would."""
    flow = Dataflow(FLOW)
    for name in TABLES:
        flow.table(name, "k INTEGER PRIMARY KEY, v INTEGER NOT NULL")
    flow.outlet(APPENDED, COLUMNS)
    flow.outlet(KEYED, COLUMNS.replace("v INTEGER NOT NULL", "v INTEGER"), key="k")
    for name, tuples in spec.borders:
        flow.stream(name, COLUMNS, batches=_rule(tuples))
    for procedure in spec.procedures:
        for name in procedure.gives:
            flow.stream(name, COLUMNS)
        if procedure.window:
            window = flow.window(procedure.window.name, COLUMNS, procedure.window.extent)
            flow.aggregate(f"{window.name}_all", window, n="count(*)", total="sum(v)")
            flow.aggregate(f"{window.name}_by_k", window, by="k", n="count(*)", total="sum(v)")
    attempts: dict[tuple[str, int | str], int] = {}
    bodies = {p.name: _declare(flow, p, spec.nest, attempts) for p in spec.procedures}
    for name in spec.triggered:
        _trigger(flow, flow.streams[name])
    if spec.nest:
        flow.nest(*(bodies[name] for name in spec.nest))
    _declare_calls(flow)
    flow.check()
    return flow


def _rule(tuples: int) -> Rule:
    if tuples < 0:
        return by_interval("t", -tuples)
    return by_count(tuples) if tuples else by_punctuation()


def _declare(
    flow: Dataflow,
    procedure: ProcedureSpec,
    nest: tuple[str, ...],
    attempts: dict[tuple[str, int | str], int],
) -> Any:
    unit = nest if procedure.name in nest else (procedure.name,)

    def body(tx: Transaction, *batches: Batch) -> None:
        rows = [
            (row, Values(*batch.tuples[row.index]))  # type: ignore[arg-type]
            for batch in batches
            for row in batch.rows()
        ]
        # A round that has failed may run again under another id: dead letters may come before it.
        content = str([(values.k, values.t) for _, values in rows])
        for seen in (tx.batch, content):
            attempts[procedure.name, seen] = attempts.get((procedure.name, seen), 0) + 1
        first = attempts[procedure.name, content]
        attempt = max(first, *(attempts.get((member, tx.batch), 0) for member in unit))
        perform(procedure, CoreHands(tx, flow), rows, attempt)

    body.__name__ = procedure.name
    windows = [flow.windows[procedure.window.name]] if procedure.window else []
    return flow.procedure(
        takes=[flow.streams[name] for name in procedure.takes],
        writes=list(flow.tables.values()),
        gives=[*(flow.streams[s] for s in procedure.gives), *windows, *flow.outlets.values()],
    )(body)


def _trigger(flow: Dataflow, stream: Stream) -> None:
    def trigger(tx: Transaction, batch: Batch) -> None:
        for row in batch.rows():
            CoreHands(tx, flow).add(TABLES[0], 50, int(row["v"] or 0))

    trigger.__name__ = f"on_{stream.name}"
    flow.trigger(on=stream, writes=[flow.tables[TABLES[0]]])(trigger)


def _declare_calls(flow: Dataflow) -> None:
    @flow.call(
        arguments="k INTEGER NOT NULL, n INTEGER NOT NULL",
        returns="v INTEGER NOT NULL",
        writes=[flow.tables[TABLES[0]]],
    )
    def bump(tx: Transaction, k: int, n: int) -> dict[str, int]:
        return {"v": bumped(CoreHands(tx, flow), k, n)}


def bumped(hands: Hands, k: int, n: int) -> int:
    """Do what the call does: change a row, read it, and fail for some arguments."""
    hands.add(TABLES[0], k, n)
    if n % 5 == 0:
        raise Raised(f"call with {n}")
    return hands.get(TABLES[0], k)


OPS = ("add", "log", "latest", "window", "total", "reject", "raise", "flaky", "ruin")


@st.composite
def _windows(draw: st.DrawFn, name: str) -> WindowSpec:
    kind = draw(st.sampled_from(["tuples", "batches", "interval"]))
    return WindowSpec(name, kind, draw(st.integers(1, 6)), draw(st.integers(1, 4)))


@st.composite
def _ops(draw: st.DrawFn, window: WindowSpec | None) -> list[Op]:
    ops: list[Op] = []
    for kind in draw(st.lists(st.sampled_from(OPS), min_size=1, max_size=4)):
        of, rest = draw(st.integers(2, 7)), draw(st.integers(0, 1))
        if kind in ("window", "total"):
            if window is None or any(op.kind == kind for op in ops):
                continue
            target = window.name if kind == "window" else window.name + "_by_k"
            ops.append(Op(kind, target, of, rest))
        else:
            target = draw(st.sampled_from(TABLES)) if kind == "add" else ""
            # Most batches should come through.
            of += 6 if kind in ("raise", "reject", "ruin") else 0
            ops.append(Op(kind, target, of, rest))
    return ops


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Draw a dataflow: a random graph of procedures with random bodies."""
    borders = [
        (f"b{i}", draw(st.sampled_from([0, 1, 2, 3]))) for i in range(draw(st.integers(1, 2)))
    ]
    interval = draw(st.sampled_from([0, 0, 0, 2, 5]))
    if interval:
        borders = [(name, -interval) for name, _ in borders]
    streams = [name for name, _ in borders]
    drafts: list[tuple[str, set[str], list[str], list[Op], WindowSpec | None]] = []
    for i in range(draw(st.integers(2, 5))):
        takes = set(draw(st.lists(st.sampled_from(streams), min_size=1, max_size=2)))
        if i == 0:
            takes &= {name for name, _ in borders}
        window = draw(st.none() | _windows(f"w{i}"))
        ops = draw(_ops(window))
        gives = [f"s{i}{j}" for j in range(draw(st.integers(0, 2)))]
        for given in gives:
            kind, at = draw(st.sampled_from(["copy", "look"])), draw(st.integers(0, len(ops)))
            ops.insert(at, Op(kind, given, draw(st.integers(2, 7)), draw(st.integers(0, 1))))
        drafts.append((f"p{i}", takes, gives, ops, window))
        streams += gives
    taken = {stream for draft in drafts for stream in draft[1]}
    drafts[0][1].update(name for name, _ in borders if name not in taken)
    procedures = []
    for name, takes, gives, ops, window in drafts:
        gone = {given for given in gives if given not in taken}
        if not any(op.kind == "window" for op in ops):
            ops = [*ops, Op("window", window.name)] if window else ops
        procedures.append(
            ProcedureSpec(
                name,
                tuple(sorted(takes)),
                tuple(given for given in gives if given not in gone),
                tuple(op for op in ops if op.target not in gone or not op.target),
                window,
            )
        )
    first = draw(st.integers(0, len(procedures) - 1))
    after = draw(st.integers(first, len(procedures)))
    nest = tuple(p.name for p in procedures[first:after]) if after - first > 1 else ()
    interior = sorted(taken - {name for name, _ in borders})
    triggered = draw(st.lists(st.sampled_from(interior), unique=True)) if interior else []
    return Spec(tuple(borders), tuple(procedures), nest, tuple(triggered))
