"""`headrace call` and `headrace core`: what they do to a real core, and how they say no."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import till
from till import Till
from waiting import until

from headrace.cli import main
from headrace.errors import Exit

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Till]:
    made = Till(tmp_path)
    made.settle([("tea", 250), ("bun", None)], [])
    yield made
    made.end_of_day()


def headrace(made: Till, *arguments: str) -> int:
    return main([*arguments, "--home", str(made.home), "--flow", str(till.FILE)])


def test_a_call_prints_what_it_returns(made: Till, capsys: Printed) -> None:
    assert headrace(made, "call", "till.put", "cents=50", "note=a\tb") == Exit.OK
    assert capsys.readouterr().out.splitlines() == ["cents  note", "-----  ----", "  300  a\\tb"]
    assert headrace(made, "call", "till.count", "--output", "json") == Exit.OK
    assert json.loads(capsys.readouterr().out) == [{"cents": 300}]
    assert headrace(made, "call", "till.jam", "jammed=1") == Exit.OK
    assert capsys.readouterr().out == "Done.\n"
    assert made.query("SELECT jammed FROM till") == [(1,)]


def test_arguments_are_read_as_they_are_declared(made: Till, capsys: Printed) -> None:
    def put(*words: str) -> object:
        assert headrace(made, "call", "till.put", *words, "--output", "json") == Exit.OK
        (row,) = json.loads(capsys.readouterr().out)
        return row["cents"], row["note"]

    assert put("cents=10", "share=0.5", "note=7") == (255, "7")
    assert put("cents=0", "note=") == (255, "")
    assert put("cents=0", "note=a=b") == (255, "a=b")
    assert put("cents=0", "note:=null") == (255, None)
    assert put("cents=0") == (255, None)
    assert put("cents:=5", 'note:="x"') == (260, "x")
    assert put("--json", '{"cents": 1, "note": "old"}', "note=new") == (261, "new")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["till.put", "cents=x"], "the argument cents is 'x', and no INTEGER"),
        (["till.put", "cents="], "the argument cents is '', and no INTEGER"),
        (["till.put", "cents=1", "share="], "write share:=null, for NULL"),
        (["till.put", "cents=1", "share=nan"], "share is NaN"),
        (["till.put", "cents=9223372036854775808"], "beyond 64 bits"),
        (["till.put"], "call till.put is given a row without cents"),
        (["till.put", "cents=1", "tip=2"], "call till.put has no argument tip\n  Its arguments: "),
        (["till.put", "cents"], "the argument cents has no value"),
        (["till.put", "cents:=[1]"], "cents is [1], no INTEGER"),
        (["till.put", "cents:=true"], "cents is True, no INTEGER"),
        (["till.put", "note:=x"], "note: x is not JSON"),
        (["till.put", "--json", "[]"], "--json []: no object"),
        (["till.sing"], "there is no call till.sing\n  The calls are: till.count, till.drop"),
        (["sing"], "there is no call sing."),
        (["till.count", "--key", "a\nb"], "all of them printable"),
        (["till.put", "cents=1", "--key", ""], "the key of the call is empty"),
    ],
)
def test_a_call_that_cannot_be_made_is_refused(
    words: list[str], message: str, made: Till, capsys: Printed
) -> None:
    assert headrace(made, "call", *words) == Exit.REFUSED
    assert message in capsys.readouterr().err
    assert made.cents() == 250


def test_a_call_that_fails_or_gives_up_keeps_nothing(made: Till, capsys: Printed) -> None:
    assert headrace(made, "call", "till.put", "cents=-251") == Exit.FAILED
    said = capsys.readouterr().err
    assert "call till.put aborts: there is not enough in the till\n  Nothing of it" in said
    assert headrace(made, "call", "till.drop") == Exit.FAILED
    said = capsys.readouterr().err
    assert "call till.drop failed: ZeroDivisionError: the till fell down" in said
    assert f"({till.FILE}:" in said
    assert made.cents() == 250


def test_a_query_of_the_core_that_has_no_end_ends(made: Till, capsys: Printed) -> None:
    endless = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n)"
    limited = ("core", "--set", "api.query_timeout_ms=200")
    assert headrace(made, *limited, f"{endless} SELECT count(*) FROM n") == Exit.REFUSED
    assert "the core has worked for 0.2 s, and there is no row yet" in capsys.readouterr().err
    assert headrace(made, *limited, f"{endless} SELECT i FROM n", "-n", "9") == Exit.OK


def test_a_call_with_a_key_is_made_once(made: Till, capsys: Printed) -> None:
    again = ("call", "till.put", "cents=50", "--key", "order 1", "--output", "json")
    for _ in range(2):
        assert headrace(made, *again) == Exit.OK
        assert json.loads(capsys.readouterr().out) == [{"cents": 300, "note": None}]
    assert made.cents() == 300
    assert headrace(made, "call", "till.put", "cents=51", "--key", "order 1") == Exit.REFUSED
    assert "the key 'order 1' was used" in capsys.readouterr().err


def test_without_a_core_both_say_how_to_make_one(tmp_path: Path, capsys: Printed) -> None:
    shared = ("--home", str(tmp_path), "--flow", str(till.FILE))
    for words in (("call", "till.count"), ("core", "SELECT 1")):
        assert main([*words, *shared]) == Exit.NOT_RUNNING
        assert "Start the engine once" in capsys.readouterr().err
    assert not (tmp_path / "core").exists()


def test_the_core_is_read_at_one_batch(made: Till, capsys: Printed) -> None:
    made.settle([("pen", 100)], [])
    assert headrace(made, "core", "SELECT cents, NULL AS n, 'a' || char(27) FROM till") == Exit.OK
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "cents     n  'a' || char(27)",
        "-----  ----  ---------------",
        "  350  NULL  a\\x1b",
    ]
    assert printed.err == "as of till batch 2\n"


def test_the_core_tells_its_tables_when_nothing_is_asked(made: Till, capsys: Printed) -> None:
    assert headrace(made, "core", "--output", "json") == Exit.OK
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"name": "owed", "kind": "table", "columns": "item TEXT"},
        {"name": "till", "kind": "table", "columns": "cents INTEGER, jammed INTEGER"},
    ]


def test_functions_that_give_tables_are_no_writes(made: Till, capsys: Printed) -> None:
    assert headrace(made, "core", "SELECT value FROM json_each('[1, 2]')") == Exit.OK
    assert capsys.readouterr().out.split()[-2:] == ["1", "2"]


def test_rows_are_written_as_json_and_csv(made: Till, capsys: Printed) -> None:
    sql = "SELECT 1 AS a, 2 AS a, x'00ff' AS b, 'x,\"y' AS c, NULL AS d, 1e999 AS e"
    assert headrace(made, "core", sql, "--output", "json") == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert list(document.items())[:5] == [
        ("a", 1),
        ("a:2", 2),
        ("b", "\\x00ff"),
        ("c", 'x,"y'),
        ("d", None),
    ]
    assert headrace(made, "core", sql, "--output", "csv") == Exit.OK
    head, row = csv.reader(io.StringIO(capsys.readouterr().out))
    assert head == ["a", "a", "b", "c", "d", "e"]
    assert row == ["1", "2", "\\x00ff", 'x,"y', "", "inf"]


SERIES = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n{end}) SELECT i FROM n"


def test_rows_beyond_the_limit_are_not_read(made: Till, capsys: Printed) -> None:
    endless = SERIES.format(end="")
    assert headrace(made, "core", endless, "-n", "3", "--output", "csv") == Exit.OK
    printed = capsys.readouterr()
    assert printed.out.split() == ["i", "1", "2", "3"]
    assert "only the first 3 rows" in printed.err
    assert headrace(made, "core", endless) == Exit.OK
    assert len(capsys.readouterr().out.splitlines()) == 2 + 1_000
    assert headrace(made, "core", "SELECT 1 UNION SELECT 2", "-n", "2") == Exit.OK
    assert "only" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM till",
        "UPDATE headrace_ledger SET batch = 9",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "CREATE VIEW v AS SELECT 1",
        "CREATE VIRTUAL TABLE t USING fts5 (a)",
        "DROP TABLE till",
        "ATTACH 'other.db' AS other",
        "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = DELETE",
        "COMMIT",
        "BEGIN",
        "SAVEPOINT s",
        "WITH x AS (SELECT 1) DELETE FROM till",
    ],
)
def test_the_core_is_only_read(
    sql: str, made: Till, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.home)
    assert headrace(made, "core", sql) == Exit.REFUSED
    assert "the core is only read here, and this is no SELECT" in capsys.readouterr().err
    assert not (made.home / "other.db").exists()
    assert made.cents() == 250


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("UPDATE sqlite_master SET sql = ''", "sqlite_master may not be modified"),
        ("VACUUM INTO 'other.db'", "cannot VACUUM"),
        (" ", "no statement that answers anything"),
        ("-- nothing", "no statement that answers anything"),
        ("SELECT ?", "Incorrect number of bindings"),
        ("SELECT 1\0", "null character"),
        (
            SERIES.format(end=" WHERE i < 9") + " WHERE abs(i - 9 - 9223372036854775807) > 0",
            "overfl",
        ),
    ],
)
def test_a_wrong_statement_says_what_is_wrong_with_it(
    sql: str, message: str, made: Till, capsys: Printed
) -> None:
    assert headrace(made, "core", sql) == Exit.REFUSED
    assert message in capsys.readouterr().err


def test_a_long_statement_ends_with_ctrl_c(made: Till) -> None:
    counting = f"SELECT count(*) FROM ({SERIES.format(end='')})"
    # In the background of a shell it is ignored, and a child would go on to ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    started = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "core", counting, "--home", str(made.home)],
        cwd=till.FILE.parent,
        env=dict(os.environ),
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    try:
        opened = Path(f"/proc/{started.pid}/fd")
        core = str(made.path.resolve())
        until(lambda: core in {os.path.realpath(file) for file in opened.iterdir()}, 30, str)
        assert started.poll() is None
        started.send_signal(signal.SIGINT)
        assert started.wait(30) == Exit.INTERRUPTED
    finally:
        started.kill()
        _, said = started.communicate()
    assert said.endswith("headrace: interrupted\n")
