"""The customers and their accounts as they stand, and the answers to what has changed in a day."""

from collections import Counter
from datetime import date
from typing import Any

import numpy as np

from tpcdi.generate.columns import Ints
from tpcdi.generate.people import Fields, is_bad_tier, is_too_old, is_unborn
from tpcdi.generate.pools import words

Records = list[dict[str, Any]]

Answers = Counter[tuple[str, str, str]]
"""What the audit will ask for: file, data set and attribute -> value."""

ASKED = {
    "DimCustomer": words("C_NEW C_UPDCUST C_INACT C_ID_HIST C_TIER_INV C_DOB_TO C_DOB_TY"),
    "DimAccount": words("CA_ADDACCT CA_UPDACCT CA_CLOSEACCT CA_ID_HIST"),
}

ACTIVE, INACTIVE = "ACTV", "INAC"


class Crm:
    """Every customer's and account's latest image, and since when (`since`) it is there."""

    def __init__(self, customers: Records, accounts: Records) -> None:
        self.customers = customers
        self.accounts = accounts
        self.accounts_of: list[list[int]] = [[] for _ in customers]
        for number, account in enumerate(accounts):
            self.accounts_of[int(account["CA_C_ID"])].append(number)

    def add_customer(self, fields: Fields, since: int) -> int:
        """Take in a customer, and tell their number."""
        number = len(self.customers)
        self.customers.append(
            {"C_ID": str(number), "C_ST_ID": ACTIVE, **fields, "since": since},
        )
        self.accounts_of.append([])
        return number

    def add_account(self, customer: int, fields: Fields, since: int) -> int:
        """Open an account, and tell its number."""
        number = len(self.accounts)
        whose = {"CA_ID": str(number), "CA_C_ID": str(customer), "CA_ST_ID": ACTIVE}
        self.accounts.append({**whose, **fields, "since": since})
        self.accounts_of[customer].append(number)
        return number

    def close_accounts(self, customer: int) -> None:
        """Make all accounts of a customer inactive."""
        for number in self.accounts_of[customer]:
            self.accounts[number]["CA_ST_ID"] = INACTIVE

    def is_active(self, customer: int) -> bool:
        """Tell whether a customer is."""
        return bool(self.customers[customer]["C_ST_ID"] == ACTIVE)


class Day:
    """One day's changes: only the last of each key leaves a version, and raises alerts."""

    def __init__(self, crm: Crm, file_of_customers: str, file_of_accounts: str) -> None:
        self._crm = crm
        self._files = {"DimCustomer": file_of_customers, "DimAccount": file_of_accounts}
        self._before: dict[int, Fields | None] = {}
        self._customers: Counter[int] = Counter()
        self._accounts: Counter[int] = Counter()
        self.answers: Answers = Counter()
        for table, attributes in ASKED.items():
            for attribute in attributes:
                self._answer(table, attribute, 0)

    def customer(self, number: int, kind: str, before: Fields | None) -> None:
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


def opened(records: Records) -> Ints:
    """List when each of them came, in their order."""
    return np.array([each["since"] for each in records], np.int64)
