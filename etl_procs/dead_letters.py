"""Dead letters: what could not be processed, with reason, position and bytes.

A letter is a tuple that did not decode or that a procedure rejected, or the batch of one stream
with which a unit failed until its attempts were used up.
"""

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from etl_procs import ledger, pending
from etl_procs.batch import OFFSET, PARTITION, REASON, VALUE, Batch, Position
from etl_procs.dataflow import Dataflow
from etl_procs.fitting import Fitter
from etl_procs.graph import Unit
from etl_procs.model import Stream
from headrace import arrow
from headrace.errors import HeadraceError, Refused

log = logging.getLogger(__name__)

INSERT = """\
INSERT INTO headrace_dead_letters
    (dataflow, unit, stream, batch, reason, attempts, at, row_count,
     topic, partition, "offset", value, fields, data)
VALUES
    (:dataflow, :unit, :stream, :batch, :reason, :attempts, :at, :row_count,
     :topic, :partition, :offset, :value, :fields, :data)"""

COLUMNS = """\
id, dataflow, unit, stream, batch, reason, attempts, at, row_count,
topic, partition, "offset", value, fields, data, replay"""

LIST = f"SELECT {COLUMNS} FROM headrace_dead_letters ORDER BY id"  # noqa: S608

ONE = f"SELECT {COLUMNS} FROM headrace_dead_letters WHERE id = :id"  # noqa: S608

SIZE = """\
SELECT coalesce(sum(
    length(reason) + coalesce(length(value), 0) + coalesce(length(fields), 0)
    + coalesce(length(data), 0)), 0)
FROM headrace_dead_letters"""

TALLIES = """\
SELECT dataflow, reason, count(*), sum(row_count), sum(replay) FROM headrace_dead_letters
GROUP BY dataflow, reason ORDER BY sum(row_count) DESC, dataflow, reason"""

CHOSEN = """\
SELECT id FROM headrace_dead_letters
WHERE (:dataflow = '' OR dataflow = :dataflow) AND instr(reason, :reason) ORDER BY id"""

PLACE = """\
SELECT dataflow, unit, batch, reason, data IS NOT NULL FROM headrace_dead_letters WHERE id = :id"""

# A unit gives up a batch of each stream that it takes: together they are what it failed with.
TOGETHER = """\
SELECT id FROM headrace_dead_letters
WHERE dataflow = :dataflow AND unit = :unit AND batch = :batch AND data IS NOT NULL ORDER BY id"""

ASK = "UPDATE headrace_dead_letters SET replay = 1 WHERE id = :id"

FIRST_ASKED = """\
SELECT unit, batch, data IS NULL FROM headrace_dead_letters
WHERE replay AND dataflow = :dataflow ORDER BY id LIMIT 1"""

ASKED = f"""\
SELECT {COLUMNS} FROM headrace_dead_letters
WHERE replay AND dataflow = :dataflow AND unit = :unit AND batch = :batch
    AND (data IS NULL) = :tuples
ORDER BY id"""  # noqa: S608

UNASK = """\
UPDATE headrace_dead_letters SET replay = 0
WHERE dataflow = :dataflow AND unit = :unit AND batch = :batch"""

# A unit is a procedure, or the members of a nested group with + between them.
RENAME = """\
UPDATE headrace_dead_letters
SET unit = trim(replace('+' || unit || '+', '+' || :was || '+', '+' || :now || '+'), '+')
WHERE dataflow = :dataflow AND instr('+' || unit || '+', '+' || :was || '+')"""

DROP = "DELETE FROM headrace_dead_letters WHERE id = :id"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One tuple, or one batch, that could not be processed."""

    id: int
    dataflow: str
    unit: str
    stream: str
    batch: int
    reason: str
    attempts: int
    at: str
    row_count: int
    topic: str | None
    partition: int | None
    offset: int | None
    value: bytes | None
    fields: str | None
    data: bytes | None
    replay: int

    @property
    def is_batch(self) -> bool:
        """Whether it is a whole batch."""
        return self.data is not None

    def rows(self, most: int | None = None) -> list[dict[str, Any]]:
        """Give the tuples of a batch, or the first of them, each with the place it came from."""
        return [] if self.data is None else arrow.from_bytes(self.data).slice(0, most).to_pylist()


class Tally(NamedTuple):
    """How many letters there are for one reason."""

    dataflow: str
    reason: str
    letters: int
    tuples: int
    asked: int
    """Letters that somebody asked to run again."""


def add_undecoded(
    connection: sqlite3.Connection, stream: Stream, batch: int, tuples: pa.Table, at: str
) -> None:
    """Set tuples aside that did not decode; each has its reason in the column `_reason`."""
    for row in tuples.select([PARTITION, OFFSET, REASON, VALUE]).to_pylist():
        place = (row[PARTITION], row[OFFSET], row[VALUE])
        _add(connection, stream, batch, row[REASON], at, place=place)


def add_rejected(
    connection: sqlite3.Connection, unit: str, batch: Batch, index: int, reason: str, at: str
) -> None:
    """Set one tuple aside that a procedure rejected."""
    place = batch.position(index)
    _add(
        connection,
        batch.stream,
        batch.id,
        reason,
        at,
        unit=unit,
        place=(place.partition, place.offset, place.value) if place else None,
        fields=json.dumps(batch.tuples[index], ensure_ascii=False),
    )


def add_batch(
    connection: sqlite3.Connection, unit: str, batch: Batch, reason: str, attempts: int, at: str
) -> None:
    """Set a whole batch aside with which a unit failed."""
    _add(
        connection,
        batch.stream,
        batch.id,
        reason,
        at,
        unit=unit,
        attempts=attempts,
        row_count=len(batch),
        data=pending.to_bytes(batch),
    )


def _add(
    connection: sqlite3.Connection,
    stream: Stream,
    batch: int,
    reason: str,
    at: str,
    *,
    unit: str = "",
    attempts: int = 1,
    row_count: int = 1,
    place: tuple[int, int, bytes | None] | None = None,
    fields: str | None = None,
    data: bytes | None = None,
) -> None:
    partition, offset, value = place or (None, None, None)
    connection.execute(
        INSERT,
        {
            "dataflow": stream.dataflow,
            "unit": unit,
            "stream": stream.name,
            "batch": batch,
            "reason": reason,
            "attempts": attempts,
            "at": at,
            "row_count": row_count,
            "topic": stream.topic if place else None,
            "partition": partition,
            "offset": offset,
            "value": value,
            "fields": fields,
            "data": data,
        },
    )


def all_of(connection: sqlite3.Connection) -> Iterator[DeadLetter]:
    """List every dead letter, oldest first."""
    return (DeadLetter(*row) for row in connection.execute(LIST))


def find(connection: sqlite3.Connection, number: int) -> DeadLetter:
    """Give one dead letter, or refuse a number that is none's."""
    found = connection.execute(ONE, {"id": number}).fetchone()
    if found is None:
        raise _unknown(number)
    return DeadLetter(*found)


def size(connection: sqlite3.Connection) -> int:
    """Tell the bytes that all dead letters take."""
    (total,) = connection.execute(SIZE).fetchone()
    return int(total)


def tallies(connection: sqlite3.Connection) -> list[Tally]:
    """Count the letters by dataflow and reason, the most frequent first."""
    return [Tally(*row) for row in connection.execute(TALLIES)]


def chosen(connection: sqlite3.Connection, dataflow: str, reason: str) -> list[int]:
    """Name the letters of a dataflow (empty: of all) whose reason holds a text, oldest first."""
    of = {"dataflow": dataflow, "reason": reason}
    return [number for (number,) in connection.execute(CHOSEN, of)]


def together(connection: sqlite3.Connection, number: int) -> list[int]:
    """Name the letters that one unit gave up in one batch, this one among them."""
    dataflow, unit, batch, _, is_batch = _place(connection, number)
    if not (is_batch and unit):
        return [number]
    of = {"dataflow": dataflow, "unit": unit, "batch": batch}
    return [other for (other,) in connection.execute(TOGETHER, of)]


def ask_for_replay(connection: sqlite3.Connection, number: int) -> list[int]:
    """Ask the engine to run a dead letter again, in the next batch of its dataflow.

    The batches of other streams with which the unit failed go with it; gives all that were asked.
    """
    dataflow, unit, _, reason, is_batch = _place(connection, number)
    if not unit:
        raise Refused(
            f"dead letter {number} cannot run again: {reason}",
            hint="Nobody takes this batch any more: look at it, and drop it."
            if is_batch
            else "It did not decode. Produce it again as it should be, and drop this one.",
        )
    gone = set(unit.split("+")) - ledger.done(connection, dataflow).keys()
    if gone:
        raise Refused(
            f"dead letter {number} cannot run again: dataflow {dataflow} has no procedure "
            f"{', '.join(sorted(gone))} any more",
            hint=f"Dataflow {dataflow} would have to declare it again; or drop the letter.",
        )
    asked_for = together(connection, number)
    connection.executemany(ASK, [{"id": other} for other in asked_for])
    return asked_for


def _place(connection: sqlite3.Connection, number: int) -> tuple[str, str, int, str, bool]:
    found = connection.execute(PLACE, {"id": number}).fetchone()
    if found is None:
        raise _unknown(number)
    dataflow, unit, batch, reason, is_batch = found
    return dataflow, unit, batch, reason, bool(is_batch)


def _unknown(number: int) -> Refused:
    return Refused(
        f"there is no dead letter {number}",
        hint="`headrace dead-letters list` shows those that there are.",
    )


def rename(connection: sqlite3.Connection, dataflow: str, was: str, now: str) -> None:
    """Give a procedure's letters to the same one under its new name."""
    connection.execute(RENAME, {"dataflow": dataflow, "was": was, "now": now})


def drop(connection: sqlite3.Connection, number: int) -> None:
    """Delete a dead letter for good."""
    if connection.execute(DROP, {"id": number}).rowcount == 0:
        raise _unknown(number)


@dataclass(frozen=True, slots=True)
class Replay:
    """Dead letters that one unit is to run again, as one batch."""

    unit: str
    inputs: dict[str, list[DeadLetter]]
    """By stream."""

    def batch(self, stream: Stream, batch: int) -> Batch:
        """Make the batch of one of the unit's streams; its tuples keep their places of origin."""
        parts = [_payload(stream, batch, letter) for letter in self.inputs.get(stream.name, [])]
        places = [part.position(index) for part in parts for index in range(len(part))]
        tuples = [values for part in parts for values in part.tuples]
        return Batch(stream, batch, tuples=tuples, origin=places.__getitem__)

    def drop(self, connection: sqlite3.Connection) -> None:
        """Take the letters out, in the transaction that runs them again."""
        for letters in self.inputs.values():
            for letter in letters:
                connection.execute(DROP, {"id": letter.id})


def first_asked(connection: sqlite3.Connection, dataflow: str) -> dict[str, Any] | None:
    """Tell unit and batch of the first letter that is to run again, and whether it is a tuple."""
    found = connection.execute(FIRST_ASKED, {"dataflow": dataflow}).fetchone()
    if found is None:
        return None
    unit, batch, tuples = found
    return {"dataflow": dataflow, "unit": unit, "batch": batch, "tuples": tuples}


def asked(
    connection: sqlite3.Connection, dataflow: Dataflow, units: Iterable[Unit]
) -> Replay | None:
    """Find the letters that somebody asked to run again: those of one unit and batch at a time."""
    of = first_asked(connection, dataflow.name)
    if of is None:
        return None
    inputs: dict[str, list[DeadLetter]] = {}
    for row in connection.execute(ASKED, of):
        letter = DeadLetter(*row)
        inputs.setdefault(letter.stream, []).append(letter)
    unit = next((unit for unit in units if unit.name == of["unit"]), None)
    if unit is None or inputs.keys() - {stream.name for stream in unit.takes}:
        log.warning(
            "dead letters of %s.%s are not run again: no such procedure takes %s any more",
            dataflow.name,
            of["unit"],
            ", ".join(inputs),
        )
        connection.execute(UNASK, of)
        return None
    replay = Replay(unit.name, inputs)
    try:
        for stream in unit.takes:
            replay.batch(stream, 0)
    except HeadraceError as error:
        log.warning(
            "dead letters of %s.%s are not run again: %s", dataflow.name, unit.name, error.what
        )
        connection.execute(UNASK, of)
        return None
    return replay


def _payload(stream: Stream, batch: int, letter: DeadLetter) -> Batch:
    if letter.data is not None:
        return pending.from_bytes(stream, batch, letter.data)
    place = None
    if letter.partition is not None and letter.offset is not None:
        place = Position(letter.partition, letter.offset, letter.value)
    names, fields = stream.columns.names, json.loads(letter.fields or "[]")
    row = dict(zip(names, fields, strict=True)) if len(fields) == len(names) else {}
    values = Fitter(stream.columns).row(row, f"dead letter {letter.id} has")
    return Batch(stream, batch, tuples=[values], origin=lambda _index: place)
