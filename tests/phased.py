"""TPC-DI's files as the rows of its streams, cut and interleaved at will, for a trial."""

import random
import re
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from etl_procs import Stream, Trial
from etl_procs.wire import Delimited, Xml
from tpcdi import schema
from tpcdi.dataflow.outlets import OUTLETS
from tpcdi.dataflow.phases import BEGINS, ENDS
from tpcdi.dataflow.sources import SOURCES, Source, answers, marks
from tpcdi.oracle.canon import write
from tpcdi.oracle.computation import create

NAMESPACE = "{http://www.tpc.org/tpc-di}"
Rows = list[dict[str, Any]]
CONVERT: Mapping[pa.DataType, Any] = {pa.int64(): int, pa.float64(): float, pa.string(): str}
CUTS = (1, 10, 1_000, 10_000)
SAID = ("source", "text", "data")
WAITS = "Rows that wait"
TIMES = re.compile(r"\d\d:\d\d:\d\d").findall


def rows_of(stream: Stream, file: Path) -> Rows:
    """Read a file as the wire of a stream says."""
    if isinstance(stream.wire.format, Xml):
        return [
            _action(stream, action)
            for _, action in ET.iterparse(file)  # noqa: S314 - written by the generator
            if action.tag == f"{NAMESPACE}Action"
        ]
    assert isinstance(stream.wire.format, Delimited)
    lines = file.read_text().splitlines()
    if stream is answers:
        lines = lines[1:]
    return [_fields(stream, line.split(stream.wire.format.separator)) for line in lines]


def shorten_clock(folder: Path) -> None:
    """Leave the times of trades in Time.txt, to which facts refer, and of the others one of 600:
    they are passed on, and nothing looks into them.
    """
    clock = folder / "Batch1/Time.txt"
    told = {time for file in folder.glob("Batch*/Trade*.txt") for time in TIMES(file.read_text())}
    rows = clock.read_text().splitlines(keepends=True)
    kept = [row for n, row in enumerate(rows) if n % 600 == 0 or row.split("|")[1] in told]
    clock.write_text("".join(kept))


def _fields(stream: Stream, fields: list[str]) -> dict[str, Any]:
    columns = list(stream.columns.arrow)
    fields = [*fields, *[""] * len(columns)][: len(columns)]
    return {
        field.name: CONVERT[field.type](text) if text else None
        for field, text in zip(columns, fields, strict=True)
    }


def _action(stream: Stream, action: ET.Element) -> dict[str, Any]:
    assert isinstance(stream.wire.format, Xml)
    paths, found = stream.wire.format.paths, {}
    for field in stream.columns.arrow:
        *elements, last = paths[field.name].split("/")
        at = action.find("/".join(elements)) if elements else action
        text = None
        if at is not None and last.startswith("@"):
            text = at.get(last[1:])
        elif at is not None:
            child = at.find(last)
            text = None if child is None else child.text or ""
        if text is not None and (text or field.type == pa.string()):
            text = CONVERT[field.type](text)
        found[field.name] = text
    return found


class Feed:
    """A phase: the rows of its files, by stream, and the marks that belong to it.

    Of a source with several files, these come one after the other; or with dice, as the collector
    sends them: among each other, the rows of each in their order.
    """

    def __init__(self, folder: Path, batch: int, dice: random.Random | None = None) -> None:
        here = folder / f"Batch{batch}"
        self.batch = batch
        self.begins = [self.mark(BEGINS, (here / "BatchDate.txt").read_text().strip())]
        self.ends = [self.mark(ENDS)]
        self.rows: dict[str, Rows] = {}
        for source in SOURCES:
            if stream := self.stream(source):
                files = sorted(p for p in here.glob(source.files) if "audit" not in p.name)
                self._read(stream, files, dice)
        names = [f"Batch{batch}/*_audit.csv", f"Batch{batch}_audit.csv"]
        names += ["Generator_audit.csv"] if batch == 1 else []
        files = sorted(file for name in names for file in folder.glob(name))
        self._read(answers, files, dice)

    def _read(self, stream: Stream, files: Sequence[Path], dice: random.Random | None) -> None:
        rows = [rows_of(stream, file) for file in files]
        turns = [number for number, of_file in enumerate(rows) for _ in of_file]
        if dice:
            dice.shuffle(turns)
        left = [iter(of_file) for of_file in rows]
        self.rows[stream.name] = [next(left[number]) for number in turns]

    def stream(self, source: Source) -> Stream | None:
        """Give the stream that a source goes into in this phase."""
        return source.first if self.batch == 1 else source.then

    def mark(self, source: str, day: str | None = None) -> dict[str, Any]:
        """Make a mark."""
        return {"batch": self.batch, "source": source, "day": day}

    def complete(self) -> dict[str, str]:
        """Name the sources, each with its stream's name; or with none."""
        return {
            source.name: stream.name if (stream := self.stream(source)) else ""
            for source in SOURCES
        }


def load(
    trial: Trial, folder: Path, batches: int = 3, seed: int | None = None, *, first: int = 1
) -> None:
    """Load phases: source by source, or with a seed in batches of any size in any order."""
    for batch in range(first, batches + 1):
        if seed is None:
            in_order(trial, Feed(folder, batch))
        else:
            dice = random.Random(seed * 10 + batch)  # noqa: S311
            interleaved(trial, Feed(folder, batch, dice), dice)


def in_order(trial: Trial, feed: Feed, rows_at_once: int = 5_000) -> None:
    """Load a phase as the loader does."""
    trial.batch(marks=feed.begins)
    for source, stream in feed.complete().items():
        rows = feed.rows.get(stream, [])
        for at in range(0, len(rows), rows_at_once):
            trial.batch(**{stream: rows[at : at + rows_at_once]})
        trial.batch(marks=[feed.mark(source)])
    trial.batch(answers=feed.rows[answers.name])
    trial.batch(marks=feed.ends)


def interleaved(trial: Trial, feed: Feed, dice: random.Random) -> None:
    """Load a phase in batches of any size of sources in any order; that a source is complete is
    said at any time after its own rows, that the phase begins even after all of that: what is said
    is in several partitions.
    """
    todo = {name: rows for name, rows in feed.rows.items() if rows}
    unsaid, begun = feed.complete(), False
    begins_last = dice.random() < 0.3
    while todo or unsaid or not begun:
        given = {}
        for name in [name for name in todo if dice.random() < 0.4]:
            size = dice.choice(CUTS)
            given[name], todo[name] = todo[name][:size], todo[name][size:]
        todo = {name: rows for name, rows in todo.items() if rows}
        said = []
        if not begun and not (begins_last and todo) and dice.random() < 0.2:
            begun = True
            said += feed.begins
        for source in [s for s, name in unsaid.items() if name not in todo]:
            if unsaid[source] not in given and dice.random() < 0.3:
                del unsaid[source]
                said.append(feed.mark(source))
        trial.batch(**given, **{marks.name: said} if said else {})
    trial.batch(marks=feed.ends)


def latest(trial: Trial, table: str) -> Rows:
    """Give the rows that a warehouse would hold."""
    key = schema.TABLES[table].key
    rows = {
        tuple(row[name] for name in key) or (number,): row
        for number, row in enumerate(trial.outlet(table))
    }
    return list(rows.values())


def fetch(trial: Trial, connection: duckdb.DuckDBPyConnection, place: str) -> None:
    """Put what a warehouse would hold into a schema of this name."""
    create(connection, place)
    for table in schema.TABLES:
        held = pa.Table.from_pylist(latest(trial, table), OUTLETS[table].columns.arrow)
        connection.from_arrow(held).insert_into(f"{place}.{table}")


def exported(trial: Trial) -> dict[str, bytes]:
    """Write the canonical rows of what a warehouse would hold, by table."""
    with duckdb.connect() as connection, tempfile.TemporaryDirectory() as folder:
        fetch(trial, connection, "warehouse")
        write(connection, "warehouse", Path(folder))
        return {table: (Path(folder) / f"{table}.csv").read_bytes() for table in schema.TABLES}


def messages(trial: Trial, kind: str = "Alert") -> Iterator[tuple[Any, ...]]:
    """Give the messages of a kind: batch, source, text and data."""
    for row in trial.outlet("dimessages"):
        if row["messagetype"] == kind:
            yield tuple(row[f"message{n}"] if n else row["batchid"] for n in ("", *SAID))


def waiting(trial: Trial, batch: int) -> dict[object, object]:
    """Tell what is said to wait when a phase ends."""
    told = [said for said in messages(trial) if said[0] == batch and said[2] == WAITS]
    return {source: number for _, source, _, number in told}


def rows(trial: Trial, table: str, *names: str) -> list[tuple[Any, ...]]:
    """Give what an outlet was given, of some columns."""
    return [tuple(row[name] for name in names) for row in trial.outlet(table)]
