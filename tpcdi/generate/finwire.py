"""FINWIRE: a file for each quarter, of what was filed in it; quarterly reports are made here."""

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpcdi.generate.columns import Ints, Table, moments, money, picked
from tpcdi.generate.companies import END, NAME_WIDTH, Filings
from tpcdi.generate.pools import bulk
from tpcdi.generate.scratch import Column, Scratch
from tpcdi.generate.sizes import DAY_S, FIRST_FILING

FIRST_YEAR, QUARTERS = 1967, 203
QUARTER_NAMES = pa.array([f"{FIRST_YEAR + n // 4}{n % 4 + 1}" for n in range(QUARTERS)])
QUARTER_DAYS = pa.array([f"{FIRST_YEAR + n // 4}{n % 4 * 3 + 1:02}01" for n in range(QUARTERS)])
REPORTS_AT_ONCE = 100_000

MISSING_SHARE = 0.004
SILENT_EVERY = 25
SILENT_FROM = 190
"""One company of so many reports no more from that quarter on: it ends without earnings."""

CIK_WIDTH = 10

EARLY = 1

LOSS_EVERY = 40
"""One company of so many always loses: what a stock's earnings add up to is never nothing."""

WIDTHS = {"revenue": 17, "earnings": 17, "eps": 12, "diluted_eps": 12, "margin": 12}
WIDTHS |= {"inventory": 17, "assets": 17, "liabilities": 17, "shares": 13, "diluted_shares": 13}


class Reports:
    """The reports of each quarter."""

    def __init__(self, scratch: Scratch, filings: Filings, seed: int) -> None:
        self._filings = filings
        self._seed = seed
        self._founded = filings.founded.values
        named, names = filings.named.values, filings.names.values
        self._in_order = Column(scratch).extend(np.lexsort((names, named))).values
        self._named = Column(scratch).extend(named[self._in_order]).values
        self._names = names

    def quarters(self) -> Iterator[tuple[str, list[str], int]]:
        """Write the quarters: a file's name, its next lines, and how many of them are reports.

        Of too many companies, each part reports in its part of the quarter.
        """
        count = len(self._founded)
        step = max(1, REPORTS_AT_ONCE // count)
        parts = -(-count // REPORTS_AT_ONCE)
        for first, part in itertools.product(range(0, QUARTERS, step), range(parts)):
            numbers = np.arange(first, min(first + step, QUARTERS))
            companies = np.arange(count * part // parts, count * (part + 1) // parts)
            starts = np.array([_start(number) for number in (*numbers, numbers[-1] + 1)])
            length = np.diff(starts)
            spans = starts[:-1] + length * part // parts, starts[:-1] + length * (part + 1) // parts
            bounds = np.minimum([*spans[0], spans[1][-1]], END)
            low, high = np.searchsorted(self._filings.times.values, bounds[[0, -1]])
            rng = bulk(self._seed, "reports", first, *([part] if part else []))
            times, reports = self._reports(rng, numbers, companies, spans)
            lines = pa.concat_arrays(
                [pa.array(self._filings.lines(low, high), pa.string()), reports]
            )
            times = np.concatenate([self._filings.times.values[low:high], times])
            order = np.argsort(times, kind="stable")
            cuts = np.searchsorted(times[order], bounds)
            is_report = order >= high - low
            for number, start, end in zip(numbers, cuts, cuts[1:], strict=False):
                name = f"FINWIRE{FIRST_YEAR + number // 4}Q{number % 4 + 1}"
                rows = picked(lines, order[start:end]).to_pylist()
                yield name, rows, int(is_report[start:end].sum())

    def _reports(
        self, rng: np.random.Generator, numbers: Ints, companies: Ints, spans: tuple[Ints, Ints]
    ) -> tuple[Ints, Table]:
        count = len(companies)
        quarter = np.repeat(numbers, count)
        company = np.tile(companies, len(numbers))
        start = np.repeat(spans[0], count)
        length = np.repeat(spans[1] - spans[0], count)
        # One is always early: the last quarter, of a week, has a report at every scale.
        length[company == EARLY] = min(4 * DAY_S, length[0])
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
        names = pa.array(self._names[self._in_order[known - 1]]).cast(pa.string())
        ciks = pa.array(company + 1).cast(pa.string())
        filer = pc.if_else(
            pa.array(by_name),
            pc.ascii_rpad(names, NAME_WIDTH),
            pc.ascii_lpad(ciks, CIK_WIDTH, "0"),
        )
        amounts = _amounts(rng, company)
        cells = [pc.ascii_lpad(amounts[name].cast(pa.string()), w) for name, w in WIDTHS.items()]
        stamps = moments(times)
        head = (
            pc.strftime(stamps, "%Y%m%d-%H%M%SFIN"),
            picked(QUARTER_NAMES, quarter[index]),
            picked(QUARTER_DAYS, quarter[index]),
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
