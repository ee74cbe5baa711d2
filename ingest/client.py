"""The producing client: idempotent, acknowledged by all, and one that can be given up at once.

kafka-python keeps the order of a partition as long as it only retries: it has one batch of each
partition on its way at a time, and the broker knows a retried one again. When it fails a batch for
good, though, it goes on with the batches behind it, under a new epoch. They would land without
the one before them: a gap in the numbers of the source, of which the core remembers so many and no
more. What comes for one that it has let go is taken for a repeat: a loss. So a producer that has
failed once must send nothing more:

* it never fails a batch by itself: it retries without end, and whoever waits has a clock;
* where the broker fails one, `give_up` is called from the very callback that tells so. It runs in
  the thread that sends, before that looks for the next batch.
"""

from collections.abc import Mapping
from typing import Any

from kafka import KafkaProducer, errors
from kafka.net.compat import KafkaNetClient

RECORD_BYTES_MAX = 16 * 2**20
"""What the local broker takes, too."""

BATCH_BYTES = 2**20
"""Frames that go together. With one of 64 KiB at a time, each would wait for the one before."""

FOR_EVER_MS = 10**12

ASK_AGAIN_MS = 10
"""How soon the broker may be asked again for what it has. Kafka's client waits for 100 ms between
what it asks when it connects and the first question for a topic: of the 125 ms that it took to send
one small file, these were 100. The producer's own `retry_backoff_ms` does not come there.
"""

PERMANENT = (
    errors.AuthorizationError,
    errors.InvalidRecordError,
    errors.InvalidTopicError,
    errors.MessageSizeTooLargeError,
    errors.PolicyViolationError,
    errors.RecordListTooLargeError,
    errors.SaslAuthenticationFailedError,
)
"""What the broker will say again, however often it is asked."""


class Producer(KafkaProducer):  # type: ignore[misc]
    """Sends in order, or not at all."""

    def __init__(self, options: Mapping[str, Any], answer_ms: int = 5_000) -> None:
        self._given_up = False
        super().__init__(
            **options,
            client_id="headrace-collector",
            kafka_client=_client,
            enable_idempotence=True,
            acks="all",
            batch_size=BATCH_BYTES,
            linger_ms=5,
            max_request_size=RECORD_BYTES_MAX,
            delivery_timeout_ms=FOR_EVER_MS,
            request_timeout_ms=10_000,
            reconnect_backoff_max_ms=1_000,  # or a broker that is back is found 30 s later
            bootstrap_timeout_ms=answer_ms,
            max_block_ms=answer_ms,
        )

    def give_up(self) -> None:
        """Send nothing more, and wait for nothing; may be called from a callback."""
        self._given_up = True
        self.close(timeout=0)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all is sent; not when it was given up, which close() cannot know."""
        if not self._given_up:
            super().flush(timeout)


def _client(**options: Any) -> KafkaNetClient:
    client = KafkaNetClient(**options)
    client.cluster.config["retry_backoff_ms"] = ASK_AGAIN_MS
    return client
