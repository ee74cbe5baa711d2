"""A stream that has run for long: what a batch reads of the core depends on the batch alone."""

from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import phased
import pytest
from digen import Digen, Field
from test_tpcdi_dataflow_facts import begun, some

from etl_procs import Trial
from etl_procs.access import Parameters
from etl_procs.transaction import Transaction
from tpcdi.dataflow.sources import SOURCES
from tpcdi.dataflow.watches import CANCELLED, OPEN, PLACED
from tpcdi.days import FIRST_FACT
from tpcdi.flow import flow

EVERY = 10
"""So many of SQLite's steps are counted as one."""
SHORT, LONG = 3, 12
"""Phases."""
TRIED_AGAIN = ("parked_", "open_trades", "closed_trades", "calendar")
"""What is asked for what is parked, which is tried again once in each phase."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what SQLite does for the queries of procedures, by their text."""
    counted: Counter[str] = Counter()
    run = Transaction._run

    def counting(self: Transaction, sql: str, parameters: Parameters) -> list[Any]:
        connection = self._cursor.connection
        connection.set_progress_handler(lambda: counted.update([sql]), EVERY)
        try:
            return run(self, sql, parameters)
        finally:
            connection.set_progress_handler(None, 0)

    monkeypatch.setattr(Transaction, "_run", counting)
    return counted


def days(count: int) -> Digen:
    """Gather phases of one customer, who changes in each, trades and watches; what refers to
    nobody; and watches, trades and holdings that stay open.
    """
    made = some()
    made.prospect(1, "P1", last="Last1", first="First")
    for n in range(2, count + 1):
        today = date(2017, 7, 6) + timedelta(n)
        at = f"{today} 10:00:00"
        if n > 3:
            made.row(n, "BatchDate.txt", str(today))
        made.prospect(n, "P1", last="Last1", first="First", income=60_000 + n)
        made.customer(n, "U", 1, tier=1 + n % 3)
        made.cdc(n, "Account.txt", "U", 1002, 7, 2, f"Name {n}", 1, "ACTV")
        for customer, symbol in ((1, "S1"), (1, "S1"), (1, "S1"), (66, "S1"), (1, "S66")):
            made.cdc(n, "WatchHistory.txt", "I", customer, symbol, at, "ACTV")
        made.cdc(n, "WatchHistory.txt", "I", 1, "S1", at, "CNCL")
        for account in (1001, 1066):
            made.cdc(n, "CashTransaction.txt", "I", account, at, "1.00", "paid")
            placed: tuple[Field, ...] = ("PNDG", "TLB", 1, "S1", 10, "5.00", account, "executor")
            made.cdc(n, "Trade.txt", "I", n * 10_000 + account, at, *placed, *[None] * 4)
            made.cdc(n, "HoldingHistory.txt", "I", 1, n * 10_000 + account, 0, 10)
        for symbol in ("S1", "S66"):
            made.cdc(n, "DailyMarket.txt", "I", today, symbol, "9.00", "9.50", "8.50", 1)
    return made


def read(trial: Trial, made: Digen, folder: Path, steps: Counter[str]) -> dict[str, Counter[str]]:
    """Load phases; tell what is read of the core in the last, when its dimensions are complete and
    with its facts when some have come before.
    """
    made.write(folder)
    *former, last = range(1, len(list(folder.iterdir())) + 1)
    for batch in former:
        phased.load(trial, folder, batch, first=batch)
    feed = phased.Feed(folder, last)
    dimensions = [feed.mark(source.name) for source in SOURCES[:FIRST_FACT]]
    names = {stream for source in SOURCES[:FIRST_FACT] if (stream := feed.stream(source))}
    of_dimensions = {stream.name: feed.rows.pop(stream.name) for stream in names}
    trial.batch(marks=feed.begins)
    found = {}
    for name, rows in (
        ("dimensions", of_dimensions | {"marks": dimensions}),
        ("facts", feed.rows),
        ("more facts", feed.rows),
    ):
        steps.clear()
        trial.batch(**rows)
        found[name] = steps.copy()
    return found


def test_what_a_batch_reads_does_not_grow_with_the_stream(
    tmp_path: Path, steps: Counter[str]
) -> None:
    found = []
    for count in (SHORT, LONG):
        with Trial(flow) as trial:
            found.append(read(trial, days(count), tmp_path / str(count), steps))
            assert trial.dead_letters() == []
    short, long = found
    grown = {
        f"{name}: {sql}": (short[name][sql], number)
        for name, counted in long.items()
        for sql, number in counted.items()
        if number > short[name][sql] + 1
        and not (name == "dimensions" and any(word in sql for word in TRIED_AGAIN))
    }
    assert grown == {}


def test_of_many_open_watches_only_as_many_are_read_as_are_cancelled(
    tmp_path: Path, steps: Counter[str]
) -> None:
    def act(kind: str, day: int) -> dict[str, object]:
        at = f"2016-{day // 28 + 1:02}-{day % 28 + 1:02} 10:00:00"
        return {"w_c_id": 1, "w_s_symb": "S1", "w_dts": at, "w_action": kind}

    read = {}
    for count in (10, 300):
        with Trial(flow) as trial:
            begun(trial, some().write(tmp_path / str(count)))
            trial.batch(watches=[act(PLACED, day) for day in range(count)])
            steps.clear()
            trial.batch(watches=[act(CANCELLED, 310), act(CANCELLED, 311)])
            read[count] = steps[OPEN]
            removed = [
                row["watchid"]
                for row in phased.latest(trial, "factwatches")
                if row["sk_dateid_dateremoved"]
            ]
        assert removed == [1, 2]
    assert read[300] <= read[10] + 1
