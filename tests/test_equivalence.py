"""Whatever is asked, by whatever plan, wherever the rows are: the answer is PostgreSQL's own."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import brokerage
import every
import pytest
from dividing import Divided, divided, divided_brokerage, make_plain, written
from random_queries import Queries
from shop import HERE, Answering, Warehoused

from api import costs, few
from api.catalogue import Catalogue
from api.cut import Freshness
from api.errors import Unfinished
from api.finish import Finisher
from api.island import Asked, Setting
from api.plans import Plan
from etl_procs import reader
from etl_procs.reader import Lasting, Snapshot
from headrace.crash import CrashPoints
from migrations import layout, staged, warehouse
from migrations.merge import Merging
from migrations.push import Push
from migrations.warehouse import Warehouse

QUERIES_OF_A_SEED, QUERIES_OF_TWO = 150, 25
CATALOGUES = {
    "every": (divided, (every.facts, every.states)),
    "brokerage": (divided_brokerage, tuple(brokerage.OUTLETS.values())),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_random_queries_have_the_answers_of_postgresql_by_every_plan(
    tmp_path: Path, warehouse_url: str, catalogue: str, seed: int
) -> None:
    by_plan = searched(tmp_path, warehouse_url, seed, QUERIES_OF_A_SEED, catalogue)
    assert by_plan[Plan.SPLIT] > QUERIES_OF_A_SEED / 10, "few queries were divided"
    assert by_plan[Plan.GATHER] > 3, "few joins were made here"


@pytest.mark.parametrize("seed", range(2))
def test_joins_that_stay_on_one_side_are_made_there_with_the_same_answers(
    tmp_path: Path, warehouse_url: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, pushed = Queries(seed), 0
    monkeypatch.setattr(costs, "gathered", lambda _rates, fetched, _staged: len(fetched))
    random = Random(seed)  # noqa: S311 - repeatable on purpose
    with divided(tmp_path, warehouse_url, random, stages_states=False) as rows:
        for _ in range(60):
            query = queries.joined(random.sample([every.facts, every.states, every.states], 3))
            assert rows.found(query, Plan.GATHER) == rows.expected(query), query
            gather = rows.island.explain(Asked(query))["candidates"][-1]
            pushed += " JOIN " in gather["sql"].get(HERE.name, "")
    assert pushed > 20, "few joins were made there"


def searched(home: Path, url: str, seed: int, count: int, catalogue: str) -> Counter[Plan]:
    """Ask random queries; tell how many were answered by which plan."""
    divide, tables = CATALOGUES[catalogue]
    queries, by_plan = Queries(seed, tables), Counter[Plan]()
    random = Random(seed)  # noqa: S311 - repeatable on purpose
    with divide(home, url, random) as rows, pytest.MonkeyPatch.context() as patch:
        if seed % 2:  # what is shipped goes into temporary tables, and is read a piece at a time
            patch.setattr(few, "FEW_ROWS", 0)
            patch.setattr(staged, "HELD_BYTES", 0)
        for _ in range(count):
            query = queries.query()
            expected = rows.expected(query)
            for plan in (Plan.SHIP, Plan.SPLIT, Plan.GATHER):
                found = rows.found(query, plan)
                assert found == expected, f"{query} by {plan} differs"
                by_plan[rows.island.plan] += rows.island.plan is plan and expected is not None
    return by_plan


@pytest.mark.parametrize("few_rows", [0, few.FEW_ROWS])
def test_tables_in_two_warehouses_are_joined_at_one_cut(
    few_rows: int,
    tmp_path: Path,
    warehouse_url: str,
    second_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One warehouse is behind the other, and both behind the core: whatever is asked for, each row
    is there once, and the batch is the same for all tables.
    """
    monkeypatch.setattr(few, "FEW_ROWS", few_rows)
    random = Random(7)  # noqa: S311 - repeatable on purpose
    every.GIVEN.clear()
    rows = [(every.a_row(random, 30), random.random() < 0.2) for _ in range(80)]
    first = Warehouse("first", warehouse_url, ("every.facts",))
    second = Warehouse("second", second_url, ("every.states",))
    store = Warehoused(tmp_path, every.flow)
    store.origin.feed(every.flow.name, [first.name, second.name])
    setting = Setting((first, second), (store.reader.path,), Catalogue.of({"every": every.flow}))
    island = Answering(setting)
    with ExitStack() as opened:
        at = {
            place: opened.enter_context(warehouse.connect(place.url, application="test"))
            for place in (first, second)
        }

        def push(place: Warehouse, *, merge: bool) -> None:
            Push(0, place, store.origin, CrashPoints(), 1_000).run(at[place], every.flow)
            if merge:
                Merging(place, CrashPoints()).run(at[place], every.flow)

        for place, connection in at.items():
            layout.prepare(connection, place, every.flow)
        done = 0

        def run(count: int) -> None:
            nonlocal done
            store.run(every.numbers, *every.batches([rows[done : done + count]]))
            done += count

        plain = opened.enter_context(warehouse.connect(warehouse_url, application="test"))
        both, any_queries = Divided(island, plain), Queries(7)
        joined = "SELECT x.id, x.t, y.p FROM states x {} facts y ON x.id = y.id AND y.n <> 0"
        queries = [
            *(joined.format(kind) for kind in ("JOIN", "LEFT JOIN", "RIGHT JOIN")),
            "SELECT y.t, count(*), sum(x.p), avg(y.w), max(x.d) FROM states x JOIN facts y "
            "ON x.id = y.id WHERE y.b GROUP BY y.t HAVING count(*) > 1 ORDER BY 2 DESC, 1 LIMIT 5",
        ]
        for batch, (ahead, behind, freshness) in enumerate(
            [
                (first, second, Freshness.STAGED),
                (second, first, Freshness.STAGED),
                (first, second, Freshness.DELTA),
                (second, first, Freshness.MAIN),
            ],
            1,
        ):
            run(10)
            push(behind, merge=batch % 2 == 0)
            run(5)
            push(ahead, merge=True)
            if freshness is Freshness.STAGED:
                run(5)
            plain.execute("DROP SCHEMA IF EXISTS plain CASCADE")
            make_plain(plain, rows[:done])
            for query in queries:
                found = island.query(query, freshness)
                assert island.plan is Plan.GATHER
                assert found.as_of == {"every": store.batch(every.flow)}
                expected = plain.execute(query.encode()).fetchall()
                assert written(query, found.rows) == written(query, expected), query
            spread = 0
            for _ in range(QUERIES_OF_TWO):
                query = any_queries.query()
                wanted = both.expected(query)
                for plan in (None, Plan.SHIP):
                    assert both.found(query, plan) == wanted, f"{query} by {plan} differs"
                spread += island.plan is Plan.SHIP and wanted is not None
            assert spread > QUERIES_OF_TWO / 5, "few had rows brought"
        tried: list[object] = []

        def cannot(*given: object) -> Iterator[object]:
            tried.append(given)
            raise Unfinished("it has too many digits", hint="Ask with the plan ship.")

        monkeypatch.setattr(Finisher, "gather", cannot)
        found = island.query(queries[0])
        assert (island.plan, len(tried)) == (Plan.SHIP, 1)
        assert written("", found.rows) == written("", plain.execute(queries[0].encode()).fetchall())
    island.close()
    store.close()


def test_a_push_that_overtakes_the_cores_snapshot_to_one_of_two_warehouses_is_waited_for(
    tmp_path: Path, warehouse_url: str, second_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every.GIVEN.clear()
    first = Warehouse("first", warehouse_url, ("every.facts",))
    second = Warehouse("second", second_url, ("every.states",))
    store = Warehoused(tmp_path, every.flow)
    store.origin.feed(every.flow.name, [first.name, second.name])
    catalogue = Catalogue.of({"every": every.flow})
    island = Answering(Setting((first, second), (store.reader.path,), catalogue))

    def commit(number: int) -> None:
        store.run(every.numbers, *every.batches([[((number, *[None] * 8), False)]]))

    with ExitStack() as opened:
        at = {}
        for place in (first, second):
            at[place] = opened.enter_context(warehouse.connect(place.url, application="test"))
            layout.prepare(at[place], place, every.flow)
        commit(1)
        Push(0, first, store.origin, CrashPoints(), 10).run(at[first], every.flow)
        taken: list[bool] = []
        cut_of_cores = reader.cut

        @contextmanager
        def overtaken(paths: Sequence[Lasting]) -> Iterator[list[Snapshot]]:
            with cut_of_cores(paths) as snapshots:
                if not taken:
                    commit(2)
                    Push(0, second, store.origin, CrashPoints(), 10).run(at[second], every.flow)
                taken.append(True)
                yield snapshots

        monkeypatch.setattr(reader, "cut", overtaken)
        found = island.query("SELECT x.id FROM states x JOIN facts y ON x.id = y.id ORDER BY 1")
    assert found.rows == ((1,), (2,))
    assert found.as_of == {"every": 2}
    assert len(taken) == 2
    island.close()
    store.close()
