"""Batch1: the historical load, fifty years of filings, ten of customers and five of facts."""

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np

from tpcdi.generate import prospects, reference
from tpcdi.generate.actions import History
from tpcdi.generate.columns import table_of
from tpcdi.generate.companies import Filings
from tpcdi.generate.crm import Answers, opened
from tpcdi.generate.facts import (
    CASH,
    HOLDING,
    MARKET,
    TRADE,
    WATCH,
    prospect_answers,
    row_answers,
    trade,
    trade_answers,
    watch,
    watch_answers,
)
from tpcdi.generate.files import Batch
from tpcdi.generate.finwire import Reports
from tpcdi.generate.increments import PROSPECT
from tpcdi.generate.listing import quotes
from tpcdi.generate.people import employees
from tpcdi.generate.pools import dice
from tpcdi.generate.prospects import Prospects
from tpcdi.generate.sizes import (
    BATCH_1,
    FIRST_QUOTE,
    FIRST_TRADE,
    HISTORY_END,
    TRADES,
    WATCHES,
    seconds,
)
from tpcdi.generate.state import State

HISTORY = "TradeHistory.txt"
PERIODS_LEAST = 24
"""In so many periods the facts are made: what is bought in one may be sold in the next."""

TRADES_AT_ONCE = 40_000


def history(batch: Batch, scale: float, seed: int) -> State:
    """Write the historical batch."""
    _reference(batch)
    brokers: list[int] = []
    batch.lines("HR.csv", employees(scale, seed, brokers))
    acts = History(scale, seed, brokers)
    batch.lines("CustomerMgmt.xml", acts.lines(), are_rows=False)
    batch.count("CustomerMgmt.xml", acts.count)
    filings = Filings(scale, seed)
    crm = acts.crm
    asked = Prospects([], 0)
    asked.ask_around(crm, dice(seed, "prospects"), scale)
    batch.table(PROSPECT, table_of(asked.records, prospects.COLUMNS), ",")
    state = State(
        seed=seed,
        scale=scale,
        crm=crm,
        brokers=brokers,
        prospects=asked,
        listing=filings.listing,
        moves=acts.changes,
    )
    answers = acts.answers | prospect_answers(asked, crm, len(asked.records))
    answers["HR", "DimBroker", "HR_BROKERS"] = len(brokers)
    answers.update(_trades(batch, state))
    answers.update(_watches(batch, state))
    answers.update(_filings(batch, filings, seed))
    for prices in quotes(state.listing, seed, FIRST_QUOTE, seconds(BATCH_1)):
        batch.table(MARKET, prices)
    answers.update(row_answers(batch.rows))
    batch.answer(answers)
    return state


def _reference(batch: Batch) -> None:
    batch.lines("Date.txt", reference.dates())
    batch.lines("Time.txt", reference.times())
    batch.lines("StatusType.txt", reference.STATUSES)
    batch.lines("TradeType.txt", reference.TRADE_TYPES)
    batch.lines("Industry.txt", ("|".join(industry) for industry in reference.INDUSTRIES))
    batch.lines("TaxRate.txt", reference.tax_rates())


def _trades(batch: Batch, state: State) -> Answers:
    accounts = opened(state.crm.accounts)
    answers: Answers = Counter()
    for start, end, count in _periods(TRADES(state.scale)):
        placed, facts = trade(state, accounts, start, end, count)
        rows = placed.by(HISTORY_END)
        batch.table(TRADE, rows)
        batch.table(HISTORY, facts[TRADE].select(["T_ID", "T_DTS", "T_ST_ID"]))
        batch.table(CASH, facts[CASH])
        batch.table(HOLDING, facts[HOLDING])
        answers.update(trade_answers(rows, count))
    answers["TradeHistory", "DimTradeHistory", "TH_Records"] = batch.rows[HISTORY]
    return answers


def _watches(batch: Batch, state: State) -> Answers:
    customers = opened(state.crm.customers)
    answers: Answers = Counter()
    for start, end, count in _periods(WATCHES(state.scale)):
        rows = watch(state, customers, start, end, count)
        batch.table(WATCH, rows)
        answers.update(watch_answers(rows))
    return answers


def _periods(count: int) -> Iterator[tuple[int, int, int]]:
    """Divide five years into periods: when each begins and ends, and how many are in it."""
    periods = max(PERIODS_LEAST, -(-count // TRADES_AT_ONCE))
    moments = np.linspace(FIRST_TRADE, HISTORY_END, periods + 1).astype(int).tolist()
    for number, (start, end) in enumerate(itertools.pairwise(moments)):
        yield start, end, count * (number + 1) // periods - count * number // periods


def _filings(batch: Batch, filings: Filings, seed: int) -> Answers:
    answers: Answers = Counter()
    for name, lines, reports in Reports(filings, seed).quarters():
        batch.lines(name, lines)
        answers["FINWIRE", "Financial", "FW_FIN"] += reports
    kinds = Counter(line[15:18] for line in filings.lines)
    answers["FINWIRE", "DimCompany", "FW_CMP"] = kinds["CMP"]
    answers["FINWIRE", "DimSecurity", "FW_SEC"] = kinds["SEC"]
    return answers
