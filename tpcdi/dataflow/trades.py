"""Trades: at first of rows and events that are joined, later of changes.

A trade is entered when its row is there, the event that created it and that of its status. Of those
that are over, the core keeps what holdings need, and what a later change does not tell; of the
others, all.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs import Batch, Transaction
from tpcdi.dataflow.facts import (
    AFTER,
    READS,
    READY,
    Flags,
    Numbers,
    account_at,
    dated,
    days,
    hundredths,
    in_calendar,
    security_at,
    times,
)
from tpcdi.dataflow.forms import AMOUNT, CHANGE, PRICE, TIME, formed
from tpcdi.dataflow.listing import names_of
from tpcdi.dataflow.messages import MESSAGES, alert
from tpcdi.dataflow.outlets import OUTLETS, day, shown, stored, table, time
from tpcdi.dataflow.phases import Held, Phase, current, has
from tpcdi.dataflow.reference import status_names, type_names
from tpcdi.dataflow.sources import TRADE, flow, trade_changes, trade_events, trades
from tpcdi.dataflow.versions import Image

TRADES = OUTLETS["dimtrade"]

waiting = flow.table(
    "waiting_trades",
    f"{TRADE}, since INTEGER NOT NULL, PRIMARY KEY (t_id), UNIQUE (since, t_id)",
    parks=True,
)
"""Trades that lack an event; or since a phase, what they refer to."""
waiting_events = flow.table(
    "waiting_events", f"{trade_events.columns.sql}, UNIQUE (th_t_id, th_st_id, th_dts)", parks=True
)
open_trades = flow.table("open_trades", f"{stored('dimtrade')}, PRIMARY KEY (tradeid)")
closed_trades = flow.table(
    "closed_trades",
    "tradeid INTEGER PRIMARY KEY, sk_brokerid INTEGER, sk_createdateid INTEGER NOT NULL, "
    "sk_createtimeid INTEGER NOT NULL, sk_closedateid INTEGER NOT NULL, "
    "sk_closetimeid INTEGER NOT NULL, sk_securityid INTEGER NOT NULL, "
    "sk_companyid INTEGER NOT NULL, sk_customerid INTEGER NOT NULL, sk_accountid INTEGER NOT NULL, "
    "tradeprice TEXT, batchid INTEGER NOT NULL",
)
"""With the first price that a trade had when it was over: holdings have that."""
held_trades, held_events, held_changes = map(Held, (trades, trade_events, trade_changes))
parked_changes = Held(trade_changes, "parked_trade_changes")
closed = flow.stream("closed", "tradeid INTEGER NOT NULL")

FORMS = {
    "t_dts": TIME,
    **dict.fromkeys(("t_bid_price", "t_trade_price"), PRICE),
    **dict.fromkeys(("t_chrg", "t_comm", "t_tax"), AMOUNT),
}
CLOSED = closed_trades.columns.names
CLOSE = f"""\
INSERT INTO closed_trades ({", ".join(CLOSED)}) VALUES ({", ".join("?" for _ in CLOSED)})
ON CONFLICT (tradeid) DO UPDATE
SET tradeprice = coalesce(closed_trades.tradeprice, excluded.tradeprice)"""
CLOSING = ("CMPT", "CNCL")
PENDING, SUBMITTED = "PNDG", "SBMT"
CLOCK = 1_000_000
"""A day and a time of day are one number: the day times this, and the time."""
NEVER = 99_999_999 * CLOCK


@flow.procedure(
    takes=[*AFTER, trades, trade_events, trade_changes],
    reads=[*READS, status_names, type_names],
    looks=[account_at, security_at],
    writes=[
        waiting,
        waiting_events,
        open_trades,
        closed_trades,
        *(one.table for one in (held_trades, held_events, held_changes, parked_changes)),
    ],
    gives=[OUTLETS["dimtrade"], MESSAGES, closed],
)
def settle(
    tx: Transaction,
    _listed: Batch,
    _enrolled: Batch,
    rows: Batch,
    events: Batch,
    changes: Batch,
) -> None:
    """Enter trades, and change them."""
    phase = current(tx)
    ready = has(tx, phase, *READY)
    first = held_trades.admit(tx, formed(tx, rows, FORMS), when=ready)
    of_events = dated(tx, {"th_dts": TIME}, "th_dts")
    told = held_events.admit(tx, formed(tx, events, of_events), when=ready)
    of_changes = dated(tx, {"cdc_flag": CHANGE, **FORMS}, "t_dts")
    then = held_changes.admit(tx, formed(tx, changes, of_changes), when=ready)
    if phase is None or not ready:
        return
    desk = Desk(tx, phase)
    desk.join(first, told)
    desk.change(pa.concat_tables([parked_changes.take(tx, phase.batch), then]).to_pylist())


class Desk:
    """The trades that one batch brings forward."""

    def __init__(self, tx: Transaction, phase: Phase) -> None:
        self._tx = tx
        self._phase = phase
        self._statuses = names_of(tx, status_names)
        self._types = names_of(tx, type_names)
        rows = tx.query("SELECT id FROM type_names WHERE is_market")
        self._of_market = pa.array([row["id"] for row in rows], pa.string())

    def join(self, rows: pa.Table, events: pa.Table) -> None:
        """Enter the trades that have all they need, and let the others wait."""
        known, told = self._waiting(rows, events)
        rows = pa.concat_tables([rows, known])
        events = pa.concat_tables([events, told])
        if not rows.num_rows + events.num_rows:
            return
        joined = Joined(rows, events, self._of_market)
        is_entered = self._enter(joined)
        for statement, ids in (
            ("DELETE FROM waiting_trades WHERE t_id = ?", known["t_id"]),
            ("DELETE FROM waiting_events WHERE th_t_id = ?", pc.unique(told["th_t_id"])),
        ):
            self._tx.executemany(statement, zip(ids.to_pylist(), strict=True))
        since = pa.array(np.where(joined.is_whole, self._phase.batch, 0))
        left = joined.rows.append_column("since", since).filter(pa.array(~is_entered))
        _insert(self._tx, "waiting_trades", left)
        is_done = np.append(is_entered, False)[joined.place] & joined.is_of
        _insert(self._tx, "waiting_events", events.filter(pa.array(~is_done)))

    def _waiting(self, rows: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Give what waits of the trades that are concerned: their rows and events."""
        names = ", ".join(rows.column_names)
        ids = json.dumps(pc.unique(events["th_t_id"]).to_pylist())
        since = self._phase.batch - 1
        known = self._tx.table(
            f"SELECT {names} FROM json_each(?) AS asked JOIN waiting_trades ON t_id = value "
            f"UNION SELECT {names} FROM waiting_trades WHERE since BETWEEN 1 AND ?",
            [ids, since],
        ).cast(rows.schema)
        ids = json.dumps([*rows["t_id"].to_pylist(), *known["t_id"].to_pylist()])
        told = self._tx.table(
            "SELECT waiting_events.* FROM json_each(?) AS asked "
            "JOIN waiting_events ON th_t_id = value",
            [ids],
        )
        return known, told.cast(events.schema)

    def _enter(self, joined: "Joined") -> Flags:
        """Enter what is whole and refers to what is known; tell of each if it was."""
        rows, created, last = joined.rows, joined.created, joined.last
        accounts = self._tx.lookup(account_at, rows["t_ca_id"], at=created.day)
        securities = self._tx.lookup(security_at, rows["t_s_symb"], at=created.day)
        is_known = pc.and_(
            accounts["sk_accountid"].is_valid(), securities["sk_securityid"].is_valid()
        )
        status = _named(rows["t_st_id"], self._statuses)
        type_ = _named(rows["t_tt_id"], self._types)
        is_known = pc.and_(is_known, pc.and_(status.is_valid(), type_.is_valid()))
        is_open = ~pc.is_in(rows["t_st_id"], pa.array(CLOSING)).to_numpy()
        is_dated = in_calendar(self._tx, created.day) & in_calendar(self._tx, last.day)
        is_entered = joined.is_whole & is_known.to_numpy() & is_dated
        given = table(
            "dimtrade",
            tradeid=rows["t_id"],
            sk_brokerid=accounts["sk_brokerid"],
            sk_createdateid=created.day,
            sk_createtimeid=created.time,
            sk_closedateid=pa.array(last.day, mask=is_open),
            sk_closetimeid=pa.array(last.time, mask=is_open),
            status=status,
            type=type_,
            cashflag=rows["t_is_cash"],
            sk_securityid=securities["sk_securityid"],
            sk_companyid=securities["sk_companyid"],
            quantity=rows["t_qty"],
            bidprice=hundredths(rows["t_bid_price"]),
            sk_customerid=accounts["sk_customerid"],
            sk_accountid=accounts["sk_accountid"],
            executedby=rows["t_exec_name"],
            tradeprice=hundredths(rows["t_trade_price"]),
            fee=hundredths(rows["t_chrg"]),
            commission=hundredths(rows["t_comm"]),
            tax=hundredths(rows["t_tax"]),
            batchid=self._phase.batch,
        )
        entered = given.filter(pa.array(is_entered))
        self._note(entered)
        self._give(entered)
        return np.asarray(is_entered)

    def change(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Enter new trades, and change others."""
        new = [row for row in rows if row["cdc_flag"] == "I"]
        on = np.full(len(new), self._phase.day)
        accounts = self._tx.lookup(account_at, [row["t_ca_id"] for row in new], at=on)
        securities = self._tx.lookup(security_at, [row["t_s_symb"] for row in new], at=on)
        placed = {
            row["t_id"]: {**account, **security}
            for row, account, security in zip(
                new, accounts.to_pylist(), securities.to_pylist(), strict=True
            )
            if account["sk_accountid"] and security["sk_securityid"]
        }
        images: dict[int, Image] = {}
        steps: list[Image] = []
        unknown = []
        dates = np.array([day(row["t_dts"]) for row in rows], np.int64)
        for row, is_dated in zip(rows, in_calendar(self._tx, dates), strict=True):
            id_ = row["t_id"]
            is_named = row["t_st_id"] in self._statuses and row["t_tt_id"] in self._types
            if not (is_named and is_dated):
                unknown.append(row)
                continue
            if row["cdc_flag"] == "I" and id_ in placed:
                images[id_] = _created(row) | placed[id_]
            elif id_ not in images:
                found = self._find(id_)
                if found is None:
                    unknown.append(row)
                    continue
                images[id_] = found
            images[id_] = self._changed(images[id_], row)
            steps.append(images[id_])
        since = self._phase.batch
        parked_changes.put_rows(self._tx, unknown, since)
        self._tx.executemany("DELETE FROM open_trades WHERE tradeid = ?", zip(images))
        self._note(_shown(steps))
        self._give(_shown(images.values()))

    def _find(self, id_: int) -> Image | None:
        """Find a trade: of one that is over, what a change does not tell."""
        for kept in (open_trades, closed_trades):
            found = self._tx.query(f"SELECT * FROM {kept.name} WHERE tradeid = ?", [id_])
            if found:
                return found[0]
        return None

    def _changed(self, before: Image, row: Mapping[str, Any]) -> Image:
        """Change a trade; its first close stays, and so does the batch of that."""
        image = before | {
            "status": self._statuses[row["t_st_id"]],
            "type": self._types[row["t_tt_id"]],
            "cashflag": row["t_is_cash"],
            "quantity": row["t_qty"],
            "bidprice": _amount(row["t_bid_price"]),
            "executedby": row["t_exec_name"],
            "tradeprice": _amount(row["t_trade_price"]),
            "fee": _amount(row["t_chrg"]),
            "commission": _amount(row["t_comm"]),
            "tax": _amount(row["t_tax"]),
        }
        if before["sk_closedateid"] is None:
            image["batchid"] = self._phase.batch
            if row["t_st_id"] in CLOSING:
                image["sk_closedateid"] = day(row["t_dts"])
                image["sk_closetimeid"] = time(row["t_dts"])
        return image

    def _give(self, rows: pa.Table) -> None:
        """Give trades as they are now to the warehouse, and keep those that are open."""
        self._tx.emit(TRADES, rows)
        is_over = rows["sk_closedateid"].is_valid()
        _insert(self._tx, "open_trades", rows.filter(pc.invert(is_over)))
        self._tx.emit(closed, rows.filter(is_over).select(["tradeid"]))

    def _note(self, rows: pa.Table) -> None:
        """Keep what is needed of trades that are over, and warn of costs: of all that was said of a
        trade, so that it does not matter where batches are cut.
        """
        over = rows.filter(rows["sk_closedateid"].is_valid()).select(CLOSED)
        self._tx.executemany(CLOSE, _values(over))
        value = pc.multiply(rows["tradeprice"], rows["quantity"])
        for name, field, text in (
            ("commission", "T_COMM", "Invalid trade commission"),
            ("fee", "T_CHRG", "Invalid trade fee"),
        ):
            is_above = pc.fill_null(pc.greater(rows[name], value), False)
            found = rows.select(["tradeid", name]).filter(is_above).to_pydict().values()
            data = [f"T_ID = {id_}, {field} = {amount}" for id_, amount in zip(*found, strict=True)]
            alert(self._tx, self._phase, "DimTrade", text, *data)


class Moments(NamedTuple):
    """A day and a time of day for each trade."""

    day: Numbers
    time: Numbers


class Joined:
    """Trades by their number, each with the first event that created it and the last one."""

    def __init__(self, rows: pa.Table, events: pa.Table, of_market: pa.Array) -> None:
        self.rows = rows.sort_by("t_id").combine_chunks()
        ids, told = self.rows["t_id"].to_numpy(), events["th_t_id"].to_numpy()
        place = np.searchsorted(ids, told)
        is_of = np.append(ids, -1)[place] == told
        self.is_of, self.place = is_of, place
        """Of each event, if its trade is there, and which it is."""
        status = events["th_st_id"]
        is_market = pc.is_in(self.rows["t_tt_id"], of_market).to_numpy()
        is_submitted = pc.equal(status, SUBMITTED).to_numpy() & np.append(is_market, False)[place]
        creates = is_of & (pc.equal(status, PENDING).to_numpy() | is_submitted)
        own = self.rows["t_st_id"].take(pa.array(place, mask=~is_of))
        ends = pc.fill_null(pc.equal(status, own), False).to_numpy()
        moments = days(events["th_dts"]) * CLOCK + times(events["th_dts"])
        created, last = np.full(len(ids), NEVER), np.full(len(ids), -1)
        np.minimum.at(created, place[creates], moments[creates])
        np.maximum.at(last, place[ends], moments[ends])
        self.is_whole = (created < NEVER) & (last >= 0)
        self.created, self.last = (Moments(*np.divmod(of, CLOCK)) for of in (created, last))


def _created(row: Mapping[str, Any]) -> Image:
    return {
        "tradeid": row["t_id"],
        "sk_createdateid": day(row["t_dts"]),
        "sk_createtimeid": time(row["t_dts"]),
        "sk_closedateid": None,
        "sk_closetimeid": None,
    }


def _amount(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _named(ids: pa.ChunkedArray, names: Mapping[str, str]) -> pa.ChunkedArray:
    return pa.array(names.values()).take(pc.index_in(ids, pa.array(names)))


def _shown(images: Iterable[Image]) -> pa.Table:
    given = [shown("dimtrade", image) for image in images]
    return pa.Table.from_pylist(given, TRADES.columns.arrow)


def _insert(tx: Transaction, table: str, rows: pa.Table) -> None:
    names, places = ", ".join(rows.column_names), ", ".join("?" for _ in rows.column_names)
    tx.executemany(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({places})", _values(rows))


def _values(rows: pa.Table) -> Iterable[tuple[Any, ...]]:
    return zip(*(_storable(column) for column in rows.columns), strict=True)


def _storable(column: pa.ChunkedArray) -> list[Any]:
    is_decimal = pa.types.is_decimal(column.type)
    values: list[Any] = (pc.cast(column, pa.string()) if is_decimal else column).to_pylist()
    return values
