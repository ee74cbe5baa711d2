"""The load of a directory: what it sends and says; and that it ends well whatever is killed."""

import io
import sys
from pathlib import Path

import pytest
from loading import REFERS, Reader, files_of, load_and_kill, undisturbed

from headrace.cli.tpcdi_parts import tell
from tpcdi.snapshot import Connection

SEED = 183_534
"""It kills the core's process, the broker and PostgreSQL amid facts: `make prove` has others."""


def test_whatever_is_killed_in_each_phase_every_table_is_that_of_the_undisturbed_load(
    tmp_path: Path,
) -> None:
    files = files_of(tmp_path)
    course = load_and_kill(tmp_path, files, undisturbed(files), SEED)
    assert course.amid_facts, course  # all three, where nothing else keeps the machine busy
    assert course.looks.keys() >= {1, 2, 3}, course


def test_what_the_load_tells_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Pipe())
    tell("phase 1: HR.csv, 50 rows in 0.1 s")
    assert [text for text in written if text] == ["phase 1: HR.csv, 50 rows in 0.1 s\n"]


def test_the_reader_sees_what_refers_to_something_that_is_not_there(
    audited_warehouse: Connection,
) -> None:
    wanted = {f"{table}.{column}" for table, columns in REFERS.items() for column in columns}
    reader = Reader()
    reader.read(audited_warehouse)
    assert reader.found == set()
    for table in ("broker", "company", "security", "customer", "account", "date", "trade"):
        with audited_warehouse.transaction(force_rollback=True):
            audited_warehouse.execute(f"DELETE FROM tpcdi.dim{table}".encode())
            reader.read(audited_warehouse)
    assert reader.found == wanted
