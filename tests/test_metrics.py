"""Metrics: what an engine writes about itself, and that a dead one is not told as living."""

import json
import os
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import till
from flows import NOON, HeldClock
from serving import serving
from shop import island_over
from till import Till

from api.metrics import MEDIA_TYPE, Figures
from etl_procs import measured
from etl_procs.core import core_path
from etl_procs.measured import Measured, Scribe
from etl_procs.metrics import BOUNDS, LookupFigures, Metrics
from etl_procs.reader import REST, Parking
from etl_procs.store import connected
from headrace.cli import figures, main
from headrace.clock import SystemClock
from headrace.local import lock
from headrace.local.home import Home
from migrations.pushing import Board, Pushing, State

PUSHES = Pushing(State.PUSHES, "")
SAMPLE = re.compile(r'(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z]+="[^"]*",?)+)\})? (?P<value>\S+)')


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Till]:
    """A till with two batches settled, one given up, and one whose other half has not come."""
    made = Till(tmp_path)
    Home(tmp_path).run.mkdir()
    made.settle([("tea", 250)], [])
    made.settle([("bun", 100), ("pen", None)], [])
    made.jam(True)
    made.settle([("jam", 300)], [("tea", 250)])
    made.jam(False)
    made.feed(till.sold, [("tea", 250), ("tea", 250)])
    yield made
    made.end_of_day()


@pytest.fixture
def engine(made: Till) -> Iterator[Scribe]:
    """What an engine does beside its batches: it holds its lock, signed, and writes."""
    home = Home(made.home)
    held = lock.take(home.writer_lock)
    assert held is not None
    lock.sign_for(held, os.getpid())
    yield Scribe(home.metrics(), SystemClock(), os.getpid())
    os.close(held)


def write(made: Till, scribe: Scribe) -> None:
    made.core.count_parked()
    scribe.write(made.core.metrics, made.core.queues())


def samples(text: str) -> dict[tuple[str, str], float]:
    """Read the text format, strictly: every line is a comment or a sample that was announced."""
    found: dict[tuple[str, str], float] = {}
    announced = set()
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            announced.add(line.split()[2])
        elif not line.startswith("# HELP "):
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            family = re.sub(r"_(bucket|sum|count)$", "", sample["name"])
            assert {family, sample["name"]} & announced, line
            labels = (sample["labels"] or "").removeprefix('partition="0"').lstrip(",")
            key = sample["name"].removeprefix("headrace_core_"), labels
            assert key not in found, line
            found[key] = float(sample["value"])
    return found


def told(made: Till) -> dict[tuple[str, str], float]:
    return samples(told_of(made).text())


def told_of(made: Till) -> Figures:
    pushers = partial(figures.pushing, made.home)
    return Figures([made.path], lambda: figures.living(made.home), pushers)


def board_of(made: Till) -> Board:
    return Board(Home(made.home).pushers, os.getpid())


def status(made: Till, capsys: pytest.CaptureFixture[str]) -> Any:
    main(["status", "--json", "--home", str(made.home)])
    return json.loads(capsys.readouterr().out)["cores"][0]


def test_rates_are_over_the_last_seconds_and_none_is_told_from_one_look(tmp_path: Path) -> None:
    clock, metrics = HeldClock(), Metrics()
    scribe = Scribe(tmp_path / "metrics.json", clock, 1)

    def rates() -> Any:
        scribe.write(metrics, {})
        found = measured.read(tmp_path / "metrics.json")
        assert found is not None
        return found.figures["rates"]

    metrics.commits = 1_000
    metrics.batches["till"] = 5_000
    assert rates() is None
    clock.advance(2)
    metrics.commits += 10
    metrics.batches["till"] += 40
    metrics.tuples["till.sold"] += 400
    metrics.units["till.settle"].add([0.1] * 40)
    metrics.batches["shop"] += 4
    assert rates() == {
        "over_s": 2.0,
        "commits": 5.0,
        "batches": {"till": 20.0, "shop": 2.0},
        "tuples": {"till.sold": 200.0},
        "units": {"till.settle": 20.0},
    }
    for _ in range(20):
        clock.advance(1)
        last = rates()
    assert (last["over_s"], last["commits"]) == (10.0, 0.0)
    assert not any({**last["batches"], **last["tuples"], **last["units"]}.values())


def test_figures_are_living_only_if_recent_and_of_the_process_that_runs() -> None:
    found = Measured(NOON, 7, {})
    assert found.is_of(7, NOON + timedelta(seconds=2))
    assert not found.is_of(7, NOON + timedelta(seconds=measured.STALE_S))
    assert not found.is_of(8, NOON)
    assert not found.is_of(None, NOON)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"at": "x", "pid": 1}', "\xff"])
def test_a_file_that_says_nothing_is_as_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    assert measured.read(path) is None
    path.write_text(text, encoding="latin-1")
    assert measured.read(path) is None


def test_figures_that_cannot_be_written_stop_nobody_and_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scribe = Scribe(tmp_path / "absent" / "metrics.json", HeldClock(), 1)
    for _ in range(3):
        scribe.write(Metrics(), {})
    assert caplog.text.count("cannot be written") == 1


def test_a_long_group_keeps_no_engine_from_saying_that_it_lives(made: Till, engine: Scribe) -> None:
    write(made, engine)
    group = threading.Event()
    done = threading.Event()

    def run() -> None:
        with made.core._lock:
            group.set()
            done.wait(20)

    thread = threading.Thread(target=run)
    thread.start()
    group.wait(20)
    try:
        assert made.core.queues() is None
        write(made, engine)
    finally:
        done.set()
        thread.join()
    assert told(made)["waiting_tuples", 'dataflow="till",stream="sold"'] == 2


def test_prometheus_is_told_all_that_is_measured(made: Till, engine: Scribe) -> None:
    write(made, engine)
    found = told(made)
    assert found["up", ""] == 1
    assert found["last_batch", 'dataflow="till"'] == 3
    assert found["batches_total", 'dataflow="till"'] == 3
    assert found["aborts_total", 'dataflow="till",procedure="settle"'] == 3
    assert found["dead_batches_total", 'dataflow="till",procedure="settle"'] == 1
    assert found["tuples_total", 'dataflow="till",stream="sold"'] == 1 + 2 + 1
    assert found["dead_tuples_total", 'dataflow="till"'] == 1 + 2
    assert found["dead_letters", 'dataflow="till"'] == 1 + 2
    assert found["dead_letter_tuples", 'dataflow="till"'] == 1 + 2
    assert found["staged_rows", 'dataflow="till"'] == 2
    assert found["waiting_tuples", 'dataflow="till",stream="sold"'] == 2
    assert found["waiting_tuples", 'dataflow="till",stream="returned"'] == 0
    assert found["repeats_total", 'dataflow="till",stream="sold"'] == 0
    assert found["commits_total", ""] == found["group_seconds_count", ""] == 3
    assert found["parked_rows", 'dataflow="till",table="owed"'] == 1
    assert found["watermark", 'dataflow="till"'] == made.core.metrics.epochs["till"]


def test_lookups_are_told_by_dataflow_and_name(made: Till, engine: Scribe) -> None:
    made.core.metrics.lookups["till.price"] = LookupFigures(
        9, 8, 7, 6, 5, 4, "replica", "it costs less", 3.5, 2
    )
    write(made, engine)
    of = 'dataflow="till",lookup="price"'
    names = ("hits_total", "misses_total", "builds_total", "entries", "bytes", "behind")
    found = told(made)
    assert [found[f"lookup_{name}", of] for name in names] == [9, 8, 7, 6, 5, 4]
    assert (found["lookup_age_seconds", of], found["lookup_waits_total", of]) == (3.5, 2)
    assert found["lookup_strategy", f'{of},strategy="replica"'] == 1


def test_histograms_are_cumulative_and_end_with_everything() -> None:
    metrics = Metrics()
    metrics.units["till.a+b"].add([0.5e-6, 1.5e-6, 3e-6, 3.5e-6, 200])
    document = {**metrics.as_dict(), "queues": {}, "rates": None}
    found = samples(Figures([Path("none")], lambda: [Measured(NOON, 1, document)]).text())
    labels = 'dataflow="till",procedure="a+b"'
    buckets = [
        found["procedure_seconds_bucket", f'{labels},le="{bound}"']
        for bound in (*BOUNDS[:-1], "+Inf")
    ]
    assert buckets[:4] == [1, 2, 4, 4]
    assert buckets == sorted(buckets)
    assert buckets[-2:] == [4, 5], "three minutes are in no bucket with an end"
    assert found["procedure_seconds_count", labels] == 5
    assert found["procedure_seconds_sum", labels] == pytest.approx(200.0000085)
    assert ("procedure_seconds_bucket", f'{labels},le="{BOUNDS[-1]}"') not in found


def test_what_a_dead_engine_has_left_is_not_told_as_living(
    made: Till, engine: Scribe, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = HeldClock()  # of a year ago, by the clock of those who look
    Scribe(Home(made.home).metrics(), clock, os.getpid()).write(
        made.core.metrics, made.core.queues()
    )
    found = told(made)
    assert found["up", ""] == 0
    assert found["last_batch", 'dataflow="till"'] == 3, "that is the core's, and true"
    assert not [name for name, _ in found if name.endswith(("_total", "_seconds", "_bucket"))]
    seen = status(made, capsys)
    assert seen["living"] is False
    assert seen["figures"] is None
    assert seen["dataflows"]["till"]["batch"] == 3
    assert seen["dataflows"]["till"]["waiting_tuples"] is None
    main(["status", "--home", str(made.home)])
    shown = capsys.readouterr().out
    assert f"no engine measures now; the last one that did (pid {os.getpid()})" in shown
    assert "stopped at 2026-01-01T12:00:00" in shown


def test_figures_of_another_process_than_the_one_that_holds_the_lock_are_not_living(
    made: Till, engine: Scribe
) -> None:
    write(made, engine)
    assert told(made)["up", ""] == 1
    path = Home(made.home).metrics()
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "pid": document["pid"] + 1}))
    assert told(made)["up", ""] == 0


def test_the_core_of_a_former_dataflow_makes_no_engine_dead(made: Till, engine: Scribe) -> None:
    core_path(made.home, 1).touch()  # as of one with two partitions, which is declared no more
    write(made, engine)
    assert told(made)["up", ""] == 1


def test_the_status_shows_each_dataflow(
    made: Till, engine: Scribe, capsys: pytest.CaptureFixture[str]
) -> None:
    made.core.metrics.lookups["till.price"] = LookupFigures(hits=6, misses=2)
    made.core.metrics.lookups["shop.price"] = LookupFigures(misses=100)
    write(made, engine)
    write(made, engine)
    main(["status", "--home", str(made.home)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    row = next(line for line in lines if line[:1] == ["till"])
    assert row == [
        "till",
        "3",
        "0.0",
        "3",
        "1",
        "0",
        "2",
        "0.0",
        "s",
        *row[9:10],
        "75.0%",
        "1",
        "3",
    ]
    assert any("commits/s" in line for line in lines)
    seen = status(made, capsys)
    assert seen["living"] is True
    assert seen["dataflows"]["till"]["aborts"] == 3
    assert seen["figures"]["units"]["till.settle"]["count"] == 3
    assert seen["figures"]["group_sizes"]


def test_parked_rows_are_counted_as_seldom_as_it_takes_long(
    made: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, owing = HeldClock(), "INSERT INTO owed VALUES ('tea')"
    parking = Parking(made.path, clock)
    took = iter([0.0, 2.0])

    def slowly(path: Path) -> Any:
        clock.advance(next(took))
        return connected(path)

    monkeypatch.setattr("etl_procs.reader.connected", slowly)

    def counts() -> list[int]:
        with connected(made.path) as connection:
            connection.execute(owing)
        return list(parking.count([till.flow]).values())

    assert counts() == [2]
    assert counts() == [3], "the first took no time"
    assert counts() == [3], "the second took long"
    clock.advance(2.0 * REST)
    monkeypatch.undo()
    assert counts() == [5]


def test_a_folder_without_a_core_has_no_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["status", "--json", "--home", str(tmp_path)])
    assert json.loads(capsys.readouterr().out)["cores"] == []
    assert samples(Figures([tmp_path / "none"], lambda: [None]).text()) == {("up", ""): 0}


def test_the_api_serves_them_with_the_key(made: Till, engine: Scribe) -> None:
    write(made, engine)
    island = island_over("postgresql://nobody@127.0.0.1:1/nothing", made.reader)
    with serving(island, living=lambda: figures.living(made.home)) as client:
        reply = client.send("GET", "/metrics", type_=None)
        assert (reply.status, reply.headers["content-type"]) == (200, MEDIA_TYPE)
        assert samples(reply.body.decode())["up", ""] == 1
        assert client.send("GET", "/metrics", key=None).status == 401


def test_the_operations_page_has_every_metric_as_it_is(made: Till, engine: Scribe) -> None:
    made.core.metrics.lookups["till.price"] = LookupFigures()
    write(made, engine)
    made.forget(0)  # somewhere is fed
    board_of(made).write({"default": PUSHES})
    text = told_of(made).text()
    found = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    page = (Path(__file__).parent.parent / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `(headrace_core_\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert dict(rows) == found


def test_a_pusher_that_has_ended_is_told_while_its_engine_lives(made: Till, engine: Scribe) -> None:
    here, away = 'warehouse="default"', 'warehouse="reports"'
    board = board_of(made)
    board.write({"default": PUSHES, "reports": Pushing(State.WAITS, "", "away", "Wait.")})
    assert (told(made)["pusher_up", here], told(made)["pusher_up", away]) == (1, 1)
    board.write({"default": PUSHES, "reports": Pushing(State.STOPPED, "", "drift", "Mend it.")})
    assert (told(made)["pusher_up", here], told(made)["pusher_up", away]) == (1, 0)
    Board(Home(made.home).pushers, os.getpid() + 1).write({"default": PUSHES})
    assert ("pusher_up", here) not in told(made)
