"""The facts of a period, in the past or an increment's day, and what the audit asks of them."""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpcdi.generate.columns import Ints, Table, moments, pick, picked
from tpcdi.generate.crm import Answers, Crm
from tpcdi.generate.listing import Listing
from tpcdi.generate.pools import bulk
from tpcdi.generate.prospects import Prospects
from tpcdi.generate.sizes import TRADES_A_DAY, WATCHES_A_DAY
from tpcdi.generate.state import State
from tpcdi.generate.trades import HOLDING_COLUMNS, Trades
from tpcdi.generate.waiting import CASH, HOLDING, TRADE, WATCH

MARKET = "DailyMarket.txt"

PLACED_AT_ONCE = 40_000

ROWS_OF_TRADE, ROWS_OF_WATCH = 2.29, 1.02
"""What is placed has so many rows on its own day, measured over days; the others come later."""


class Placed(NamedTuple):
    """How many trades and watches are placed on a day."""

    trades: int
    watches: int

    @classmethod
    def at(cls, scale: float) -> "Placed":
        """Tell them for a scale."""
        return cls(TRADES_A_DAY(scale), WATCHES_A_DAY(scale))

    @classmethod
    def among(cls, facts: int, state: State, end: int) -> "Placed":
        """Tell them for a day of about so many rows, with its quotes and what is due by its end."""
        left = facts - len(state.listing.issued) - state.later.count(end)
        rows = ROWS_OF_TRADE * TRADES_A_DAY.per_scale + ROWS_OF_WATCH * WATCHES_A_DAY.per_scale
        return cls.at(max(left, 0) / rows)


def periods(start: int, end: int, count: int, least: int = 1) -> Iterator[tuple[int, int, int]]:
    """Divide some time into periods: when each begins and ends, and how many are placed in it."""
    number = max(least, -(-count // PLACED_AT_ONCE))
    moments = np.linspace(start, end, number + 1).astype(int).tolist()
    for turn, (begin, stop) in enumerate(itertools.pairwise(moments)):
        yield begin, stop, count * (turn + 1) // number - count * turn // number


def trade(
    state: State, accounts: Ints, start: int, end: int, count: int
) -> tuple[Trades, dict[str, Table]]:
    """Place so many trades in a period, and tell all that happens until its end."""
    rng = bulk(state.seed, "trades", start)
    times = rng.integers(start, end, count)
    times.sort()
    trades = Trades(rng, state.trades, times, accounts, state.listing, state.held)
    state.trades += count
    state.held = trades.held()
    return trades, {
        TRADE: state.due(TRADE, trades.events(), end),
        CASH: state.due(CASH, trades.cash(), end),
        HOLDING: state.due(HOLDING, trades.holdings(), end).select(HOLDING_COLUMNS),
    }


def watch(state: State, customers: Ints, start: int, end: int, count: int) -> Table:
    """Place so many watches, and tell which begin and end until then."""
    rng = bulk(state.seed, "watches", start)
    times = rng.integers(start, end, count)
    times.sort()
    return state.due(WATCH, watches(rng, times, customers, state.listing), end)


def trade_answers(rows: Table, new: int) -> Answers:
    """Answer what the audit asks of trades; a row that has no price is not asked."""
    worth = pc.multiply(rows["T_TRADE_PRICE"], rows["T_QTY"])
    counts = {
        "T_Records": rows.num_rows,
        "T_NEW": new,
        "T_CanceledTrades": _count(pc.equal(rows["T_ST_ID"], "CNCL")),
        "T_InvalidCommision": _count(pc.greater(rows["T_COMM"], worth)),
        "T_InvalidCharge": _count(pc.greater(rows["T_CHRG"], worth)),
    }
    return Counter({("Trade", "DimTrade", name): value for name, value in counts.items()})


def watch_answers(rows: Table) -> Answers:
    """Answer what the audit asks of watches."""
    placed = _count(pc.equal(rows["W_ACTION"], "ACTV"))
    file, table = "WatchHistory", "FactWatches"
    return Counter({(file, table, "WH_ACTIVE"): placed, (file, table, "WH_RECORDS"): rows.num_rows})


def prospect_answers(prospects: Prospects, crm: Crm, new: int) -> Answers:
    """Answer what a loader may ask of prospects."""
    counts = {
        "P_RECORDS": len(prospects),
        "P_C_MATCHING": prospects.matching(crm),
        "P_NEW": new,
    }
    return Counter({("Prospect", "Prospect", name): value for name, value in counts.items()})


def row_answers(rows: Counter[str]) -> Answers:
    """Answer where the audit asks for rows alone."""
    return Counter(
        {
            ("HoldingHistory", "FactHoldings", "HH_RECORDS"): rows[HOLDING],
            ("DailyMarket", "FactMarketHistory", "DM_RECORDS"): rows[MARKET],
            ("TradeHistory", "DimTradeHistory", "CT_Records"): rows[CASH],
        }
    )


def _count(mask: pa.ChunkedArray) -> int:
    return pc.sum(mask).as_py() or 0


CANCELED_SHARE = 0.253
SOON_SHARE = 0.1
"""Of those that end, so many do within hours."""

AGAIN_SHARE = 0.03
"""So many are of a security that the customer has watched before, and may watch still."""

ACTIONS = pa.array(["ACTV", "CNCL"])


def watches(rng: np.random.Generator, times: Ints, customers: Ints, listing: Listing) -> Table:
    """Place a watch at each time, and say when it ends; `customers` tells since when each is."""
    count = len(times)
    who = pick(rng, np.searchsorted(customers, times, "right"))
    what = pick(rng, listing.issued_by(times))
    again = np.flatnonzero(rng.random(count) < AGAIN_SHARE)
    again = again[again > 0]
    before = pick(rng, again)
    who[again], what[again] = who[before], what[before]
    ends = np.flatnonzero(rng.random(count) < CANCELED_SHARE)
    hours = np.where(
        rng.random(len(ends)) < SOON_SHARE,
        rng.integers(60, 28_800, len(ends)),
        rng.integers(86_400, 60 * 86_400, len(ends)),
    )
    row = np.concatenate([np.arange(count), ends])
    return pa.table(
        {
            "W_C_ID": who[row],
            "W_S_SYMB": picked(listing.symbols, what[row]),
            "W_DTS": moments(np.concatenate([times, times[ends] + hours])),
            "W_ACTION": picked(ACTIONS, (np.arange(len(row)) >= count).astype(np.int8)),
        }
    )
