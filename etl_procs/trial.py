"""The trial: a dataflow on a core of its own, for its author's tests. No Kafka and no Spark."""

import json
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from etl_procs import letters, reader
from etl_procs.asking import Connects
from etl_procs.calls import Callers, Result
from etl_procs.core import Core, core_path
from etl_procs.dataflow import Dataflow
from etl_procs.errors import GivenUp
from etl_procs.fitting import Fitter, Rows
from etl_procs.graph import corrections
from etl_procs.model import Outlet
from etl_procs.reader import Reader
from etl_procs.routing import own
from etl_procs.staging import BATCH, DELETED
from headrace.clock import SystemClock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints
from headrace.errors import DefinitionError


class Trial:
    """Runs a dataflow batch by batch, and shows what became of it.

    It is the real core on a temporary file, or one for each partition: what holds here holds in the
    engine.
    """

    def __init__(
        self,
        flow: Dataflow,
        settings: Settings | None = None,
        warehouses: Connects | None = None,
    ) -> None:
        flow.check()
        self._flow = flow
        self._settings = settings or Settings(durability="weak")
        self._warehouses = warehouses
        self._closing = ExitStack()

    def batch(self, **rows: Rows) -> None:
        """Run one batch: rows for each border stream, by its name; none for those left out.

        Each partition has a batch of the rows whose keys are its own. If a unit gives it up,
        `GivenUp` is raised; it is a dead letter then, and the next batch goes on as in the engine.
        """
        streams = [*self._flow.borders, *corrections(self._flow)]
        unknown = rows.keys() - {stream.name for stream in streams}
        if unknown:
            raise DefinitionError(
                f"{', '.join(unknown)} is no border stream of dataflow {self._flow.name}",
                hint=f"They are: {', '.join(stream.name for stream in streams)}.",
            )
        parts = {
            stream: Fitter(stream.columns).fit(rows[stream.name], f"the trial gives {stream.name}")
            for stream in streams
            if stream.name in rows
        }
        for partition, core in enumerate(self._cores):
            mine = {s: own(s, p, partition, self._flow.partitions) for s, p in parts.items()}
            core.enqueue(self._flow.name, mine)
            core.drain()
        with reader.cut([*map(Reader, self._paths)]) as snapshots:
            for snapshot in snapshots:
                last = snapshot.batch(self._flow.name)
                for letter in snapshot.dead_letters:
                    if letter.is_batch and letter.batch == last:
                        raise GivenUp(
                            f"{letter.unit} has given up batch {last}: {letter.reason}",
                            hint="Mend it; or, if the test wants this: pytest.raises(GivenUp).",
                        )

    def query(self, sql: str, parameters: Mapping[str, Any] | Iterable[Any] = ()) -> Result:
        """Ask the tables, windows and aggregates, as they are committed."""
        given = dict(parameters) if isinstance(parameters, Mapping) else list(parameters)
        found = []
        with reader.cut([*map(Reader, self._paths)]) as snapshots:
            for snapshot in snapshots:
                names, rows = snapshot.query(sql, given)
                found += [dict(zip(names, row, strict=True)) for row in rows]
        return found

    def call(self, name: str, *, key: str = "", **arguments: Any) -> Result:
        """Make a call."""
        return self._callers.call(self._flow.name, name, arguments, key=key)

    def outlet(self, outlet: Outlet | str) -> list[dict[str, Any]]:
        """Give what waits for the warehouse, in its order; a deletion says so."""
        known = self._flow.outlets
        declared = next((one for one in known.values() if outlet in (one, one.name)), None)
        if declared is None:
            raise DefinitionError(
                f"{outlet!r:.80} is no outlet of dataflow {self._flow.name}",
                hint=f"They are: {', '.join(known) or 'none'}.",
            )
        found = []
        with reader.cut([*map(Reader, self._paths)]) as snapshots:
            for snapshot in snapshots:
                through = snapshot.batch(self._flow.name)
                for table in snapshot.staged(declared, after=0, through=through):
                    for row in table.drop_columns(BATCH).to_pylist():
                        if row.pop(DELETED, False):
                            row = {"deleted": {key: row[key] for key in declared.key}}
                        found.append(row)
        return found

    def dead_letters(self) -> list[dict[str, Any]]:
        """Give what was rejected, and the batches that failed: procedure, reason and tuples."""
        with letters.reading(self._paths) as found:
            return [
                {
                    "procedure": letter.unit,
                    "reason": letter.reason,
                    "tuples": [list(row.values())[4:] for row in letter.rows()]
                    or [json.loads(letter.fields or "[]")],
                }
                for letter in found
            ]

    def __enter__(self) -> Self:
        folder = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="headrace-trial-"))
        home, flow, crash = Path(folder), self._flow, CrashPoints()
        self._paths = [core_path(home, partition) for partition in range(flow.partitions)]
        self._cores = [
            Core(
                path,
                settings=self._settings,
                clock=SystemClock(),
                crash=crash,
                partition=number,
                warehouses=self._warehouses,
            )
            for number, path in enumerate(self._paths)
        ]
        for core in self._cores:
            self._closing.callback(core.close)
            core.prepare([flow])
            core.open(flow.name, {stream.name: [0] for stream in flow.borders})
        flows = {flow.name: flow}
        self._callers = Callers(home, flows, self._settings, crash, self._warehouses)
        self._closing.callback(self._callers.close)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.close()
