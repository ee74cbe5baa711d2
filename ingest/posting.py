"""Posting: tuples that a client hands over, into a stream's topic, while it waits.

A post that succeeded is in the topic for good. One that failed may be there, whole or in part; if
its tuples have a source and numbers, the client sends them again and they count once. One
producer serves all posts. When a post fails or takes too long, the producer is given up and with it
every post on its way: nothing of a source may land behind what did not (`ingest/client.py`).
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from kafka.errors import IllegalStateError, KafkaError

from etl_procs.model import Stream
from headrace.config import Broker
from headrace.errors import NotRunning, Refused
from ingest import topics
from ingest.cleaning import Cleaner
from ingest.client import PERMANENT, Producer
from ingest.framing import Framing, Record
from ingest.runs import Found, portioned
from ingest.security import client_options

ANSWER_S = 3.0
"""How long a broker has to let us in. A client that is told to come again soon is better off than
one that waits."""
SILENT_S = 1.0
"""Without an acknowledgement for so long, the broker is asked whether it is there."""
ACKNOWLEDGED_S = 15.0
"""How long a broker that is there has to acknowledge."""


class Posted(NamedTuple):
    """A record that is in the topic."""

    partition: int
    offset: int
    tuples: int


class Posting:
    """Sends posts to the topics of streams; for many threads."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._framings: dict[str, Framing] = {}

    def post(
        self, stream: Stream, cleaner: Cleaner, raws: Sequence[bytes], source: str, seq: int
    ) -> list[Posted]:
        """Clean, frame and send tuples; return when the broker has them all.

        The first has the number `seq` in `source`; without a source, none has one. Each post has a
        cleaner of its own, and smoothing begins anew with it.
        """
        cleaned = cleaner.clean(list(raws))
        deadline = monotonic() + ACKNOWLEDGED_S
        try:
            producer, framing = self._ready(stream)
        except PERMANENT as error:
            raise Refused(f"the broker refuses: {error}", hint="Look at section broker.") from error
        except KafkaError as error:
            raise _away(stream, error) from error
        numbered = portioned(seq, (Found(raw, len(raw), 0) for raw in cleaned))
        records = [record for run in numbered for record in framing.records(source, run)]
        return self._sent(producer, stream, records, deadline)

    def close(self) -> None:
        """Let the producer go; nobody posts any more."""
        with self._lock:
            if self._producer is not None:
                self._producer.give_up()

    def _ready(self, stream: Stream) -> tuple[Producer, Framing]:
        if not self._lock.acquire(timeout=ANSWER_S):
            raise _away(stream, "others wait for it, too")
        try:
            broker, answer_ms = self._broker(), round(ANSWER_S * 1_000)
            if stream.topic not in self._framings:
                topic = topics.ensure(broker, stream, answer_ms)
                declared = stream.wire.partitions or broker.topic_partitions
                topics.refuse_fewer(topic, declared)
                self._framings[stream.topic] = Framing.of(stream, declared)
            if self._producer is None:
                self._producer = Producer(client_options(broker), answer_ms)
            return self._producer, self._framings[stream.topic]
        finally:
            self._lock.release()

    def _sent(
        self, producer: Producer, stream: Stream, records: Sequence[Record], deadline: float
    ) -> list[Posted]:
        give_up = partial(self._give_up, producer)
        try:
            sent = [
                producer.send(
                    stream.topic, r.value, headers=r.headers, partition=r.partition
                ).add_errback(give_up)
                for r in records
            ]
            if sent and not _is_done(sent[-1], SILENT_S):
                topics.probe(self._broker())
            acknowledged = [each.get(max(0.0, deadline - monotonic())) for each in sent]
        except PERMANENT as error:
            give_up(error)
            raise Refused(
                f"the broker does not take a record of {stream.topic}: {error}",
                hint="Mend what it says.",
            ) from error
        except (KafkaError, IllegalStateError, NotRunning) as error:
            give_up(error)
            raise _away(stream, error) from error
        return [
            Posted(record.partition, metadata.offset, record.tuples)
            for record, metadata in zip(records, acknowledged, strict=True)
        ]

    def _give_up(self, producer: Producer, _error: Exception) -> None:
        """Have the next post make a new one; in the producer's thread, or in a post's."""
        if self._producer is producer:
            self._producer = None
        producer.give_up()


def _is_done(sent: Any, within_s: float) -> bool:
    """Wait for an answer of the broker, whatever it is."""
    with suppress(KafkaError):
        sent.get(within_s)
    return bool(sent.is_done)


def _away(stream: Stream, why: Exception | str) -> NotRunning:
    said = why.what if isinstance(why, NotRunning) else why
    return NotRunning(
        f"the broker has not acknowledged the tuples for {stream.topic}: {said}",
        hint="Post them again in a moment; with a source and a number, they count once.",
    )
