"""Numbers that are doubled, in streams that are published: a core that is read from outside."""

from pathlib import Path
from typing import Any

from trial import Trial, named, pass_on

from etl_procs import Batch, Dataflow, Stream, Transaction, by_punctuation
from etl_procs.publisher import Publisher
from etl_procs.staging import BATCH
from headrace import config
from headrace.crash import CrashPoints

N = "n INTEGER NOT NULL"


class Open(Trial):
    """source -> (double) -> doubled -> (tell) -> an outlet; what is below `least` fails there."""

    def __init__(self, path: Path, **settings: Any) -> None:
        flow = Dataflow("open")
        self.least, self.text = 0, "x"
        self.source = flow.stream("source", N, batches=by_punctuation())
        self.doubled = flow.stream("doubled", "n INTEGER NOT NULL, text TEXT")
        self.out = flow.outlet("out", "n INTEGER NOT NULL, text TEXT")

        @flow.procedure(takes=self.source, gives=[self.doubled])
        def double(tx: Transaction, batch: Batch) -> None:
            numbers = [int(n) for (n,) in batch.tuples]  # type: ignore[arg-type]
            tx.emit(self.doubled, [{"n": 2 * n, "text": self.text} for n in numbers])
            if any(n < self.least for n in numbers):
                tx.abort("too little")

        flow.procedure(takes=self.doubled, gives=[self.out])(named("tell", pass_on(self.out)))
        super().__init__(path, flow, **settings)
        self.publisher = Publisher([path], config.Core(**settings), CrashPoints())

    def publish(self, stream: Stream) -> None:
        self.publisher.publish(stream, 1)

    def take(self, *batches: list[int]) -> None:
        """Run batches of numbers."""
        self.run(self.source, *([(n,) for n in batch] for batch in batches))

    def kept(self, stream: Stream, after: int = 0) -> dict[int, list[Any]]:
        """Give the first column of what is kept behind a batch, by batch."""
        found: dict[int, list[Any]] = {}
        with self.reader.snapshot() as snapshot:
            for _, table in snapshot.kept(stream, after=after):
                for row in table.to_pylist():
                    found.setdefault(row.pop(BATCH), []).append(row["n"])
        return {batch: rows for batch, rows in found.items() if batch > after}

    def after(self, stream: Stream) -> int | None:
        with self.reader.snapshot() as snapshot:
            return snapshot.kept_after(stream)
