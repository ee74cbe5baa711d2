"""The generator of TPC-DI: facts of what is there, increments, and the audit's answers."""

from bisect import bisect
from collections import Counter, defaultdict
from datetime import date, timedelta
from decimal import Decimal

import pytest
from tpcdi_files import (
    BATCH_DAYS,
    Action,
    Directory,
    is_too_old,
    is_unborn,
    repeated,
)

FIRST_TRADE = "2012-07-07 00:00:00"
ORDERS = {
    ("TMB", "SBMT", "CMPT"),
    ("TMS", "SBMT", "CMPT"),
    *((kind, "PNDG", *rest) for kind in ("TLB", "TLS") for rest in (("CNCL",), ("SBMT", "CMPT"))),
}


def opened(directory: Directory, key: str) -> dict[str, str]:
    """Tell when each account or customer was first there."""
    found: dict[str, str] = {}
    for action in directory.actions:
        fields = action.account if key == "CA_ID" else action.customer
        if fields:
            found.setdefault(fields[key], action.at.replace("T", " "))
    file, column = ("Account.txt", 0) if key == "CA_ID" else ("Customer.txt", 0)
    for batch in (2, 3):
        for row in directory.changes(batch, file):
            found.setdefault(row[column], f"{BATCH_DAYS[batch]} 00:00:00")
    return found


def issued(directory: Directory) -> dict[str, str]:
    found: dict[str, str] = {}
    for record in directory.records:
        if record.kind == "SEC":
            at = record.at
            day = f"{at[:4]}-{at[4:6]}-{at[6:8]} {at[9:11]}:{at[11:13]}:{at[13:15]}"
            found.setdefault(record.fields["Symbol"], day)
    return found


def window(batch: int) -> tuple[str, str]:
    start = FIRST_TRADE if batch == 1 else f"{BATCH_DAYS[batch]} 00:00:00"
    return start, f"{BATCH_DAYS[batch]} 23:59:59"


def events(directory: Directory) -> dict[str, list[tuple[str, str, int, list[str]]]]:
    """List each trade's events: status, moment, batch, and the row of Trade.txt if it has one."""
    found: dict[str, list[tuple[str, str, int, list[str]]]] = defaultdict(list)
    for number, at, status in directory.rows(1, "TradeHistory.txt"):
        found[number].append((status, at, 1, []))
    for batch in (2, 3):
        for row in directory.changes(batch, "Trade.txt"):
            found[row[0]].append((row[2], row[1], batch, row))
    return found


# Facts refer to what is there


@pytest.mark.parametrize(
    ("file", "time", "account", "customer", "symbol"),
    [
        ("Trade.txt", 1, 8, None, 5),
        ("CashTransaction.txt", 1, 0, None, None),
        ("WatchHistory.txt", 2, None, 0, 1),
    ],
)
def test_a_fact_is_of_its_batch_and_refers_to_what_is_there(
    small: Directory,
    file: str,
    time: int,
    account: int | None,
    customer: int | None,
    symbol: int | None,
) -> None:
    there = {
        account: opened(small, "CA_ID"),
        customer: opened(small, "C_ID"),
        symbol: issued(small),
    }
    del there[None]
    placed = {number: each[0][1] for number, each in events(small).items()}
    for batch in (1, 2, 3):
        start, end = window(batch)
        for row in small.changes(batch, file):
            assert start <= row[time] <= end
            at = placed[row[0]] if file == "Trade.txt" else row[time]
            for column, known in there.items():
                assert column is not None
                assert known[row[column]] <= at


def test_every_day_quotes_every_security_that_is_there(small: Directory) -> None:
    since = sorted(issued(small).values())
    days: dict[int, Counter[str]] = {}
    for batch in (1, 2, 3):
        rows = small.changes(batch, "DailyMarket.txt")
        assert not repeated([(row[0], row[1]) for row in rows])
        days[batch] = Counter(row[0] for row in rows)
        for row in rows:
            low, close, high = Decimal(row[4]), Decimal(row[2]), Decimal(row[3])
            assert 0 < low <= close <= high
    first = date(2015, 7, 6)
    assert set(days[1]) == {str(first + timedelta(n)) for n in range(732)}
    assert set(days[2]) == {"2017-07-07"}
    assert set(days[3]) == {"2017-07-08"}
    for counts in days.values():
        for day, count in counts.items():
            assert count == bisect(since, f"{day} 23:59:59")


def test_highs_and_lows_of_a_year_come_again(small: Directory) -> None:
    """Else nobody would see whether the earliest day of the highest price is taken."""
    highs: dict[str, list[Decimal]] = defaultdict(list)
    for row in small.rows(1, "DailyMarket.txt"):
        if row[0] > "2016-07-06":
            highs[row[1]].append(Decimal(row[3]))
    again = [symbol for symbol, year in highs.items() if year.count(max(year)) > 1]
    assert len(again) > len(highs) / 10


# Trades


def test_trades_live_as_their_type_lets_them(small: Directory) -> None:
    kinds = {row[0]: row[3] for batch in (1, 2, 3) for row in small.changes(batch, "Trade.txt")}
    lives = {number: tuple(each[0] for each in life) for number, life in events(small).items()}
    found = Counter((kinds[number], *life) for number, life in lives.items())
    complete = {order for order in found if order in ORDERS}
    assert complete == ORDERS
    for order in set(found) - complete:  # still open
        assert any(whole[: len(order)] == order for whole in ORDERS)
    for life in events(small).values():
        times = [event[1] for event in life]
        assert times == sorted(set(times))


def test_the_historical_trade_is_as_its_last_event_left_it(small: Directory) -> None:
    last = {number: (at, status) for number, at, status in small.rows(1, "TradeHistory.txt")}
    rows = small.rows(1, "Trade.txt")
    assert [int(row[0]) for row in rows] == list(range(len(rows)))
    assert {row[0]: (row[1], row[2]) for row in rows} == last


def test_only_a_completed_trade_has_a_price(small: Directory) -> None:
    for batch in (1, 2, 3):
        for row in small.changes(batch, "Trade.txt"):
            assert len(row) == 14
            assert [bool(cell) for cell in row[10:]] == [row[2] == "CMPT"] * 4
            assert row[9].isdecimal()


def test_trades_that_are_open_at_the_end_of_a_batch_close_in_a_later_one(small: Directory) -> None:
    closed = Counter(
        (life[0][2], life[-1][2])
        for life in events(small).values()
        if life[-1][0] in {"CMPT", "CNCL"}
    )
    assert closed[1, 1] > closed[1, 2] + closed[1, 3] > 0
    still_open = [life for life in events(small).values() if life[-1][0] in {"PNDG", "SBMT"}]
    assert 0.01 < len(still_open) / len(small.rows(1, "Trade.txt")) < 0.025


def test_an_increment_has_several_events_of_one_trade(small: Directory) -> None:
    lives = events(small)
    for batch in (2, 3):
        rows = small.rows(batch, "Trade.txt")
        assert repeated([(row[2],) for row in rows])
        new = [row[2] for row in rows if row[0] == "I"]
        assert len(set(new)) == len(new)
        old = {row[0] for before in range(1, batch) for row in small.changes(before, "Trade.txt")}
        assert not old & set(new)
        for row in rows:
            assert (row[0] == "I") == (lives[row[2]][0][3] == row[2:])


def test_some_trades_cost_more_than_they_are_worth_and_one_as_much(small: Directory) -> None:
    rows = [row for row in small.rows(1, "Trade.txt") if row[2] == "CMPT"]
    worth = [Decimal(row[10]) * int(row[6]) for row in rows]
    for column in (11, 12):
        above = sum(Decimal(row[column]) > each for row, each in zip(rows, worth, strict=True))
        assert 0 < above < len(rows) / 100
    assert any(Decimal(row[12]) == each for row, each in zip(rows, worth, strict=True))


def test_holdings_follow_from_completed_trades_lot_by_lot(small: Directory) -> None:
    trades = {
        row[0]: row
        for batch in (1, 2, 3)
        for row in small.changes(batch, "Trade.txt")
        if row[2] == "CMPT"
    }
    lots: dict[str, int] = {}
    moved: Counter[str] = Counter()
    rows_of: Counter[str] = Counter()
    sold_in_parts = 0
    for batch in (1, 2, 3):
        rows = small.changes(batch, "HoldingHistory.txt")
        times = [trades[row[1]][1] for row in rows]
        assert times == sorted(times)
        assert all(window(batch)[0] <= time <= window(batch)[1] for time in times)
        for lot, number, before, after in rows:
            assert int(before) == lots.get(lot, 0)
            assert (lot == number) == (lot not in lots)
            assert (trades[lot][8], trades[lot][5]) == (trades[number][8], trades[number][5])
            sold_in_parts += lot != number and after != "0"
            lots[lot] = int(after)
            moved[number] += int(after) - int(before)
            rows_of[number] += 1
    assert sold_in_parts
    assert set(rows_of.values()) == {1, 2}
    for number, trade in trades.items():
        assert moved[number] == int(trade[6]) * (1 if trade[3].endswith("B") else -1)


def test_each_completed_trade_moves_cash_when_it_completes(small: Directory) -> None:
    for batch in (1, 2, 3):
        trades = [row for row in small.changes(batch, "Trade.txt") if row[2] == "CMPT"]
        cash = small.changes(batch, "CashTransaction.txt")
        assert sorted((row[8], row[1]) for row in trades) == sorted((r[0], r[1]) for r in cash)
        assert [row[1] for row in cash] == sorted(row[1] for row in cash)
        amounts = [Decimal(row[2]) for row in cash]
        assert min(amounts) < 0 < max(amounts)


# Watches


def test_a_watch_ends_after_it_has_begun_and_the_same_one_begins_again(small: Directory) -> None:
    open_watches: Counter[tuple[str, str]] = Counter()
    placed: Counter[tuple[str, str]] = Counter()
    found = set()
    changed: dict[str, list[str]] = defaultdict(list)
    for action in small.actions:
        if action.kind in {"UPDCUST", "INACT"}:
            changed[action.who].append(action.day)
    since: dict[tuple[str, str], str] = {}
    for batch in (1, 2, 3):
        rows = small.changes(batch, "WatchHistory.txt")
        assert [row[2] for row in rows] == sorted(row[2] for row in rows)
        for customer, symbol, at, what in rows:
            key = (customer, symbol)
            if what == "ACTV":
                found |= {"twice at once"} if open_watches[key] else set()
                found |= {"again"} if placed[key] and not open_watches[key] else set()
                placed[key] += 1
                open_watches[key] += 1
                since[key] = at[:10]
            else:
                assert what == "CNCL"
                assert open_watches[key] > 0
                open_watches[key] -= 1
                days = changed[customer]
                if any(since[key] < day < at[:10] for day in days):
                    found.add("of a customer who has changed since")
    assert found == {"twice at once", "again", "of a customer who has changed since"}


# Increments


def test_an_increments_changes_are_numbered_in_their_order(small: Directory) -> None:
    seen: set[int] = set()
    for batch in (2, 3):
        for path in sorted((small.path / f"Batch{batch}").glob("*.txt")):
            if path.name == "BatchDate.txt":
                continue
            rows = small.rows(batch, path.name)
            numbers = [int(row[1]) for row in rows]
            assert numbers == sorted(numbers)
            assert not seen & set(numbers)
            seen |= set(numbers)
            flags = {row[0] for row in rows}
            can_change = path.name in {"Customer.txt", "Account.txt", "Trade.txt"}
            assert flags == ({"I", "U"} if can_change else {"I"})


@pytest.mark.parametrize("batch", [2, 3])
def test_an_increment_changes_customers_and_accounts_in_every_way(
    small: Directory, batch: int
) -> None:
    customers, accounts = small.rows(batch, "Customer.txt"), small.rows(batch, "Account.txt")
    assert {len(row) for row in customers} == {33}
    assert {len(row) for row in accounts} == {8}
    assert {(row[0], row[4]) for row in customers} == {("I", "ACTV"), ("U", "ACTV"), ("U", "INAC")}
    assert {(row[0], row[7]) for row in accounts} == {("I", "ACTV"), ("U", "ACTV"), ("U", "INAC")}
    assert repeated([(row[2],) for row in customers])
    assert repeated([(row[2],) for row in accounts])
    left = {row[2] for row in customers if row[4] == "INAC"}
    assert {row[4] for row in accounts if row[7] == "ACTV"} & left
    assert {row[9] for row in customers} - {"1", "2", "3"}
    new = {row[2] for row in customers if row[0] == "I"}
    assert {row[4] for row in accounts if row[0] == "I"} >= new
    brokers = {row[0] for row in small.rows(1, "HR.csv") if row[5] == "314"}
    assert {row[3] for row in accounts} <= brokers


def test_increments_have_birth_dates_of_both_kinds_that_cannot_be(small: Directory) -> None:
    new = {
        batch: [{"C_DOB": row[8]} for row in small.changes(batch, "Customer.txt")]
        for batch in (2, 3)
    }
    assert any(is_too_old(each, 2) for each in new[2])
    assert any(is_unborn(each, 3) for each in new[3])


# The audit's answers


def test_the_answers_are_what_the_files_hold(small: Directory) -> None:
    found = small.answers()
    kinds = Counter(record.kind for record in small.records)
    expected = {
        ("DimBroker", 1, "HR_BROKERS"): sum(r[5] == "314" for r in small.rows(1, "HR.csv")),
        ("DimCompany", 1, "FW_CMP"): kinds["CMP"],
        ("DimSecurity", 1, "FW_SEC"): kinds["SEC"],
        ("Financial", 1, "FW_FIN"): kinds["FIN"],
    }
    for batch in (1, 2, 3):
        rows = {
            file: small.rows(batch, file)
            for file in ("Trade.txt", "WatchHistory.txt", "HoldingHistory.txt", "DailyMarket.txt")
        }
        trades = small.changes(batch, "Trade.txt")
        done = [row for row in trades if row[2] == "CMPT"]
        worth = [Decimal(row[10]) * int(row[6]) for row in done]
        expected |= {
            ("DimTrade", batch, "T_NEW"): len(trades)
            if batch == 1
            else sum(row[0] == "I" for row in rows["Trade.txt"]),
            ("DimTrade", batch, "T_CanceledTrades"): sum(row[2] == "CNCL" for row in trades),
            ("DimTrade", batch, "T_InvalidCharge"): sum(
                Decimal(row[11]) > each for row, each in zip(done, worth, strict=True)
            ),
            ("DimTrade", batch, "T_InvalidCommision"): sum(
                Decimal(row[12]) > each for row, each in zip(done, worth, strict=True)
            ),
            ("FactWatches", batch, "WH_ACTIVE"): sum(
                row[-1] == "ACTV" for row in rows["WatchHistory.txt"]
            ),
            ("FactWatches", batch, "WH_RECORDS"): len(rows["WatchHistory.txt"]),
            ("FactHoldings", batch, "HH_RECORDS"): len(rows["HoldingHistory.txt"]),
            ("FactMarketHistory", batch, "DM_RECORDS"): len(rows["DailyMarket.txt"]),
            ("Prospect", batch, "P_RECORDS"): len(small.rows(batch, "Prospect.csv")),
        }
    assert {key: found.get(key) for key in expected} == expected


def test_the_answers_of_customers_are_what_their_versions_hold(small: Directory) -> None:
    found, books = small.answers(), small.books()
    for batch in (1, 2, 3):
        versions = books.versions[batch].values()
        expected = {
            "C_TIER_INV": sum(each.get("C_TIER") not in {"1", "2", "3"} for each in versions),
            "C_DOB_TO": sum(is_too_old(each, batch) for each in versions),
            "C_DOB_TY": sum(is_unborn(each, batch) for each in versions),
        }
        expected |= counted(small, batch)
        assert {name: found["DimCustomer", batch, name] for name in expected} == expected
        assert expected["C_TIER_INV"]
        assert expected["C_DOB_TO"] + expected["C_DOB_TY"]


def counted(directory: Directory, batch: int) -> dict[str, int]:
    if batch == 1:
        kinds = Counter(action.kind for action in directory.actions)
        return {f"C_{kind}": kinds[kind] for kind in ("NEW", "UPDCUST", "INACT")}
    rows = directory.rows(batch, "Customer.txt")
    kinds = Counter(row[4] if row[0] == "U" else "I" for row in rows)
    return {"C_NEW": kinds["I"], "C_UPDCUST": kinds["ACTV"], "C_INACT": kinds["INAC"]}


def test_a_faithful_loader_has_the_rows_that_the_audit_wants(small: Directory) -> None:
    """The audit's own inequalities, for one version of a key a day."""
    found, books = small.answers(), small.books()
    for batch in (1, 2, 3):
        told = {name: value for (_, of, name), value in found.items() if of == batch}
        changes = told["C_NEW"] + told["C_INACT"] + told["C_UPDCUST"]
        least = changes - told["C_ID_HIST"]
        reverted = least + sum_of_reverted(small) * (batch == 1)
        assert least <= len(books.versions[batch]) <= reverted
        own = told["CA_ADDACCT"] + told["CA_CLOSEACCT"] + told["CA_UPDACCT"] - told["CA_ID_HIST"]
        if batch == 1:
            assert len(books.account_days) > least + own
        else:
            rows = small.changes(batch, "Account.txt")
            accounts = Counter(row[0] for row in rows)
            assert told["CA_ADDACCT"] + told["CA_CLOSEACCT"] + told["CA_UPDACCT"] == len(rows)
            assert len(accounts) >= own > len(accounts) / 3


def sum_of_reverted(directory: Directory) -> int:
    """Count the days on which a customer changed and was at the end as before."""
    days: dict[tuple[str, str], list[Action]] = defaultdict(list)
    known: dict[str, dict[str, str]] = {}
    reverted = 0
    for action in directory.actions:
        if action.kind in {"NEW", "UPDCUST", "INACT"}:
            days[action.who, action.day].append(action)
    for (who, _), actions in sorted(days.items(), key=lambda item: item[1][0].at):
        before = known.get(who, {})
        now = dict(before)
        for action in actions:
            changed = (
                action.customer | {"kind": "INACT"} if action.kind == "INACT" else action.customer
            )
            now |= changed
        reverted += {k: v for k, v in now.items() if v} == {k: v for k, v in before.items() if v}
        known[who] = now
    return reverted


def test_the_batches_dates_are_in_the_audit(small: Directory) -> None:
    for batch, day in BATCH_DAYS.items():
        assert (small.path / f"Batch{batch}" / "BatchDate.txt").read_text() == f"{day}\n"
        first = "1950-01-01" if batch == 1 else str(day)
        lines = (small.path / f"Batch{batch}_audit.csv").read_text().splitlines()[1:]
        assert lines == [f"Batch,{batch},{first},FirstDay,,", f"Batch,{batch},{day},LastDay,,"]


def test_the_audit_has_something_of_every_data_set_that_it_asks_for(small: Directory) -> None:
    sets = set()
    for path in small.path.rglob("*_audit.csv"):
        sets |= {line.split(",")[0] for line in path.read_text().splitlines()[1:]}
    assert sets >= {
        *("Batch", "DimAccount", "DimBroker", "DimCompany", "DimCustomer", "DimSecurity"),
        *("DimTrade", "FactHoldings", "FactMarketHistory", "FactWatches", "Financial"),
        *("Generator", "Prospect"),
    }
