"""Core and reference model, driven by the same random steps, hold the same state after each.

A step is tuples, punctuations, groups of batches, a call, a kill, another engine, a replay. The
model is told only where the ledger is; everything else that can be seen must follow from that.
`make prove` searches for longer.
"""

import json
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from flows import in_chunks, offsets
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from random_flows import APPENDED, FLOW, KEYED, TABLES, Raised, Spec, Values, build, specs
from reference import ATTEMPTS, Item, Letter, Model, Record
from trial import forget

from etl_procs import graph
from etl_procs.batch import ARRIVAL, Arrived, offset_of, place_of
from etl_procs.calls import Caller
from etl_procs.core import Core
from etl_procs.dead_letters import DeadLetters
from etl_procs.errors import BadCall, ProcedureFailed, Superseded
from etl_procs.letter import DeadLetter
from etl_procs.origin import Origin
from etl_procs.publisher import Publisher
from etl_procs.reader import Reader
from etl_procs.store import Store, Write
from headrace import arrow
from headrace.config import Core as Settings
from headrace.crash import CrashPoints, Point

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Killed(BaseException):
    """What a kill is to a process that goes on living: nothing after it runs."""


class Kill(CrashPoints):
    """Ends the core's work at a point, when it is set to one."""

    at: Point | None = None

    def reached(self, point: Point) -> None:
        if point is self.at:
            raise Killed


class PacedClock:
    """A clock that goes on by its pace whenever it is looked at: so groups end anywhere."""

    pace_s = time_s = 0.0

    def now(self) -> datetime:
        return NOON

    def monotonic(self) -> float:
        self.time_s += self.pace_s
        return self.time_s


ROW = st.builds(Values, st.integers(0, 4), st.integers(0, 12), st.integers(0, 8))
ROWS = st.lists(st.none() | ROW | ROW | ROW | ROW, max_size=9)


class CoreAndModel(RuleBasedStateMachine):
    """The steps, and the comparison after each."""

    @initialize(spec=specs(), batches_max=st.integers(1, 6))
    def begin(self, spec: Spec, batches_max: int) -> None:
        logging.disable(logging.ERROR)  # bodies fail all the time
        self.spec, self.flow = spec, build(spec)
        note(f"{spec}")
        units = [tuple(p.name for p in unit.procedures) for unit in graph.units(self.flow)]
        self._check_topological(units)
        self.model = Model(spec, units)
        self.home = Path(tempfile.mkdtemp())
        self.path = self.home / "core.db"
        self.settings = Settings(
            durability="weak", attempts_max=ATTEMPTS, group_batches_max=batches_max
        )
        self.clock, self.kill = PacedClock(), Kill()
        self.forgotten = 0
        self.published: dict[str, int] = {}
        self.core = self._opened()
        self.caller = Caller(self.path, {FLOW: self.flow}, self.settings, self.kill)
        self.store = Store(self.path, self.settings, self.kill)

    def _check_topological(self, units: list[tuple[str, ...]]) -> None:
        assert not self.spec.nest or sorted(self.spec.nest) in map(sorted, units)
        place = {name: index for index, unit in enumerate(units) for name in unit}
        giver = {s: p.name for p in self.spec.procedures for s in p.gives}
        for procedure in self.spec.procedures:
            for stream in procedure.takes:
                if stream in giver:
                    one, other = place[giver[stream]], place[procedure.name]
                    assert one < other or (one == other and procedure.name in self.spec.nest)

    @rule(data=st.data())
    def feed(self, data: st.DataObject) -> None:
        for stream, log in self.model.log.items():
            partition = data.draw(st.sampled_from(self.spec.partitions(stream)))
            mine = [record for record in log if record.partition == partition]
            again = data.draw(st.integers(0, len(mine)))  # from there on, it was there before
            later = len(log) // 3  # event time goes on, more or less
            for row in data.draw(ROWS):
                values = row and row._replace(t=row.t + later)
                mine.append(Record(partition, len(mine), values))
                log.append(mine[-1])
            self._feed(stream, mine[again:])
        if data.draw(st.booleans()):
            self._commit()
        self._compare()

    @precondition(lambda self: any(tuples == 0 for _, tuples in self.spec.borders))
    @rule(data=st.data())
    def punctuate(self, data: st.DataObject) -> None:
        marked = [name for name, tuples in self.spec.borders if tuples == 0]
        stream = data.draw(st.sampled_from(marked))
        log = self.model.log[stream]
        for partition in data.draw(st.sampled_from([(0, 1), (0, 1), (1, 0), (0,), (1,)])):
            mine = [record for record in log if record.partition == partition]
            last = max((record.mark or 0 for record in mine), default=0)
            mark = last + data.draw(st.sampled_from([1, 1, 1, 2]))
            log.append(Record(partition, len(mine), mark=mark))
            self._feed(stream, [log[-1]])
        if data.draw(st.booleans()):
            self._commit()
        self._compare()

    @rule(pace_s=st.sampled_from([0.0, 0.003, 0.007, 1.0]))
    def hurry(self, pace_s: float) -> None:
        self.clock.pace_s = pace_s

    @rule()
    def commit(self) -> None:
        self._commit()
        self._compare()

    @rule()
    def drain(self) -> None:
        while self._commit():
            self._compare()
        assert not self.model.has_work, self._letters()
        self._compare()
        assert self._pending() == {}

    @rule(
        k=st.integers(0, 3),
        n=st.integers(1, 6),
        key=st.sampled_from(["", "one", "two"]),
        at=st.sampled_from([None, None, Point.CORE_CALL_BEFORE, Point.CORE_CALL_AFTER]),
    )
    def call(self, k: int, n: int, key: str, at: Point | None) -> None:
        def made() -> int:
            (row,) = self.caller.call(FLOW, "bump", {"k": k, "n": n}, key=key)
            return int(row["v"])

        given = self.model.calls.get(key, ((k, n), 0))[0]
        if given != (k, n):
            with pytest.raises(BadCall):
                made()
            return
        if key not in self.model.calls and n % 5 == 0:
            with pytest.raises(ProcedureFailed):
                made()
            with pytest.raises(Raised):
                self.model.call(k, n, key)
            return
        self.kill.at = at
        try:
            result: int | None = made()
        except Killed:
            result = None
        self.kill.at = None
        if at is not Point.CORE_CALL_BEFORE:
            expected = self.model.call(k, n, key)
            assert result in (expected, None)
        self._compare()

    @rule(
        at=st.sampled_from([None, Point.CORE_COMMIT_BEFORE, Point.CORE_COMMIT_AFTER]),
        from_the_start=st.booleans(),
    )
    def crash(self, at: Point | None, from_the_start: bool) -> None:
        """Kill the core, between two groups or amid one, and begin again where it was."""
        if at is not None:
            self.kill.at = at
            try:
                self._commit()
            except Killed:
                self.model.advance(self._ledger())
            self.kill.at = None
        self.core.close()  # as the end of a process does: nothing is written by it
        self.core = self._opened()
        self._compare()
        self._feed_again(from_the_start)
        self._compare()

    @rule(works=st.booleans())
    def supersede(self, works: bool) -> None:
        """Open a second core: the first one changes nothing any more."""
        first = self.core
        self.core = self._opened()
        before = self._dump()
        if self.model.has_work:
            with pytest.raises(Superseded):
                first.commit_next()
        first.close()
        assert self._dump() == before
        self._feed_again(works)
        self._compare()

    @precondition(lambda self: self._letters_to_replay())
    @rule(data=st.data(), pace_s=st.sampled_from([None, 0.0, 1.0]))
    def replay(self, data: st.DataObject, pace_s: float | None) -> None:
        number = data.draw(st.sampled_from(self._letters_to_replay()))
        numbers = [letter.id for letter in self._letters()]
        with self.store.commit(Write.LETTERS) as connection:
            replays = DeadLetters(connection).replay([number])
        assert number in replays
        one = self.model.state.letters[numbers.index(number)]
        for letter in self.model.state.letters:  # the batches that failed as one run as one
            same = (letter.unit, letter.batch) == (one.unit, one.batch)
            if letter is one or (one.is_batch and letter.is_batch and same):
                letter.asked = True
        if pace_s is not None:
            self.clock.pace_s = pace_s
            self._commit()
        self._compare()

    @precondition(lambda self: self.model.state.letters)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        numbers = [letter.id for letter in self._letters()]
        index = data.draw(st.integers(0, len(numbers) - 1))
        with self.store.commit(Write.LETTERS) as connection:
            DeadLetters(connection).drop([numbers[index]])
        del self.model.state.letters[index]
        self._compare()

    @rule(data=st.data(), wanted=st.booleans())
    def publish(self, data: st.DataObject, wanted: bool) -> None:
        stream = data.draw(st.sampled_from(sorted(self.flow.streams)))
        publisher = Publisher([self.path], self.settings, self.kill)
        if wanted:
            publisher.publish(self.flow.streams[stream], 1)
            self.published.setdefault(stream, self.model.last)
        else:
            publisher.unpublish(self.flow.streams[stream], 1)
            self.published.pop(stream, None)
        self._compare()

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        self.forgotten = data.draw(
            st.integers(self.forgotten, max(self.forgotten, min(self.model.done.values())))
        )
        with closing(Origin(self.path, self.settings, self.kill)) as origin:
            forget(origin, FLOW, self.forgotten)
        self._compare()
        (left,) = self._rows(
            f"SELECT count(*) FROM headrace_staged WHERE last_batch <= {self.forgotten}"
        )[0]
        assert left == 0

    def teardown(self) -> None:
        try:
            if hasattr(self, "home"):
                self.drain()
                self.caller.close()
                self.store.close()
                self.core.close()
                shutil.rmtree(self.home)
        finally:
            logging.disable(logging.NOTSET)

    def _opened(self) -> Core:
        core = Core(self.path, settings=self.settings, clock=self.clock, crash=self.kill)
        core.prepare([self.flow])
        core.open(FLOW, {name: self.spec.partitions(name) for name, _ in self.spec.borders})
        return core

    def _commit(self) -> bool:
        committed = self.core.commit_next()
        self.model.advance(self._ledger())
        return committed is not None

    def _feed_again(self, from_the_start: bool) -> None:
        for stream, log in self.model.log.items():
            there = {} if from_the_start else self.model.positions[stream]
            for partition in self.spec.partitions(stream):
                mine = [record for record in log if record.partition == partition]
                self._feed(stream, [r for r in mine if r.offset >= there.get(partition, 0)])

    def _feed(self, stream: str, records: list[Record]) -> None:
        if not records:
            return
        declared = self.flow.streams[stream]
        schema = pa.schema([*ARRIVAL, *(f.with_nullable(True) for f in declared.columns.arrow)])
        rows = [
            {
                "_partition": record.partition,
                "_place": place_of(record.offset),
                "_value": _bytes(record.partition, record.offset),
                "_reason": None if record.values or record.mark else "bad",
                "_mark": record.mark,
                **(record.values._asdict() if record.values else {}),
            }
            for record in records
        ]
        self.core.feed(Arrived(declared, in_chunks(pa.Table.from_pylist(rows, schema))))

    def _compare(self) -> None:
        """Compare all that can be seen."""
        model, state = self.model, self.model.state
        assert self._ledger() == model.done
        for name in TABLES:
            assert dict(self._rows(f"SELECT k, v FROM {name}")) == state.tables[name], name
        for name, window in state.windows.items():
            seen = self._rows(f"SELECT k, v, t FROM {name} ORDER BY k, v, t")
            assert seen == sorted(window.visible), name
            staged = self._rows(f"SELECT k, v, t FROM headrace_staged_{name} ORDER BY k, v, t")
            assert staged == sorted(window.staged), name
            assert self._rows(f"SELECT * FROM {name}_by_k ORDER BY k") == window.totals(), name
            total = len(window.visible), sum(values.v for values in window.visible)
            assert self._rows(f"SELECT * FROM {name}_all") == [total], name
        with Reader(self.path).snapshot() as snapshot:
            for stream in model.positions:
                at = snapshot.positions(FLOW, stream)
                assert offsets(at) == model.positions[stream], stream
            for name in (APPENDED, KEYED):
                outlet = self.flow.outlets[name]
                tables = snapshot.staged(outlet, after=self.forgotten, through=2**62)
                rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
                wanted = [row for row in state.staged[name] if (row[0] or 0) > self.forgotten]
                assert rows == wanted, name
            for name, declared in self.flow.streams.items():
                assert snapshot.kept_after(declared) == self.published.get(name), name
                kept = {
                    batch: list(values)
                    for _, table in snapshot.kept(declared, after=0)
                    for batch, values in _by_batch(table)
                }
                ever = model.held.get(name, {}) if name in self.published else {}
                after = self.published.get(name, 0)
                assert kept == {b: held for b, held in ever.items() if b > after}, name
        assert [_letter(letter) for letter in self._letters()] == state.letters
        given = {key: items for key, items in state.streams.items() if items}
        assert {key: items for key, items in self._pending().items() if items} == given
        calls = self._rows("SELECT key, arguments, result FROM headrace_calls")
        assert {
            key: (tuple(json.loads(a).values()), json.loads(r)[0]["v"]) for key, a, r in calls
        } == model.calls

    def _ledger(self) -> dict[str, int]:
        return dict(self._rows("SELECT procedure, batch FROM headrace_ledger"))

    def _pending(self) -> dict[tuple[str, int], list[Item]]:
        rows = self._rows("SELECT stream, batch, data FROM headrace_pending")
        return {(stream, batch): _items(data) for stream, batch, data in rows}

    def _letters(self) -> list[DeadLetter]:
        with Reader(self.path).snapshot() as snapshot:
            return list(snapshot.dead_letters)

    def _letters_to_replay(self) -> list[int]:
        """Find what may run again: what did decode."""
        return [letter.id for letter in self._letters() if letter.unit]

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.store.connection.execute(query).fetchall()

    def _dump(self) -> list[str]:
        return [x for x in self.store.connection.iterdump() if '"headrace_core"' not in x]


def _bytes(partition: int, offset: int) -> bytes:
    return f"{partition}/{offset}".encode()


def _items(data: bytes) -> list[Item]:
    items = []
    for row in arrow.from_bytes(data).to_pylist():
        at = row["_place"]
        place = None if at is None else (row["_partition"], offset_of(at))
        assert row["_value"] == (place and _bytes(*place))
        items.append(Item(Values(row["k"], row["v"], row["t"]), place))
    return items


def _by_batch(table: pa.Table) -> Iterator[tuple[int, list[Values]]]:
    for batch, rows in groupby(table.to_pylist(), lambda row: row["_batch"]):
        yield batch, [Values(row["k"], row["v"], row["t"]) for row in rows]


def _letter(letter: DeadLetter) -> Letter:
    place, items = None, None
    if letter.offset is not None:
        assert letter.partition is not None
        place = letter.partition, letter.offset
        assert letter.value == _bytes(*place)
    if letter.data is not None:
        items = tuple(_items(letter.data))
        assert letter.row_count == len(items)
        assert "Raised: " in letter.reason or "UNIQUE constraint" in letter.reason
    elif letter.fields is not None:
        values = Values(*json.loads(letter.fields))
        items = (Item(values, place),)
        assert letter.reason.startswith(f"{values.v} by ")
    else:
        assert letter.reason == "bad"
    return Letter(
        letter.unit,
        letter.stream,
        letter.batch,
        letter.attempts,
        place,
        items,
        is_batch=letter.is_batch,
        asked=bool(letter.replay),
    )


SHORT = settings(
    max_examples=250,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # `make prove` finds the least steps that fail
    suppress_health_check=list(HealthCheck),
)


def test_the_core_does_what_the_model_does() -> None:
    run_state_machine_as_test(CoreAndModel, settings=SHORT)
