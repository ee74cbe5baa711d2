"""The engine against a real broker, real Spark and a real PostgreSQL - killed where it hurts."""

import json
import re
import shutil
import signal
from pathlib import Path

import psycopg
import pytest
from flows import EXAMPLE
from kafka import KafkaConsumer
from live import START_S, Board, Parts
from waiting import until

from bench.usage import below
from etl_procs import loader
from etl_procs.batch import place_of
from etl_procs.core import Core, core_path
from headrace import config
from headrace.cli import lags, main
from headrace.clock import SystemClock
from headrace.config import Broker
from headrace.crash import CrashPoints, Point
from headrace.errors import Exit, HeadraceError
from ingest.batcher import refuse_lost
from ingest.topics import Topic

NAMES = {1: "Edwina", 2: "Tabatha", 3: "Kelly", 4: "Jessie", 5: "Alana", 6: "Ruth"}


@pytest.fixture
def board(running: Parts, tmp_path: Path, request: pytest.FixtureRequest) -> Board:
    name = "".join(c if c.isalnum() else "_" for c in request.node.name.lower())
    return Board(running, tmp_path, f"t{abs(hash(name)) % 10**8}")


def votes(count: int) -> list[tuple[str, int]]:
    """Votes of which each tenth names nobody, from as many phones."""
    return [(f"{n:05}", n % 10 if n % 10 < 6 else 6) for n in range(count)]


def expected(count: int) -> list[tuple[object, ...]]:
    return [(phone, c, NAMES[c]) for phone, c in votes(count) if c in NAMES]


def test_votes_flow_from_kafka_to_the_warehouse(board: Board) -> None:
    board.vote([*votes(50), *votes(50)])
    board.send([b"not json", b"\xff", b'{"phone": "1"}'])
    with board.engine() as engine:
        board.until_consumed(engine)
    assert board.arrived() == expected(50)
    letters = board.dead_letters()
    assert sorted(letter.reason for letter in letters) == sorted(
        ["no such contestant"] * 10
        + ["this phone has voted already"] * 45
        + ["not JSON", "not UTF-8", "contestant is missing"]
    )
    assert {letter.value for letter in letters} >= {b"not json", b"\xff", b'{"phone": "1"}'}
    assert len({(letter.partition, letter.offset) for letter in letters}) == 58


def test_kills_around_the_commit_and_amid_a_push_leave_every_vote_once(board: Board) -> None:
    board.vote(votes(200))
    for point, times in [
        (Point.CORE_COMMIT_BEFORE, 2),
        (Point.CORE_COMMIT_AFTER, 2),
        (Point.PUSH_COPY_AFTER, 1),
    ]:
        settings = {"testing__crash_at": f"{point.value}:{times}", "engine__read_tuples_max": "30"}
        with board.engine(**settings) as engine:
            # A worker that dies takes the engine with it.
            ended = -signal.SIGKILL if point is Point.PUSH_COPY_AFTER else Exit.FAILED
            assert board.until_dead(engine) == ended, board.log()
    with board.engine() as engine:
        board.until_consumed(engine)
    assert board.arrived() == expected(200)
    assert len(board.dead_letters()) == 20


def test_on_two_partitions_every_vote_is_counted_once_in_spite_of_kills(
    running: Parts, tmp_path: Path
) -> None:
    board = Board(running, tmp_path, "on_two", partitions=2)
    board.vote(votes(300))
    dying = {"testing__crash_at": "core.commit.after:2", "engine__read_tuples_max": "30"}
    for _ in range(2):
        with board.engine(**dying) as engine:
            assert board.until_dead(engine) == Exit.FAILED, board.log()
    board.vote(votes(400))
    with board.engine() as engine:
        board.until_consumed(engine)
    assert board.arrived() == expected(400)
    assert len(board.dead_letters()) == 30 + 300 + 10
    for core in board.cores:
        with core.snapshot() as snapshot:
            assert snapshot.batch("on_two") > 1


def test_sparks_jvm_may_die_and_its_checkpoint_be_deleted(board: Board) -> None:
    board.vote(votes(100))
    with board.engine() as engine:
        board.until_consumed(engine)
        board.kill_jvm(engine)
        assert board.until_dead(engine) == 1
        assert "Spark's JVM is gone" in board.log()
    shutil.rmtree(board.home / "spark")
    board.vote([*votes(100), *votes(150)[100:]])
    with board.engine() as engine:
        board.until_consumed(engine)
    assert board.arrived() == expected(150)
    assert len(board.dead_letters()) == 10 + 100 + 5


def test_large_records_that_wait_are_read_few_at_once(board: Board) -> None:
    board.send(b"x" * 2**20 for _ in range(60))
    with board.engine() as engine:
        board.until_consumed(engine)
    at_once = re.findall(r"(\d+) records at once", board.log())
    assert 0 < max(map(int, at_once)) < 60
    assert len(board.dead_letters()) == 60


def test_spark_is_warm_before_anything_comes(board: Board) -> None:
    def is_warm() -> bool:
        """Whether Spark has processes that were forked from ours."""
        forks = [pid for pid in below(engine.pid) if "ingest.daemon" in shown(pid, "cmdline")]
        parents = {f"PPid:\t{pid}" for pid in forks}
        return any(parents & {*shown(pid, "status").splitlines()} for pid in forks)

    def shown(pid: int, file: str) -> str:
        try:
            return Path(f"/proc/{pid}/{file}").read_text()
        except FileNotFoundError:
            return ""  # it has ended

    with board.engine() as engine:
        until(is_warm, START_S, board.log)


def test_what_a_producers_transaction_aborted_is_no_tuple(board: Board) -> None:
    board.send_and_abort(b'{"phone": "aborted", "contestant": 1}')
    board.vote([("committed", 1)])
    with board.engine() as engine:
        until(lambda: board.has_tables() and bool(board.arrived()), START_S, board.log)
        engine.terminate()
        assert board.until_dead(engine) == 0
    assert board.arrived() == [("committed", 1, "Edwina")]
    assert board.dead_letters() == []


def test_lag_is_what_the_log_has_and_the_ledgers_have_not(board: Board) -> None:
    flags = {"home": str(board.home), "flows": str(board.file)}
    loaded = config.load(flags, environment={}).config
    assert lags.tuples(loaded, board.parts.broker) is None
    board.vote(votes(10))
    with board.engine() as engine:
        board.until_consumed(engine)
    assert (lags.tuples(loaded, board.parts.broker), lags.rows(loaded)) == (0, 0)
    board.vote(votes(17)[10:])
    assert lags.tuples(loaded, board.parts.broker) == 7
    with board.engine(warehouse__url="postgresql://127.0.0.1:1/nowhere"):
        until(lambda: lags.tuples(loaded, board.parts.broker) == 0, START_S, board.log)
        assert lags.rows(loaded) == 7 - 1


def test_what_was_deleted_before_it_was_ever_read_is_no_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"home": str(tmp_path), "flows": str(EXAMPLE)}
    loaded = config.load(flags, environment={}).config
    flow = loader.load([EXAMPLE])["leaderboard"]
    core = Core(core_path(tmp_path), settings=loaded.core, clock=SystemClock(), crash=CrashPoints())
    core.prepare([flow])
    core.close()
    partitions = {0: range(5, 9), 1: range(7, 7)}
    monkeypatch.setattr("ingest.topics.held", lambda *_: partitions)
    assert lags.tuples(loaded, Broker()) == 4
    del partitions[0]
    lags.until_taken(loaded, flow, flow.streams["votes"], Broker())


def test_a_procedure_that_fails_gives_its_batch_up_and_a_replay_brings_it_back(
    board: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    good = board.file.read_text()
    board.file.write_text(good.replace("valid = []", "valid = 1 / 0"))
    board.vote(votes(10))
    with board.engine() as engine:
        board.until_consumed(engine)
    letters = board.dead_letters()
    assert all(letter.is_batch and letter.attempts == 3 for letter in letters)
    assert sum(letter.row_count for letter in letters) == 10
    what = f"procedure {board.name}.count failed on batch 1: ZeroDivisionError"
    assert what in letters[0].reason
    assert f"{board.file}:" in letters[0].reason
    assert what in board.log()
    assert "Traceback" not in board.log()
    assert board.arrived() == []
    board.file.write_text(good)
    flags = ["--home", str(board.home), "--flow", str(board.file)]
    numbers = [str(letter.id) for letter in letters]
    assert main(["dead-letters", "replay", *numbers, *flags]) == 0
    with board.engine() as engine:
        until(lambda: board.arrived() == expected(10), START_S, board.log)
    assert [letter.reason for letter in board.dead_letters()] == ["no such contestant"]


def test_a_topic_that_was_made_again_is_not_read_on_in_silence(board: Board) -> None:
    board.vote(votes(10))
    with board.engine() as engine:
        board.until_consumed(engine)
    board.topic_is_lost()
    board.vote(votes(100))
    with board.engine() as engine:
        assert board.until_dead(engine) == 1
    assert "deleted and made again" in board.log()
    assert board.arrived() == expected(10)


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (4, r"6 records of t\[0\], from offset 4 on, were deleted before they were read"),
        (21, r"consumed t\[0\] up to offset 21, and the topic ends at 20"),
    ],
)
def test_reading_on_where_the_log_has_a_hole_is_refused(position: int, message: str) -> None:
    topic = Topic("t", "id", {0: range(10, 20)})
    refuse_lost(topic, {0: place_of(10, 0)})
    refuse_lost(topic, {0: place_of(20, 0)})
    with pytest.raises(HeadraceError, match=message):
        refuse_lost(topic, {0: place_of(position, 0)})


def test_ready_is_said_and_taken_back_and_meanwhile_a_second_engine_is_refused(
    board: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    check = ["engine", "--check", "--home", str(board.home)]
    assert main(check) == 3
    board.vote(votes(10))
    with board.engine() as engine:
        board.until_consumed(engine)
        board.until_ready(engine)
        assert main(check) == 0
        engine.kill()
        engine.wait()
        assert main(check) == 3
    with board.engine() as first:
        board.until_ready(first)
        with board.engine() as second:
            assert board.until_dead(second) == 5
        assert f"another engine runs in {board.home} (pid {first.pid})" in board.log()
        board.vote(votes(20)[10:])
        board.until_consumed(first)
    assert main(check) == 3
    assert first.returncode == 0, board.log()
    assert board.arrived() == expected(20)


def test_lines_become_tuples_and_dead_letters_are_shown(
    board: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    file = board.folder / "votes.jsonl"
    file.write_bytes(b'{"phone": "1", "contestant": 1}\r\n\n\xff\nno\x1b json\n{"phone": "2"}')
    flags = ["--home", str(board.home), "--flow", str(board.file)]
    broker = ["--set", f"broker.bootstrap={board.parts.bootstrap}"]
    assert main(["produce", board.topic, str(file), *flags, *broker]) == 0
    assert capsys.readouterr().out == f"4 tuples are in {board.topic}\n"
    huge = board.folder / "huge.jsonl"
    huge.write_bytes(b'{"phone": "3"}\n' + b"9" * 17_000_000 + b"\n")
    assert main(["produce", board.topic, str(huge), *flags, *broker]) == 0
    with board.engine() as engine:
        board.until_ready(engine)
        assert main(["produce", board.topic, str(file), "--wait", *flags, *broker]) == 0
        assert "1 of 1 files had been sent before" in capsys.readouterr().out
        board.until_consumed(engine)
    assert board.arrived() == [("1", 1, "Edwina")]

    assert main(["dead-letters", "list", *flags]) == 0
    shown = capsys.readouterr().out
    assert f"{board.name}  not UTF-8             " in shown
    assert r"no\x1b json" in shown
    assert main(["dead-letters", "list", "--json", *flags]) == 0
    letters = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert letters.pop(next(n for n, x in enumerate(letters) if "17000000" in x["reason"]))
    assert sorted((x["reason"], x.get("value", x.get("value_base64"))) for x in letters) == [
        ("contestant is missing", '{"phone": "2"}'),
        ("contestant is missing", '{"phone": "3"}'),
        ("not JSON", "no\x1b json"),
        ("not UTF-8", "/w=="),
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["produce", "nothing"], 2, "no stream is called nothing"),
        (["produce", "votes", "absent.jsonl", "--set", "broker.bootstrap="], 3, "no broker is kn"),
        (["dead-letters", "list"], 3, "there is no core to read"),
    ],
)
def test_commands_say_what_is_missing(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*arguments, "--home", str(tmp_path), "--flow", str(EXAMPLE)]) == code
    assert message in capsys.readouterr().err


def test_a_batch_is_ended_in_every_partition_after_the_lines_of_a_file(
    running: Parts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flow, rows = tmp_path / "flow.py", tmp_path / "rows"
    flow.write_text(
        "from etl_procs import Dataflow, by_count, by_punctuation\n"
        'flow = Dataflow("ended")\n'
        'days = flow.stream("days", "n INTEGER", batches=by_punctuation())\n'
        'other = flow.stream("other", "n INTEGER", batches=by_count(1))\n'
        "@flow.procedure(takes=[days, other])\n"
        "def take(tx, days, other): ...\n"
    )
    rows.write_text('{"n": 1}\n')
    flags = ["--flow", str(flow), "--home", str(tmp_path / "home")]
    flags += ["--set", "broker.topic_partitions=2"]
    flags += ["--set", f"broker.bootstrap={running.bootstrap}"]
    assert main(["produce", "days", str(rows), "--punctuation", "1", *flags]) == Exit.OK
    assert main(["produce", "days", "--punctuation", "2", *flags]) == Exit.OK
    assert capsys.readouterr().out.splitlines() == [
        "1 tuple is in ended.days",
        "batch 1 is ended in each of its 2 partitions",
        "nothing new is in ended.days",
        "batch 2 is ended in each of its 2 partitions",
    ]
    consumer = KafkaConsumer(
        "ended.days",
        bootstrap_servers=running.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=5_000,
    )
    found: dict[int, list[bytes]] = {0: [], 1: []}
    for record in consumer:
        found[record.partition].append(record.headers[0][1] if record.headers else record.value)
    consumer.close()
    assert sorted(map(len, found.values())) == [2, 3]
    assert all(lane[-2:] == [b"1", b"2"] for lane in found.values())
    assert main(["produce", "other", "--punctuation", "1", *flags]) == Exit.REFUSED


def test_an_engine_whose_outlets_have_other_tables_is_refused_before_it_is_ready(
    warehouse_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(warehouse_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA leaderboard")
        connection.execute("CREATE TABLE leaderboard.votes (phone text)")
    given = {"broker.bootstrap": "127.0.0.1:1", "warehouse.url": warehouse_url}
    flags = [f"--set={name}={value}" for name, value in given.items()]
    assert main(["engine", "--home", str(tmp_path), "--flow", str(EXAMPLE), *flags]) == Exit.CONFIG
    assert (
        "the tables of the warehouse default are not those of dataflow leaderboard"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("key", ["broker.bootstrap", "warehouse.url"])
def test_an_engine_without_a_part_says_which(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"broker.bootstrap": "127.0.0.1:1", "warehouse.url": "postgresql://127.0.0.1:1/x"}
    flags = [f"--set={name}={value}" for name, value in given.items() if name != key]
    assert main(["engine", "--home", str(tmp_path), *flags]) == 2
    assert f"the engine needs {key}" in capsys.readouterr().err
