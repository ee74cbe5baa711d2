"""Files: tables that are folders of Parquet files, answered by DuckDB behind the same shim."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import duckdb
import every
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import till
from api_process import ApiProcess
from dividing import Divided, divided, written
from random_queries import Queries
from serving import Client
from shop import Answering

from api import duck, finish
from api.catalogue import Catalogue
from api.errors import NotReady, QueryRefused, TooSlow
from api.grant import Restriction
from api.island import Asked
from api.plans import Plan
from api.shims import Shim
from api.shims.files import Files, Folder, folder
from api.shims.postgres import Postgres
from headrace.errors import ConfigError, Refused
from migrations import warehouse
from migrations.warehouse import DEFAULT, Warehouse

NAMES = every.facts.columns.names


def write(path: Path, rows: list[every.Row], schema: pa.Schema = every.facts.columns.arrow) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [dict(zip(NAMES, row, strict=True)) for row in rows]
    pq.write_table(pa.Table.from_pylist(made, schema=schema), path)


def over(island: Answering, held: Folder) -> Answering:
    """Make an island that knows a folder, too."""
    setting = island.setting
    made = Answering(
        type(setting)(
            setting.warehouses,
            setting.cores,
            Catalogue.of({"every": every.flow}, held.outlets),
            files=(held,),
        )
    )
    Answering.opened.append(made)
    return made


@pytest.fixture
def rows(tmp_path: Path, warehouse_url: str) -> Iterator[tuple[Divided, Answering, Path]]:
    """Divide rows at random, and have a table of others in files."""
    random = Random(5)  # noqa: S311 - repeatable on purpose
    path = tmp_path / "files"
    with divided(tmp_path / "core", warehouse_url, random) as held:
        given = [every.a_row(random, 40) for _ in range(60)]
        write(path / "history" / "a.parquet", given[:25])
        write(path / "history" / "b.parquet", given[25:])
        connection = held.connection
        connection.execute("CREATE TABLE plain.history (LIKE plain.facts)")
        places = ", ".join(["%s"] * len(NAMES))
        with connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO plain.history VALUES ({places})".encode(), given)
        yield held, over(held.island, folder("old", path)), path


def test_random_queries_over_files_have_the_answers_of_postgresql(
    rows: tuple[Divided, Answering, Path],
) -> None:
    held, island, path = rows
    held.island = island
    answered = dict.fromkeys(("history", "states"), 0)
    (history,) = folder("old", path).outlets
    for other, table in (("history", history), ("states", every.states)):
        queries = Queries(11, (history, table))
        for _ in range(160):
            query = queries.query()
            expected = held.expected(query)
            assert held.found(query, None) == expected, query
            answered[other] += "history" in query and expected is not None
    assert min(answered.values()) > 25, answered


def test_of_rows_that_no_file_can_have_there_are_none(
    rows: tuple[Divided, Answering, Path],
) -> None:
    _, island, _ = rows
    assert island.query("SELECT id FROM history WHERE id IS NULL").rows == ()
    assert island.query("SELECT count(*), sum(n) FROM history WHERE id > 1000").rows == ((0, None),)


def test_explain_tells_what_the_files_are_asked(rows: tuple[Divided, Answering, Path]) -> None:
    _, island, _ = rows
    answer = island.query("SELECT count(*), sum(p) FROM old.history WHERE id < 20")
    assert (island.plan, answer.as_of) == (Plan.SPLIT, {})
    island.query("SELECT count(*) FROM history h JOIN states s ON h.id = s.id")
    assert island.plan is Plan.GATHER
    told = island.explain(Asked("SELECT upper(h.t) FROM history h JOIN states s USING (id)"))
    ship, gather = told["candidates"]
    assert told["because"].startswith("no warehouse has all of its tables")
    assert gather["why_not"]
    assert "pg_temp" in ship["sql"]["default"]
    assert "read_parquet" in ship["sql"]["old"]


def test_a_query_reads_the_files_that_are_there_when_it_begins(
    rows: tuple[Divided, Answering, Path],
) -> None:
    _, island, path = rows
    count = "SELECT count(*) FROM history"
    write(path / "history" / ".c.parquet", [every.a_row(Random(1), 5)])  # noqa: S311 - any row
    assert island.query(count).rows == ((60,),)
    (path / "history" / ".c.parquet").rename(path / "history" / "c.parquet")
    assert island.query(count).rows == ((61,),)
    (path / "history" / "a.parquet").write_bytes(b"no longer what it was")
    with pytest.raises((NotReady, Refused)):
        island.query(count)
    for file in (path / "history").glob("*"):
        file.unlink()
    assert island.query(count).rows == ((0,),)


def test_a_caller_sees_of_files_what_it_may(rows: tuple[Divided, Answering, Path]) -> None:
    held, island, _ = rows
    island.tables = (("old.history", Restriction(("id", "t"), "id < 10")),)
    sql = "SELECT id, t FROM history ORDER BY 1, 2"
    expected = held.connection.execute(
        b"SELECT id, t FROM plain.history WHERE id < 10 ORDER BY 1, 2"
    ).fetchall()
    for plan in (Plan.SPLIT, Plan.SHIP):
        assert written(sql, island.query(sql, plan=plan).rows) == written(sql, expected)
        assert island.plan is plan
    for refused in ("SELECT n FROM history", "SELECT id FROM states"):
        with pytest.raises(QueryRefused):
            island.query(refused)


def test_an_error_tells_nothing_of_a_row_that_is_hidden(
    rows: tuple[Divided, Answering, Path],
) -> None:
    _, island, _ = rows
    overflows = "SELECT count(*) FROM history WHERE n * n > 0"
    restriction = Restriction(None, "n IN (1, 2, 3, 4, 5)")
    for plan in (Plan.SPLIT, Plan.SHIP):
        island.tables = None
        with pytest.raises(Refused):
            island.query(overflows, plan=plan)
        island.tables = (("old.history", restriction),)
        assert island.query(overflows, plan=plan).rows[0][0] > 0


def test_what_takes_too_long_ends(rows: tuple[Divided, Answering, Path]) -> None:
    _, island, path = rows
    many = [(n, 1, None, None, None, None, None, None, None) for n in range(20_000)]
    write(path / "history" / "many.parquet", many)
    island.timeout_ms = 300
    with pytest.raises(TooSlow, match="longer than 300 ms"):
        island.query("SELECT count(*) FROM history a JOIN history b ON a.n <> b.id - a.id")


def test_who_listens_for_what_is_to_end_outlives_engines_that_are_closed_or_away(
    tmp_path: Path, warehouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "history" / "a.parquet", [])
    there = Postgres(Warehouse(DEFAULT, warehouse_url))
    sessions: list[Shim] = [Files(folder("old", tmp_path), 64), there]
    for session in sessions:
        session.close()
        session.cancel()

    def refused(_: warehouse.Connection) -> None:
        raise psycopg.OperationalError("cancellation failed: Connection refused")

    monkeypatch.setattr(warehouse, "cancel", refused)
    there.cancel()


def test_columns_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    one = {"a": pa.array([1], pa.int16()), "Big": [1], "l": [[1]], "m": pa.array([0], pa.date32())}
    pq.write_table(pa.table(one), tmp_path / "t" / "1.parquet")
    two = {"a": pa.array([2], pa.int32()), "d": pa.array([None], pa.decimal128(9, 2))}
    pq.write_table(pa.table(two), tmp_path / "t" / "2.parquet")
    (outlet,) = folder("old", tmp_path).outlets
    assert outlet.full_name == "old.t"
    assert outlet.columns.sql == "a INTEGER, m DATE, d NUMERIC(9,2)"
    for path, why in ((tmp_path / "none", "no such folder"), (tmp_path / "t", "no folder in it")):
        with pytest.raises(ConfigError, match=why):
            folder("old", path)


def test_files_and_a_dataflow_have_names_of_their_own(tmp_path: Path) -> None:
    write(tmp_path / "history" / "a.parquet", [])
    with pytest.raises(ConfigError, match=r"files\.every has the name of a dataflow"):
        Catalogue.of({"every": every.flow}, folder("every", tmp_path).outlets)


BESIDE = [
    "FROM read_parquet('{other}')",
    "FROM read_parquet('{inside}/../other.parquet')",
    "FROM '{other}'",
    "FROM glob('{inside}/../*')",
    "FROM read_text('/etc/passwd')",
    "FROM read_parquet('http://127.0.0.1:1/x.parquet')",
    "ATTACH '{other}.db'",
    "COPY (SELECT 1) TO '{other}.csv'",
    "SET allowed_directories = ['/']",
    "SET enable_external_access = true",
    "SET temp_directory = '{inside}'",
    "INSTALL httpfs",
    "LOAD httpfs",
]
INSIDE = [
    "FROM read_parquet('{inside}/a.parquet')",
    "FROM '{inside}/a.parquet'",
    "FROM read_text('{inside}/a.parquet')",
    "ATTACH '{inside}/a.db'",
    "COPY (SELECT 1) TO '{inside}/a.csv'",
    "EXPORT DATABASE '{inside}'",
]


@pytest.fixture
def folders(tmp_path: Path) -> Mapping[str, Path]:
    """A folder with a file, and a file beside it."""
    inside, other = tmp_path / "inside", tmp_path / "other.parquet"
    inside.mkdir()
    for file in (inside / "a.parquet", other):
        pq.write_table(pa.table({"a": [1]}), file)
    return {"inside": inside, "other": other}


@pytest.mark.parametrize("sql", BESIDE)
def test_duckdb_reaches_nothing_beside_the_folder(folders: Mapping[str, Path], sql: str) -> None:
    with duck.locked(64, folders["inside"]) as connection:
        assert connection.execute(INSIDE[0].format(**folders)).fetchall() == [(1,)]
        with pytest.raises(duckdb.Error, match=r"disabled|locked"):
            connection.execute(sql.format(**folders))


@pytest.mark.parametrize("sql", [*BESIDE, *INSIDE])
def test_duckdb_without_a_folder_reaches_no_file_and_no_network(
    folders: Mapping[str, Path], sql: str
) -> None:
    before = sorted(folders["inside"].parent.rglob("*"))
    with duck.locked(64) as connection:
        with pytest.raises(duckdb.Error, match=r"disabled|locked"):
            connection.execute(sql.format(**folders))
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert sorted(folders["inside"].parent.rglob("*")) == before


def test_the_island_finishes_in_a_duckdb_without_a_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[tuple[object, ...]] = []
    monkeypatch.setattr(duck, "locked", lambda *given: opened.append(given))
    finish.Finisher(64)
    assert opened == [(64,)]


@pytest.fixture
def of_prices(tmp_path: Path, warehouse_url: str) -> Iterator[Client]:
    """An API that knows old.prices, a folder with one file."""
    schema = pa.schema([pa.field("item", pa.string()), pa.field("cents", pa.int64())])
    (tmp_path / "old" / "prices").mkdir(parents=True)
    told = [{"item": "tea", "cents": 250}, {"item": "bun", "cents": 100}]
    pq.write_table(
        pa.Table.from_pylist(told, schema=schema), tmp_path / "old" / "prices" / "a.parquet"
    )
    settings = tmp_path / "headrace.toml"
    settings.write_text(f'[files.old]\nfolder = "{tmp_path / "old"}"\n')
    till.Till(tmp_path).end_of_day()
    api = ApiProcess(tmp_path, till.FILE, warehouse_url, "--config", str(settings))
    yield api.client
    api.end()


def test_the_api_answers_of_a_folder_that_is_configured(of_prices: Client) -> None:
    answer = of_prices.ask("SELECT sum(cents) AS cents FROM prices")
    assert answer.document.get("rows") == [["350"]], answer.body
    listed = of_prices.send("GET", "/v1/tables").document["tables"]
    assert "old.prices" in [one["name"] for one in listed]


@pytest.mark.parametrize("path", ["/v1/query", "/v1/query/explain"])
def test_what_a_worker_logs_tells_the_id_of_the_request(
    of_prices: Client, tmp_path: Path, path: str
) -> None:
    (tmp_path / "old" / "prices" / "a.parquet").write_bytes(b"no longer what it was")
    asked = '{"sql": "SELECT sum(cents) AS cents FROM prices"}'
    assert of_prices.send("POST", path, asked, X_Request_Id="mine").status >= 400
    (log,) = tmp_path.glob("api-of-test-*")
    assert "Z WARNING query worker api.shims.files request=mine: " in log.read_text()
