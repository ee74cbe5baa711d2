"""Increments: a day's changes and facts, for as long as one likes after the history."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpcdi.generate.changes import FLAG, Changes
from tpcdi.generate.columns import Table
from tpcdi.generate.crm import Answers
from tpcdi.generate.facts import (
    MARKET,
    Placed,
    periods,
    prospect_answers,
    row_answers,
    trade,
    trade_answers,
    watch,
    watch_answers,
)
from tpcdi.generate.listing import quotes
from tpcdi.generate.pools import dice
from tpcdi.generate.sizes import DAY_S, PROSPECTS_NEW_A_DAY, seconds
from tpcdi.generate.state import State
from tpcdi.generate.waiting import TRADE, WATCH

PROSPECT = "Prospect.csv"

Take = Callable[[str, Table], None]
"""Is given the rows of a file, piece by piece."""


@dataclass(frozen=True, slots=True)
class Increment:
    """A batch's files as tables, and what the audit will ask of them."""

    batch: int
    today: date
    tables: dict[str, Table]
    answers: Answers


def increment(state: State, facts: int | None = None) -> Increment:
    """Make the next batch as a whole, as `make` does in pieces."""
    pieces: dict[str, list[Table]] = defaultdict(list)
    answers = make(state, lambda name, rows: pieces[name].append(rows), facts)
    tables = {name: pa.concat_tables(each) for name, each in pieces.items()}
    return Increment(state.batch, state.today, tables, answers)


def make(state: State, take: Take, facts: int | None = None) -> Answers:
    """Make the next batch, with the facts of the state's scale, or about so many; the state goes
    on to its end.
    """
    state.batch += 1
    today, start = state.today, seconds(state.today)
    end = start + DAY_S
    placed = Placed.at(state.scale) if facts is None else Placed.among(facts, state, end)
    chance = dice(state.seed, "increment", state.batch)
    changes = Changes(state.scratch, state.crm, chance, state.brokers, today, state.moves)
    answers = changes.file(state.scale)
    state.moves = changes.changes
    state.prospects.ask_again(state.crm, chance, state.scale, today)
    answers.update(prospect_answers(state.prospects, state.crm, PROSPECTS_NEW_A_DAY(state.scale)))
    for name, records in (("Customer.txt", changes.customers), ("Account.txt", changes.accounts)):
        for rows in records.tables():
            take(name, _changed(state, rows, rows[FLAG]))
    counts: Counter[str] = Counter()
    for name, rows in _facts(state, placed, start, end):
        counts[name] += rows.num_rows
        flags = pa.repeat("I", rows.num_rows)
        if name == TRADE:
            is_new = _is_new(rows)
            flags = pc.if_else(is_new, "I", "U")
            answers.update(trade_answers(rows, pc.sum(is_new).as_py() or 0))
        elif name == WATCH:
            answers.update(watch_answers(rows))
        take(name, _changed(state, rows, flags))
    for rows in state.prospects.tables():
        take(PROSPECT, rows)
    answers.update(row_answers(counts))
    return answers


def _facts(state: State, placed: Placed, start: int, end: int) -> Iterator[tuple[str, Table]]:
    for period in periods(start, end, placed.trades):
        _, filed = trade(state, state.crm.accounts_since.values, *period)
        yield from filed.items()
    for period in periods(start, end, placed.watches):
        yield WATCH, watch(state, state.crm.customers_since.values, *period)
    for rows in quotes(state.listing, state.seed, start - DAY_S, start):
        yield MARKET, rows


def _is_new(rows: Table) -> pa.ChunkedArray:
    """Tell which events are a trade's first: submitted to the market, or waiting for a limit."""
    is_market = pc.is_in(rows["T_TT_ID"], pa.array(["TMB", "TMS"]))
    is_first = pc.and_(is_market, pc.equal(rows["T_ST_ID"], "SBMT"))
    return pc.or_(is_first, pc.equal(rows["T_ST_ID"], "PNDG"))


def _changed(state: State, rows: Table, flags: pa.Array) -> Table:
    """Say of rows that they are changes, in the order in which they were committed."""
    numbers = state.changes + np.arange(rows.num_rows)
    state.changes += rows.num_rows
    columns = {name: rows[name] for name in rows.column_names}
    return pa.table({FLAG: flags, "CDC_DSN": numbers} | columns)
