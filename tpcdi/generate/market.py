"""DailyMarket.txt: what each security cost on each day."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tpcdi.generate.columns import Ints, Table, days, money, picked
from tpcdi.generate.dice import bulk
from tpcdi.generate.listing import Listing
from tpcdi.generate.sizes import DAY_S

ROWS_AT_ONCE = 200_000
TICK = 25
"""Highs and lows are rounded to a quarter: within a year the same one comes again."""


def quotes(listing: Listing, seed: int, start: int, end: int) -> Iterator[Table]:
    """Quote everything that is listed, for each day from one to before another."""
    step = max(1, ROWS_AT_ONCE // len(listing.issued)) * DAY_S
    for first in range(start, end, step):
        yield _quotes(listing, seed, np.arange(first, min(first + step, end), DAY_S))


def _quotes(listing: Listing, seed: int, dates: Ints) -> Table:
    rng = bulk(seed, "market", int(dates[0]))
    listed = listing.issued_by(dates + DAY_S - 1)
    date = np.repeat(dates, listed)
    which = np.arange(len(date)) - np.repeat(np.cumsum(listed) - listed, listed)
    close = (listing.cents[which] * rng.uniform(0.7, 1.3, len(date))).astype(np.int64)
    high = (close * rng.uniform(1, 1.1, len(date))).astype(np.int64)
    low = (close * rng.uniform(0.9, 1, len(date))).astype(np.int64)
    return pa.table(
        {
            "DM_DATE": days(date),
            "DM_S_SYMB": picked(listing.symbols, which),
            "DM_CLOSE": money(close),
            "DM_HIGH": money(-(-high // TICK) * TICK),
            "DM_LOW": money(low // TICK * TICK),
            "DM_VOL": rng.integers(1_000, 1_000_000_000, len(date)),
        }
    )
