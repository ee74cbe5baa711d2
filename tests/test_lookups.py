"""Lookups: whatever happens to a dimension, they answer as plain SQL does."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import pyarrow as pa
import pytest
from dimension import SHAPES, Dimension, busy, dataflow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl_procs import (
    Dataflow,
    Transaction,
    Trial,
    by_count,
    changes,
    owned,
    records,
    versions,
)
from etl_procs.batch import Batch
from etl_procs.errors import AccessDenied, CoreError, DefinitionChanged
from etl_procs.metrics import LookupFigures
from headrace.config import Core as Settings
from headrace.errors import DefinitionError

NUMBERS = st.sampled_from([None, -(2**63), -1, 0, 1, 2, 2**63 - 1])
TEXTS = st.sampled_from([None, "", "x", "xy", "\u00e9", "\u6c34", "x" * 40])
TIMES = st.sampled_from([None, -(2**63), -5, 0, 1, 2, 3, 2**63 - 1])
DAYS = st.sampled_from([None, "", "2020-01-01", "2020-01-02", "2020-01-03", "2020", "\u00e9"])
ASKED_DAYS = st.one_of(DAYS, st.sampled_from(["2020-01-02\0", "2020-01-02" * 9, "~"]))
SKS = st.integers(1, 9)
ROWS = st.tuples(
    SKS, NUMBERS, TEXTS, TIMES, DAYS, st.sampled_from([None, 0.5]), st.sampled_from("uvw")
)
VALUES = {"a": NUMBERS, "b": TEXTS, "t": TIMES, "d": DAYS, "sk": SKS, "note": st.just("n")}
INSERTS = st.sampled_from(["insert", "insert or replace", "insert or ignore", "insert or fail"])
LOOKS = st.lists(st.tuples(NUMBERS, TEXTS, TIMES, ASKED_DAYS), min_size=1, max_size=12)
OPS = st.one_of(
    st.tuples(INSERTS, st.lists(ROWS, min_size=1, max_size=4)).map(lambda op: [op[0], *op[1]]),
    st.sampled_from(["a", "b", "a", "b", *sorted(VALUES)]).flatmap(
        lambda name: st.tuples(
            st.just("update"), st.just(name), VALUES[name], st.lists(SKS, min_size=1, max_size=3)
        )
    ),
    st.lists(SKS, min_size=1, max_size=3).map(lambda sks: ["delete", *sks]),
    LOOKS.map(lambda asked: ["look", *asked]),
    LOOKS.map(lambda asked: ["look", *asked]),
    st.sampled_from([["delete all"], ["abort"]]),
)
PIECES = st.lists(OPS, min_size=1, max_size=6)
EVENTS = st.one_of(
    st.tuples(st.just("run"), st.lists(PIECES, min_size=1, max_size=3)),
    st.tuples(st.just("run"), st.lists(PIECES, min_size=1, max_size=3)),
    st.tuples(st.just("call"), PIECES),
    st.tuples(st.sampled_from(["evict", "restart"])),
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all that happens to large dimensions happen to small ones."""
    monkeypatch.setattr(owned, "FEW", 0)
    monkeypatch.setattr(owned, "ROWS_PER_KEY", 100)
    monkeypatch.setattr(owned, "ADVANCE_AT", 2)
    monkeypatch.setattr(versions, "RATIO", 2)
    monkeypatch.setattr(owned, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(owned, "REBUILT_FROM", 1)


@pytest.fixture(params=["as it is", "coinciding"])
def codes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the codes of different texts be the same, more often than they are."""
    if request.param == "coinciding":
        code = versions.Layout.codes

        def coinciding(self: versions.Layout, keys: Any) -> Any:
            found = code(self, keys)
            return found if self.is_exact else found & found.dtype.type(1)

        monkeypatch.setattr(versions.Layout, "codes", coinciding)


@pytest.fixture(params=sorted(SHAPES))
def dimension(
    request: pytest.FixtureRequest, tmp_path: Path, small: None, codes: None
) -> Iterator[Dimension]:
    made = Dimension(tmp_path, request.param)
    yield made
    made.close()


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    events=st.lists(EVENTS, min_size=1, max_size=8),
    most=st.sampled_from([1, 4, 100_000]),
)
def test_a_lookup_answers_as_sql_does_in_the_same_transaction(
    dimension: Dimension, events: list[Any], most: int
) -> None:
    """One core lives through all of the histories, and its callers with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "KEPT", most)
        patch.setattr(changes, "TRIM_EVERY", most)
        dimension.run([["delete all"]])
        for what, *of in events:
            match what:
                case "run":
                    dimension.run(*of[0])
                case "call":
                    dimension.call(of[0])
                case "restart":
                    dimension.restart()
                case "evict":
                    dimension.evict()
            assert not dimension.wrong, dimension.wrong.pop()


def rows(first: int, count: int, **more: Any) -> list[Any]:
    """Insert rows of the keys that follow each other."""
    texts = {"t": 0, "d": "2020-01-01", **more}
    made = [[n, n, f"x{n}", texts["t"], texts["d"], 0.5, "u"] for n in range(first, first + count)]
    return ["insert", *made]


def all_of(*keys: int, t: int = 9, d: str = "2026") -> list[Any]:
    return ["look", *([n, f"x{n}", t, d] for n in keys)]


def figures(dimension: Dimension) -> LookupFigures:
    return dimension.core.metrics.lookups["history.found"]


@pytest.fixture
def usual(tmp_path: Path) -> Iterator[Dimension]:
    """A dimension whose lookups are as they are."""
    made = Dimension(tmp_path, "text")
    yield made
    assert not made.wrong, made.wrong
    made.close()


def test_an_index_is_built_when_sql_was_asked_so_much_that_it_pays(usual: Dimension) -> None:
    usual.run([rows(0, 1_000)])
    usual.run([all_of(*range(100))], [all_of(*range(100))])
    assert figures(usual) == LookupFigures(misses=200)
    usual.run([all_of(*range(100))], [all_of(*range(900, 1_100))])
    found = figures(usual)
    assert (found.builds, found.entries, found.misses) == (1, 1_000, 300)
    assert found.hits == 200
    assert found.bytes > 8 * 1_000


def test_few_keys_are_asked_of_sql_and_count_for_no_index(usual: Dimension) -> None:
    usual.run([rows(0, 10)], *[[all_of(*range(owned.FEW))]] * 20)
    assert figures(usual) == LookupFigures(misses=20 * owned.FEW)


def test_what_has_changed_is_asked_of_sql_until_it_is_taken_in(usual: Dimension) -> None:
    usual.run([rows(0, 3_000)])
    usual.run([all_of(*range(1_000))])
    before = figures(usual).misses
    usual.run([["update", "note", "new", [1, 2]], rows(5_000, 3), all_of(*range(100), 5_000)])
    assert figures(usual).misses == before + 3
    assert figures(usual).behind == 5
    changed = list(range(10, 10 + owned.ADVANCE_AT))
    usual.run([["update", "note", "newer", changed]])
    usual.run([all_of(*range(400))])
    assert figures(usual).behind == 0
    assert figures(usual).misses == before + 3
    assert figures(usual).builds == 1


def test_a_lookup_sees_what_its_own_transaction_wrote_and_not_what_it_took_back(
    usual: Dimension,
) -> None:
    usual.run([rows(0, 100)], [all_of(*range(100))])
    usual.run(
        [rows(200, 500), ["delete", *range(50)], all_of(*range(100), *range(200, 700)), ["abort"]],
        [all_of(*range(100), *range(200, 700))],
    )
    usual.call([rows(200, 5), ["delete", *range(50)]])
    usual.run([all_of(*range(100), *range(200, 700))])


def test_an_index_that_is_built_amid_a_transaction_holds_nothing_that_is_taken_back(
    usual: Dimension,
) -> None:
    usual.run([rows(0, 100)])
    usual.run(
        [["update", "note", "never", [1, 2]], rows(200, 3), all_of(*range(100), 201), ["abort"]]
    )
    assert figures(usual).builds == 1
    usual.call([["update", "note", "w", [5, 6, 7]]])
    usual.run([all_of(*range(100), *range(200, 210))])


def test_the_index_that_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    flow = Dataflow("room")
    asked = flow.stream("asked", "name TEXT NOT NULL", batches=by_count(1))
    fillers = [f"{n:01000}" for n in range(400)]
    made = [
        flow.table(name, "k INTEGER PRIMARY KEY, v TEXT NOT NULL", list(enumerate(fillers)))
        for name in ("one", "two", "three")
    ]
    found = {t.name: flow.lookup(t.name, t, key="k", gives="v") for t in made}

    @flow.procedure(takes=asked, looks=list(found.values()))
    def ask(tx: Transaction, batch: Batch) -> None:
        for row in batch.rows():
            assert tx.lookup(found[str(row["name"])], list(range(400)))["v"].to_pylist() == (
                fillers
            )

    with Trial(flow, Settings(durability="weak", lookups_mb_max=1)) as trial:

        def held(*names: str) -> list[str]:
            for name in names:
                trial.batch(asked=[{"name": name}])
            there = trial._cores[0].metrics.lookups.items()
            return [name.removeprefix("room.") for name, of in there if of.entries]

        assert held("one", "two") == ["one", "two"]
        assert held("one", "three") == ["one", "three"]
        assert held("two") == ["two", "three"]


def test_what_does_not_fit_at_all_is_answered_by_sql_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Dimension(tmp_path, "text", lookups_mb_max=1)
    made.run([rows(0, 20_000)], *[[all_of(*range(3_000))]] * 4)
    assert caplog.text.count("does not fit into core.lookups_mb_max") == 1
    assert figures(made) == LookupFigures(misses=12_000)
    made.close()


def test_texts_are_held_once_where_they_are_few_and_become_many_without_harm(
    usual: Dimension, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FEW_TEXTS", 2)
    monkeypatch.setattr(versions, "RATIO", 1_000)  # what is put on top is merged at once
    usual.run([rows(0, 3_000)])
    usual.run([all_of(*range(3_000))])
    few = figures(usual).bytes
    changed = range(owned.ADVANCE_AT)
    usual.run([["update", "note", "v", list(changed)]])
    usual.run([all_of(*range(3_000))])
    usual.run([["update", "note", f"n{n}", [n]] for n in changed])
    usual.run([all_of(*range(3_000))])
    assert figures(usual).behind == 0
    assert figures(usual).builds == 1
    assert figures(usual).bytes - few > 4 * 3_000, "the place of each text, of 8 bytes and not of 4"


def test_a_key_of_many_more_versions_than_others_is_found_as_they_are(tmp_path: Path) -> None:
    made = Dimension(tmp_path, "number")
    many = [[1_000 + n, 7, "x", 3 * n, "2020", 0.5, "u"] for n in range(1_000)]
    made.run([rows(0, 7), rows(8, 400), ["insert", *many]])
    asked = ["look", *([n % 20, "x", n, "2020"] for n in range(-2, 3_003))]
    made.run([asked], [asked])
    assert figures(made).hits > 0
    assert not made.wrong, made.wrong
    made.close()


@pytest.mark.parametrize("moment", ["2020\0", "2020" * 20])
def test_moments_that_do_not_sort_as_bytes_are_answered_by_sql(
    usual: Dimension, moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    usual.run([rows(0, 90)], [all_of(*range(90))], [rows(100, 1, d=moment)])
    usual.run(
        [["update", "note", "v", list(range(90))]], [["update", "note", "w", list(range(90))]]
    )
    usual.run([["update", "note", "x", list(range(101))]])
    for d in ("2020", moment, moment + "x"):
        usual.run([all_of(*range(101), d=d)])
    assert "is answered by SQL" in caplog.text
    assert figures(usual).entries == 0


def test_the_log_of_changes_does_not_grow_without_bound(
    usual: Dimension, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "KEPT", 100)
    monkeypatch.setattr(changes, "TRIM_EVERY", 20)
    usual.run([rows(0, 50)])
    sql = 'SELECT count(*) FROM "headrace_changes dim b"'
    connection = usual.core._store.connection
    assert connection.execute(sql).fetchone() == (0,), "what is appended is not written down"
    for _ in range(20):
        usual.run([["update", "note", "v", list(range(50))]])
        assert connection.execute(sql).fetchone()[0] <= 100 + 50
    usual.run([all_of(*range(60))])


def test_who_makes_calls_goes_on_when_the_table_was_brought_over(tmp_path: Path) -> None:
    """The rows come over without triggers: an index of before must know that it is one."""
    made = Dimension(tmp_path, "text")
    assert made.caller is not None
    made.run([rows(0, 90)])
    made.call([all_of(*range(90))])
    assert made.caller._store.lookups.figures["history.found"].builds == 1
    was = made.flow.tables["dim"].columns.sql
    made.flow = dataflow("text", made.wrong, checks=", CHECK (sk >= 0)")

    @made.flow.migration(made.flow.tables["dim"], was=was)
    def anew(tx: Transaction) -> None:
        tx.execute("INSERT INTO dim SELECT sk, a, b, t, d, price, 'anew' FROM dim_was")

    made.restart()
    made.call([all_of(*range(90))])
    made.run([all_of(*range(90))])
    assert not made.wrong, made.wrong
    made.close()


DIM = "sk INTEGER PRIMARY KEY, k INTEGER, r REAL, d TEXT, n TEXT NOT NULL, UNIQUE (k, d)"


def declared(columns: str = DIM, **more: Any) -> Dataflow:
    flow = Dataflow("strict")
    of = {"key": "k", "at": "d", "gives": ["sk", "n"], **more}
    flow.lookup("found", flow.table("dim", columns), **of)
    return flow


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"key": "x"}, "has no column x"),
        ({"at": "x"}, "has no column x"),
        ({"gives": ["x"]}, "has no column x"),
        ({"gives": []}, "gives nothing that is NOT NULL"),
        ({"gives": ["r", "d"]}, "gives nothing that is NOT NULL"),
        ({"key": "r"}, "r is REAL"),
        ({"key": ()}, "has no key"),
        ({"key": ["k", "d"]}, "names a column twice"),
        ({"gives": ["n", "n"]}, "names a column twice"),
        ({"at": ""}, r"not UNIQUE \(k\)"),
        ({"key": "n"}, r"not UNIQUE \(n, d\)"),
        ({"key": "d", "at": "k"}, r"not UNIQUE \(d, k\)"),
        ({"key": "sk", "at": "", "or_earliest": True}, "gives the earliest version, and has none"),
        ({"columns": DIM.replace("d TEXT", "d TEXT COLLATE NOCASE")}, "not UNIQUE"),
        ({"columns": DIM.replace("(k, d)", "(k, d COLLATE NOCASE)")}, "not UNIQUE"),
    ],
)
def test_a_lookup_that_could_not_answer_is_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        declared(**more)


@pytest.mark.parametrize(
    "more", [{}, {"key": "sk", "at": ""}, {"key": ["k", "d"], "at": ""}, {"gives": "n"}]
)
def test_a_lookup_finds_by_what_is_unique(more: dict[str, Any]) -> None:
    assert declared(**more).lookups


def test_a_lookup_over_a_table_that_nobody_declares_here_is_refused_at_the_start(
    tmp_path: Path,
) -> None:
    flow, other = Dataflow("strict"), Dataflow("other")
    flow.lookup("found", other.table("elsewhere", DIM), key="k", at="d", gives="n")
    flow.call()(nothing)
    with pytest.raises(DefinitionChanged, match="over elsewhere, which this core does not hold"):
        Trial(flow).__enter__()


def nothing(tx: Transaction) -> None:
    """Do nothing."""


def asking(ask: Any, *, looks: bool = True) -> Trial:
    """Make a trial of a call that does it with a transaction and a lookup."""
    flow = Dataflow("asking")
    dim = flow.table("dim", DIM, [(1, 7, None, "2020", "tea")])
    found = flow.lookup("found", dim, key="k", at="d", gives=["sk", "n"])

    @flow.call(looks=[found] if looks else [])
    def look(tx: Transaction) -> None:
        ask(tx, found)

    return Trial(flow)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda tx, found: tx.lookup("found", [7], ["2020"]), "which is no lookup"),
        (lambda tx, found: tx.lookup(found, [7]), "without a moment"),
        (lambda tx, found: tx.lookup(found, ["7"], ["2020"]), "a k that is no INTEGER"),
        (lambda tx, found: tx.lookup(found, [2**63], ["2020"]), "a k that is no INTEGER"),
        (lambda tx, found: tx.lookup(found, [7.5], ["2020"]), "a k that is no INTEGER"),
        (lambda tx, found: tx.lookup(found, [7], [2020]), "a d that is no TEXT"),
        (lambda tx, found: tx.lookup(found, [7], pa.array([2020])), "a d that is no TEXT"),
        (lambda tx, found: tx.lookup(found, pa.array(["7"]), ["x"]), "a k that is no INTEGER"),
        (lambda tx, found: tx.lookup(found, [7, 8], ["2020"]), "of different lengths"),
    ],
)
def test_what_does_not_fit_a_lookup_is_refused(ask: Any, says: str) -> None:
    with asking(ask) as trial, pytest.raises(CoreError, match=says):
        trial.call("look")


def test_a_lookup_that_is_not_declared_is_refused_and_the_message_names_what_to_add() -> None:
    with (
        asking(lambda tx, found: tx.lookup(found, [7], ["2020"]), looks=False) as trial,
        pytest.raises(AccessDenied, match="looks up in found") as refused,
    ):
        trial.call("look")
    assert "looks=[..., found]" in refused.value.hint


def test_keys_and_moments_come_as_arrow_has_them_or_as_lists() -> None:
    answers: list[Any] = []

    def ask(tx: Transaction, found: Any) -> None:
        days = pa.array(["2021", None, "2019"])
        for keys in ([7, 7, 7], pa.array([7, 7, 7], pa.int8()), pa.chunked_array([[7], [7, 7]])):
            moments = (days, days.cast(pa.large_string()), days.dictionary_encode())
            answers.extend(tx.lookup(found, keys, at).to_pylist() for at in moments)
        answers.append(tx.lookup(found, pa.nulls(3), days).to_pylist())
        assert tx.lookup(found, [], []).num_rows == 0

    with asking(ask) as trial:
        trial.call("look")
    none = {"sk": None, "n": None}
    assert answers == [[{"sk": 1, "n": "tea"}, none, none]] * 9 + [[none] * 3]


def test_the_triggers_of_the_log_give_nobody_a_right_to_it() -> None:
    log = '"headrace_changes dim k"'
    named = f"WITH {log} AS (SELECT * FROM dim) SELECT * FROM {log}"
    for sql in ("SELECT * FROM dim", named, f"DELETE FROM {log}"):
        with (
            asking(lambda tx, found, sql=sql: tx.query(sql)) as trial,
            pytest.raises(AccessDenied),
        ):
            trial.call("look")


def test_a_trigger_looks_up_too() -> None:
    flow = Dataflow("triggered")
    dim = flow.table("dim", DIM, [(1, 7, None, "2020", "tea")])
    out = flow.table("out", "n TEXT")
    found = flow.lookup("found", dim, key="k", at="d", gives=["n"])
    taken = flow.stream("taken", "k INTEGER NOT NULL", batches=by_count(1))
    passed = flow.stream("passed", "k INTEGER NOT NULL")

    @flow.procedure(takes=taken, gives=passed)
    def hand_on(tx: Transaction, batch: Batch) -> None:
        tx.emit(passed, batch.table)

    @flow.procedure(takes=passed)
    def take(tx: Transaction, batch: Batch) -> None:
        pass

    @flow.trigger(on=passed, writes=out, looks=found)
    def look(tx: Transaction, batch: Batch) -> None:
        names = tx.lookup(found, batch.table["k"], ["2026"] * len(batch))["n"].to_pylist()
        tx.executemany("INSERT INTO out VALUES (?)", [(name,) for name in names])

    with Trial(flow) as trial:
        trial.batch(taken=[{"k": 7}, {"k": 8}])
        assert trial.query("SELECT * FROM out") == [{"n": "tea"}, {"n": None}]


def test_what_a_statement_changes_is_counted_without_the_log(usual: Dimension) -> None:
    flow = Dataflow("counted")
    dim = flow.table("dim", DIM)
    flow.lookup("found", dim, key="k", at="d", gives=["n"])
    row = "VALUES (1, 1, 0.0, 'a', 'x'), (2, 1, 0.0, 'b', 'x')"
    counts: list[Any] = []

    @flow.call(writes=dim)
    def count(tx: Transaction) -> None:
        counts.append(tx.execute(f"INSERT INTO dim {row}"))
        counts.append(tx.execute("UPDATE dim SET k = 2"))
        counts.append(tx.execute("WITH x AS (SELECT 1) UPDATE dim SET k = 3 WHERE sk = 1"))
        counts.append(tx.execute("SELECT * FROM dim"))
        counts.append(tx.executemany("UPDATE dim SET k = ? WHERE sk = ?", [(5, 1), (6, 2)]))
        counts.append(tx.execute("DELETE FROM dim WHERE sk = 9"))
        counts.append(len(tx.query("DELETE FROM dim RETURNING sk")))

    with Trial(flow) as trial:
        trial.call("count")
    assert counts == [2, 2, 1, 0, 2, 0, 2]


def test_two_processes_change_and_look_up_and_one_is_killed(tmp_path: Path) -> None:
    """What the one writes, the other finds at once; and who comes after a kill, all of it."""
    program = [sys.executable, str(Path(__file__).with_name("dimension.py")), str(tmp_path)]
    made = Dimension(tmp_path, "text")
    made.run([rows(0, 300)])
    made.core.close()
    for kill in range(2):
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            for turn in range(1, 7):
                assert other.stdout.readline().split() == [str(turn)]
                made.call(busy(10_000 * (kill + 1) + turn, 300))
            other.kill()
        made.open()
        made.run(*(busy(7 * n + kill, 300) for n in range(5)))
        made.call(busy(kill, 300))
        made.core.close()
        assert not made.wrong, made.wrong.pop()
    assert made.caller is not None
    assert made.caller._store.lookups.figures["history.found"].hits > 1_000
    made.caller.close()


def test_who_asks_is_excused_for_the_time_that_an_index_takes(
    usual: Dimension, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual.core._settings = replace(usual.core._settings, statement_ms_max=500)
    build = owned.Owned._build

    def slowly(*of: Any) -> Any:
        sleep(0.6)
        return build(*of)

    monkeypatch.setattr(owned.Owned, "_build", slowly)
    usual.run([rows(0, 100)])
    usual.run([all_of(*range(100)), *[["update", "note", "n", list(range(100))]] * 50])
    assert figures(usual).builds == 1
    assert usual.core.metrics.aborts == {}
