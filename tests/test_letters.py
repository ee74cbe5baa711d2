"""Dead letters: looked at, run again and dropped by commands, beside an engine or without one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import till
from laboring import Laboring
from till import Till
from waiting import until

from etl_procs.letters import changing
from headrace import config
from headrace.cli import main
from headrace.clock import SystemClock
from headrace.crash import CrashPoints
from headrace.errors import Exit, NotRunning, Refused
from headrace.local import lock
from headrace.local.home import Home

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Till]:
    """A till whose first batch was settled, and whose second it was jammed for."""
    made = Till(tmp_path)
    made.settle([("tea", 250)], [])
    made.jam(True)
    made.settle([("jam", 300), ("bun", 100)], [("tea", 250)])
    made.jam(False)
    yield made
    made.end_of_day()


def letters(made: Till, *arguments: str) -> int:
    try:
        return main(["dead-letters", *arguments, "--home", str(made.home)])
    except SystemExit as ended:  # the parser's refusal
        return int(str(ended.code))


def waiting_ids(made: Till) -> list[int]:
    return [letter.id for letter in made.letters()]


def test_a_batch_that_was_given_up_is_run_again_with_its_other_stream(made: Till) -> None:
    assert made.cents() == 250
    assert [(x.stream, x.row_count) for x in made.letters()] == [("sold", 2), ("returned", 1)]
    with made.changing() as dead:
        assert dead.replay([1]) == [1, 2]
    made.core.drain()
    assert made.letters() == []
    assert made.cents() == 250 + 400 - 250
    assert made.batch(till.flow) == 3


def test_a_batch_that_fails_again_is_a_dead_letter_again(made: Till) -> None:
    made.jam(True)
    with made.changing() as dead:
        dead.replay([2])
    made.core.drain()
    assert [(x.id, x.batch, x.row_count, x.replay) for x in made.letters()] == [
        (3, 3, 2, 0),
        (4, 3, 1, 0),
    ]


def test_a_wish_waits_for_the_next_engine(made: Till, capsys: Printed) -> None:
    assert letters(made, "replay", "2") == Exit.OK
    assert capsys.readouterr().out.splitlines() == [
        "2 dead letters are to run again: 1, 2.",
        "1 of the same batch, which its procedure gave up together.",
        "No engine runs here: the next one takes them when it has started.",
    ]
    assert [x.replay for x in made.letters()] == [1, 1]
    made.reopen()
    made.core.drain()
    assert (waiting_ids(made), made.cents()) == ([], 400)


def test_an_engine_that_runs_takes_a_wish_by_itself(made: Till, capsys: Printed) -> None:
    home = Home(made.home)
    home.run.mkdir()
    held = lock.take(home.writer_lock)
    assert held is not None
    worker = Laboring(made.core, made.flows, clock=SystemClock())
    worker.start()
    try:
        assert letters(made, "replay", "1") == Exit.OK
        assert "The engine takes them within a second" in capsys.readouterr().out
        until(lambda: not made.letters(), 10, lambda: str(made.letters()))
    finally:
        worker.stop()
    assert not worker.failures
    assert made.cents() == 400


def test_the_list_shows_tuples_and_batches_and_counts_both(made: Till, capsys: Printed) -> None:
    made.end(till.sold, [("pen", None)])
    made.garble(till.returned, b"no\x1bt json", "not JSON")
    made.run(till.returned, [])
    assert letters(made, "list") == Exit.OK
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "dataflow reason letters tuples to run again"
    failed = (
        f"procedure till.settle failed on batch 2: ValueError: the till is jammed ({till.FILE}:"
    )
    assert lines[2].startswith(f"till {failed}")
    assert lines[2].endswith(" 2 3 0")
    assert lines[3:5] == ["till no price 1 1 0", "till not JSON 1 1 0"]
    assert lines[8].startswith(f"1 batch of 2 till.sold 2 settle {failed}")
    assert lines[8].endswith("(show 1)")
    assert lines[9].startswith("2 batch of 1 till.returned 2 settle")
    assert sorted(line.split(maxsplit=1)[1] for line in lines[10:]) == [
        "tuple till.returned[0]@3 3 - not JSON no\\x1bt json",
        "tuple till.sold[0]@5 3 settle no price ('pen', None)",
    ]
    assert letters(made, "list", "-n", "1") == Exit.OK
    short = capsys.readouterr().out
    assert "batch of 1" not in short
    assert "no price" not in short
    assert "\n... and 2 more reasons, of 2 letters\n" in short
    assert "\n... and 3 more: -n 4, or --reason and --dataflow\n" in short
    assert letters(made, "list", "--reason", "no price", "--dataflow", "till") == Exit.OK
    some = capsys.readouterr().out
    assert "('pen', None)" in some
    assert "jammed" not in some
    assert letters(made, "list", "--json", "--reason", "not JSON") == Exit.OK
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == [3]


def test_showing_a_batch_tells_everything_and_its_tuples(made: Till, capsys: Printed) -> None:
    assert letters(made, "show", "1", "-n", "1") == Exit.OK
    shown = {
        line.split("  ")[0]: line.split("  ", 1)[1].strip()
        for line in capsys.readouterr().out.splitlines()
        if "  " in line
    }
    assert shown["dead letter"] == "1, a batch of 2"
    assert shown["from"] == "till.sold"
    assert (shown["batch"], shown["procedure"], shown["attempts"]) == ("2", "settle", "3")
    assert "the till is jammed" in shown["reason"]
    assert shown["at"].startswith("2026-01-01T12:00:00")
    assert shown["to run again"] == "not asked for"
    assert shown["given up with"] == "2: other streams of the same batch"
    assert shown["[0]@2"] == "jam   300"
    assert "[0]@3" not in shown
    assert letters(made, "show", "1", "-n", "1") == Exit.OK
    assert capsys.readouterr().out.endswith("... and 1 more: -n 2\n")
    assert letters(made, "show", "--json", "1") == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][1] == {
        "_partition": 0,
        "_offset": 3,
        "_index": None,
        "_value": "('bun', 100)",
        "item": "bun",
        "cents": 100,
    }
    assert (document["attempts"], document["replay"]) == (3, False)


def test_showing_a_tuple_tells_its_bytes_and_columns(made: Till, capsys: Printed) -> None:
    made.settle([("pen", None)], [])
    number = waiting_ids(made)[-1]
    assert letters(made, "show", str(number)) == Exit.OK
    shown = capsys.readouterr().out
    assert "till.sold[0]@5" in shown
    assert '["pen", null]' in shown
    assert "('pen', None)" in shown


def test_what_cannot_run_again_is_refused_and_nothing_else_is_asked_for(
    made: Till, capsys: Printed
) -> None:
    made.garble(till.sold, b"\xff", "not UTF-8")
    made.settle([], [])
    number = waiting_ids(made)[-1]
    assert letters(made, "replay", "1", str(number)) == Exit.REFUSED
    said = capsys.readouterr().err
    assert f"dead letter {number} cannot run again: not UTF-8" in said
    assert "Produce it again as it should be, and drop this one." in said
    assert letters(made, "replay", "1", "99") == Exit.REFUSED
    assert "there is no dead letter 99" in capsys.readouterr().err
    assert not any(letter.replay for letter in made.letters())


def test_all_that_can_run_again_does_and_the_rest_is_counted(made: Till, capsys: Printed) -> None:
    made.garble(till.sold, b"\xff", "not UTF-8")
    made.settle([], [])
    assert letters(made, "replay", "--all") == Exit.OK
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "2 dead letters are to run again."
    assert said[1].startswith("1 cannot run again: not decoded")
    made.core.drain()
    assert [letter.reason for letter in made.letters()] == ["not UTF-8"]


def test_a_letter_of_a_procedure_that_is_gone_is_refused(made: Till) -> None:
    made.core._store.connection.execute("UPDATE headrace_takes SET procedure = 'settle_all'")
    with (
        pytest.raises(Refused, match="no procedure settle any more that takes"),
        made.changing() as dead,
    ):
        dead.replay([1])


def test_a_drop_is_asked_for_first(
    made: Till, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert letters(made, "drop", "1") == Exit.REFUSED
    assert "nobody can be asked whether to drop 1 dead letter\n  Say so" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert letters(made, "drop", "1") == Exit.REFUSED
    shown = capsys.readouterr().out
    assert "batch of 2" in shown
    assert "Nothing was dropped." in shown
    assert waiting_ids(made) == [1, 2]
    questions: list[str] = []

    def yes(question: str) -> str:
        questions.append(question)
        return "y"

    monkeypatch.setattr("builtins.input", yes)
    assert letters(made, "drop", "1") == Exit.OK
    assert questions == ["Drop 1 dead letter for good? [y/N] "]
    assert waiting_ids(made) == [2]
    assert "2, of other streams of the same batch: still there." in capsys.readouterr().out


def test_a_drop_takes_what_it_names_or_nothing(made: Till, capsys: Printed) -> None:
    assert letters(made, "drop", "--yes", "1", "99") == Exit.REFUSED
    assert "there is no dead letter 99" in capsys.readouterr().err
    with pytest.raises(Refused, match="no dead letter 99"), made.changing() as dead:
        dead.drop([1, 99])
    assert waiting_ids(made) == [1, 2]


def test_all_of_a_reason_and_a_dataflow_are_dropped_and_no_other(
    made: Till, capsys: Printed
) -> None:
    made.settle([("pen", None)], [])
    assert letters(made, "drop", "--all", "--dataflow", "shop", "--yes") == Exit.OK
    assert capsys.readouterr().out == "There is no such dead letter; there are some of till.\n"
    assert letters(made, "drop", "--all", "--reason", "jammed", "--yes") == Exit.OK
    assert [letter.reason for letter in made.letters()] == ["no price"]
    assert letters(made, "drop", "--all", "--yes") == Exit.OK
    assert letters(made, "list") == Exit.OK
    assert capsys.readouterr().out.endswith("There are no dead letters.\n")


def test_a_letter_that_an_engine_took_meanwhile_does_not_keep_the_others(made: Till) -> None:
    with made.changing() as dead:
        assert dead.drop([1, 99], where_possible=True) == [1]
    assert waiting_ids(made) == [2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "1"),
        ("show",),
        ("show", "1", "2"),
        ("replay",),
        ("drop", "1", "--all"),
        ("drop", "1", "--reason", "x"),
    ],
)
def test_what_has_no_meaning_together_is_refused(
    arguments: tuple[str, ...], made: Till, capsys: Printed
) -> None:
    assert letters(made, *arguments) == Exit.CONFIG
    assert "headrace" in capsys.readouterr().err


def test_without_a_core_there_is_none_to_write_to(tmp_path: Path) -> None:
    opening = changing([tmp_path / "core" / "none.db"], config.Core(), CrashPoints())
    with pytest.raises(NotRunning, match="there is no core"), opening:
        pass
    assert not (tmp_path / "core").exists()
