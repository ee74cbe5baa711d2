"""The pusher: the thread beside the engine that sends what the core has committed.

It sleeps until the core commits. A warehouse that is away is tried again, ever more slowly, for
as long as it takes: the core keeps what it has not confirmed. Anything else that goes wrong ends
the pusher and is handed to its owner.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from etl_procs.dataflow import Dataflow
from etl_procs.errors import Passing
from headrace.clock import Clock
from migrations import warehouse
from migrations.errors import Away
from migrations.push import Push
from migrations.warehouse import Connection

log = logging.getLogger(__name__)

# The first wait of a warehouse's restart, and the longest: doubled in between.
BACKOFF_S_MIN = 0.2
BACKOFF_S_MAX = 10.0


class Pusher:
    """Pushes dataflows whenever a core has committed, at most once in `every_s`.

    There is one push for each partition, in their order.
    """

    def __init__(
        self,
        pushes: Sequence[Push],
        dataflows: Sequence[Dataflow],
        *,
        url: str,
        every_s: float,
        clock: Clock,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._pushes = pushes
        self._dataflows = dataflows
        self._url = url
        self._every_s = every_s
        self._clock = clock
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._pending = True  # what an earlier run has left behind
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="pusher", daemon=True)

    def prepare(self) -> None:
        """Make the warehouse's tables, and refuse those that are not the dataflows'.

        A warehouse that is away is not waited for: `start` does the same whenever it connects.
        """
        try:
            with warehouse.connect(self._url, application="headrace pusher") as connection:
                self._prepare(connection)
        except Away as error:
            log.warning("the warehouse's tables cannot be looked at yet: %s", error.what)

    def start(self) -> None:
        """Begin, with whatever is staged already."""
        self._thread.start()

    def notify(self) -> None:
        """Say that the core has committed; returns at once."""
        with self._changed:
            self._pending = True
            self._changed.notify()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Finish the push at hand and end; tell whether it has ended in time."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._push_and_retry()
        except Exception as error:  # noqa: BLE001 - the thread's last place to say something
            log.error("the pusher stops: %s", error)
            self._on_failure(error)

    def _push_and_retry(self) -> None:
        backoff_s = BACKOFF_S_MIN
        while not self._stopping:
            try:
                with warehouse.connect(self._url, application="headrace pusher") as connection:
                    self._prepare(connection)
                    log.info("connected to the warehouse")
                    while self._wait_for_work():
                        started = self._clock.monotonic()
                        self._push_all(connection)
                        backoff_s = BACKOFF_S_MIN
                        self._rest(started + self._every_s - self._clock.monotonic())
            except (Away, Passing) as error:
                log.warning("trying again in %.1f s: %s", backoff_s, error.what)
                self.notify()
                self._rest(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)

    def _prepare(self, connection: Connection) -> None:
        for dataflow in self._dataflows:
            warehouse.prepare(connection, dataflow)

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to push; False when it is time to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._stopping)
            self._pending = False
            return not self._stopping

    def _push_all(self, connection: Connection) -> None:
        away: Away | Passing | None = None
        for dataflow in self._dataflows:
            for push in self._pushes[: dataflow.partitions]:
                try:
                    self._push_one(connection, push, dataflow)
                except (Away, Passing) as error:  # a lock on one's table must not keep others back
                    away = error
        if away is not None:
            raise away

    def _push_one(self, connection: Connection, push: Push, dataflow: Dataflow) -> None:
        more = True
        while more and not self._stopping:
            pushed = push.run(connection, dataflow)
            more = pushed.more
            if pushed.through > pushed.after:
                log.info(
                    "pushed %s through batch %d: %d batches, %d rows",
                    dataflow.place(push.partition),
                    pushed.through,
                    pushed.through - pushed.after,
                    pushed.rows,
                )

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, timeout=max(seconds, 0))
