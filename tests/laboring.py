"""A worker in a thread of the test's own process, and what it has said."""

import threading
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Any

from waiting import until

from etl_procs.batch import Arrived
from etl_procs.core import Core
from etl_procs.dataflow import Dataflow
from etl_procs.flow import Committed
from etl_procs.partitions import Room, Stop, Take
from etl_procs.worker import Worker
from headrace.clock import Clock

PATIENCE_S = 30.0


class Laboring:
    def __init__(self, core: Core, flows: Iterable[Dataflow], *, clock: Clock) -> None:
        self.said: list[Any] = []
        self.failures: list[BaseException] = []
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self.worker = Worker(
            core,
            {flow.name: flow for flow in flows},
            clock=clock,
            inbox=self.inbox,
            say=self.said.append,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.worker.run()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.failures.append(error)

    def start(self) -> None:
        self._thread.start()

    @property
    def committed(self) -> list[Committed]:
        return [one for one in list(self.said) if isinstance(one, Committed)]

    def rooms(self, stream: str) -> int:
        """Count how often it has said that there is room."""
        return sum(isinstance(one, Room) and one.stream == stream for one in list(self.said))

    def say(self, arrived: Arrived) -> None:
        """Hand tuples in, whether or not there is room."""
        stream = arrived.stream
        self.inbox.put(Take(stream.dataflow, stream.name, arrived.through, arrived.tuples))

    def until(self, condition: Any) -> None:
        until(condition, PATIENCE_S, lambda: f"{self.said} {self.failures}")

    def until_batch(self, number: int) -> None:
        self.until(lambda: any(c.through >= number for c in self.committed))

    def stop(self) -> None:
        self.inbox.put(Stop())
        if self._thread.is_alive():
            self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
