"""Queries through the REST API: small ones, at rest and amid ingest and merges; 10 million rows.

It is `headrace api` as it comes, over a real core and a real PostgreSQL; its clients are threads of
this process, on the same cores. The peer is psycopg that asks PostgreSQL alone.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from statistics import median, quantiles
from subprocess import PIPE, Popen
from typing import Any, LiteralString

import psycopg
import pyarrow as pa

from bench import killing, postgres, union_table
from bench.harness import Figures, Result, Setup, folder, timed
from bench.part import running
from bench.union_table import staged
from bench.usage import below, peak_mb
from etl_procs.core import core_path
from headrace import config
from headrace.cli import parts
from headrace.local.home import Home

ROWS, STAGED_PERCENT = 200_000, 1
CLIENTS = 8
ASKED_S, ASKED_QUICK_S, LEAST_S, WARM_S = 20.0, 4.0, 0.5, 1.0
WIDTH = 20
"""Rows of a range."""
POINT = "SELECT id, symbol, price, quantity FROM latest WHERE id = $1"
RANGE = "SELECT symbol, count(*), sum(price) FROM latest WHERE id BETWEEN $1 AND $2 GROUP BY symbol"
OF_PEER: tuple[LiteralString, LiteralString] = (
    "SELECT id, symbol, price, quantity FROM union_of_main.latest WHERE id = %s",
    "SELECT symbol, count(*), sum(price) FROM union_of_main.latest WHERE id BETWEEN %s AND %s "
    "GROUP BY symbol",
)
MANY, MANY_QUICK, FEW = 10_000_000, 300_000, 10
"""Rows that are streamed out, and by how many times less before that."""
STREAMED = "SELECT * FROM trades WHERE id < $1"
FILL: LiteralString = """
INSERT INTO union_of_main.trades (id, account, symbol, price, quantity, at)
SELECT id, id %% 997, 'SYM' || id %% 50, id * 7919 %% 1000000 / 100.0, id %% 500 + 1,
  timestamp '1970-01-01' + id * interval '1 s' FROM generate_series(%s::bigint, %s) AS id"""
JSON, ARROW, LINES = (
    "application/json",
    "application/vnd.apache.arrow.stream",
    "application/x-ndjson",
)
PIECE_BYTES = 2**20
PER_S = "small_queries_per_s"
KEY = "of-the-experiment-and-of-nobody-else"

Ask = Callable[[int], None]
"""Asks for the row of this id, or the rows from it on, and checks the answer."""


def run(setup: Setup) -> Result:
    """Stream, and ask for little at rest, and while others write."""
    size, many = setup.size(ROWS, ROWS), setup.size(MANY, MANY_QUICK)
    seconds = max(LEAST_S, (ASKED_QUICK_S if setup.quick else ASKED_S) * setup.scale)
    with (
        folder(setup.folder, "warehouse") as beside,
        folder(setup.folder, "home") as place,
        postgres.server(beside) as conninfo,
        staged(_core(place), postgres.url(conninfo), size) as table,
    ):
        table.stage_only(STAGED_PERCENT)
        held = size // union_table.BATCHES * union_table.BATCHES
        merged = held * (100 - STAGED_PERCENT) // 100
        _fill(conninfo, held, many)
        with _serving(place, postgres.url(conninfo)) as (pid, port):
            streamed = _streamed(pid, port, many)
            rested = _measured(lambda: _api_asks(port), held, seconds)
            alone = _measured(lambda: _postgres_asks(conninfo), merged, seconds)
            with _meanwhile(place, postgres.url(conninfo), held) as told:
                busy = _measured(lambda: _api_asks(port), held, seconds)
    return Result(
        figures={
            **busy,
            **{f"{name}_at_rest": value for name, value in rested.items()},
            **streamed,
            **told,
        },
        peers={"postgres": alone},
        ratios={
            "memory_api_many_to_few": [streamed["memory_many_mb"] / streamed["memory_few_mb"]],
            "memory_worker_many_to_few": [
                streamed["memory_worker_many_mb"] / streamed["memory_worker_few_mb"]
            ],
            "small_to_postgres": [rested[PER_S] / alone[PER_S]],
        },
        settings={
            "rows": held,
            "staged_percent": STAGED_PERCENT,
            "clients": CLIENTS,
            "seconds": seconds,
            "small": [POINT, RANGE],
            "streamed": STREAMED,
            "rows_streamed": [many // FEW, many],
            "memory": "the most that the API, and one of its workers, have had by then",
            "peer": "psycopg's prepared statements, rows that are merged, at rest",
        },
    )


def _core(place: Path) -> Path:
    Home(place).create()
    made = core_path(place).parent
    made.mkdir()
    return made


def _fill(conninfo: str, first: int, count: int) -> None:
    """Have main hold more, as if it had been merged long ago."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(FILL, [first, count - 1])
        connection.execute("ANALYZE union_of_main.trades")


@contextmanager
def _serving(place: Path, url: str) -> Iterator[tuple[int, int]]:
    """Run the API alone; give its process and its port."""
    given = {"home": str(place), "flows": union_table.__file__, "api.key": KEY}
    given |= {"warehouse.url": url, "broker.bootstrap": "127.0.0.1:9"}  # nobody posts tuples
    loaded = config.load(given, environment={}).config
    wired = parts.wire(loaded, parts.Machine(java=Path(), broker_classpath=""))
    (part,) = (part for part in wired.parts if part.name == parts.API)
    with running(part, Home(loaded.home)) as pid:
        yield pid, int(part.address.rpartition(":")[2])


class Http:
    """One client's connection."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port)

    def ask(self, sql: str, parameters: Sequence[int], accept: str = JSON) -> HTTPResponse:
        """Ask a query; what it answers is to be read."""
        headers = {"Authorization": f"Bearer {KEY}", "Accept": accept, "Content-Type": JSON}
        body = json.dumps({"sql": sql, "parameters": parameters})
        self._connection.request("POST", "/v1/query", body, headers)
        response = self._connection.getresponse()
        assert response.status == 200, response.read()
        return response

    def close(self) -> None:
        """Close it."""
        self._connection.close()


@contextmanager
def _api_asks(port: int) -> Iterator[Ask]:
    with closing(Http(port)) as http:

        def ask(id: int) -> None:
            sql, parameters = (RANGE, [id, id + WIDTH - 1]) if id % 2 else (POINT, [id])
            _check(id, json.loads(http.ask(sql, parameters).read())["rows"])

        yield ask


@contextmanager
def _postgres_asks(conninfo: str) -> Iterator[Ask]:
    with closing(postgres.connect(conninfo)) as connection:

        def ask(id: int) -> None:
            point, several = OF_PEER
            found = (
                connection.execute(several, [id, id + WIDTH - 1])
                if id % 2
                else connection.execute(point, [id])
            )
            _check(id, found.fetchall())

        yield ask


def _check(id: int, rows: Sequence[Sequence[Any]]) -> None:
    if id % 2:
        assert sum(row[1] for row in rows) == WIDTH, rows
    else:
        assert [row[0] for row in rows] == [id], rows


def _measured(
    connected: Callable[[], AbstractContextManager[Ask]], held: int, seconds: float
) -> Figures:
    """Have all clients ask one query after another, and tell how many and how long each took."""

    def client(number: int, until: float) -> list[float]:
        chosen = random.Random(number)  # noqa: S311
        took = []
        with connected() as ask:
            while (began := time.perf_counter()) < until:
                ask(chosen.randrange(held - WIDTH))
                took.append(time.perf_counter() - began)
        return took

    with ThreadPoolExecutor(CLIENTS) as clients:
        for length in (WARM_S, seconds):
            until = time.perf_counter() + length
            with timed() as elapsed:
                found = list(clients.map(client, range(CLIENTS), [until] * CLIENTS))
    took = [one for of in found for one in of]
    return {
        PER_S: len(took) / elapsed(),
        "small_query_ms_p50": 1e3 * median(took),
        "small_query_ms_p99": 1e3 * quantiles(took, n=100)[-1],
    }


@contextmanager
def _meanwhile(place: Path, url: str, first: int) -> Iterator[Figures]:
    """Have another process feed the core, push and merge; give what it did, when it has ended."""
    program = killing.module("bench.api_meanwhile", core_path(place).parent, url, str(first))
    done: Figures = {}
    with Popen(program, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        try:
            yield done
        finally:
            said, _ = process.communicate()  # the end of its input ends it
    assert process.returncode == 0, said
    done |= json.loads(said)


def _streamed(pid: int, port: int, many: int) -> Figures:
    """Stream rows out, few and then many, and see what memory that takes."""
    figures: Figures = {}
    for name, count in (("few", many // FEW), ("many", many)):
        for read in (_arrow, _lines):
            with closing(Http(port)) as http, timed() as seconds:
                rows = read(http, count)
            assert rows == count, (rows, count)
            figures[f"streamed{read.__name__}_{name}_rows_per_s"] = count / seconds()
        figures[f"memory_{name}_mb"] = peak_mb(pid)
        figures[f"memory_worker_{name}_mb"] = max(map(peak_mb, below(pid)))
    return figures


def _arrow(http: Http, count: int) -> int:
    with pa.ipc.open_stream(http.ask(STREAMED, [count], ARROW)) as stream:
        return sum(batch.num_rows for batch in stream)


def _lines(http: Http, count: int) -> int:
    response, last, lines = http.ask(STREAMED, [count], LINES), b"", 0
    while piece := response.read(PIECE_BYTES):
        lines += piece.count(b"\n")
        last = (last + piece)[-PIECE_BYTES:]
    end = last.splitlines()[-1]
    assert json.loads(end) == {"end": {"rows": count}}, end
    return lines - len(("head", "end"))
