"""The securities that can be traded, in the order in which they were issued; and DailyMarket.txt:
what each cost on each day.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tpcdi.generate.columns import Ints, Table, days, money, picked
from tpcdi.generate.pools import bulk
from tpcdi.generate.sizes import DAY_S

SYMBOL_LENGTH = 15


@dataclass(frozen=True, slots=True)
class Listing:
    """Their symbols, when they were issued, and what each costs, more or less."""

    symbols: Table
    issued: Ints
    cents: Ints

    def issued_by(self, moments: Ints) -> Ints:
        """Count those that were there at each moment."""
        return np.searchsorted(self.issued, moments, "right")

    @property
    def table(self) -> Table:
        """Show them as a table, to be kept."""
        return pa.table({"symbol": self.symbols, "issued": self.issued, "cents": self.cents})

    @classmethod
    def of(cls, table: Table) -> "Listing":
        """Take them from a table."""
        symbols = table["symbol"].combine_chunks()
        return cls(symbols, table["issued"].to_numpy(), table["cents"].to_numpy())


def symbol(number: int) -> str:
    """Name a security: letters that count."""
    letters = ""
    while number:
        number, letter = divmod(number, 26)
        letters = chr(65 + letter) + letters
    return letters.rjust(SYMBOL_LENGTH, "A")


ROWS_AT_ONCE = 200_000
LOWEST, HIGHEST = 0.66, 1.35
"""Every other security meets these limits again and again: a year's high has many days."""


def quotes(listing: Listing, seed: int, start: int, end: int) -> Iterator[Table]:
    """Quote everything that is listed, for each day from one to before another."""
    there = len(listing.issued)
    step = max(1, ROWS_AT_ONCE // there) * DAY_S
    for first, least in itertools.product(range(start, end, step), range(0, there, ROWS_AT_ONCE)):
        yield _quotes(listing, seed, np.arange(first, min(first + step, end), DAY_S), least)


def _quotes(listing: Listing, seed: int, dates: Ints, least: int) -> Table:
    """Quote on these days the securities from one on, of which there may be too many for a day."""
    rng = bulk(seed, "market", int(dates[0]), *([least] if least else []))
    listed = np.clip(listing.issued_by(dates + DAY_S - 1) - least, 0, ROWS_AT_ONCE)
    date = np.repeat(dates, listed)
    which = least + np.arange(len(date)) - np.repeat(np.cumsum(listed) - listed, listed)
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
