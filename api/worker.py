"""A worker: a process that answers queries, one at a time, and that can be killed.

It is told the island's setting, and then asked. It ends with the process that started it.
"""

import os
import queue
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from api import formats, problem
from api.answer import Answer
from api.errors import CANCELLED, QueryCancelled, TooLarge
from api.formats import Format
from api.island import Island
from api.messages import TOO_LARGE, Ask, Begun, Cancel, Done, Explain, Explained, Start
from api.pages import Kept
from headrace import telemetry
from headrace.clock import SystemClock
from headrace.errors import HeadraceError

PIECE_BYTES = 256 * 1024
"""What is said at once, about: enough that the way costs little."""
ISLAND_SHARE = 2
"""So small a part of a worker's memory is the island's: what it has imported, and an answer on its
way, need the rest.
"""
LOOK_S = 0.05
"""Between two looks at how much memory is taken."""
CLOCK = SystemClock()


def main(connection: Connection) -> None:
    """Answer until nobody asks any more."""
    telemetry.start_logging("query worker")
    start: Start = connection.recv()
    threading.Thread(target=_watch, args=[start.memory_mb_max * 2**20], daemon=True).start()
    setting = replace(start.setting, memory_mb=start.memory_mb_max // ISLAND_SHARE)
    worker = _Worker(connection, Island(setting))
    threading.Thread(target=worker.listen, daemon=True).start()
    worker.run()


class _Worker:
    def __init__(self, connection: Connection, island: Island) -> None:
        self._connection = connection
        self._island = island
        self._asked: queue.SimpleQueue[Ask | Explain] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._at_hand = ""
        self._cancelled = ""

    def listen(self) -> None:
        """Hear what is asked, and what is to end."""
        while True:
            try:
                said = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)  # whoever asked has gone; the server ends what it does for us
            assert isinstance(said, Ask | Explain | Cancel), said
            if isinstance(said, Ask | Explain):
                self._asked.put(said)
                continue
            with self._lock:  # so that nothing else is at hand by then
                if said.id == self._at_hand:
                    self._cancelled = said.id
                    self._island.cancel()

    def run(self) -> None:
        """Answer one query after another."""
        while True:
            ask = self._asked.get()
            telemetry.REQUEST.set(ask.request)
            with self._lock:
                self._at_hand, self._cancelled = ask.id, ""
            try:
                if isinstance(ask, Ask):
                    self._answer(ask)
                else:
                    self._connection.send((Explained(self._island.explain(ask.asked)),))
            except HeadraceError as error:
                self._connection.send((self._told(ask, error),))
            except Exception as error:  # noqa: BLE001 - told to who asked, as what it is
                self._connection.send((error,))
            with self._lock:
                self._at_hand = ""

    def _told(self, ask: Ask | Explain, error: HeadraceError) -> HeadraceError:
        if ask.id and self._cancelled == ask.id:
            return QueryCancelled(CANCELLED, hint="Ask it again.")
        return error

    def _answer(self, ask: Ask) -> None:
        began = CLOCK.monotonic()
        with ExitStack() as opened:
            answer = opened.enter_context(self._island.answer(ask.asked))
            head = answer.head
            to = formats.writer(ask.format, head)
            counted = _Counted(answer, ask.rows_max)
            kept = None if ask.keep is None else Kept(ask.keep, head)
            batches = counted.batches()
            begun = Begun(dict(head.as_of), head.freshness, head.plan, head.cost_ms, head.moving)
            said = _Said(self._connection, begun)
            try:
                said.add(to.begin())
                for batch in batches if kept is None else kept.first(batches):
                    said.add(to.rows(batch))
                    if ask.format is not Format.JSON:  # that is whole before any of it is told
                        said.tell(PIECE_BYTES)
                opened.close()  # what goes wrong there is told, too
            except HeadraceError as error:
                if said.size:
                    told = self._told(ask, error)
                    said.add(to.end({"error": problem.document(told)}))
                    said.tell()
                raise
        said.add(to.end({"end": {"rows": counted.rows}} if kept is None else kept.end()))
        said.tell(ended=Done(counted.rows, CLOCK.monotonic() - began))


class _Said:
    """Words about an answer, told together when there is enough of it: each telling takes time."""

    def __init__(self, connection: Connection, begun: Begun) -> None:
        self._connection = connection
        self._words: list[Begun | bytes | Done] = [begun]
        self._held: list[bytes] = []
        self._waiting = 0
        self.size = 0

    def add(self, piece: bytes) -> None:
        self._held.append(piece)
        self._waiting += len(piece)

    def tell(self, least: int = 0, ended: Done | None = None) -> None:
        """Tell what is held, if it is as much as that."""
        if self._waiting < least:
            return
        self._words.append(b"".join(self._held))
        self._connection.send((*self._words, *([ended] if ended else [])))
        self.size += self._waiting
        self._words, self._held, self._waiting = [], [], 0


class _Counted:
    """An answer's batches, counted, and refused when they are too many."""

    def __init__(self, answer: Answer, most: int) -> None:
        self._answer = answer
        self._most = most
        self.rows = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._answer.batches:
            self.rows += batch.num_rows
            if self._most and self.rows > self._most:
                raise TooLarge(
                    f"the answer has more than {self._most} rows",
                    hint="Filter, aggregate or LIMIT it, ask for pages, or for lines, CSV or Arrow "
                    "by the header Accept; the limit is api.query_rows_max.",
                )
            yield batch


def _watch(bytes_max: int) -> None:
    """End the process when it takes too much memory: nothing else stops it in the middle."""
    page = resource.getpagesize()
    statm = Path("/proc/self/statm")
    while True:
        if int(statm.read_text().split()[1]) * page > bytes_max:
            os._exit(TOO_LARGE)
        time.sleep(LOOK_S)
