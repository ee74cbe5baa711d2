"""The sender: runs of tuples into a stream's topic, and up to where all is acknowledged.

Delivery: at least once, and the numbers of a source only rise in each partition but for repeats.
The core knows a source by at most 1,024 ranges of numbers; a sender adds no gap to them. So after a
failure nothing later is sent, and nothing later is taken as acknowledged (`ingest/client.py` tells
how); a new producer starts with the first record that was not acknowledged, in the order of old.
What the old producer had on its way may land still: of each partition that is one batch at most,
and it is the one that the new producer begins with.

A process that is killed starts again where its bookmark is: at or before what was acknowledged, and
everything from there to the highest number that landed is in the log, without a gap. So also two
processes at once: each is without a gap, and so is whatever both have landed together.

Memory: so many bytes may wait for the broker, and whoever sends more waits for room.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from kafka.errors import IllegalStateError, KafkaError

from headrace.clock import Clock, SystemClock
from headrace.errors import HeadraceError, NotRunning
from ingest.client import PERMANENT, Producer
from ingest.framing import Record

UNACKNOWLEDGED_BYTES_MAX = 16 * 2**20

LOOK_EVERY_S = 0.5
SILENT_S = 3.0
"""So long without an acknowledgement, the broker is taken to be away."""
TELL_EVERY_S = 5.0

Place = TypeVar("Place")
Answer = TypeVar("Answer")

Connect = Callable[[], Producer]
"""Makes a producer; raises KafkaError when the broker is away."""


@dataclass(slots=True, eq=False)
class _Portion(Generic[Place]):
    """What was sent together, and what of it the broker has not acknowledged."""

    source: str
    place: Place
    tuples: int
    size: int
    waiting: dict[int, Record]


class Sender(Generic[Place]):
    """Sends to one topic; for one thread."""

    def __init__(
        self,
        connect: Connect,
        topic: str,
        *,
        wait_s: float,
        tell: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self._connect = connect
        self._topic = topic
        self._wait_s = wait_s
        self._tell = tell
        self._clock = clock or SystemClock()
        self._producer: Producer | None = None
        self._failure: Exception | None = None
        self._state = threading.Condition()
        self._portions: deque[_Portion[Place]] = deque()
        self._bytes = 0
        self._heard = self._told = self._clock.monotonic()
        self._is_away = False
        self._safe: dict[str, Place] = {}
        self.acknowledged = 0
        """How many tuples are in the topic for good."""

    def take_safe(self) -> dict[str, Place]:
        """Tell, once, up to which place all of a source is acknowledged, where that is news."""
        with self._state:
            safe, self._safe = self._safe, {}
        return safe

    def send(self, source: str, records: Iterable[Record], place: Place) -> None:
        """Send what leads to `place` in a source, after all that was sent before."""
        waiting = dict(enumerate(records))
        size = sum(len(record.value) for record in waiting.values())
        tuples = sum(record.tuples for record in waiting.values())
        portion = _Portion(source, place, tuples, size, waiting)
        while self._bytes and self._bytes + size > UNACKNOWLEDGED_BYTES_MAX:
            self._wait()
        self.look()
        with self._state:
            if not self._portions:
                self._heard = self._clock.monotonic()
            self._portions.append(portion)
            self._bytes += size
            self._settle()
        self._hand_over(portion)

    def flush(self) -> None:
        """Return when everything is acknowledged."""
        while self._portions:
            self._wait()
        if self._producer is not None:  # where nothing was to be sent, none is made
            self.look()

    def look(self) -> None:
        """See to it that what was sent goes on its way; to be called now and then."""
        if self._producer is None or self._failure is not None:
            self._begin_again()
        if self._portions:
            self._complain(self._clock.monotonic() - self._heard)
        elif self._is_away:
            self._complain(0.0)

    def close(self) -> None:
        """Let the producer go. What is not acknowledged is not waited for."""
        if self._producer is not None:
            self._producer.give_up()

    def _wait(self) -> None:
        with self._state:
            if self._failure is None and self._portions:
                self._state.wait(LOOK_EVERY_S)
        self.look()

    def _hand_over(self, portion: _Portion[Place]) -> None:
        producer = self._producer
        assert producer is not None, "look() was called"
        for number, record in list(portion.waiting.items()):
            try:
                sent = producer.send(
                    self._topic,
                    record.value,
                    headers=record.headers,
                    partition=record.partition,
                )
            except IllegalStateError:  # given up by its own thread, which has noted why
                return
            except KafkaError as error:
                self._fail(producer, error)
                return
            sent.add_callback(partial(self._acknowledge, portion, number))
            sent.add_errback(partial(self._fail, producer))

    def _acknowledge(self, portion: _Portion[Place], number: int, _metadata: object) -> None:
        """Take note of it; in the producer's thread."""
        with self._state:
            self._heard = self._clock.monotonic()
            portion.waiting.pop(number, None)
            if not portion.waiting:
                self._settle()
                self._state.notify_all()

    def _settle(self) -> None:
        """Let go of the portions that are done, up to the first that is not."""
        while self._portions and not self._portions[0].waiting:
            done = self._portions.popleft()
            self._bytes -= done.size
            self.acknowledged += done.tuples
            if done.source:
                self._safe[done.source] = done.place

    def _fail(self, producer: Producer, error: Exception) -> None:
        """Stop a producer before it sends anything more; in its thread, or in ours."""
        with self._state:
            if producer is not self._producer or self._failure is not None:
                return
            self._failure = error
            self._state.notify_all()
        producer.give_up()

    def _begin_again(self) -> None:
        """Make a producer, the first or a new one, and send what was not acknowledged."""
        failure = self._failure
        if isinstance(failure, PERMANENT):
            raise HeadraceError(
                f"the broker does not take a record of {self._topic}: {_said(failure)}",
                hint="Mend what it says, and run the same command again.",
            ) from failure
        if failure is not None:
            self._tell(f"sending to {self._topic} failed, and begins again: {_said(failure)}")
            with self._state:  # what fails each time is not tried without a pause
                self._state.wait(LOOK_EVERY_S)
        producer = self.answered(self._connect)
        with self._state:
            self._producer, self._failure = producer, None
            portions = list(self._portions)
        for portion in portions:
            self._hand_over(portion)

    def answered(self, ask: Callable[[], Answer]) -> Answer:
        """Give what the broker answers; wait for one that is away, as for what is sent."""
        began = self._clock.monotonic()
        while True:
            try:
                return ask()
            except (KafkaError, NotRunning) as error:
                refusal = error.__cause__ if isinstance(error, NotRunning) else error
                if isinstance(refusal, PERMANENT):
                    raise HeadraceError(
                        f"the broker does not let us in: {_said(refusal)}",
                        hint="Look at section broker of the configuration: protocol, username, "
                        "files.",
                    ) from error
                since = self._heard if self._portions else began
                self._complain(max(SILENT_S, self._clock.monotonic() - since), error)
                with self._state:
                    self._state.wait(LOOK_EVERY_S)

    def _complain(self, silent_s: float, error: Exception | None = None) -> None:
        """Say that the broker is away, at once and now and then, to the limit; or is back."""
        now = self._clock.monotonic()
        what = error.what if isinstance(error, NotRunning) else "the broker does not answer"
        if silent_s >= self._wait_s:
            raise NotRunning(
                f"the broker has acknowledged nothing of {self._topic} for {silent_s:.0f} s",
                hint="Is it up (`headrace status`)? Then run the same command again.",
            )
        if silent_s >= SILENT_S:
            if not self._is_away or now - self._told >= TELL_EVERY_S:
                self._told = now
                self._tell(f"{what}: waiting, {silent_s:.0f} s of {self._wait_s:.0f}")
            self._is_away = True
        elif self._is_away:
            self._is_away = False
            self._tell("the broker answers again")


def _said(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}" if error is not None else ""
