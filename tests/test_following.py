"""Following: a text that grows, its name, and what is done to it that must not be."""

import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from flows import HeldClock

from etl_procs import Dataflow, by_count
from etl_procs.model import Stream
from etl_procs.wire import Delimited, Format, Json, Xml
from headrace.errors import HeadraceError, Refused
from ingest.bookmarks import Bookmarks
from ingest.collector import Collector, Status
from ingest.following import Follower, Gone, Unfollowable
from ingest.framing import Framing, Record
from ingest.runs import Bookmark


def stream(format_: Format) -> Stream:
    return Dataflow("following").stream("s", "a TEXT, b TEXT", batches=by_count(1), wire=format_)


def given(follower: Follower) -> list[bytes]:
    return [raw for run in follower.runs() for raw in run.raws]


def add(path: Path, more: bytes) -> None:
    with path.open("ab") as file:
        file.write(more)


def test_what_is_complete_is_given_and_the_rest_held_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\n1")
    follower = Follower(path, stream(Json()))
    assert (given(follower), follower.name) == ([], "")
    add(path, b"\r\n2\n3")
    assert given(follower) == [b"", b"1", b"2"]
    # The digest is that of `printf '\n1\r\n' | sha256sum`.
    assert follower.name == f"{path}:ee547e43d3b90c4c"
    assert given(follower) == []
    add(path, b"3\n")
    assert given(follower) == [b"33"]
    assert follower.bookmark[:2] == (5, 9)


@pytest.mark.parametrize("cut", range(18))
def test_following_goes_on_at_its_bookmark(tmp_path: Path, cut: int) -> None:
    path, content = tmp_path / "log", b'b,a\n"1\n",2\r\n\n3,4\n'
    format_ = Delimited(",", quote='"', header=True)
    path.write_bytes(content[:cut])
    follower = Follower(path, stream(format_))
    first = given(follower)
    at = follower.bookmark
    add(path, content[cut:])
    follower = Follower(path, stream(format_), lambda _: at)
    assert first + given(follower) == [b'"1\n",2', b"", b"3,4"]
    assert follower.header == ("b", "a")
    assert follower.name.startswith(f"{path}:")
    follower = Follower(path, stream(format_), source="mine")
    assert len(given(follower)) == 3
    assert follower.name == "mine"


def test_what_does_not_only_grow_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def begun() -> tuple[Follower, Bookmark]:
        path.write_bytes(b"1\n2\n")
        follower = Follower(path, stream(Json()))
        assert given(follower) == [b"1", b"2"]
        return follower, follower.bookmark

    follower, _ = begun()
    os.truncate(path, 2)
    with pytest.raises(HeadraceError, match="has shrunk"):
        given(follower)

    follower, _ = begun()
    path.unlink()
    with pytest.raises(Gone, match=r"is gone .*: 4 bytes of it were read") as gone:
        given(follower)
    assert f"--source '{follower.name}'" in gone.value.hint

    follower, _ = begun()
    (tmp_path / "new").write_bytes(b"1\n2\n3\n")
    (tmp_path / "new").rename(path)
    with pytest.raises(Gone, match="was replaced"):
        given(follower)

    follower, at = begun()
    path.write_bytes(b"1\nX\n3\n")
    with pytest.raises(HeadraceError, match="was written anew before"):
        given(follower)
    with pytest.raises(HeadraceError, match="was written anew before"):
        given(Follower(path, stream(Json()), lambda _: at))


def test_only_plain_texts_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    follower = Follower(path, stream(Json()))
    assert given(follower) == []
    path.write_bytes(b"\x1f\x8b\x08\0\n")
    with pytest.raises(Unfollowable):
        given(follower)
    cases: list[tuple[str, Format]] = [
        ("log", Json()),
        ("log", Xml("record")),
        ("absent.zst", Json()),
    ]
    for name, format_ in cases:
        with pytest.raises(Unfollowable, match="cannot be followed"):
            given(Follower(tmp_path / name, stream(format_)))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="pipe is no file"):
        given(Follower(tmp_path / "pipe", stream(Json())))
    with pytest.raises(HeadraceError, match="absent cannot be read: No such file"):
        given(Follower(tmp_path / "absent", stream(Json())))


def test_what_is_followed_is_not_held_open(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"1\n" * 2_000)
    before = os.listdir("/proc/self/fd")
    follower = Follower(path, stream(Json()))
    runs = follower.runs()
    assert next(runs).first == 1, "and there is more to read"
    assert follower.bookmark.number == 1_001
    assert os.listdir("/proc/self/fd") == before
    assert sum(len(run.raws) for run in runs) == 1_000


def test_what_was_read_of_a_file_counts_though_it_is_gone_then(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"1\n")
    follower = Follower(path, stream(Json()))
    runs = follower.runs()
    assert next(runs).raws == [b"1"]
    path.unlink()
    assert follower.bookmark == Bookmark(2, 2, "")
    with pytest.raises(Gone):
        next(runs)


class Sent(Exception):
    """It has come to where the test ends."""


class Replacing:
    """In place of a sender: acknowledges what is sent, and replaces the file after the first."""

    acknowledged = 0

    def __init__(self, path: Path) -> None:
        self._path = path
        self._safe: dict[str, Bookmark] = {}

    def send(self, source: str, records: Iterable[Record], place: Bookmark) -> None:
        values = [record.value for record in records]
        if self._path.exists() and values != [b"1\x1e2\x1e3"]:
            raise Sent(values)
        self._safe[source] = place
        self._path.rename(self._path.parent.parent / "rotated")
        self._path.write_bytes(b"1\n5\n6\n7\n")

    def take_safe(self) -> dict[str, Bookmark]:
        safe, self._safe = self._safe, {}
        return safe

    def flush(self) -> None: ...


def test_a_file_that_begins_like_the_one_it_replaces_does_not_take_its_numbers(
    tmp_path: Path,
) -> None:
    folder, of = tmp_path / "incoming", stream(Json())
    folder.mkdir()
    (folder / "log").write_bytes(b"1\n2\n3\n")
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            raise Sent

    kept = Bookmarks(tmp_path / "kept", "topic", "id", "lane")
    collector = Collector(
        of,
        Replacing(folder / "log"),  # type: ignore[arg-type]
        Framing(of.wire, 1),
        kept,
        status=Status(),
        follow=True,
        tell=tell,
        progress=lambda _: None,
        clock=HeldClock(),  # no second goes by in which bookmarks would be kept
    )
    with closing(kept), pytest.raises(Sent, match=r"^$"):
        collector.collect([str(folder)], "")
    assert "was replaced by another file" in said[0]
    assert "was written anew before the place where reading is to go on" in said[1]
