"""DailyMarket.txt: what each security cost on each day."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tpcdi.generate.columns import Ints, Table, days, money, picked
from tpcdi.generate.dice import bulk
from tpcdi.generate.listing import Listing
from tpcdi.generate.sizes import DAY_S

ROWS_AT_ONCE = 200_000
LOWEST, HIGHEST = 0.66, 1.35
"""Every other security meets these limits again and again: a year's high has many days."""


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
    usual = listing.cents[which]
    close = (usual * rng.uniform(0.7, 1.3, len(date))).astype(np.int64)
    high = (close * rng.uniform(1, 1.1, len(date))).astype(np.int64)
    low = (close * rng.uniform(0.9, 1, len(date))).astype(np.int64)
    is_limited = which % 2 == 0
    high = np.where(is_limited, np.minimum(high, (usual * HIGHEST).astype(np.int64)), high)
    low = np.where(is_limited, np.maximum(low, (usual * LOWEST).astype(np.int64)), low)
    return pa.table(
        {
            "DM_DATE": days(date),
            "DM_S_SYMB": picked(listing.symbols, which),
            "DM_CLOSE": money(close),
            "DM_HIGH": money(high),
            "DM_LOW": money(low),
            "DM_VOL": rng.integers(1_000, 1_000_000_000, len(date)),
        }
    )
