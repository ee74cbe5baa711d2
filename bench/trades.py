"""TPC-DI's trades into DimTrade: four procedures, one, and clients that drive four steps.

It is the experiment of streaming ETL: how much of the speed of one procedure is left when it is
divided into a dataflow, and how much when a client keeps the order and waits for each step. Each
trial's DimTrade is compared with what the oracle computes. Derived from TPC-DI, not comparable to
published results.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench import postgres
from bench.bare import GROUP_BATCHES
from bench.harness import Figures, Result, Setup, Trial, folder, in_turns, timed
from bench.ours import GROUP_MS, Ours, arrivals
from bench.trades_data import SEED, TUPLE, Rows, Trades, digest, trades
from bench.trades_postgres import PostgresTrades
from bench.trades_steps import CALLS, four_calls, four_procedures, one_procedure, packed
from etl_procs.batch import table_of
from etl_procs.columns import parse_tuple
from etl_procs.dataflow import Dataflow
from tpcdi import DERIVED

SIZES = (1, 10, 100, 1_000, 10_000)
LEAST_SCALE = 0.01
"""The generator makes nothing smaller."""
FOUR, ONE, CLIENT, POSTGRES = "four_procedures", "one_procedure", "client", "client_of_postgres"
RATE = "trades_per_s_"
WAYS = (FOUR, ONE, CLIENT, POSTGRES)
COLUMNS = parse_tuple(TUPLE, "a trade")


class Work(NamedTuple):
    """Trades, and how many of them: whole batches, of which no time is taken of the first."""

    trades: Trades
    size: int
    batches: int

    @property
    def timed(self) -> int:
        """Count the trades of which the time is taken."""
        return self.size * (self.batches - 1)

    @property
    def all(self) -> list[Rows]:
        """Give the batches."""
        rows, size = self.trades.tuples, self.size
        return [rows[size * n : size * (n + 1)] for n in range(self.batches)]

    def compare(self, rows: Rows, who: str) -> None:
        """Let nobody end with another DimTrade than the oracle."""
        expected = self.trades.entered[: self.size * self.batches]
        assert digest(rows) == digest(expected), f"{who} ended with other trades than the oracle"


def run(setup: Setup) -> Result:
    """Compare at each size of a batch, in turns."""
    scale = max(LEAST_SCALE, (0.16 if setup.quick else 1.0) * setup.scale)
    most = setup.size(full=2_000, quick=150)
    with folder(setup.folder, "files") as files:
        made = trades(files, scale)
    figures: Figures = {}
    peers: dict[str, Figures] = {name: {} for name in WAYS[1:]}
    ratios: dict[str, list[float]] = {}
    works = [work for size in SIZES if (work := work_of(made, size, most)).batches > 1]
    with postgres.server(setup.folder) as conninfo:
        every = {
            f"{name}_at_{work.size}": (trial, work.timed)
            for work in works
            for name, trial in trials(work, conninfo).items()
        }
        times = in_turns({name: trial for name, (trial, _) in every.items()}, setup)
    each = times.per({name: count for name, (_, count) in every.items()})
    for at in (f"at_{work.size}" for work in works):
        for name in WAYS:
            (figures if name == FOUR else peers[name])[f"{RATE}{at}"] = each.rate(f"{name}_{at}")
        ratios |= {
            f"{name}_to_{of}_{at}": each.ratios(f"{name}_{at}", f"{of}_{at}")
            for name, of in ((FOUR, ONE), (CLIENT, ONE), (POSTGRES, ONE), (FOUR, CLIENT))
        }
    return Result(
        figures=figures,
        peers=peers,
        ratios=ratios,
        settings={
            "at": "so many trades are a batch",
            "scale": scale,
            "seed": SEED,
            "trades": {f"at_{work.size}": work.timed for work in works},
            "rounds": min(map(len, ratios.values())),
            "steps": "clean, secure, place, enter",
            "durability": "on the disk when a group of batches, or a call, is answered",
            "group_batches": GROUP_BATCHES,
            "group_ms_max": GROUP_MS,
            "client": "in the same process: no network; a batch is one argument",
            "results": DERIVED,
        },
    )


def work_of(made: Trades, size: int, most: int) -> Work:
    """Choose how many batches there are of a size."""
    return Work(made, size, min(most, len(made.tuples) // size))


def trials(work: Work, conninfo: str) -> dict[str, Trial]:
    """Give all ways."""
    return {
        FOUR: partial(_dataflow, work, four_procedures),
        ONE: partial(_dataflow, work, one_procedure),
        CLIENT: partial(_client, work),
        POSTGRES: partial(_postgres, work, conninfo),
    }


def _dataflow(work: Work, declared: Callable[[Trades, int], Dataflow], folder: Path) -> float:
    flow = declared(work.trades, work.size)
    first, *rest = work.all
    stream = flow.streams["trades"]
    fed = arrivals(stream, first)
    then = arrivals(stream, [row for batch in rest for row in batch], first_offset=work.size)
    with Ours(folder, flow, "strong") as ours:
        ours.feed(fed)
        with timed() as seconds:
            ours.feed(then)
        work.compare(_entered(ours), flow.name)
    return seconds()


def _client(work: Work, folder: Path) -> float:
    flow = four_calls(work.trades)
    batches = [packed(table_of(batch, COLUMNS.arrow)) for batch in work.all]
    with Ours(folder, flow, "strong") as ours:
        call = ours.caller()

        def take(number: int) -> None:
            call("clean", {"batch": number, "tuples": batches[number]})
            for name in CALLS:
                call(name, {"batch": number})

        take(0)
        with timed() as seconds:
            for number in range(1, work.batches):
                take(number)
        work.compare(_entered(ours), "the client")
    return seconds()


def _postgres(work: Work, conninfo: str, _folder: Path) -> float:
    client = PostgresTrades(conninfo, work.trades)
    first, *rest = ([list(column) for column in zip(*b, strict=True)] for b in work.all)
    client.run([first])
    with timed() as seconds:
        client.run(rest)
    work.compare(client.entered(), "the client of PostgreSQL")
    client.close()
    return seconds()


def _entered(ours: Ours) -> Rows:
    with closing(sqlite3.connect(ours.path)) as connection:
        names = ", ".join(ours.flow.tables["dimtrade"].columns.names)
        return connection.execute(f"SELECT {names} FROM dimtrade").fetchall()  # noqa: S608
