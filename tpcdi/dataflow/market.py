"""Market: each day of each security, with the highest and lowest of the year before it.

A year's highs and lows are kept in memory, by symbol and day, with the digest of what they were
made of; the core has the digest too. Where the two differ they are made anew of the core's rows.
"""

from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs import Batch, Transaction
from tpcdi.dataflow.facts import (
    AFTER,
    READS,
    Numbers,
    asked,
    at,
    days,
    due,
    hundredths,
    joined,
    ratio,
    security_at,
)
from tpcdi.dataflow.forms import DAY, PRICE
from tpcdi.dataflow.listing import earnings
from tpcdi.dataflow.messages import MESSAGES, alert
from tpcdi.dataflow.outlets import OUTLETS, table
from tpcdi.dataflow.phases import Held, Phase
from tpcdi.dataflow.sources import flow, market, market_changes

quotes = flow.table(
    "quotes",
    "day INTEGER NOT NULL, symbol TEXT NOT NULL, high INTEGER NOT NULL, low INTEGER NOT NULL, "
    "PRIMARY KEY (day, symbol)",
)
digests = flow.table("quote_digests", "only INTEGER PRIMARY KEY, digest TEXT NOT NULL")
held, parked = Held(market), Held(market, "parked_market")

REPORTED = """\
WITH asked (companyid, quarter) AS (SELECT value ->> 0, value ->> 1 FROM json_each(?))
SELECT asked.companyid AS companyid, asked.quarter AS quarter, sum(cents) AS cents
FROM asked LEFT JOIN earnings ON earnings.companyid = asked.companyid
    AND earnings.quarter BETWEEN asked.quarter - 4 AND asked.quarter - 1
GROUP BY 1, 2"""
QUARTERS = 100_000
DATED = "dm_date"
FORMS = {DATED: DAY, "dm_close": PRICE, "dm_high": PRICE, "dm_low": PRICE}


class Extremes(NamedTuple):
    """The highest and the lowest of a year, for each row, and the first days of them."""

    high: Numbers
    high_day: Numbers
    low: Numbers
    low_day: Numbers


class Year:
    """The highs and lows of the days that are needed, by symbol."""

    def __init__(self, digest: str, oldest: int = 0) -> None:
        self.digest = digest
        self.oldest = oldest
        self._rows: dict[str, int] = {}
        self.days: list[int] = []
        self._high = np.empty((0, 0), np.int64)
        self._low = np.empty((0, 0), np.int64)

    def add(self, rows: pa.Table, oldest: int) -> tuple[Numbers, Numbers]:
        """Add rows (day, symbol, high, low), and forget what is before a day; tell of each row
        where it is.
        """
        symbols = rows["symbol"].combine_chunks().dictionary_encode()
        for symbol in symbols.dictionary.to_pylist():
            self._rows.setdefault(symbol, len(self._rows))
        on = rows["day"].to_numpy()
        kept = [day for day in self.days if day >= oldest]
        after = sorted({*kept, *np.unique(on).tolist()})
        shape = len(self._rows), len(after)
        high, low = np.full(shape, LOWEST), np.full(shape, HIGHEST)
        there, before = np.searchsorted(after, kept), len(self.days) - len(kept)
        high[: len(self._high), there] = self._high[:, before:]
        low[: len(self._low), there] = self._low[:, before:]
        places = np.array([self._rows[s] for s in symbols.dictionary.to_pylist()], np.int64)
        row, column = places[symbols.indices.to_numpy()], np.searchsorted(after, on)
        high[row, column] = rows["high"].to_numpy()
        low[row, column] = rows["low"].to_numpy()
        self.days, self._high, self._low, self.oldest = after, high, low, oldest
        return row, column

    def extremes(self, row: Numbers, column: Numbers) -> Extremes:
        """Give those of the year that ends with each row's day."""
        known = np.array(self.days)
        found = np.empty((4, len(row)), np.int64)
        for last in np.unique(column):
            which = np.flatnonzero(column == last)
            first = np.searchsorted(known, year_before(int(known[last])), side="right")
            for values, best, into in (
                (self._high, np.argmax, 0),
                (self._low, np.argmin, 2),
            ):
                window = values[row[which], first : last + 1]
                place = best(window, axis=1)
                found[into, which] = window[np.arange(len(which)), place]
                found[into + 1, which] = known[first + place]
        return Extremes(*found)


LOWEST, HIGHEST = np.int64(-1), np.int64(2**62)
_kept = Year("")


@flow.procedure(
    takes=[*AFTER, market, market_changes],
    reads=[*READS, earnings],
    looks=[security_at],
    writes=[quotes, digests, held.table, parked.table],
    gives=[OUTLETS["factmarkethistory"], MESSAGES],
)
def trade_day(tx: Transaction, _listed: Batch, _enrolled: Batch, first: Batch, then: Batch) -> None:
    """Enter the days of securities."""
    phase, rows = due(tx, joined(tx, first, then, FORMS, DATED), held, parked, DATED)
    if phase is None:
        return
    on = days(rows["dm_date"])
    found = tx.lookup(security_at, rows["dm_s_symb"], at=at(phase, on))
    is_known = found["sk_securityid"].is_valid()
    if not pc.all(is_known).as_py():
        parked.put(tx, rows.filter(pc.invert(is_known)), phase.batch)
        rows, found, on = rows.filter(is_known), found.filter(is_known), on[is_known.to_numpy()]
    if rows.num_rows:
        _enter(tx, phase, rows, found, on)


def _enter(tx: Transaction, phase: Phase, rows: pa.Table, found: pa.Table, on: Numbers) -> None:
    close, high, low = (hundredths(rows[f"dm_{name}"]) for name in ("close", "high", "low"))
    extremes = _extremes(
        tx, pa.table({"day": on, "symbol": rows["dm_s_symb"], "high": high, "low": low})
    )
    of_close = close.to_numpy()
    earned = _earned(tx, found["companyid"].to_numpy(), on)
    is_reported = earned.is_valid()
    per_share = pc.fill_null(earned, 0).to_numpy()
    dividend = hundredths(pc.cast(found["dividend"], pa.float64())).to_numpy()
    entered = table(
        "factmarkethistory",
        sk_securityid=found["sk_securityid"],
        sk_companyid=found["sk_companyid"],
        sk_dateid=on,
        peratio=pa.array(ratio(of_close * 100, per_share), mask=per_share == 0),
        **{"yield": ratio(dividend * 10_000, of_close)},
        fiftytwoweekhigh=extremes.high,
        sk_fiftytwoweekhighdate=extremes.high_day,
        fiftytwoweeklow=extremes.low,
        sk_fiftytwoweeklowdate=extremes.low_day,
        closeprice=close,
        dayhigh=high,
        daylow=low,
        volume=rows["dm_vol"],
        batchid=phase.batch,
    )
    tx.emit(OUTLETS["factmarkethistory"], entered)
    lacking = rows["dm_s_symb"].filter(pc.invert(is_reported)).to_pylist()
    data = [f"DM_S_SYMB = {symbol}" for symbol in lacking]
    alert(tx, phase, "FactMarketHistory", "No earnings for company", *data)


def _earned(tx: Transaction, ids: Numbers, on: Numbers) -> pa.Array:
    """Give what each row's company has earned a share in the four quarters before its day."""
    quarters = on // 10_000 * 4 + (on // 100 % 100 - 1) // 3
    codes, which = np.unique(ids * QUARTERS + quarters, return_inverse=True)
    question = asked((codes // QUARTERS).tolist(), (codes % QUARTERS).tolist())
    sums = tx.table(REPORTED, question).sort_by(
        [("companyid", "ascending"), ("quarter", "ascending")]
    )
    return pc.cast(sums["cents"], pa.int64()).combine_chunks().take(pa.array(which))


def _extremes(tx: Transaction, rows: pa.Table) -> Extremes:
    """Find them with the year that is kept, if it is that of the core's rows."""
    global _kept
    year, _kept = _kept, Year("")  # what fails amid this leaves nothing that could be wrong
    (known,) = tx.query("SELECT coalesce(max(digest), '') AS digest FROM quote_digests")
    oldest = year_before(pc.min(rows["day"]).as_py())
    if known["digest"] != year.digest or not year.digest or oldest < year.oldest:
        year = Year(known["digest"], oldest)
        before = tx.table("SELECT * FROM quotes WHERE day > ?", [oldest])
        if before.num_rows:
            year.add(before, oldest)
    found = np.empty((4, rows.num_rows), np.int64)
    turns = _turns(rows)
    for turn in np.unique(turns):
        which = np.flatnonzero(turns == turn)
        found[:, which] = year.extremes(*year.add(rows.take(which), oldest))
    columns: list[Any] = [rows[name].to_pylist() for name in quotes.columns.names]
    tx.executemany("INSERT OR REPLACE INTO quotes VALUES (?, ?, ?, ?)", zip(*columns, strict=True))
    year.digest = _digest(year.digest, rows)
    tx.execute("INSERT OR REPLACE INTO quote_digests VALUES (1, ?)", [year.digest])
    _kept = year
    return Extremes(*found)


def _turns(rows: pa.Table) -> Numbers:
    """Tell of each row how many times its symbol went back to an earlier day before it. A row has
    the year that was there when it came, however batches are cut: so turns are taken one by one.
    """
    symbols = rows["symbol"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.argsort(symbols, kind="stable")
    days, symbols = rows["day"].to_numpy()[order], symbols[order]
    is_new = np.diff(symbols, prepend=-1) != 0
    back = np.cumsum((np.diff(days, prepend=0) <= 0) & ~is_new)
    turns = np.empty(len(days), np.int64)
    turns[order] = back - np.maximum.accumulate(np.where(is_new, back, 0))
    return turns


def _digest(before: str, rows: pa.Table) -> str:
    digest = blake2b(before.encode(), digest_size=16)
    for name in ("day", "high", "low"):
        digest.update(rows[name].to_numpy())
    digest.update("\0".join(rows["symbol"].to_pylist()).encode())
    return digest.hexdigest()


def year_before(day: int) -> int:
    """Give the day a year before; that of 29 February is 28 February."""
    return day - 10_000 - (day % 10_000 == 229)
