"""What tests share: a real PostgreSQL, with a database of its own for each test."""

import logging
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import audited
import duckdb
import phased
import pytest
import shop
from airflows import Airflow
from alone import Alone, a_broker, a_postgres, data_folder
from library import Library, database, databases, drop, new_database
from live import Parts
from pyspark.sql import SparkSession
from shop import HERE, Answering
from tpcdi_files import Directory
from vectoring import a_spark

from etl_procs import Trial
from migrations import layout, warehouse
from tpcdi import oracle
from tpcdi.flow import flow
from tpcdi.generate import generate
from tpcdi.snapshot import Connection

Made = Callable[[float, int], Path]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that runs in this process sets its log up; the next test knows nothing of it."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of this test run's own."""
    with a_postgres(data_folder(tmp_path_factory.mktemp("postgres") / "home")) as server:
        yield server.url


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    """A broker of this test run's own; who kills one has another."""
    with a_broker(data_folder(tmp_path_factory.mktemp("broker") / "home")) as broker:
        yield broker


@pytest.fixture(scope="session")
def running(postgres_url: str, kafka: Alone) -> Parts:
    """Where both are."""
    return Parts(kafka.address, postgres_url)


@pytest.fixture
def warehouse_url(postgres_url: str) -> Iterator[str]:
    """An empty database."""
    made = new_database(postgres_url)
    yield made
    drop(postgres_url, database(made))


@pytest.fixture
def second_url(postgres_url: str) -> Iterator[str]:
    """Another one."""
    made = new_database(postgres_url)
    yield made
    drop(postgres_url, database(made))


@pytest.fixture
def library(postgres_url: str, tmp_path: Path) -> Iterator[Library]:
    """A book that two warehouses take."""
    with databases(postgres_url, "first", "second") as places:
        made = Library(tmp_path, *places)
        yield made
        made.close()


@pytest.fixture
def connection(warehouse_url: str) -> Iterator[warehouse.Connection]:
    """A connection to a warehouse that is prepared for `shop`."""
    with warehouse.connect(warehouse_url, application="test") as opened:
        layout.prepare(opened, HERE, shop.flow)
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[shop.Shop]:
    """A core with the dataflow of `shop`, in its own data folder."""
    made = shop.Shop(tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _islands_end() -> Iterator[None]:
    """End the sessions of the islands that a test has made."""
    yield
    while Answering.opened:
        Answering.opened.pop().close()


@pytest.fixture
def island(connection: warehouse.Connection, warehouse_url: str, store: shop.Shop) -> Answering:
    return shop.island_over(warehouse_url, store.reader)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark of the module's own."""
    with a_spark(tmp_path_factory.mktemp("spark")) as started:
        yield started


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    """An Airflow that nothing was set in: a home with an empty database."""
    made = Airflow(tmp_path_factory.mktemp("airflow"), {})
    done = made.run("db", "migrate")
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Makes the source files of TPC-DI of a scale and a seed, once; they stay as they are."""
    folder = tmp_path_factory.mktemp("tpcdi")

    @cache
    def make(scale: float, seed: int) -> Path:
        path = folder / f"{scale}-{seed}"
        generate(path, scale, seed)
        return path

    return make


@pytest.fixture(scope="session")
def small(made: Made) -> Directory:
    """The source files of TPC-DI at a small scale."""
    return Directory(made(0.05, 7))


@pytest.fixture(scope="session")
def audited_oracle(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """What the oracle computes of the files that pass the audit."""
    with oracle.compute(audited.files().write(tmp_path_factory.mktemp("audited"))) as computed:
        yield computed


@pytest.fixture(scope="session")
def audited_rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the dataflow makes of the files that pass the audit."""
    with Trial(flow) as trial:
        phased.load(trial, audited.files().write(tmp_path_factory.mktemp("whole")))
        assert trial.dead_letters() == []
        return phased.exported(trial)


@pytest.fixture(scope="session")
def audited_warehouse(
    postgres_url: str,
    audited_oracle: duckdb.DuckDBPyConnection,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Connection]:
    """A warehouse that holds it and passes the audit; who changes it rolls that back."""
    directory = audited.files().write(tmp_path_factory.mktemp("reported"))
    with audited.database(postgres_url, "audited") as connection:
        audited.fill(connection, audited_oracle)
        audited.report(connection, directory)
        yield connection
