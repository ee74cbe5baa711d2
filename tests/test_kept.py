"""Published streams as tables: their kept batches, at the same cut as all other tables."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from shop import HERE, Answering, Warehoused, ask
from trial import Trial, named, pass_on

from api.catalogue import Catalogue
from api.cut import TRIES, Freshness
from api.errors import NoLonger, Overtaken, QueryRefused, Unpublished
from api.grant import Restriction
from api.island import Setting
from api.plans import Plan
from etl_procs import Dataflow, by_punctuation, reader
from etl_procs.publisher import Publisher
from etl_procs.reader import Lasting, Reader, Snapshot
from headrace import config
from headrace.crash import CrashPoints
from migrations import layout, warehouse
from migrations.errors import LedgerMismatch
from migrations.warehouse import DEFAULT, Warehouse

flow = Dataflow("sea")
ships = flow.stream("ships", "id INTEGER NOT NULL, port TEXT", batches=by_punctuation())
calls = flow.outlet("calls", "id INTEGER NOT NULL, port TEXT")
flow.procedure(takes=ships, gives=[calls])(named("tell", pass_on(calls)))

quiet = Dataflow("quiet")
words = quiet.stream("words", "word TEXT", batches=by_punctuation())
quiet.procedure(takes=words)(named("hear", lambda _tx, _batch: None))


@pytest.fixture
def sea(tmp_path: Path) -> Iterator[Warehoused]:
    store = Warehoused(tmp_path, flow)
    yield store
    store.close()


@pytest.fixture
def island(sea: Warehoused, warehouse_url: str) -> Iterator[Answering]:
    catalogue = Catalogue.of({"sea": flow})
    place = Warehouse(DEFAULT, warehouse_url, ("sea.calls",))
    with closing(Answering(Setting((place,), (sea.path,), catalogue))) as made:
        with warehouse.connect(warehouse_url, application="test") as connection:
            connection.execute("DROP SCHEMA IF EXISTS sea, sea_main, sea_delta, headrace CASCADE")
            layout.prepare(connection, HERE, flow)
        yield made


def publish(store: Trial) -> None:
    publisher = Publisher([store.path], config.Core(), CrashPoints())
    publisher.publish(store.flows[0].borders[0], 1)


def test_a_stream_has_its_kept_batches_by_every_plan_and_freshness(
    sea: Warehoused, island: Answering, warehouse_url: str
) -> None:
    sea.run(ships, [(0, "before")])
    with pytest.raises(Unpublished, match="is not published"):
        island.query("SELECT * FROM sea.ships")
    publish(sea)
    assert ask(island, "SELECT id FROM sea.ships") == []
    sea.run(ships, [(1, "oslo"), (2, "bergen")])
    with warehouse.connect(warehouse_url, application="test") as connection:
        sea.push(connection)
    sea.run(ships, [(3, None)])
    total = "SELECT count(*), sum(id) FROM sea.ships WHERE id > 1"
    for plan in (Plan.SHIP, Plan.SPLIT):
        found = island.query(total, plan=plan)
        assert (island.plan, found.rows, found.as_of) == (plan, ((2, 5),), {"sea": 3})
    ranks = "SELECT id, rank() OVER (ORDER BY id DESC) FROM sea.ships ORDER BY 1"
    assert ask(island, ranks) == [(1, 3), (2, 2), (3, 1)]
    assert island.query(total, Freshness.DELTA).rows == ((1, 2),)
    assert island.query(total, as_of={"sea": 2}).rows == ((1, 2),)
    with pytest.raises(NoLonger, match="the batches through 1 are not kept"):
        island.query(total, Freshness.MAIN)


def test_a_stream_and_a_table_are_joined_at_one_cut(
    sea: Warehoused, island: Answering, warehouse_url: str
) -> None:
    publish(sea)
    sql = "SELECT count(*), count(c.id) FROM sea.ships s LEFT JOIN calls c ON s.id = c.id"
    with warehouse.connect(warehouse_url, application="test") as connection:
        for number in range(1, 6):
            sea.run(ships, [(number, "oslo")])
            if number % 2:
                sea.push(connection)
            for plan in (Plan.SHIP, Plan.GATHER):
                assert island.query(sql, plan=plan).rows == ((number, number),)
                assert island.plan is plan


def test_a_batch_that_arrives_between_the_snapshots_is_in_the_stream_and_in_the_table(
    sea: Warehoused, island: Answering, warehouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(sea)
    taken: list[bool] = []
    opened = reader.cut

    @contextmanager
    def overtaken(paths: Sequence[Lasting]) -> Iterator[list[Snapshot]]:
        with opened(paths) as snapshots:
            if not taken:
                sea.run(ships, [(1, "oslo")])
                with warehouse.connect(warehouse_url, application="test") as connection:
                    sea.push(connection)
            taken.append(True)
            yield snapshots

    monkeypatch.setattr(reader, "cut", overtaken)
    sql = "SELECT count(*), count(s.id) FROM calls c LEFT JOIN sea.ships s ON s.id = c.id"
    found = island.query(sql)
    assert (found.rows, found.as_of) == (((1, 1),), {"sea": 1})


def test_what_is_overtaken_each_time_can_be_asked_again_and_what_the_core_lacks_cannot(
    sea: Warehoused, island: Answering, warehouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(sea)
    opened = reader.cut

    def arrive() -> None:
        sea.run(ships, [(1, "oslo")])
        with warehouse.connect(warehouse_url, application="test") as connection:
            sea.push(connection)

    @contextmanager
    def overtaken(paths: Sequence[Lasting]) -> Iterator[list[Snapshot]]:
        with opened(paths) as snapshots:
            tries.append(True)
            if len(tries) <= TRIES:
                arrive()
            yield snapshots

    sql, tries = "SELECT count(*) FROM calls c LEFT JOIN sea.ships s ON s.id = c.id", list[bool]()
    arrive()
    with opened([Reader(sea.path)]) as old, monkeypatch.context() as patched:
        patched.setattr(reader, "cut", overtaken)
        with pytest.raises(Overtaken):
            island.query(sql)
        patched.setattr(reader, "cut", lambda _paths: nullcontext(old))
        with pytest.raises(LedgerMismatch, match="does not have"):
            island.query(sql)
    assert island.query(sql).rows


def test_a_stream_of_a_dataflow_that_feeds_no_warehouse_is_a_table_too(
    tmp_path: Path, warehouse_url: str
) -> None:
    store = Trial(tmp_path / "core.db", quiet)
    setting = Setting(
        (Warehouse(DEFAULT, warehouse_url),), (store.path,), Catalogue.of({"quiet": quiet})
    )
    publish(store)
    store.run(words, [("a",), ("b",)])
    with closing(Answering(setting)) as island:
        for freshness in Freshness:
            assert island.query("SELECT count(*) FROM quiet.words", freshness).rows == ((2,),)
        store.run(words, [("c",)])
        for batch, count in ((1, 2), (2, 3)):
            found = island.query("SELECT count(*) FROM quiet.words", as_of={"quiet": batch})
            assert (found.rows, found.as_of) == (((count,),), {"quiet": batch})
    longer = Dataflow("quiet")
    heard = longer.stream("words", "word TEXT, loud INTEGER", batches=by_punctuation())
    longer.procedure(takes=heard)(named("hear", lambda _tx, _batch: None))
    store.reopen(longer, read_again=False)
    setting = replace(setting, catalogue=Catalogue.of({"quiet": longer}))
    with closing(Answering(setting)) as island:
        found = island.query("SELECT count(*), count(loud) FROM quiet.words")
        assert found.rows == ((3, 0),), "what is kept is of before"
    store.close()


def test_a_key_sees_a_stream_only_by_its_full_name(sea: Warehoused, island: Answering) -> None:
    publish(sea)
    sea.run(ships, [(1, "oslo"), (2, "bergen")])
    with pytest.raises(QueryRefused, match="there is no table ships"):
        island.query("SELECT id FROM ships")
    island.tables = (("sea.ships", Restriction(("id",), "id > 1")),)
    assert ask(island, "SELECT * FROM sea.ships") == [(2,)]
    island.tables = (("sea.calls", Restriction()),)
    with pytest.raises(QueryRefused, match=r"there is no table sea\.ships"):
        island.query("SELECT id FROM sea.ships")
