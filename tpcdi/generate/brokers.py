"""HR.csv: employees, and which of them are brokers."""

from collections.abc import Iterator

from tpcdi.generate.dice import dice
from tpcdi.generate.pools import CITIES, FIRST_NAMES, LAST_NAMES
from tpcdi.generate.sizes import EMPLOYEES

BROKER = 314
BROKER_SHARE = 0.2862
JOBLESS_SHARE = 0.05


def employees(scale: float, seed: int, brokers: list[int]) -> Iterator[str]:
    """Write the employees, and note who is a broker."""
    chance = dice(seed, "brokers")
    count = EMPLOYEES(scale)
    are_brokers = set(chance.sample(range(count), round(BROKER_SHARE * count)))
    for number in range(count):
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
