"""Batch1: the historical load, fifty years of filings, ten of customers and five of facts."""

from collections import Counter

from tpcdi.generate import reference
from tpcdi.generate.actions import History
from tpcdi.generate.companies import Filings
from tpcdi.generate.crm import Answers
from tpcdi.generate.facts import (
    MARKET,
    periods,
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
from tpcdi.generate.scratch import Column, Scratch
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
from tpcdi.generate.waiting import CASH, HOLDING, TRADE, WATCH, Waiting

HISTORY = "TradeHistory.txt"
FACTS = FIRST_TRADE, HISTORY_END
PARTS_MOST = 256
"""So each is a week at least, and of each file some 15 wait at once."""

PERIODS_LEAST = 24
"""In so many periods the facts are made: what is bought in one may be sold in the next."""


def history(scratch: Scratch, batch: Batch, scale: float, seed: int) -> State:
    """Write the historical batch."""
    _reference(batch)
    brokers = Column(scratch)
    batch.lines("HR.csv", employees(scale, seed, brokers))
    acts = History(scratch, scale, seed, brokers)
    batch.lines("CustomerMgmt.xml", acts.lines(), are_rows=False)
    batch.count("CustomerMgmt.xml", acts.count)
    filings = Filings(scratch, scale, seed)
    crm = acts.crm
    asked = Prospects(scratch)
    asked.ask_around(crm, dice(seed, "prospects"), scale)
    for rows in asked.tables():
        batch.table(PROSPECT, rows)
    state = State(
        scratch=scratch,
        seed=seed,
        scale=scale,
        crm=crm,
        brokers=brokers,
        prospects=asked,
        listing=filings.listing,
        later=Waiting(scratch, _bounds(scale)),
        moves=acts.changes,
    )
    answers = acts.answers | prospect_answers(asked, crm, len(asked))
    answers["HR", "DimBroker", "HR_BROKERS"] = len(brokers)
    answers.update(_trades(batch, state))
    answers.update(_watches(batch, state))
    answers.update(_filings(scratch, batch, filings, seed))
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


def _bounds(scale: float) -> list[int]:
    """Choose ends of periods; not all of them: of the parts between, many are open at once."""
    ends = [end for _, end, _ in periods(*FACTS, TRADES(scale), PERIODS_LEAST)]
    return ends[:: -(-len(ends) // PARTS_MOST)]


def _trades(batch: Batch, state: State) -> Answers:
    accounts = state.crm.accounts_since.values
    answers: Answers = Counter()
    for start, end, count in periods(*FACTS, TRADES(state.scale), PERIODS_LEAST):
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
    customers = state.crm.customers_since.values
    answers: Answers = Counter()
    for start, end, count in periods(*FACTS, WATCHES(state.scale), PERIODS_LEAST):
        rows = watch(state, customers, start, end, count)
        batch.table(WATCH, rows)
        answers.update(watch_answers(rows))
    return answers


def _filings(scratch: Scratch, batch: Batch, filings: Filings, seed: int) -> Answers:
    answers: Answers = Counter()
    for name, lines, reports in Reports(scratch, filings, seed).quarters():
        batch.lines(name, lines)
        answers["FINWIRE", "Financial", "FW_FIN"] += reports
    answers["FINWIRE", "DimCompany", "FW_CMP"] = filings.kinds["CMP"]
    answers["FINWIRE", "DimSecurity", "FW_SEC"] = filings.kinds["SEC"]
    return answers
