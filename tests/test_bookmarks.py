"""Bookmarks: what is known of a source, by whom, and what happens where it cannot be kept."""

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest
from alone import Alone
from collecting import place
from flows import HeldClock

from etl_procs import Dataflow, by_count
from headrace.cli import main
from headrace.errors import Exit
from ingest import bookmarks as module
from ingest import collector as collecting
from ingest.bookmarks import NAME, Bookmarks, Unkept
from ingest.collector import OPEN_MAX, Collector, Status
from ingest.framing import Framing, Record
from ingest.runs import START, Beginning, Bookmark

MANY = 2 * OPEN_MAX


def of(folder: Path, *, topic: str = "f.s", id_: str = "id 1", lane: str = "lane") -> Bookmarks:
    return Bookmarks(folder, topic, id_, lane)


def test_bookmarks_are_kept_and_those_of_others_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(of(tmp_path / "collector")) as kept:
        assert kept.read("a") == START
        kept.begin("/a", Beginning("a", 60))
        kept.write({"a": Bookmark(7, 60, "digest"), "b": Bookmark(2, 9)})
    with closing(of(tmp_path / "collector")) as again:
        assert again.read("a") == Bookmark(7, 60, "digest")
        assert again.beginning("/a") == Beginning("a", 60)
    with closing(of(tmp_path / "collector", topic="f.t")) as other:
        assert (other.read("a"), other.beginning("/a")) == (START, None), "another stream"
    assert not caplog.messages
    with closing(of(tmp_path / "collector", id_="id 2", lane="new")) as made_again:
        assert (made_again.read("a"), made_again.beginning("/a")) == (START, None)
        assert "what is known of a is of another topic: it is sent whole" in caplog.messages
        assert not made_again.enter(["a"]), "nothing of it is in this topic"
        caplog.clear()
        assert made_again.read("a") == START
        assert not caplog.messages


def test_a_source_that_landed_before_its_first_bookmark_is_known_by_where_it_went(
    tmp_path: Path,
) -> None:
    with closing(of(tmp_path, lane="by source to 2 partitions")) as before:
        assert before.enter(["a", "", "b"]) == before.enter(["a"]) == {}
        before.write({"b": Bookmark(7, 60)})
    with closing(of(tmp_path, lane="by spread to 2 partitions")) as after:
        assert after.read("a") == START
        refused = after.enter(["a", "b", "c"])
        assert set(refused) == {"a", "b"}
        said = "begun by source to 2 partitions, and would go on by spread"
        assert all(said in error.what for error in refused.values())
        assert after.read("b") == Bookmark(7, 60)
    with closing(of(tmp_path, lane="by source to 2 partitions")) as before:
        assert set(before.enter(["a", "b", "c"])) == {"c"}


def test_what_a_file_is_called_is_kept_before_its_first_tuple_and_any_path_has_a_name(
    tmp_path: Path,
) -> None:
    odd = b"/\xff\xfe".decode("utf-8", "surrogateescape")
    with closing(of(tmp_path)) as kept, closing(of(tmp_path)) as other:
        kept.begin("/a", Beginning("a", 1))
        kept.begin(odd, Beginning("odd", 2))
        kept.enter(["a"])
        assert other.beginning("/a") == Beginning("a", 1)
        assert other.beginning(odd) == Beginning("odd", 2)


def test_of_several_who_begin_a_source_in_several_ways_at_once_one_does(tmp_path: Path) -> None:
    threads, ways, begun = 6, 20, list[str]()
    at_once = threading.Barrier(threads)

    def enter(lane: str) -> None:
        for way in range(ways):
            at_once.wait()
            with closing(of(tmp_path / str(way), lane=lane)) as kept:
                if not kept.enter([f"{way}"]):
                    begun.append(f"{way}")
                kept.write({f"{way} {lane}": START})

    running = [threading.Thread(target=enter, args=[str(n)]) for n in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert sorted(begun, key=int) == [str(way) for way in range(ways)]


class Sent:
    """Acknowledges all at once; a source that nobody has entered must not come."""

    acknowledged = 0

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sources: list[str] = []

    def send(self, source: str, records: Iterable[Record], place: Bookmark) -> None:
        with closing(of(self._folder, lane="another")) as other:
            assert set(other.enter([source])) == {source}
            assert other.beginning(source.rpartition(":")[0])
        self.sources.append(source)

    def take_safe(self) -> dict[str, Bookmark]:
        return {}

    def flush(self) -> None: ...


def collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[int]]:
    """Collect many small files; give the sources that were sent, and how many each note was of."""
    (tmp_path / "files").mkdir()
    for n in range(MANY):
        (tmp_path / "files" / f"{n:03}").write_text(f'{{"n": {n}}}\n')
    noted: list[int] = []
    enter = Bookmarks.enter

    def counted(self: Bookmarks, sources: Iterable[str]) -> object:
        names = list(sources)
        if names:
            noted.append(len(names))
        return enter(self, names)

    sent = Sent(tmp_path / "kept")
    with closing(of(tmp_path / "kept")) as kept, monkeypatch.context() as patched:
        patched.setattr(kept, "enter", counted.__get__(kept))
        collect(kept, sent, tmp_path / "files")
    return sent.sources, noted


def collect(kept: Bookmarks, sent: Sent, *paths: Path) -> None:
    stream = Dataflow("f").stream("s", "n INTEGER", batches=by_count(1))
    Collector(
        stream,
        sent,  # type: ignore[arg-type]
        Framing(stream.wire, 1),
        kept,
        status=Status(),
        follow=False,
        tell=print,
        progress=lambda _: None,
        clock=HeldClock(),
    ).collect(list(map(str, paths)), "")


def test_what_was_read_is_sent_before_a_pipe_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text('{"n": 1}\n')
    os.mkfifo(tmp_path / "pipe")
    is_sent, was_sent = threading.Event(), []

    class Told(Sent):
        def send(self, source: str, records: Iterable[Record], place: Bookmark) -> None:
            self.sources.append(source)
            is_sent.set()

    def write() -> None:
        with (tmp_path / "pipe").open("w") as pipe:
            print('{"n":', end="", file=pipe, flush=True)  # it is opened when its format is seen
            was_sent.append(is_sent.wait(10))
            pipe.write(" 2}\n")

    writer = threading.Thread(target=write)
    writer.start()
    sent = Told(tmp_path / "kept")
    with closing(of(tmp_path / "kept")) as kept:
        collect(kept, sent, tmp_path / "file", tmp_path / "pipe")
    writer.join()
    assert was_sent == [True]
    assert len(sent.sources) == 2


def test_bookmarks_of_an_older_version_are_not_forgotten_in_silence(tmp_path: Path) -> None:
    (tmp_path / "0123.json").write_text("{}")
    for _ in range(2):
        with pytest.raises(Unkept, match="of an older Headrace") as caught:
            of(tmp_path)
    assert "leave out files that have grown" in caught.value.hint
    of(tmp_path / "new").close()


def test_small_files_are_noted_together_and_before_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, noted = collected(tmp_path, monkeypatch)
    assert len(set(sources)) == len(sources) == MANY
    assert noted == [OPEN_MAX] * (MANY // OPEN_MAX)


def test_what_is_read_of_many_files_before_it_is_sent_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "HELD_BYTES_MAX", 20)  # three tuples have 24 bytes
    sources, noted = collected(tmp_path, monkeypatch)
    assert len(sources) == MANY
    assert max(noted) == 3


def test_where_bookmarks_are_damaged_nothing_is_sent_until_they_are_moved_away(
    kafka: Alone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = place(tmp_path, "damaged", kafka.address)
    files = [at.lines(2), at.lines(1, "other", 3)]
    folder = at.config.home / "collector"
    assert main(["produce", "lines", *map(str, files), *at.flags()]) == Exit.OK
    (folder / NAME).write_bytes(b"no database" * 1_000)
    files.append(at.lines(1, "new", 4))
    for _ in range(2):
        assert main(["produce", "lines", *map(str, files), *at.flags()]) == Exit.FAILED
        said = capsys.readouterr().err
        assert said.count("are damaged") == 1
        assert f"Move {folder} away" in said
    assert at.count() == 2
    shutil.move(folder, tmp_path / "away")
    assert main(["produce", "lines", *map(str, files), *at.flags()]) == Exit.OK
    assert at.count() == 5, "the core knows those that come again"


def test_damage_that_is_met_later_ends_it_and_is_no_files_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(of(tmp_path / "kept")) as kept:
        kept.write({f"/{n}": Bookmark(n, n, "x" * 50) for n in range(10_000)})
    path = tmp_path / "kept" / NAME
    whole = path.read_bytes()
    path.write_bytes(whole[:16_384] + b"\x55" * (len(whole) - 16_384))
    with pytest.raises(Unkept, match="are damaged"):
        collected(tmp_path, monkeypatch)


def a_file(folder: Path) -> None:
    folder.write_text("")


def no_file(folder: Path) -> None:
    (folder / NAME).mkdir(parents=True)


def not_ours(folder: Path) -> None:
    folder.mkdir()
    with closing(sqlite3.connect(folder / NAME)) as other:
        other.execute("CREATE TABLE sources (a, b)")


@pytest.mark.parametrize("spoil", [a_file, no_file, not_ours])
def test_a_place_that_cannot_be_used_is_an_error_that_names_it(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(tmp_path / "kept")
    with pytest.raises(Unkept, match=f"the bookmarks in {tmp_path}/kept/{NAME} cannot be used"):
        of(tmp_path / "kept").read("a")


def test_a_full_disk_is_told_and_nothing_is_half_written(tmp_path: Path) -> None:
    many = {f"source {n}": Bookmark(2, 2, "x" * 50) for n in range(1_000)}
    with closing(of(tmp_path)) as kept, closing(sqlite3.connect(tmp_path / NAME)) as looking:
        kept.write({"source 0": Bookmark(1, 1)})
        kept._connection.execute("PRAGMA max_page_count = 5")
        with pytest.raises(Unkept, match=r"the disk of .* is full"):
            kept.write(many)
        assert kept.read("source 0") == Bookmark(1, 1)
        kept._connection.execute("PRAGMA max_page_count = 1000000")
        kept.write(many)
        assert looking.execute("SELECT count(*) FROM sources").fetchone() == (1_000,)


def test_who_holds_them_for_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_TIMEOUT_MS", 10)
    with closing(of(tmp_path)) as kept, closing(sqlite3.connect(tmp_path / NAME)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unkept, match="another process has held"):
            kept.enter(["a"])
        other.execute("ROLLBACK")
        assert not kept.enter(["a"])
