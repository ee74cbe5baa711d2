"""Recalling: tuples whose places in the log are known, read back as their sources sent them.

As long as the topic is the one that they were read from, and has not let go of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple

import pyarrow as pa
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from etl_procs.batch import MARK, PARTITION, PLACE, REASON, SEQ, SOURCE, VALUE, index_of, offset_of
from etl_procs.letter import shown_place
from etl_procs.model import Stream
from etl_procs.routing import partition_of
from headrace.config import Broker
from ingest import topics
from ingest.decoding.decoder import HEADERS, Decoder

BYTES_MAX = 2**20
WAIT_S = 10.0
"""How long a broker has for the records of one partition."""
POLL_MS, POLL_RECORDS = 1_000, 100


class Stretch(NamedTuple):
    """Consecutive places of one partition of a topic: from `first` on, and before `next`."""

    partition: int
    first: int
    next: int


class Mine(NamedTuple):
    """Among the partitions of a dataflow, the one whose tuples are meant."""

    partition: int
    of: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """A tuple as its source sent it."""

    stream: str
    partition: int
    offset: int
    index: int | None
    """Which of its record's tuples it is, from 0 on; None: the last, or the only one."""
    source: str | None
    seq: int | None
    value: bytes | None
    reason: str | None
    """Why it did not decode."""


class Recalling(NamedTuple):
    """Tuples, and what keeps the others from being told; empty, if there are none."""

    tuples: tuple[Recalled, ...]
    lacking: str


def recall(
    broker: Broker,
    stream: Stream,
    topic_id: str,
    stretches: Sequence[Stretch],
    mine: Mine,
    most: int,
) -> Recalling:
    """Read tuples of a stream back, `most` of them and about BYTES_MAX."""
    topic = topics.described(broker, stream.topic)
    if topic.id != topic_id:
        return Recalling((), f"the topic {stream.topic} is not the one that they were read from")
    found: list[Recalled] = []
    size, lacking = 0, ""
    for stretch in stretches:
        begin = topic.partitions[stretch.partition].start
        if begin > offset_of(stretch.first):
            lacking = f"{stream.topic}[{stretch.partition}] has let go of what is before {begin}"
        for one in _tuples(broker, stream, stretch, begin, mine):
            if len(found) == most or size > BYTES_MAX:
                return Recalling(tuple(found), f"there are more than these {len(found)}")
            found.append(one)
            size += len(one.value or b"")
    return Recalling(tuple(found), lacking)


def _tuples(
    broker: Broker, stream: Stream, stretch: Stretch, begin: int, mine: Mine
) -> Iterator[Recalled]:
    decoder = Decoder(stream)
    for records in _records(broker, stream.topic, stretch, begin):
        columns = zip(*((r.partition, r.offset, r.value, r.headers) for r in records), strict=True)
        types = pa.int32(), pa.int64(), pa.binary(), HEADERS
        given = (pa.array(column, type_) for column, type_ in zip(columns, types, strict=True))
        for row in decoder.decode(*given).to_pylist():
            is_within = stretch.first <= row[PLACE] < stretch.next and row[MARK] is None
            if is_within and _is_mine(stream, row, mine):
                place = shown_place(row[PLACE])
                yield Recalled(
                    stream.name,
                    row[PARTITION],
                    offset_of(row[PLACE]),
                    place["_index"],
                    row[SOURCE],
                    row[SEQ],
                    row[VALUE],
                    row[REASON],
                )


def _is_mine(stream: Stream, row: dict[str, Any], mine: Mine) -> bool:
    """Tell as the routing does whose a tuple was."""
    if mine.of == 1:
        return True
    owner = 0 if row[REASON] is not None else partition_of(row[stream.key], mine.of)
    return owner == mine.partition


def _records(broker: Broker, topic: str, stretch: Stretch, begin: int) -> Iterator[list[Any]]:
    """Read the records of a stretch, as many at a time as there are."""
    until = monotonic() + WAIT_S
    start = max(offset_of(stretch.first), begin)
    stop = offset_of(stretch.next) + (index_of(stretch.next) > 0)
    at = TopicPartition(topic, stretch.partition)
    with topics.reading(broker, {at: start}) as consumer:
        while start < stop and consumer.position(at) < stop:
            came = consumer.poll(POLL_MS, max_records=POLL_RECORDS).get(at, [])
            if records := [record for record in came if record.offset < stop]:
                yield records
            if monotonic() > until:
                raise KafkaTimeoutError(f"{topic} did not come within {WAIT_S:g} s")
