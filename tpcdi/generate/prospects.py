"""Prospect.csv: people an agency knows of, a quarter of them customers; a full file each batch."""

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from itertools import islice

import numpy as np
import numpy.typing as npt

from tpcdi.generate import people
from tpcdi.generate.columns import Ints, Table
from tpcdi.generate.crm import Crm
from tpcdi.generate.people import Fields
from tpcdi.generate.pools import EMPLOYERS
from tpcdi.generate.records import Record, Records
from tpcdi.generate.scratch import Column, Scratch
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
MATCHED = tuple(name for name, of in OF_CUSTOMER.items() if of in people.MATCHED)
BYTES = 320
"""The longest there can be takes 240."""

CUSTOMER_SHARE = 0.25
CUSTOMERS_KNOWN_MOST = 0.8
CUSTOMERS_AT_ONCE = 200_000
"""They are chosen among so many at a time."""

KEYS_AT_ONCE = 65_536

STALE_EVERY = 30
"""Of so many customers that the agency knows, one has moved since it asked."""

Key = tuple[str, ...]


class Prospects:
    """The agency's file as it stands: records, and the order in which they are in it."""

    def __init__(self, scratch: Scratch, asked: int = 0) -> None:
        self.asked = asked
        self._scratch = scratch
        self._records = Records(scratch, COLUMNS, BYTES)
        self._keys = Column(scratch, np.uint64)
        self._order = Column(scratch, np.int32)
        self._gone: list[int] = []

    def __len__(self) -> int:
        return len(self._order)

    def ask_around(self, crm: Crm, dice: random.Random, scale: float) -> None:
        """Make the first file."""
        count, there = PROSPECTS(scale), len(crm.customers)
        known = min(round(CUSTOMER_SHARE * count), round(CUSTOMERS_KNOWN_MOST * there))
        for turn, number in enumerate(_some(dice, there, known)):
            who = crm.customers[number]
            has_moved = turn % STALE_EVERY == 0
            self._add(dice, who | people.address(dice, -1 - count - turn) if has_moved else who)
        self._add_strangers(dice, count - known)
        self._order.shuffle(dice)

    def ask_again(self, crm: Crm, dice: random.Random, scale: float, today: date) -> None:
        """Make the next day's file: a few have gone, a few are new, and a few are better off.

        What changes of a customer's prospect makes a new version of the customer, and every version
        raises its alerts. The audit counts those of customers that were filed; so the agency
        learns of nobody whose tier or birth date would raise one.
        """
        count, changing = PROSPECTS_NEW_A_DAY(scale), PROSPECTS_CHANGED_A_DAY(scale)
        customers = Keys(self._scratch, [crm.keys.values])
        alarming = Keys(
            self._scratch,
            (
                crm.keys.values[number : number + 1]
                for number, each in enumerate(crm.customers)
                if people.raises_alert(each, today)
            ),
        )
        self._order.shuffle(dice)
        self._gone += self._order.values[:count].tolist()
        self._order.drop(count)
        known = Keys(self._scratch, (keys for _, keys in self._pieces()))
        mine = self._those(lambda keys: customers.have(keys) & ~alarming.have(keys))
        others = self._those(lambda keys: ~customers.have(keys))
        changed = (*islice(mine, changing // 2), *islice(others, (changing + 1) // 2))
        for number in changed:
            self._records[number] = self._records[number] | _means(dice)
        unknown = min(_unknown(crm, known, alarming), default=None)
        if unknown is not None:
            self._add(dice, crm.customers[-unknown[1]])
        self._add_strangers(dice, count - (unknown is not None))

    def matching(self, crm: Crm) -> int:
        """Count those who are active customers."""
        active = Keys(
            self._scratch,
            (keys[crm.are_active.values[piece]] for piece, keys in _pieces(crm.keys)),
        )
        return sum(int(active.have(keys).sum()) for _, keys in self._pieces())

    def enter(self, record: Record) -> None:
        """Enter the next record of the file, in the place of one that has gone."""
        key = people.digest(record[each] for each in MATCHED)
        if self._gone:
            number = self._gone.pop()
            self._records[number], self._keys[number] = record, key
        else:
            number = self._records.append(record)
            self._keys.append(key)
        self._order.append(number)

    def tables(self) -> Iterator[Table]:
        """Show the file, in pieces."""
        return self._records.tables(self._order.values)

    def _pieces(self) -> Iterator[tuple[Ints, Ints]]:
        for _, numbers in _pieces(self._order):
            yield numbers, self._keys.values[numbers]

    def _those(self, are: Callable[[Ints], npt.NDArray[np.bool_]]) -> Iterator[int]:
        for numbers, keys in self._pieces():
            yield from numbers[are(keys)].tolist()

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
        self.enter({"AgencyID": number} | record | _means(dice))


class Keys:
    """Whom somebody may be, to be looked up."""

    def __init__(self, scratch: Scratch, pieces: Iterable[Ints]) -> None:
        self._keys = Column(scratch, np.uint64)
        for keys in pieces:
            self._keys.extend(keys)
        self._keys.values.sort()

    def have(self, keys: Ints) -> npt.NDArray[np.bool_]:
        """Tell which of these are there."""
        there = self._keys.values
        return np.searchsorted(there, keys) < np.searchsorted(there, keys, "right")


def _pieces(column: Column) -> Iterator[tuple[slice, Ints]]:
    for first in range(0, len(column), KEYS_AT_ONCE):
        piece = slice(first, first + KEYS_AT_ONCE)
        yield piece, column.values[piece]


def _unknown(crm: Crm, known: Keys, alarming: Keys) -> Iterator[tuple[Key, int]]:
    """Give the customers whom the agency may still learn of; of the same ones the last is first."""
    for piece, keys in _pieces(crm.keys):
        for number in np.flatnonzero(~known.have(keys) & ~alarming.have(keys)).tolist():
            each = piece.start + number
            yield _customer_key(crm.customers[each]), -each


def _some(dice: random.Random, there: int, count: int) -> Iterator[int]:
    """Choose so many of those who are there."""
    for first in range(0, there, CUSTOMERS_AT_ONCE):
        last = min(first + CUSTOMERS_AT_ONCE, there)
        yield from dice.sample(range(first, last), count * last // there - count * first // there)


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


def _customer_key(customer: Fields) -> Key:
    return tuple((customer[column] or "").upper() for column in people.MATCHED)
