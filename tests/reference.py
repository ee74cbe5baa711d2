"""The reference model: what the core promises, as dicts that are changed one unit after another.

It knows nothing of groups, savepoints, files or crashes. It is told how far the core's ledger has
come and runs exactly that, serially: so whatever state the core is in must be a state of this.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

from random_flows import (
    APPENDED,
    KEYED,
    TABLES,
    ProcedureSpec,
    Raised,
    Spec,
    Values,
    WindowSpec,
    bumped,
    perform,
)

ATTEMPTS = 2
LEAST = -1
"""Before all intervals: where a partition is as long as it has brought no event time."""


class Record(NamedTuple):
    """A record of the log: a tuple, one that does not decode, or a punctuation."""

    partition: int
    offset: int
    values: Values | None = None
    mark: int | None = None


class Item(NamedTuple):
    """A tuple of a batch; one from the log has its place there."""

    values: Values
    place: tuple[int, int] | None = None


@dataclass
class Letter:
    """A dead letter; a batch has its items, a tuple that did not decode has none."""

    unit: str
    stream: str
    batch: int
    attempts: int
    place: tuple[int, int] | None
    items: tuple[Item, ...] | None
    is_batch: bool
    asked: bool = False


class Window:
    """All that was ever put into a window; what is seen of it is worked out anew each time."""

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self.came: list[tuple[int, Values]] = []
        """The batch, or the boundary at which it entered, and the tuple."""
        self.staged: list[Values] = []
        self.boundary: int | None = None

    def put(self, rows: list[Values], batch: int) -> None:
        self.staged += rows
        size, slide = self.spec.size, self.spec.slide
        if self.spec.kind == "tuples":
            ripe = len(self.staged) // slide * slide
            self.came += [(batch, values) for values in self.staged[:ripe]]
            self.came, self.staged = self.came[-size:], self.staged[ripe:]
        elif self.spec.kind == "batches":
            waiting = self.came[len(self.came) - (len(self.staged) - len(rows)) :]
            missed = (batch - 1) // slide * slide
            if any(b <= missed for b, _ in waiting):  # the batch of that slide has died
                self.staged = [v for b, v in waiting if b > missed] + rows
                self.came = [(b, v) for b, v in self.came if b > missed - size]
            self.came += [(batch, values) for values in rows]
            if batch % slide == 0:
                self.came = [(b, values) for b, values in self.came if b > batch - size]
                self.staged = []
        elif self.staged:
            times = [values.t for values in self.staged]
            begin = min(times) // slide * slide if self.boundary is None else self.boundary
            self.boundary = max(begin, max(times) // slide * slide)
            if self.boundary > begin:
                self.came += [(0, values) for values in self.staged if values.t < self.boundary]
                self.came = [c for c in self.came if c[1].t >= self.boundary - size]
                self.staged = [values for values in self.staged if values.t >= self.boundary]

    @property
    def visible(self) -> list[Values]:
        hidden = len(self.staged) if self.spec.kind == "batches" else 0
        return [values for _, values in self.came[: len(self.came) - hidden]]

    def totals(self) -> list[tuple[int, int, int]]:
        by_key = defaultdict(list)
        for values in self.visible:
            by_key[values.k].append(values.v)
        return [(key, len(values), sum(values)) for key, values in sorted(by_key.items())]


@dataclass
class State:
    """All that a transaction may change."""

    tables: dict[str, dict[int, int]]
    windows: dict[str, Window]
    streams: dict[tuple[str, int], list[Item]] = field(default_factory=dict)
    staged: dict[str, list[tuple[int | None, ...]]] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)


class Hands:
    """Hands over a state, of one procedure at a time on one batch."""

    def __init__(self, model: "Model", batch: int) -> None:
        self.model, self.state, self.procedure, self.batch = model, model.state, "", batch
        self.rejected: dict[tuple[str, str, int], Letter] = {}

    def add(self, table: str, key: int, value: int) -> None:
        self.put(table, key, self.get(table, key) + value)

    def put(self, table: str, key: int, value: int) -> None:
        self.state.tables[table][key] = value

    def get(self, table: str, key: int) -> int:
        return self.state.tables[table].get(key, 0)

    def totals(self, aggregate: str) -> list[tuple[int, int, int]]:
        return self.state.windows[aggregate.removesuffix("_by_k")].totals()

    def emit(self, target: str, rows: list[Values], *, as_arrow: bool) -> None:
        if target in self.state.windows:
            self.state.windows[target].put(rows, self.batch)
        elif target == APPENDED:
            self.state.staged[target] += [(self.batch, *values) for values in rows]
        elif target == KEYED:
            self.state.staged[target] += [(self.batch, 0, *values) for values in rows]
        else:
            given = self.state.streams.setdefault((target, self.batch), [])
            given += [Item(values) for values in rows]
            if target in self.model.spec.triggered:
                for values in rows:
                    self.add(TABLES[0], 50, values.v)

    def delete(self, keys: list[int]) -> None:
        self.state.staged[KEYED] += [(self.batch, 1, key, None, None) for key in keys]

    def reject(self, row: tuple[str, int, Item], reason: str) -> None:
        stream, index, item = row
        place = item.place
        letter = Letter(self.procedure, stream, self.batch, 1, place, (item,), is_batch=False)
        self.rejected.setdefault((self.procedure, stream, index), letter)

    def ruin(self) -> None:
        raise Raised


class Model:
    """A dataflow, run serially. `units` names the procedures of each unit, in order."""

    def __init__(self, spec: Spec, units: Sequence[tuple[str, ...]]) -> None:
        self.spec, self.units = spec, units
        self.procedures = {p.name: p for p in spec.procedures}
        self.log: dict[str, list[Record]] = {name: [] for name, _ in spec.borders}
        self.done = dict.fromkeys(self.procedures, 0)
        self.last = self.cut = 0
        self.closed = self.next_closed = LEAST
        """The interval of event time that was cut last, and the one that is next."""
        self.replayed: tuple[str, dict[str, list[Item]]] = ("", {})
        self.positions: dict[str, dict[int, int]] = {name: {} for name, _ in spec.borders}
        self.calls: dict[str, tuple[tuple[int, int], int]] = {}
        self.held: dict[str, dict[int, list[Values]]] = {}
        """What each batch of each stream ever held."""
        windows = {p.window.name: Window(p.window) for p in spec.procedures if p.window}
        self.state = State({name: {} for name in TABLES}, windows)
        self.state.staged = {APPENDED: [], KEYED: []}

    @property
    def is_amid_a_round(self) -> bool:
        return any(done < self.last for done in self.done.values())

    @property
    def has_work(self) -> bool:
        return self.is_amid_a_round or bool(self._asked()) or self._inputs(self.cut + 1) is not None

    def advance(self, ledger: Mapping[str, int]) -> None:
        """Run what one group of the core's has run: to where its ledger is."""
        may_replay = True
        while self.done != ledger:
            if not self.is_amid_a_round:
                self._begin(may_replay)
                may_replay = False
            unit = next(u for u in self.units if self.done[u[0]] < self.last)
            self._run(unit, self.last)
            ahead = {name: done for name, done in self.done.items() if done > ledger[name]}
            assert not ahead, f"the core has done {ledger}, out of order: {ahead}"

    def call(self, k: int, n: int, key: str) -> int:
        """Make a call; one with a key that was used gives the first one's result."""
        if key in self.calls:
            given, result = self.calls[key]
            assert given == (k, n), "the key was used"
            return result
        before = deepcopy(self.state)
        try:
            result = bumped(Hands(self, 0), k, n)
        except Raised:
            self.state = before
            raise
        if key:
            self.calls[key] = (k, n), result
        return result

    def _begin(self, may_replay: bool) -> None:
        self.last += 1
        self.replayed = ("", {})
        if may_replay and self._asked():
            first = self._asked()[0]
            of = first.unit, first.batch, first.is_batch
            mine = [one for one in self._asked() if (one.unit, one.batch, one.is_batch) == of]
            self.replayed = first.unit, defaultdict(list)
            for letter in mine:
                self.replayed[1][letter.stream].extend(letter.items or ())
            kept = [one for one in self.state.letters if not any(one is other for other in mine)]
            self.state.letters = kept
            return
        self.cut += 1
        inputs = self._inputs(self.cut)
        assert inputs is not None, "the core has run a round that is not complete"
        self.closed = self.next_closed
        for stream, records in inputs.items():
            for record in records:
                self.positions[stream][record.partition] = record.offset + 1
            tuples = [r for r in records if r.mark is None]
            place = [(r.partition, r.offset) for r in tuples]
            items = [Item(r.values, at) for r, at in zip(tuples, place, strict=True) if r.values]
            self.state.streams[stream, self.last] = items
            self._hold(stream)
            bad = [at for r, at in zip(tuples, place, strict=True) if r.values is None]
            self.state.letters += [
                Letter("", stream, self.last, 1, at, None, is_batch=False) for at in bad
            ]

    def _asked(self) -> list[Letter]:
        return [letter for letter in self.state.letters if letter.asked]

    def _inputs(self, number: int) -> dict[str, list[Record]] | None:
        """Cut the batch of this number of every border stream; None if one is not complete."""
        if self.spec.interval:
            return self._intervals()
        found = {}
        for stream, tuples in self.spec.borders:
            log = self.log[stream]
            if tuples:
                found[stream] = log[(number - 1) * tuples : number * tuples]
                if len(found[stream]) < tuples:
                    return None
                continue
            found[stream] = []
            for partition in self.spec.partitions(stream):
                epoch = 1
                for record in (r for r in log if r.partition == partition):
                    if record.mark is not None and record.mark >= epoch:
                        found[stream] += [record] * (record.mark == number)
                        epoch = record.mark + 1
                    else:
                        found[stream] += [record] * (record.mark is None and epoch == number)
                if epoch <= number:
                    return None
        return found

    def _intervals(self) -> dict[str, list[Record]] | None:
        """Cut the first interval that has anything, and that every partition has left behind."""
        lanes = []
        for stream in self.log:
            for partition in self.spec.partitions(stream):
                reached, lane = LEAST, []
                for record in (r for r in self.log[stream] if r.partition == partition):
                    if record.values:  # a late one belongs to what is open
                        reached = max(reached, record.values.t // self.spec.interval)
                    lane.append((reached, record))
                lanes.append((stream, lane, reached))
        wait = [epoch for _, lane, _ in lanes for epoch, _ in lane if epoch > self.closed]
        if not wait or min(wait) >= min(reached for _, _, reached in lanes):
            return None
        self.next_closed = min(wait)
        found: dict[str, list[Record]] = {stream: [] for stream in self.log}
        for stream, lane, _ in lanes:
            found[stream] += [r for e, r in lane if self._from() <= e <= self.next_closed]
        return found

    def _from(self) -> int:
        return self.closed + 1 if self.closed > LEAST else LEAST

    def _run(self, unit: tuple[str, ...], batch: int) -> None:
        name = "+".join(unit)
        inside = {given for member in unit for given in self.procedures[member].gives}
        taken = [s for m in unit for s in self.procedures[m].takes if s not in inside]
        inputs = {stream: self.state.streams.get((stream, batch), []) for stream in taken}
        again = "+".join(member for member in unit if member in self.replayed[0].split("+"))
        before = deepcopy(self.state)
        hands = Hands(self, batch)
        try:
            for member in unit:
                self._perform(self.procedures[member], hands, inputs)
            self.state.letters += hands.rejected.values()
        except Raised:
            self.state = before
            dead = [(name, stream, items) for stream, items in inputs.items()]
            if self.replayed[0]:
                dead = [entry for entry in dead if entry[2]]
            if again:
                dead = [(again, *entry) for entry in self.replayed[1].items()] + dead
            self.state.letters += [
                Letter(of, stream, batch, ATTEMPTS, None, tuple(items), is_batch=True)
                for of, stream, items in dead
            ]
        for given in inside:
            self._hold(given)
        for member in unit:
            self.done[member] = batch
        for stream, number in list(self.state.streams):
            if all(self.done[p.name] >= number for p in self.spec.procedures if stream in p.takes):
                del self.state.streams[stream, number]

    def _hold(self, stream: str) -> None:
        if items := self.state.streams.get((stream, self.last)):
            self.held.setdefault(stream, {})[self.last] = [item.values for item in items]

    def _perform(
        self, procedure: ProcedureSpec, hands: Hands, inputs: Mapping[str, list[Item]]
    ) -> None:
        batches = {
            stream: inputs.get(stream, self.state.streams.get((stream, hands.batch), []))
            for stream in procedure.takes
        }
        if procedure.name in self.replayed[0].split("+"):
            for stream in batches.keys() & self.replayed[1].keys():
                batches[stream] = batches[stream] + self.replayed[1][stream]
        hands.procedure = procedure.name
        rows = [
            ((stream, index, item), item.values)
            for stream, items in batches.items()
            for index, item in enumerate(items)
        ]
        perform(procedure, hands, rows, ATTEMPTS)
        if procedure.window and procedure.window.kind == "batches":  # it ages by itself
            self.state.windows[procedure.window.name].put([], hands.batch)
