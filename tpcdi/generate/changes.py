"""Customer.txt and Account.txt of an increment: full images of who changed that day."""

import random
from datetime import date, timedelta

from tpcdi.generate import people
from tpcdi.generate.actions import account, account_change
from tpcdi.generate.crm import (
    ACCOUNT,
    ACCOUNT_BYTES,
    ACTIVE,
    CUSTOMER_BYTES,
    INACTIVE,
    Answers,
    Crm,
    Day,
)
from tpcdi.generate.records import Record, Records
from tpcdi.generate.scratch import Column, Scratch
from tpcdi.generate.sizes import ACCOUNTS_A_DAY, CUSTOMERS_A_DAY, seconds

FLAG = "CDC_FLAG"


class Changes:
    """A day's changes, as they are filed."""

    def __init__(
        self,
        scratch: Scratch,
        crm: Crm,
        dice: random.Random,
        brokers: Column,
        today: date,
        changes: int,
    ) -> None:
        self.customers = Records(scratch, (FLAG, *people.COLUMNS), CUSTOMER_BYTES)
        self.accounts = Records(scratch, (FLAG, *ACCOUNT), ACCOUNT_BYTES)
        self.changes = changes
        self._crm = crm
        self._dice = dice
        self._brokers = brokers
        self._today = today
        self._day = Day(crm, "Customer", "Account")
        self._filed: set[int] = set()

    def file(self, scale: float) -> Answers:
        """File a day's changes: each kind that there is, then more in the usual proportions."""
        of_customers = CUSTOMERS_A_DAY(scale)
        new, gone = max(1, round(0.72 * (of_customers - 3))), round(0.08 * (of_customers - 3))
        for number in range(new):
            self._open(is_first=number == 0)
        twice = self._active()
        for kind in (0, 2):
            self._change(twice, kind + 8 * self._today.day)
        leaver = self._active()
        self._file_account(self._crm.accounts_of(leaver)[0], status=ACTIVE)
        self._leave(leaver)
        for _ in range(gone):
            self._leave(self._active())
        while len(self.customers) < of_customers:
            self._change(self._active(), self.changes)
        self._file_accounts(ACCOUNTS_A_DAY(scale))
        self._day.end(self._today)
        return self._day.answers

    def _file_accounts(self, count: int) -> None:
        changed = self._open_account()
        self._file_account(changed)
        self._file_account(changed)
        self._file_account(self._open_account(), status=INACTIVE)
        while len(self.accounts) < count:
            if self._dice.random() < 0.6:
                self._add_account(self._active())
            else:
                self._file_account(
                    self._open_account(), status=self._dice.choice((ACTIVE, INACTIVE))
                )

    def _active(self) -> int:
        """Choose an active customer of whom nothing is filed yet."""
        while True:
            number = self._dice.randrange(len(self._crm.customers))
            if self._crm.is_active(number) and number not in self._filed:
                return number

    def _open_account(self) -> int:
        while True:
            number = self._dice.randrange(len(self._crm.accounts))
            if self._crm.is_open(number):
                return number

    def _open(self, *, is_first: bool) -> None:
        fields = people.person(self._dice, len(self._crm.customers))
        if is_first:  # a birth date that cannot be, on one day in the future, on the next too old
            days = 1_000 if self._today.day % 2 else -people.OLD_AGE_DAYS - 1_000
            fields["C_DOB"] = str(self._today + timedelta(days))
        who = self._crm.add_customer(fields, seconds(self._today))
        self._file(self._crm.customers[who], "I", "NEW", None)
        self._add_account(who)

    def _change(self, who: int, kind: int) -> None:
        before = self._crm.customers[who]
        changes = people.change(self._dice, before, kind, self.changes)
        self.changes += 1
        self._file(self._crm.change_customer(who, changes), "U", "UPDCUST", before)

    def _leave(self, who: int) -> None:
        before = self._crm.customers[who]
        now = self._crm.change_customer(who, {"C_ST_ID": INACTIVE})
        self._crm.close_accounts(who)
        self._file(now, "U", "INACT", before)

    def _file(self, now: Record, flag: str, kind: str, before: Record | None) -> None:
        who = int(now["C_ID"])
        self._filed.add(who)
        self._day.customer(who, kind, before)
        self.customers.append({FLAG: flag} | now)

    def _add_account(self, who: int) -> None:
        fields = account(self._dice, self._brokers)
        number = self._crm.add_account(who, fields, seconds(self._today))
        self._day.account(number, "ADDACCT")
        self.accounts.append({FLAG: "I"} | self._crm.accounts[number])

    def _file_account(self, number: int, status: str = ACTIVE) -> None:
        changes = account_change(self._dice, self._brokers, self.changes + len(self.accounts))
        now = self._crm.change_account(number, changes | {"CA_ST_ID": status})
        self._day.account(number, "UPDACCT" if status == ACTIVE else "CLOSEACCT")
        self.accounts.append({FLAG: "U"} | now)
