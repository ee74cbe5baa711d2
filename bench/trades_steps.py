"""The four steps of a trade into DimTrade: as procedures, as one procedure, as calls of a client.

All of them do the same to the same Arrow tables. Between two calls the client leaves a batch in a
table of the core, in one row as a stream has it: it may die there, and go on.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.trades_data import DIMENSIONS, DIMTRADE, TUPLE, Trades
from etl_procs import Batch, Dataflow, Lookup, Table, Transaction, by_count
from headrace import arrow
from tpcdi.dataflow.facts import days, hundredths, times

CLEANED = """\
    tradeid INTEGER NOT NULL, sk_createdateid INTEGER NOT NULL, sk_createtimeid INTEGER NOT NULL,
    sk_closedateid INTEGER, sk_closetimeid INTEGER,
    status TEXT NOT NULL, type TEXT NOT NULL, cashflag INTEGER NOT NULL, symbol TEXT NOT NULL,
    quantity INTEGER NOT NULL, bidprice INTEGER NOT NULL, accountid INTEGER NOT NULL,
    executedby TEXT NOT NULL, tradeprice INTEGER, fee INTEGER, commission INTEGER, tax INTEGER,
    batchid INTEGER NOT NULL"""
SECURED = f"{CLEANED}, sk_securityid INTEGER NOT NULL, sk_companyid INTEGER NOT NULL"
PLACED = (
    f"{SECURED}, sk_accountid INTEGER NOT NULL, sk_customerid INTEGER NOT NULL, sk_brokerid INTEGER"
)
OVER = pa.array(["CMPT", "CNCL"])
HISTORICAL = 1

LEAVE = "INSERT INTO underway VALUES (?, ?)"
CHANGE = "UPDATE underway SET tuples = ? WHERE batch = ?"
TAKE = "SELECT tuples FROM underway WHERE batch = ?"
FORGET = "DELETE FROM underway WHERE batch = ?"

Step = Callable[[Transaction, pa.Table], pa.Table]


class Steps:
    """A dataflow with what the steps look up in, and the steps."""

    def __init__(self, name: str, trades: Trades) -> None:
        self.flow = Dataflow(name)
        dimensions = {
            name: self.flow.table(name, columns, rows=trades.dimensions[name])
            for name, columns in DIMENSIONS.items()
        }
        self.status = self.flow.lookup("status", dimensions["statuses"], key="id", gives="name")
        self.type = self.flow.lookup("type", dimensions["types"], key="id", gives="name")
        self.security_at = self._as_of(
            "security_at", dimensions["securities"], "symbol", "sk_securityid", "sk_companyid"
        )
        self.account_at = self._as_of(
            "account_at",
            dimensions["accounts"],
            "accountid",
            "sk_accountid",
            "sk_customerid",
            "sk_brokerid",
        )
        self.dimtrade = self.flow.table("dimtrade", f"{DIMTRADE}, PRIMARY KEY (tradeid)")
        names = self.dimtrade.columns.names
        places = ", ".join("?" for _ in names)
        self._enter = f"INSERT INTO dimtrade ({', '.join(names)}) VALUES ({places})"  # noqa: S608

    def _as_of(self, name: str, table: Table, key: str, *gives: str) -> Lookup:
        return self.flow.lookup(name, table, key=key, at="since", gives=gives)

    def clean(self, tx: Transaction, trades: pa.Table) -> pa.Table:
        """Parse times and amounts, and name the status and the type."""
        is_open = pc.invert(pc.is_in(trades["t_st_id"], OVER)).to_numpy()
        return pa.table(
            {
                "tradeid": trades["t_id"],
                "sk_createdateid": days(trades["t_created"]),
                "sk_createtimeid": times(trades["t_created"]),
                "sk_closedateid": pa.array(days(trades["t_dts"]), mask=is_open),
                "sk_closetimeid": pa.array(times(trades["t_dts"]), mask=is_open),
                "status": tx.lookup(self.status, trades["t_st_id"])["name"],
                "type": tx.lookup(self.type, trades["t_tt_id"])["name"],
                "cashflag": trades["t_is_cash"],
                "symbol": trades["t_s_symb"],
                "quantity": trades["t_qty"],
                "bidprice": hundredths(trades["t_bid_price"]),
                "accountid": trades["t_ca_id"],
                "executedby": trades["t_exec_name"],
                "tradeprice": hundredths(trades["t_trade_price"]),
                "fee": hundredths(trades["t_chrg"]),
                "commission": hundredths(trades["t_comm"]),
                "tax": hundredths(trades["t_tax"]),
                "batchid": np.full(trades.num_rows, HISTORICAL),
            }
        )

    def secure(self, tx: Transaction, trades: pa.Table) -> pa.Table:
        """Find the security as of the day, and its company."""
        return _found(tx, self.security_at, trades, "symbol")

    def place(self, tx: Transaction, trades: pa.Table) -> pa.Table:
        """Find the account as of the day, its customer and its broker."""
        return _found(tx, self.account_at, trades, "accountid")

    def enter(self, tx: Transaction, trades: pa.Table) -> None:
        """Enter trades into DimTrade."""
        columns = [trades[name].to_pylist() for name in self.dimtrade.columns.names]
        tx.executemany(self._enter, zip(*columns, strict=True))


def _found(tx: Transaction, lookup: Lookup, trades: pa.Table, key: str) -> pa.Table:
    found = tx.lookup(lookup, trades[key], at=trades["sk_createdateid"])
    for name in lookup.gives:
        trades = trades.append_column(name, found[name])
    return trades


def four_procedures(trades: Trades, count: int) -> Dataflow:
    """Declare a procedure for each step, with a stream to the next; so many trades are a batch."""
    steps = Steps("four_procedures", trades)
    flow = steps.flow
    first = flow.stream("trades", TUPLE, batches=by_count(count))
    cleaned, secured, placed = (
        flow.stream(name, columns)
        for name, columns in (("cleaned", CLEANED), ("secured", SECURED), ("placed", PLACED))
    )

    @flow.procedure(takes=first, looks=[steps.status, steps.type], gives=cleaned)
    def clean(tx: Transaction, batch: Batch) -> None:
        tx.emit(cleaned, steps.clean(tx, batch.table))

    @flow.procedure(takes=cleaned, looks=steps.security_at, gives=secured)
    def secure(tx: Transaction, batch: Batch) -> None:
        tx.emit(secured, steps.secure(tx, batch.table))

    @flow.procedure(takes=secured, looks=steps.account_at, gives=placed)
    def place(tx: Transaction, batch: Batch) -> None:
        tx.emit(placed, steps.place(tx, batch.table))

    @flow.procedure(takes=placed, writes=steps.dimtrade)
    def enter(tx: Transaction, batch: Batch) -> None:
        steps.enter(tx, batch.table)

    return flow


def one_procedure(trades: Trades, count: int) -> Dataflow:
    """Declare one procedure that takes all steps."""
    steps = Steps("one_procedure", trades)
    first = steps.flow.stream("trades", TUPLE, batches=by_count(count))
    looks = [steps.status, steps.type, steps.security_at, steps.account_at]

    @steps.flow.procedure(takes=first, looks=looks, writes=steps.dimtrade)
    def ingest(tx: Transaction, batch: Batch) -> None:
        steps.enter(tx, steps.place(tx, steps.secure(tx, steps.clean(tx, batch.table))))

    return steps.flow


CALLS = ("secure", "place", "enter")
"""What a client calls with the number of a batch, after it has had it cleaned."""


def four_calls(trades: Trades) -> Dataflow:
    """Declare a call for each step."""
    steps = Steps("four_calls", trades)
    flow = steps.flow
    underway = flow.table("underway", "batch INTEGER PRIMARY KEY, tuples TEXT NOT NULL")
    number = "batch INTEGER NOT NULL"

    def change(tx: Transaction, batch: int, step: Step) -> None:
        tx.execute(CHANGE, (packed(step(tx, _taken(tx, batch))), batch))

    @flow.call(
        arguments=f"{number}, tuples TEXT NOT NULL",
        looks=[steps.status, steps.type],
        writes=underway,
    )
    def clean(tx: Transaction, batch: int, tuples: str) -> None:
        tx.execute(LEAVE, (batch, packed(steps.clean(tx, _unpacked(tuples)))))

    @flow.call(arguments=number, looks=steps.security_at, writes=underway)
    def secure(tx: Transaction, batch: int) -> None:
        change(tx, batch, steps.secure)

    @flow.call(arguments=number, looks=steps.account_at, writes=underway)
    def place(tx: Transaction, batch: int) -> None:
        change(tx, batch, steps.place)

    @flow.call(arguments=number, writes=[underway, steps.dimtrade])
    def enter(tx: Transaction, batch: int) -> None:
        steps.enter(tx, _taken(tx, batch))
        tx.execute(FORGET, (batch,))

    return flow


def packed(tuples: pa.Table) -> str:
    """Write tuples as a text: calls and tables have no type for bytes."""
    return b64encode(arrow.to_bytes(tuples)).decode()


def _unpacked(text: str) -> pa.Table:
    return arrow.from_bytes(b64decode(text))


def _taken(tx: Transaction, batch: int) -> pa.Table:
    ((text,),) = (row.values() for row in tx.query(TAKE, (batch,)))
    return _unpacked(text)
