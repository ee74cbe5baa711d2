"""Reading: which numbered tuples a source has, whatever it is and however it is read."""

import bz2
import gzip
import lzma
import os
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl_procs import Dataflow, by_count
from etl_procs.model import Stream
from etl_procs.wire import Delimited, FixedWidth, Format, Json
from headrace.errors import HeadraceError
from ingest.reading import Reader, scanner
from ingest.records import FRAME_BYTES, FRAME_TUPLES, OVERSIZE_BYTES_KEPT, TUPLE_BYTES_MAX
from ingest.runs import Bookmark, Run

QUOTED = Delimited(",", quote='"')
MIB = 2**20


def stream(format_: Format) -> Stream:
    return Dataflow("reading").stream("s", "a TEXT, b TEXT", batches=by_count(1), wire=format_)


def read(path: Path | str, format_: Format | None = None, at: Bookmark | None = None) -> list[Run]:
    with Reader(path, stream(format_ or Json())) as reader:
        return list(reader.runs(at) if at else reader.runs())


def tuples(runs: list[Run]) -> list[bytes]:
    return [raw for run in runs for raw in run.raws]


def until_error(runs: Iterator[Run]) -> tuple[list[bytes], HeadraceError]:
    found: list[bytes] = []
    try:
        for run in runs:
            found += run.raws
    except HeadraceError as error:
        return found, error
    raise AssertionError(found)


def file(tmp_path: Path, content: bytes, name: str = "f") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def scanned(format_: Format, content: bytes, block: int, at: Bookmark | None = None) -> list[Run]:
    scans = scanner(format_, at or Bookmark())
    runs: list[Run] = []
    for begin in range(at.offset if at else 0, len(content), block):
        runs += scans.feed(content[begin : begin + block])
    return runs + list(scans.finish())


TEXTS = {
    b"": [],
    b"a\nb\n": [b"a", b"b"],
    b"a\r\nb\nc": [b"a", b"b", b"c"],
    b"a\rb\n\rc\r\r\n": [b"a\rb", b"\rc\r"],
    b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n": [b"a", b"\xef\xbb\xbfb"],
    b"\xef\xbb\xbf": [b""],
    b"a\n\n\r\nb": [b"a", b"", b"", b"b"],
    b"a\0b\n\xff\xfe\n": [b"a\0b", b"\xff\xfe"],
    b"last\r": [b"last\r"],
}


@pytest.mark.parametrize("format_", [Json(), FixedWidth(1, 1), Delimited("|"), QUOTED], ids=str)
@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_a_line_ends_with_lf_or_crlf_and_has_all_other_bytes(
    tmp_path: Path, text: bytes, format_: Format
) -> None:
    runs = read(file(tmp_path, text), format_)
    assert tuples(runs) == TEXTS[text]
    assert not runs or (runs[0].first, runs[-1].end) == (1, len(text))


RECORDS = {
    b'"a\n",b\nc': [b'"a\n",b', b"c"],
    b'"a""\n",b\r\n"\r\n"\r\n': [b'"a""\n",b', b'"\r\n"'],
    b'5" pipe,6" pipe\nb': [b'5" pipe,6" pipe', b"b"],
    b'a,"b\n,"",c': [b'a,"b\n,"",c'],
    b'a\nb,"c\nd\n': [b"a", b'b,"c\nd\n'],
    b'\xef\xbb\xbf"a\nb"\n': [b'"a\nb"'],
    b'"a"x\n"b\n"': [b'"a"x', b'"b\n"'],
}


@pytest.mark.parametrize("text", RECORDS, ids=repr)
def test_a_quoted_field_holds_line_ends_and_one_that_is_never_closed_goes_to_the_end(
    tmp_path: Path, text: bytes
) -> None:
    assert tuples(read(file(tmp_path, text), QUOTED)) == RECORDS[text]
    other = [raw.replace(b'"', b"'") for raw in RECORDS[text]]
    path = file(tmp_path, text.replace(b'"', b"'"))
    assert tuples(read(path, Delimited(",", quote="'"))) == other


def records_by_hand(text: bytes, separator: bytes, quote: bytes) -> list[bytes]:
    """Go through a text sign by sign, with the state in which one is."""
    found, begin, at, is_field_begin, is_quoted = [], 0, 0, True, False
    while at < len(text):
        step = 1
        if is_quoted:
            if text[at : at + 1] == quote:
                if text[at + 1 : at + 2] == quote:
                    step = 2
                else:
                    is_quoted = False
        elif text[at : at + 1] == b"\n":
            found.append(text[begin:at].removesuffix(b"\r"))
            begin, is_field_begin = at + 1, True
            at += 1
            continue
        elif text.startswith(separator, at):
            step, is_field_begin = len(separator), True
            at += step
            continue
        elif is_field_begin and text[at : at + 1] == quote:
            is_quoted = True
        is_field_begin = False
        at += step
    return found + ([text[begin:]] if begin < len(text) else [])


def lines_by_hand(text: bytes) -> list[bytes]:
    *whole, last = text.split(b"\n")
    return [line.removesuffix(b"\r") for line in whole] + ([last] if last else [])


SIGNS = st.lists(
    st.sampled_from([b"a", b"b", b'"', b'""', b",", b"|", b"\n", b"\r\n", b"\r", b"\0", b"\xc3"]),
    max_size=40,
).map(b"".join)


@settings(max_examples=400)
@given(text=SIGNS, block=st.integers(1, 9), most=st.integers(1, 4), pick=st.integers(0, 9))
@pytest.mark.parametrize("separator", [",", "||", "|a|"])
def test_any_blocks_and_any_resumption_give_the_same_tuples(
    separator: str, text: bytes, block: int, most: int, pick: int
) -> None:
    cases: list[tuple[Format, list[bytes]]] = [
        (Json(), lines_by_hand(text)),
        (Delimited(separator, quote='"'), records_by_hand(text, separator.encode(), b'"')),
    ]
    for format_, expected in cases:
        runs = scanned(format_, text, block)
        assert tuples(runs) == expected
        assert [run.first for run in runs] == [
            1 + sum(len(run.raws) for run in runs[:index]) for index in range(len(runs))
        ]
        if runs:
            at = Bookmark(runs[pick % len(runs)].next, runs[pick % len(runs)].end)
            rest = scanned(format_, text, block + 1, at)
            assert tuples(rest) == expected[at.number - 1 :]
            assert all(run.first >= at.number for run in rest)


def test_a_run_has_the_size_of_a_frame(tmp_path: Path) -> None:
    cases: list[tuple[bytes, Format]] = [
        (b"x" * 99, Json()),
        (b"", Json()),
        (b"x", QUOTED),
        (b"y" * 999, QUOTED),
    ]
    for line, format_ in cases:
        runs = read(file(tmp_path, (line + b"\n") * 5_000), format_)
        assert sum(len(run.raws) for run in runs) == 5_000
        assert max(len(run.raws) for run in runs) <= FRAME_TUPLES
        assert max(sum(map(len, run.raws)) for run in runs) <= FRAME_BYTES + 1_000
        assert len(runs) <= max(5, 5_000 * len(line) // FRAME_BYTES + 2)


@pytest.mark.parametrize("format_", [Json(), QUOTED], ids=str)
@pytest.mark.parametrize("extra", [-1, 0, 1, 2])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_the_greatest_tuple_is_whole_and_a_greater_one_is_its_beginning(
    format_: Format, extra: int, end: bytes
) -> None:
    size = TUPLE_BYTES_MAX + extra
    text = b"a\n" + b"x" * size + end + (b"b\n" if end else b"")
    for block in (FRAME_BYTES, FRAME_BYTES + 1, 3 * MIB, len(text)):
        found = {
            run.first + index: (raw, run.oversize.get(index))
            for run in scanned(format_, text, block)
            for index, raw in enumerate(run.raws)
        }
        assert found.pop(1) == (b"a", None)
        raw, oversize = found.pop(2)
        assert (len(raw), oversize) == ((size, None) if extra <= 0 else (OVERSIZE_BYTES_KEPT, size))
        assert list(found.values()) == ([(b"b", None)] if end else [])


def peak(run: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("format_", "begin", "end", "size"),
    [
        (Json(), b"", b"\nz\n", 100_000_000),
        (QUOTED, b"", b"\nz\n", 100_000_000),
        (QUOTED, b'"', b'"\nz\n', 100_000_002),
        (QUOTED, b'"', b"\nz\n", 100_000_004),
    ],
)
def test_a_line_of_100_mb_and_an_unclosed_quote_take_no_memory(
    format_: Format, begin: bytes, end: bytes, size: int
) -> None:
    found: list[tuple[int, int]] = []

    def read_all() -> None:
        scans = scanner(format_, Bookmark())
        blocks = [b"y\n", begin, *[b"x" * 50_000] * 2_000, end]
        for block in blocks:
            found.extend(sizes(scans.feed(block)))
        found.extend(sizes(scans.finish()))

    assert peak(read_all) < 6 * TUPLE_BYTES_MAX
    assert found == [(1, 1), (2, size), *([(3, 1)] if size != 100_000_004 else [])]


def sizes(runs: Iterator[Run]) -> Iterator[tuple[int, int]]:
    for run in runs:
        for index, raw in enumerate(run.raws):
            yield run.first + index, run.oversize.get(index, len(raw))


def arrow_compressed(codec: str) -> Callable[[bytes], bytes]:
    def compress(content: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as out:
            out.write(content)
        return bytes(sink.getvalue())

    return compress


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": arrow_compressed("zstd"),
    "lz4": arrow_compressed("lz4"),
}


@pytest.mark.parametrize("ending", COMPRESSED)
def test_a_compressed_file_is_its_content_of_several_members_and_whatever_its_name(
    tmp_path: Path, ending: str
) -> None:
    lines = [b"%d" % number * 30 for number in range(20_000)]
    content = b"\n".join(lines)
    compress = COMPRESSED[ending]
    packed = compress(content[:100_001]) + compress(content[100_001:])
    for name in (f"f.{ending}", "f"):
        runs = read(file(tmp_path, packed, name))
        assert tuples(runs) == lines
        assert sum(map(len, (run.raws for run in runs))) == len(lines)
        middle = runs[len(runs) // 2]
        assert (
            tuples(read(tmp_path / name, at=Bookmark(middle.next, middle.end)))
            == lines[middle.next - 1 :]
        )


@pytest.mark.parametrize("ending", COMPRESSED)
def test_a_cut_off_compressed_file_gives_what_it_has_and_says_where(
    tmp_path: Path, ending: str
) -> None:
    content = b"".join(b"%064x\n" % (number * 7919**13) for number in range(60_000))
    packed = COMPRESSED[ending](content)
    for damaged in (packed[: len(packed) * 3 // 4], packed[:-1]):
        with Reader(file(tmp_path, damaged, f"f.{ending}"), stream(Json())) as reader:
            found, error = until_error(reader.runs())
        assert re.search(r"f\.\w+ is damaged or cut off .* after [\d,]+ bytes", error.what)
        assert len(found) > (0 if ending == "bz2" else 1_000)
        assert found == content.split(b"\n")[: len(found)]


def test_a_name_that_promises_a_compression_is_held_to_it(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match=r"is no gzip file"):
        read(file(tmp_path, b"a\n", "f.gz"))
    assert read(file(tmp_path, b"", "f.gz")) == []
    assert tuples(read(file(tmp_path, b"BZh9 is text\n"))) == [b"BZh9 is text"]


@pytest.mark.parametrize("start", [b"\xff\xfea\0", b"\xfe\xff\0a"])
@pytest.mark.parametrize("format_", [Json(), QUOTED], ids=str)
def test_utf_16_is_refused(tmp_path: Path, start: bytes, format_: Format) -> None:
    with pytest.raises(HeadraceError, match=r"f: the text begins with .* of UTF-16"):
        read(file(tmp_path, start + b"\0\n\0b\0\n\0"), format_)


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="Is a directory"):
        read(tmp_path)
    with pytest.raises(HeadraceError, match="No such file"):
        read(tmp_path / "none")


def test_a_file_without_permission_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    path = file(tmp_path, b"a")
    monkeypatch.setattr("builtins.open", refuse)  # root may read all
    with pytest.raises(HeadraceError, match="f cannot be read: Permission denied"):
        read(path)


def test_a_pipe_is_read_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)
    os.write(descriptor, b"a\nb\n")
    with Reader(path, stream(Json())) as reader:
        assert reader.name == ""
        os.close(descriptor)
        assert tuples(list(reader.runs())) == [b"a", b"b"]


def test_standard_input_is_read_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a,b\n1,2\n3")
    os.close(writing)
    with os.fdopen(reading) as text:
        monkeypatch.setattr("sys.stdin", text)
        with Reader("-", stream(Delimited(",", header=True))) as reader:
            assert (reader.name, reader.header) == ("", ("a", "b"))
            assert tuples(list(reader.runs())) == [b"1,2", b"3"]


def test_a_file_is_named_by_its_path_and_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path, b"a\n")
    monkeypatch.chdir(tmp_path)
    with Reader("f", stream(Json())) as reader, Reader(path, stream(Json()), source="n") as other:
        # The digest is that of `printf 'a\n' | sha256sum`.
        assert reader.name == f"{tmp_path}/f:87428fc522803d31"
        assert other.name == "n"
        assert tuples(list(reader.runs())) == [b"a"]


def test_a_file_that_grew_is_read_to_its_end_or_refused_if_that_is_half_a_tuple(
    tmp_path: Path,
) -> None:
    for content, expected in [(b"a\nb\n", [b"a", b"b"]), (b"a\nb", None)]:
        path = file(tmp_path, content)
        with Reader(path, stream(Json())) as reader:
            with path.open("ab") as more:
                more.write(b"c\n")
            if expected:
                assert tuples(list(reader.runs())) == expected
                continue
            found, error = until_error(reader.runs())
            assert "grows while it is read" in error.what
            assert "--follow" in error.hint
            assert found == [b"a"]


def test_a_file_that_shrinks_or_is_changed_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, b"a\n" * 100_000)
    with Reader(path, stream(Json())) as reader:
        os.truncate(path, 50_000)
        with pytest.raises(HeadraceError, match="has shrunk"):
            list(reader.runs())
    with Reader(path, stream(Json())) as reader:
        os.utime(path, ns=(1, 1))
        with pytest.raises(HeadraceError, match="was changed while it was read"):
            list(reader.runs())


def test_reading_cannot_go_on_after_the_end(tmp_path: Path) -> None:
    path = file(tmp_path, b"a\n")
    for content in (b"a\n", gzip.compress(b"a\n")):
        path.write_bytes(content)
        with pytest.raises(HeadraceError, match="reading is to go on at 99"):
            read(path, at=Bookmark(50, 99))


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_header_is_number_0_and_not_sent(tmp_path: Path, quote: str) -> None:
    format_ = Delimited(",", quote=quote, header=True)
    path = file(tmp_path, b"\xef\xbb\xbfb, a\r\n1,2\n3,4\n")
    with Reader(path, stream(format_)) as reader:
        assert reader.header == ("b", "a")
        (run,) = reader.runs()
        assert run == Run(1, [b"1,2", b"3,4"], 17)
    assert read(path, format_, Bookmark(2, 13)) == [Run(2, [b"3,4"], 17)]
    assert read(file(tmp_path, b""), format_) == []


@pytest.mark.parametrize("first", [b"", b"a,,b", b"a,a", b"a,\xff"])
def test_a_first_line_that_is_no_header_is_refused(tmp_path: Path, first: bytes) -> None:
    with pytest.raises(HeadraceError, match="f: its first line is no header"):
        read(file(tmp_path, first + b"\n1,2\n"), Delimited(",", header=True))
