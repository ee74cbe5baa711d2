"""FINWIRE: a file for each quarter, of what was filed in it; quarterly reports are made here."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpcdi.generate.columns import Ints, Table, moments, money, picked
from tpcdi.generate.companies import END, Filings
from tpcdi.generate.pools import bulk
from tpcdi.generate.sizes import DAY_S, FIRST_FILING

FIRST_YEAR, QUARTERS = 1967, 203
REPORTS_AT_ONCE = 100_000

MISSING_SHARE = 0.004
SILENT_EVERY = 25
SILENT_FROM = 190
"""One company of so many reports no more from that quarter on: it ends without earnings."""

EARLY = 1

LOSS_EVERY = 40
"""One company of so many always loses: what a stock's earnings add up to is never nothing."""

WIDTHS = {"revenue": 17, "earnings": 17, "eps": 12, "diluted_eps": 12, "margin": 12}
WIDTHS |= {"inventory": 17, "assets": 17, "liabilities": 17, "shares": 13, "diluted_shares": 13}


class Reports:
    """The reports of each quarter."""

    def __init__(self, filings: Filings, seed: int) -> None:
        self._filings = filings
        self._seed = seed
        self._founded = filings.founded
        names = sorted(filings.names)
        self._named = np.array([company << 20 | day for company, day, _ in names])
        self._names = pa.array([f"{name:60}" for _, _, name in names])
        self._ciks = pa.array([f"{each.cik:010}" for each in filings.companies])

    def quarters(self) -> Iterator[tuple[str, list[str], int]]:
        """Write the quarters: each one's name, its lines, and how many of them are reports."""
        starts = np.array([_start(number) for number in range(QUARTERS + 1)])
        starts[-1] = END
        step = max(1, REPORTS_AT_ONCE // len(self._founded))
        filed = np.array(self._filings.times)
        for first in range(0, QUARTERS, step):
            numbers = np.arange(first, min(first + step, QUARTERS))
            bounds = starts[first : first + len(numbers) + 1]
            low, high = np.searchsorted(filed, bounds[[0, -1]])
            times, reports = self._reports(bulk(self._seed, "reports", first), numbers)
            lines = pa.concat_arrays(
                [pa.array(self._filings.lines[low:high], pa.string()), reports]
            )
            times = np.concatenate([filed[low:high], times])
            order = np.argsort(times, kind="stable")
            cuts = np.searchsorted(times[order], bounds)
            in_order = picked(lines, order)
            is_report = order >= high - low
            for number, start, end in zip(numbers, cuts, cuts[1:], strict=False):
                name = f"FINWIRE{FIRST_YEAR + number // 4}Q{number % 4 + 1}"
                rows = in_order.slice(start, end - start).to_pylist()
                yield name, rows, int(is_report[start:end].sum())

    def _reports(self, rng: np.random.Generator, numbers: Ints) -> tuple[Ints, Table]:
        count = len(self._founded)
        quarter = np.repeat(numbers, count)
        company = np.tile(np.arange(count), len(numbers))
        starts = np.array([_start(number) for number in (*numbers, numbers[-1] + 1)])
        length = np.repeat(np.diff(starts), count)
        start = np.repeat(starts[:-1], count)
        # One is always early: the last quarter, of a week, has a report at every scale.
        length[company == EARLY] = 4 * DAY_S
        times = start + (rng.random(len(start)) * length).astype(np.int64)
        day = (times - FIRST_FILING) // DAY_S
        is_silent = (company % SILENT_EVERY == 0) & (quarter >= SILENT_FROM)
        there = (self._founded[company] < day) & (times < END) & ~is_silent
        there &= rng.random(len(start)) >= MISSING_SHARE
        index = np.flatnonzero(there)
        company, day, times = company[index], day[index], times[index]
        known = np.searchsorted(self._named, company << 20 | day)
        by_name = known == np.searchsorted(self._named, company << 20 | day, "right")
        by_name &= rng.random(len(index)) < 0.5
        filer = pc.if_else(
            pa.array(by_name), picked(self._names, known - 1), picked(self._ciks, company)
        )
        amounts = _amounts(rng, company)
        cells = [pc.ascii_lpad(amounts[name].cast(pa.string()), w) for name, w in WIDTHS.items()]
        stamps = moments(times)
        head = (
            pc.strftime(stamps, "%Y%m%d-%H%M%SFIN"),
            picked(
                pa.array([f"{FIRST_YEAR + n // 4}{n % 4 + 1}" for n in range(QUARTERS)]),
                quarter[index],
            ),
            pc.strftime(moments(start[index]), "%Y%m%d"),
            pc.strftime(stamps, "%Y%m%d"),
        )
        return times, pc.binary_join_element_wise(*head, *cells, filer, "")


def _amounts(rng: np.random.Generator, company: Ints) -> dict[str, Table]:
    count = len(company)
    shares = rng.integers(1_000_000, 900_000_000, count)
    eps = rng.integers(10, 300, count) * np.where(company % LOSS_EVERY == 5, -1, 1)
    diluted = shares + (shares * rng.uniform(0, 0.1, count)).astype(np.int64)
    earnings = eps * shares
    margin = rng.integers(5, 90, count)
    return {
        "revenue": money(np.abs(earnings) * 100 // margin),
        "earnings": money(earnings),
        "eps": money(eps),
        "diluted_eps": money(earnings // diluted),
        "margin": money(margin * np.sign(eps)),
        "inventory": money(rng.integers(10**8, 10**11, count)),
        "assets": money(rng.integers(10**9, 10**12, count)),
        "liabilities": money(rng.integers(10**8, 10**12, count)),
        "shares": pa.array(shares),
        "diluted_shares": pa.array(diluted),
    }


def _start(quarter: int) -> int:
    month = np.datetime64(f"{FIRST_YEAR}-01") + 3 * int(quarter)
    return int(month.astype("datetime64[s]").astype(np.int64))
