"""The types that only an outlet has: from a procedure to every answer, values are as they were."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import typed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library import database, drop, new_database
from shop import HERE, Answering, Warehoused, ask, island_over

from api.cut import Freshness
from api.plans import Plan
from api.values import to_json
from etl_procs import Batch, Dataflow, Transaction, Trial, by_punctuation
from etl_procs.batch import table_of
from headrace.crash import CrashPoints
from migrations import audit, layout, warehouse
from migrations.errors import Drift
from migrations.rebuild import Rebuild
from migrations.warehouse import Connection, Warehouse
from tpcdi.schema import TABLES

MAIN, DELTA, STAGED = Freshness
Row = tuple[Any, ...]

COLUMNS = """\
n INTEGER NOT NULL, is_sale BOOLEAN NOT NULL, day DATE NOT NULL, at TIMESTAMP NOT NULL,
price NUMERIC(8,2) NOT NULL, wide NUMERIC(38,10)"""
KEY = ("is_sale", "day", "at", "price")

flow = Dataflow("typed")
numbers = flow.stream("numbers", "n INTEGER NOT NULL", batches=by_punctuation())
kept = flow.outlet("kept", COLUMNS)
latest = flow.outlet("latest", COLUMNS, key=KEY, indexes=[*KEY, "wide"])

GIVEN: list[Row] = []
"""What the procedure gives for each number: a stream has none of these types."""


@flow.procedure(takes=numbers, gives=[kept, latest])
def give(tx: Transaction, batch: Batch) -> None:
    """Give a table to one outlet, and dicts to the other; what has no `wide` is deleted."""
    rows = [(row["n"], *GIVEN[int(row["n"] or 0)]) for row in batch.rows()]
    tx.emit(kept, table_of(rows, kept.columns.arrow))
    for row in (dict(zip(kept.columns.names, values, strict=True)) for values in rows):
        if row["wide"] is None:
            tx.delete(latest, [{name: row[name] for name in KEY}])
        else:
            tx.emit(latest, [row])


NOON = datetime(2026, 5, 6, 12)  # noqa: DTZ001 - a timestamp has no zone
FIRST, LAST = (
    at.replace(tzinfo=None)
    for at in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
)
MOST, LEAST = (typed.decimal(sign * (10**38 - 1), 10) for sign in (1, -1))
VALUES: list[Row] = [
    (True, date(2026, 5, 6), NOON, Decimal("0.00"), Decimal("0E-10")),
    (False, date.min, FIRST, Decimal("999999.99"), MOST),
    (False, date.max, LAST, Decimal("-999999.99"), LEAST),
    (True, date(1999, 12, 31), NOON, Decimal("100.00"), Decimal("1E-10")),
    (True, date(2000, 1, 1), NOON, Decimal("-0.01"), None),
    (True, date(1970, 1, 1), NOON, Decimal("0.10"), typed.decimal(10**18, 10)),
]


def commit(store: Warehoused, *batches: Iterable[Row]) -> None:
    """Have the procedure give these rows, batch by batch."""
    found = []
    for rows in batches:
        first = len(GIVEN)
        GIVEN.extend(rows)
        found.append([(n,) for n in range(first, len(GIVEN))])
    store.run(numbers, *found)


def by_key(rows: Iterable[Row]) -> list[Row]:
    """Work out, by hand, what an outlet with the key holds after some rows."""
    found: dict[Row, Row] = {}
    for row in rows:
        found.pop(row[:4], None)
        if row[4] is not None:
            found[row[:4]] = row
    return list(found.values())


@contextmanager
def opened(home: Path, url: str) -> Iterator[tuple[Warehoused, Connection, Answering]]:
    """A core, and a warehouse that has its tables."""
    GIVEN.clear()
    store = Warehoused(home, flow)
    with warehouse.connect(url, application="test") as connection:
        connection.execute("DROP SCHEMA IF EXISTS typed, typed_main, typed_delta, headrace CASCADE")
        layout.prepare(connection, HERE, flow)
        yield store, connection, island_over(url, store.reader, flow)
    store.close()


def held(island: Answering, outlet: str, freshness: Freshness) -> list[str]:
    """Give what an outlet shows, with every type, sign and scale of a value."""
    rows = ask(island, f"SELECT is_sale, day, at, price, wide FROM {outlet}", freshness)
    return sorted(map(repr, rows))


OF_MANY_DIGITS = (
    "price * price * price",
    "price * 12345678901.5",
    "price + 0.000000000000001",
    "1000000000 * price - price * price",
    "CASE WHEN n > 3 THEN price * price * 99999.99 ELSE price * price * 11111.11 END",
)


@pytest.mark.parametrize("value", OF_MANY_DIGITS)
def test_what_the_island_computes_has_all_digits(
    value: str, tmp_path: Path, warehouse_url: str
) -> None:
    """Of decimals of 18 digits and less, DuckDB would keep 18 of what is made of them."""
    queries = (
        f"SELECT n, {value} AS found FROM kept ORDER BY n",
        f"SELECT {value} AS found FROM kept WHERE {value} <> 7",
        f"SELECT is_sale, sum({value}), max({value}) FROM kept GROUP BY 1 HAVING max({value}) > 1",
    )
    with opened(tmp_path, warehouse_url) as (store, connection, island):
        commit(store, VALUES)
        store.push(connection)
        commit(store, [VALUES[1]] * 150)
        for query in queries:
            expected = sorted(map(repr, island.query(query, STAGED, plan=Plan.SHIP).rows))
            for plan in (Plan.SPLIT, None):
                found = sorted(map(repr, island.query(query, STAGED, plan=plan).rows))
                assert found == expected, query
                assert plan is None or island.plan is plan, query


def test_values_at_their_limits_are_the_same_wherever_a_row_is(
    tmp_path: Path, warehouse_url: str
) -> None:
    expected = sorted(map(repr, VALUES))
    with opened(tmp_path, warehouse_url) as (store, connection, island):
        commit(store, VALUES[:3], VALUES[3:])
        answer = island.query("SELECT * FROM kept ORDER BY n LIMIT 2", STAGED)
        assert [column.type for column in answer.columns] == [
            *("bigint", "boolean", "date", "timestamp without time zone", "numeric", "numeric")
        ]
        assert [list(map(to_json, row)) for row in answer.rows] == [
            [0, True, "2026-05-06", "2026-05-06T12:00:00", "0.00", "0.0000000000"],
            [1, False, "0001-01-01", "0001-01-01T00:00:00", "999999.99", str(MOST)],
        ]
        assert held(island, "kept", STAGED) == expected
        store.push(connection)
        assert held(island, "kept", DELTA) == held(island, "kept", STAGED) == expected
        store.merge(connection)
        assert held(island, "kept", MAIN) == held(island, "kept", STAGED) == expected
        columns = island.query("SELECT * FROM latest", MAIN).columns
        assert columns == answer.columns == island.query("SELECT * FROM latest", DELTA).columns
        with store.reader.snapshot() as snapshot:
            assert audit.findings(connection, HERE, flow, [snapshot]) == []


a_row = st.tuples(
    st.booleans(),
    st.sampled_from([date.min, date(1999, 12, 31), date(2026, 5, 6)]),
    st.sampled_from([NOON, FIRST]),
    st.sampled_from([Decimal("0.00"), Decimal("-1.50"), Decimal("999999.99")]),
    st.none() | typed.decimals(38, 10),
)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batches=st.lists(st.lists(a_row, max_size=6), min_size=1, max_size=6), data=st.data())
def test_any_split_between_staged_delta_and_main_has_the_same_rows(
    warehouse_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    batches: Sequence[Sequence[Row]],
    data: st.DataObject,
) -> None:
    merged, arrived = sorted(data.draw(st.integers(0, len(batches))) for _ in range(2))
    parts = batches[:merged], batches[merged:arrived], batches[arrived:]
    with opened(tmp_path_factory.mktemp("core"), warehouse_url) as (store, connection, island):
        commit(store, *parts[0])
        store.push(connection)
        store.merge(connection)
        commit(store, *parts[1])
        store.push(connection)
        commit(store, *parts[2])
        for freshness, through in ((MAIN, merged), (DELTA, arrived), (STAGED, len(batches))):
            rows = [row for batch in batches[:through] for row in batch]
            assert held(island, "kept", freshness) == sorted(map(repr, rows))
            assert held(island, "latest", freshness) == sorted(map(repr, by_key(rows)))


def test_another_warehouse_is_rebuilt_with_them(
    tmp_path: Path, warehouse_url: str, postgres_url: str
) -> None:
    second = Warehouse("second", new_database(postgres_url))
    with (
        opened(tmp_path, warehouse_url) as (store, connection, _),
        warehouse.connect(second.url, application="test") as other,
    ):
        commit(store, VALUES)
        store.push(connection)
        layout.prepare(other, second, flow)
        store.origin.feed(flow.name, [HERE.name, second.name])
        source = Warehouse(HERE.name, warehouse_url)
        Rebuild(second, source, [store.origin], CrashPoints()).run(other, flow)
        there = "SELECT is_sale, day, at, price, wide FROM typed_main.kept"
        assert sorted(map(repr, other.execute(there))) == sorted(map(repr, VALUES))
    drop(postgres_url, database(second.url))


def test_a_trial_shows_them_as_they_will_arrive() -> None:
    GIVEN[:] = VALUES[3:5]
    with Trial(flow) as trial:
        trial.batch(numbers=[{"n": 0}, {"n": 1}])
        rows = [
            dict(zip(kept.columns.names, (n, *values), strict=True))
            for n, values in enumerate(GIVEN)
        ]
        assert repr(trial.outlet(kept)) == repr(rows)
        deleted = {name: rows[1][name] for name in KEY}
        assert repr(trial.outlet(latest)) == repr([rows[0], {"deleted": deleted}])


def test_drift_names_them_and_an_upgrade_adds_them(connection: Connection) -> None:
    def of(columns: str) -> Dataflow:
        made = Dataflow("grown")
        made.outlet("things", columns)
        return made

    layout.prepare(connection, HERE, of("n INTEGER, price NUMERIC(8,2)"))
    for columns, defined in (("NUMERIC(9,2)", "numeric(9,2)"), ("REAL", "double precision")):
        with pytest.raises(Drift) as caught:
            layout.prepare(connection, HERE, of(f"n INTEGER, price {columns}"))
        drifted = f"grown_main.things.price is defined as {defined} and is numeric(8,2)"
        assert drifted in caught.value.what
    newer = "n INTEGER, price NUMERIC(8,2), day DATE, at TIMESTAMP, is_sale BOOLEAN, x NUMERIC(38)"
    assert len(layout.upgrade(connection, HERE, of(newer))) == 8
    assert layout.upgrade(connection, HERE, of(newer)) == []


def test_the_tables_of_tpcdi_are_made_as_they_are_defined(connection: Connection) -> None:
    made = Dataflow("tpcdi")
    for name, (columns, key, indexes) in TABLES.items():
        made.outlet(name, columns, key=key, indexes=indexes)
    layout.prepare(connection, HERE, made)
    layout.require(connection, HERE, made)
