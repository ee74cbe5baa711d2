"""The live stream: the schedule of its days, how it goes on after a cut, and what it measures."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import pytest
from alone import a_broker, data_folder
from flows import HeldClock
from hypothesis import given
from hypothesis import strategies as st
from live import Board, Parts

import tpcdi
from etl_procs import letters
from etl_procs.core import core_path
from etl_procs.model import Stream
from headrace import cli, config
from headrace.cli import tpcdi_stream
from headrace.cli.tpcdi_parts import Stack
from headrace.clock import SystemClock
from headrace.errors import Exit, Refused
from tpcdi import DERIVED
from tpcdi.dataflow.phases import BEGINS, ENDS
from tpcdi.dataflow.sources import SOURCES, marks
from tpcdi.days import FACTS, STREAMS, Days, Rows
from tpcdi.freshness import Figures, Freshness, Sent
from tpcdi.generate import State, increment
from tpcdi.stream import Live, due

LOADED = frozenset({1, 2, 3})
RATE = 60
DIMENSIONS = ("Prospect.csv", "Customer.txt", "Account.txt")


@pytest.fixture(scope="module")
def tiny(made: Callable[[float, int], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of the smallest scale, without the 86,400 rows of the clock."""
    path = shutil.copytree(made(0.01, 3), tmp_path_factory.mktemp("stream") / "tiny")
    (path / "Batch1/Time.txt").unlink()
    return path


@dataclass
class FakeCore:
    """Takes rows, those that it knows only once; its user presses Ctrl-C at one of the calls."""

    clock: HeldClock
    rows: dict[tuple[str, str, int], object] = field(default_factory=dict)
    calls: list[tuple[str, str, int, float]] = field(default_factory=list)
    """What was called with which source, how many rows, and when."""
    cut_before: int = -1
    cut_after: int = -1

    def post(self, stream: Stream, source: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._take("post", stream, source, list(rows), 1)

    def write(self, rows: Rows, first: int) -> int:
        return self._take("write", rows.stream, rows.source, rows.lines, first)

    def taken(self, stream: Stream) -> None:
        self._take("taken", stream, stream.name, [], 0)

    def arrived(self) -> None:
        self._take("arrived", marks, "", [], 0)

    def committed(self) -> tuple[int, Mapping[str, int]]:
        return 1, {STREAMS[file].name: 10**9 for file in FACTS}

    def readable(self) -> int:
        return 1

    @contextmanager
    def passage(self) -> Iterator["FakeCore"]:
        yield self

    @property
    def marks(self) -> list[Any]:
        return [row for (stream, _, _), row in self.rows.items() if stream == "marks"]

    def ended(self) -> frozenset[int]:
        return LOADED | {mark["batch"] for mark in self.marks if mark["source"] == ENDS}

    def _take(self, what: str, stream: Stream, source: str, rows: Any, first: int) -> int:
        if len(self.calls) == self.cut_before:
            raise KeyboardInterrupt
        for number, row in enumerate(rows, first):
            known = self.rows.setdefault((stream.name, source, number), row)
            assert known == row, "what comes again is what came"
        self.calls.append((what, source, len(rows), self.clock.seconds))
        if len(self.calls) == self.cut_after + 1:
            raise KeyboardInterrupt
        return len(self.calls)


def run(core: FakeCore, directory: Path, kept: Path, seconds: float, rate: int = RATE) -> Live:
    days = Days(directory, kept, core.ended())
    clock = core.clock
    freshness = Freshness(core, clock)
    live = Live(days, core, freshness, clock, clock.advance, lambda _: None)
    live.run(rate, seconds)
    return live


@pytest.fixture
def core() -> FakeCore:
    return FakeCore(HeldClock())


# The days


def test_an_increment_has_about_as_many_facts_as_it_is_told_to(tiny: Path) -> None:
    state = State.load(tiny / "state")
    for facts in (2_000, 2_000, 10_000, 3_000):
        tables = increment(state, facts).tables
        assert sum(tables[file].num_rows for file in FACTS) == pytest.approx(facts, rel=0.06)


def test_a_day_follows_the_last_batch_of_files_and_the_next_follows_it(
    core: FakeCore, tiny: Path, tmp_path: Path
) -> None:
    live = run(core, tiny, tmp_path, seconds=20)
    begins = {mark["batch"]: mark["day"] for mark in core.marks if mark["source"] == BEGINS}
    assert begins == {4: "2017-07-10", 5: "2017-07-11"}
    assert live.progress.days == 2


def test_a_day_is_its_mark_its_dimensions_and_their_ends_then_its_facts_and_their_ends(
    core: FakeCore, tiny: Path, tmp_path: Path
) -> None:
    run(core, tiny, tmp_path, seconds=10)
    calls = [(what, source) for what, source, _, _ in core.calls]
    facts = {("write", f"phase 4: {file}") for file in FACTS}
    dimensions = {("write", f"phase 4: {file}") for file in DIMENSIONS}
    first, last = (
        [at for at, call in enumerate(calls) if call in facts][which] for which in (0, -1)
    )
    assert calls[0] == ("post", "phase 4 begins")
    assert set(calls[1:4]) == dimensions
    taken = {("taken", STREAMS[file].name) for file in DIMENSIONS}
    assert set(calls[4:7]) == taken
    assert calls[7:9] == [("post", "phase 4 dimensions"), ("taken", "marks")]
    assert first == 9
    assert set(calls[first : last + 1]) == facts
    assert {*calls[last + 1 : -3]} == {("taken", STREAMS[file].name) for file in FACTS}
    assert calls[-3:] == [("post", "phase 4 facts"), ("taken", "marks"), ("arrived", "")]


def test_the_ends_of_all_sources_are_said_once_in_each_day(
    core: FakeCore, tiny: Path, tmp_path: Path
) -> None:
    run(core, tiny, tmp_path, seconds=20)
    said = Counter((mark["batch"], mark["source"]) for mark in core.marks)
    names = [BEGINS, *(source.name for source in SOURCES), ENDS]
    assert said == Counter((batch, name) for batch in (4, 5) for name in names)


def test_a_year_that_the_calendar_lacks_comes_with_its_first_day(
    core: FakeCore, tiny: Path, tmp_path: Path
) -> None:
    late = tmp_path / "late"
    state = State.load(tiny / "state")
    state.batch = 1_274  # 2020-12-31
    late.mkdir()
    state.save(late / "state")
    days = Days(late, tmp_path / "kept", {1_274})
    first, second = ([rows.source for rows in days.next(200).dimensions] for _ in range(2))
    assert "phase 1275: Date.txt" in first
    assert not any("Date" in source for source in second)


# The schedule


@given(
    rows=st.integers(0, 10**6), lasts_s=st.floats(0.01, 100), moments=st.lists(st.floats(0, 200))
)
def test_so_much_is_due_as_time_has_passed_and_in_the_end_everything(
    rows: int, lasts_s: float, moments: list[float]
) -> None:
    found = [due(rows, moment, lasts_s) for moment in sorted(moments)]
    assert found == sorted(found)
    for moment, number in zip(sorted(moments), found, strict=True):
        assert abs(number - min(rows * moment / lasts_s, rows)) <= 1
    assert due(rows, lasts_s, lasts_s) == rows


def test_facts_are_sent_evenly_and_those_of_each_source_all_day(
    core: FakeCore, tiny: Path, tmp_path: Path
) -> None:
    live = run(core, tiny, tmp_path, seconds=10, rate=400)
    assert live.progress.rows_per_s == pytest.approx(400, rel=0.02)
    seconds: Counter[int] = Counter()
    by_source: dict[str, list[float]] = {}
    for what, source, rows, at in core.calls:
        if what == "write" and rows and source.partition(": ")[2] in FACTS:
            seconds[int(at)] += rows
            by_source.setdefault(source, []).append(at)
    assert all(seconds[second] == pytest.approx(400, rel=0.12) for second in range(9))
    assert all(min(times) < 2 and max(times) > 9 for times in by_source.values())


def test_the_seconds_in_which_no_facts_are_sent_are_told_apart(tiny: Path, tmp_path: Path) -> None:
    class Slow(FakeCore):
        def taken(self, stream: Stream) -> None:
            super().taken(stream)
            self.clock.advance(0.5)

    core = Slow(HeldClock())
    live = run(core, tiny, tmp_path, seconds=10, rate=400)
    waited = 0.5 * sum(what == "taken" for what, *_ in core.calls)
    assert live.progress.other_seconds == pytest.approx(waited)
    assert live.progress.seconds == pytest.approx(10, rel=0.02)


def test_a_stream_of_some_seconds_ends_with_a_shorter_day_that_is_complete(
    core: FakeCore, tiny: Path, tmp_path: Path
) -> None:
    live = run(core, tiny, tmp_path, seconds=13, rate=400)
    assert core.ended() == LOADED | {4, 5}
    assert live.progress.rows == pytest.approx(13 * 400, rel=0.05)


# Going on after a cut


@pytest.fixture(scope="module")
def undisturbed(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> FakeCore:
    """What two days send."""
    core = FakeCore(HeldClock())
    run(core, tiny, tmp_path_factory.mktemp("kept"), seconds=20)
    return core


@pytest.mark.parametrize("when", ["cut_before", "cut_after"])
def test_a_day_that_was_cut_off_anywhere_is_completed_with_the_same_rows(
    undisturbed: FakeCore, tiny: Path, tmp_path: Path, when: str
) -> None:
    last = len(undisturbed.calls) - 1
    marks = {at for at, (what, *_) in enumerate(undisturbed.calls) if what == "post"}
    for place in sorted(marks | {round(last * n / 24) for n in range(25)}):
        core, kept = FakeCore(HeldClock()), tmp_path / str(place)
        setattr(core, when, place)
        with pytest.raises(KeyboardInterrupt):
            run(core, tiny, kept, seconds=20)
        core.cut_before = core.cut_after = -1
        while len(core.ended()) < len(undisturbed.ended()):
            run(core, tiny, kept, seconds=10)
        assert core.rows == undisturbed.rows, f"cut at call {place}"


def test_a_day_that_was_cut_off_has_its_rows_at_another_rate_too(
    core: FakeCore, tiny: Path, tmp_path: Path
) -> None:
    core.cut_before = 40
    with pytest.raises(KeyboardInterrupt):
        run(core, tiny, tmp_path, seconds=10)
    core.cut_before = -1
    run(core, tiny, tmp_path, seconds=1, rate=10 * RATE)
    whole = FakeCore(HeldClock())
    run(whole, tiny, tmp_path / "whole", seconds=10)
    assert core.rows == whole.rows


def test_no_freshness_is_measured_of_a_day_that_was_cut_off(
    core: FakeCore, tiny: Path, tmp_path: Path
) -> None:
    core.cut_before = 40
    with pytest.raises(KeyboardInterrupt):
        run(core, tiny, tmp_path, seconds=10)
    core.cut_before = -1
    live = run(core, tiny, tmp_path, seconds=20)
    again, whole = (
        sum(rows for what, source, rows, _ in core.calls[40:] if what == "write" and of in source)
        for of in ("phase 4", "phase 5")
    )
    assert again
    assert live.freshness.figures().rows == pytest.approx(whole, abs=70)


@pytest.mark.parametrize("left", ["new", "day-4"])
def test_a_kill_while_the_state_is_kept_leaves_nothing_that_is_wrong(
    core: FakeCore, tiny: Path, tmp_path: Path, left: str, undisturbed: FakeCore
) -> None:
    run(core, tiny, tmp_path, seconds=10)
    shutil.copytree(tmp_path / "day-4", tmp_path / "before")
    run(core, tiny, tmp_path, seconds=10)
    (tmp_path / "before").rename(tmp_path / left)
    assert core.rows == undisturbed.rows
    run(core, tiny, tmp_path, seconds=10)
    assert core.ended() == LOADED | {4, 5, 6}
    assert [path.name for path in tmp_path.glob("*")] == ["day-6"]


# What is refused


def test_a_stream_goes_on_only_after_all_batches_of_its_directory(
    tiny: Path, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match="batch 2 is the last that was loaded"):
        Days(tiny, tmp_path, {1, 2})
    with pytest.raises(Refused, match="batch 5 is the last"):
        Days(tiny, tmp_path, {1, 2, 3, 4, 5})
    with pytest.raises(Refused, match="nothing can go on from there"):
        Days(tmp_path, tmp_path, LOADED)


def test_a_stream_goes_on_only_with_the_directory_with_which_it_began(
    core: FakeCore, tiny: Path, made: Callable[[float, int], Path], tmp_path: Path
) -> None:
    run(core, tiny, tmp_path / "kept", seconds=10)
    with pytest.raises(Refused, match="another scale or seed"):
        Days(made(0.01, 4), tmp_path / "kept", core.ended())


def test_who_presses_ctrl_c_is_told_what_was_sent_and_how_it_goes_on(
    core: FakeCore,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tpcdi_stream, "Stack", lambda _: core)
    core.cut_before = 12
    flags = ["--set", f"home={tmp_path / 'home'}"]
    assert cli.main(["tpcdi", "stream", str(tiny), "--rate", "1000", *flags]) == Exit.INTERRUPTED
    shown = capsys.readouterr()
    assert "0 days complete, " in shown.out
    assert DERIVED in shown.out
    assert "it completes that day" in shown.err


# Freshness


@dataclass
class Way:
    """How far facts are, as a test says."""

    batch: int = 0
    reached: dict[str, int] = field(default_factory=dict)
    there: int = 0

    def committed(self) -> tuple[int, Mapping[str, int]]:
        return self.batch, dict(self.reached)

    def readable(self) -> int:
        return self.there


def test_a_fact_is_readable_when_the_warehouse_has_the_batch_that_took_it() -> None:
    way, clock = Way(), HeldClock()
    measured = Freshness(way, clock)
    measured.sent("watches", Sent(5, clock.monotonic(), 10))
    clock.advance(0.5)
    way.batch, way.reached = 7, {"watches": 5}  # all before record 5
    measured.look()
    way.there = 7
    measured.look()
    assert measured.figures().rows == 0
    way.batch, way.reached = 8, {"watches": 6}
    clock.advance(0.5)
    measured.look()
    assert measured.figures().rows == 0
    clock.advance(0.25)
    way.there = 8
    measured.look()
    assert measured.figures() == Figures(10, 1_250, 1_250, 1_250)


def test_what_a_later_batch_took_waits_for_that_one() -> None:
    way, clock = Way(batch=1, reached={"trades": 1, "cash": 0}), HeldClock()
    measured = Freshness(way, clock)
    measured.sent("trades", Sent(0, clock.monotonic(), 3))
    measured.sent("cash", Sent(0, clock.monotonic(), 4))
    measured.look()
    way.batch, way.reached = 2, {"trades": 1, "cash": 1}
    measured.look()
    clock.advance(1)
    way.there = 1
    measured.look()
    assert measured.recent() == Figures(3, 1_000, 1_000, 1_000)
    clock.advance(1)
    way.there = 2
    measured.look()
    assert measured.recent() == Figures(4, 2_000, 2_000, 2_000)
    assert measured.figures() == Figures(7, 2_000, 2_000, 2_000)


@given(st.dictionaries(st.integers(0, 5_000), st.integers(1, 50), min_size=1))
def test_shares_are_counted_by_rows(rows_by_ms: dict[int, int]) -> None:
    all_ = sorted(ms for ms, rows in rows_by_ms.items() for _ in range(rows))
    found = Figures.of(rows_by_ms)
    assert (found.rows, found.worst) == (len(all_), all_[-1])
    assert found.p50 == all_[(len(all_) + 1) // 2 - 1]
    assert found.p99 == all_[-(-len(all_) * 99 // 100) - 1]


def test_what_fails_while_it_is_looked_at_is_raised_to_who_sends() -> None:
    class Broken(Way):
        def committed(self) -> tuple[int, Mapping[str, int]]:
            raise OSError("gone")

    measured = Freshness(Broken(), SystemClock())
    measured.sent("watches", Sent(0, 0.0, 1))
    with pytest.raises(OSError, match="gone"), measured:
        measured._thread.join(10)
    with pytest.raises(OSError, match="gone"):
        measured.sent("watches", Sent(1, 0.0, 1))


# A real one

ORPHANS: dict[str, LiteralString] = {
    "trades": """dimtrade AS f WHERE NOT EXISTS (SELECT FROM dimaccount AS a
        WHERE a.sk_accountid = f.sk_accountid AND a.sk_customerid = f.sk_customerid)
        OR NOT EXISTS (SELECT FROM dimsecurity AS s WHERE s.sk_securityid = f.sk_securityid)""",
    "holdings": """factholdings AS f WHERE NOT EXISTS
        (SELECT FROM dimtrade AS t WHERE t.tradeid = f.currenttradeid)""",
    "cash": """factcashbalances AS f WHERE NOT EXISTS
        (SELECT FROM dimaccount AS a WHERE a.sk_accountid = f.sk_accountid)
        OR NOT EXISTS (SELECT FROM dimdate AS d WHERE d.sk_dateid = f.sk_dateid)""",
    "watches": """factwatches AS f WHERE NOT EXISTS
        (SELECT FROM dimcustomer AS c WHERE c.sk_customerid = f.sk_customerid)
        OR NOT EXISTS (SELECT FROM dimsecurity AS s WHERE s.sk_securityid = f.sk_securityid)""",
    "market": """factmarkethistory AS f WHERE NOT EXISTS
        (SELECT FROM dimsecurity AS s WHERE s.sk_securityid = f.sk_securityid)""",
}
PLACED: LiteralString = "SELECT count(*) FROM factwatches WHERE sk_dateid_dateplaced = %s"
QUOTED: LiteralString = "SELECT count(*) FROM factmarkethistory WHERE batchid = %s"
HELD: LiteralString = "SELECT count(*) FROM factholdings WHERE batchid = %s"


@pytest.fixture(scope="module")
def broker_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that has no topics of another tpcdi."""
    with a_broker(data_folder(tmp_path_factory.mktemp("broker") / "home")) as broker:
        yield broker.address


def load(parts: Stack, directory: Path) -> None:
    """Load the batches with one wait for each: the order of what is in one does not matter."""
    for batch in sorted(LOADED):
        folder = directory / f"Batch{batch}"
        day = (folder / "BatchDate.txt").read_text().strip()
        begins = {"batch": batch, "source": BEGINS, "day": day}
        parts.post(marks, f"load {batch} begins", [begins])
        streams = []
        for source in SOURCES:
            stream = source.first if batch == 1 else source.then
            files = [file for file in folder.glob(source.files) if "_audit" not in file.name]
            if stream is not None and files:
                parts.send(stream, sorted(files))
                streams.append(stream)
        for stream in streams:
            parts.taken(stream)
        for names in ([source.name for source in SOURCES], [ENDS]):
            ends = [{"batch": batch, "source": name, "day": None} for name in names]
            parts.post(marks, f"load {batch} ends {names[0]}", ends)
            parts.taken(marks)


@pytest.mark.slow
def test_a_stream_of_seconds_leaves_a_warehouse_in_which_all_that_was_sent_is_consistent(
    broker_url: str,
    warehouse_url: str,
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = Path(tpcdi.__file__).with_name("flow.py").read_text()
    board = Board(Parts(broker_url, warehouse_url), tmp_path, "tpcdi", text=text, stream="marks")
    settings = {
        "home": str(board.home),
        "flows": str(board.file),
        "broker.bootstrap": broker_url,
        "warehouse.url": warehouse_url,
    }
    loaded = config.load(settings, environment={}).config
    with board.engine() as engine:
        board.until_ready(engine)
        parts = Stack(loaded)
        load(parts, tiny)
        flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        said = ["tpcdi", "stream", str(tiny), "--rate", "150", "--seconds", "4", "--json"]
        assert cli.main([*said, *flags]) == 0
        told = json.loads(capsys.readouterr().out)
        assert parts.ended() == LOADED | {4}
    state = State.load(tiny / "state")
    tables = increment(state, 600).tables
    assert told["results"] == DERIVED
    assert told["days"] == 1
    assert told["rows"] == told["freshness"]["rows"]
    assert told["rows"] == sum(tables[file].num_rows for file in FACTS)
    assert 0 < told["freshness"]["p50_ms"] <= told["freshness"]["worst_ms"]
    with letters.reading([core_path(board.home)]) as dead:
        assert list(dead) == []
    with parts.warehouse() as warehouse:

        def count(query: LiteralString, *of: int) -> object:
            found = warehouse.execute(query, of).fetchone()
            assert found is not None
            return found[0]

        assert {
            name: count("SELECT count(*) FROM " + of) for name, of in ORPHANS.items()
        } == dict.fromkeys(ORPHANS, 0)
        actions = tables["WatchHistory.txt"]["W_ACTION"].to_pylist()
        assert count(PLACED, 20170710) == actions.count("ACTV")
        assert count(QUOTED, 4) == tables["DailyMarket.txt"].num_rows
        assert count(HELD, 4) == tables["HoldingHistory.txt"].num_rows
