"""The load of a directory, over a trial instead of a stack: what it sends, says, and refuses."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, cast

import audited
import phased
import pytest
from flows import HeldClock
from waiting import until

from etl_procs import Stream, Trial
from headrace.errors import NotRunning, Refused
from tpcdi import seen
from tpcdi.dataflow.sources import answers, marks
from tpcdi.flow import flow
from tpcdi.load import WATCH_S, Load, Loaded
from tpcdi.snapshot import Connection

SEEN = [seen.Seen("2017-07-10 00:00:00.000001", "DimDate", "Row count", 1)]


class Parts:
    """A trial, in the place of a stack: what was sent or posted before is known again."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.sent: list[str] = []
        self.posted: list[str] = []
        self.calls = 0
        self.waits: list[tuple[str, list[str]]] = []
        """What was waited for, and what had been posted by then."""
        self._read = cache(phased.rows_of)
        self._lock = Lock()
        self.fails_at = 0
        """The call that is interrupted; none by itself."""

    def _called(self) -> None:
        self.calls += 1
        if self.calls == self.fails_at:
            raise NotRunning("it is interrupted here", hint="Go on.")

    def send(self, stream: Stream, files: Sequence[Path]) -> int:
        rows = 0
        for file in files:
            self._called()
            name = "/".join(file.parts[-2:])
            of_file = self._read(stream, file)
            with self._lock:
                if name not in self.sent:
                    self.trial.batch(**{stream.name: of_file})
                    self.sent.append(name)
            rows += len(of_file)
        return rows

    def post(self, stream: Stream, source: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._called()
        with self._lock:
            if source not in self.posted:
                self.trial.batch(**{stream.name: [dict(row) for row in rows]})
                self.posted.append(source)

    def taken(self, stream: Stream) -> None:
        self._called()
        self.waits.append((stream.name, list(self.posted)))

    def arrived(self) -> None:
        self._called()
        self.waits.append(("arrived", list(self.posted)))

    @contextmanager
    def _warehouse(self) -> Iterator[None]:
        yield

    def warehouse(self) -> Connection:
        return cast("Connection", self._warehouse())

    def ended(self) -> frozenset[int]:
        rows = self.trial.query("SELECT batch FROM phases WHERE NOT is_open")
        return frozenset(row["batch"] for row in rows)


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody count in a warehouse that is not there."""
    for name in ("valid", "visible", "rows"):
        monkeypatch.setattr(seen, name, lambda _warehouse: SEEN)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return audited.files().write(tmp_path / "files")


@pytest.fixture
def parts() -> Iterator[Parts]:
    with Trial(flow) as trial:
        yield Parts(trial)


def load(parts: Parts, folder: Path) -> tuple[list[Loaded], list[str]]:
    """Load a directory; give what was loaded, and what was told."""
    told: list[str] = []
    return Load(folder, parts, HeldClock(), told.append).run(), told


def reports(trial: Trial) -> Counter[tuple[int, str]]:
    """Count what the loader wrote down of its own course, by phase and kind."""
    rows = trial.outlet("dimessages")
    return Counter(
        (row["batchid"], row["messagetype"])
        for row in rows
        if row["messagetype"] not in ("Alert", "Status")
    )


def test_all_phases_are_loaded_and_reported_once(
    parts: Parts, folder: Path, audited_rows: dict[str, bytes]
) -> None:
    done, told = load(parts, folder)
    assert phased.exported(parts.trial) == audited_rows
    assert [(one.batch, one.rows["Trade.txt"]) for one in done] == [(1, 4), (2, 3), (3, 2)]
    assert not [text for text in told if text.startswith("warning")]
    kinds = reports(parts.trial)
    assert all(kinds[batch, "PCR"] == kinds[batch, "Validation"] == 1 for batch in range(4))
    assert kinds[2, "Visibility_1"] == kinds[3, "Visibility_1"] == 1
    # A report is in the warehouse before its phase ends; the first one is not waited for.
    assert "phase 1: BatchDate" in parts.waits[0][1], "Spark is slow when it begins"
    for batch in (1, 2, 3):
        between = {
            name
            for name, posted in parts.waits
            if f"phase {batch}: PCR" in posted and f"phase {batch}: Phase" not in posted
        }
        assert between >= {"observed", "arrived"}
    assert load(parts, folder)[0] == []
    assert reports(parts.trial) == kinds


def test_what_is_missing_is_warned_of_and_all_else_is_loaded(parts: Parts, folder: Path) -> None:
    missing = ["Trade.txt", "CashTransaction.txt", "DailyMarket.txt"]
    for name in missing:
        (folder / "Batch1" / name).unlink()
    (folder / "Batch2" / "Prospect.csv").unlink()
    _, told = load(parts, folder)
    warned = [text.partition(":")[2].partition(":")[0] for text in told if "warning" in text]
    lacking = [f" Batch1 has no {name}" for name in missing]
    assert sorted(warned) == sorted([*lacking, " Batch2 has no Prospect.csv"])
    assert parts.ended() == {1, 2, 3}
    assert parts.trial.outlet("dimcustomer")
    assert parts.trial.outlet("factwatches")


def test_batches_and_answers_that_are_missing_are_warned_of_with_what_follows(
    parts: Parts, folder: Path
) -> None:
    for later in (2, 3):
        shutil.rmtree(folder / f"Batch{later}")
    for answer in folder.rglob("*_audit.csv"):
        answer.unlink()
    done, told = load(parts, folder)
    warned = [text for text in told if text.startswith("warning")]
    for lacking in ("Batch2", "Batch3", "Batch1/*_audit.csv"):
        (said,) = [text for text in warned if lacking in text]
        assert "the audit" in said
    assert len(warned) == 3
    assert [one.batch for one in done] == [1]
    assert parts.trial.outlet("audit") == []


def test_the_answers_of_the_root_and_of_each_phase_are_sent_and_no_files_that_are_nobodys(
    parts: Parts, folder: Path
) -> None:
    extra = ["Batch1/Notes.txt", "Batch1/FINWIRE2015Q1_audit.csv", "Batch1/FINWIRE2015Q1.bak"]
    extra += ["digen_report.txt", "Batch2/FINWIRE2015Q1", "Batch2/HR.csv", "Batch1/Trade.txt.orig"]
    for name in extra:
        (folder / name).write_text("nonsense\n")
    header = "DataSet, BatchID ,Date , Attribute , Value, DValue\r\n"
    (folder / "Batch1/FINWIRE2015Q1_audit.csv").write_text(header)
    for name, batch in (("Generator", 1), ("Batch1", 1), ("Batch2", 2), ("Batch3", 3)):
        (folder / f"{name}_audit.csv").write_text(f"{header}{name},{batch},,Root,7,\r\n")
    load(parts, folder)
    assert set(parts.sent) & set(extra) <= {"Batch1/FINWIRE2015Q1_audit.csv"}  # it is an answer
    assert parts.trial.dead_letters() == []
    roots = [row["dataset"] for row in parts.trial.outlet("audit") if row["attribute"] == "Root"]
    assert roots == ["Batch1", "Generator", "Batch2", "Batch3"]
    of_batches = {file.name for file in folder.glob("Batch?/*_audit.csv")}
    assert of_batches <= {name.rpartition("/")[2] for name in parts.sent}
    assert answers.name in flow.streams


def test_what_is_seen_after_all_phases_is_reported_once_also_where_the_loader_was_killed_before(
    parts: Parts, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: Connection) -> list[seen.Seen]:
        if "phase 3: Phase" in parts.posted:
            raise NotRunning("it is killed here", hint="Go on.")
        return SEEN

    with monkeypatch.context() as patched:
        patched.setattr(seen, "visible", killed)
        with pytest.raises(NotRunning):
            load(parts, folder)
    assert parts.ended() == {1, 2, 3}
    for _ in range(2):
        assert load(parts, folder)[0] == []
        assert reports(parts.trial)[3, "Visibility_1"] == 1


def test_what_is_seen_is_reported_every_minute_while_a_phase_is_loaded(
    parts: Parts, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, of_trial = HeldClock(), parts.taken
    minutes = iter(range(1, 4))

    def reported() -> int:
        return sum(name.startswith("phase 1: Visibility_2") for name in parts.posted)

    def taken(stream: Stream) -> None:
        of_trial(stream)
        if stream is marks:
            for minute in minutes:
                clock.advance(WATCH_S)
                until(lambda: reported() == minute, 20, lambda: f"{parts.posted}")  # noqa: B023 - at once

    monkeypatch.setattr(
        seen, "rows", lambda _: [SEEN[0]._replace(at=f"{clock.now():%Y-%m-%d %H:%M:%S}")]
    )
    monkeypatch.setattr(parts, "taken", taken)
    Load(folder, parts, clock, lambda _: None).run()
    kinds = reports(parts.trial)
    assert [kinds[batch, "Visibility_2"] for batch in (1, 2, 3)] == [3, 0, 0]


def test_a_load_that_is_interrupted_anywhere_goes_on_where_it_was(
    parts: Parts, folder: Path, audited_rows: dict[str, bytes]
) -> None:
    assert interrupted(parts, folder) > 4
    assert phased.exported(parts.trial) == audited_rows
    kinds = reports(parts.trial)
    assert all(kinds[batch, "PCR"] == kinds[batch, "Validation"] == 1 for batch in range(4))
    assert len(parts.sent) == len(set(parts.sent))


def interrupted(parts: Parts, folder: Path) -> int:
    """Load until it is done, each time with some more calls before it is interrupted; tell how
    often it was.
    """
    for times in range(1_000):
        parts.calls, parts.fails_at = 0, 1 + 23 * times
        try:
            load(parts, folder)
        except NotRunning:
            continue
        return times
    raise AssertionError("it comes to no end")


def no_day(folder: Path) -> None:
    (folder / "Batch1/BatchDate.txt").unlink()


def no_date(folder: Path) -> None:
    (folder / "Batch1/BatchDate.txt").write_text("2017-02-30\n")


def no_text(folder: Path) -> None:
    (folder / "Batch1/BatchDate.txt").write_bytes(b"\xff\xfe2017")


def a_folder(folder: Path) -> None:
    no_day(folder)
    (folder / "Batch1/BatchDate.txt").mkdir()


def no_first(folder: Path) -> None:
    shutil.rmtree(folder / "Batch1")


def no_second(folder: Path) -> None:
    shutil.rmtree(folder / "Batch2")


def nothing(folder: Path) -> None:
    shutil.rmtree(folder)


def a_file(folder: Path) -> None:
    nothing(folder)
    folder.write_text("2017-07-07")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_day, "BatchDate.txt cannot be read"),
        (no_date, "has no date: '2017-02-30'"),
        (no_text, "BatchDate.txt cannot be read"),
        (a_folder, "BatchDate.txt cannot be read"),
        (no_first, "has no Batch1"),
        (no_second, "has no Batch2"),
        (nothing, "has no Batch1"),
        (a_file, "has no Batch1"),
    ],
)
def test_what_cannot_be_loaded_is_refused_and_nothing_of_it_is_sent(
    parts: Parts, folder: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(folder)
    with pytest.raises(Refused, match=message):
        load(parts, folder)
    assert parts.sent == []


def test_a_later_phase_whose_day_is_none_is_refused_when_it_comes(
    parts: Parts, folder: Path
) -> None:
    (folder / "Batch2/BatchDate.txt").write_text("\n")
    with pytest.raises(Refused, match=r"Batch2/BatchDate\.txt has no date: ''"):
        load(parts, folder)
    assert parts.ended() == {1}
    (folder / "Batch2/BatchDate.txt").write_text("2017-07-08\r\n")
    assert [one.batch for one in load(parts, folder)[0]] == [2, 3]


def test_lines_that_end_with_lf_lead_to_the_same_as_those_with_crlf(
    parts: Parts, tmp_path: Path, audited_rows: dict[str, bytes]
) -> None:
    made = audited.files()
    assert made.newline == "\r\n"
    made.newline = "\n"
    load(parts, made.write(tmp_path))
    assert phased.exported(parts.trial) == audited_rows
