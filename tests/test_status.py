"""The status: what `/v1/status` tells, of whom, and what it costs to be asked often."""

import asyncio
import json
import logging
import os
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import shop
import till
from flows import HeldClock
from moving import api_over, jobs_on
from serving import KEY, Client, front, serving
from till import Till
from trial import named, nothing

from api import picture
from api.errors import QueryCancelled, QueryRefused
from api.grant import OWNER, Grant, Scope
from api.guard import Entrance
from api.keyring import Keyring
from api.look import AGE_S, REST, Look
from api.messages import Begun, Done
from api.migrations import Moved
from api.picture import Edge, Way
from api.question import LITTLE_ROWS
from api.recent import RECENT_MAX, SQL_MAX, Recent, State
from api.status import StatusOut
from etl_procs import Dataflow, by_count
from etl_procs.measured import Measured
from etl_procs.metrics import LookupFigures
from headrace.clock import SystemClock
from headrace.config import Config
from migrations.job import Place
from migrations.jobs import Jobs
from migrations.places import Places
from migrations.registry import Registry
from migrations.warehouse import DEFAULT, Connection, Warehouse

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
ANN = Grant("1", "ann", frozenset({Scope.QUERY}))


def status(client: Client, key: str = KEY) -> Any:
    reply = client.send("GET", "/v1/status", key=f"Bearer {key}")
    assert reply.status == 200, reply.body
    StatusOut.model_validate(reply.document)
    assert reply.document.keys() == StatusOut.model_fields.keys()
    return reply.document


def figures(document: Any, id: str) -> Any:
    (found,) = [n for flow in document["dataflows"] for n in flow["nodes"] if n["id"] == id]
    return found["figures"]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Till]:
    """A till with one batch settled, one given up, and one whose other half has not come."""
    made = Till(tmp_path)
    made.settle([("tea", 250), ("pen", None)], [("tea", 250)])
    made.jam(True)
    made.settle([("jam", 300)], [])
    made.jam(False)
    made.feed(till.sold, [("bun", 100)] * 5)
    yield made
    made.end_of_day()


def measures(made: Till) -> Measured:
    made.core.count_parked()
    made.core.metrics.lookups["till.price"] = LookupFigures(hits=6, misses=2)
    rates = {
        "over_s": 10.0,
        "commits": 1.0,
        "batches": {"till": 4.0},
        "tuples": {"till.sold": 30.0, "till.returned": 1.0},
        "units": {"till.settle": 4.0},
    }
    document = {**made.core.metrics.as_dict(), "queues": made.core.queues(), "rates": rates}
    return Measured(datetime.now(UTC), os.getpid(), document)


def moved_over(made: Till) -> Moved:
    flows, places = {"till": till.flow}, (Warehouse(DEFAULT, NOWHERE),)
    registry = Registry(made.home / "migrations.db", SystemClock())
    jobs = Jobs(registry, Place(Config(), flows, places, [made.path], SystemClock()))
    return Moved(jobs, registry, Places(places, flows, [made.path]))


def test_each_node_has_what_is_measured_and_held_of_it(made: Till) -> None:
    island = shop.island_over(NOWHERE, made.reader)
    living = measures(made)
    with serving(island, living=lambda: [living], moved=moved_over(made)) as client:
        found = status(client)
    assert found["engine"] == {"up": True, "measured_at": living.at.isoformat()}
    sold = figures(found, "border:sold")
    assert (sold["tuples_per_s"], sold["waiting_tuples"]) == (30.0, 5)
    settle = figures(found, "procedure:settle")
    assert (settle["batches_per_s"], settle["aborts"], settle["dead_batches"]) == (4.0, 3, 1)
    assert 0 < settle["p50_s"] < 1
    assert figures(found, "outlet:settled")["staged_rows"] == 1
    (flow,) = found["dataflows"]
    assert flow["places"]["till"]["tuples_per_s"] == 31.0
    assert flow["places"]["till"]["dead_letters"] == sum(
        d["letters"] for d in found["dead_letters"]
    )
    assert {d["reason"] for d in found["dead_letters"]} >= {"no price"}
    assert found["parked"] == [{"dataflow": "till", "table": "owed", "rows": 1}]
    assert found["lookups"] == [{"name": "till.price", "strategy": "owned", "hits": 6, "misses": 2}]


def test_before_there_is_a_core_the_dataflow_is_told_and_nothing_held(tmp_path: Path) -> None:
    store = shop.Shop(tmp_path)
    moved = jobs_on(store, Warehouse(DEFAULT, NOWHERE))
    store.close()
    store.path.unlink()
    with serving(shop.island_over(NOWHERE, store.reader), moved=moved) as client:
        found = status(client)
    (flow,) = found["dataflows"]
    assert (flow["name"], flow["places"], len(flow["nodes"])) == ("shop", {}, 5)
    assert figures(found, "outlet:sales") == {"staged_rows": 0, "staged_bytes": 0}
    assert found["dead_letters"] == []


def test_who_looks_every_second_leaves_no_line_in_the_log_and_who_may_not_does(
    made: Till, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "api.access")
    with serving(shop.island_over(NOWHERE, made.reader), moved=moved_over(made)) as client:
        status(client)
        assert client.send("GET", "/v1/status", key="Bearer another").status == 401
    (line,) = [record.getMessage() for record in caplog.records if record.name == "api.access"]
    assert "status=401" in line


def test_without_an_engine_nothing_is_told_of_one(made: Till) -> None:
    with serving(shop.island_over(NOWHERE, made.reader), moved=moved_over(made)) as client:
        found = status(client)
    assert found["engine"] == {"up": False, "measured_at": None}
    assert set(figures(found, "border:sold").values()) == {None}
    assert set(figures(found, "procedure:settle").values()) == {None}
    assert figures(found, "outlet:settled")["staged_rows"] == 1
    assert found["dataflows"][0]["places"]["till"]["batch"] == 2
    assert found["parked"] == found["lookups"] == []
    (place,) = found["warehouses"]
    assert "could not do it" in place["state"]


def test_migrations_and_warehouses_are_told_as_their_own_routes_tell_them(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, -1.0, "a"))
    store.push(connection)
    store.sell((2, 1.0, "b"))
    with api_over(store, warehouse_url) as client:
        client.send("PUT", "/v1/migrations/night", json.dumps({"kind": "merge"}))
        found = status(client)
        assert [each["id"] for each in found["migrations"]] == ["night"]
        (place,) = found["warehouses"]
        (told,) = client.send("GET", "/v1/warehouses").document["warehouses"]
    (flow,) = place["dataflows"]
    assert (flow["committed"], flow["arrived"], flow["waiting_rows"]) == (2, 1, 1)
    assert place["name"] == told["name"]
    assert figures(found, "outlet:sales")["staged_rows"] == 1
    assert figures(found, "outlet:refunds")["staged_rows"] == 0


def test_queries_are_seen_by_who_asked_them_and_by_who_operates(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    keyring = Keyring(store.home / "keys.db", SystemClock())
    scopes = frozenset({Scope.QUERY, Scope.LOOK})
    _, ann = keyring.create("ann", scopes)
    _, bob = keyring.create("bob", scopes | {Scope.OPERATE})
    store.sell(*((id, -1.0, "a") for id in range(LITTLE_ROWS + 1)))
    moved = jobs_on(store, Warehouse(DEFAULT, warehouse_url))
    island = shop.island_over(warehouse_url, store.reader)
    with serving(island, moved=moved, before=front(Entrance(KEY, keyring))) as client:

        def ask(sql: str, key: str) -> int:
            asked = json.dumps({"sql": sql})
            return client.send("POST", "/v1/query", asked, key=f"Bearer {key}").status

        assert ask("SELECT count(*) FROM sales", ann) == 200
        assert ask("SELECT price FROM sales WHERE", bob) == 400
        owners = status(client)["queries"]
        assert [query["key"] for query in owners] == ["bob", "ann"]
        assert status(client, bob)["queries"] == owners
        assert status(client, ann)["queries"] == owners[1:]
        failed, done = owners
        assert (failed["state"], failed["code"]) == ("failed", "QueryRefused")
        assert (done["state"], done["rows"], done["sql"]) == (
            "done",
            1,
            "SELECT count(*) FROM sales",
        )
        assert done["plan"]
        assert done["ms"] > 0
        assert done["cost_ms"] > 0
        text = client.send("GET", "/metrics").body.decode()
    moved.jobs.close()
    keyring.close()
    plan = done["plan"]
    assert f'headrace_api_queries_total{{plan="{plan}",state="done"}} 1\n' in text
    assert 'headrace_api_queries_total{plan="none",state="failed"} 1\n' in text
    assert f'headrace_api_query_seconds_count{{plan="{plan}"}} 1\n' in text
    assert f'headrace_api_plan_error_count{{plan="{plan}"}} 1\n' in text
    error = re.search(rf'headrace_api_plan_error_sum\{{plan="{plan}"\}} (\S+)', text)
    assert error is not None
    assert float(error[1]) == pytest.approx(done["ms"] / done["cost_ms"], rel=1e-3)


def test_so_many_queries_are_kept_in_mind_and_so_much_of_each() -> None:
    recent = Recent(HeldClock())
    for number in range(RECENT_MAX + 5):
        with recent.follow(f"{number}", "x" * (SQL_MAX + 1), OWNER) as query:
            query.done(Done(1, 0.1))
    kept = recent.seen_by(OWNER)
    assert [of.id for of in kept] == [f"{n}" for n in range(RECENT_MAX + 4, 4, -1)]
    assert {len(of.sql) for of in kept} == {SQL_MAX}
    assert recent.seen_by(ANN) == []


def test_a_query_ends_once_as_what_it_was() -> None:
    recent = Recent(HeldClock())
    with recent.follow("gone", "", OWNER):
        pass  # whoever asked has left before the end
    with recent.follow("done", "", OWNER) as query:
        query.begun(Begun({}, "staged", "ship", 0.0))
        query.done(Done(3, 0.5))
    for id, error in (
        ("bad", QueryRefused("a", hint="b")),
        ("ended", QueryCancelled("b", hint="c")),
    ):
        with pytest.raises(type(error)), recent.follow(id, "", OWNER) as query:
            raise error
    with recent.follow("runs", "", OWNER):
        found = {of.id: of for of in recent.seen_by(OWNER)}
    assert {id: of.state for id, of in found.items()} == {
        "gone": State.CANCELLED,
        "done": State.DONE,
        "bad": State.FAILED,
        "ended": State.CANCELLED,
        "runs": State.RUNNING,
    }
    assert found["done"].cost_ms is None, "nothing was weighed"
    text = "\n".join(line for metric in recent.metrics() for line in metric.lines())
    assert 'headrace_api_queries_total{plan="ship",state="done"} 1' in text
    assert "headrace_api_plan_error_count" not in text


# What it costs


def test_many_who_ask_at_once_cost_one_look_and_the_next_is_not_taken_before_a_rest() -> None:
    clock, looks, go_on = HeldClock(), [0], threading.Event()

    def slowly() -> int:
        go_on.wait(20)
        looks[0] += 1
        clock.advance(2.0)
        return looks[0]

    async def ask() -> None:
        look = Look(slowly, clock)
        assert await look.seen(0.01) is None, "it is not waited for any longer"
        asked = [asyncio.create_task(look.seen()) for _ in range(5)]
        await asyncio.sleep(0)
        go_on.set()
        assert await asyncio.gather(*asked) == [(1, 2.0)] * 5
        clock.advance(2.0 * REST - 0.1)
        assert await look.seen() == (1, 2.0 * REST + 1.9)
        clock.advance(0.1)
        assert await look.seen() == (2, 2.0)
        assert AGE_S < 1, "pages ask every second, and see what is new"

    asyncio.run(ask())


# The picture


def test_a_picture_shows_groups_that_commit_as_one_and_tables_that_several_use() -> None:
    flow = Dataflow("mill")
    grain = flow.stream("grain", "kg INTEGER", batches=by_count(1))
    meal, flour = flow.stream("meal", "kg INTEGER"), flow.stream("flour", "kg INTEGER")
    stock, own = flow.table("stock", "kg INTEGER"), flow.table("own", "kg INTEGER")
    sacks = flow.outlet("sacks", "kg INTEGER")
    flow.procedure(takes=grain, writes=[stock], gives=[meal])(named("grind", nothing))
    flow.procedure(takes=meal, reads=[stock], gives=[flour])(named("sift", nothing))
    flow.procedure(takes=flour, writes=[own], gives=[sacks])(named("pack", nothing))
    flow.nests.append(("grind", "sift"))
    places = (Warehouse("one", NOWHERE), Warehouse("other", NOWHERE, ("shop.*",)))
    drawn = picture.draw(flow, places)
    nodes = {node.id: node for node in drawn.nodes}
    assert {id for id, node in nodes.items() if node.nested} == {
        "procedure:grind",
        "procedure:sift",
    }
    assert nodes["procedure:sift"].unit == nodes["stream:flour"].unit == "grind+sift"
    assert {id for id in nodes if id.startswith(("table", "warehouse"))} == {
        "table:stock",
        "warehouse:one",
    }
    assert set(drawn.edges) == {
        Edge("border:grain", "procedure:grind"),
        Edge("procedure:grind", "stream:meal"),
        Edge("stream:meal", "procedure:sift"),
        Edge("procedure:sift", "stream:flour"),
        Edge("stream:flour", "procedure:pack"),
        Edge("procedure:pack", "outlet:sacks"),
        Edge("outlet:sacks", "warehouse:one"),
        Edge("procedure:grind", "table:stock", Way.WRITES),
        Edge("table:stock", "procedure:sift", Way.READS),
    }
