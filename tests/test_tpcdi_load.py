"""The load of a directory: what it sends and says; and that it ends well whatever is killed."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from inquiring import COUNT, NOTHING, SAME, ZERO_JOINED, Inquirer, Question, questions
from loading import DIMENSIONS, REFERS, Reader, files_of, load_and_kill, references, undisturbed

from api.cut import Freshness
from api.plans import Plan
from headrace.cli.tpcdi_parts import tell
from headrace.local.home import Home
from tpcdi.snapshot import Connection

SEED = 183_534
"""It kills the core's process amid facts of the first phase, and then the broker and PostgreSQL:
`make prove` has others.
"""


def test_whatever_is_killed_in_each_phase_every_table_is_that_of_the_undisturbed_load(
    tmp_path: Path,
) -> None:
    files = files_of(tmp_path)
    course = load_and_kill(tmp_path, files, undisturbed(files), SEED)
    print(course.inquirer.told())
    assert course.amid_facts, course
    assert course.looks.keys() >= {1, 2, 3}, course
    asked = course.inquirer
    assert len(asked.phases.keys() & {1, 2, 3}) > 1, vars(asked)
    assert asked.killed["query worker"], vars(asked)
    assert asked.answers.keys() >= {f"{of.value} by warehouse" for of in Freshness}, asked.answers
    united = {f"staged by {plan.value}" for plan in (Plan.SHIP, Plan.SPLIT, Plan.GATHER)}
    assert asked.answers.keys() & united, asked.answers


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
    for table in (*DIMENSIONS.values(), "dimdate", "dimtime", "dimtrade"):
        with audited_warehouse.transaction(force_rollback=True):
            audited_warehouse.execute(f"DELETE FROM tpcdi.{table}".encode())
            reader.read(audited_warehouse)
    assert reader.found == wanted


def test_who_asks_the_island_notices_a_wrong_answer_of_each_kind(tmp_path: Path) -> None:
    asked = questions(references())
    (count, *_), (zero, *_), (nothing, *_), (same, *_) = (
        [question for question in asked if question.kind is kind]
        for kind in (COUNT, ZERO_JOINED, NOTHING, SAME)
    )

    def told(inquirer: Inquirer, question: Question, batch: int, rows: Any) -> None:
        as_of = {"as_of": {"tpcdi": batch}, "freshness": "delta", "rows": rows}
        inquirer.check(question, Freshness.DELTA, as_of)

    right = [(zero, 1, [[0]]), (count, 2, [[5, 5]]), (nothing, 2, []), (same, 3, [[1, 4, 4]])]
    wrong = [
        (zero, 3, [[1]]),
        (nothing, 3, [["x", 2]]),
        (same, 3, [[1, 4, 3]]),
        (count, 2, [[5, 5]]),  # older than what was told
        (count, 3, [[4, 5]]),  # rows have become fewer
        (same, 3, [[1, 5, 5]]),  # the batch had another answer
    ]
    for one in wrong:
        inquirer = Inquirer(Home(tmp_path), asked, 1, kills_api=False)
        for each in right:
            told(inquirer, *each)
        with pytest.raises(AssertionError):
            told(inquirer, *one)
