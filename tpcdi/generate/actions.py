"""CustomerMgmt.xml: ten years of customers' and accounts' actions, in the order of time."""

import html
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np

from tpcdi.generate import people
from tpcdi.generate.crm import INACTIVE, Answers, Crm, Day
from tpcdi.generate.people import Fields
from tpcdi.generate.pools import dice, text
from tpcdi.generate.scratch import Column, Scratch
from tpcdi.generate.sizes import ACTIONS, BATCH_1, DAY_S, FIRST_ACTION, HISTORY_END

HEAD = """\
<?xml version="1.0" encoding="UTF-8"?>
<TPCDI:Actions xmlns:TPCDI="http://www.tpc.org/tpc-di">"""
FOOT = "</TPCDI:Actions>"
FILE = "CustomerMgmt"

SAME_DAY = (
    ("UPDCUST", "REVERT"),
    ("UPDCUST", "UPDCUST"),
    ("NEW", "UPDCUST"),
    ("NEW", "UPDACCT"),
    ("ADDACCT", "UPDACCT"),
    ("UPDACCT", "UPDACCT"),
    ("UPDACCT", "CLOSEACCT"),
    ("UPDACCT", "UPDCUST"),
    ("UPDCUST", "UPDACCT"),
    ("UPDCUST", "INACT"),
    ("INACT", "UPDACCT"),
    ("INACT", "CLOSEACCT"),
)
"""What happens to one customer, or to one account, within minutes; REVERT is an UPDCUST back."""

UNITS = (*SAME_DAY, *((kind,) for kind in ACTIONS))

LATE_EVERY = 12
"""Of so many changes of accounts one comes after their customer has become inactive."""

INITIAL_SHARE = 0.095
"""The customers that are there on the first day."""


def account(chance: random.Random, brokers: Column) -> Fields:
    """Make an account; its name may hold what XML must escape."""
    name = text(chance, 3) if chance.random() < 0.9 else f"{text(chance, 1)} & sons"
    return {
        "CA_B_ID": str(chance.choice(brokers)),
        "CA_NAME": name,
        "CA_TAX_ST": chance.choice("012"),
    }


def account_change(chance: random.Random, brokers: Column, kind: int) -> Fields:
    """Choose what changes of an account; its name may become NULL."""
    fresh = account(chance, brokers)
    kept = (("CA_B_ID",), ("CA_NAME",), ("CA_TAX_ST", "CA_B_ID"), ("CA_NAME", "CA_TAX_ST"))
    fresh = {key: fresh[key] for key in kept[kind % 4]}
    return {"CA_NAME": None} if kind % 5 == 4 else fresh


class History:
    """Acts, and keeps the books."""

    def __init__(self, scratch: Scratch, scale: float, seed: int, brokers: Column) -> None:
        self.crm = Crm(scratch)
        self.changes = self.count = 0
        self._brokers = brokers
        self._dice = dice(seed, "actions")
        self._plan = self._planned(scratch, scale)
        self._day = Day(self.crm, FILE, FILE)
        self._inactive = Column(scratch, np.int32)
        self._acts: Counter[str] = Counter()
        self._late: Counter[str] = Counter()
        self._last: Fields = {}

    @property
    def answers(self) -> Answers:
        """What the audit will ask for."""
        return self._day.answers

    def lines(self) -> Iterator[str]:
        """Write the actions."""
        yield HEAD
        now = 0
        for moment, unit in self._plan:
            who = number = None
            for at_least, kind in zip((moment, 0), unit, strict=False):
                later = max(at_least, now + self._dice.randrange(1, 120) * (not at_least), now + 1)
                if later // DAY_S != now // DAY_S:
                    self._day.end(BATCH_1)
                now = later
                self.count += 1
                if kind in {"ADDACCT", "UPDACCT", "CLOSEACCT"}:
                    who, number = self._choose_account(kind, now, who, number, len(unit))
                    yield self._act_on_account(kind, now, who, number)
                else:
                    who = self._active() if who is None and kind != "NEW" else who
                    who, line = self._act_on_customer(kind, now, who)
                    yield line
        self._day.end(BATCH_1)
        yield FOOT

    def _planned(self, scratch: Scratch, scale: float) -> Iterator[tuple[int, tuple[str, ...]]]:
        left = {kind: law(scale) for kind, law in ACTIONS.items()}
        times = max(1, left["UPDCUST"] // 60)
        for kind in itertools.chain(*SAME_DAY):
            left["UPDCUST" if kind == "REVERT" else kind] -= times
        # More than ever leave: somebody is always there to act on.
        initial = max(ACTIONS["INACT"](scale) + 1, round(INITIAL_SHARE * left["NEW"]))
        left["NEW"] -= initial
        units, moments = Column(scratch, np.uint8), Column(scratch)
        for _ in range(times):
            units.extend(np.arange(len(SAME_DAY)))
        for number, kind in enumerate(ACTIONS, len(SAME_DAY)):
            units.extend(np.full(left[kind], number))
        units.shuffle(self._dice)
        start, end = FIRST_ACTION + DAY_S, HISTORY_END - DAY_S
        for _ in range(len(units)):
            moments.append(self._dice.randrange(start, end))
        moments.values.sort()
        yield from itertools.repeat((FIRST_ACTION, ("NEW",)), initial)
        for number in range(len(units)):
            day, second = divmod(moments[number], DAY_S)
            # Nothing begins in the last minutes of a day: what is to be on one day is.
            yield day * DAY_S + int(second * 0.98), UNITS[units[number]]

    def _active(self) -> int:
        while True:
            number = self._dice.randrange(len(self.crm.customers))
            if self.crm.is_active(number):
                return number

    def _choose_account(
        self, kind: str, now: int, who: int | None, number: int | None, steps: int
    ) -> tuple[int, int]:
        if kind == "ADDACCT":
            who = self._active()
            self._day.account(len(self.crm.accounts), kind)
            return who, self.crm.add_account(who, account(self._dice, self._brokers), now)
        self._acts[kind] += 1
        if number is None and who is None:
            is_due = self._acts[kind] >= self._late[kind] * LATE_EVERY
            is_late = self._inactive and steps == 1 and is_due
            self._late[kind] += bool(is_late)
            who = self._dice.choice(self._inactive) if is_late else self._with_open_account()
        assert who is not None
        if number is None:
            there = self.crm.accounts_of(who)
            active = [each for each in there if self.crm.is_open(each)]
            number = self._dice.choice(active or there)
        self._day.account(number, kind)
        return who, number

    def _with_open_account(self) -> int:
        for _ in range(100):
            who = self._active()
            if any(self.crm.is_open(number) for number in self.crm.accounts_of(who)):
                break
        return who

    def _act_on_account(self, kind: str, now: int, who: int, number: int) -> str:
        changes: Fields = {}
        if kind == "ADDACCT":
            changes = self.crm.accounts[number]
        elif kind == "CLOSEACCT":
            self.crm.change_account(number, {"CA_ST_ID": INACTIVE})
        else:
            changes = account_change(self._dice, self._brokers, self._acts[kind])
            self.crm.change_account(number, changes)
        return _action(kind, now, f'<Customer C_ID="{who}">', _account(number, changes))

    def _act_on_customer(self, kind: str, now: int, who: int | None) -> tuple[int, str]:
        if who is None:
            return self._new(now)
        before = self.crm.customers[who]
        self._day.customer(who, "UPDCUST" if kind == "REVERT" else kind, before)
        if kind == "INACT":
            self.crm.change_customer(who, {"C_ST_ID": INACTIVE})
            self.crm.close_accounts(who)
            self._inactive.append(who)
            return who, _action(kind, now, f'<Customer C_ID="{who}">')
        changes = self._last
        if kind == "UPDCUST":
            changes = people.change(self._dice, before, self.changes, self.changes)
            self._last = {key: before[key] for key in changes}
            self.changes += 1
        self.crm.change_customer(who, changes)
        return who, _action("UPDCUST", now, *_customer(who, changes, leave_out=False))

    def _new(self, now: int) -> tuple[int, str]:
        fields = people.person(self._dice, len(self.crm.customers))
        who = self.crm.add_customer(fields, now)
        number = self.crm.add_account(who, account(self._dice, self._brokers), now)
        self._day.customer(who, "NEW", None)
        blocks = _customer(who, fields, leave_out=who % 2 == 0)
        return who, _action("NEW", now, *blocks, _account(number, self.crm.accounts[number]))


def _action(kind: str, now: int, *blocks: str) -> str:
    moment = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H:%M:%S}"
    inside = "\n".join(blocks)
    head = f'<TPCDI:Action ActionType="{kind}" ActionTS="{moment}">'
    return f"{head}\n{inside}\n</Customer>\n</TPCDI:Action>"


def _customer(who: int, fields: Fields, *, leave_out: bool) -> Iterator[str]:
    """Write what is known of a customer; NULL is an empty element, or none."""
    there = {key: value for key, value in fields.items() if not (value is None and leave_out)}
    attributes = ("C_TAX_ID", "C_GNDR", "C_TIER", "C_DOB")
    shown = "".join(f' {key}="{there[key] or ""}"' for key in attributes if key in there)
    yield f'<Customer C_ID="{who}"{shown}>'
    contacts = {"C_PRIM_EMAIL": "C_EMAIL_1", "C_ALT_EMAIL": "C_EMAIL_2"}
    inside = "".join(_element(name, there[key]) for name, key in contacts.items() if key in there)
    for number, columns in enumerate(people.PHONES, 1):
        parts = zip(("C_CTRY_CODE", "C_AREA_CODE", "C_LOCAL", "C_EXT"), columns, strict=True)
        phone = "".join(_element(name, there[key]) for name, key in parts if key in there)
        inside += phone and f"<C_PHONE_{number}>{phone}</C_PHONE_{number}>"
    blocks = {
        "Name": _elements(people.NAME, there),
        "Address": _elements(people.ADDRESS, there),
        "ContactInfo": inside,
        "TaxInfo": _elements(people.TAXES, there),
    }
    yield from (f"<{name}>{inside}</{name}>" for name, inside in blocks.items() if inside)


def _account(number: int, fields: Fields) -> str:
    tax = f' CA_TAX_ST="{fields["CA_TAX_ST"]}"' if "CA_TAX_ST" in fields else ""
    inside = _elements(("CA_B_ID", "CA_NAME"), fields)
    return f'<Account CA_ID="{number}"{tax}>{inside}</Account>'


def _elements(names: tuple[str, ...], fields: Fields) -> str:
    return "".join(_element(name, fields[name]) for name in names if name in fields)


def _element(name: str, value: str | None) -> str:
    return f"<{name}/>" if value is None else f"<{name}>{html.escape(value, False)}</{name}>"
