"""Dead letters: what could not be processed, with reason, position and bytes.

A letter is a tuple that did not decode or that a procedure rejected, or the batch of one stream
with which a unit failed until its attempts were used up.
"""

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import cache
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa

from etl_procs import ledger, pending
from etl_procs.batch import (
    LAST,
    ORIGIN,
    PARTITION,
    PLACE,
    REASON,
    VALUE,
    Batch,
    Position,
    Tuple,
    place_of,
    table_of,
)
from etl_procs.columns import Columns, parse_tuple
from etl_procs.dataflow import Dataflow
from etl_procs.errors import DefinitionChanged, NoSuchLetter, NotReplayable
from etl_procs.fitting import Fitter
from etl_procs.graph import Unit
from etl_procs.letter import DeadLetter, Sought, shown_place
from etl_procs.model import Stream
from headrace.errors import HeadraceError, Refused

log = logging.getLogger(__name__)

INSERT = """\
INSERT INTO headrace_dead_letters VALUES (
    NULL, :dataflow, :unit, :stream, :batch, :reason, :attempts, :at, :row_count,
    :topic, :partition, :_offset, :value, :fields, :data, 0, :_index)"""

OF_A_TUPLE = {"unit": "", "attempts": 1, "row_count": 1, "fields": None, "data": None}
"""What a letter is inserted with, unless it says otherwise."""

NOWHERE = (None, None, None)
"""Partition, place and bytes of what did not come from Kafka as it is."""

NUMBERS = 10**9
"""So many numbers are there for the letters of each partition: each letter has one of its own."""

NUMBER_FROM = """\
INSERT INTO sqlite_sequence SELECT 'headrace_dead_letters', :before
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'headrace_dead_letters')"""

ALL = "SELECT * FROM headrace_dead_letters ORDER BY id"

ONE = "SELECT * FROM headrace_dead_letters WHERE id = :id"

SIZE = """\
SELECT coalesce(sum(
    length(reason) + coalesce(length(value), 0) + coalesce(length(fields), 0)
    + coalesce(length(data), 0)), 0)
FROM headrace_dead_letters"""

TALLIES = """\
SELECT dataflow, reason, count(*), sum(row_count), sum(replay) FROM headrace_dead_letters
GROUP BY dataflow, reason"""

COUNTS = """\
SELECT dataflow, count(*), sum(row_count) FROM headrace_dead_letters GROUP BY dataflow"""

# The names of a nested group's procedures have + between them.
CHOSEN = """\
SELECT id FROM headrace_dead_letters
WHERE id > :after AND at >= :since AND instr(reason, :reason)
    AND (:dataflow = '' OR dataflow = :dataflow) AND (:stream = '' OR stream = :stream)
    AND (:procedure = '' OR instr('+' || unit || '+', '+' || :procedure || '+'))
    AND :kind IN ('', CASE
        WHEN data IS NOT NULL THEN 'failed' WHEN unit = '' THEN 'undecoded' ELSE 'rejected' END)
ORDER BY id LIMIT :most"""

# A unit gives up a batch of each stream that it takes: together they are what it failed with.
TOGETHER = """\
SELECT id FROM headrace_dead_letters WHERE id = :id
UNION
SELECT other.id FROM headrace_dead_letters AS one
JOIN headrace_dead_letters AS other USING (dataflow, unit, batch)
WHERE one.id = :id AND unit <> '' AND one.data IS NOT NULL AND other.data IS NOT NULL
ORDER BY id"""

# Without the tuples of a batch: many are asked for while others wait to write.
WHOSE = """\
SELECT dataflow, unit, stream, batch, reason, fields FROM headrace_dead_letters WHERE id = :id"""

REPLAY = "UPDATE headrace_dead_letters SET replay = :replay WHERE id = :id"

REPLAY_WAITS = "SELECT 1 FROM headrace_dead_letters WHERE replay AND dataflow = :dataflow"

# SQLite would look through all letters for the first by id: 35 ms of each group, with 100,000.
NEXT_REPLAY = """\
SELECT * FROM headrace_dead_letters INDEXED BY headrace_replays
WHERE replay AND (dataflow, unit, batch, data IS NULL) = (
    SELECT dataflow, unit, batch, data IS NULL
    FROM headrace_dead_letters INDEXED BY headrace_replays
    WHERE replay AND dataflow = :dataflow ORDER BY id LIMIT 1)
ORDER BY id"""

# Several procedures have + between their names.
RENAME = """\
UPDATE headrace_dead_letters
SET unit = trim(replace('+' || unit || '+', '+' || :was || '+', '+' || :now || '+'), '+')
WHERE dataflow = :dataflow AND instr('+' || unit || '+', '+' || :was || '+')"""

DROP = "DELETE FROM headrace_dead_letters WHERE id = :id"

DATA = "headrace_dead_letters", "data"
SCHEMA_BYTES = 2**20
"""So much of a batch's data has its columns; they come first."""


class Tally(NamedTuple):
    """How many letters there are for one reason."""

    dataflow: str
    reason: str
    letters: int
    tuples: int
    replays: int
    """Letters that are to run again."""


class Replay(NamedTuple):
    """Letters that run again: batches, by stream, for those of these procedures that take them.

    They may be of several units, or a part of one: the definition may have changed since.
    """

    procedures: list[str]
    batches: dict[str, Batch]
    first: int
    """The oldest of the letters."""
    batch: int
    """The batch that all of them are of."""

    def of(self, unit: Unit) -> list[tuple[str, Batch]]:
        """Give the batches that go to members of a unit, each with the names of the members."""
        mine = [member for member in unit.procedures if member.name in self.procedures]
        names = "+".join(member.name for member in mine)
        taken = {stream.name for member in mine for stream in member.takes}
        return [(names, batch) for stream, batch in self.batches.items() if stream in taken]


class DeadLetters:
    """The dead letters of one core, oldest first, as a connection to it sees and changes them; or
    of several, of whose partitions the first is 0: their numbers tell which is whose.
    """

    def __init__(self, connection: sqlite3.Connection, *others: sqlite3.Connection) -> None:
        self._connection = connection
        self._all = (connection, *others)

    def _of(self, number: int) -> sqlite3.Connection:
        partition = number // NUMBERS
        return self._all[partition if partition < len(self._all) else 0]

    def number_from(self, partition: int) -> None:
        """Have those of a new core numbered so that no other partition has the same numbers."""
        self._connection.execute(NUMBER_FROM, {"before": partition * NUMBERS})

    def add_undecoded(self, stream: Stream, batch: int, tuples: pa.Table, at: str) -> None:
        """Set tuples aside that did not decode; each has its reason in the column `_reason`."""
        for row in tuples.select([PARTITION, PLACE, VALUE, REASON]).to_pylist():
            *place, reason = row.values()
            self._add(stream, place, batch=batch, reason=reason, at=at)

    def add_rejected(self, procedure: str, batch: Batch, index: int, reason: str, at: str) -> None:
        """Set one tuple aside that a procedure rejected."""
        place = batch.position(index) or NOWHERE
        fields = json.dumps(batch.tuples[index], ensure_ascii=False)
        self._add(
            batch.stream, place, unit=procedure, batch=batch.id, reason=reason, at=at, fields=fields
        )

    def add_batch(self, unit: str, batch: Batch, reason: str, attempts: int, at: str) -> None:
        """Set a whole batch aside with which a unit failed, or for which it is gone."""
        of = {"unit": unit, "batch": batch.id, "reason": reason, "attempts": attempts, "at": at}
        data = pending.to_bytes(batch)
        self._add(batch.stream, NOWHERE, **of, row_count=len(batch), data=data)

    def _add(self, stream: Stream, origin: Iterable[Any], **values: object) -> None:
        partition, place, value = origin
        topic = None if partition is None else stream.topic
        of_place = {"topic": topic, "partition": partition, "value": value, **shown_place(place)}
        of_stream = {"dataflow": stream.dataflow, "stream": stream.name}
        self._connection.execute(INSERT, {**OF_A_TUPLE, **of_stream, **of_place, **values})

    def __iter__(self) -> Iterator[DeadLetter]:
        """Give all of them, core by core."""
        return (DeadLetter(*row) for core in self._all for row in core.execute(ALL))

    def find(self, number: int) -> DeadLetter:
        """Give one, or refuse a number that is none's."""
        found = self._of(number).execute(ONE, {"id": number}).fetchone()
        return DeadLetter(*(found or _unknown(number)))

    def size(self) -> int:
        """Tell the bytes that all of them take."""
        (total,) = self._connection.execute(SIZE).fetchone()
        return int(total)

    def tallies(self) -> list[Tally]:
        """Count them by dataflow and reason, the most frequent first."""
        found: dict[tuple[str, str], tuple[int, ...]] = {}
        for core in self._all:
            for dataflow, reason, *counts in core.execute(TALLIES):
                before = found.get((dataflow, reason), (0, 0, 0))
                found[dataflow, reason] = tuple(map(sum, zip(before, counts, strict=True)))
        tallies = [Tally(*of, *counts) for of, counts in found.items()]
        return sorted(tallies, key=lambda t: (-t.tuples, t.dataflow, t.reason))

    def counts(self) -> dict[str, tuple[int, int]]:
        """Count them, and their tuples, by dataflow."""
        found: dict[str, tuple[int, int]] = {}
        for core in self._all:
            for dataflow, letters, tuples in core.execute(COUNTS):
                before = found.get(dataflow, (0, 0))
                found[dataflow] = before[0] + letters, before[1] + tuples
        return found

    def chosen(self, sought: Sought, after: int = 0, most: int = -1) -> list[int]:
        """Name those that are sought, by their numbers: those after one, and so many at most."""
        of = {**asdict(sought), "after": after, "most": most}
        found = [number for core in self._all for (number,) in core.execute(CHOSEN, of)]
        return found[: most if most >= 0 else None]

    def together(self, number: int) -> list[int]:
        """Name those that one unit gave up in one batch, this one among them."""
        found = self._of(number).execute(TOGETHER, {"id": number})
        return [other for (other,) in found] or _unknown(number)

    def replay(self, numbers: Iterable[int], *, where_possible: bool = False) -> list[int]:
        """Let the engine run letters again, as the next batch of their dataflow; name them.

        All of them or, if one cannot be, none; or those that can be. With a batch go those that
        its unit gave up with it. What can run is decided by the definitions of the last start.
        """
        return _each(self._replay, numbers, where_possible)

    def drop(self, numbers: Iterable[int], *, where_possible: bool = False) -> list[int]:
        """Delete letters for good: all or, if one is not there, none; or those that are there."""
        return _each(self._drop, numbers, where_possible)

    def _replay(self, number: int) -> list[int]:
        together = self.together(number)
        for each in together:
            self._check_runs(each)
        self._of(number).executemany(REPLAY, [{"id": id, "replay": 1} for id in together])
        return together

    def _check_runs(self, number: int) -> None:
        """Refuse a letter that nobody takes, or that does not fit the stream as it is now."""
        core = self._of(number)
        found = core.execute(WHOSE, {"id": number}).fetchone()
        dataflow, unit, name, batch, reason, fields = found
        of = f"dead letter {number} cannot run again: "
        if not unit:
            hint = "It did not decode. Produce it again as it should be, and drop this one."
            raise NotReplayable(of + reason, hint=hint)
        takers = ledger.takers(core, dataflow, name)
        columns = [takers[taker] for taker in unit.split("+") if taker in takers]
        if not columns:
            raise NotReplayable(
                f"{of}dataflow {dataflow} has no procedure {unit.replace('+', ' or ')} any more "
                f"that takes {name}",
                hint="Declare it again, and start the engine; or drop the letter.",
            )
        stream = Stream(dataflow, name, _parsed(columns[0]))
        try:
            if fields is not None:
                _values(stream, number, fields)
            else:
                with core.blobopen(*DATA, number, readonly=True) as blob:
                    pending.check_fits(stream, batch, blob.read(SCHEMA_BYTES))
        except HeadraceError as error:
            hint = "Bring the columns back that the stream had, until it has run; or drop it."
            raise NotReplayable(of + error.what, hint=hint) from None

    def _drop(self, number: int) -> list[int]:
        gone = self._of(number).execute(DROP, {"id": number})
        return [number] if gone.rowcount else _unknown(number)

    def rename(self, dataflow: str, was: str, now: str) -> None:
        """Give a procedure's letters to the same one under its new name."""
        self._connection.execute(RENAME, {"dataflow": dataflow, "was": was, "now": now})

    def replay_waits(self, dataflow: str) -> bool:
        """Tell whether letters of a dataflow are to run again."""
        found = self._connection.execute(REPLAY_WAITS, {"dataflow": dataflow})
        return found.fetchone() is not None

    def take_replay(self, dataflow: Dataflow, batch: int) -> Replay | None:
        """Take out letters that are to run again, in the transaction that runs them as `batch`:
        those of one unit and batch at a time.
        """
        if not self.replay_waits(dataflow.name):  # takes half as long as to look for the first
            return None
        found = self._connection.execute(NEXT_REPLAY, {"dataflow": dataflow.name})
        letters = [DeadLetter(*row) for row in found]
        if not letters:
            return None
        try:
            replay = _replay_of(letters, dataflow, batch)
        except HeadraceError as error:  # the definition has changed since they were asked for
            of = f"{dataflow.name}.{letters[0].unit}"
            log.warning("dead letters of %s are not run again: %s", of, error.what)
            never = [{"id": letter.id, "replay": 0} for letter in letters]
            self._connection.executemany(REPLAY, never)
            return None
        self._connection.executemany(DROP, [{"id": letter.id} for letter in letters])
        return replay


def size_of(values: Tuple) -> int:
    """Estimate the bytes of a tuple's letter: as it came, and its columns."""
    return 2 * len(str(values))


def _each(
    do: Callable[[int], list[int]], numbers: Iterable[int], where_possible: bool
) -> list[int]:
    """Do it for each letter that it was not done for with another."""
    done: set[int] = set()
    for number in numbers:
        with suppress(Refused) if where_possible else nullcontext():
            if number not in done:
                done.update(do(number))
    return sorted(done)


def _unknown(number: int) -> NoReturn:
    raise NoSuchLetter(
        f"there is no dead letter {number}",
        hint="`headrace dead-letters list` shows those that there are.",
    )


def _replay_of(letters: list[DeadLetter], dataflow: Dataflow, batch: int) -> Replay:
    names = letters[0].unit.split("+")
    members = [dataflow.procedures[name] for name in names if name in dataflow.procedures]
    taken = {stream.name: stream for member in members for stream in member.takes}
    streams = dict.fromkeys(letter.stream for letter in letters)
    if gone := streams.keys() - taken.keys():
        raise DefinitionChanged(f"no such procedure takes {', '.join(gone)} any more", hint="")
    batches = {name: _joined(taken[name], batch, letters) for name in streams}
    return Replay(names, batches, letters[0].id, letters[0].batch)


def _joined(stream: Stream, batch: int, letters: list[DeadLetter]) -> Batch:
    """Make one batch of the letters of a stream; its tuples keep their places of origin."""
    mine = [letter for letter in letters if letter.stream == stream.name]
    found = [pair for letter in mine for pair in _tuples(stream, letter)]
    places = table_of((place or NOWHERE for _, place in found), ORIGIN)
    return Batch(stream, batch, tuples=[values for values, _ in found], origin=lambda: places)


def _tuples(stream: Stream, letter: DeadLetter) -> list[tuple[Tuple, Position | None]]:
    if letter.data is not None:
        batch = pending.from_bytes(stream, letter.batch, letter.data)
        return [(values, batch.position(index)) for index, values in enumerate(batch.tuples)]
    place = None
    if letter.partition is not None and letter.offset is not None:
        at = place_of(letter.offset, LAST if letter.index is None else letter.index)
        place = Position(letter.partition, at, letter.value)
    return [(_values(stream, letter.id, letter.fields or "[]"), place)]


def _values(stream: Stream, number: int, fields: str) -> Tuple:
    names, values = stream.columns.names, json.loads(fields)
    if len(values) != len(names):
        raise DefinitionChanged(f"stream {stream.full_name} has other columns now", hint="")
    return Fitter(stream.columns).values(tuple(values), f"dead letter {number} has")


@cache
def _parsed(columns: str) -> Columns:
    return parse_tuple(columns, "a stream that was taken")
