"""Producing: bare kafka-python, as fast as it can or paced by a clock.

python -m bench.ingest_load paced BOOTSTRAP TOPIC RATE SECONDS
python -m bench.ingest_load file BOOTSTRAP TOPIC PATH
"""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka import KafkaProducer

from bench.ingest_data import Headers
from etl_procs.model import Stream
from headrace.config import Broker
from ingest import records, topics
from ingest.client import BATCH_BYTES, RECORD_BYTES_MAX

PARTITIONS = 2
FRAME_BYTES = 60 * 2**10
LEAD_S = 0.2
"""From the word when it begins to the beginning, so that whoever looks is there in time."""


@contextmanager
def producer(bootstrap: str) -> Iterator[KafkaProducer]:
    """Open a producer as the collector has it; when it closes, all is acknowledged."""
    made = KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        acks="all",
        batch_size=BATCH_BYTES,
        linger_ms=5,
        max_request_size=RECORD_BYTES_MAX,
    )
    try:
        yield made
        made.flush()
    finally:
        made.close()


def fill(bootstrap: str, stream: Stream, values: Iterable[tuple[bytes, Headers]]) -> int:
    """Make a topic and send values to its partitions in turn; tell how many bytes."""
    topics.ensure(Broker(bootstrap=bootstrap, topic_partitions=PARTITIONS), stream)
    size, sent = 0, []
    with producer(bootstrap) as opened:
        for number, (value, headers) in enumerate(values):
            partition = number % PARTITIONS
            sent.append(opened.send(stream.topic, value, headers=headers, partition=partition))
            size += len(value)
    for each in sent:
        each.get(0)  # raises what went wrong
    return size


def paced(bootstrap: str, topic: str, rate: int, seconds: float) -> None:
    """Send tuples at a clock's pace, whatever the broker does; say when the first one was due.

    Tuple i is due i / rate after it and goes to partition i % PARTITIONS, so that it lies there at
    place i // PARTITIONS after what was there. It holds when it was due.
    """
    with producer(bootstrap) as opened:
        opened.partitions_for(topic)  # the first one does not wait for that
        began = time.monotonic() + LEAD_S
        print(began, flush=True)
        for number in range(round(rate * seconds)):
            due = began + number / rate
            if (early := due - time.monotonic()) > 0:
                time.sleep(early)
            value = b'{"id": %d, "sent_us": %d, "reading": %f}' % (number, due * 1e6, number / 7)
            opened.send(topic, value, partition=number % PARTITIONS)


def file(bootstrap: str, topic: str, path: Path) -> None:
    """Send the lines of a file in frames, as the collector does, and care for nothing else."""
    first = 1
    with producer(bootstrap) as opened, path.open("rb") as lines:
        while some := lines.readlines(FRAME_BYTES):
            value = records.SEPARATOR.join(line[:-1] for line in some)
            headers = [
                (records.SOURCE, b"file"),
                (records.SEQ, b"%d" % first),
                (records.FRAME, b"%d" % len(some)),
            ]
            opened.send(topic, value, headers=headers, partition=0)
            first += len(some)


if __name__ == "__main__":
    what, where, into, *how = sys.argv[1:]
    if what == "paced":
        paced(where, into, int(how[0]), float(how[1]))
    else:
        file(where, into, Path(how[0]))
