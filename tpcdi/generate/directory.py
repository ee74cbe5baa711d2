"""A directory as the real generator writes it: it is there whole, or not at all."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import Missing, Refused
from tpcdi.generate import sizes
from tpcdi.generate.files import AUDIT_HEAD, Batch, Tell, batch_dates
from tpcdi.generate.history import history
from tpcdi.generate.increments import make
from tpcdi.generate.reference import FIRST_DATE
from tpcdi.generate.scratch import Scratch
from tpcdi.generate.sizes import BATCH_1, BYTES_PER_SCALE, checked

STATE = "state"
"""Where the directory keeps what later increments go on from; a loader ignores it."""

INCREMENTS = 2


@dataclass(frozen=True, slots=True)
class Report:
    """What was written."""

    rows: dict[int, int]
    size: int


def generate(
    out: Path, scale: float, seed: int, *, eol: str = "\n", tell: Tell = lambda _: None
) -> Report:
    """Write a directory of that scale; the same seed gives the same bytes."""
    checked(scale)
    with _unfinished(out.resolve(), BYTES_PER_SCALE * scale) as root:
        scratch = Scratch(root)
        batch = Batch(root, 1, eol, tell)
        batch.lines("BatchDate.txt", [str(BATCH_1)], are_rows=False)
        state = history(scratch, batch, scale, seed)
        rows = {1: batch.rows.total()}
        _write(root / "Batch1_audit.csv", batch_dates(1, FIRST_DATE, BATCH_1), eol)
        for _ in range(INCREMENTS):
            batch = Batch(root, state.batch + 1, eol, tell)
            batch.answer(make(state, batch.table))
            batch.lines("BatchDate.txt", [str(state.today)], are_rows=False)
            rows[state.batch] = batch.rows.total()
            dates = batch_dates(state.batch, state.today, state.today)
            _write(root / f"Batch{state.batch}_audit.csv", dates, eol)
        _write(root / "Generator_audit.csv", _parameters(scale), eol)
        _write(root / "digen_report.txt", _report(scale, seed, rows), eol)
        state.save(root / STATE)
        size = sum(each.stat().st_size for each in root.rglob("*"))
    return Report(rows, size)


@contextmanager
def _unfinished(out: Path, needed: float) -> Iterator[Path]:
    """Give a folder beside the directory, which takes its place when all of it is written."""
    root = out.with_name(f".{out.name}.unfinished")
    try:
        if out.exists():
            out.rmdir()  # which says whether it is empty
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root):
            try:
                for left in root.iterdir():  # of a run that was killed
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
                if shutil.disk_usage(root).free < needed:
                    raise OSError(errno.ENOSPC, f"it takes about {needed / 1e6:,.0f} MB")
                yield root
                root.rename(out)
            except BaseException:
                shutil.rmtree(root, ignore_errors=True)
                raise
    except OSError as error:
        raise _said(error, out) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other runs out; the lock ends with the process, however that ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _said(error: OSError, out: Path) -> Missing | Refused:
    elsewhere = "Choose a directory that is not there yet, in one where you may write."
    match error.errno:
        case errno.ENOTEMPTY | errno.EEXIST:
            return Refused(f"{out} is not empty", hint=elsewhere)
        case errno.EAGAIN:
            return Refused(f"{out} is being generated", hint="Wait until the other run has ended.")
        case errno.ENOSPC | errno.EDQUOT:
            return Missing(
                f"there is no room for {out}: {error.strerror}",
                hint="Make room, or choose a smaller scale. Nothing was left behind.",
            )
    return Refused(f"{out} cannot be written: {error.strerror or error}", hint=elsewhere)


def _parameters(scale: float) -> list[str]:
    values = {
        "SF": scale * 1_000,
        "HRScaling": sizes.EMPLOYEES.per_scale / 1_000,
        "CMScaling": 5.0,
        "CScaling": sizes.CUSTOMERS_A_DAY.per_scale / 1_000,
        "AScaling": sizes.ACCOUNTS_A_DAY.per_scale / 1_000,
        "PHistScaling": 5.0,
        "FWCMPScaling": 0.5,
        "FWSECScaling": 0.8,
        "THistScaling": 130.0,
        "WHScalingH": 300.0,
        "NUMBER_OF_INCREMENTAL_BATCHES": INCREMENTS,
    }
    return [AUDIT_HEAD, *(f"Generator,1,,{name},,{float(value)}" for name, value in values.items())]


def _report(scale: float, seed: int, rows: dict[int, int]) -> list[str]:
    """Say what there is; no time of day, so that the same seed gives the same bytes."""
    said = "AuditTotalRecordsSummaryWriter - TotalRecords"
    return [
        "TPC-DI Data Generation Report",
        "=============================",
        "",
        "Written by headrace tpcdi generate: derived from TPC-DI, not comparable to its results",
        f"Scale Factor: {scale:g}",
        f"Seed: {seed}",
        *(f"{said} for Batch{batch}: {count}" for batch, count in rows.items()),
        f"{said} all Batches: {sum(rows.values())}",
    ]


def _write(path: Path, lines: list[str], eol: str) -> None:
    with path.open("w", encoding="utf-8", newline=eol) as file:
        file.writelines(f"{line}\n" for line in lines)
