"""The jobs: runs the migrations that were asked for, each in a thread, until it has ended.

A migration that was asked for is run to its end by whoever has the registry open: after a restart
it begins again, to the batches that it went to before. What may pass by itself is tried again for
a while, visibly; then, and for all else, the migration has failed, and says why.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from headrace.errors import HeadraceError
from migrations.errors import Cancelled, MigrationEnded, MigrationUnknown
from migrations.job import Job, Place
from migrations.progress import Progress
from migrations.registry import Asked, Migration, Outcome, Registry, State

log = logging.getLogger(__name__)

AT_ONCE, WAITING_AT_ONCE = 4, 32
WRITE_AGAIN_S = 0.5
"""After this time a registry is written that could not be."""


class Jobs:
    """Runs migrations."""

    def __init__(self, registry: Registry, place: Place) -> None:
        self._registry = registry
        self._place = place
        self._threads = ThreadPoolExecutor(
            AT_ONCE + WAITING_AT_ONCE, thread_name_prefix="migration"
        )
        self._room = threading.Semaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._running: dict[str, Progress] = {}
        self._stopping = threading.Event()

    def resume(self) -> None:
        """Go on with what had not ended, and was not to stop."""
        self._registry.end_stopped()
        for migration in self._registry.open():
            self._start(migration)

    def put(self, id_: str, asked: Asked) -> tuple[Migration, bool]:
        """Take a migration on, unless it is known already; tell whether it is new."""
        try:
            self._registry.find(id_)
        except MigrationUnknown:  # what is known may have been meant under another configuration
            self._place.check(asked)
        found, is_new = self._registry.put(id_, asked)
        if is_new:
            self._start(found)
        return found, is_new

    def cancel(self, id_: str) -> Migration:
        """Have a migration stop; nothing of it is left half-done."""
        self._registry.find(id_)
        if not self._registry.stop(id_):
            raise MigrationEnded(
                f"the migration {id_} has ended", hint="What it has done stays done."
            )
        with self._lock:
            progress = self._running.get(id_)
        if progress is not None:
            progress.cancel()  # or another process runs it, and sees it when it tells how far it is
        return self._registry.find(id_)

    def close(self) -> None:
        """Stop; what has not ended begins again when it is resumed."""
        self._stopping.set()
        with self._lock:
            running = list(self._running.values())
        for progress in running:
            progress.cancel()
        self._threads.shutdown(cancel_futures=True)
        self._registry.end_stopped()

    def _start(self, migration: Migration) -> None:
        id_ = migration.id
        progress = Progress(partial(self._tell, id_), migration.rows, migration.size)
        with self._lock:
            self._running[id_] = progress
        job = Job(self._place, self._registry, migration, progress)
        self._threads.submit(self._run, job)

    def _tell(self, id_: str, at: Progress) -> None:
        try:
            goes_on = self._registry.tell(id_, at.stage, at.rows, at.size)
        except sqlite3.Error as error:  # that nobody can be told is no reason to move nothing
            log.warning("migration %s, %s: %s", id_, at.stage, error)
        else:
            if not goes_on:
                raise Cancelled(f"the migration {id_} was to stop", hint="What is done stays done.")

    def _run(self, job: Job) -> None:
        """Run a job, and say how it ended, if it has."""
        try:
            if self._surely(partial(self._registry.begin, job.migration.id)):
                outcome = self._outcome(job)
                if outcome is not None:
                    self._end(job, outcome)
        except BaseException as error:
            log.critical("migration %s", job.migration.id, exc_info=error)
            if not self._stopping.is_set():
                self._end(job, _bug(error))
        finally:
            with self._lock:
                del self._running[job.migration.id]

    def _end(self, job: Job, outcome: Outcome) -> None:
        id_, at = job.migration.id, job.progress
        self._surely(partial(self._registry.tell, id_, at.stage, at.rows, at.size))
        self._surely(partial(self._registry.end, id_, outcome))
        if outcome.error is None:
            log.info("migration %s %s", id_, outcome.state.value)
        else:
            log.error("migration %s failed: %s", id_, outcome.error["what"])

    def _surely(self, write: Callable[[], bool]) -> bool:
        """Write into the registry, as soon as its disk takes it; False if it does not before
        the end.
        """
        while True:
            try:
                return write()
            except sqlite3.Error as error:
                log.error("the registry of migrations cannot be written: %s", error)
                if self._stopping.wait(WRITE_AGAIN_S):
                    return False

    def _outcome(self, job: Job) -> Outcome | None:
        """Do a job when it may run; None if it is stopped. Who waits takes no other's room."""
        try:
            job.wait_until_idle()
            with self._room:
                return None if self._stopping.is_set() else job.run()
        except HeadraceError as error:
            if self._stopping.is_set():
                return None
            if isinstance(error, Cancelled) or job.progress.is_cancelled:
                return Outcome(State.CANCELLED)
            return Outcome.failed(type(error).__name__, error.what, error.hint)
        except Exception as error:
            log.exception("migration %s", job.migration.id)
            return _bug(error)


def _bug(error: BaseException) -> Outcome:
    """Say that it has failed for a reason that nobody foresaw."""
    hint = "What it has committed stays, and another one goes on from there: ask for it under "
    hint += "an id of its own. The API's log tells more: `headrace logs api`."
    return Outcome.failed("Bug", f"a bug: {error!r}", hint)
