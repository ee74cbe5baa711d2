"""Definitions that change: what comes over by itself, what a user has to write, what is refused."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from trial import Trial, dump, named, nothing, pass_on

from etl_procs import (
    Batch,
    Dataflow,
    Transaction,
    by_punctuation,
    last_batches,
    last_tuples,
)
from etl_procs.core import core_path
from etl_procs.errors import DefinitionChanged
from etl_procs.rules import Extent
from headrace.errors import DefinitionError, Refused

N = "n INTEGER NOT NULL"
ITEM = "id INTEGER PRIMARY KEY, name TEXT"


@pytest.fixture
def open_with(tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    made: list[Trial] = []

    def make(*flows: Dataflow) -> Trial:
        made.append(Trial(core_path(tmp_path), *flows))
        return made[-1]

    yield make
    for trial in made:
        trial.close()


Open = Callable[..., Trial]


def with_table(columns: str, rows: Sequence[Sequence[Any]] = (), **more: str) -> Dataflow:
    flow = Dataflow("f")
    flow.table("items", columns, rows)
    for name, declared in more.items():
        flow.table(name, declared)
    return flow


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        (f"{ITEM}, price REAL", (1, "one", None)),
        (f"{ITEM}, price REAL NOT NULL DEFAULT 2.5", (1, "one", 2.5)),
        (f"{ITEM}, kind TEXT DEFAULT 'a, (b)', size INTEGER", (1, "one", "a, (b)", None)),
        (f"{ITEM}, kind TEXT DEFAULT 'a,  it''s'", (1, "one", "a,  it's")),
        (f"{ITEM}, size REAL -- it's, in m\n NOT NULL DEFAULT -1.5", (1, "one", -1.5)),
        (f"{ITEM}, price REAL CHECK (price > 0)", (1, "one", None)),
        ("id  INTEGER\n PRIMARY KEY,  name TEXT", (1, "one")),
    ],
)
def test_columns_added_at_the_end_come_by_themselves(
    open_with: Open, columns: str, row: tuple[Any, ...]
) -> None:
    trial = open_with(with_table(ITEM, [(1, "one")]))
    trial.reopen(with_table(columns))
    assert trial.query("SELECT * FROM items") == [row]
    assert trial.reopen() == []
    assert trial.query("SELECT * FROM items") == [row]


def test_what_was_added_is_said_once(open_with: Open) -> None:
    trial = open_with(with_table(ITEM))
    changed = with_table(f"{ITEM}, price REAL, size INTEGER")
    said = "table items has new columns: price REAL, size INTEGER"
    assert trial.reopen(changed) == [said]
    assert trial.reopen(changed) == []


@pytest.mark.parametrize(
    "columns",
    [
        "id INTEGER PRIMARY KEY",
        "id INTEGER PRIMARY KEY, title TEXT",
        "id INTEGER PRIMARY KEY, name INTEGER",
        "id INTEGER PRIMARY KEY, name TEXT NOT NULL",
        "id TEXT PRIMARY KEY, name TEXT",
        "name TEXT, id INTEGER PRIMARY KEY",
        f"{ITEM}, price REAL NOT NULL",
        f"{ITEM}, code TEXT UNIQUE",
        f"{ITEM}, CHECK (id > 5)",
        f"{ITEM}, price REAL, UNIQUE (name)",
    ],
)
def test_any_other_change_is_refused_with_both_definitions_and_changes_nothing(
    open_with: Open, columns: str
) -> None:
    trial = open_with(with_table(ITEM, [(1, "one")]))
    before = dump(trial.path)
    with pytest.raises(DefinitionChanged, match=r"declared as \(.*core holds \(.*\n.*migration\("):
        trial.reopen(with_table(columns))
    assert dump(trial.path) == before


def test_a_migration_brings_the_rows_over_once(open_with: Open) -> None:
    trial = open_with(with_table(ITEM, [(1, "one"), (2, None)]))
    runs = []

    def changed() -> Dataflow:
        flow = with_table("name TEXT PRIMARY KEY, id INTEGER NOT NULL", [("first", 0)])

        @flow.migration(flow.tables["items"], was=ITEM)
        def by_name(tx: Transaction) -> None:
            runs.append(tx.batch)
            tx.execute("INSERT INTO items SELECT coalesce(name, 'none'), id FROM items_was")

        return flow

    assert trial.reopen(changed()) == ["table items was brought over by by_name"]
    assert trial.reopen(changed()) == []
    assert runs == [0]
    assert trial.query("SELECT * FROM items ORDER BY id") == [("one", 1), ("none", 2)]
    assert trial.query("SELECT name FROM sqlite_schema WHERE name LIKE '%_was'") == []


def test_what_refers_to_a_table_that_is_migrated_keeps_its_rows_and_still_refers_to_it(
    open_with: Open,
) -> None:
    parts = "item INTEGER NOT NULL REFERENCES items ON DELETE CASCADE"
    first = with_table(ITEM, [(1, "one"), (2, "two")])
    first.table("parts", parts, [(1,), (2,)])
    trial = open_with(first)
    flow = with_table("id INTEGER PRIMARY KEY, name TEXT NOT NULL", parts=parts)

    @flow.migration(flow.tables["items"], was=ITEM)
    def over(tx: Transaction) -> None:
        tx.execute("INSERT INTO items SELECT id, name FROM items_was")

    source = flow.stream("source", N, batches=by_punctuation())

    @flow.procedure(takes=source, writes=list(flow.tables.values()))
    def deletes(tx: Transaction, batch: Batch) -> None:
        tx.executemany("DELETE FROM items WHERE id = ?", batch.tuples)

    trial.reopen(flow)
    assert trial.query("SELECT * FROM parts") == [(1,), (2,)]
    trial.run(source, [(1,)])
    assert trial.letters() == []
    assert trial.query("SELECT * FROM parts") == [(2,)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INSERT INTO items SELECT * FROM other", "reads other, which it does not declare"),
        ("INSERT INTO items_was VALUES (5, 'five')", "inserts into items_was"),
        ("INSERT INTO items VALUES (NULL, NULL)", "NOT NULL constraint failed"),
        ("INSERT OR ROLLBACK INTO items SELECT 1, 'a' FROM items_was", "UNIQUE constraint failed"),
    ],
)
def test_a_migration_that_fails_changes_nothing_and_is_named(
    open_with: Open, sql: str, message: str
) -> None:
    trial = open_with(with_table(ITEM, [(1, "one"), (2, "two")], other=ITEM))
    before = dump(trial.path)
    flow = with_table("id INTEGER PRIMARY KEY, name TEXT NOT NULL", other=ITEM)

    @flow.migration(flow.tables["items"], was=ITEM)
    def over(tx: Transaction) -> None:
        tx.execute(sql)

    with pytest.raises(DefinitionError, match=rf"(?s)migration f\.over.*{message}"):
        trial.reopen(flow)
    assert dump(trial.path) == before


def test_a_migration_from_other_columns_is_none_for_these(open_with: Open) -> None:
    trial = open_with(with_table(ITEM))
    flow = with_table("id TEXT PRIMARY KEY")
    flow.migration(flow.tables["items"], was="id INTEGER PRIMARY KEY")(named("over", nothing))
    with pytest.raises(DefinitionChanged, match="the core holds"):
        trial.reopen(flow)


def test_a_name_is_not_taken_over_by_another_kind(open_with: Open) -> None:
    flow = Dataflow("f")
    source = flow.stream("source", N, batches=by_punctuation())
    window = flow.window("recent", N, last_tuples(3))
    flow.procedure(takes=source, gives=[window])(named("fills", pass_on(window)))
    trial = open_with(flow)
    with pytest.raises(DefinitionChanged, match=r"recent is declared as a table.*holds a window"):
        trial.reopen(with_table(ITEM, recent=N))
    other = Dataflow("g")
    other.window("items", N, last_tuples(3))
    trial.reopen(with_table(ITEM))
    with pytest.raises(DefinitionChanged, match=r"items is declared as a window.*holds a table"):
        trial.reopen(other)


def windowed(extent: Extent, columns: str = N, **values: str) -> Dataflow:
    flow = Dataflow("f")
    source = flow.stream("source", N, batches=by_punctuation())
    window = flow.window("recent", columns, extent)
    if values:
        flow.aggregate("total", window, **values)
    flow.procedure(takes=source, gives=[window])(named("fills", pass_on(window)))
    return flow


@pytest.mark.parametrize(
    ("extent", "columns"),
    [
        (last_tuples(4), N),
        (last_tuples(3, slide=2), N),
        (last_batches(3), N),
        (last_tuples(3), f"{N}, m TEXT"),
    ],
)
def test_a_window_that_is_declared_otherwise_is_refused(
    open_with: Open, extent: Extent, columns: str
) -> None:
    trial = open_with(windowed(last_tuples(3)))
    trial.run(trial.flows[0].streams["source"], [(1,)])
    with pytest.raises(DefinitionChanged, match=r"(?s)window recent is declared as .*another name"):
        trial.reopen(windowed(extent, columns))
    trial.reopen(windowed(last_tuples(3)), read_again=False)
    assert trial.query("SELECT n FROM recent") == [(1,)]


def test_an_aggregate_that_changes_is_computed_anew_from_its_window(open_with: Open) -> None:
    trial = open_with(windowed(last_tuples(3), votes="count(*)"))
    trial.run(trial.flows[0].streams["source"], [(n,) for n in range(5)])
    changed = windowed(last_tuples(3), spent="sum(n)", votes="count(*)")
    said = trial.reopen(changed, read_again=False)
    assert said == ["aggregate total was computed anew from its window"]
    assert trial.query("SELECT spent, votes FROM total") == [(9, 3)]
    trial.run(changed.streams["source"], [(10,)])
    assert trial.query("SELECT spent, votes FROM total") == [(17, 3)]
    assert trial.reopen(windowed(last_tuples(3), spent="sum(n)", votes="count(*)")) == []


class Steps(Dataflow):
    """A dataflow of procedures in a row, under the names that a test gives them."""

    def __init__(
        self, *names: str, was: str = "", nest: Sequence[str] = (), columns: str = N
    ) -> None:
        super().__init__("steps")
        self.ran: list[tuple[str, int, int]] = []
        taken = self.stream("source", N, batches=by_punctuation())
        bodies = {}
        for number, name in enumerate(names):
            last = number == len(names) - 1
            given = [] if last else [self.stream(f"s{number}", columns)]
            bodies[name] = self._body(name, given)
            self.procedure(takes=taken, gives=given, was=was if last else "")(bodies[name])
            taken = given[0] if given else taken
        if nest:
            self.nest(*(bodies[name] for name in nest))

    def _body(self, name: str, given: Sequence[Any]) -> Callable[..., None]:
        def body(tx: Transaction, batch: Batch) -> None:
            self.ran.append((name, batch.id, len(batch)))
            for stream in given:
                tx.emit(stream, [dict.fromkeys(stream.columns.names, 1) for _ in batch.tuples])

        return named(name, body)


def feed(trial: Trial, *batches: int) -> None:
    """Run batches of so many tuples."""
    source = trial.flows[0].streams["source"]
    trial.run(source, *([(1,)] * size for size in batches))


def stop_amid_a_round(trial: Trial) -> None:
    """Let a batch arrive, and only the first unit take it before the engine stops."""
    trial.clock.step = 1.0
    trial.end(trial.flows[0].streams["source"], [(1,), (2,)])
    trial.core.commit_next()
    trial.clock.step = 0.0


def test_a_procedure_that_is_added_begins_with_the_next_batch(open_with: Open) -> None:
    trial = open_with(Steps("one"))
    feed(trial, 1, 1)
    longer = Steps("one", "two")
    assert trial.reopen(longer) == ["procedure steps.two is new: it begins with batch 3"]
    feed(trial, 1)
    assert longer.ran == [("one", 3, 1), ("two", 3, 1)]
    assert trial.batch(longer) == 3


def test_a_procedure_that_is_gone_is_said_and_leaves_the_ledger(open_with: Open) -> None:
    trial = open_with(Steps("one", "two"))
    feed(trial, 1)
    shorter = Steps("one")
    assert trial.reopen(shorter) == ["procedure steps.two is gone, after batch 1"]
    feed(trial, 1)
    assert trial.ledger() == {"one": 2}


def test_a_renamed_procedure_goes_on_where_it_was(open_with: Open) -> None:
    trial = open_with(Steps("one", "two"))
    feed(trial, 1)
    stop_amid_a_round(trial)
    renamed = Steps("one", "other", was="two")
    assert trial.reopen(renamed) == ["procedure steps.two is other now"]
    trial.core.drain()
    assert renamed.ran == [("other", 2, 2)]
    assert trial.reopen(Steps("one", "other", was="two")) == []


def test_a_renamed_procedure_that_does_not_say_so_does_not_begin_again_at_batch_one(
    open_with: Open,
) -> None:
    trial = open_with(Steps("one"))
    feed(trial, 1, 1)
    renamed = Steps("other")
    said = trial.reopen(renamed)
    assert sorted(said) == [
        "procedure steps.one is gone, after batch 2",
        "procedure steps.other is new: it begins with batch 3",
    ]
    feed(trial, 1)
    assert renamed.ran == [("other", 3, 1)]


def test_pending_batches_of_a_procedure_that_is_gone_become_dead_letters(open_with: Open) -> None:
    trial = open_with(Steps("one", "two"))
    stop_amid_a_round(trial)
    assert trial.pending() == [("s0", 1)]
    said = trial.reopen(Steps("one"))
    assert said[-1] == (
        "batch 1 of steps.s0 is a dead letter now: the procedure that was to take it is gone"
    )
    (letter,) = trial.letters()
    assert (letter.stream, letter.batch, letter.unit, letter.row_count) == ("s0", 1, "two", 2)
    assert [row["n"] for row in letter.rows()] == [1, 1]
    assert trial.pending() == []
    feed(trial, 1)
    assert trial.ledger() == {"one": 2}


def test_a_batch_whose_procedure_was_gone_runs_when_that_is_declared_again(open_with: Open) -> None:
    trial = open_with(Steps("one", "two", "three"))
    stop_amid_a_round(trial)
    trial.reopen(Steps("one"))
    (letter,) = trial.letters()
    with pytest.raises(Refused, match="no procedure two any more that takes s0"):
        ask(trial, letter.id)
    again = Steps("one", "two", "three")
    trial.reopen(again)
    ask(trial, letter.id)
    trial.core.drain()
    assert again.ran == [("one", 2, 0), ("two", 2, 2), ("three", 2, 2)]
    assert trial.letters() == []


def ask(trial: Trial, *numbers: int) -> None:
    with trial.changing() as dead:
        dead.replay(numbers)


def test_a_pending_batch_that_somebody_still_takes_stays(open_with: Open) -> None:
    trial = open_with(Steps("one", "two", "three"))
    stop_amid_a_round(trial)
    shorter = Steps("one", "two")
    trial.reopen(shorter)
    trial.core.drain()
    assert shorter.ran == [("two", 1, 2)]
    assert trial.letters() == []


@pytest.mark.parametrize("columns", ["m INTEGER NOT NULL", "n TEXT NOT NULL", f"{N}, m INTEGER"])
def test_a_stream_changes_its_columns_only_when_nothing_is_pending_in_it(
    open_with: Open, columns: str
) -> None:
    trial = open_with(Steps("one", "two"))
    stop_amid_a_round(trial)
    before = dump(trial.path)
    with pytest.raises(DefinitionChanged, match=r"batch 1 of steps\.s0.*other columns"):
        trial.reopen(Steps("one", "two", columns=columns))
    assert dump(trial.path) == before
    trial.reopen(Steps("one", "two"))
    trial.core.drain()
    changed = Steps("one", "two", columns=columns)
    trial.reopen(changed)
    feed(trial, 0)
    assert changed.ran == [("one", 2, 0), ("two", 2, 0)]


def test_a_group_is_not_nested_while_its_members_are_at_different_batches(open_with: Open) -> None:
    trial = open_with(Steps("one", "two"))
    stop_amid_a_round(trial)
    with pytest.raises(DefinitionChanged, match=r"one at batch 1 and two at batch 0"):
        trial.reopen(Steps("one", "two", nest=["one", "two"]))
    trial.reopen(Steps("one", "two"))
    trial.core.drain()
    nested = Steps("one", "two", nest=["one", "two"])
    assert trial.reopen(nested) == ["one, two of steps are nested"]
    feed(trial, 1)
    assert nested.ran == [("one", 2, 1), ("two", 2, 1)]
    assert trial.reopen(Steps("one", "two")) == ["one, two of steps are nested no more"]
