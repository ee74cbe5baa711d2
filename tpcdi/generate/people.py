"""People: what a customer's record holds, and how it changes; and HR.csv, the employees.

Odd cases are dealt by number, not left to chance: the smallest scale has them too.
"""

import random
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from hashlib import blake2b

from tpcdi.generate.pools import CITIES, DOMAINS, FIRST_NAMES, LAST_NAMES, dice, place, street
from tpcdi.generate.reference import LOCAL_TAXES, NATIONAL_TAXES
from tpcdi.generate.scratch import Column
from tpcdi.generate.sizes import BATCH_1, EMPLOYEES

Fields = dict[str, str | None]
"""Fields by their names in Customer.txt. None is NULL: an empty field, an empty element."""

PHONE_PARTS = ("CTRY", "AREA", "LOCAL", "EXT")
PHONES = tuple(tuple(f"C_{part}_{n}" for part in PHONE_PARTS) for n in (1, 2, 3))
NAME = ("C_L_NAME", "C_F_NAME", "C_M_NAME")
ADDRESS = ("C_ADLINE1", "C_ADLINE2", "C_ZIPCODE", "C_CITY", "C_STATE_PROV", "C_CTRY")
EMAILS = ("C_EMAIL_1", "C_EMAIL_2")
TAXES = ("C_LCL_TX_ID", "C_NAT_TX_ID")
COLUMNS = (
    *("C_ID", "C_TAX_ID", "C_ST_ID", *NAME, "C_GNDR", "C_TIER", "C_DOB", *ADDRESS),
    *(column for phone in PHONES for column in phone),
    *EMAILS,
    *TAXES,
)
"""The columns of Customer.txt, after those of the change."""

MATCHED = ("C_L_NAME", "C_F_NAME", "C_ADLINE1", "C_ADLINE2", "C_ZIPCODE")
"""By these a prospect is a customer, whatever their case."""

GENDERS = (*"MFMFMFMFMFMF", "m", "f", None, "X", "U")
BAD_TIERS = (None, "0", "4", "9", "7")
PHONE_FORMS = ("CALX", "CAL", "AL", "L", "", "CL", "LX", "CA", "X", "ALX")
"""Which of a phone's parts are there: country code, area, local number, extension."""

OLD_AGE_DAYS = 36_525
"""What the real generator takes for 100 years."""


MOVED = 40_000
"""Where the numbers of those who move begin: they move to where no customer has lived."""


def person(dice: random.Random, number: int) -> Fields:
    """Make a person; no two have the same number."""
    first, last = dice.choice(FIRST_NAMES), dice.choice(LAST_NAMES)
    fields: Fields = {
        "C_TAX_ID": f"{dice.randrange(1000):03}-{dice.randrange(100):02}-{number % 10_000:04}",
        "C_L_NAME": last,
        "C_F_NAME": first,
        "C_M_NAME": dice.choice("ABCDEGHJKLMNPRST") if dice.random() < 0.7 else None,
        "C_GNDR": GENDERS[number % len(GENDERS)],
        "C_TIER": BAD_TIERS[number // 19 % len(BAD_TIERS)]
        if number % 19 == 3
        else dice.choice("123"),
        "C_DOB": birth(dice, number),
        **address(dice, number),
        "C_EMAIL_1": email(dice, first, last),
        "C_EMAIL_2": email(dice, first, last) if dice.random() < 0.5 else None,
        "C_LCL_TX_ID": LOCAL_TAXES[number % len(LOCAL_TAXES)],
        "C_NAT_TX_ID": NATIONAL_TAXES[number % len(NATIONAL_TAXES)],
    }
    for shift, phone_columns in enumerate(PHONES):
        fields |= phone(dice, phone_columns, number * 3 + shift)
    return fields


def birth(dice: random.Random, number: int) -> str:
    """Choose a birth date: of every 1,182 people one is too old, and one not born yet."""
    days = dice.randrange(18 * 365, 95 * 365)
    match number % 1182:
        case 5:
            days = OLD_AGE_DAYS + dice.randrange(1, 9_000)
        case 9:
            days = -dice.randrange(2_000, 9_000)
    return str(BATCH_1 - timedelta(days))


def address(dice: random.Random, number: int) -> Fields:
    """Choose an address; no two of different numbers are the same."""
    lines = (street(dice, number), f"Apt. {dice.randrange(999)}" if dice.random() < 0.1 else None)
    return dict(zip(ADDRESS, (*lines, *place(dice)), strict=True))


def email(dice: random.Random, first: str | None, last: str | None) -> str:
    """Choose an address for mail that a person may have."""
    return f"{first}.{last}{dice.randrange(1000)}@{dice.choice(DOMAINS)}"


def phone(dice: random.Random, columns: tuple[str, ...], number: int) -> Fields:
    """Choose a phone number; it has one of all the forms there are."""
    form = PHONE_FORMS[number % len(PHONE_FORMS)]
    parts = {
        "C": "1",
        "A": f"{dice.randrange(201, 999)}",
        "L": f"{dice.randrange(100, 999)}-{dice.randrange(10_000):04}",
        "X": f"{dice.randrange(10, 99_999)}",
    }
    return {
        column: part if letter in form else None
        for column, (letter, part) in zip(columns, parts.items(), strict=True)
    }


def change(dice: random.Random, who: Fields, kind: int, number: int) -> Fields:
    """Choose what a customer changes; some of it becomes NULL, a tier may be bad."""
    turn = number // 8
    match kind % 8:
        case 0:
            return address(dice, MOVED + number)
        case 1:
            return phone(dice, PHONES[0], turn) | phone(dice, PHONES[2], turn + 3)
        case 2:
            tier = BAD_TIERS[kind // 8 % len(BAD_TIERS)]
            return {"C_TIER": tier, "C_EMAIL_1": email(dice, who["C_F_NAME"], who["C_L_NAME"])}
        case 3:
            last = dice.choice([name for name in LAST_NAMES if name != who["C_L_NAME"]])
            return {"C_L_NAME": last, "C_EMAIL_1": email(dice, who["C_F_NAME"], last)}
        case 4:
            nothing = dict.fromkeys(("C_M_NAME", "C_ADLINE2", "C_EMAIL_2"))
            return nothing | phone(dice, PHONES[1], turn + 2)
        case 5:
            gender = {"C_GNDR": GENDERS[turn % len(GENDERS)], "C_TIER": dice.choice("123")}
            return gender | phone(dice, PHONES[1], turn)
        case 6:
            taxes = LOCAL_TAXES[-turn % len(LOCAL_TAXES)], dice.choice(NATIONAL_TAXES)
            return dict(zip(TAXES, taxes, strict=True))
        case _:
            return dict(zip(ADDRESS[2:], place(dice), strict=True))


def digest(matched: Iterable[str | None]) -> int:
    """Make a number of what somebody is matched by: no two of millions have the same."""
    text = "|".join(cell or "" for cell in matched).upper()
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def is_bad_tier(who: Fields) -> bool:
    """Tell whether a customer's tier raises an alert."""
    return who["C_TIER"] not in {"1", "2", "3"}


def is_too_old(who: Fields, today: date) -> bool:
    """Tell whether somebody was born too long ago."""
    return date.fromisoformat(who["C_DOB"] or "") < today - timedelta(OLD_AGE_DAYS)


def is_unborn(who: Fields, today: date) -> bool:
    """Tell whether somebody was born too late."""
    return date.fromisoformat(who["C_DOB"] or "") > today


def raises_alert(who: Fields, today: date) -> bool:
    """Tell whether a version of a customer raises any."""
    return is_bad_tier(who) or is_too_old(who, today) or is_unborn(who, today)


EMPLOYEES_AT_ONCE = 200_000
"""Brokers are chosen among so many at a time, of whom each takes 40 bytes."""

BROKER = 314
BROKER_SHARE = 0.2862
JOBLESS_SHARE = 0.05


def employees(scale: float, seed: int, brokers: Column) -> Iterator[str]:
    """Write the employees, and note who is a broker."""
    chance = dice(seed, "brokers")
    count = EMPLOYEES(scale)
    for number in range(count):
        if number % EMPLOYEES_AT_ONCE == 0:
            there = range(number, min(number + EMPLOYEES_AT_ONCE, count))
            are_brokers = set(chance.sample(there, round(BROKER_SHARE * len(there))))
        job = str(chance.choice([code for code in range(300, 330) if code != BROKER]))
        if number in are_brokers:
            job = str(BROKER)
            brokers.append(number)
        elif chance.random() < JOBLESS_SHARE / (1 - BROKER_SHARE):
            job = ""
        first, last = chance.choice(FIRST_NAMES), chance.choice(LAST_NAMES)
        initial = chance.choice("ABCDEFGHJKLM") if chance.random() < 0.7 else ""
        office = f"OFFICE{chance.randrange(9999):04}" if chance.random() < 0.95 else ""
        phone = f"({chance.randrange(201, 999)}) 555-{chance.randrange(9999):04}"
        yield (
            f"{number},{chance.randrange(count)},{first},{last},{initial},{job}"
            f",{chance.choice(CITIES)},{office},{phone if chance.random() < 0.95 else ''}"
        )
