"""The collector: files, directories and standard input into a stream's topic, and how far it is.

As a library: `collect(config, stream, ["day-7.csv"])` returns when the broker has all of it.

Each source is read, cleaned, framed and sent, several in turn; about once a second its bookmark
is written. After a kill, the same call goes on there, and the core recognises what comes twice.
"""

import glob
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etl_procs.model import Stream
from headrace.clock import Clock, SystemClock
from headrace.config import Config
from headrace.errors import HeadraceError, Refused
from ingest import topics
from ingest.bookmarks import Bookmarks, Unkept
from ingest.client import Producer
from ingest.feeds import Feed, Followed, Settling, Whole
from ingest.following import Gone, Unfollowable
from ingest.framing import Framing, Record
from ingest.runs import START, Bookmark, Run
from ingest.security import client_options
from ingest.sender import Sender
from ingest.source import STANDARD_INPUT, Ended, about

OPEN_MAX = 32
"""Whole files that are read in turn. Followed ones are not held open."""
ASK_MS = 3_000
"""How long a broker has to answer before the user is told that it does not."""
HELD_BYTES_MAX = 2 * 2**20
"""What is read before it is sent: a frame of each file that may be open."""
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


def collect(
    config: Config,
    stream: Stream,
    paths: Sequence[str],
    *,
    follow: bool = False,
    source: str = "",
    partition: int | None = None,
    marks: Sequence[tuple[str, bytes]] = (),
    status: Status | None = None,
    tell: Tell = print,
    progress: Progress = lambda _: None,
) -> Status:
    """Send all tuples of `paths`, then `marks` into each partition; return when all are durable.

    A bad source does not stop the others: when these are sent, its error is raised, and the `marks`
    are not sent. With `follow` the error is told, and this goes on for ever. `source` names the one
    source; `partition` is for all tuples, whatever the stream's route. Bookmarks are in the data
    folder of `config`. `status` is kept up to date, also when it raises.
    """
    sender: Sender[Bookmark] = Sender(
        partial(Producer, client_options(config.broker)),
        stream.topic,
        wait_s=config.collect.wait_s,
        tell=tell,
    )
    topic = sender.answered(partial(topics.ensure, config.broker, stream, ASK_MS))
    declared = stream.wire.partitions or config.broker.topic_partitions
    _check_partitions(topic, declared, partition)
    framing = Framing.of(stream, declared, partition)
    folder = config.home / "collector"
    with closing(Bookmarks(folder, topic.name, topic.id, framing.lane)) as bookmarks:
        collector = Collector(
            stream,
            sender,
            framing,
            bookmarks,
            status=status or Status(),
            follow=follow,
            tell=tell,
            progress=progress,
            clock=SystemClock(),
        )
        try:
            collector.collect(paths, source)
            collector.mark(marks, topic.partitions)
        finally:
            collector.close()
    return collector.status


def _check_partitions(topic: topics.Topic, declared: int, partition: int | None) -> None:
    topics.refuse_fewer(topic, declared)
    if partition is not None and partition >= declared:
        raise Refused(
            f"there is no partition {partition}: {topic.name} has {declared}",
            hint=f"Name one from 0 to {declared - 1}.",
        )


class Collector:
    """Reads sources in turn, and sends what is in them. A bad one does not stop the others."""

    def __init__(
        self,
        stream: Stream,
        sender: Sender[Bookmark],
        framing: Framing,
        bookmarks: Bookmarks,
        *,
        status: Status,
        follow: bool,
        tell: Tell,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self.status = status
        self._stream = stream
        self._sender = sender
        self._framing = framing
        self._bookmarks = bookmarks
        self._follow = follow
        self._tell = tell
        self._progress = progress
        self._clock = clock
        self._kept = self._clock.monotonic()
        self._open: deque[Feed] = deque()
        self._coming: deque[str] = deque()
        self._settling = Settling(self._clock)
        self._known: set[str] = set()
        self._failures: list[HeadraceError] = []
        self._never = threading.Event()

    def collect(self, paths: Sequence[str], source: str) -> None:
        """Send all that there is; or, where it follows, all that there ever is."""
        may_bring_more = self._follow and any(map(_names_several, paths))
        while True:
            self._look_for(paths)
            if source and self.status.sources > 1:
                raise Refused(
                    f"{source} names one source, and there are {self.status.sources} files",
                    hint="Their numbers would be the same, and all but the first be taken for "
                    "repeats. Send each by a command of its own, or leave --source out.",
                )
            self._admit(source)
            is_news = self._turn()
            self._keep_now_and_then()
            if not (self._open or self._coming or self._settling or may_bring_more):
                break
            if self._follow and not is_news:
                self._never.wait(FOLLOW_EVERY_S)
        self._sender.flush()
        self._keep()
        if self._failures:
            raise self._failure()

    def mark(self, marks: Iterable[tuple[str, bytes]], partitions: Collection[int]) -> None:
        """Send a record without a value, but with a header, into each partition."""
        self.status.partitions = len(partitions)
        records = [
            Record(partition, b"", [header], 0) for header in marks for partition in partitions
        ]
        if records:
            self._sender.send("", records, START)
            self._sender.flush()

    def close(self) -> None:
        """Keep what is acknowledged; wait for nothing more."""
        try:
            self._sender.close()
            self._keep()
        finally:
            while self._open:
                self._open.pop().close()

    def _look_for(self, paths: Sequence[str]) -> None:
        """Find the files that nobody has seen yet: once, or again and again."""
        is_first = not self.status.sources
        if not is_first and not self._follow:
            return
        for given in paths:
            try:
                coming = found(given, may_be_absent=self._follow)
            except HeadraceError as error:
                if self._follow:
                    raise
                self.status.sources += 1
                self._fail(given, error)
                continue
            for path in coming:
                # One that is not there is told when it is opened; and may come later.
                if path not in self._known and (is_first or Path(path).exists()):
                    self._known.add(path)
                    self._coming.append(path)
                    self.status.sources += 1
                    self.status.size += _size(path)

    def _admit(self, source: str) -> None:
        room = OPEN_MAX - sum(isinstance(feed, Whole) for feed in self._open)
        for path in self._settling.take(room):
            self._open_whole(path, source)
        while self._coming and (self._follow or len(self._open) < OPEN_MAX):
            path = self._coming.popleft()
            if self._follow and path != STANDARD_INPUT:
                self._open.append(Followed(path, self._stream, self._bookmarks, source))
            else:
                self._open_whole(path, source)

    def _open_whole(self, path: str, source: str) -> None:
        try:
            with about(path):
                opened = Whole(path, self._stream, self._bookmarks, source)
        except HeadraceError as error:
            self._fail(path, error)
            return
        self.status.skipped += opened.taken
        self._open.append(opened)

    def _turn(self) -> bool:
        """Send one run of each source; tell whether there was one."""
        runs: dict[Feed, Run] = {}
        size, is_news = 0, False
        for _ in range(len(self._open)):
            if size > HELD_BYTES_MAX or self._open[0].may_be_silent:
                self._send(runs)
                runs, size = {}, 0
            feed, run = self._next()
            is_news = is_news or run is not None
            if run and run.raws:
                runs[feed] = run
                size += sum(map(len, run.raws))
        self._send(runs)
        return is_news

    def _send(self, runs: Mapping[Feed, Run]) -> None:
        """Send runs, when it is noted where their sources go: for all at once, as each time costs
        a sync.
        """
        refused = self._bookmarks.enter(feed.name for feed in runs if not feed.is_entered)
        for feed, run in runs.items():
            if feed.name in refused:
                self._open.remove(feed)
                feed.close()
                self._fail(feed.path, refused[feed.name])
                continue
            feed.is_entered = True
            self._sender.send(feed.name, self._framing.records(feed.name, run), feed.at)

    def _next(self) -> tuple[Feed, Run | None]:
        """Give the source whose turn it is, and its next run, if there is one."""
        feed = self._open.popleft()
        offset, taken = feed.at.offset, feed.taken
        try:
            with about(feed.path):
                run = feed.next()
        except Unfollowable:
            self._settling.add(feed.path)
            return feed, None
        except HeadraceError as error:
            feed.close()
            self._fail(feed.path, error)
            return feed, None
        self.status.taken += feed.taken - taken
        if feed.is_done:
            self._finish(feed)
            return feed, None
        self._open.append(feed)
        if run and run.raws:
            self.status.read += feed.at.offset - offset
        return feed, run

    def _finish(self, feed: Feed) -> None:
        feed.close()
        self.status.done += 1
        self.status.passed += feed.at == feed.begun != START

    def _fail(self, path: str, error: HeadraceError) -> None:
        """Let go of a source, with a word; the others go on."""
        if isinstance(error, Unkept):
            raise error
        if not self._follow:
            self._failures.append(error)
            return
        self._tell(str(error))
        self._failures = [error]  # there may be any number of them, in time
        if isinstance(error, Gone) or not Path(path).exists():
            # Another file may come there. It has the name of this one if it begins alike: then it
            # must not begin at the numbers of this one, as it would without a bookmark.
            self._sender.flush()
            self._keep()
            self._known.discard(path)

    def _failure(self) -> HeadraceError:
        if len(self._failures) == self.status.sources == 1 or self._follow:
            return self._failures[0]
        said = "\n".join(f"  {error.what}\n    {error.hint}" for error in self._failures)
        is_ended = any(isinstance(error, Ended) for error in self._failures)
        return (Ended if is_ended else HeadraceError)(
            f"{len(self._failures)} of {self.status.sources} files were not sent, or not whole:\n"
            f"{said}",
            hint="The others were sent.",
        )

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


def _size(path: str) -> int:
    with suppress(OSError):
        return 0 if path == STANDARD_INPUT else Path(path).stat().st_size
    return 0


def _names_several(path: str) -> bool:
    return Path(path).is_dir() or (glob.has_magic(path) and not Path(path).exists())


def found(path: str, *, may_be_absent: bool = False) -> list[str]:
    """Give the files that a path, a glob or a directory names, in order of name.

    Of a directory, those right in it whose names do not begin with a dot.
    """
    if not path:
        raise HeadraceError(
            "a FILE is the empty text", hint="Nothing was sent of it. This folder is `.`."
        )
    if path == STANDARD_INPUT:
        return [path]
    if Path(path).is_dir():
        files = _inside(Path(path).absolute())
    elif _names_several(path):
        files = [p for p in (Path(p).absolute() for p in glob.glob(path)) if p.is_file()]
    else:
        return [str(Path(path).absolute())]
    if not files and not may_be_absent:
        raise HeadraceError(
            f"no file is {path}" if glob.has_magic(path) else f"no file is in {path}",
            hint="Nothing was sent of it. With --follow, files may come later.",
        )
    return sorted(map(str, files))


def _inside(folder: Path) -> list[Path]:
    try:
        return [p for p in folder.iterdir() if not p.name.startswith(".") and p.is_file()]
    except OSError as error:
        raise HeadraceError(
            f"{folder} cannot be read: {error.strerror}", hint="Nothing was sent of it."
        ) from error
