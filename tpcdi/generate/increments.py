"""Increments: a day's changes and facts, for as long as one likes after the history."""

from collections import Counter
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpcdi.generate import people, prospects
from tpcdi.generate.changes import Changes
from tpcdi.generate.columns import Table, table_of
from tpcdi.generate.crm import Answers, opened
from tpcdi.generate.facts import (
    MARKET,
    TRADE,
    WATCH,
    Placed,
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

ACCOUNT_COLUMNS = ("CA_ID", "CA_B_ID", "CA_C_ID", "CA_NAME", "CA_TAX_ST", "CA_ST_ID")
PROSPECT = "Prospect.csv"


@dataclass(frozen=True, slots=True)
class Increment:
    """A batch's files as tables, and what the audit will ask of them."""

    batch: int
    today: date
    tables: dict[str, Table]
    answers: Answers


def increment(state: State, facts: int | None = None) -> Increment:
    """Make the next batch, with the facts of the state's scale, or about so many; the state goes
    on to its end.
    """
    state.batch += 1
    today, start = state.today, seconds(state.today)
    end = start + DAY_S
    placed = Placed.at(state.scale) if facts is None else Placed.among(facts, state, end)
    chance = dice(state.seed, "increment", state.batch)
    changes = Changes(state.crm, chance, state.brokers, today, state.moves)
    answers = changes.file(state.scale)
    state.moves = changes.changes
    state.prospects.ask_again(state.crm, chance, state.scale, today)
    _, filed = trade(state, opened(state.crm.accounts), start, end, placed.trades)
    customers = opened(state.crm.customers)
    filed[WATCH] = watch(state, customers, start, end, placed.watches)
    filed[MARKET] = pa.concat_tables(quotes(state.listing, state.seed, start - DAY_S, start))
    is_new = _is_new(filed[TRADE])
    answers.update(trade_answers(filed[TRADE], pc.sum(is_new).as_py()))
    answers.update(watch_answers(filed[WATCH]))
    answers.update(prospect_answers(state.prospects, state.crm, PROSPECTS_NEW_A_DAY(state.scale)))
    answers.update(row_answers(Counter({file: rows.num_rows for file, rows in filed.items()})))
    tables = {
        "Customer.txt": _filed(state, changes.customers, people.COLUMNS),
        "Account.txt": _filed(state, changes.accounts, ACCOUNT_COLUMNS),
        TRADE: _changed(state, filed.pop(TRADE), pc.if_else(is_new, "I", "U")),
        **{
            file: _changed(state, rows, pa.repeat("I", rows.num_rows))
            for file, rows in filed.items()
        },
        PROSPECT: table_of(state.prospects.records, prospects.COLUMNS),
    }
    return Increment(state.batch, today, tables, answers)


def _is_new(rows: Table) -> pa.ChunkedArray:
    """Tell which events are a trade's first: submitted to the market, or waiting for a limit."""
    is_market = pc.is_in(rows["T_TT_ID"], pa.array(["TMB", "TMS"]))
    is_first = pc.and_(is_market, pc.equal(rows["T_ST_ID"], "SBMT"))
    return pc.or_(is_first, pc.equal(rows["T_ST_ID"], "PNDG"))


def _filed(state: State, rows: list[dict[str, object]], columns: tuple[str, ...]) -> Table:
    return _changed(state, table_of(rows, columns), pa.array([row["CDC_FLAG"] for row in rows]))


def _changed(state: State, rows: Table, flags: pa.Array) -> Table:
    """Say of rows that they are changes, in the order in which they were committed."""
    numbers = state.changes + np.arange(rows.num_rows)
    state.changes += rows.num_rows
    columns = {name: rows[name] for name in rows.column_names}
    return pa.table({"CDC_FLAG": flags, "CDC_DSN": numbers} | columns)
