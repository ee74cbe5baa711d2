"""The generator of TPC-DI: the same bytes for the same seed, in proportion, whole or not at all."""

import contextlib
import errno
import fcntl
import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tpcdi_files import Directory

from headrace import cli
from headrace.errors import ConfigError, Exit, HeadraceError, Missing, Refused
from tpcdi.generate import State, directory, generate, increment
from tpcdi.generate.files import Batch

TINY = 0.01

AT_SCALE_3 = {
    "Trade": 390_978,
    "TradeHistory": 982_180,
    "CashTransaction": 361_856,
    "HoldingHistory": 362_342,
    "WatchHistory": 900_042,
    "DailyMarket": 1_282_768,
    "CMP": 1_500,
    "SEC": 2_400,
    "FIN": 98_576,
    "HR": 15_000,
    "Prospect": 14_982,
    "NEW": 4_728,
    "ADDACCT": 4_280,
    "UPDACCT": 2_568,
    "CLOSEACCT": 1_284,
    "UPDCUST": 1_284,
    "INACT": 428,
    "brokers": 4_293,
    "placed": 720_710,
}
EVENTS_OF_A_TRADE = 570 / 214


@pytest.fixture(scope="module")
def tiny(made: Callable[[float, int], Path]) -> Path:
    return made(TINY, 3)


def digest(path: Path) -> dict[str, str]:
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def test_the_same_seed_gives_the_same_bytes_however_many_threads_there_are(
    tmp_path: Path, tiny: Path
) -> None:
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        generate(tmp_path / "a", TINY, 3)
    finally:
        pa.set_cpu_count(threads)
    assert digest(tmp_path / "a") == digest(tiny)


def test_another_seed_gives_another_file_of_everything_that_is_not_fixed(
    tiny: Path, made: Callable[[float, int], Path]
) -> None:
    here, there = digest(tiny), digest(made(TINY, 4))
    same = {Path(name).name for name in here if here[name] == there.get(name)}
    fixed = {"Date", "Time", "StatusType", "TradeType", "Industry", "TaxRate", "BatchDate"}
    assert {name for name in same if not name.endswith("_audit.csv")} == {
        f"{name}.txt" for name in fixed
    }


def test_the_proportions_are_those_of_the_real_generator(
    made: Callable[[float, int], Path],
) -> None:
    files = Directory(made(0.1, 5))
    found = Counter(record.kind for record in files.records)
    found.update(action.kind for action in files.actions)
    for name in AT_SCALE_3:
        for suffix in ("txt", "csv"):
            if (files.path / "Batch1" / f"{name}.{suffix}").exists():
                found[name] = len(files.rows(1, f"{name}.{suffix}"))
    found["brokers"] = sum(row[5] == "314" for row in files.rows(1, "HR.csv"))
    found["placed"] = sum(row[3] == "ACTV" for row in files.rows(1, "WatchHistory.txt"))
    for name, rows in AT_SCALE_3.items():
        expected = rows / 30
        assert abs(found[name] - expected) <= max(0.05 * expected, 1), (name, found[name], expected)
    quotes, watches = (files.rows(2, f"{name}.txt") for name in ("DailyMarket", "WatchHistory"))
    assert len(quotes) == round(1_788 / 30)
    assert abs(len(watches) - 2_098 / 30) < 0.1 * 2_098 / 30


def test_a_large_increment_has_the_events_that_the_history_leads_to(tmp_path: Path) -> None:
    """At scale 3 there are 570 events of trades a day, of 214 new ones; here of some days."""
    generate(tmp_path / "a", 0.2, 5)
    state = State.load(tmp_path / "a" / directory.STATE)
    days = [increment(state).tables["Trade.txt"] for _ in range(20)]
    new = sum(day["CDC_FLAG"].to_pylist().count("I") for day in days)
    assert abs(sum(day.num_rows for day in days) / new - EVENTS_OF_A_TRADE) < 0.2


def test_the_directory_is_laid_out_as_the_real_generator_does(small: Directory) -> None:
    files = {str(each.relative_to(small.path)) for each in small.path.rglob("*") if each.is_file()}
    batches = {f"Batch{batch}_audit.csv" for batch in (1, 2, 3)}
    assert files >= batches | {"Generator_audit.csv", "digen_report.txt"}
    historical = {name.removeprefix("Batch1/") for name in files if name.startswith("Batch1/")}
    names = ("Trade", "TradeHistory", "CashTransaction", "HoldingHistory", "WatchHistory")
    assert historical >= {f"{name}.txt" for name in names}
    assert historical >= {"DailyMarket.txt", "HR.csv", "Prospect.csv", "CustomerMgmt.xml"}
    for batch in (2, 3):
        inside = {each.name for each in (small.path / f"Batch{batch}").iterdir()}
        assert {name for name in inside if not name.endswith("_audit.csv")} == {
            *("Account.txt", "BatchDate.txt", "CashTransaction.txt", "Customer.txt"),
            *("DailyMarket.txt", "HoldingHistory.txt", "Prospect.csv", "Trade.txt"),
            "WatchHistory.txt",
        }


def test_the_report_tells_the_rows_of_each_batch(small: Directory) -> None:
    report = (small.path / "digen_report.txt").read_text()
    for batch in (1, 2, 3):
        rows = 0
        for path in (small.path / f"Batch{batch}").iterdir():
            if path.name.endswith(("_audit.csv", "BatchDate.txt")):
                continue
            is_xml = path.suffix == ".xml"
            rows += len(small.actions) if is_xml else len(path.read_text().splitlines())
        assert f"TotalRecords for Batch{batch}: {rows}\n" in report
    assert "not comparable" in report


def test_lines_can_end_as_the_real_generators_do(tmp_path: Path, tiny: Path) -> None:
    generate(tmp_path / "a", TINY, 3, eol="\r\n")
    for file in tiny.rglob("*.*"):
        other = tmp_path / "a" / file.relative_to(tiny)
        if file.parent.name != directory.STATE:
            assert file.read_bytes().replace(b"\n", b"\r\n") == other.read_bytes()


# Increments, for as long as one likes


def test_increments_go_on_from_where_the_generator_ended(tiny: Path) -> None:
    state, again = (State.load(tiny / directory.STATE) for _ in range(2))
    files = Directory(tiny)
    lots: dict[int, int] = {}
    trades: set[int] = set()
    for batch in (1, 2, 3):
        trades |= {int(row[0]) for row in files.changes(batch, "Trade.txt")}
        lots |= {int(row[0]): int(row[3]) for row in files.changes(batch, "HoldingHistory.txt")}
    for number in range(30):
        made, same = increment(state), increment(again)
        assert made.batch == 4 + number
        assert made.today == date(2017, 7, 10) + timedelta(number)
        assert made.tables == same.tables
        assert made.answers == same.answers
        for row in made.tables["HoldingHistory.txt"].to_pylist():
            assert row["HH_BEFORE_QTY"] == lots.get(row["HH_H_T_ID"], 0)
            lots[row["HH_H_T_ID"]] = row["HH_AFTER_QTY"]
        for row in made.tables["Trade.txt"].to_pylist():
            assert (row["CDC_FLAG"] == "I") == (row["T_ID"] not in trades)
            assert row["T_DTS"].date() == made.today
            trades.add(row["T_ID"])
        quoted = set(made.tables["DailyMarket.txt"]["DM_DATE"].to_pylist())
        assert quoted == {made.today - timedelta(1)}


# Whole, or not at all


def test_a_directory_that_is_not_empty_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mine").write_text("")
    with pytest.raises(Refused, match="a is not empty"):
        generate(tmp_path / "a", TINY, 3)
    assert [each.name for each in tmp_path.rglob("*")] == ["a", "mine"]


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    generate(tmp_path / "a", TINY, 3)
    assert (tmp_path / "a" / "digen_report.txt").exists()


@pytest.mark.parametrize("scale", [0.0, 0.009, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_none_is_refused(tmp_path: Path, scale: float) -> None:
    with pytest.raises(ConfigError, match="there is no scale"):
        generate(tmp_path / "a", scale, 3)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_run_left_is_replaced(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from tpcdi.generate import generate\n"
        "generate(Path(sys.argv[1]), 0.01, 3, tell=lambda rows: rows > 5000 and os._exit(9))"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a")], cwd=Path(cli.__file__).parents[2]
    )
    assert killed.returncode == 9
    assert [each.name for each in tmp_path.iterdir()] == [".a.unfinished"]
    (tmp_path / ".a.unfinished" / "stale").mkdir()
    generate(tmp_path / "a", TINY, 3)
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert not (tmp_path / "a" / "stale").exists()


def test_two_runs_at_once_do_not_write_one_directory(tmp_path: Path) -> None:
    (tmp_path / ".a.unfinished").mkdir()
    handle = os.open(tmp_path / ".a.unfinished", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(Refused, match="being generated"):
            generate(tmp_path / "a", TINY, 3)
    finally:
        os.close(handle)
    assert (tmp_path / ".a.unfinished").exists()


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(Missing, match=r"it takes about 1,100,000,000 MB") as caught:
        generate(tmp_path / "a", 1e7, 3)
    assert "smaller scale" in caught.value.hint
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, Missing), (errno.EDQUOT, Missing), (errno.EACCES, Refused)]
)
def test_a_run_that_cannot_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[HeadraceError]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Batch, "count", fail)
    with pytest.raises(kind, match=os.strerror(number)):
        generate(tmp_path / "a", TINY, 3)
    assert not list(tmp_path.iterdir())


def test_a_place_where_no_directory_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(Refused, match="cannot be written"):
            generate(path, TINY, 3)


# The command


def test_the_command_writes_a_directory_and_sums_it_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "a")
    assert cli.main(["tpcdi", "generate", "--scale", "0.01", "--out", out]) == Exit.OK
    said = capsys.readouterr().out
    assert "rows/s" in said
    assert "not comparable to published results" in said
    assert cli.main(["tpcdi", "generate", "--scale", "0.01", "--out", out]) == Exit.REFUSED
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scale", "0.001"], "there is no scale 0.001"),
        (["--scale", "nan"], "there is no scale nan"),
        (["--scale", "much"], "invalid float value: 'much'"),
        (["--seed", "-1"], "is no whole number"),
        ([], "--out DIR"),
    ],
)
def test_the_command_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    out = ["--out", str(tmp_path / "a")] if arguments else []
    with contextlib.suppress(SystemExit):  # which argparse raises
        assert cli.main(["tpcdi", "generate", *arguments, *out]) == Exit.CONFIG
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_command_shows_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.tpcdi, "SHOW_EVERY_S", 0.0)
    cli.main(["tpcdi", "generate", "--scale", "0.01", "--out", str(tmp_path / "a")])
    assert "rows of about 126,900" in capsys.readouterr().err
