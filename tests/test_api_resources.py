"""What is declared and how far it has come over REST: flows, tables, lookups, one warehouse."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import till
from flows import HeldClock
from serving import Client, assert_problem, front, no_engine, serving
from shop import island_over
from till import Till

from api.grant import Restriction, Scope
from api.guard import Entrance
from api.keyring import Keyring
from api.resources import Resources
from etl_procs import (
    Batch,
    Dataflow,
    Late,
    Transaction,
    by_interval,
    delimited,
    last_batches,
    last_interval,
    last_tuples,
)
from etl_procs.columns import parse_tuple
from etl_procs.measured import Measured
from etl_procs.metrics import LookupFigures, Metrics
from etl_procs.model import Outlet
from etl_procs.publisher import Publisher
from etl_procs.reader import Reader
from headrace import config
from headrace.crash import CrashPoints
from migrations.warehouse import DEFAULT, Warehouse

NO_WAREHOUSE = "postgresql://nobody@127.0.0.1:1/nothing"

flow = Dataflow("bourse", partitions=2)
corrected = flow.stream("corrected", "at INTEGER NOT NULL, cents INTEGER", key="at", batches=None)
ticks = flow.stream(
    "ticks",
    "at INTEGER NOT NULL, name TEXT NOT NULL, price REAL",
    batches=by_interval("at", 60, timeout_s=5, late=Late.DEAD),
    key="name",
    order="at",
    wire=delimited("|"),
)
named = flow.stream("named", "name TEXT NOT NULL")
firms = flow.table("firms", "name TEXT PRIMARY KEY, firm INTEGER NOT NULL", parks=True)
recent = flow.window("recent", "name TEXT NOT NULL, cents INTEGER", last_tuples(100, slide=10))
batches = flow.window("batches", "name TEXT NOT NULL", last_batches(3))
hour = flow.window("hour", "at INTEGER NOT NULL", last_interval("at", 60, slide=60))
counts = flow.aggregate("counts", recent, by="name", seen="count(*)", worth="sum(cents)")
firm_of = flow.lookup("firm_of", firms, key="name", gives="firm")
abroad = flow.foreign(
    "public.rates", "day TEXT PRIMARY KEY, rate REAL NOT NULL", warehouse="reports"
)
rate_of = flow.lookup("rate_of", abroad, key="day", gives="rate", max_age_s=60)
quotes = flow.outlet(
    "quotes",
    "name TEXT NOT NULL, price NUMERIC(9, 2), day DATE, at TIMESTAMP, up BOOLEAN, r REAL",
    key="name",
    indexes=["day", ("day", "name")],
)


@flow.procedure(takes=ticks, reads=firms, gives=[named, recent, batches, hour], looks=firm_of)
def take(tx: Transaction, batch: Batch) -> None: ...


@flow.procedure(takes=named, writes=firms, gives=quotes)
def quote(tx: Transaction, batch: Batch) -> None: ...


@flow.trigger(on=named, reads=firms)
def seen(tx: Transaction, batch: Batch) -> None: ...


flow.nest(take, quote)


@flow.call(arguments="name TEXT NOT NULL", returns="firm INTEGER", key="name", looks=firm_of)
def firm(tx: Transaction, name: str) -> dict[str, object]:
    return {}


HISTORY = Outlet("old", "history", parse_tuple("n INTEGER NOT NULL", "history"))
PLACES = (Warehouse(DEFAULT, NO_WAREHOUSE), Warehouse("other", NO_WAREHOUSE, ("till.*",)))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Till]:
    made = Till(tmp_path)
    made.settle([("tea", 250)], [])
    yield made
    made.end_of_day()


def over(made: Till, *, living: Any = no_engine, **more: Any) -> AbstractContextManager[Client]:
    cores = [made.path, made.path.with_name("partition-1.db")]
    flows = {"till": till.flow, "bourse": flow}
    resources = Resources(flows, PLACES, cores, living, [HISTORY])
    return serving(island_over(NO_WAREHOUSE, Reader(made.path)), resources=resources, **more)


@pytest.fixture
def client(made: Till) -> Iterator[Client]:
    with over(made) as client:
        yield client


def test_the_flows_are_listed_with_the_last_batch_of_each_partition(client: Client) -> None:
    document = client.send("GET", "/v1/flows").document
    first, second = document["dataflows"]
    assert first["partitions"] == [{"name": "till", "partition": 0, "last_batch": 1}]
    assert second["partitions"] == [
        {"name": "bourse[0]", "partition": 0, "last_batch": 0},
        {"name": "bourse[1]", "partition": 1, "last_batch": None},
    ]
    assert client.send("GET", "/v1/flows/bourse").document == second
    assert_problem(client.send("GET", "/v1/flows/nothing"), 404, "NoSuchDataflow")


def test_a_flow_is_told_as_it_is_declared(client: Client) -> None:
    told = client.send("GET", "/v1/flows/bourse").document
    streams = {one["name"]: one for one in told["streams"]}
    assert streams["ticks"] | {"columns": []} == {
        "name": "ticks",
        "kind": "border",
        "columns": [],
        "topic": "bourse.ticks",
        "format": "delimited",
        "batches": {
            "by": "interval",
            "column": "at",
            "length": 60,
            "late": "dead",
            "timeout_s": 5,
            "on_timeout": "wait",
        },
        "key": "name",
        "order": "at",
    }
    assert streams["ticks"]["columns"][2] == {"name": "price", "type": "REAL", "required": False}
    assert (streams["named"]["kind"], streams["named"]["batches"]) == ("interior", None)
    taking, quoting = told["procedures"]
    assert taking == {
        "name": "take",
        "takes": ["ticks"],
        "reads": ["firms"],
        "writes": [],
        "gives": ["named", "recent", "batches", "hour"],
        "looks": ["firm_of"],
        "nested": ["take", "quote"],
    }
    assert (quoting["writes"], quoting["gives"]) == (["firms"], ["quotes"])
    assert [(one["name"], one["parks"]) for one in told["tables"]] == [("firms", True)]
    assert [one["extent"] for one in told["windows"]] == [
        {"by": "tuples", "size": 100, "slide": 10},
        {"by": "batches", "size": 3, "slide": 1},
        {"by": "interval", "size": 60, "slide": 60, "column": "at"},
    ]
    assert told["windows"][0]["aggregates"] == [
        {"name": "counts", "by": ["name"], "values": {"seen": "count(*)", "worth": "sum(cents)"}}
    ]
    (trigger,), (call,) = told["triggers"], told["calls"]
    assert (trigger["on"], trigger["reads"]) == ("named", ["firms"])
    assert (call["key"], call["arguments"][0]["name"], call["looks"]) == (
        "name",
        "name",
        ["firm_of"],
    )
    assert told["lookups"] == ["firm_of", "rate_of"]
    assert [one["name"] for one in told["outlets"]] == ["bourse.quotes"]


def test_the_tables_are_told_with_postgresqls_types_and_where_they_are(client: Client) -> None:
    found = {one["name"]: one for one in client.send("GET", "/v1/tables").document["tables"]}
    assert found.keys() == {"till.settled", "bourse.quotes", "old.history"}
    assert found["old.history"]["columns"] == [{"name": "n", "type": "bigint", "required": True}]
    assert found["old.history"]["warehouses"] == []
    assert found["till.settled"]["warehouses"] == ["default", "other"]
    told = found["bourse.quotes"]
    assert {one["name"]: one["type"] for one in told["columns"]} == {
        "name": "text",
        "price": "numeric(9,2)",
        "day": "date",
        "at": "timestamp without time zone",
        "up": "boolean",
        "r": "double precision",
    }
    assert [one["name"] for one in told["columns"] if one["required"]] == ["name"]
    assert (told["key"], told["indexes"]) == (["name"], [["day"], ["day", "name"]])
    assert told["warehouses"] == ["default"]


def test_a_stream_is_among_the_tables_while_it_is_published(client: Client, made: Till) -> None:
    publisher = Publisher([made.path], config.Core(), CrashPoints())

    def names() -> set[str]:
        return {one["name"] for one in client.send("GET", "/v1/tables").document["tables"]}

    before = names()
    publisher.publish(till.sold, 1)
    (told,) = (
        one
        for one in client.send("GET", "/v1/tables").document["tables"]
        if one["name"] not in before
    )
    assert told == {
        "name": "till.sold",
        "columns": [
            {"name": "item", "type": "text", "required": True},
            {"name": "cents", "type": "bigint", "required": False},
        ],
        "key": [],
        "indexes": [],
        "warehouses": [],
    }
    publisher.unpublish(till.sold, 1)
    assert names() == before


def test_a_key_for_some_tables_sees_those_and_what_it_may_see_of_them(
    made: Till, tmp_path: Path
) -> None:
    keyring = Keyring(tmp_path / "keys.db", HeldClock())
    seen = {"bourse.quotes": Restriction(("day", "price")), "gone.gone": Restriction()}
    _, key = keyring.create("ann", frozenset({Scope.LOOK}), tables=seen)
    with over(made, before=front(Entrance("owner", keyring))) as client:
        shown = client.send("GET", "/v1/tables", key=f"Bearer {key}").document["tables"]
        assert_problem(
            client.send("GET", "/v1/flows/bourse", key=f"Bearer {key}"), 403, "TablesOnly"
        )
    keyring.close()
    (told,) = shown
    assert [one["name"] for one in told["columns"]] == ["price", "day"]
    assert (told["key"], told["indexes"]) == ([], [["day"]])


def test_lookups_are_told_with_what_a_living_engine_has_measured(made: Till) -> None:
    metrics = Metrics(lookups={"bourse.rate_of": LookupFigures(hits=7, strategy="replica")})
    figures = Measured(datetime.now(UTC), 1, metrics.as_dict())
    with over(made, living=lambda: [None, figures]) as client:
        document = client.send("GET", "/v1/lookups").document
    firm_of, rate_of = document["lookups"]
    assert (firm_of["table"], firm_of["warehouse"], firm_of["strategy"]) == ("firms", None, "auto")
    assert firm_of["partitions"] == []
    assert (rate_of["table"], rate_of["warehouse"]) == ("public.rates", "reports")
    assert rate_of["max_age_s"] == 60
    (told,) = rate_of["partitions"]
    assert (told["partition"], told["hits"], told["strategy"]) == (1, 7, "replica")
    assert told["answers_from"] == "a copy of the warehouse's table"
