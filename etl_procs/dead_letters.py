"""Dead letters: what could not be processed, with reason, position and bytes.

A letter is a tuple that did not decode or that a procedure rejected, or the batch of one stream
with which a unit failed until its attempts were used up.
"""

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from etl_procs import pending
from etl_procs.batch import OFFSET, PARTITION, REASON, VALUE, Batch, Position
from etl_procs.dataflow import Dataflow
from etl_procs.graph import Unit
from etl_procs.model import Stream
from headrace import arrow
from headrace.errors import Refused

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

REASONS = """\
SELECT dataflow, reason, sum(row_count) FROM headrace_dead_letters
GROUP BY dataflow, reason ORDER BY dataflow, sum(row_count) DESC, reason"""

SIZE = """\
SELECT coalesce(sum(
    length(reason) + coalesce(length(value), 0) + coalesce(length(fields), 0)
    + coalesce(length(data), 0)), 0)
FROM headrace_dead_letters"""

ASK = "UPDATE headrace_dead_letters SET replay = 1 WHERE id = :id"

ASKED_UNIT = """\
SELECT unit FROM headrace_dead_letters WHERE replay AND dataflow = :dataflow ORDER BY id LIMIT 1"""

ASKED = f"""\
SELECT {COLUMNS} FROM headrace_dead_letters
WHERE replay AND dataflow = :dataflow AND unit = :unit ORDER BY id"""  # noqa: S608

UNASK = """\
UPDATE headrace_dead_letters SET replay = 0 WHERE dataflow = :dataflow AND unit = :unit"""

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

    def rows(self) -> list[dict[str, object]]:
        """Give the tuples of a batch."""
        return [] if self.data is None else arrow.from_bytes(self.data).to_pylist()


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
        raise Refused(
            f"there is no dead letter {number}", hint="`headrace dead-letters list` shows them."
        )
    return DeadLetter(*found)


def reasons(connection: sqlite3.Connection) -> list[tuple[str, str, int]]:
    """Count the tuples among the dead letters by dataflow and reason."""
    return connection.execute(REASONS).fetchall()


def size(connection: sqlite3.Connection) -> int:
    """Tell the bytes that all dead letters take."""
    (total,) = connection.execute(SIZE).fetchone()
    return int(total)


def ask_for_replay(connection: sqlite3.Connection, number: int) -> None:
    """Ask the engine to run a dead letter again, in the next batch of its dataflow."""
    letter = find(connection, number)
    if not letter.unit:
        raise Refused(
            f"dead letter {number} did not decode: {letter.reason}",
            hint="There is no tuple to run. Produce it again as it should be, and drop this one.",
        )
    connection.execute(ASK, {"id": number})


def drop(connection: sqlite3.Connection, number: int) -> None:
    """Delete a dead letter for good."""
    find(connection, number)
    connection.execute(DROP, {"id": number})


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


def asked(
    connection: sqlite3.Connection, dataflow: Dataflow, units: Iterable[Unit]
) -> Replay | None:
    """Find the letters that somebody asked to run again: those of one unit at a time."""
    found = connection.execute(ASKED_UNIT, {"dataflow": dataflow.name}).fetchone()
    if found is None:
        return None
    inputs: dict[str, list[DeadLetter]] = {}
    of = {"dataflow": dataflow.name, "unit": found[0]}
    for row in connection.execute(ASKED, of):
        letter = DeadLetter(*row)
        inputs.setdefault(letter.stream, []).append(letter)
    unit = next((unit for unit in units if unit.name == found[0]), None)
    if unit is None or inputs.keys() - {stream.name for stream in unit.takes}:
        log.warning(
            "dead letters of %s.%s are not run again: no such procedure takes %s any more",
            dataflow.name,
            found[0],
            ", ".join(inputs),
        )
        connection.execute(UNASK, of)
        return None
    return Replay(found[0], inputs)


def _payload(stream: Stream, batch: int, letter: DeadLetter) -> Batch:
    if letter.data is not None:
        return pending.from_bytes(stream, batch, letter.data)
    place = None
    if letter.partition is not None and letter.offset is not None:
        place = Position(letter.partition, letter.offset, letter.value)
    values = tuple(json.loads(letter.fields or "[]"))
    return Batch(stream, batch, tuples=[values], origin=lambda _index: place)
