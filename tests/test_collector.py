"""The command and what it collects: every option, every kind of source, and where it goes on."""

import gzip
import io
import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest
from alone import Alone
from collecting import Place, line, place
from flows import HeldClock
from waiting import until

from etl_procs import loader
from etl_procs.core import Core, core_path
from headrace.cli import lags, main
from headrace.cli.progress import Progress
from headrace.cli.progress import line as progress_line
from headrace.clock import SystemClock
from headrace.crash import CrashPoints
from headrace.errors import Exit, NotRunning
from headrace.local.home import Home
from ingest import topics
from ingest.collector import Status, collect, found


@pytest.fixture
def at(kafka: Alone, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return place(tmp_path, f"c{abs(hash(request.node.name)) % 10**9}", kafka.address)


def produce(at: Place, *arguments: object) -> int:
    return main(["produce", "lines", *map(str, arguments), *at.flags()])


def values(at: Place) -> list[bytes]:
    return sorted(raw for record in at.landed() for _, raw in record.tuples)


def lines(*numbers: int) -> list[bytes]:
    return sorted(line(n).encode() for n in numbers)


def test_files_globs_directories_and_standard_input_are_collected(
    at: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, globbed = at.folder / "incoming", at.folder / "archive"
    folder.mkdir()
    globbed.mkdir()
    at.lines(1, "incoming/a", 1)
    at.lines(1, "incoming/b", 2)
    at.lines(1, "incoming/.hidden", 100)
    (folder / "within").mkdir()
    at.lines(1, "archive/c.x", 3)
    at.lines(1, "archive/c.y", 101)
    (globbed / "d.x").write_bytes(gzip.compress(line(4).encode()))
    one = at.lines(1, "one", 5)
    process = at.spawn(folder, globbed / "*.x", one, "-", one)
    out, error = process.communicate(line(6).encode(), timeout=60)
    assert process.returncode == 0, error
    assert out.decode() == f"6 tuples are in {at.stream.topic}\n"
    assert values(at) == lines(1, 2, 3, 4, 5, 6)
    nameless = [r for r in at.landed() if "source" not in r.headers]
    assert [r.value for r in nameless] == [line(6).encode()]


def test_a_source_that_was_sent_is_passed_over_and_one_that_was_named_goes_on(
    at: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file = at.lines(10)
    assert produce(at, file) == Exit.OK
    assert produce(at, file, at.lines(1, "other", 11)) == Exit.OK
    out = capsys.readouterr().out.splitlines()
    assert out[1] == f"1 tuple is in {at.stream.topic}; 1 of 2 files had been sent before"
    assert produce(at, file) == Exit.OK
    said = capsys.readouterr().out
    assert said == f"nothing new is in {at.stream.topic}; 1 of 1 files had been sent before\n"
    assert values(at) == lines(*range(1, 12))


def test_standard_input_with_a_name_has_numbers_and_goes_on(at: Place) -> None:
    text = b"".join(b"%b\n" % one for one in lines(1, 2, 3))
    for _ in range(2):
        process = at.spawn("-", "--source", "pipe")
        _, error = process.communicate(text, timeout=60)
        assert process.returncode == 0, error
    (record,) = at.landed()
    assert record.headers == {"source": "pipe", "seq": "1", "frame": "3"}


def test_source_names_one_file_and_no_more(at: Place, capsys: pytest.CaptureFixture[str]) -> None:
    file = at.lines(1)
    assert produce(at, file, "--source", "me") == Exit.OK
    assert [r.headers["source"] for r in at.landed()] == ["me"]
    assert produce(at, file, file, "--source", "me") == Exit.REFUSED
    assert "names one source, and there are 2 files" in capsys.readouterr().err


@pytest.mark.parametrize("partition", [0, 1])
def test_partition_is_where_all_of_it_goes(at: Place, partition: int) -> None:
    assert produce(at, at.lines(10), "--partition", partition) == Exit.OK
    assert {r.partition for r in at.landed()} == {partition}


@pytest.mark.parametrize(
    ("wire", "where"),
    [
        ("route='k', partitions=5", lambda n: crc32(b"key %d" % (n % 7)) % 5),
        ("route=13, partitions=17", lambda _: 13),
    ],
)
def test_tuples_go_where_the_wire_says_of_as_many_partitions_as_it_declares(
    kafka: Alone, tmp_path: Path, wire: str, where: Callable[[int], int]
) -> None:
    at = place(tmp_path, f"routed{crc32(wire.encode())}", kafka.address, wire=wire)
    assert produce(at, at.lines(14)) == Exit.OK
    went = {raw: r.partition for r in at.landed() for _, raw in r.tuples}
    assert went == {line(n).encode(): where(n) for n in range(1, 15)}


def test_a_partition_that_is_not_there_is_refused(
    at: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert produce(at, at.lines(1), "--partition", 2) == Exit.REFUSED
    assert "there is no partition 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("batches", "flags", "header", "value", "said"),
    [
        ("by_punctuation()", ["--punctuation", "7"], "punctuation", "7", "batch 7 is ended"),
        ("by_interval('n', 10)", ["--complete", "-5"], "complete", "-5", "all before -5 is said"),
        ("by_count(10)", ["--finished"], "finished", "1", "the stream is said to be finished"),
    ],
)
def test_each_partition_is_told_after_the_files(
    kafka: Alone,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    batches: str,
    flags: list[str],
    header: str,
    value: str,
    said: str,
) -> None:
    at = place(tmp_path, f"told_{header}", kafka.address, batches=batches)
    assert produce(at, at.lines(3), *flags) == Exit.OK
    assert produce(at, *flags) == Exit.OK, "without a file, standard input is not read"
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"3 tuples are in {at.stream.topic}"
    assert out[1].startswith(said)
    assert out[1].endswith("in each of its 2 partitions")
    for partition in (0, 1):
        marks = [r.headers for r in at.landed() if r.partition == partition][-2:]
        assert marks == [{header: value}] * 2


def test_a_time_that_has_come_is_nothing_to_wait_for_and_a_tuple_is(
    kafka: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place(tmp_path, "times", kafka.address, batches="by_interval('n', 10)")
    for _ in range(2):
        assert produce(at, at.lines(3), "--complete", 100) == Exit.OK
    held = topics.held(at.broker, at.stream.topic)
    flow = loader.load([at.file])[at.name]
    monkeypatch.setattr(lags, "LOOK_S", 0.0)
    monkeypatch.setattr(lags, "STUCK_S", 0.0)
    for marks in (2, 3):
        done = {p: max(0, some.stop - marks) for p, some in held.items()}
        monkeypatch.setattr(lags, "_positions", lambda *_, done=done: done)
        if marks == 2:
            lags.until_taken(at.config, flow, at.stream, at.broker)
        else:
            with pytest.raises(NotRunning, match="has taken nothing more"):
                lags.until_taken(at.config, flow, at.stream, at.broker)


def test_what_is_waited_for_is_looked_at_often_at_first_and_then_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, clock, slept = place(tmp_path, "looks", "127.0.0.1:1"), HeldClock(), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(seconds + 0.01)

    held = SimpleNamespace(sleep=sleep, monotonic=clock.monotonic)
    monkeypatch.setattr(lags, "time", held)
    monkeypatch.setattr(topics, "held", lambda *_: {0: range(1)})
    monkeypatch.setattr(lags, "_positions", lambda *_: {0: 1} if len(slept) > 50 else {})
    lags.until_taken(at.config, loader.load([at.file])[at.name], at.stream, at.broker)
    assert slept == sorted(slept)
    assert slept[1] < lags.POLL_S / 10
    assert slept[-1] == lags.POLL_S


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--punctuation", "1"], "is not cut by punctuation"),
        (["--complete", "1"], "is not cut by intervals"),
        (["--follow", "--finished"], "--follow has no end, and --finished comes at the end"),
        (["--follow", "--wait"], "--follow has no end, and --wait comes at the end"),
        (["--source", ""], "--source is not between 1 and 1,000 bytes"),
        (["--source", "x" * 1_001], "--source is not between 1 and 1,000 bytes"),
    ],
)
def test_what_does_not_go_together_is_refused(
    at: Place, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert produce(at, at.lines(1), *flags) == Exit.REFUSED
    assert message in capsys.readouterr().err


def test_wait_does_not_return_before_the_core_has_taken_them(
    at: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lags, "STUCK_S", 0.5)
    path, settings = core_path(at.config.home), at.config.core
    Home(at.config.home).create()
    core = Core(path, settings=settings, clock=SystemClock(), crash=CrashPoints())
    core.prepare(list(loader.load([at.file]).values()))
    core.close()
    assert produce(at, at.lines(1)) == Exit.OK
    assert produce(at, at.lines(1), "--wait") == Exit.NOT_RUNNING
    assert "the core has taken nothing more" in capsys.readouterr().err


def test_a_directory_is_followed_with_files_that_grow_and_files_that_come(at: Place) -> None:
    folder = at.folder / "incoming"
    folder.mkdir()
    first = at.lines(2, "incoming/first")
    process = at.spawn(folder, "--follow")
    try:
        until(lambda: _values(at) == lines(1, 2), 60, lambda: "it does not begin")
        with first.open("a") as more:
            more.write(f"{line(3)}\n{line(4)[:5]}")
        at.lines(1, "incoming/second", 5)
        until(lambda: _values(at) == lines(1, 2, 3, 5), 60, lambda: "it does not go on")
        with first.open("a") as more:
            more.write(f"{line(4)[5:]}\n")
        until(lambda: _values(at) == lines(1, 2, 3, 4, 5), 60, lambda: "it does not go on")
    finally:
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert process.returncode == Exit.INTERRUPTED, error
    assert b"interrupted: 5 tuples are safe" in error
    follower = at.spawn(folder, "--follow")
    at.lines(1, "incoming/third", 6)
    try:
        until(lambda: len(_values(at)) > 5, 60, lambda: "it does not go on")
    finally:
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=30)
    assert values(at) == lines(*range(1, 7)), "what was sent before is not sent again"


def test_what_cannot_be_followed_is_sent_once_and_what_is_moved_is_let_go(at: Place) -> None:
    folder = at.folder / "incoming"
    folder.mkdir()
    for n in range(100):
        at.lines(1, f"incoming/{n}", n)
    packed = gzip.compress(line(100).encode())
    (folder / "packed").write_bytes(packed[:9])
    (folder / "bad.gz").write_bytes(b"no gzip")
    process = at.spawn(folder, "--follow")
    try:
        until(lambda: len(_values(at)) == 100, 60, lambda: "it does not begin")
        assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < 50
        (folder / "packed").write_bytes(packed)
        (folder / "7").rename(at.folder / "moved")
        until(lambda: len(_values(at)) == 101, 60, lambda: "what is packed is not sent")
        at.lines(1, "incoming/7", 101)
        until(lambda: len(_values(at)) == 102, 60, lambda: "it does not go on")
    finally:
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert process.returncode == Exit.INTERRUPTED, error
    assert f"{folder}/7 is gone".encode() in error
    assert b"bad.gz is no gzip file" in error
    assert values(at) == lines(*range(102))


def test_what_a_file_had_that_was_moved_away_is_sent_by_its_name(
    at: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file = at.lines(2)
    process = at.spawn(file, "--follow")
    until(lambda: len(_values(at)) == 2, 60, lambda: "it does not begin")
    with file.open("a") as more:
        file = file.rename(at.folder / "moved")
        more.write(f"{line(3)}\n")
    _, error = process.communicate(timeout=30)
    assert process.returncode == Exit.FAILED, "nothing is left to follow"
    name = error.decode().rpartition("--source '")[2].partition("'")[0]
    assert produce(at, file, "--source", name) == Exit.OK
    assert "1 tuple is in" in capsys.readouterr().out
    assert values(at) == lines(1, 2, 3)


def test_a_bad_file_does_not_stop_the_others_and_is_told_at_the_end(
    at: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    (at.folder / "b.gz").write_bytes(b"no gzip")
    cut = at.folder / "c"
    cut.write_bytes(gzip.compress(f"{line(2)}\n".encode())[:-1])
    files = [
        at.lines(1, "a", 1),
        at.folder / "b.gz",
        cut,
        at.folder / "absent",
        at.lines(1, "d", 3),
    ]
    assert produce(at, *files, "--finished") == Exit.FAILED
    error = capsys.readouterr().err
    assert "3 of 5 files were not sent, or not whole" in error
    for said in ("b.gz is no gzip file", "c is damaged", "absent cannot be read"):
        assert said in error
    assert "3 tuples are safe" in error
    assert values(at) == lines(1, 2, 3)
    assert not [r for r in at.landed() if "finished" in r.headers], "it is not finished"


def test_an_error_names_its_source_and_shows_little_of_it_whatever_that_holds(
    kafka: Alone, tmp_path: Path
) -> None:
    at = place(tmp_path, "shown", kafka.address, wire='delimited(",", header=True)')
    file = tmp_path / "f"
    content = b"# %b,\x1b[2J,\0,%b\n1,2\n" % (bytes(file), b"x" * 100_000)
    file.write_bytes(content)
    for given, called in ((file, str(file)), ("-", "standard input")):
        _, error = at.spawn(given).communicate(content, timeout=60)
        assert f"{called}: the source has none of the columns" in error.decode()
        assert error.replace(b"\n", b"").decode().isprintable()
        assert len(error) < 1_000


def test_where_else_a_source_would_go_on_than_it_was_begun_is_refused(
    at: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file = at.lines(2)
    assert produce(at, file, "--partition", 1) == Exit.OK
    assert produce(at, file) == Exit.OK, "there is nothing to send"
    with file.open("a") as more:
        more.write(f"{line(3)}\n")
    for flags in (["--partition", 0], []):
        assert produce(at, file, *flags) == Exit.REFUSED
        assert "was begun to partition 1, and would go on" in capsys.readouterr().err
    assert produce(at, file, "--partition", 1) == Exit.OK
    assert values(at) == lines(1, 2, 3)


def _values(at: Place) -> list[bytes]:
    try:
        return values(at)
    except (AssertionError, ValueError):  # the topic is not there yet
        return []


def test_cleaning_comes_before_the_wire_and_smoothing_remembers_across_a_resumption(
    kafka: Alone, tmp_path: Path
) -> None:
    wire = 'clean=Clean(smooth=(Changed("n", least=3),))'
    at = place(tmp_path, "smooth", kafka.address, wire=wire)
    file = at.folder / "grows"
    for text in ("", '{"n": 2}\n', '{"n": 4}\n{"n": 8}\n'):
        with file.open("a") as more:
            more.write(text)
        assert produce(at, file, "--source", "meter") == Exit.OK
    numbers = [json.loads(raw)["n"] for r in at.landed() for _, raw in r.tuples]
    assert numbers == [2, 8], "4 is too near to the 2 that was sent before"


def test_a_header_says_in_what_order_the_fields_of_a_file_are(kafka: Alone, tmp_path: Path) -> None:
    at = place(tmp_path, "headed", kafka.address, wire='delimited(",", header=True)')
    file = at.folder / "headed.csv"
    file.write_text("k,n\na,1\nb,2\n")
    assert produce(at, file) == Exit.OK
    assert [each for r in at.landed() for each in r.tuples] == [(1, b"1,a"), (2, b"2,b")]


def test_what_grows_is_cleaned_by_its_header_and_by_all_that_was_before(
    kafka: Alone, tmp_path: Path
) -> None:
    wire = 'delimited(",", header=True), clean=Clean(smooth=(Changed("n", least=3),))'
    at = place(tmp_path, "grows", kafka.address, wire=wire)
    file = at.folder / "grows.csv"
    file.write_text("k,n\na,2\n")
    for more, expected in (("b,4\nc,8\n", [b"2,a"]), ("", [b"2,a", b"8,c"])):
        process = at.spawn(file, "--follow")
        try:
            until(lambda: len(_values(at)) >= len(expected), 60, lambda: "it does not go on")  # noqa: B023
        finally:
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=30)
        assert process.returncode == Exit.INTERRUPTED, error
        assert values(at) == expected, "4 is too near to the 2 that was sent before"
        with file.open("a") as grown:
            grown.write(more)


def test_the_collector_is_a_library(at: Place) -> None:
    said: list[str] = []
    status = collect(at.config, at.stream, [str(at.lines(10))], tell=said.append)
    assert (status.tuples, status.done, status.partitions) == (10, 1, 2)
    assert status.taken == status.size == status.read > 0
    assert values(at) == lines(*range(1, 11))


def test_a_topic_with_fewer_partitions_than_are_declared_is_refused(
    at: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert produce(at, at.lines(1)) == Exit.OK
    flags = at.flags(broker__topic_partitions="3")
    assert main(["produce", "lines", str(at.lines(2)), *flags]) == Exit.FAILED
    assert "has 2 partitions, and 3 are declared" in capsys.readouterr().err


def test_found_gives_the_files_that_paths_name(tmp_path: Path) -> None:
    (tmp_path / "b[1]").write_text("")
    (tmp_path / "a").write_text("")
    assert found(str(tmp_path)) == [str(tmp_path / "a"), str(tmp_path / "b[1]")]
    assert found(str(tmp_path / "b[1]")) == [str(tmp_path / "b[1]")]
    assert found("-") == ["-"]
    assert found(f"{tmp_path}/*.x", may_be_absent=True) == []
    with pytest.raises(Exception, match=r"no file is .*\.x"):
        found(f"{tmp_path}/*.x")
    with pytest.raises(Exception, match="a FILE is the empty text"):
        found("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden").write_text("")
    assert found(str(tmp_path / "empty"), may_be_absent=True) == []
    with pytest.raises(Exception, match=r"no file is in .*/empty"):
        found(str(tmp_path / "empty"))


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_a_file_that_is_not_there_is_said(
    at: Place, capsys: pytest.CaptureFixture[str], follow: list[str]
) -> None:
    assert produce(at, at.folder / "absent", *follow) == Exit.FAILED
    assert "absent cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "elapsed_s", "expected"),
    [
        (
            Status(
                tuples=1_500, sources=2, done=1, read=3_000_000, taken=1_000_000, size=4_000_000
            ),
            2.0,
            "1 of 2 files, 1,500 tuples, 3.0 MB, 1.5 MB/s, 0:00:06 left",
        ),
        (
            Status(sources=1, read=500_000, taken=500_000, skipped=500_000, size=1_000_000),
            1.0,
            "0 of 1 files, 0 tuples, 0.5 MB, 0.5 MB/s",
        ),
    ],
)
def test_progress_tells_size_rate_and_the_time_left(
    status: Status, elapsed_s: float, expected: str
) -> None:
    assert progress_line(status, elapsed_s) == expected


class Terminal(io.StringIO):
    """What was written, to a terminal or a log."""

    is_terminal = True

    def isatty(self) -> bool:
        return self.is_terminal


def test_progress_rewrites_its_line_on_a_terminal_and_is_seldom_told_in_a_log() -> None:
    shown = {}
    for is_terminal in (True, False):
        out, clock = Terminal(), HeldClock()
        out.is_terminal = is_terminal
        progress = Progress(out, clock)
        for _ in range(12):
            clock.advance(1.0)
            progress.show(Status(sources=1))
        progress.say("away")
        shown[is_terminal] = out.getvalue()
    assert shown[True].count("\r0 of 1 files") == 12
    assert "\n" not in shown[True].removesuffix("away\n")
    assert shown[False].splitlines() == [
        "0 of 1 files, 0 tuples, 0.0 MB, 0.0 MB/s",
        "0 of 1 files, 0 tuples, 0.0 MB, 0.0 MB/s",
        "away",
    ]
