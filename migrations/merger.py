"""The merger: the thread beside the engine that merges what arrives in a warehouse, every so often.

A merge that fails is said, and tried again the next time: until then live shows all that arrived.
"""

import logging
import threading
from collections.abc import Sequence
from functools import partial

from etl_procs.dataflow import Dataflow
from headrace.crash import CrashPoints
from headrace.errors import HeadraceError
from migrations import warehouse
from migrations.merge import Merging
from migrations.progress import Progress
from migrations.warehouse import Warehouse

log = logging.getLogger(__name__)


class Merger:
    """Merges dataflows in a warehouse, `every_s` seconds."""

    def __init__(
        self,
        place: Warehouse,
        dataflows: Sequence[Dataflow],
        *,
        every_s: float,
        crash: CrashPoints,
    ) -> None:
        self._place = place
        self._dataflows = [flow for flow in dataflows if place.outlets(flow)]
        self._every_s = every_s
        self._crash = crash
        self._progress = Progress()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"merge {place.name}", daemon=True)

    def start(self) -> None:
        """Begin; the first merge is after the first interval."""
        self._thread.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop, and take back the merge at hand; False if that takes longer than this time."""
        self._stopping.set()
        self._progress.cancel()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self._merge_all()
            except HeadraceError as error:
                if not self._stopping.is_set():
                    log.error("merging in %s: %s. %s", self._place.name, error.what, error.hint)
            except Exception:  # whatever it is, to merge no more would help nobody
                log.exception("merging in %s", self._place.name)

    def _merge_all(self) -> None:
        with self._place.connect(application="headrace merger") as connection:
            for dataflow in self._dataflows:
                self._progress = Progress()
                self._progress.interrupted_by(partial(warehouse.cancel, connection))
                if self._stopping.is_set():
                    return
                merging = Merging(self._place, self._crash, progress=self._progress)
                rows = merging.run(connection, dataflow)
                if rows:
                    log.info("merged %d rows of %s in %s", rows, dataflow.name, self._place.name)
