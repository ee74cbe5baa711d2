"""The parts of a running stack, as `headrace tpcdi` works on them."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString

from headrace.cli import addresses
from headrace.cli.progress import Lines
from headrace.clock import SystemClock
from headrace.config import Config
from headrace.errors import DefinitionError, NotRunning
from headrace.local.home import Home

if TYPE_CHECKING:
    from etl_procs.dataflow import Dataflow
    from etl_procs.model import Stream
    from etl_procs.reader import Reader
    from tpcdi.days import Rows
    from tpcdi.snapshot import Connection

LAST_BATCH = "SELECT max(batch) FROM headrace_ledger WHERE dataflow = ?"
ARRIVED: LiteralString = """\
SELECT batch FROM headrace.ledger WHERE dataflow = %s AND partition = 0"""


class Stack:
    """The stack of this data folder."""

    def __init__(self, of: Config) -> None:
        # Here, because every other command would pay for importing Arrow and Kafka's client.
        from etl_procs import loader
        from ingest.posting import Posting

        config = replace(addresses.warehouse(of), broker=addresses.broker(of))
        flow = loader.load(config.flows).get("tpcdi")
        if flow is None:
            raise DefinitionError(
                "the dataflow tpcdi is not among those that are configured",
                hint='Start the stack with it: headrace up --flow "$(headrace tpcdi flow)"; or '
                "name that file in `flows`.",
            )
        Home(config.home).create()
        self._config = config
        self._flow = flow
        self._posting = Posting(lambda: config.broker)

    def send(self, stream: "Stream", files: Sequence[Path]) -> int:
        """Send the tuples of files; tell how many, when the broker has them."""
        from ingest.collector import collect

        lines = Lines(lambda text: tell(f"{stream.name}: {text}"), SystemClock())
        names = [str(file) for file in files]
        return collect(self._config, stream, names, progress=lines.show).tuples

    def post(self, stream: "Stream", source: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Post rows, which are known again by the name of their source."""
        from ingest.cleaning import Cleaner

        raws = [json.dumps(row).encode() for row in rows]
        self._posting.post(stream, Cleaner(stream), raws, source, 1)

    def write(self, rows: "Rows", first: int) -> int:
        """Post lines, of which the first has this number; tell the offset of the last record."""
        from ingest.cleaning import Cleaner

        cleaner = Cleaner(rows.stream)
        return self._posting.post(rows.stream, cleaner, rows.lines, rows.source, first)[-1].offset

    def taken(self, stream: "Stream") -> None:
        """Return when the core has taken what is in a stream."""
        from headrace.cli.lags import until_taken

        with _told_to_go_on():
            until_taken(self._config, self._flow, stream, self._config.broker)

    def arrived(self) -> None:
        """Return when the warehouse has all that the core has committed."""
        from headrace.cli.lags import until_arrived

        with _told_to_go_on():
            until_arrived(self._config, self._flow)

    def warehouse(self) -> "Connection":
        """Connect to the warehouse, as one who reads."""
        from migrations import warehouse

        place = addresses.warehouses(self._config)[0]
        connection = warehouse.connect(place.url, application="headrace tpcdi")
        connection.execute("SET search_path TO tpcdi")
        return connection

    @contextmanager
    def passage(self) -> "Iterator[Passage]":
        """Give where it is seen how far facts are on their way."""
        from etl_procs.core import core_path
        from etl_procs.reader import Reader

        with self.warehouse() as warehouse:
            yield Passage(self._flow, Reader(core_path(self._config.home, 0)), warehouse)

    def ended(self) -> frozenset[int]:
        """Tell which phases are over."""
        from etl_procs.core import core_path
        from etl_procs.reader import Reader

        with Reader(core_path(self._config.home, 0)).snapshot() as core:
            _, rows = core.query("SELECT batch FROM phases WHERE NOT is_open", [])
            return frozenset(int(batch or 0) for (batch,) in rows)


def tell(text: str) -> None:
    """Say how far a load is, on stderr."""
    # In one piece: several sources are told of at once.
    print(f"{text}\n", end="", file=sys.stderr, flush=True)


@contextmanager
def _told_to_go_on() -> "Iterator[None]":
    """Say of what stands still how a load or a stream goes on, which is not as tuples of others."""
    try:
        yield
    except NotRunning as error:
        raise NotRunning(
            error.what,
            hint="Nothing is lost. Is the stack up? `headrace status` tells. When it is, say the "
            "same command again: it goes on where it was.",
        ) from error


class Passage:
    """How far facts are on their way: what the ledgers of the core and of the warehouse say."""

    def __init__(self, flow: "Dataflow", core: "Reader", warehouse: "Connection") -> None:
        self._flow = flow
        self._core = core
        self._warehouse = warehouse

    def committed(self) -> tuple[int, Mapping[str, int]]:
        """Tell a batch of the core, and before which record of each stream's topic it ended.

        It is the last that any procedure has done: a batch may be in two transactions.
        """
        from etl_procs.batch import offset_of
        from tpcdi.days import FACTS, STREAMS

        name = self._flow.name
        with self._core.snapshot() as core:
            _, rows = core.query(LAST_BATCH, [name])
            ((batch,),) = rows
            positions = {
                stream: offset_of(place)
                for stream in (STREAMS[file].name for file in FACTS)
                for place in core.positions(name, stream).values()
            }
        return int(batch or 0), positions

    def readable(self) -> int:
        """Tell through which batch the warehouse has what the core gave."""
        row = self._warehouse.execute(ARRIVED, [self._flow.name]).fetchone()
        return int(str(row[0])) if row else 0
