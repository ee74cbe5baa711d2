"""Cash: what each account has at the end of each day on which something came or went."""

import numpy as np
import pyarrow as pa

from etl_procs import Batch, Transaction
from tpcdi.dataflow.facts import (
    AFTER,
    READS,
    Numbers,
    account_at,
    asked,
    at,
    days,
    due,
    hundredths,
    in_calendar,
    joined,
)
from tpcdi.dataflow.forms import AMOUNT, ID, TIME
from tpcdi.dataflow.outlets import OUTLETS, table
from tpcdi.dataflow.phases import Held, Phase
from tpcdi.dataflow.sources import cash, cash_changes, flow

balances = flow.table(
    "balances",
    "accountid INTEGER NOT NULL, day INTEGER NOT NULL, moved INTEGER NOT NULL, "
    "cash INTEGER NOT NULL, PRIMARY KEY (accountid, day)",
)
held, parked = Held(cash), Held(cash, "parked_cash")

DATED = "ct_dts"
FORMS = {"ct_ca_id": ID, DATED: TIME, "ct_amt": AMOUNT}
DAY_DIGITS = 100_000_000
"""An account and a day are one number: the account times this, and the day."""

ASKED = """\
WITH asked (accountid, day) AS (SELECT value ->> 0, value ->> 1 FROM json_each(?))"""
BEFORE = f"""{ASKED}
SELECT accountid, coalesce((
    SELECT cash FROM balances AS earlier
    WHERE earlier.accountid = asked.accountid AND earlier.day < asked.day
    ORDER BY earlier.day DESC LIMIT 1), 0) AS cash
FROM asked ORDER BY accountid"""
SINCE = f"""{ASKED}
SELECT accountid, balances.day AS day, moved FROM asked JOIN balances USING (accountid)
WHERE balances.day >= asked.day"""


@flow.procedure(
    takes=[*AFTER, cash, cash_changes],
    reads=READS,
    looks=[account_at],
    writes=[balances, held.table, parked.table],
    gives=[OUTLETS["factcashbalances"]],
)
def bank(tx: Transaction, _listed: Batch, _enrolled: Batch, first: Batch, then: Batch) -> None:
    """Bring balances forward."""
    phase, rows = due(tx, joined(tx, first, then, FORMS, DATED), held, parked, DATED)
    if phase is not None:
        _move(tx, phase, rows)


def _move(tx: Transaction, phase: Phase, rows: pa.Table) -> None:
    ids = rows["ct_ca_id"].to_numpy()
    codes = ids * DAY_DIGITS + at(phase, days(rows["ct_dts"]))
    distinct, which = np.unique(codes, return_inverse=True)
    found = tx.lookup(account_at, distinct // DAY_DIGITS, at=distinct % DAY_DIGITS)
    is_known = found["sk_accountid"].is_valid().to_numpy()
    is_known &= in_calendar(tx, distinct % DAY_DIGITS)
    if not is_known.all():
        parked.put(tx, rows.filter(pa.array(~is_known[which])), phase.batch)
    moved = np.zeros(len(distinct), np.int64)
    np.add.at(moved, which, hundredths(rows["ct_amt"]).to_numpy())
    codes, moved = distinct[is_known], moved[is_known]
    if not len(codes):
        return
    firsts = np.flatnonzero(np.diff(codes // DAY_DIGITS, prepend=-1))
    question = asked((codes[firsts] // DAY_DIGITS).tolist(), (codes[firsts] % DAY_DIGITS).tolist())
    known = tx.table(SINCE, question)
    if known.num_rows:
        old = known["accountid"].to_numpy() * DAY_DIGITS + known["day"].to_numpy()
        codes, which = np.unique(np.concatenate([codes, old]), return_inverse=True)
        both = np.concatenate([moved, known["moved"].to_numpy()])
        moved = np.zeros(len(codes), np.int64)
        np.add.at(moved, which, both)
    before = tx.table(BEFORE, question)["cash"].to_numpy()
    _write(tx, phase, codes, moved, _running(codes // DAY_DIGITS, moved, before))


def _running(ids: Numbers, moved: Numbers, before: Numbers) -> Numbers:
    """Add up what was moved, of each account by itself, to what it had before."""
    total: Numbers = np.cumsum(moved)
    firsts = np.flatnonzero(np.diff(ids, prepend=-1))
    counts = np.diff(firsts, append=len(ids))
    start: Numbers = np.repeat(before - (total - moved)[firsts], counts)
    return total + start


def _write(
    tx: Transaction, phase: Phase, codes: Numbers, moved: Numbers, cash_then: Numbers
) -> None:
    ids, on = codes // DAY_DIGITS, codes % DAY_DIGITS
    tx.executemany(
        "INSERT OR REPLACE INTO balances VALUES (?, ?, ?, ?)",
        zip(*(column.tolist() for column in (ids, on, moved, cash_then)), strict=True),
    )
    versions = tx.lookup(account_at, ids, at=on)
    entered = table(
        "factcashbalances",
        sk_customerid=versions["sk_customerid"],
        sk_accountid=versions["sk_accountid"],
        sk_dateid=on,
        cash=cash_then,
        batchid=phase.batch,
    )
    tx.emit(OUTLETS["factcashbalances"], entered)
