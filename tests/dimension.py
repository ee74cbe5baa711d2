"""A dimension whose dataflow does what each batch, or call, says; every lookup in it is compared
with what plain SQL answers in the same transaction at that moment.

    dimension.py HOME   changes one and looks up in it until it is killed; says how often it did,
                        and what was wrong
"""

import json
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from etl_procs import Batch, Dataflow, Lookup, Transaction, by_count
from etl_procs.calls import Caller
from etl_procs.core import Core, core_path
from etl_procs.errors import Aborted
from headrace.clock import SystemClock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints

COLUMNS = "a INTEGER, b TEXT, t INTEGER, d TEXT, price REAL, note TEXT NOT NULL"
NAMES = ("sk", "a", "b", "t", "d", "price", "note")
SHAPES: Mapping[str, tuple[tuple[str, ...], str, bool]] = {
    "number": (("a",), "t", False),
    "number_or_earliest": (("a",), "t", True),
    "text": (("b",), "d", False),
    "text_or_earliest": (("b",), "d", True),
    "both": (("a", "b"), "d", False),
    "alone": (("b",), "", False),
    "number_alone": (("a",), "", False),
}
GIVES = ("sk", "price", "note")

Op = Sequence[Any]


def expected(
    mine: Sequence[Mapping[str, Any]], lookup: Lookup, keys: Sequence[Any], at: Any
) -> dict[str, Any]:
    """Say what is right for one key, of whose versions these are all, in order."""
    if None in keys or (lookup.at and at is None):
        return dict.fromkeys(GIVES)
    if lookup.at:
        mine = [row for row in mine if row[lookup.at] is not None]
        # SQLite compares texts as the bytes of UTF-8.
        before = [row for row in mine if _bytes(row[lookup.at]) <= _bytes(at)]
        mine = before[-1:] or (mine[:1] if lookup.or_earliest else [])
    return {name: mine[0][name] for name in GIVES} if mine else dict.fromkeys(GIVES)


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def act(tx: Transaction, lookup: Lookup, ops: Sequence[Op], wrong: list[str]) -> None:
    """Do what is said, and note where a lookup differs."""
    for op, *of in ops:
        with suppress(sqlite3.IntegrityError):
            match op:
                case "insert" | "insert or replace" | "insert or ignore" | "insert or fail":
                    places = ", ".join("(?, ?, ?, ?, ?, ?, ?)" for _ in of)
                    values = [value for row in of for value in row]
                    tx.execute(f"{op} INTO dim VALUES {places}", values)
                case "update":
                    column, value, sks = of
                    marks = ", ".join("?" for _ in sks)
                    tx.execute(f"UPDATE dim SET {column} = ? WHERE sk IN ({marks})", [value, *sks])
                case "delete":
                    tx.execute(f"DELETE FROM dim WHERE sk IN ({', '.join('?' for _ in of)})", of)
                case "delete all":
                    tx.execute("DELETE FROM dim")
                case "abort":
                    tx.abort("as it was told")
                case "look":
                    look(tx, lookup, of, wrong)


def look(tx: Transaction, lookup: Lookup, asked: Sequence[Any], wrong: list[str]) -> None:
    """Look up [key ..., moment] of each, and compare."""
    columns = [list(column) for column in zip(*asked, strict=True)] or [[], [], []]
    by = dict(zip(("a", "b", "t", "d"), columns, strict=False))
    keys = [by[name] for name in lookup.key]
    at = by[lookup.at] if lookup.at else None
    found = tx.lookup(lookup, keys[0] if len(keys) == 1 else keys, at)
    assert found.schema.names == list(GIVES)
    versions = defaultdict(list)
    for row in tx.query(f"SELECT * FROM dim ORDER BY {lookup.at or 1}"):
        versions[tuple(row[name] for name in lookup.key)].append(row)
    for index, row in enumerate(found.to_pylist()):
        key = [column[index] for column in keys]
        right = expected(versions[tuple(key)], lookup, key, at and at[index])
        if row != right:
            wrong.append(f"{key} at {at and at[index]!r}: {row}, and not {right}")


def dataflow(shape: str, wrong: list[str], checks: str = "") -> Dataflow:
    """Declare a dimension that is looked up in by one of the shapes."""
    key, at, or_earliest = SHAPES[shape]
    unique = ", ".join([*key, *([at] if at else [])])
    flow = Dataflow("history")
    steps = flow.stream("steps", "ops TEXT NOT NULL", batches=by_count(1))
    dim = flow.table("dim", f"sk INTEGER PRIMARY KEY, {COLUMNS}, UNIQUE ({unique}){checks}")
    lookup = flow.lookup("found", dim, key=key, at=at, gives=GIVES, or_earliest=or_earliest)

    @flow.procedure(takes=steps, writes=dim, looks=lookup)
    def step(tx: Transaction, batch: Batch) -> None:
        for row in batch.rows():
            act(tx, lookup, json.loads(str(row["ops"])), wrong)

    @flow.call(arguments="ops TEXT NOT NULL", writes=dim, looks=lookup)
    def say(tx: Transaction, ops: str) -> None:
        act(tx, lookup, json.loads(ops), wrong)

    return flow


@dataclass
class Dimension:
    """A core with a dimension, beside which others make calls."""

    home: Path
    shape: str
    lookups_mb_max: int = 64
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.flow = dataflow(self.shape, self.wrong)
        self.caller: Caller | None = None
        self.open()

    def open(self) -> None:
        settings = Settings(durability="weak", attempts_max=2, lookups_mb_max=self.lookups_mb_max)
        path, crash = core_path(self.home), CrashPoints()
        self.core = Core(path, settings=settings, clock=SystemClock(), crash=crash)
        self.core.prepare([self.flow])
        self.core.open("history", {"steps": [0]})
        if self.caller is None:
            self.caller = Caller(path, {"history": self.flow}, settings, crash)

    def run(self, *batches: Sequence[Op]) -> None:
        """Run batches, together if it is so much at once."""
        steps = self.flow.streams["steps"]
        for ops in batches:
            rows = pa.table({"ops": [json.dumps(ops)]})
            self.core.enqueue("history", {steps: rows.cast(steps.columns.arrow)})
        self.core.drain()

    def call(self, ops: Sequence[Op]) -> None:
        """Do it from outside, with a connection and indexes of its own."""
        assert self.caller is not None
        with suppress(Aborted):
            self.caller.call("history", "say", {"ops": json.dumps(ops)})

    def restart(self) -> None:
        """Let the engine end, and another one begin; who makes calls stays."""
        self.core.close()
        self.open()

    def evict(self) -> None:
        """Let the engine's index go."""
        lookups = self.core._store.lookups
        for kept in lookups._kept.values():
            kept.drop()

    def close(self) -> None:
        self.core.close()
        if self.caller is not None:
            self.caller.close()


def busy(seed: int, keys: int) -> list[Op]:
    """Change some of so many keys, and look all of them up."""
    random = Random(seed)  # noqa: S311 - no secret
    some = random.sample(range(keys), 20)
    days = [f"2020-01-{random.randint(1, 28):02}" for _ in range(keys)]
    looked = ["look", *([n % 7, f"x{n}", n, day] for n, day in enumerate(days))]
    changes: list[Op] = [
        ["update", "note", f"n{seed}", some[:5]],
        ["update", "d", days[0], some[5:6]],
        ["delete", *some[6:10]],
        ["insert or replace", *([n, n % 7, f"x{n}", n, days[n], 0.5, "u"] for n in some[10:])],
        [
            "insert or ignore",
            *([1_000 * seed + n, n % 7, f"x{n}", n, days[n], 0.5, "v"] for n in some[:10]),
        ],
    ]
    random.shuffle(changes)
    return [*changes, looked, *([["abort"]] if seed % 5 == 0 else [])]


def main(home: str) -> None:
    """Go on until somebody ends it."""
    dimension = Dimension(Path(home), "text")
    for turn in range(1, 1_000_000):
        dimension.run(*(busy(3 * turn + n, 300) for n in range(3)))
        print(turn, *dimension.wrong, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
