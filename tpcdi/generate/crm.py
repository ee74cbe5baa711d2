"""The customers and their accounts as they stand, and the answers to what has changed in a day."""

from collections import Counter
from datetime import date

import numpy as np

from tpcdi.generate import people
from tpcdi.generate.people import Fields, is_bad_tier, is_too_old, is_unborn
from tpcdi.generate.pools import words
from tpcdi.generate.records import SINCE, Record, Records
from tpcdi.generate.scratch import Column, Scratch

Answers = Counter[tuple[str, str, str]]
"""What the audit will ask for: file, data set and attribute -> value."""

ASKED = {
    "DimCustomer": words("C_NEW C_UPDCUST C_INACT C_ID_HIST C_TIER_INV C_DOB_TO C_DOB_TY"),
    "DimAccount": words("CA_ADDACCT CA_UPDACCT CA_CLOSEACCT CA_ID_HIST"),
}

ACTIVE, INACTIVE = "ACTV", "INAC"

CUSTOMER = (*people.COLUMNS, SINCE)
ACCOUNT = ("CA_ID", "CA_B_ID", "CA_C_ID", "CA_NAME", "CA_TAX_ST", "CA_ST_ID")
CUSTOMER_BYTES, ACCOUNT_BYTES = 448, 128
"""The longest there can be take 350 and 90."""

NONE = -1


class Crm:
    """Every customer's and account's latest image, and since when (`since`) it is there.

    What is asked again and again is in columns: since when each is there, whether it is active,
    by what a prospect knows the customer, and, as a chain, the accounts that a customer has.
    """

    def __init__(self, scratch: Scratch) -> None:
        self.customers = Records(scratch, CUSTOMER, CUSTOMER_BYTES)
        self.accounts = Records(scratch, (*ACCOUNT, SINCE), ACCOUNT_BYTES)
        self.customers_since, self.accounts_since = Column(scratch), Column(scratch)
        self.keys = Column(scratch, np.uint64)
        self.are_active = Column(scratch, np.bool_)
        self._are_open = Column(scratch, np.bool_)
        self._last_account = Column(scratch, np.int32)
        self._account_before = Column(scratch, np.int32)

    def add_customer(self, fields: Fields, since: int) -> int:
        """Take in a customer, and tell their number."""
        identity = {"C_ID": str(len(self.customers)), "C_ST_ID": ACTIVE}
        return self.enter_customer(identity | fields | {SINCE: since})

    def add_account(self, customer: int, fields: Fields, since: int) -> int:
        """Open an account, and tell its number."""
        whose = {"CA_ID": str(len(self.accounts)), "CA_C_ID": str(customer), "CA_ST_ID": ACTIVE}
        return self.enter_account(whose | fields | {SINCE: since})

    def enter_customer(self, image: Record) -> int:
        """Enter the next customer as they are."""
        self.customers_since.append(image[SINCE])
        self.keys.append(people.digest(image[column] for column in people.MATCHED))
        self.are_active.append(image["C_ST_ID"] == ACTIVE)
        self._last_account.append(NONE)
        return self.customers.append(image)

    def enter_account(self, image: Record) -> int:
        """Enter the next account as it is."""
        number, customer = len(self.accounts), int(image["CA_C_ID"])
        self.accounts_since.append(image[SINCE])
        self._are_open.append(image["CA_ST_ID"] == ACTIVE)
        self._account_before.append(self._last_account[customer])
        self._last_account[customer] = number
        return self.accounts.append(image)

    def change_customer(self, number: int, changes: Fields) -> Record:
        """Change a customer, and show them as they are now."""
        image: Record = self.customers[number] | changes
        self.customers[number] = image
        self.keys[number] = people.digest(image[column] for column in people.MATCHED)
        self.are_active[number] = image["C_ST_ID"] == ACTIVE
        return image

    def change_account(self, number: int, changes: Fields) -> Record:
        """Change an account, and show it as it is now."""
        image: Record = self.accounts[number] | changes
        self.accounts[number] = image
        self._are_open[number] = image["CA_ST_ID"] == ACTIVE
        return image

    def accounts_of(self, customer: int) -> list[int]:
        """List the accounts of a customer, in the order in which they were opened."""
        numbers: list[int] = []
        number = self._last_account[customer]
        while number != NONE:
            numbers.append(number)
            number = self._account_before[number]
        return numbers[::-1]

    def close_accounts(self, customer: int) -> None:
        """Make all accounts of a customer inactive."""
        for number in self.accounts_of(customer):
            self.change_account(number, {"CA_ST_ID": INACTIVE})

    def is_active(self, customer: int) -> bool:
        """Tell whether a customer is."""
        return bool(self.are_active[customer])

    def is_open(self, account: int) -> bool:
        """Tell whether an account is active."""
        return bool(self._are_open[account])


class Day:
    """One day's changes: only the last of each key leaves a version, and raises alerts."""

    def __init__(self, crm: Crm, file_of_customers: str, file_of_accounts: str) -> None:
        self._crm = crm
        self._files = {"DimCustomer": file_of_customers, "DimAccount": file_of_accounts}
        self._before: dict[int, Record | None] = {}
        self._customers: Counter[int] = Counter()
        self._accounts: Counter[int] = Counter()
        self.answers: Answers = Counter()
        for table, attributes in ASKED.items():
            for attribute in attributes:
                self._answer(table, attribute, 0)

    def customer(self, number: int, kind: str, before: Record | None) -> None:
        """Count a customer's change."""
        self._before.setdefault(number, before)
        self._customers[number] += 1
        self._answer("DimCustomer", f"C_{kind}", 1)

    def account(self, number: int, kind: str) -> None:
        """Count a change of an account that is its own."""
        self._accounts[number] += 1
        self._answer("DimAccount", f"CA_{kind}", 1)

    def end(self, batch_day: date) -> None:
        """Count what is left when the day is over."""
        for number, changes in self._customers.items():
            now = self._crm.customers[number]
            # A day that ends as it began may leave no version at all.
            self._answer("DimCustomer", "C_ID_HIST", changes - (self._before[number] != now))
            self._answer("DimCustomer", "C_TIER_INV", is_bad_tier(now))
            self._answer("DimCustomer", "C_DOB_TO", is_too_old(now, batch_day))
            self._answer("DimCustomer", "C_DOB_TY", is_unborn(now, batch_day))
        for number, changes in self._accounts.items():
            whose = int(self._crm.accounts[number]["CA_C_ID"])
            self._answer("DimAccount", "CA_ID_HIST", changes - 1 + (whose in self._customers))
        self._before, self._customers, self._accounts = {}, Counter(), Counter()

    def _answer(self, table: str, attribute: str, value: int) -> None:
        self.answers[self._files[table], table, attribute] += value
