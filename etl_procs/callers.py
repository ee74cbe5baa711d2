"""Callers: calls on all partitions, each on that of its key."""

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from etl_procs.asking import Connects
from etl_procs.calls import Caller, Result, Turn
from etl_procs.core import core_path
from etl_procs.dataflow import Dataflow
from etl_procs.routing import partition_of
from headrace.config import Core as Settings
from headrace.crash import CrashPoints


class Callers:
    """Makes calls on the cores of a data folder, from any thread; each core is opened when it is
    first needed.
    """

    def __init__(
        self,
        home: Path,
        dataflows: Mapping[str, Dataflow],
        settings: Settings,
        crash: CrashPoints,
        warehouses: Connects | None = None,
    ) -> None:
        self._home = home
        self.dataflows = dataflows
        self._settings = settings
        self._crash = crash
        self._warehouses = warehouses
        self._opening = threading.Lock()
        self._opened: dict[int, Caller] = {}
        self._closing = ExitStack()

    def call(
        self, dataflow: str, name: str, arguments: Mapping[str, Any], *, key: str = ""
    ) -> Result:
        """Run a call and give its rows; with a `key`, run it at most once."""
        caller = self._caller(dataflow, name, arguments)
        return caller.call(dataflow, name, arguments, key=key)

    def call_once(self, dataflow: str, name: str, arguments: Mapping[str, Any], turn: Turn) -> None:
        """Run a call, unless it was run already."""
        self._caller(dataflow, name, arguments).call_once(dataflow, name, arguments, turn)

    def close(self) -> None:
        """Close the cores' files."""
        with self._opening:
            self._opened.clear()
            self._closing.close()

    def _partition(self, dataflow: str, name: str, arguments: Mapping[str, Any]) -> int:
        flow = self.dataflows.get(dataflow)
        call = flow.calls.get(name) if flow else None
        if flow is None or call is None or flow.partitions == 1:
            return 0  # any core refuses what nobody declares
        return partition_of(arguments.get(call.key), flow.partitions)

    def _caller(self, dataflow: str, name: str, arguments: Mapping[str, Any]) -> Caller:
        partition = self._partition(dataflow, name, arguments)
        with self._opening:
            if partition not in self._opened:
                path = core_path(self._home, partition)
                caller = Caller(
                    path,
                    self.dataflows,
                    self._settings,
                    self._crash,
                    warehouses=self._warehouses,
                )
                self._closing.callback(caller.close)
                self._opened[partition] = caller
            return self._opened[partition]
