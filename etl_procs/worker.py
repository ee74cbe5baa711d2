"""The worker: the thread that runs a core, whenever there is something to run.

Others hand tuples in and go on; they wait only while too many batches wait already. What may pass
by itself - a full disk, a lock, full dead letters - is waited for, visibly; anything else ends it.
"""

import logging
import threading
from collections.abc import Callable

from etl_procs.batch import Arrived
from etl_procs.core import Core
from etl_procs.errors import Passing
from etl_procs.flow import Committed
from headrace.clock import Clock

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""How soon a dead letter that another process wants to replay is seen in a quiet core."""
BACKOFF_S_MAX = 10.0

Told = Callable[[Committed], None]


class Worker:
    """Runs one core on a thread of its own."""

    def __init__(
        self,
        core: Core,
        *,
        pending_max: int,
        clock: Clock,
        on_commit: Told,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._core = core
        self._pending_max = pending_max
        self._clock = clock
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._fed = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def start(self) -> None:
        """Begin to run."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Let those go on who wait for room, and stop after the group at hand; returns at once."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop after the group at hand."""
        self.ask_to_stop()
        if self._thread.is_alive():
            self._thread.join()

    def take(self, arrived: Arrived) -> None:
        """Take tuples in; return when there is room for more."""
        if self._stopping:
            return  # Kafka has it, and the next start takes it
        self._core.feed(arrived)
        stream = arrived.stream
        with self._changed:
            self._fed = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._stopping or self._core.waiting(stream) <= self._pending_max
            )

    def _run(self) -> None:
        try:
            backoff_s = 0.1
            while not self._stopping:
                try:
                    committed = self._core.commit_next()
                except Passing as error:
                    log.warning("trying again in %.1f s: %s", backoff_s, error)
                    self._rest(backoff_s)
                    backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)
                else:
                    backoff_s = 0.1
                    if committed is None:
                        self._wait_for_work()
                    else:
                        self._on_commit(committed)
                        self._make_room()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self._on_failure(error)
        finally:
            self.ask_to_stop()

    def _wait_for_work(self) -> None:
        """Wait for tuples, a batch's deadline, or a look for dead letters to replay."""
        deadline = self._core.deadline()
        most = LOOK_EVERY_S
        if deadline is not None:
            most = min(most, max(deadline - self._clock.monotonic(), 0.0))
        with self._changed:
            if not self._stopping:
                self._changed.wait_for(lambda: self._fed or self._stopping, timeout=most)
            self._fed = False

    def _make_room(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, timeout=seconds)
