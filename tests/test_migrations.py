"""Migrations as resources: asked for under an id, looked at, cancelled, and run once each."""

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import shop
from library import Library
from moving import api_over, jobs_on
from serving import Client, assert_problem
from waiting import until

from api.migrations import FlowOut, MigrationOut, WarehouseOut
from headrace.clock import SystemClock
from migrations import audit, ledger, load, warehouse
from migrations.load import Load
from migrations.registry import Asked, Idle, Kind, Outcome, Registry, State
from migrations.warehouse import DEFAULT, Connection, Warehouse

PULL = {"kind": "pull"}


def put(client: Client, id_: str, **asked: Any) -> Any:
    reply = client.send("PUT", f"/v1/migrations/{id_}", json.dumps(asked))
    assert reply.status in (200, 201), reply.body
    return reply.document


def look(client: Client, id_: str) -> Any:
    return client.send("GET", f"/v1/migrations/{id_}").document


def until_told(client: Client, id_: str, condition: Callable[[Any], bool]) -> Any:
    """Wait until a migration is so, and give it."""
    until(lambda: condition(look(client, id_)), 30, lambda: str(look(client, id_)))
    return look(client, id_)


def ended(client: Client, id_: str) -> Any:
    """Wait for the end of a migration, and give it."""
    return until_told(client, id_, lambda told: told["ended_at"] is not None)


def test_a_migration_that_is_asked_for_twice_is_one_and_another_one_of_its_id_is_refused(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, -1.0, "a"))
    with api_over(store, warehouse_url) as client:
        first = client.send("PUT", "/v1/migrations/night:2026-11-19", json.dumps(PULL))
        assert first.status == 201
        done = ended(client, "night:2026-11-19")
        assert (done["state"], done["reached"], done["rows"]) == ("succeeded", {"shop": 1}, 2)
        assert done["bytes"] > 0
        assert done["error"] is None
        assert done.keys() == MigrationOut.model_fields.keys()
        store.sell((2, 1.0, "b"))
        again = client.send("PUT", "/v1/migrations/night:2026-11-19", json.dumps(PULL))
        assert (again.status, again.document) == (200, done)
        other = client.send("PUT", "/v1/migrations/night:2026-11-19", '{"kind": "merge"}')
        assert_problem(other, 409, "MigrationConflict")
    assert connection.execute("SELECT id FROM shop.sales").fetchall() == [(1,)]
    assert ledger.read(connection, ["shop"])["shop", 0].batch == 1


def test_a_merge_a_retention_and_an_audit_are_migrations_too(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, -1.0, "a"))
    with api_over(store, warehouse_url) as client:
        for number, kind in enumerate(("pull", "merge", "retention", "audit")):
            put(client, f"m{number}", kind=kind, dataflows=["shop"])
            done = ended(client, f"m{number}")
            assert (done["state"], done["reached"]) == ("succeeded", {"shop": 1}), done
        listed = client.send("GET", "/v1/migrations?state=succeeded&limit=3").document
        assert [each["id"] for each in listed["migrations"]] == ["m3", "m2", "m1"]
        listed = client.send("GET", "/v1/migrations?kind=merge&warehouse=default").document
        assert [each["id"] for each in listed["migrations"]] == ["m1"]
        assert client.send("GET", "/v1/migrations?state=failed").document == {"migrations": []}
    assert connection.execute("SELECT count(*) FROM shop_delta.sales").fetchall() == [(0,)]
    assert connection.execute("SELECT count(*) FROM shop_main.sales").fetchall() == [(1,)]


def test_a_retention_is_of_the_cores_whatever_the_warehouse_takes(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.keep(3600)
    store.sell((1, 1.0, "a"))
    store.push(connection)
    assert store.unsent() == 1
    other = Warehouse("other", warehouse_url, tables=("other.*",))
    with api_over(store, warehouse_url, other) as client:
        put(client, "forget", kind="retention", warehouse="other")
        assert ended(client, "forget")["reached"] == {"shop": 1}
        refused = client.send("PUT", "/v1/migrations/p", '{"kind": "pull", "warehouse": "other"}')
        assert_problem(refused, 400, "Refused")
    assert store.unsent() == 0


def test_an_audit_names_what_is_wrong(
    store: shop.Shop,
    connection: Connection,
    warehouse_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.sell((1, 1.0, "a"), (2, 1.0, "b"))
    store.push(connection)
    connection.execute("DELETE FROM shop_delta.sales WHERE id = 1")
    connection.execute("INSERT INTO shop_delta.refunds VALUES (7, 0, 1)")
    with api_over(store, warehouse_url) as client:
        put(client, "look", kind="audit")
        found = ended(client, "look")
    assert (found["state"], found["error"]["code"]) == ("failed", "AuditFailed")
    until(lambda: "migration look failed: shop.sales has 1 row" in caplog.text, 5, str)
    assert found["findings"] == [
        "shop.sales has 1 row, and 2 have arrived",
        "shop.refunds: 1 row of delta are of batches that have not arrived, or are merged",
        "shop.refunds has 1 row, and 0 have arrived",
    ]


@pytest.mark.parametrize("schema", ["shop_delta", "shop_main"])
def test_an_audit_sees_a_row_that_was_replaced_by_hand_before_or_after_a_merge(
    store: shop.Shop, connection: Connection, schema: str
) -> None:
    store.sell_all([[(1, 1.0, "a"), (2, -1.0, None)], [(3, 1.0, "c")]])
    store.push(connection, batches_max=1)
    store.push(connection)
    if schema == "shop_main":
        store.merge(connection)

    def found() -> list[str]:
        with store.reader.snapshot() as snapshot:
            return audit.findings(connection, shop.HERE, shop.flow, [snapshot])

    assert found() == []
    connection.execute(f"UPDATE {schema}.sales SET price = 7 WHERE id = 3".encode())
    assert found() == ["shop.sales has 3 rows, and these are not those that have arrived"]
    for of in ("sales", "refunds"):  # as a Headrace before this one would have written it
        old = f"UPDATE headrace.ledger SET tables = jsonb_set(tables, '{{{of}}}', '[3, 7]')"
        connection.execute(old.encode())
    connection.execute("UPDATE headrace.ledger SET rows = 6")
    assert found() == ["shop.refunds has 1 row, and 3 have arrived"]


def test_an_audit_says_which_tables_it_cannot_see_all_of(library: Library) -> None:
    (place, _), flow = library.places, library.flows[0]
    assert audit.blind(place, flow) == [
        "not looked at: whether somebody has changed rows of "
        + ", ".join(outlet.full_name for outlet in flow.outlets.values() if outlet.key)
        + " by hand"
    ]
    assert audit.blind(shop.HERE, shop.flow) == []


def test_a_role_that_cannot_see_what_others_do_is_told_of(
    store: shop.Shop, connection: Connection, warehouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load.blind(connection) == []
    with connection.transaction(force_rollback=True):
        connection.execute("CREATE ROLE headrace_blind")
        connection.execute("SET LOCAL ROLE headrace_blind")
        (told,) = load.blind(connection)
    assert told == (
        "the sessions of others were not waited for: headrace_blind may not see them "
        "(GRANT pg_read_all_stats TO headrace_blind)"
    )
    monkeypatch.setattr(load, "blind", lambda _: [told])
    with api_over(store, warehouse_url) as client:
        store.sell((1, 1.0, None))
        put(client, "x", kind="pull", idle={"deadline_s": 5})
        found = ended(client, "x")
        assert (found["state"], found["findings"]) == ("succeeded", [told])


def test_a_push_amid_an_audit_is_no_finding(
    store: shop.Shop, connection: Connection, warehouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.sell((1, 1.0, "a"))
    store.push(connection)
    find = audit.findings

    def later(*found: Any) -> list[str]:
        store.sell((2, 1.0, "b"))
        store.push(connection)
        return find(*found)

    monkeypatch.setattr(audit, "findings", later)
    with api_over(store, warehouse_url) as client:
        put(client, "look", kind="audit")
        assert ended(client, "look")["findings"] == []


def test_what_cannot_be_meant_is_refused(store: shop.Shop, warehouse_url: str) -> None:
    with api_over(store, warehouse_url) as client:
        for asked, status, code in [
            ({"kind": "steal"}, 422, "Invalid"),
            ({"kind": "pull", "warehouse": "nowhere"}, 404, "NoSuchWarehouse"),
            ({"kind": "rebuild", "dataflows": ["nothing"]}, 404, "NoSuchDataflow"),
            ({"kind": "rebuild", "source": "nowhere"}, 404, "NoSuchWarehouse"),
            ({"kind": "pull", "source": "default"}, 400, "Refused"),
            ({"kind": "pull", "more": 1}, 422, "Invalid"),
        ]:
            reply = client.send("PUT", "/v1/migrations/x", json.dumps(asked))
            assert_problem(reply, status, code)
        assert_problem(client.send("PUT", "/v1/migrations/a%20b", "{}"), 422, "Invalid")
        assert_problem(client.send("GET", "/v1/migrations/x"), 404, "MigrationUnknown")
        assert_problem(client.send("DELETE", "/v1/migrations/x"), 404, "MigrationUnknown")
        assert_problem(client.send("GET", "/v1/migrations?limit=0"), 422, "Invalid")


def test_a_migration_that_waits_for_a_warehouse_can_be_cancelled_and_one_that_ended_cannot(
    store: shop.Shop, warehouse_url: str
) -> None:
    store.sell((1, 1.0, None))
    gone = Warehouse("gone", "postgresql://postgres@127.0.0.1:1/postgres")
    with api_over(store, warehouse_url, gone) as client:
        put(client, "p", kind="pull", warehouse="gone")
        told = until_told(client, "p", lambda told: "tries again" in told["stage"])
        assert told["state"] == "running"
        assert client.send("DELETE", "/v1/migrations/p").status == 202
        assert ended(client, "p")["state"] == "cancelled"
        assert_problem(client.send("DELETE", "/v1/migrations/p"), 409, "MigrationEnded")


def test_a_warehouse_that_stays_away_fails_a_migration_with_the_reason(
    store: shop.Shop, warehouse_url: str
) -> None:
    gone = Warehouse("gone", "postgresql://postgres@127.0.0.1:1/postgres")
    with api_over(store, warehouse_url, gone, give_up_s=0.1) as client:
        put(client, "p", kind="pull", warehouse="gone")
        found = ended(client, "p")
    assert (found["state"], found["error"]["code"]) == ("failed", "Away")
    assert "connecting to the warehouse" in found["error"]["what"]


def test_a_migration_that_was_cut_off_begins_again_and_goes_no_further_than_it_went(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, None))
    moved = jobs_on(store, Warehouse(DEFAULT, warehouse_url))
    moved.registry.put("p", Asked(Kind.PULL, DEFAULT))
    moved.registry.begin("p")
    moved.registry.aim("p", {"shop": 1})
    moved.jobs.close()
    store.sell((2, 1.0, None))
    with api_over(store, warehouse_url) as client:
        assert ended(client, "p")["reached"] == {"shop": 1}
    assert connection.execute("SELECT id FROM shop.sales").fetchall() == [(1,)]


def test_an_api_that_stops_leaves_its_migrations_to_the_next(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, None))
    with connection.transaction():
        connection.execute("SELECT FROM headrace.ledger FOR UPDATE")
        with api_over(store, warehouse_url) as client:
            put(client, "p", kind="pull")
            until_told(client, "p", lambda told: told["state"] == "running")
    with api_over(store, warehouse_url) as client:
        assert ended(client, "p")["state"] == "succeeded"
    assert connection.execute("SELECT id FROM shop.sales").fetchall() == [(1,)]


def test_a_busy_warehouse_holds_a_migration_back_to_a_deadline(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, None))
    connection.execute("SELECT pg_advisory_lock(1)")

    def work() -> None:
        with warehouse.connect(warehouse_url, application="somebody") as own:
            own.execute("SET lock_timeout = 0")
            own.execute("SELECT pg_advisory_lock(1)")

    worker = threading.Thread(target=work)
    worker.start()
    until(lambda: load.measure(connection).active == 1, 30, lambda: "nobody works there")
    idle = {"query_s_max": 0, "active_max": 99}
    with api_over(store, warehouse_url) as client:
        put(client, "patient", kind="pull", idle={**idle, "deadline_s": 60})
        until_told(client, "patient", lambda told: "until the warehouse is idle" in told["stage"])
        put(client, "hasty", kind="pull", idle={**idle, "deadline_s": 0})
        assert ended(client, "hasty")["state"] == "succeeded"
        assert look(client, "patient")["state"] == "running"
        connection.execute("SELECT pg_advisory_unlock(1)")
        assert ended(client, "patient")["state"] == "succeeded"
    worker.join()


def test_what_would_be_pushed_is_told_and_not_moved(
    store: shop.Shop, connection: Connection, warehouse_url: str, second_url: str
) -> None:
    store.sell((1, 1.0, None))
    gone = Warehouse("gone", "postgresql://postgres@127.0.0.1:1/postgres")
    with api_over(store, warehouse_url, Warehouse("new", second_url), gone) as client:

        def plan(name: str = "default") -> Any:
            return client.send("GET", f"/v1/warehouses/{name}/plan").document["dataflows"]

        (told,) = plan()
        copied, stepped = told["together"]
        assert re.fullmatch(
            r"copy 1 row \(\d+ B\) of batches 1 to 1 of .* shop_delta.sales", copied
        )
        assert stepped == "step the ledger of shop[0] from 0 to 1"
        assert (told["name"], told["then"][0][:31]) == ("shop", "confirm shop[0] through batch 1")
        assert store.unsent() == 1
        store.push(connection)
        assert plan() == [{"name": "shop", "together": [], "then": []}]
        assert plan("new") == [{"name": "shop", "together": None, "then": []}]
        away = client.send("GET", "/v1/warehouses/gone/plan")
        assert_problem(away, 503, "Away")
        unknown = client.send("GET", "/v1/warehouses/x/plan")
        assert_problem(unknown, 404, "NoSuchWarehouse")


def test_warehouses_are_told_with_how_far_they_have_come(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, None))
    store.push(connection)
    store.merge(connection)
    store.sell((2, 1.0, None))
    store.push(connection)
    store.sell((3, 1.0, None))
    gone = Warehouse("gone", "postgresql://postgres@127.0.0.1:1/postgres")
    with api_over(store, warehouse_url, gone) as client:
        here, away = client.send("GET", "/v1/warehouses").document["warehouses"]
        assert client.send("GET", "/v1/warehouses/default").document == here
        assert_problem(client.send("GET", "/v1/warehouses/x"), 404, "NoSuchWarehouse")
    (told,) = here["dataflows"]
    assert here.keys() == WarehouseOut.model_fields.keys()
    assert told.keys() == FlowOut.model_fields.keys()
    assert (here["name"], here["state"]) == ("default", "ok")
    assert told.pop("moved_at")
    assert told == {"name": "shop", "committed": 3, "arrived": 2, "merged": 1, "waiting_rows": 1}
    assert away["name"] == "gone"
    assert "connecting to the warehouse" in away["state"]
    assert away["dataflows"][0]["arrived"] is None


def test_the_registry_outlives_its_process_and_an_end_is_an_end(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "m.db", SystemClock())
    registry.put("a", Asked(Kind.AUDIT, DEFAULT))
    assert registry.end("a", Outcome(State.CANCELLED))
    again = Registry(tmp_path / "m.db", SystemClock())
    assert not again.begin("a")
    assert not again.end("a", Outcome(State.SUCCEEDED))
    assert again.find("a").state is State.CANCELLED
    assert again.open() == []


def test_a_migration_that_was_to_stop_when_the_api_died_does_not_begin_again(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, None))
    moved = jobs_on(store, Warehouse(DEFAULT, warehouse_url))
    moved.registry.put("p", Asked(Kind.PULL, DEFAULT))
    moved.registry.begin("p")
    assert moved.registry.stop("p")
    moved.jobs.close()
    with api_over(store, warehouse_url) as client:
        assert look(client, "p")["state"] == "cancelled"
    assert connection.execute("SELECT id FROM shop.sales").fetchall() == []


def test_migrations_that_wait_for_a_warehouse_keep_no_other_from_running(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, None))
    gone = Warehouse("gone", "postgresql://postgres@127.0.0.1:1/postgres")
    with api_over(store, warehouse_url, gone) as client:
        for number in range(8):
            put(client, f"w{number}", kind="pull", warehouse="gone", idle={"deadline_s": 600})
        put(client, "p", kind="pull")
        assert ended(client, "p")["state"] == "succeeded"
        until_told(client, "w7", lambda told: "until the warehouse is idle" in told["stage"])


def test_the_registry_tells_those_of_a_warehouse_and_keeps_the_newest_that_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrations.registry.KEPT", 2)
    registry = Registry(tmp_path / "m.db", SystemClock())
    for id_, place in [("a", "here"), ("b", "there"), ("c", "here"), ("d", "there")]:
        registry.put(id_, Asked(Kind.PULL, place))
        if id_ != "a":
            registry.end(id_, Outcome(State.SUCCEEDED))

    def known(place: str) -> list[str]:
        return [m.id for m in registry.chosen(warehouse=place, most=9)]

    assert known("") == ["d", "c", "a"]
    assert known("here") == ["c", "a"]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Load(4, 60.0), ""),
        (Load(5, 0.0), "5 sessions are at work there"),
        (Load(1, 61.0), "a query has run for 61 s there"),
    ],
)
def test_a_warehouse_is_idle_up_to_a_number_of_sessions_and_a_time(found: Load, why: str) -> None:
    assert found.holds_back(Idle(query_s_max=60.0, active_max=4, deadline_s=1.0)) == why
