"""The pusher: the thread beside the engine that sends what the core has committed to a warehouse.

It sleeps until the core commits, and between two pushes for as long as what comes may wait: a time,
unless it is so many rows or bytes. A warehouse that is away is tried again, ever more slowly, for
as long as it takes: the core keeps what it has not confirmed. Anything else that goes wrong stops
it until somebody has mended that: it says so, and looks again now and then.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from etl_procs.dataflow import Dataflow
from etl_procs.errors import Passing
from headrace.clock import Clock
from headrace.errors import HeadraceError
from migrations import layout, ledger, twins
from migrations.errors import Away, Gap
from migrations.push import Push, check_continues
from migrations.pushing import NOT_YET, Pushing, State, stopped_by
from migrations.rebuild import Filling
from migrations.warehouse import Connection, Warehouse

log = logging.getLogger(__name__)

# The first wait of a warehouse's restart, and the longest: doubled in between.
BACKOFF_S_MIN = 0.2
BACKOFF_S_MAX = 10.0
LOOK_AGAIN_S = 30.0
"""How often it is looked whether what must be mended has been."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may wait, and how long."""

    wait_s: float
    rows: int
    size: int


class Pusher:
    """Pushes dataflows to a warehouse whenever a core has committed, within limits.

    There is one push for each partition, in their order. `others` are the warehouses that may have
    what this one lacks.
    """

    def __init__(
        self,
        place: Warehouse,
        pushes: Sequence[Push],
        dataflows: Sequence[Dataflow],
        *,
        limits: Limits,
        clock: Clock,
        others: Sequence[Warehouse] = (),
    ) -> None:
        self._place = place
        self._pushes = pushes
        self._origins = [push.origin for push in pushes]
        self._dataflows = [flow for flow in dataflows if place.outlets(flow)]
        self._limits = limits
        self._clock = clock
        self._others = others
        self._changed = threading.Condition()
        self._pending = True  # what an earlier run has left behind
        self._rows = self._size = 0
        self._stopping = False
        self._backoff_s = BACKOFF_S_MIN
        self.pushing = Pushing(State.WAITS, self._now(), NOT_YET)
        """What it does just now: written by its thread, for everybody to read."""
        self._thread = threading.Thread(target=self._run, name=f"push {place.name}", daemon=True)

    @property
    def name(self) -> str:
        """The name of its warehouse."""
        return self._place.name

    def prepare(self) -> None:
        """Make the warehouse's tables, and refuse those that are not the dataflows', or are fed by
        others.

        A warehouse that is away is not waited for: `start` does the same whenever it connects.
        """
        try:
            with self._connected() as connection:
                self._prepare(connection)
                for dataflow in self._dataflows:
                    self._check_continues(connection, dataflow)
        except Away as error:
            log.warning(
                "the tables of %s cannot be looked at yet: %s", self._place.name, error.what
            )

    def start(self) -> None:
        """Begin, with whatever is staged already."""
        self._thread.start()

    def notify(self, rows: int = 0, size: int = 0) -> None:
        """Say that the core has committed, and staged so much; returns at once."""
        with self._changed:
            self._pending = True
            self._rows += rows
            self._size += size
            self._changed.notify()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop after the push at hand; False if that takes longer than this time."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._push()
            except (Away, Passing) as error:
                self._wait_out(error)
            except Exception as error:  # noqa: BLE001 - the thread's last place to say something
                self._stop_for(error)

    def _push(self) -> None:
        """Push whatever comes, over one connection."""
        with self._connected() as connection:
            self._prepare(connection)
            log.info("connected to the warehouse %s", self._place.name)
            while self._wait_for_work():
                started = self._clock.monotonic()
                has_moved = self._push_all(connection)
                self._backoff_s = BACKOFF_S_MIN
                if self.pushing.state is not State.PUSHES:
                    self.pushing = Pushing(State.PUSHES, self._now())
                if has_moved:
                    self._rest(started + self._limits.wait_s - self._clock.monotonic())

    def _wait_out(self, error: Away | Passing) -> None:
        """Wait for what passes by itself, each time for longer."""
        log.warning(
            "pushing to %s again in %.1f s: %s", self._place.name, self._backoff_s, error.what
        )
        since = self.pushing.since if self.pushing.state is State.WAITS else self._now()
        self.pushing = Pushing(State.WAITS, since, error.what, error.hint)
        self._pause(self._backoff_s)
        self._backoff_s = min(self._backoff_s * 2, BACKOFF_S_MAX)

    def _stop_for(self, error: Exception) -> None:
        """Wait for somebody who mends what is wrong."""
        is_known = isinstance(error, HeadraceError)
        told = stopped_by(error, self._now())
        if (told.state, told.what) != (self.pushing.state, self.pushing.what):
            log.error("pushing to %s stops: %s", self._place.name, error, exc_info=not is_known)
            self.pushing = told
        self._pause(LOOK_AGAIN_S)

    def _now(self) -> str:
        return self._clock.now().isoformat()

    def _connected(self) -> Connection:
        return self._place.connect(application="headrace pusher")

    def _prepare(self, connection: Connection) -> None:
        twins.refuse(connection, self._place, self._others)
        for dataflow in self._dataflows:
            layout.prepare(connection, self._place, dataflow)

    def _check_continues(self, connection: Connection, dataflow: Dataflow) -> None:
        """Refuse a ledger that pushes could not go on from, unless rows may be copied first."""
        arrived = ledger.read(connection, [dataflow.name])
        for push in self._pushes[: dataflow.partitions]:
            row = arrived[dataflow.name, push.partition]
            with push.origin.snapshot() as snapshot, suppress(Gap):
                check_continues(row, snapshot, dataflow.name, self._place.name)

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to push; False when it is time to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._stopping)
            self._pending = False
            self._rows = self._size = 0
            return not self._stopping

    def _push_all(self, connection: Connection) -> bool:
        """Push all that is staged; tell whether there was anything."""
        away: Away | Passing | None = None
        has_moved = False
        for dataflow in self._dataflows:
            for push in self._pushes[: dataflow.partitions]:
                try:
                    has_moved |= self._push_one(connection, push, dataflow)
                except (Away, Passing) as error:  # a lock on one's table must not keep others back
                    away = error
        if away is not None:
            raise away
        return has_moved

    def _push_one(self, connection: Connection, push: Push, dataflow: Dataflow) -> bool:
        more, has_moved = True, False
        while more and not self._stopping:
            try:
                pushed = push.run(connection, dataflow)
            except Gap:
                filling = Filling(self._place, self._others, dataflow, self._origins)
                filling.begin(connection, push.partition, push.crash)
                continue
            more = pushed.more
            if pushed.through > pushed.after:
                has_moved = True
                log.info(
                    "pushed %s to %s through batch %d: %d batches, %d rows",
                    dataflow.place(push.partition),
                    self._place.name,
                    pushed.through,
                    pushed.through - pushed.after,
                    pushed.rows,
                )
        return has_moved

    def _rest(self, seconds: float) -> None:
        """Let more come, for a time and to a limit."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._stopping
                    or self._rows >= self._limits.rows
                    or self._size >= self._limits.size
                ),
                timeout=max(seconds, 0),
            )

    def _pause(self, seconds: float) -> None:
        """Wait before all that is staged is tried again."""
        with self._changed:
            self._pending = True
            self._changed.wait_for(lambda: self._stopping, timeout=seconds)
