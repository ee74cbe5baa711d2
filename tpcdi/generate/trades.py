"""Trades: each one's whole life at once, and the cash and holdings that come of it.

What a trade does after the period in which it is placed stays with the caller until its time has
come: trades that are open at the end of a batch close in a later one.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpcdi.generate.columns import Ints, Table, moments, money, pick, picked
from tpcdi.generate.listing import Listing
from tpcdi.generate.pools import dice, text

TRADE_COLUMNS = (
    *("T_ID", "T_DTS", "T_ST_ID", "T_TT_ID", "T_IS_CASH", "T_S_SYMB", "T_QTY", "T_BID_PRICE"),
    *("T_CA_ID", "T_EXEC_NAME", "T_TRADE_PRICE", "T_CHRG", "T_COMM", "T_TAX"),
)
HOLDING_COLUMNS = ("HH_H_T_ID", "HH_T_ID", "HH_BEFORE_QTY", "HH_AFTER_QTY")

TYPES = pa.array(["TMB", "TMS", "TLB", "TLS"])
TYPES_OF_TEN = np.array([0, 0, 1, 1, 2, 2, 2, 3, 3, 3])

STATUSES = pa.array(["SBMT", "CMPT", "PNDG", "CNCL"])
DONE = 1
LIVES = np.array([[0, DONE, DONE], [2, 0, DONE], [2, 3, 3]])
"""The statuses that a market, a limit and a canceled trade goes through."""
MARKET, LIMIT, CANCELED = range(3)

CANCELED_SHARE = 0.0977
SOON_SHARE = 0.05
"""Of limit trades, so many find their price within hours; the others take up to three months."""

ODD_EVERY = 500
"""Of so many trades, three cost more than they are worth, and one as much: not more."""

HELD_SHARE, PART_SHARE, OVER_SHARE = 0.95, 0.3, 0.003
"""Of sells, so many sell what is held; of these so many a part of it, or more than there is."""

LOTS_MOST = 200_000
"""Of what has been bought, this much can still be sold: it bounds the memory."""

_dice = dice(0, "cash")
CASH_NAMES = pa.array([text(_dice, 1 + number % 12) for number in range(2_000)])


def lots(trade: Ints, account: Ints, security: Ints, quantity: Ints, ready: Ints) -> Table:
    """Note what is held: by which trade it was bought, and since when it can be sold."""
    bought = {"trade": trade, "account": account, "security": security}
    return pa.table(bought | {"quantity": quantity, "ready": ready})


def no_lots() -> Table:
    """Begin with nothing held."""
    return lots(*(np.empty(0, np.int64) for _ in range(5)))


class Trades:
    """Trades that are placed at these times, the first with the number `first`.

    `accounts` says since when each is open, `held` what can be sold.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        first: int,
        times: Ints,
        accounts: Ints,
        listing: Listing,
        held: Table,
    ) -> None:
        count = len(times)
        self.number = first + np.arange(count)
        self._kind = rng.permutation(np.resize(TYPES_OF_TEN, count))
        self._is_sell = self._kind % 2 == 1
        self._account = pick(rng, np.searchsorted(accounts, times, "right"))
        self._security = pick(rng, listing.issued_by(times))
        self._quantity = rng.integers(1, 1_000, count)
        self._live(rng, times)
        self._sell(rng, held, int(times[0]))
        self._rows = self._price(rng, listing)

    def _live(self, rng: np.random.Generator, times: Ints) -> None:
        count, is_limit = len(times), self._kind >= 2
        is_canceled = is_limit & (rng.random(count) < CANCELED_SHARE)
        self._life = np.where(is_canceled, CANCELED, np.where(is_limit, LIMIT, MARKET))
        wait = np.where(
            rng.random(count) < SOON_SHARE,
            rng.integers(60, 28_800, count),
            rng.integers(86_400, 99 * 86_400, count),
        )
        second = times + np.where(is_limit, wait, rng.integers(1, 300, count))
        third = second + rng.integers(1, 300, count)
        self._times = np.stack([times, second, third], axis=1)
        self._events = np.where(self._life == LIMIT, 3, 2)
        self._end = np.where(self._life == LIMIT, third, second)
        self._is_done = ~is_canceled

    def _sell(self, rng: np.random.Generator, held: Table, now: int) -> None:
        """Let sells sell what is held; of a lot that is being sold nobody else sells."""
        sells = np.flatnonzero(self._is_sell & (rng.random(len(self.number)) < HELD_SHARE))
        ready = rng.permutation(np.flatnonzero(held["ready"].to_numpy() < now))
        sells, chosen = sells[: len(ready)], ready[: len(sells)]
        sold = held.take(pa.array(chosen))
        self._unsold = held.take(pa.array(np.setdiff1d(np.arange(held.num_rows), chosen)))
        self._account[sells] = sold["account"].to_numpy()
        self._security[sells] = sold["security"].to_numpy()
        self._sells, self._lot = sells, sold["trade"].to_numpy()
        self._before = sold["quantity"].to_numpy()
        luck = rng.random(len(sells))
        part = np.where(luck < PART_SHARE, 1 + self._before // 2, self._before)
        self._quantity[sells] = part + np.where(luck > 1 - OVER_SHARE, 7, 0)

    def _price(self, rng: np.random.Generator, listing: Listing) -> Table:
        count = len(self.number)
        price = (listing.cents[self._security] * rng.uniform(0.7, 1.3, count)).astype(np.int64)
        worth = price * self._quantity
        charge = np.minimum(rng.integers(50, 2_500, count), worth)
        commission = (worth * rng.uniform(0.001, 0.02, count)).astype(np.int64)
        odd = self.number % ODD_EVERY
        charge += np.isin(odd, (11, 13)) * worth + np.isin(odd, (11, 13))
        commission += np.isin(odd, (7, 13)) * worth + np.isin(odd, (7, 13))
        commission = np.where(odd == 17, worth, commission)
        tax = (worth * rng.uniform(0.0, 0.05, count)).astype(np.int64)
        self._cents = np.where(self._is_sell, worth - tax, -worth) - charge - commission
        self._cash_name = rng.integers(0, len(CASH_NAMES), count)
        return pa.table(
            {
                "T_ID": self.number,
                "T_TT_ID": picked(TYPES, self._kind),
                "T_IS_CASH": (rng.random(count) < 0.7).astype(np.int8),
                "T_S_SYMB": picked(listing.symbols, self._security),
                "T_QTY": self._quantity,
                "T_BID_PRICE": money((price * rng.uniform(0.95, 1.05, count)).astype(np.int64)),
                "T_CA_ID": self._account,
                "T_EXEC_NAME": rng.integers(1, 100_000, count),
                "T_TRADE_PRICE": money(price),
                "T_CHRG": money(charge),
                "T_COMM": money(commission),
                "T_TAX": money(tax),
            }
        )

    def events(self) -> Table:
        """Show each trade at each of its events."""
        index = np.repeat(np.arange(len(self.number)), self._events)
        first = np.repeat(np.cumsum(self._events) - self._events, self._events)
        return self._at(index, np.arange(len(index)) - first)

    def by(self, end: int) -> Table:
        """Show each trade as it is just before a moment."""
        passed = (self._times < end) & (np.arange(3) < self._events[:, None])
        return self._at(np.arange(len(self.number)), passed.sum(axis=1) - 1)

    def _at(self, index: Ints, event: Ints) -> Table:
        status = LIVES[self._life[index], event]
        rows = self._rows.take(pa.array(index))
        is_done = pa.array(status == DONE)
        told = {
            "T_DTS": moments(self._times[index, event]),
            "T_ST_ID": picked(STATUSES, status),
            # Only what is completed has cost anything.
            **{name: pc.if_else(is_done, rows[name], None) for name in TRADE_COLUMNS[-4:]},
        }
        return pa.table(
            {name: told[name] if name in told else rows[name] for name in TRADE_COLUMNS}
        )

    def cash(self) -> Table:
        """Show what completed trades cost and brought."""
        return pa.table(
            {
                "CT_CA_ID": self._account,
                "CT_DTS": moments(self._end),
                "CT_AMT": money(self._cents),
                "CT_NAME": picked(CASH_NAMES, self._cash_name),
            }
        ).filter(pa.array(self._is_done))

    def holdings(self) -> Table:
        """Show what completed trades do to what is held: selling more than that takes two rows."""
        opening = np.ones(len(self.number), np.bool_)
        opening[self._sells] = False
        opened = np.flatnonzero(opening & self._is_done)
        signed = np.where(self._is_sell, -self._quantity, self._quantity)
        closed = self._is_done[self._sells]
        sells, lot, before = self._sells[closed], self._lot[closed], self._before[closed]
        after = before - self._quantity[sells]
        over = np.flatnonzero(after < 0)
        row = np.concatenate([opened, sells, sells[over]])
        none = np.zeros(len(opened) + len(over), np.int64)
        return pa.table(
            {
                "HH_H_T_ID": np.concatenate([self.number[opened], lot, self.number[sells[over]]]),
                "HH_T_ID": self.number[row],
                "HH_BEFORE_QTY": np.concatenate([none[: len(opened)], before, none[len(opened) :]]),
                "HH_AFTER_QTY": np.concatenate([signed[opened], np.maximum(after, 0), after[over]]),
                "due": moments(self._end[row]),
            }
        )

    def held(self) -> Table:
        """Note what can be sold from now on: what was bought, and what is left of what was sold."""
        bought = np.flatnonzero(~self._is_sell & self._is_done)
        sells = self._sells
        left = np.where(self._is_done[sells], self._before - self._quantity[sells], self._before)
        some = np.flatnonzero(left > 0)
        rest = lots(
            self._lot[some],
            self._account[sells[some]],
            self._security[sells[some]],
            left[some],
            self._end[sells[some]],
        )
        fresh = lots(
            self.number[bought],
            self._account[bought],
            self._security[bought],
            self._quantity[bought],
            self._end[bought],
        )
        return pa.concat_tables([self._unsold, rest, fresh]).slice(
            max(0, self._unsold.num_rows + len(some) + len(bought) - LOTS_MOST)
        )
