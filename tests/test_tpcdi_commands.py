"""`headrace tpcdi` at the command line: what it refuses before it does harm, and what it says."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import audited
import pytest

from headrace import cli, config
from headrace.cli import lags, progress, tpcdi_audit, tpcdi_stream
from headrace.cli import tpcdi as cli_tpcdi
from headrace.cli.tpcdi_origin import KEPT, Origin, alone, chosen
from headrace.cli.tpcdi_parts import Stack as RealStack
from headrace.errors import Exit, NotRunning
from ingest import collector
from tpcdi import DERIVED, audit, load
from tpcdi.dataflow.sources import marks
from tpcdi.flow import flow
from tpcdi.load import Loaded
from tpcdi.snapshot import Connection

Made = Callable[[float, int], Path]

SPOILED = "DELETE FROM tpcdi.dimbroker"
SPOILED_CHECK, FOUND = "DimBroker row count", "0 where = 1 is wanted"


class FakeStack:
    """A stack of which only is known which phases are over; a load of it does nothing more."""

    over: frozenset[int] = frozenset()

    def __init__(self, _: object) -> None: ...

    def ended(self) -> frozenset[int]:
        return self.over


@pytest.fixture(autouse=True)
def stack(monkeypatch: pytest.MonkeyPatch) -> type[FakeStack]:
    class Stack(FakeStack): ...

    def run(self: load.Load) -> list[Loaded]:
        left = [batch for batch in (1, 2, 3) if batch not in self.parts.ended()]
        for batch in left:
            self.begins(batch)
        return [Loaded(batch, {}, 1.0) for batch in left]

    monkeypatch.setattr(cli_tpcdi, "Stack", Stack)
    monkeypatch.setattr(tpcdi_stream, "Stack", Stack)
    monkeypatch.setattr(tpcdi_audit, "Stack", Stack)
    monkeypatch.setattr(load.Load, "run", run)
    return Stack


@pytest.fixture
def audits(
    audited_warehouse: Connection,
    tmp_path: Path,
    stack: type[FakeStack],
    monkeypatch: pytest.MonkeyPatch,
) -> Connection:
    """A warehouse that the audit is put to, and the directory it comes from; who changes it rolls
    that back.
    """
    files = audited.files().write(tmp_path / "files")
    (tmp_path / "home").mkdir()
    Origin.keep(tmp_path / "home", files, 3)

    @contextmanager
    def warehouse(_: FakeStack) -> Iterator[Connection]:
        yield audited_warehouse

    monkeypatch.setattr(stack, "warehouse", warehouse, raising=False)
    return audited_warehouse


def said(home: Path, *words: str | Path) -> int:
    home.mkdir(exist_ok=True)
    try:
        return cli.main(["tpcdi", *map(str, words), "--set", f"home={home}"])
    except SystemExit as ended:  # the parser's refusal
        return int(str(ended.code))


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["generate", "sf1"], "--out"),
        (["generate", "--out", "sf1", "--json"], "--json"),
        (["load", "sf1", "--scale", "1"], "--scale 1"),
        (["load"], "DIR"),
        (["audit", "--rate", "0"], "--rate"),
    ],
)
def test_what_an_action_would_pass_over_is_refused(
    words: list[str], hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(tmp_path / "home", *words) == Exit.CONFIG
    assert hint in capsys.readouterr().err


def test_who_ends_a_load_is_told_how_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: load.Load) -> list[Loaded]:
        raise KeyboardInterrupt

    monkeypatch.setattr(load.Load, "run", run)
    assert said(tmp_path / "home", "load", tmp_path) == Exit.INTERRUPTED
    assert "it goes on where it was" in capsys.readouterr().err


def test_who_loads_into_a_stack_that_stands_still_is_told_how_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stuck(*_: object) -> None:
        raise NotRunning("the core has taken nothing more", hint="--finished ends it")

    monkeypatch.setattr(lags, "until_taken", stuck)
    monkeypatch.setattr(lags, "until_arrived", stuck)
    parts = object.__new__(RealStack)
    parts._flow, parts._config = flow, config.load({}).config
    for wait in (partial(parts.taken, marks), parts.arrived):
        with pytest.raises(NotRunning, match="nothing more") as caught:
            wait()
        assert "say the same command again" in caught.value.hint


def test_how_far_a_source_is_is_told_while_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def collect(*_: object, progress: collector.Progress) -> collector.Status:
        for tuples in (5, 7):
            progress(collector.Status(tuples=tuples, sources=2))
        return collector.Status(tuples=9)

    monkeypatch.setattr(collector, "collect", collect)
    parts = object.__new__(RealStack)
    parts._config = config.load({}).config
    assert parts.send(marks, []) == 9
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "LOG_EVERY_S", 0.0)
    assert parts.send(marks, []) == 9
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("marks: 0 of 2 files, 5 tuples")
    assert second.startswith("marks: 0 of 2 files, 7 tuples")


def test_another_directory_is_not_loaded_amid_a_phase_nor_said_to_be_loaded(
    tmp_path: Path, stack: type[FakeStack], capsys: pytest.CaptureFixture[str]
) -> None:
    home, one, other = (tmp_path / name for name in ("home", "one", "other"))
    assert said(home, "load", one) == Exit.OK
    stack.over = frozenset({1, 2})
    assert said(home, "load", other) == Exit.REFUSED
    assert f"loaded from {one}, and not from {other}" in capsys.readouterr().err
    assert said(home, "load", one) == Exit.OK
    stack.over = frozenset({1, 2, 3})
    assert said(home, "load", one) == Exit.OK
    assert "all of it was loaded before" in capsys.readouterr().out
    assert said(home, "load", other) == Exit.REFUSED


def test_the_figures_of_a_load_are_said_to_be_derived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(tmp_path / "home", "load", tmp_path / "files") == Exit.OK
    assert DERIVED in capsys.readouterr().out


def test_what_another_directory_brings_after_whole_phases_is_loaded(
    tmp_path: Path, stack: type[FakeStack]
) -> None:
    (tmp_path / "home").mkdir()
    Origin.keep(tmp_path / "home", tmp_path / "one", 2)
    stack.over = frozenset({1, 2})
    assert said(tmp_path / "home", "load", tmp_path / "other") == Exit.OK
    kept = Origin.of(tmp_path / "home")
    assert kept is not None
    assert (kept.directory, kept.batch) == (str(tmp_path / "other"), 3)


def test_a_stream_does_not_go_on_from_another_directory_than_was_loaded(
    tmp_path: Path, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    home, one, other = tmp_path / "home", tmp_path / "one", made(0.01, 4)
    home.mkdir()
    shutil.copytree(made(0.01, 3), one)
    Origin.keep(home, one, 3)
    assert said(home, "stream", other) == Exit.REFUSED
    assert "and not from" in capsys.readouterr().err
    kept = Origin.of(home)
    assert kept is not None
    assert kept.is_like(one.rename(tmp_path / "moved"))
    assert not kept.is_like(other)


@pytest.mark.parametrize("action", ["load", "stream"])
def test_nobody_does_in_a_data_folder_what_another_does_there(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    with alone(home / f"tpcdi-{action}", action):
        assert said(home, action, tmp_path) == Exit.REFUSED
    assert f"another `headrace tpcdi {action}` runs" in capsys.readouterr().err


def test_a_directory_is_loaded_under_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []

    def run(self: load.Load) -> list[Loaded]:
        loaded.append(self.folder)
        return []

    monkeypatch.setattr(load.Load, "run", run)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    said(tmp_path / "home", "load", tmp_path / "link")
    said(tmp_path / "home", "load", tmp_path / "real")
    assert loaded == [tmp_path / "real"] * 2


def test_days_that_were_made_otherwise_do_not_go_on_with_what_was_loaded(
    tmp_path: Path, made: Made, stack: type[FakeStack], capsys: pytest.CaptureFixture[str]
) -> None:
    home, one, other = (tmp_path / name for name in ("home", "one", "other"))
    home.mkdir()
    shutil.copytree(made(0.01, 3), one)
    shutil.copytree(made(0.01, 4), other)
    Origin.keep(home, one, 2)
    stack.over = frozenset({1, 2})
    assert said(home, "load", other) == Exit.REFUSED
    stack.over = frozenset({1})
    one.rename(tmp_path / "before")
    other.rename(one)
    assert said(home, "load", one) == Exit.REFUSED
    assert "and not from" in capsys.readouterr().err


def test_what_says_from_where_was_loaded_and_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    Origin.keep(tmp_path, tmp_path, 1)
    home.mkdir()
    (home / KEPT).write_text("")
    assert said(home, "load", tmp_path) == Exit.REFUSED
    assert f"{home / KEPT} does not say" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ("DELETE FROM tpcdi.dimessages", Exit.REFUSED, "Load a directory first"),
        ("DELETE FROM tpcdi.dimessages WHERE batchid > 1", Exit.FAILED, "only 1 of 3 batches"),
        ("UPDATE tpcdi.dimessages SET batchid = 7", Exit.FAILED, "gone on through batch 7"),
    ],
)
def test_a_warehouse_that_the_audit_is_not_about_is_told(
    audits: Connection,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    code: Exit,
    told: str,
) -> None:
    monkeypatch.setattr(audit.run, "__defaults__", (["DImessages batches"],))
    with audits.transaction(force_rollback=True):
        audits.execute(change.encode())
        assert said(tmp_path / "home", "audit") == code
    assert told in capsys.readouterr().err


def test_an_audit_prints_every_check_with_its_verdict(
    audits: Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(tmp_path / "home", "audit") == Exit.OK
    *lines, oracle, last = capsys.readouterr().out.splitlines()
    assert lines == [f"{name}: OK" for name in audit.NAMES]
    assert oracle == "the oracle has the same rows"
    assert last == f"{len(audit.NAMES)} of {len(audit.NAMES)} checks are OK"
    with audits.transaction(force_rollback=True):
        audits.execute(SPOILED.encode())
        assert said(tmp_path / "home", "audit") == Exit.FAILED
    *lines, oracle, last = capsys.readouterr().out.splitlines()
    printed = lines[: len(audit.NAMES)]
    assert all(line.startswith(f"{n}: ") for line, n in zip(printed, audit.NAMES, strict=True))
    assert f"{SPOILED_CHECK}: {FOUND}" in printed
    assert oracle.startswith("the oracle has other rows in dimbroker, ")
    fine = sum(line.endswith(": OK") for line in printed)
    assert last == f"{fine} of {len(audit.NAMES)} checks are OK"


def test_an_audit_gives_every_check_as_json(
    audits: Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with audits.transaction(force_rollback=True):
        audits.execute(SPOILED.encode())
        assert said(tmp_path / "home", "audit", "--json") == Exit.FAILED
    told = json.loads(capsys.readouterr().out)
    assert "dimbroker" in {each["table"] for each in told["differences"]}
    assert told["not_compared"] is None
    checks = {check["name"]: check for check in told["checks"]}
    assert tuple(checks) == audit.NAMES
    assert checks[SPOILED_CHECK] == {"name": SPOILED_CHECK, "wrong": FOUND, "ok": False}
    assert checks["DimTrade row count"]["ok"]


@pytest.mark.parametrize("lacking", ["note", "directory", "phase", "named"])
def test_without_the_files_an_audit_has_the_checks_and_its_code_tells_what_was_left_out(
    audits: Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str], lacking: str
) -> None:
    home, files = tmp_path / "home", tmp_path / "files"
    match lacking:
        case "note":
            (home / KEPT).unlink()
        case "directory":
            shutil.rmtree(files)
        case "phase":
            shutil.rmtree(files / "Batch1")
    named = [tmp_path / "none"] if lacking == "named" else []
    why = {
        "note": "this data folder does not know from which directory it was loaded",
        "directory": f"{files}, which was loaded, is gone",
        "phase": f"{files} has no Batch1",
        "named": f"{tmp_path / 'none'} has no Batch1",
    }[lacking]
    assert said(home, "audit", *named) == Exit.REFUSED
    told = capsys.readouterr()
    *lines, left_out, last = told.out.splitlines()
    assert lines == [f"{name}: OK" for name in audit.NAMES]
    assert left_out == f"not compared with the files: {why}"
    assert last == f"{len(audit.NAMES)} of {len(audit.NAMES)} checks are OK"
    assert f"nothing was compared with the files: {why}" in told.err
    assert "--checks" in told.err
    with audits.transaction(force_rollback=True):
        audits.execute(SPOILED.encode())
        assert said(home, "audit", *named) == Exit.FAILED


def test_the_checks_alone_are_asked_for_and_need_no_files(
    audits: Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    shutil.rmtree(tmp_path / "files")
    (home / KEPT).unlink()
    assert said(home, "audit", "--checks") == Exit.OK
    assert "not compared with the files: --checks was said" in capsys.readouterr().out
    assert said(home, "audit", "--checks", tmp_path / "files") == Exit.CONFIG
    with audits.transaction(force_rollback=True):
        audits.execute(SPOILED.encode())
        capsys.readouterr()
        assert said(home, "audit", "--checks", "--json") == Exit.FAILED
    told = json.loads(capsys.readouterr().out)
    assert (told["differences"], told["not_compared"]) == (None, "--checks was said")
    assert SPOILED_CHECK in [check["name"] for check in told["checks"] if not check["ok"]]


def test_who_names_no_directory_has_the_one_that_was_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, files = tmp_path / "home", tmp_path / "files"
    assert said(home, "stream") == Exit.REFUSED
    assert "does not know from which directory it was loaded" in capsys.readouterr().err
    files.mkdir()
    Origin.keep(home, files, 3)
    assert chosen(None, Origin.of(home)) == files
    assert chosen(tmp_path, Origin.of(home)) == tmp_path
    files.rmdir()
    assert said(home, "stream") == Exit.REFUSED
    assert f"{files}, which was loaded, is gone" in capsys.readouterr().err


def test_a_command_whose_reader_has_gone_did_not_do_all_and_says_so_by_its_code() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "headrace.cli", "tpcdi", "flow"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (Exit.UNHEARD, b"")
