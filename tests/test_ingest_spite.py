"""Ingest in spite of everything: what would be lost, counted twice, or stop for no reason."""

import gzip
import hashlib
import io
import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import fastavro
import pyarrow as pa
import pytest
from alone import Alone
from collecting import Place, line, place
from cutting import CLOSE, Bench, log_of
from kafka import TopicPartition
from live import Board, Parts
from starlette.exceptions import HTTPException
from trial import nothing
from waiting import until

from api.streams import Streams
from etl_procs import Dataflow, Stream, by_count, by_interval, by_punctuation
from etl_procs.batch import ARRIVAL, place_of
from etl_procs.core import Core, core_path
from etl_procs.rules import Late
from etl_procs.sources import KEPT_MAX, Seen, Sources
from etl_procs.wire import Clean, Format, Mean, Wire, delimited, fixed_width, xml
from headrace import config
from headrace.cli import lags, main
from headrace.cli.assembly import Engine
from headrace.clock import SystemClock
from headrace.config import Broker
from headrace.crash import CrashPoints
from headrace.errors import Exit, HeadraceError
from ingest import topics
from ingest.batcher import Batcher, refuse_lost
from ingest.cleaning import Cleaner
from ingest.collector import collect
from ingest.crowd import Crowd
from ingest.framing import Framing
from ingest.posting import Posting
from ingest.runs import Run
from ingest.source import Source
from ingest.topics import Topic


@pytest.fixture
def at(kafka: Alone, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return place(tmp_path, f"s{abs(hash(request.node.name)) % 10**9}", kafka.address)


def stream(columns: str = "n INTEGER, k TEXT, x REAL", **wire: object) -> Stream:
    made = Wire(**wire)  # type: ignore[arg-type]
    return Dataflow("f").stream("s", columns, batches=by_count(1), wire=made)


# Cutting.


@pytest.mark.parametrize(
    ("late", "expected"), [(Late.NEXT, ["0:2 0:3"]), (Late.DEAD, ["?0:2 ?0:3"])]
)
def test_what_comes_after_the_end_of_its_partition_opens_no_interval_that_was_passed(
    late: Late, expected: list[str]
) -> None:
    rule = by_interval("at", 10, late=late)
    first, then = log_of("5 .", "5 205 305"), log_of("_ _ 75 95 .", "")
    bench = Bench(rule, partitions=2).add(first)
    cuts = bench.cuts()
    assert [cut.epoch for cut in cuts] == [0, 20]
    more = bench.add(then).cuts()
    again = Bench(rule, partitions=2, after=cuts).add(log_of("_ .", "_ _ 305")).add(then).cuts()
    assert [cut.names for cut in again] == [cut.names for cut in more]
    assert [" ".join(cut.text) for cut in more] == expected
    assert [cut.epoch for cut in more] == [21]


def test_a_partition_that_was_finished_for_long_may_end_the_batch_where_all_are() -> None:
    bench = Bench(by_punctuation(), partitions=2, rows_max=10**6)
    bench.add(log_of("1 .", "|5000 |10000 |15000"))
    assert len(bench.cuts()) == 15_000
    bench.add(log_of("_ _ 7 |15001", "_ _ _ 9 |15001"))
    assert [cut.names for cut in bench.cuts()] == [["0:2", "1:3"]]
    assert bench.of_each("ready") == {"a": 0}


def test_what_comes_after_a_batch_was_closed_by_force_and_the_end_is_not_late() -> None:
    rule = by_interval("at", 10, timeout_s=5, on_timeout=CLOSE, late=Late.DEAD)
    bench = Bench(rule, partitions=2).add(log_of("5", "")).wait(6)
    assert bench.names() == ["0:0"]
    bench.add(log_of("_ . 15", "_ 15 25")).wait(10)
    assert bench.names()[0] == "0:2 1:1"


def test_sources_that_wait_for_their_commit_are_not_looked_up_for_each_new_one() -> None:
    count, asked = 3 * KEPT_MAX, 0

    def known(_partition: int, _source: str) -> Seen:
        nonlocal asked
        asked += 1
        return Seen()

    names = [f"device {n}" for n in range(count)]
    values = [[0] * count, range(count), None, None, None, names, [1] * count]
    columns = [
        pa.nulls(count, field.type) if given is None else pa.array(given, field.type)
        for field, given in zip(ARRIVAL, values, strict=True)
    ]
    sources = Sources("f.s", known)
    for start in range(0, count, 1_000):
        assert len(sources.fresh(pa.table(columns, schema=ARRIVAL).slice(start, 1_000))) == 1_000
        if asked > 10 * count:
            break
    assert asked <= 10 * count


def test_a_number_that_comes_late_and_never_came_before_is_not_lost() -> None:
    assert Bench(by_count(1)).add("1@a1 2@a5000 3@a2").names() == ["0:0", "0:1", "0:2"]


# Positions.


def test_a_record_that_was_deleted_before_all_of_it_was_read_is_missed() -> None:
    topic = Topic("t", "id", {0: range(10, 10)})
    refuse_lost(topic, {0: place_of(10, 0)})
    with pytest.raises(HeadraceError, match=r"1 records of t\[0\], from offset 9 on, were deleted"):
        refuse_lost(topic, {0: place_of(9, 5)})


def test_what_is_deleted_before_the_first_batch_of_a_partition_is_missed(
    tmp_path: Path,
) -> None:
    settings = config.load(environment={}).config.core
    core_path(tmp_path).parent.mkdir()
    core = Core(core_path(tmp_path), settings=settings, clock=SystemClock(), crash=CrashPoints())
    flow = Dataflow("f")
    votes = flow.stream("s", "n INTEGER", batches=by_count(2))
    flow.procedure(takes=votes)(nothing)
    core.prepare([flow])
    core.claim("f", "s", "id", {0: 5, 1: 0})
    core.claim("f", "s", "id", {0: 7, 1: 3})  # at the next start
    positions = core.positions(votes)
    core.close()
    refuse_lost(Topic("f.s", "id", {0: range(5, 9), 1: range(9)}), positions)
    for partitions in ({0: range(7, 9), 1: range(9)}, {0: range(5, 9), 1: range(3, 9)}):
        with pytest.raises(HeadraceError, match="were deleted before they were read"):
            refuse_lost(Topic("f.s", "id", partitions), positions)


def reader_of(spark: Any) -> Batcher:
    loaded, clock = config.load(environment={}).config, SystemClock()
    return Batcher(spark, stream(), loaded, Crowd(lambda: 2, clock), clock)


def test_reading_begins_where_the_log_did_and_not_where_it_does_by_then(tmp_path: Path) -> None:
    spark = MagicMock()
    reader = spark.readStream.format.return_value.options.return_value
    reader.option.return_value = reader
    batcher = reader_of(spark)
    batcher._next = {1: place_of(7, 3)}
    with patch("ingest.batcher.decoded"):
        batcher._read("t", [0, 1], tmp_path)
    options = {call.args[0]: call.args[1] for call in reader.option.call_args_list}
    # At its "earliest" (-2), Spark would pass over what was deleted since somebody looked.
    assert json.loads(options["startingOffsets"]) == {"t": {"0": 0, "1": 7}}


def test_an_engine_that_never_took_a_tuple_misses_those_that_were_deleted(
    running: Parts, tmp_path: Path
) -> None:
    board = Board(running, tmp_path, f"s{abs(hash(str(tmp_path))) % 10**8}")
    with board.engine() as engine:
        board.until_ready(engine)
    board.vote([(f"{n:05}", 1) for n in range(10)])
    held = topics.held(board.parts.broker, board.topic)
    with topics.admin(board.parts.broker) as client:
        client.delete_records({TopicPartition(board.topic, p): o.stop for p, o in held.items()})
    board.vote([("99999", 1)])
    with board.engine() as engine:
        assert board.until_dead(engine) == Exit.FAILED
    assert "were deleted before they were read" in board.log()
    assert board.arrived() == []


def test_what_a_transaction_leaves_at_the_end_of_a_partition_is_no_lag(
    running: Parts, tmp_path: Path
) -> None:
    board = Board(running, tmp_path, f"s{abs(hash(str(tmp_path))) % 10**8}")
    settings = {"home": str(board.home), "flows": str(board.file)}
    loaded = config.load(settings, environment={}).config
    board.send_and_commit(b'{"phone": "1", "contestant": 1}')
    with board.engine() as engine:
        board.until_consumed(engine)
        assert len(board.arrived()) == 1
        assert lags.tuples(loaded, running.broker) == 0
        board.send_and_abort(b'{"phone": "2", "contestant": 1}')
        board.until_consumed(engine)
        lags.until_taken(loaded, board.flow, board.stream, running.broker)
    assert len(board.arrived()) == 1


def test_after_tuples_that_could_not_be_handed_over_nothing_is(tmp_path: Path) -> None:
    loaded = config.load({"home": str(tmp_path)}, environment={}).config
    flow = Dataflow("f")
    made = flow.stream("s", "n INTEGER", batches=by_count(1))
    engine = Engine(loaded, {"f": flow}, SystemClock())
    engine._take(made, 1, pa.table({"n": [1]}), {})  # which is no arrival
    assert isinstance(engine._failure, AssertionError)
    assert engine._partitions._stopping


def test_what_a_stop_breaks_off_is_no_failure() -> None:
    batcher = reader_of(None)

    class Query:
        def stop(self) -> None: ...

        def awaitTermination(self, _timeout_s: float) -> bool:  # noqa: N802 - Spark's name
            batcher.stop()
            raise RuntimeError("NetworkSelector closed!")  # as the watch of the topic does then

    batcher._query, batcher._begin = Query(), lambda: None  # type: ignore[assignment]
    batcher.wait()


# The collector, and posts.

POISON = [rb'{"n": 1, "k": "\ud800"}', rb'{"\ud800": 1}', b'{"n": 1e99999999999999999999}']


@pytest.mark.parametrize("raw", POISON)
def test_a_tuple_that_cannot_be_read_stops_nobody(raw: bytes) -> None:
    for clean in (Clean(drop=("x",)), Clean(smooth=(Mean("x", last=2),))):
        assert Cleaner(stream(clean=clean)).clean([raw])[0].startswith(b"{")
    for route in ("n", "k", "x"):
        routed = stream(route=route)
        (record,) = Framing.of(routed, 2).records("a", Run(1, [raw], 1))
        assert record.value == raw


LARGE = b"x" * (9 * 2**20)


@pytest.mark.parametrize(
    ("format", "type_", "body"),
    [
        (delimited(","), "text/csv", b"1,a\n2,%b\n"),
        (delimited(",", quote='"'), "text/csv", b"1,a\n2,%b\n"),
        (fixed_width(3, 100), "text/plain", b"1  a\n2  %b\n"),
        (xml("r"), "text/xml", b"<d><r><n>1</n><k>%b</k></r></d>"),
    ],
)
def test_of_a_large_tuple_that_is_posted_no_beginning_is_taken(
    format: Format, type_: str, body: bytes
) -> None:
    streams = Streams({}, Posting(Broker))
    with pytest.raises(HTTPException, match="a tuple is larger than"):
        streams.post(stream("n INTEGER, k TEXT", format=format), type_, body % LARGE, "", 1)


def test_one_name_for_a_folder_of_files_is_refused(
    at: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = at.folder / "incoming"
    folder.mkdir()
    at.lines(3, "incoming/a", 1)
    at.lines(3, "incoming/b", 11)
    assert main(["produce", "lines", str(folder), "--source", "me", *at.flags()]) != Exit.OK
    assert "me names one source, and there are 2 files" in capsys.readouterr().err
    assert at.landed() == []


def test_nobody_is_told_to_go_on_in_a_file_that_is_another_source_now(
    at: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = at.lines(3), Source.read

    def grown(source: Source, size: int = 2**16) -> bytes:
        block = read(source, size)
        if not block:
            until(lambda: at.count() > 0, 30, lambda: "nothing landed")
            with path.open("a") as file:
                file.write('{"n": 4')
        return block

    monkeypatch.setattr(Source, "read", grown)
    path.write_bytes(path.read_bytes() + b'{"n"')
    assert main(["produce", "lines", str(path), *at.flags()]) != Exit.OK
    said = capsys.readouterr().err
    assert "grows while it is read" in said
    assert "goes on there" not in said


MANY = 5_000
SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "n", "type": "long"}, {"name": "k", "type": "string"}],
}


def whole(form: str) -> bytes:
    if form == "avro":
        made = io.BytesIO()
        data = [{"n": n, "k": f"key {n}"} for n in range(MANY)]
        fastavro.writer(made, SCHEMA, data, sync_interval=4_096)
        return made.getvalue()
    if form == "xml":
        rows = "".join(f"<r><n>{n}</n></r>" for n in range(MANY))
        return f"<d>{rows}</d>".encode()
    digests = (hashlib.sha256(b"%d" % n).hexdigest() for n in range(MANY))
    return gzip.compress("".join(f'{{"n": 1, "k": "{d}"}}\n' for d in digests).encode())


def numbers(at: Place) -> set[int]:
    found = set()
    for record in at.landed():
        first = int(record.headers["seq"])
        found |= set(range(first, first + int(record.headers.get("frame", 1))))
    return found


@pytest.mark.parametrize("form", ["gz", "xml", "avro"])
def test_what_was_cut_off_counts_once_when_it_is_mended_and_sent_by_the_name_that_is_told(
    kafka: Alone, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    wire = {"gz": "", "xml": 'xml("r")', "avro": f"avro({json.dumps(SCHEMA)!r})"}[form]
    at = place(tmp_path, f"mended_{form}", kafka.address, wire=wire)
    path, content = tmp_path / f"f.{form}", whole(form)
    path.write_bytes(content[: len(content) * 3 // 4])
    good = at.folder / "good"
    good.write_bytes(b"")
    assert main(["produce", "lines", str(path), str(good), *at.flags()]) != Exit.OK
    said = capsys.readouterr().err
    assert "goes on there" not in said
    (name,) = re.findall("--source '(.*?)'", said)
    assert 0 < len(numbers(at)) < MANY
    path.write_bytes(content)
    assert main(["produce", "lines", str(path), "--source", name, *at.flags()]) == Exit.OK
    assert numbers(at) == set(range(1, MANY + 1))
    assert {record.headers["source"] for record in at.landed()} == {name}


def test_nobody_is_told_to_go_on_in_standard_input_without_a_name(at: Place) -> None:
    process = at.spawn("-")
    assert process.stdin
    process.stdin.write(line(1).encode() + b"\n")
    process.stdin.flush()
    until(lambda: at.count() > 0, 60, lambda: "nothing landed")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED
    assert b"goes on there" not in error
    assert b"counts again" in error


def test_a_file_that_was_appended_to_is_not_sent_twice(at: Place) -> None:
    path = at.lines(3)
    collect(at.config, at.stream, [str(path)])
    with path.open("a") as file:
        file.write(line(4) + "\n")
    collect(at.config, at.stream, [str(path)])
    sent = [raw for record in at.landed() for _, raw in record.tuples]
    assert sorted(sent) == [line(n).encode() for n in range(1, 5)]


def test_a_file_that_grew_after_an_unended_line_is_refused(at: Place) -> None:
    path = at.folder / "unended"
    path.write_bytes(b'{"n": 1}')
    collect(at.config, at.stream, [str(path)])
    path.write_bytes(b'{"n": 1}5\n')
    with pytest.raises(HeadraceError, match="its last line was not ended"):
        collect(at.config, at.stream, [str(path)])


@pytest.mark.parametrize("source", ["", "named"])
def test_a_file_that_grew_twice_is_refused_after_an_unended_line(at: Place, source: str) -> None:
    path = at.lines(1)
    for more in (line(2) + "\n", line(3), ""):
        collect(at.config, at.stream, [str(path)], source=source)
        with path.open("a") as file:
            file.write(more)
    collect(at.config, at.stream, [str(path)], source=source)
    with path.open("a") as file:
        file.write("5\n" + line(4) + "\n")
    with pytest.raises(HeadraceError, match="its last line was not ended"):
        collect(at.config, at.stream, [str(path)], source=source)
    sent = [raw for record in at.landed() for _, raw in record.tuples]
    assert sorted(sent) == [line(n).encode() for n in range(1, 4)]


def test_a_file_that_begins_otherwise_is_another_source(at: Place) -> None:
    path = at.lines(2)
    collect(at.config, at.stream, [str(path)])
    path.write_text("".join(line(n) + "\n" for n in (3, 4, 5)))
    collect(at.config, at.stream, [str(path)])
    sent = [raw for record in at.landed() for _, raw in record.tuples]
    assert sorted(sent) == [line(n).encode() for n in range(1, 6)]


def test_a_post_that_would_be_routed_where_no_partition_is_says_so(at: Place) -> None:
    topics.ensure(at.broker, at.stream)
    posting = Posting(lambda: replace(at.broker, topic_partitions=64))
    try:
        with pytest.raises(HeadraceError, match="has 2 partitions, and 64 are declared"):
            posting.post(at.stream, Cleaner(at.stream), [b'{"n": 1}'], "client", 1)
    finally:
        posting.close()
