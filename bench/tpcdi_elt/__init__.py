"""TPC-DI's historical load as people do it: an ELT in one PostgreSQL.

COPY brings each file into a raw table of texts, then SQL, set by set, builds the warehouse from
them, over two connections, since the machine has two cores; all tables are logged, and every
step is a transaction that is on the disk when it returns. CustomerMgmt.xml is made flat by Python,
for this PostgreSQL is built without libxml; so its time counts.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import psycopg
from psycopg import sql

from bench.postgres import Connection
from tpcdi import schema
from tpcdi.oracle import sources
from tpcdi.oracle.sources import Source

SERVER = ("shared_buffers=1GB", "max_wal_size=8GB", "wal_buffers=64MB")
"""What somebody sets who knows that a load comes: PostgreSQL is shipped for less memory."""

SESSION = """
    SET work_mem = '256MB'; SET hash_mem_multiplier = 2; SET maintenance_work_mem = '512MB';
    SET effective_cache_size = '4GB'; SET jit = off"""
CONNECTIONS = 2
BLOCK = 1 << 20

VERBATIM = {
    "date": "dimdate",
    "time": "dimtime",
    "industry": "industry",
    "statustype": "statustype",
    "taxrate": "taxrate",
    "tradetype": "tradetype",
}
"""Files that are copied straight into the warehouse, since they are the table."""

LARGE = ("dailymarket", "trade", "tradehistory", "watchhistory", "cashtransaction")
RAW = (*LARGE, "holdinghistory", "prospect", "hr", "batchdate")
DEPENDS: Mapping[str, tuple[str, ...]] = {
    "dimbroker": ("hr", "date"),
    "dimcompany": ("finwire", "statustype", "industry", "batchdate"),
    "dimsecurity": ("dimcompany",),
    "financial": ("dimcompany",),
    "people": ("prospect",),
    "dimcustomer": ("action", "people", "taxrate", "batchdate"),
    "dimaccount": ("dimcustomer", "dimbroker"),
    "prospect_table": ("dimcustomer",),
    "factmarkethistory": ("dailymarket", "financial", "dimsecurity"),
    "dimtrade": ("trade", "tradehistory", "dimaccount", "dimsecurity", "tradetype"),
    "factholdings": ("holdinghistory", "dimtrade"),
    "factcashbalances": ("cashtransaction", "dimaccount"),
    "factwatches": ("watchhistory", "dimcustomer", "dimsecurity"),
    "audit": ("answers",),
}
"""A paragraph of SQL, and what must be there before it."""

STATEMENTS = Path(__file__).parent
FILES = {"prospect_table": "prospect"}
COPY = sql.SQL("COPY {table} FROM STDIN (FORMAT text, DELIMITER {delimiter}, NULL {null})")
ABSENT = "\\N"
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

Step = Callable[[Connection], None]


class Built(NamedTuple):
    """A warehouse that was built."""

    seconds: float
    steps: dict[str, float]
    """The seconds of each step; two of them ran at a time."""


def build(conninfo: str, directory: Path) -> Built:
    """Build the warehouse of the historical batch from its files."""
    connections: SimpleQueue[Connection] = SimpleQueue()
    opened = [psycopg.connect(conninfo, autocommit=True) for _ in range(CONNECTIONS)]
    began = time.perf_counter()
    try:
        for connection in opened:
            connection.execute(SESSION)
            connections.put(connection)
        _create(opened[0])
        steps = _run(_steps(directory), connections)
    finally:
        for connection in opened:
            with closing(connection):
                connection.cancel()
    return Built(time.perf_counter() - began, steps)


def _create(connection: Connection) -> None:
    """Create the warehouse's tables, and those of the raw files."""
    connection.execute("CREATE SCHEMA raw; CREATE SCHEMA steps; CREATE SCHEMA tpcdi")
    connection.execute((STATEMENTS / "functions.sql").read_bytes())
    for name, table in schema.TABLES.items():
        columns = re.sub(r"\bINTEGER\b", "BIGINT", table.columns)
        connection.execute(f"CREATE TABLE tpcdi.{name} ({columns})".encode())
    for name, source in _sources().items():
        columns = ", ".join(f"{column} TEXT" for column in source.columns.split())
        connection.execute(f"CREATE TABLE raw.{name} ({columns})".encode())


def _sources() -> dict[str, Source]:
    known = sources.INCREMENTAL | sources.PLAIN
    others = {"finwire": sources.FINWIRE, "answers": sources.AUDIT}
    raw = {name: known[name] for name in RAW} | others
    return {"audit" if name == "answers" else name: source for name, source in raw.items()} | {
        "action": Source("CustomerMgmt.xml", sources.ACTIONS, "\t")
    }


def _steps(directory: Path) -> TopologicalSorter[tuple[str, Step]]:
    """Say what there is to do, and what waits for what; the largest files come first."""
    folder, of = directory / "Batch1", _sources()
    known = sources.INCREMENTAL | sources.PLAIN
    steps: dict[str, Step] = {"action": partial(_copy_actions, path=folder / "CustomerMgmt.xml")}
    companies = sorted(folder.glob("FINWIRE[0-9][0-9][0-9][0-9]Q[1-4]"))
    steps["finwire"] = partial(_copy, table=("raw", "finwire"), source=of["finwire"], of=companies)
    for name, table in VERBATIM.items():
        source = known[name]
        paths = [folder / source.file]
        steps[name] = partial(_copy, table=("tpcdi", table), source=source, of=paths)
    for name in reversed(RAW):
        paths = [folder / of[name].file]
        steps[name] = partial(_copy, table=("raw", name), source=of[name], of=paths)
    told = [*folder.glob("*_audit.csv"), *directory.glob("Batch1_audit.csv")]
    told += directory.glob("Generator_audit.csv")
    steps["answers"] = partial(_copy, table=("raw", "audit"), source=of["audit"], of=told)
    for name in DEPENDS:
        steps[name] = partial(_execute, file=STATEMENTS / f"{FILES.get(name, name)}.sql")
    graph: TopologicalSorter[tuple[str, Step]] = TopologicalSorter()
    for name, step in steps.items():
        graph.add((name, step), *((each, steps[each]) for each in DEPENDS.get(name, ())))
    last = [(name, steps[name]) for name in steps]
    for table in (name for name, of in schema.TABLES.items() if of.key or of.indexes):
        graph.add((f"index {table}", partial(_index, table=table)), *_written(table, last))
    return graph


def _written(table: str, steps: list[tuple[str, Step]]) -> Iterator[tuple[str, Step]]:
    """Give the steps after which a table is complete, and its indexes can be built."""
    of = {value: key for key, value in VERBATIM.items()} | {"prospect": "prospect_table"}
    return ((name, step) for name, step in steps if name == of.get(table, table))


def _run(
    graph: TopologicalSorter[tuple[str, Step]], connections: "SimpleQueue[Connection]"
) -> dict[str, float]:
    """Take each step as soon as it can be taken and a connection is free."""
    seconds: dict[str, float] = {}

    def take(name: str, step: Step) -> None:
        connection = connections.get()
        began = time.perf_counter()
        step(connection)
        seconds[name] = time.perf_counter() - began
        connections.put(connection)

    graph.prepare()
    taken: dict[Future[None], tuple[str, Step]] = {}
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        while graph.is_active():
            taken |= {pool.submit(take, *step): step for step in graph.get_ready()}
            done, _ = wait(taken, return_when=FIRST_COMPLETED)
            for future in done:
                if future.exception() is not None:
                    pool.shutdown(cancel_futures=True)
                future.result()
                graph.done(taken.pop(future))
    return seconds


def _copy(connection: Connection, table: tuple[str, str], source: Source, of: list[Path]) -> None:
    """Copy files into a table, in this order."""
    copy = COPY.format(
        table=sql.Identifier(*table), delimiter=sql.Literal(source.delimiter), null=sql.Literal("")
    )
    with connection.transaction(), connection.cursor() as cursor:
        for path in of:
            with path.open("rb") as lines, cursor.copy(copy) as rows:
                while block := lines.read(BLOCK):
                    rows.write(block)
        cursor.execute(sql.SQL("ANALYZE {table}").format(table=sql.Identifier(*table)))


def _copy_actions(connection: Connection, path: Path) -> None:
    """Copy the customers' actions, made flat; what is absent is not what is empty."""
    names = sources.ACTIONS.split()
    copy = COPY.format(
        table=sql.Identifier("raw", "action"),
        delimiter=sql.Literal("\t"),
        null=sql.Literal(ABSENT),
    )
    with connection.cursor() as cursor, cursor.copy(copy) as rows:
        for action in sources.actions(path):
            of = map(action.get, names)
            fields = (ABSENT if field is None else field.translate(ESCAPES) for field in of)
            rows.write("\t".join(fields) + "\n")


def _execute(connection: Connection, file: Path) -> None:
    """Execute a file of statements, as one transaction."""
    connection.execute(file.read_bytes())


def _index(connection: Connection, table: str) -> None:
    """Build the indexes that the warehouse has."""
    definition = schema.TABLES[table]
    name = sql.Identifier("tpcdi", table)
    if definition.key:
        key = sql.SQL(", ").join(map(sql.Identifier, definition.key))
        connection.execute(
            sql.SQL("ALTER TABLE {table} ADD PRIMARY KEY ({key})").format(table=name, key=key)
        )
    for column in definition.indexes:
        of = sql.Identifier(column)
        connection.execute(
            sql.SQL("CREATE INDEX ON {table} ({column})").format(table=name, column=of)
        )
