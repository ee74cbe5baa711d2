"""The load: the files of a directory, phase by phase, and what is then seen in the warehouse.

A phase's dimensions are sent first and its facts when the core has done with them; within each, the
sources in turn. Whatever ends it, the same load goes on where it was: sources and marks are known
again by their names.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from etl_procs.model import Stream
from headrace.clock import Clock
from headrace.errors import Refused
from tpcdi import seen
from tpcdi.dataflow.outlets import is_day
from tpcdi.dataflow.phases import BEGINS, ENDS
from tpcdi.dataflow.sources import SOURCES, Source, answers, marks, observed
from tpcdi.snapshot import Connection

AT_ONCE = 5
FIRST_FACT = "Trade.txt"
LAST_BATCH_OF_FILES = 3
FIRST_UPDATE = 2
WATCH_S = 60.0
"""How often what is visible is counted: the rules want every five minutes."""
LOOK_S = 0.5
"""How often the clock is looked at for this."""


class Parts(Protocol):
    """What a load works on."""

    def send(self, stream: Stream, files: Sequence[Path]) -> int:
        """Send the tuples of files; tell how many, when the broker has them."""

    def post(self, stream: Stream, source: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Post rows, which are known again by the name of their source."""

    def taken(self, stream: Stream) -> None:
        """Return when the core has taken what is in a stream."""

    def arrived(self) -> None:
        """Return when the warehouse has all that the core has committed."""

    def warehouse(self) -> Connection:
        """Connect to the warehouse, as one who reads."""

    def ended(self) -> frozenset[int]:
        """Tell which phases are over."""


class Loaded(NamedTuple):
    """A phase that was loaded."""

    batch: int
    rows: Mapping[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one directory."""

    folder: Path
    parts: Parts
    clock: Clock
    tell: Callable[[str], None]
    begins: Callable[[int], None] = lambda _: None
    """Is told of each phase before anything of it is sent."""

    def run(self) -> list[Loaded]:
        """Load all phases that are not over."""
        ended = self.parts.ended()
        batches = self._left(ended)
        with self.parts.warehouse() as warehouse:
            if not ended:
                self._report(warehouse, 0)  # the first phase's end waits for it, too
            done = [self._phase(warehouse, batch) for batch in batches]
            last = max(batch for batch in {*batches, *ended} if batch <= LAST_BATCH_OF_FILES)
            self._note(last, "Visibility_1", seen.visible(warehouse), once=True)
            self._until_noted()
        return done

    def _left(self, ended: frozenset[int]) -> list[int]:
        """Tell which phases are to be loaded: none without the one before it."""
        there = [b for b in range(1, LAST_BATCH_OF_FILES + 1) if self._of(b).is_dir()]
        left = [batch for batch in there if batch not in ended]
        lacking = {batch - 1 for batch in left} - ended - {0, *left}
        if lacking or not there:
            raise Refused(
                f"{self.folder} has no Batch{min(lacking or {1})}",
                hint="Name a directory as TPC-DI's generator writes it: `headrace tpcdi generate` "
                "makes one.",
            )
        for batch in sorted({*range(1, LAST_BATCH_OF_FILES + 1)} - ended - {*there}):
            self.tell(
                f"warning: there is no Batch{batch}: its phase is not loaded, and the audit, which "
                f"wants {LAST_BATCH_OF_FILES} batches, will not be OK"
            )
        return left

    def _phase(self, warehouse: Connection, batch: int) -> Loaded:
        began, day = self.clock.monotonic(), self._day(batch)
        self.begins(batch)
        with Watch(self, batch):
            self._mark(batch, BEGINS, day)
            files = self._answers(batch)
            rows = {"answers": self.parts.send(answers, files) if files else 0}
            at = [source.files for source in SOURCES].index(FIRST_FACT)
            for sources in (SOURCES[:at], SOURCES[at:]):
                rows |= self._send(batch, sources)
                self.parts.taken(marks)
            self.parts.taken(answers)
            self.parts.arrived()
            self._report(warehouse, batch)
            self._until_noted()
            self._mark(batch, ENDS)
            self.parts.taken(marks)
            self.parts.arrived()
        return Loaded(batch, rows, self.clock.monotonic() - began)

    def _send(self, batch: int, sources: Sequence[Source]) -> dict[str, int]:
        """Send sources, some at once, each with the word that it is complete."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            sent = {pool.submit(self._source, batch, source): source for source in sources}
            try:
                return {sent[each].files: each.result() for each in as_completed(sent)}
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _source(self, batch: int, source: Source) -> int:
        stream = source.first if batch == 1 else source.then
        files = sorted(self._of(batch).glob(source.files)) if stream is not None else []
        files = [file for file in files if not file.name.endswith("_audit.csv")]
        began, rows = self.clock.monotonic(), 0
        if stream is not None and files:
            rows = self.parts.send(stream, files)
            self.parts.taken(stream)
            self.tell(
                f"phase {batch}: {source.files}, {rows:,} rows in "
                f"{self.clock.monotonic() - began:.1f} s"
            )
        elif stream is not None:
            self.tell(f"warning: Batch{batch} has no {source.files}: what it feeds stays empty")
        self._mark(batch, source.name)
        return rows

    def _report(self, warehouse: Connection, batch: int) -> None:
        """Report what is in the warehouse after a phase, and that it is complete."""
        self._note(batch, "Validation", seen.valid(warehouse), once=True)
        complete = seen.Seen(seen.now(), None, "Phase complete record", None)
        self._note(batch, "PCR", [complete], once=True)

    def observe(self, batch: int, kind: str, counted: Sequence[seen.Seen]) -> None:
        """Write down what was seen; return when the warehouse has it."""
        self._note(batch, kind, counted)
        self._until_noted()

    def _note(
        self, batch: int, kind: str, counted: Sequence[seen.Seen], *, once: bool = False
    ) -> None:
        """Write down what was seen; what is reported once, in the first of several attempts."""
        rows = [
            {
                "at": each.at,
                "batch": batch,
                "source": each.source,
                "text": each.text,
                "type": kind,
                "data": None if each.number is None else str(each.number),
            }
            for each in counted
        ]
        self.parts.post(observed, f"phase {batch}: {kind}{'' if once else rows[0]['at']}", rows)

    def _until_noted(self) -> None:
        self.parts.taken(observed)
        self.parts.arrived()

    def _answers(self, batch: int) -> list[Path]:
        """Find the generator's answers that come with a phase."""
        names = [f"Batch{batch}/*_audit.csv", f"Batch{batch}_audit.csv"]
        names += ["Generator_audit.csv"] if batch == 1 else []
        found = sorted(file for name in names for file in self.folder.glob(name))
        if not found:
            self.tell(
                f"warning: there are no answers, Batch{batch}/*_audit.csv: what the audit compares "
                "with them will not be OK"
            )
        return found

    def _of(self, batch: int) -> Path:
        return self.folder / f"Batch{batch}"

    def _day(self, batch: int) -> str:
        """Read the day on which a phase begins."""
        file = self._of(batch) / "BatchDate.txt"
        try:
            day = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(
                f"{file} cannot be read: {error}", hint="It names the day on which a phase begins."
            ) from error
        if not is_day(day):
            raise Refused(f"{file} has no date: {day!r:.40}", hint="It has one, as 2017-07-07.")
        return day

    def _mark(self, batch: int, source: str, day: str | None = None) -> None:
        row = {"batch": batch, "source": source, "day": day}
        self.parts.post(marks, f"phase {batch}: {source}", [row])


class Watch:
    """Counts what is visible while a phase is loaded, from a session of its own."""

    def __init__(self, load: Load, batch: int) -> None:
        self._load = load
        self._batch = batch
        self._counted = load.clock.monotonic()
        self._over = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def _run(self) -> None:
        try:
            if self._batch == FIRST_UPDATE:
                with self._load.parts.warehouse() as warehouse:
                    visible = seen.visible(warehouse)
                self._load.observe(self._batch, "Visibility_1", visible)
            with self._load.parts.warehouse() as warehouse:
                while not self._over.wait(LOOK_S):
                    now = self._load.clock.monotonic()
                    if now - self._counted >= WATCH_S:
                        self._counted = now
                        self._load.observe(self._batch, "Visibility_2", seen.rows(warehouse))
        except Exception as error:  # noqa: BLE001 - raised where the phase ends
            self._failure = error
