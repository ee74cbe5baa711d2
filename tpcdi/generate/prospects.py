"""Prospect.csv: people an agency knows of, a quarter of them customers; a full file each batch."""

import random
from datetime import date

from tpcdi.generate import people
from tpcdi.generate.crm import ACTIVE, Crm
from tpcdi.generate.people import Fields
from tpcdi.generate.pools import EMPLOYERS
from tpcdi.generate.sizes import PROSPECTS, PROSPECTS_CHANGED_A_DAY, PROSPECTS_NEW_A_DAY

COLUMNS = (
    *("AgencyID", "LastName", "FirstName", "MiddleInitial", "Gender", "AddressLine1"),
    *("AddressLine2", "PostalCode", "City", "State", "Country", "Phone", "Income", "NumberCars"),
    *("NumberChildren", "MaritalStatus", "Age", "CreditRating", "OwnOrRentFlag", "Employer"),
    *("NumberCreditCards", "NetWorth"),
)
OF_CUSTOMER = dict(
    zip(
        COLUMNS[1:11],
        ("C_L_NAME", "C_F_NAME", "C_M_NAME", "C_GNDR", *people.ADDRESS),
        strict=True,
    )
)
MATCHED = ("LastName", "FirstName", "AddressLine1", "AddressLine2", "PostalCode")
"""By these a prospect is a customer, whatever their case."""

CUSTOMER_SHARE = 0.25
CUSTOMERS_KNOWN_MOST = 0.8
STALE_EVERY = 30
"""Of so many customers that the agency knows, one has moved since it asked."""

Key = tuple[str, ...]


class Prospects:
    """The agency's file as it stands."""

    def __init__(self, records: list[Fields], asked: int) -> None:
        self.records = records
        self.asked = asked

    def ask_around(self, crm: Crm, dice: random.Random, scale: float) -> None:
        """Make the first file."""
        count, there = PROSPECTS(scale), len(crm.customers)
        known = min(round(CUSTOMER_SHARE * count), round(CUSTOMERS_KNOWN_MOST * there))
        for turn, number in enumerate(dice.sample(range(there), known)):
            who = crm.customers[number]
            has_moved = turn % STALE_EVERY == 0
            self._add(dice, who | people.address(dice, -1 - count - turn) if has_moved else who)
        self._add_strangers(dice, count - known)
        dice.shuffle(self.records)

    def ask_again(self, crm: Crm, dice: random.Random, scale: float, today: date) -> None:
        """Make the next day's file: a few have gone, a few are new, and a few are better off.

        What changes of a customer's prospect makes a new version of the customer, and every version
        raises its alerts. The audit counts those of customers that were filed; so the agency
        learns of nobody whose tier or birth date would raise one.
        """
        count = PROSPECTS_NEW_A_DAY(scale)
        alarming = {
            _customer_key(each) for each in crm.customers if people.raises_alert(each, today)
        }
        customers = {_customer_key(each): each for each in crm.customers}
        dice.shuffle(self.records)
        del self.records[:count]
        keys = [_key(each) for each in self.records]
        changing = PROSPECTS_CHANGED_A_DAY(scale)
        mine = [n for n, key in enumerate(keys) if key in customers and key not in alarming]
        others = [n for n, key in enumerate(keys) if key not in customers]
        for number in (*mine[: changing // 2], *others[: (changing + 1) // 2]):
            self.records[number] |= _means(dice)
        unknown = sorted(customers.keys() - alarming - set(keys))[:1]
        for key in unknown:
            self._add(dice, customers[key])
        self._add_strangers(dice, count - len(unknown))

    def matching(self, crm: Crm) -> int:
        """Count those who are active customers."""
        keys = {_customer_key(each) for each in crm.customers if each["C_ST_ID"] == ACTIVE}
        return sum(_key(each) in keys for each in self.records)

    def _add_strangers(self, dice: random.Random, count: int) -> None:
        for _ in range(count):
            # Negative numbers: nobody lives where a customer does.
            self._add(dice, people.person(dice, -1 - self.asked))

    def _add(self, dice: random.Random, who: Fields) -> None:
        self.asked += 1
        record = {column: who[key] for column, key in OF_CUSTOMER.items()}
        for turn, column in enumerate(("LastName", "FirstName", "AddressLine1", "PostalCode")):
            if self.asked % (turn + 2) == 0:
                record[column] = (record[column] or "").upper()
        number = f"{(record['LastName'] or '')[:3].upper()}{self.asked}"
        self.records.append({"AgencyID": number} | record | _means(dice))


def _means(dice: random.Random) -> Fields:
    """Choose what the agency believes somebody to have; some of it, it does not know."""
    found = {
        "Phone": f"1-{dice.randrange(201, 999)}-555-{dice.randrange(10_000):04}",
        "Income": dice.randrange(10_000, 400_000),
        "NumberCars": dice.randrange(6),
        "NumberChildren": dice.randrange(6),
        "MaritalStatus": dice.choice("SMDWU"),
        "Age": dice.randrange(18, 100),
        "CreditRating": dice.randrange(300, 851),
        "OwnOrRentFlag": dice.choice("ORU"),
        "Employer": dice.choice(EMPLOYERS),
        "NumberCreditCards": dice.randrange(10),
        "NetWorth": dice.randrange(-50_000, 2_000_000),
    }
    return {key: None if dice.random() < 0.07 else str(value) for key, value in found.items()}


def _key(prospect: Fields) -> Key:
    return tuple((prospect[column] or "").upper() for column in MATCHED)


def _customer_key(customer: Fields) -> Key:
    return tuple((customer[OF_CUSTOMER[column]] or "").upper() for column in MATCHED)
