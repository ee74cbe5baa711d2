"""Lookups abroad: whether asked or copied, the answer is the warehouse's, and never too old."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
from abroad import Abroad, away
from dimension import SHAPES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_lookups import DAYS, LOOKS, ROWS, SKS
from wire import Wire

from etl_procs import Lookup, Strategy
from etl_procs.errors import Unanswered
from etl_procs.metrics import LookupFigures
from etl_procs.versions import Layout, Stack, Versions
from migrations import asking
from migrations.asking import Asker

AGE_S = 10.0
WAYS: dict[str, dict[str, Any]] = {
    "warehouse": {"strategy": Strategy.WAREHOUSE},
    "replica": {"strategy": Strategy.REPLICA, "max_age_s": AGE_S},
    "changes": {"strategy": Strategy.REPLICA, "max_age_s": AGE_S, "version": "changed"},
    "auto": {"strategy": Strategy.AUTO, "max_age_s": AGE_S},
}
UPDATES = st.lists(st.tuples(st.sampled_from("xyz"), DAYS, SKS), max_size=3)
UPDATE = """
UPDATE crm.dim SET note = %s, d = CASE WHEN %s THEN %s ELSE d END, changed = nextval('crm.change')
WHERE sk = %s"""
STEPS = st.tuples(st.lists(ROWS, max_size=6), UPDATES, LOOKS)


class Makes(Protocol):
    def __call__(self, way: str, shape: str = "text", **more: Any) -> Abroad: ...


@pytest.fixture
def make(tmp_path: Path, warehouse_url: str) -> Iterator[Makes]:
    with ExitStack() as made:

        def new(way: str, shape: str = "text", **more: Any) -> Abroad:
            one = Abroad(tmp_path, warehouse_url, shape, **{**WAYS[way], **more})
            made.callback(one.close)
            return one

        yield new


@pytest.fixture(params=sorted(WAYS))
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=sorted(SHAPES))
def dimension(request: pytest.FixtureRequest, way: str, make: Makes) -> Abroad:
    return make(way, request.param)


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=1, max_size=4))
def test_the_answer_is_what_the_warehouse_says(dimension: Abroad, steps: list[Any]) -> None:
    """One database sees all of the histories; for each, a process begins anew."""
    dimension.warehouse.execute("TRUNCATE crm.dim")
    dimension.caller.close()
    dimension.open()
    for rows, updates, asked in steps:
        dimension.put(*rows)
        for note, day, sk in updates:
            # By a version it is not seen that a row is gone, or has another key or moment.
            moves = not dimension.foreign.version
            with suppress(psycopg.errors.UniqueViolation):
                dimension.warehouse.execute(UPDATE, [note, moves, day, sk])
        dimension.clock.advance(AGE_S + 1)
        assert dimension.ask(*asked) == dimension.right(*asked)


KEYS = [(n, f"x{n}", 0, "2026") for n in range(200)]


def rows(count: int, note: str = "n", first: int = 0) -> list[Any]:
    return [(n, n, f"x{n}", 0, "2020", None, note) for n in range(first, first + count)]


def notes(made: Abroad) -> set[str | None]:
    return {row["note"] for row in made.ask(*KEYS)}


def noted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note what the warehouse is asked for from now on."""
    asked: list[Any] = []
    ask = Asker.ask

    def noting(self: Asker, lookup: Lookup, keys: Any) -> Any:
        asked.append(keys)
        return ask(self, lookup, keys)

    monkeypatch.setattr(Asker, "ask", noting)
    return asked


def test_each_key_of_a_batch_is_asked_for_once_and_all_in_one_statement(
    make: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make("warehouse")
    made.put(*rows(3))
    asked = noted(monkeypatch)
    found = made.ask(*KEYS[:2], *KEYS[:2], (0, None, 0, "2026"), (0, "x0", 0, None))
    assert [row["sk"] for row in found] == [0, 1, 0, 1, None, None]
    assert asked == [[("x0", "2026"), ("x1", "2026")]]
    assert made.ask((0, None, 0, None)) == [dict.fromkeys(found[0])]
    assert len(asked) == 1, "there was nothing to ask"


def test_what_is_asked_is_of_now_and_what_was_not_there_is_not_remembered(make: Makes) -> None:
    made = make("warehouse")
    assert notes(made) == {None}
    made.put(*rows(200))
    assert notes(made) == {"n"}
    made.warehouse.execute("UPDATE crm.dim SET note = 'm'")
    assert notes(made) == {"m"}
    assert made.figures == LookupFigures(misses=600, strategy="warehouse")


def test_a_replica_answers_until_it_is_half_as_old_as_it_may_be_and_is_then_read_again(
    make: Makes,
) -> None:
    made = make("replica")
    made.put(*rows(200, "old"))
    assert notes(made) == {"old"}
    made.warehouse.execute("UPDATE crm.dim SET note = 'new'")
    made.clock.advance(AGE_S / 2 - 1)
    assert notes(made) == {"old"}
    found = made.figures
    assert (found.builds, found.hits, found.misses, found.entries) == (1, 400, 0, 200)
    assert found.age_s == AGE_S / 2 - 1
    made.clock.advance(1)
    assert notes(made) == {"new"}
    assert (made.figures.builds, made.figures.age_s) == (2, 0)


def test_a_replica_answers_while_the_warehouse_is_away_and_never_beyond_its_age(
    make: Makes, warehouse_url: str
) -> None:
    made = make("replica")
    made.put(*rows(200))
    assert notes(made) == {"n"}
    with away(warehouse_url):
        made.clock.advance(AGE_S)
        assert notes(made) == {"n"}
        made.clock.advance(0.1)
        with pytest.raises(Unanswered, match="not currently accepting connections"):
            notes(made)
        assert made.figures.waits == 1
    made.clock.advance(asking.AGAIN_S)
    assert notes(made) == {"n"}


def test_what_a_copy_does_not_find_is_asked_each_time_and_not_remembered(
    make: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make("replica")
    made.put(*rows(100))
    assert made.ask(*KEYS[:100]) == made.right(*KEYS[:100])
    asked = noted(monkeypatch)
    assert made.ask(*KEYS, *KEYS, (0, None, 0, "2026")) == made.right(*KEYS, *KEYS, (0, "-", 0, ""))
    made.put(*rows(100, first=100), (300, 300, "x7", 0, "2019", None, "earlier"))
    assert notes(made) == {"n"}
    (found,) = made.ask((7, "x7", 0, "2019-05"))
    assert found["note"] == "earlier"
    later = [("x" + str(n), "2026") for n in range(100, 200)]
    assert asked == [later, later, [("x7", "2019-05")]]
    assert (made.figures.hits, made.figures.misses, made.figures.builds) == (401, 301, 1)


def test_what_a_copy_does_not_find_is_not_said_to_be_missing_while_the_warehouse_is_away(
    make: Makes, warehouse_url: str
) -> None:
    made = make("replica")
    made.put(*rows(100))
    assert made.ask(*KEYS[:100]) == made.right(*KEYS[:100])
    with away(warehouse_url):
        with pytest.raises(Unanswered):
            notes(made)
        assert made.ask(*KEYS[:100]) == made.right(*KEYS[:100])
    assert made.figures.waits == 1


def test_auto_goes_back_to_asking_when_a_copy_finds_nothing_of_what_is_asked(
    make: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make("auto")
    let_it_take(made, monkeypatch)
    made.put(*rows(200))
    made.warehouse.execute("ANALYZE crm.dim")
    for _ in range(5):
        assert notes(made) == {"n"}
    assert made.figures.strategy == "replica"
    strangers = [(0, f"y{n}", 0, "2026") for n in range(200)]
    for _ in range(3):
        made.clock.advance(AGE_S)
        for _ in range(5):
            assert made.ask(*strangers) == made.right(*strangers)
    assert (made.figures.strategy, made.figures.entries) == ("warehouse", 0)
    builds = made.figures.builds
    for _ in range(5):
        made.clock.advance(AGE_S)
        for _ in range(5):
            assert made.ask(*strangers) == made.right(*strangers)
    assert made.figures.builds == builds
    for _ in range(5):
        assert notes(made) == {"n"}
    assert made.figures.strategy == "replica"


def test_a_process_that_begins_anew_copies_anew(make: Makes) -> None:
    made = make("replica")
    made.put(*rows(200, "old"))
    assert notes(made) == {"old"}
    made.caller.close()
    made.warehouse.execute("UPDATE crm.dim SET note = 'new'")
    made.open()
    assert notes(made) == {"new"}


def test_with_a_version_only_what_has_changed_is_read_again(
    make: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make("changes")
    made.put(*rows(200, "old"))
    read: list[int] = []
    of = Asker.read

    def noting(self: Asker, lookup: Lookup, after: str = "") -> Iterator[Any]:
        for piece in of(self, lookup, after):
            read.append(len(piece))
            yield piece

    monkeypatch.setattr(Asker, "read", noting)
    assert notes(made) == {"old"}
    for _ in range(3):
        made.clock.advance(AGE_S)
        assert notes(made) == {"old"}
    assert read == [200]
    made.warehouse.execute(UPDATE, ["new", False, None, 7])
    made.put(*rows(2, "more", first=198), (300, 300, "x7", 0, "2021", None, "newer"))
    made.clock.advance(AGE_S)
    assert made.ask(*KEYS) == made.right(*KEYS)
    assert read == [200, 2], "both versions of one key"


@pytest.mark.parametrize(
    "how",
    [
        "TRUNCATE crm.dim",
        "TRUNCATE crm.dim; ALTER SEQUENCE crm.change RESTART; "
        "INSERT INTO crm.dim SELECT n, n, 'x' || n, 0, '2020', NULL, 'new', nextval('crm.change') "
        "FROM generate_series(0, 99) AS n",
        "UPDATE crm.dim SET note = 'restored', changed = changed - 100",
        "DELETE FROM crm.dim WHERE changed = (SELECT max(changed) FROM crm.dim)",
    ],
    ids=["emptied", "reloaded", "restored", "the last one"],
)
def test_when_a_version_goes_back_all_is_read_again(make: Makes, how: str) -> None:
    made = make("changes")
    made.put(*rows(200, "old"))
    assert notes(made) == {"old"}
    made.warehouse.execute(how)
    for note in ("a", "b"):
        made.clock.advance(AGE_S)
        assert made.ask(*KEYS) == made.right(*KEYS)
        made.warehouse.execute(UPDATE, [note, False, None, 7])


def test_an_empty_layer_is_not_put_on_top(make: Makes) -> None:
    layout = Layout(make("replica", "number_alone").lookup)
    stack = Stack(layout, Versions.of(layout, layout.table([(1, 1, None, "n")])))
    stack.put_on_top(Versions.of(layout, layout.table([])))
    assert len(stack._held) == 1


def test_a_renewal_that_fails_slowly_is_not_tried_again_with_each_question(
    make: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, tried = make("replica"), []
    made.put(*rows(200))
    assert notes(made) == {"n"}

    def fails(self: Asker, lookup: Lookup, after: str = "") -> Iterator[Any]:
        tried.append(made.clock.monotonic())
        made.clock.advance(0.3)
        yield from ()
        raise Unanswered("it is away", hint="")

    monkeypatch.setattr(Asker, "read", fails)
    made.clock.seconds = AGE_S / 2
    for _ in range(5):
        assert notes(made) == {"n"}
        made.clock.advance(0.5)
    assert tried == [5.0]
    made.clock.seconds = 8.4
    assert notes(made) == {"n"}
    made.clock.seconds = 10.1
    with pytest.raises(Unanswered):
        notes(made)
    assert tried == [5.0, 8.4, 10.1], "what is too old is read, however lately that failed"


@pytest.mark.parametrize("took_s", [0.6 * AGE_S, AGE_S + 1])
def test_a_copy_that_takes_too_long_to_read_does_not_answer(
    make: Makes, monkeypatch: pytest.MonkeyPatch, took_s: float
) -> None:
    made = make("replica")
    made.put(*rows(200))
    of = Asker.read

    def slowly(self: Asker, lookup: Lookup, after: str = "") -> Iterator[Any]:
        yield from of(self, lookup, after)
        made.clock.advance(took_s)

    monkeypatch.setattr(Asker, "read", slowly)
    assert notes(made) == {"n"}
    assert (made.figures.misses, made.figures.hits, made.figures.entries) == (200, 0, 0)
    assert "to read it took longer than a renewal may" in made.figures.why


@pytest.mark.parametrize(
    ("moment", "more", "says"),
    [("2020" * 20, {}, "longer than 64 bytes"), ("2020", {"lookups_mb_max": 0}, "does not fit")],
)
def test_what_cannot_be_copied_is_asked_and_said_once(
    make: Makes, caplog: pytest.LogCaptureFixture, moment: str, more: dict[str, Any], says: str
) -> None:
    made = make("replica", **more)
    made.put(*((n, n, f"x{n}", 0, moment, None, "n") for n in range(200)))
    for _ in range(3):
        assert notes(made) == {"n"}
        made.clock.advance(AGE_S)
    assert caplog.text.count(says) == 1
    assert made.figures.misses == 600
    assert made.figures.strategy == "warehouse"


def let_it_take(made: Abroad, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a statement take 1 ms, and a key or a row 10 us."""
    ask, read = Asker.ask, Asker.read

    def asking_takes(self: Asker, lookup: Lookup, asked: Any) -> Any:
        made.clock.advance(1e-3 + 1e-5 * len(asked))
        return ask(self, lookup, asked)

    def reading_takes(self: Asker, lookup: Lookup, after: str = "") -> Iterator[Any]:
        for piece in read(self, lookup, after):
            made.clock.advance(1e-5 * len(piece))
            yield piece

    monkeypatch.setattr(Asker, "ask", asking_takes)
    monkeypatch.setattr(Asker, "read", reading_takes)


def test_a_copy_that_makes_room_is_asked_instead_until_it_pays_to_copy_it_again(
    make: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make("replica")
    let_it_take(made, monkeypatch)
    made.put(*rows(1_000))
    made.warehouse.execute("ANALYZE crm.dim")
    assert notes(made) == {"n"}
    (kept,) = made.caller._store.lookups._kept.values()
    kept.drop()
    assert notes(made) == {"n"}
    found = made.figures
    assert (found.misses, found.entries, found.age_s) == (200, 0, 0)
    assert (found.strategy, found.why) == ("warehouse", "others needed the memory")
    for _ in range(5):
        assert notes(made) == {"n"}
    assert (made.figures.strategy, made.figures.entries) == ("replica", 1_000)


def test_a_question_that_is_cut_anywhere_is_asked_again_and_answered_right(
    make: Makes, warehouse_url: str, way: str
) -> None:
    with Wire(warehouse_url).open() as wire:
        made = make(way, reached=wire.url)
        made.put(*rows(200))
        for step in count(1):
            made.caller.close()
            made.open()
            wire.cut_at(step)
            try:
                answered = made.ask(*KEYS)
            except Unanswered:
                assert wire.was_cut
                made.clock.advance(asking.AGAIN_S)
                answered = made.ask(*KEYS)
            assert answered == made.right(*KEYS)
            if not wire.was_cut:
                break
        assert step > 3


def test_where_nothing_is_asked_nothing_is_measured(make: Makes) -> None:
    made = make("auto")
    for _ in range(3):
        assert made.ask((0, None, 0, "2026")) == made.right((0, None, 0, "2026"))
    kept: Any = next(iter(made.caller._store.lookups._kept.values()))
    assert kept._choice._asking.weight == 0
    made.ask((0, "x", 0, "2026"), *[(0, "y", 0, "2026")] * 9)
    assert (kept._choice._asking.weight, kept._choice._asking.x) == (1, 2)


def test_auto_asks_copies_when_that_costs_less_and_asks_again_and_says_why(
    make: Makes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    made = make("auto")
    let_it_take(made, monkeypatch)
    made.put(*rows(1_000))
    made.warehouse.execute("ANALYZE crm.dim")
    assert notes(made) == {"n"}
    assert made.figures == LookupFigures(misses=200, strategy="warehouse")
    for _ in range(3):
        assert notes(made) == {"n"}
    assert (made.figures.strategy, made.figures.builds) == ("replica", 1)
    assert made.figures.hits > 0
    assert "lookup abroad.found: replica from now on: in 5 s, to ask for" in caplog.text
    for _ in range(2):
        made.clock.advance(AGE_S)
        assert made.ask(KEYS[0]) == made.right(KEYS[0])
    assert (made.figures.strategy, made.figures.entries) == ("warehouse", 0)
    assert "warehouse from now on: in 5 s, to ask for 1 keys by 1 statements" in caplog.text
    assert "to keep the copy 0.01 s" in made.figures.why


LIVE = """
ALTER TABLE crm.dim RENAME TO main;
CREATE TABLE crm.delta (LIKE crm.main);
CREATE VIEW crm.dim AS SELECT * FROM crm.delta UNION ALL
SELECT * FROM crm.main WHERE NOT EXISTS (SELECT FROM crm.delta WHERE delta.sk = main.sk)"""
SPLIT = """
DROP TABLE crm.dim;
CREATE TABLE crm.dim (sk bigint, a bigint, b text, t bigint, d text, price double precision,
  note text, changed bigint) PARTITION BY RANGE (sk);
CREATE TABLE crm.low PARTITION OF crm.dim FOR VALUES FROM (MINVALUE) TO (500);
CREATE TABLE crm.high PARTITION OF crm.dim FOR VALUES FROM (500) TO (MAXVALUE);
CREATE UNIQUE INDEX ON crm.dim (sk)"""
PLAIN = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'crm'::regnamespace"


@pytest.mark.parametrize("is_analysed", [True, False], ids=["analysed", "never analysed"])
@pytest.mark.parametrize("made_as", ["", LIVE, SPLIT], ids=["table", "live", "partitioned"])
def test_auto_copies_a_table_that_is_full_of_what_updates_left_behind(
    make: Makes, monkeypatch: pytest.MonkeyPatch, made_as: str, is_analysed: bool
) -> None:
    made = make("auto")
    let_it_take(made, monkeypatch)
    made.warehouse.execute(made_as.encode())
    # Nothing is cleared away meanwhile, nor counted.
    for table in made.warehouse.execute(PLAIN).fetchall():
        made.warehouse.execute("ALTER TABLE crm.{} SET (autovacuum_enabled = off)".format(*table))
    into = "crm.main" if made_as == LIVE else "crm.dim"
    for row in rows(1_000):
        made.warehouse.execute(f"INSERT INTO {into} VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
    if is_analysed:
        made.warehouse.execute(f"ANALYZE {into}".encode())
    for _ in range(30):
        made.warehouse.execute(f"UPDATE {into} SET sk = sk, note = note || ''".encode())
    made.warehouse.execute("SELECT pg_stat_force_next_flush()")
    for _ in range(5):
        assert notes(made) == {"n"}
    assert (made.figures.strategy, made.figures.entries) == ("replica", 1_000)
