"""Posting: tuples that a client hands over, into a stream's topic, while it waits.

A post that succeeded is in the topic for good. One that failed may be there, whole or in part; if
its tuples have a source and numbers, the client sends them again and they count once. One
producer serves all posts. When a post fails or takes too long, the producer is given up and with it
every post on its way: nothing of a source may land behind what did not (`ingest/client.py`).
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import NamedTuple

from kafka.errors import IllegalStateError, KafkaError

from etl_procs.model import Stream
from headrace.config import Broker
from headrace.errors import NotRunning, Refused
from ingest import topics
from ingest.cleaning import Cleaner, key_of
from ingest.client import PERMANENT, Producer
from ingest.framing import Framing, Record
from ingest.runs import Found, portioned
from ingest.security import client_options

ACKNOWLEDGED_S = 15.0
"""How long a client waits; kafka-python itself takes 10 s to see that a broker is frozen."""


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

    def post(self, stream: Stream, raws: Sequence[bytes], source: str, seq: int) -> list[Posted]:
        """Clean, frame and send tuples; return when the broker has them all.

        The first has the number `seq` in `source`; without a source, none has one. Smoothing
        begins anew with each post.
        """
        cleaned = Cleaner(stream).clean(list(raws))
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
        with self._lock:
            broker = self._broker()
            if stream.topic not in self._framings:
                topics.ensure(broker, stream)
                key = key_of(stream) if isinstance(stream.wire.route, str) else None
                declared = stream.wire.partitions or broker.topic_partitions
                self._framings[stream.topic] = Framing(stream.wire, declared, key)
            if self._producer is None:
                self._producer = Producer(client_options(broker))
            return self._producer, self._framings[stream.topic]

    def _sent(
        self, producer: Producer, stream: Stream, records: Sequence[Record], deadline: float
    ) -> list[Posted]:
        give_up = partial(self._give_up, producer)
        try:
            sent = [
                producer.send(
                    stream.topic, r.value, key=r.key, headers=r.headers, partition=r.partition
                ).add_errback(give_up)
                for r in records
            ]
            acknowledged = [each.get(max(0.0, deadline - monotonic())) for each in sent]
        except PERMANENT as error:
            give_up(error)
            raise Refused(
                f"the broker does not take a record of {stream.topic}: {error}",
                hint="Mend what it says.",
            ) from error
        except (KafkaError, IllegalStateError) as error:
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


def _away(stream: Stream, error: Exception) -> NotRunning:
    return NotRunning(
        f"the broker has not acknowledged the tuples for {stream.topic}: {error}",
        hint="Post them again in a moment; with a source and a number, they count once.",
    )
