"""The collector: files, directories and standard input into a stream's topic, and how far it is.

As a library: `collect(config, stream, ["day-7.csv"])` returns when the broker has all of it.

Each source is read, cleaned, framed and sent, several in turn; about once a second its bookmark
is written. After a kill, the same call goes on there, and the core recognises what comes twice.
"""

import glob
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etl_procs.model import Stream
from headrace.clock import Clock, SystemClock
from headrace.config import Broker, Config
from headrace.errors import HeadraceError, Refused
from ingest import topics
from ingest.bookmarks import Bookmarks
from ingest.cleaning import Cleaner, key_of
from ingest.client import Producer
from ingest.following import Follower
from ingest.framing import Framing, Record
from ingest.reading import Reader
from ingest.runs import START, Beginning, Bookmark, Run
from ingest.security import client_options
from ingest.sender import Sender
from ingest.source import STANDARD_INPUT, about

OPEN_MAX = 32
"""Files that are read in turn; followed ones are all open."""
ASK_MS = 3_000
"""How long a broker has to answer before the user is told that it does not."""
KEEP_EVERY_S = 1.0
FOLLOW_EVERY_S = 0.2


@dataclass(slots=True)
class Status:
    """How far the collector is."""

    tuples: int = 0
    """That the broker has acknowledged."""
    sources: int = 0
    done: int = 0
    passed: int = 0
    """Of those done, how many had been sent before."""
    read: int = 0
    """Bytes, decompressed."""
    taken: int = 0
    """Bytes of files, as they lie on the disk; after `skipped` bytes, of `size` in all."""
    skipped: int = 0
    size: int = 0
    partitions: int = 0
    """Of the topic."""


Tell = Callable[[str], None]
Progress = Callable[[Status], None]


def _no_progress(_status: Status) -> None:
    """Tell nobody."""


def collect(
    config: Config,
    stream: Stream,
    paths: Sequence[str],
    *,
    broker: Broker | None = None,
    follow: bool = False,
    source: str = "",
    partition: int | None = None,
    marks: Sequence[tuple[str, bytes]] = (),
    status: Status | None = None,
    tell: Tell = print,
    progress: Progress = _no_progress,
    clock: Clock | None = None,
) -> Status:
    """Send all tuples of `paths`, then `marks` into each partition; return when all are durable.

    With `follow` it goes on for ever. `source` names the one source; `partition` is for all
    tuples, whatever the stream's route. Bookmarks are in the data folder of `config`. `status` is
    kept up to date, also when it raises.
    """
    broker = broker or config.broker
    sender: Sender[Bookmark] = Sender(
        partial(Producer, client_options(broker)),
        stream.topic,
        wait_s=config.collect.wait_s,
        tell=tell,
        clock=clock,
    )
    topic = sender.answered(partial(topics.ensure, broker, stream, ASK_MS))
    declared = stream.wire.partitions or config.broker.topic_partitions
    _check_partitions(topic, declared, partition)
    key = key_of(stream) if isinstance(stream.wire.route, str) else None
    collector = Collector(
        stream,
        sender,
        Framing(stream.wire, declared, key, partition=partition),
        Bookmarks(config.home / "collector", topic.name, topic.id),
        status=status or Status(),
        follow=follow,
        progress=progress,
        clock=clock,
    )
    try:
        collector.collect(paths, source)
        collector.mark(marks, topic.partitions)
    finally:
        collector.close()
    return collector.status


def _check_partitions(topic: topics.Topic, declared: int, partition: int | None) -> None:
    if declared > len(topic.partitions):
        raise HeadraceError(
            f"topic {topic.name} has {len(topic.partitions)} partitions, and {declared} are "
            "declared",
            hint="Declare as many as it has, or add some with Kafka's tools.",
        )
    if partition is not None and partition >= declared:
        raise Refused(
            f"there is no partition {partition}: {topic.name} has {declared}",
            hint=f"Name one from 0 to {declared - 1}.",
        )


class _Whole:
    """A source that is read to its end: what of it comes next, and where reading goes on then."""

    def __init__(self, path: str, stream: Stream, bookmarks: Bookmarks, name: str) -> None:
        before = None if name else bookmarks.beginning(path)
        self._reader = Reader(path, stream, source=name, before=before)
        self.name = self._reader.name
        size = self._reader.source.size
        if size and not name and (before is None or before.name != self.name):
            bookmarks.begin(path, Beginning(self.name, size))
        self.at = self.begun = bookmarks.read(self.name) if self.name else START
        self.is_done = False
        with about(self._reader.source.path):
            self._cleaner = Cleaner(stream, self._reader.header)
        # What smoothing gives depends on all that was before.
        self._runs = self._reader.runs(START if self._cleaner.needs_history else self.at)

    @property
    def taken(self) -> int:
        """How much of the file was taken."""
        return self._reader.source.taken

    def next(self) -> Run | None:
        """Give the next run, cleaned; None at the end."""
        for run in self._runs:
            new = _new(self._cleaner, run, self.at)
            if new is not None:
                self.at = Bookmark(run.next, run.end)
                return new
        self.is_done = True
        return None

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


class _Followed:
    """A source that grows: what comes next, if it is there already."""

    is_done = False

    def __init__(self, path: str, stream: Stream, bookmarks: Bookmarks, name: str) -> None:
        self._path = path
        self._stream = stream
        self._bookmarks = bookmarks
        self._follower = Follower(path, stream, source=name)
        self.name = ""
        self.at = self.begun = START
        self._cleaner: Cleaner | None = None
        self._runs: Iterator[Run] = iter(())

    @property
    def taken(self) -> int:
        """How much of the file was taken."""
        return self.at.offset

    def next(self) -> Run | None:
        """Give the next run, cleaned; None while there is none."""
        run = next(self._runs, None)
        if run is None:
            self._runs = self._follower.runs()
            run = next(self._runs, None)
        if run is None or (not self.name and self._goes_on_elsewhere()):
            return None
        assert self._cleaner is not None, "it has a name"
        new = _new(self._cleaner, run, self.at)
        if new is not None:
            self.at = self._follower.bookmark
        return new or run._replace(raws=[])

    def _goes_on_elsewhere(self) -> bool:
        """Look for the bookmark, now that there is a name, and go there."""
        self.name = self._follower.name
        self.at = self.begun = self._bookmarks.read(self.name)
        with about(self._follower.path):
            self._cleaner = Cleaner(self._stream, self._follower.header)
        if self.at == START or self._cleaner.needs_history:
            return False
        self._follower.close()
        self._follower = Follower(self._path, self._stream, at=self.at, source=self.name)
        self._runs = iter(())
        return True

    def close(self) -> None:
        """Close the file."""
        self._follower.close()


def _new(cleaner: Cleaner, run: Run, at: Bookmark) -> Run | None:
    """Clean a run, and give what is behind a bookmark; the rest was read for the history's sake."""
    raws = cleaner.clean(run.raws, but=run.oversize)
    known = max(0, at.number - run.first)
    if known >= len(raws) > 0:
        return None
    return run._replace(raws=[b""] * known + raws[known:]) if known else run._replace(raws=raws)


class Collector:
    """Reads sources in turn, and sends what is in them."""

    def __init__(
        self,
        stream: Stream,
        sender: Sender[Bookmark],
        framing: Framing,
        bookmarks: Bookmarks,
        *,
        status: Status,
        follow: bool,
        progress: Progress,
        clock: Clock | None,
    ) -> None:
        self.status = status
        self._stream = stream
        self._sender = sender
        self._framing = framing
        self._bookmarks = bookmarks
        self._follow = follow
        self._progress = progress
        self._clock = clock or SystemClock()
        self._kept = self._clock.monotonic()
        self._open: deque[_Whole | _Followed] = deque()
        self._coming: deque[str] = deque()
        self._known: set[str] = set()
        self._never = threading.Event()

    def collect(self, paths: Sequence[str], source: str) -> None:
        """Send all that there is; or, where it follows, all that there ever is."""
        while True:
            self._look_for(paths)
            if source and len(self._known) > 1:
                raise Refused(
                    f"{source} names one source, and there are {len(self._known)} files",
                    hint="Their numbers would be the same, and all but the first be taken for "
                    "repeats. Send each by a command of its own, or leave --source out.",
                )
            self._admit(source)
            turns = [self._turn() for _ in range(len(self._open))]
            self._keep_now_and_then()
            if self._follow and not any(turns):
                self._never.wait(FOLLOW_EVERY_S)
            elif not turns and not self._follow:
                break
        self._sender.flush()
        self._keep()

    def mark(self, marks: Iterable[tuple[str, bytes]], partitions: Collection[int]) -> None:
        """Send a record without a value, but with a header, into each partition."""
        self.status.partitions = len(partitions)
        records = [
            Record(partition, b"", [header], None, 0)
            for header in marks
            for partition in partitions
        ]
        if records:
            self._sender.send("", records, START)
            self._sender.flush()

    def close(self) -> None:
        """Keep what is acknowledged; wait for nothing more."""
        self._sender.close()
        self._keep()
        while self._open:
            self._open.pop().close()

    def _look_for(self, paths: Sequence[str]) -> None:
        """Find the files that nobody has seen yet: once, or again and again."""
        if self._known and not self._follow:
            return
        for path in found(paths, may_be_absent=self._follow):
            if path not in self._known:
                self._known.add(path)
                self._coming.append(path)
                self.status.sources += 1
                # One that is not there is told when it is opened.
                if path != STANDARD_INPUT and Path(path).exists():
                    self.status.size += Path(path).stat().st_size

    def _admit(self, source: str) -> None:
        while self._coming and (self._follow or len(self._open) < OPEN_MAX):
            self._open.append(self._opened(self._coming.popleft(), source))

    def _opened(self, path: str, source: str) -> _Whole | _Followed:
        kind = _Followed if self._follow and path != STANDARD_INPUT else _Whole
        opened = kind(path, self._stream, self._bookmarks, source)
        self.status.skipped += opened.taken
        return opened

    def _turn(self) -> bool:
        """Send one run of the source whose turn it is; tell whether there was one."""
        source = self._open.popleft()
        offset, taken = source.at.offset, source.taken
        run = source.next()
        self.status.taken += source.taken - taken
        if source.is_done:
            self._finish(source)
            return True
        self._open.append(source)
        if run is None:
            return False
        if run.raws:
            self.status.read += source.at.offset - offset
            self._sender.send(source.name, self._framing.records(source.name, run), source.at)
        return True

    def _finish(self, source: _Whole | _Followed) -> None:
        source.close()
        self.status.done += 1
        self.status.passed += source.at == source.begun != START

    def _keep_now_and_then(self) -> None:
        now = self._clock.monotonic()
        if now - self._kept >= KEEP_EVERY_S:
            self._kept = now
            self._sender.look()
            self._keep()

    def _keep(self) -> None:
        self._bookmarks.write(self._sender.take_safe())
        self.status.tuples = self._sender.acknowledged
        self._progress(self.status)


def found(paths: Iterable[str], *, may_be_absent: bool = False) -> Iterator[str]:
    """Give the files that paths, globs and directories name, those of each in order of name.

    Of a directory, those right in it whose names do not begin with a dot.
    """
    for path in paths:
        if path == STANDARD_INPUT:
            yield path
        elif Path(path).is_dir():
            yield from _some(path, _inside(Path(path).absolute()), may_be_absent)
        elif glob.has_magic(path) and not Path(path).exists():
            matching = (Path(p).absolute() for p in glob.glob(path))
            yield from _some(path, [p for p in matching if p.is_file()], may_be_absent)
        else:
            yield str(Path(path).absolute())


def _inside(folder: Path) -> list[Path]:
    try:
        return [p for p in folder.iterdir() if not p.name.startswith(".") and p.is_file()]
    except OSError as error:
        raise HeadraceError(
            f"{folder} cannot be read: {error.strerror}", hint="Nothing was sent of it."
        ) from error


def _some(path: str, files: list[Path], may_be_absent: bool) -> list[str]:
    if not files and not may_be_absent:
        raise HeadraceError(
            f"no file is {path}" if glob.has_magic(path) else f"no file is in {path}",
            hint="Nothing was sent of it. With --follow, files may come later.",
        )
    return sorted(map(str, files))
