"""The layout: what a warehouse has for dataflows, and how an older one is brought over."""

import pytest
import shop
from library import drop
from shop import HERE

from etl_procs.dataflow import Dataflow
from migrations import layout, ledger, warehouse
from migrations.errors import Drift, WarehouseError

SALES = "SELECT id FROM shop.sales ORDER BY id"

OLD = """\
CREATE SCHEMA shop; CREATE SCHEMA headrace;
CREATE TABLE shop.sales (id bigint NOT NULL, price double precision, note text);
CREATE TABLE shop.refunds (id bigint NOT NULL);
CREATE TABLE headrace.ledger (
    dataflow text NOT NULL, core uuid, batch bigint NOT NULL CHECK (batch >= 0),
    rows bigint NOT NULL CHECK (rows >= 0), moved_at timestamptz NOT NULL,
    PRIMARY KEY (dataflow), CHECK ((core IS NULL) = (batch = 0)));
"""


def test_a_warehouse_of_an_older_layout_is_refused_until_it_is_upgraded_and_then_goes_on(
    store: shop.Shop, warehouse_url: str
) -> None:
    store.sell((1, -1.0, "a"))
    with store.reader.snapshot() as snapshot:
        core = snapshot.core_id
    with warehouse.connect(warehouse_url, application="test") as connection:
        for statement in OLD.split(";")[:-1]:
            connection.execute(statement.encode())
        connection.execute("INSERT INTO shop.sales VALUES (1, -1.0, 'a')")
        connection.execute("INSERT INTO shop.refunds VALUES (1)")
        connection.execute(
            "INSERT INTO headrace.ledger VALUES ('shop', %(core)s, 1, 2, now())", {"core": core}
        )
        with pytest.raises(Drift, match="of the warehouse default has version 2") as caught:
            layout.prepare(connection, HERE, shop.flow)
        assert "headrace warehouse upgrade" in caught.value.hint
        assert layout.upgrade(connection, HERE, shop.flow) == [
            "the ledger has version 4 now",
            "shop.sales is shop_main.sales now; shop.sales becomes the view over it",
            "shop.refunds is shop_main.refunds now; shop.refunds becomes the view over it",
            "shop_main.sales has the column _batch now",
            "shop_main.sales has the column _partition now",
            "shop_main.refunds has the column _batch now",
            "shop_main.refunds has the column _partition now",
        ]
        assert layout.upgrade(connection, HERE, shop.flow) == []
        assert ledger.merged(connection, ["shop"]) == {("shop", 0): 1}
        store.sell((2, 2.0, "b"))
        store.push(connection)
        assert connection.execute(SALES).fetchall() == [(1,), (2,)]


BEFORE_BATCHES = """\
ALTER TABLE shop_main.sales DROP COLUMN _batch, DROP COLUMN _partition;
ALTER TABLE shop_main.refunds DROP COLUMN _batch, DROP COLUMN _partition;
UPDATE headrace.layout SET version = 3"""


def test_a_main_without_batches_is_refused_until_it_is_upgraded_and_then_has_them(
    store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell((1, -1.0, "a"))
    store.push(connection)
    store.merge(connection)
    for statement in BEFORE_BATCHES.split(";"):
        connection.execute(statement.encode())
    with pytest.raises(Drift, match="of the warehouse default has version 3") as caught:
        layout.prepare(connection, HERE, shop.flow)
    assert "headrace warehouse upgrade" in caught.value.hint
    before = ledger.read(connection, ["shop"])
    assert layout.upgrade(connection, HERE, shop.flow) == [
        "the ledger has version 4 now",
        "shop_main.sales has the column _batch now",
        "shop_main.sales has the column _partition now",
        "shop_main.refunds has the column _batch now",
        "shop_main.refunds has the column _partition now",
    ]
    assert layout.upgrade(connection, HERE, shop.flow) == []
    assert ledger.read(connection, ["shop"]) == before
    store.sell((2, 2.0, "b"))
    store.push(connection)
    store.merge(connection)
    merged = "SELECT id, _batch, _partition FROM shop_main.sales ORDER BY id"
    assert connection.execute(merged).fetchall() == [(1, None, None), (2, 2, 0)]
    assert columns_of(connection, "shop") == ["id", "id", "price", "note"]


def test_a_warehouse_of_a_newer_layout_is_refused(connection: warehouse.Connection) -> None:
    connection.execute("UPDATE headrace.layout SET version = 99")
    with pytest.raises(Drift, match="version 99, and this Headrace works with 4") as caught:
        layout.prepare(connection, HERE, shop.flow)
    assert "newer Headrace" in caught.value.hint


def grown(columns: str, **more: object) -> Dataflow:
    flow = Dataflow("grown")
    flow.outlet("things", columns, **more)  # type: ignore[arg-type]
    return flow


def columns_of(connection: warehouse.Connection, schema: str) -> list[object]:
    found = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = %(schema)s "
        "ORDER BY ordinal_position",
        {"schema": schema},
    )
    return [name for (name,) in found]


def test_columns_and_indexes_that_were_added_come_by_an_upgrade(
    connection: warehouse.Connection,
) -> None:
    layout.prepare(connection, HERE, grown("id INTEGER NOT NULL, a TEXT", key="id"))
    connection.execute("INSERT INTO grown_main.things VALUES (1, 'x')")
    newer = grown("b REAL, id INTEGER NOT NULL, a TEXT", key="id", indexes=["a", ("b", "a")])
    with pytest.raises(Drift, match=r"grown_main\.things\.b is defined as double precision and"):
        layout.prepare(connection, HERE, newer)
    assert layout.upgrade(connection, HERE, newer) == [
        "grown_main.things has the column b now",
        "grown_delta.things has the column b now",
        "grown_main.things has the index things__a now",
        "grown_main.things has the index things__b_a now",
    ]
    assert columns_of(connection, "grown") == ["id", "a", "b"]
    assert connection.execute("TABLE grown.things").fetchall() == [(1, "x", None)]
    assert layout.upgrade(connection, HERE, newer) == []


def test_an_upgrade_that_cannot_be_is_told_and_changes_nothing(
    connection: warehouse.Connection,
) -> None:
    layout.prepare(connection, HERE, grown("id INTEGER NOT NULL"))
    connection.execute("INSERT INTO grown_main.things VALUES (1)")
    newer = grown("id INTEGER NOT NULL, a TEXT, b TEXT NOT NULL")
    with pytest.raises(WarehouseError, match="contains null values"):
        layout.upgrade(connection, HERE, newer)
    assert columns_of(connection, "grown_main") == ["id", "_batch", "_partition"]


def test_live_comes_to_show_a_column_that_was_added_by_hand(
    connection: warehouse.Connection,
) -> None:
    layout.prepare(connection, HERE, grown("id INTEGER NOT NULL"))
    for schema in ("grown_main", "grown_delta"):
        connection.execute(f"ALTER TABLE {schema}.things ADD COLUMN a text".encode())
    layout.upgrade(connection, HERE, grown("id INTEGER NOT NULL, a TEXT"))
    assert columns_of(connection, "grown") == ["id", "a"]


def test_an_upgrade_leaves_a_column_that_is_gone_and_names_it(
    connection: warehouse.Connection,
) -> None:
    layout.prepare(connection, HERE, grown("id INTEGER NOT NULL, a TEXT"))
    with pytest.raises(Drift, match=r"grown_main\.things\.a is not declared and is text"):
        layout.upgrade(connection, HERE, grown("id INTEGER NOT NULL, b TEXT"))


def test_an_index_with_a_long_name_is_made_once(connection: warehouse.Connection) -> None:
    """PostgreSQL's names have 63 bytes at most: it is made under a shorter one."""
    first, second = "a" * 40, "b" * 40
    flow = grown(f"{first} INTEGER, {second} INTEGER", indexes=[(first, second)])
    layout.prepare(connection, HERE, flow)
    assert layout.upgrade(connection, HERE, flow) == []


def test_main_has_the_indexes_that_are_declared_and_delta_has_none(
    connection: warehouse.Connection,
) -> None:
    flow = grown("id INTEGER NOT NULL, a TEXT", key="id", indexes=["a"])
    layout.prepare(connection, HERE, flow)
    found = connection.execute(
        "SELECT schemaname, indexname FROM pg_indexes "
        "WHERE schemaname IN ('grown_main', 'grown_delta') ORDER BY 2"
    ).fetchall()
    assert found == [("grown_main", "things__a"), ("grown_main", "things_pkey")]


@pytest.mark.parametrize("schema", ["shop_main", "shop_delta"])
def test_a_table_whose_rows_a_crash_takes_is_drift(
    connection: warehouse.Connection, schema: str
) -> None:
    """What is in it the core has forgotten."""
    connection.execute(f"ALTER TABLE {schema}.sales SET UNLOGGED".encode())
    with pytest.raises(Drift, match=rf"{schema}\.sales is UNLOGGED, and a crash would empty it"):
        layout.require(connection, HERE, shop.flow)
    connection.execute(f"ALTER TABLE {schema}.sales SET LOGGED".encode())
    layout.require(connection, HERE, shop.flow)


def test_a_partition_whose_rows_a_crash_takes_is_drift(connection: warehouse.Connection) -> None:
    for statement in (
        "DROP TABLE shop_main.refunds CASCADE",
        "CREATE TABLE shop_main.refunds (id bigint NOT NULL, _batch bigint, _partition integer) "
        "PARTITION BY HASH (id)",
        "CREATE UNLOGGED TABLE some_of_them PARTITION OF shop_main.refunds "
        "FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
    ):
        connection.execute(statement.encode())
    with pytest.raises(Drift, match=r"shop_main\.refunds is UNLOGGED"):
        layout.prepare(connection, HERE, shop.flow)
    connection.execute("ALTER TABLE some_of_them SET LOGGED")
    layout.prepare(connection, HERE, shop.flow)


DRIFTS = [
    ("ALTER TABLE shop_delta.sales ADD extra json", "shop_delta.sales.extra is not declared"),
    ("DROP VIEW shop.sales", "shop.sales is not a view there"),
    ("ALTER TABLE shop_main.sales ADD extra json", "shop_main.sales.extra is not declared"),
]


@pytest.mark.parametrize(("change", "said"), DRIFTS)
def test_each_push_and_each_merge_looks_at_the_tables_also_while_its_connection_lasts(
    store: shop.Shop, connection: warehouse.Connection, change: str, said: str
) -> None:
    store.sell((1, 1.0, None))
    store.push(connection)
    connection.execute(change.encode())
    store.sell((2, 1.0, None))
    for move in (store.push, store.merge):
        with pytest.raises(Drift, match=said) as caught:
            move(connection)
        assert "of the warehouse default" in caught.value.what
    assert connection.execute("SELECT id FROM shop_delta.sales").fetchall() == [(1,)]
    assert connection.execute("TABLE shop_main.sales").fetchall() == []


def test_a_check_names_an_index_that_is_missing_and_pushes_go_on_without_it(
    connection: warehouse.Connection,
) -> None:
    flow = grown("id INTEGER NOT NULL, a TEXT", key="id", indexes=["a"])
    layout.prepare(connection, HERE, flow)
    layout.require(connection, HERE, flow)
    connection.execute("DROP INDEX grown_main.things__a")
    with pytest.raises(Drift, match=r"grown_main\.things lacks the index things__a"):
        layout.require(connection, HERE, flow)
    layout.prepare(connection, HERE, flow)
    assert layout.upgrade(connection, HERE, flow) == [
        "grown_main.things has the index things__a now"
    ]
    layout.require(connection, HERE, flow)


def test_a_check_names_what_whoever_moves_rows_may_not_do(
    connection: warehouse.Connection,
) -> None:
    connection.execute("DROP ROLE IF EXISTS headrace_nobody")
    connection.execute("CREATE ROLE headrace_nobody")
    connection.execute("GRANT USAGE ON SCHEMA headrace, shop_main TO headrace_nobody")
    connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA headrace TO headrace_nobody")
    connection.execute("SET ROLE headrace_nobody")
    with pytest.raises(Drift) as caught:
        layout.require(connection, HERE, shop.flow)
    connection.execute("RESET ROLE")
    told = caught.value.what
    assert "headrace_nobody may not read it, write it, vacuum or upgrade it" in told
    assert "shop_delta.sales is " in told
    assert "headrace_nobody may not use its schema, read it" in told
    connection.execute("DROP OWNED BY headrace_nobody")
    connection.execute("DROP ROLE headrace_nobody")


def test_a_database_of_another_encoding_is_refused_when_it_is_prepared_and_when_it_is_checked(
    postgres_url: str,
) -> None:
    with warehouse.connect(postgres_url, application="test") as server:
        server.execute(
            "CREATE DATABASE in_latin ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER 'libc' "
            "TEMPLATE template0"
        )
    url = postgres_url.rsplit("/", 1)[0] + "/in_latin"
    with warehouse.connect(url, application="test") as connection:
        for look in (layout.prepare, layout.require):
            with pytest.raises(Drift, match="warehouse default is in LATIN1, and not in UTF8"):
                look(connection, HERE, shop.flow)
    drop(postgres_url, "in_latin")
