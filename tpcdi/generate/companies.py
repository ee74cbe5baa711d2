"""The companies that file with FINWIRE and the securities they issue, as they change."""

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tpcdi.generate.crm import ACTIVE, INACTIVE
from tpcdi.generate.listing import Listing, symbol
from tpcdi.generate.pools import FIRST_NAMES, LAST_NAMES, bulk, dice, place, street, text, words
from tpcdi.generate.records import Slots
from tpcdi.generate.reference import INDUSTRIES
from tpcdi.generate.scratch import Column, Scratch
from tpcdi.generate.sizes import (
    BATCH_1,
    COMPANIES,
    COMPANY_CHANGES,
    DAY_S,
    FIRST_FILING,
    SECURITIES,
    SECURITY_CHANGES,
    seconds,
)

END = seconds(BATCH_1)

SAME_DAY = (
    ("change", "security"),
    ("change", "revert"),
    ("rename", "change"),
    ("rename",),
    ("same",),
    ("rating",),
    ("security", "security"),
    ("security",),
)
"""What happens to one company, or to one of its securities, within minutes."""

UNITS = sorted({*SAME_DAY, ("change",), ("company",), ("issue",)})

RATINGS = words("AAA AA+ AA AA- A+ A A- BBB+ BBB BBB- BB+ BB BB- B+ B B- CCC+ CCC CCC- CC C D")
BAD_RATINGS = ("FFFF", "EE", "ABC", "aa", "BBBB")
EXCHANGES = ("NYSE", "NASDAQ", "AMEX", "PCX")
ISSUES = ("COMMON", "COMMON", "PREF_A", "PREF_B", "PREF_C", "PREF_D")

NOBODY = -1
NAME_WIDTH = 60
LINE_BYTES, COMPANY_BYTES, SECURITY_BYTES = 640, 512, 192
"""The longest there can be take 570, 420 and 150."""


class Company(NamedTuple):
    """A company as it is filed."""

    cik: int
    name: str
    status: str
    industry: str
    rating: str
    founded: str
    address: tuple[str, ...]
    ceo: str
    description: str

    def line(self, now: int) -> str:
        """Write its record."""
        widths = (80, 80, 12, 25, 20, 24)
        where = "".join(f"{part:{width}}" for part, width in zip(self.address, widths, strict=True))
        return (
            f"{stamp(now)}CMP{self.name:60}{self.cik:010}{self.status:4}{self.industry:2}"
            f"{self.rating:4}{self.founded:8}{where}{self.ceo:46}{self.description:150}"
        )


class Security(NamedTuple):
    """A security as it is filed."""

    company: int
    symbol: str
    issue: str
    status: str
    name: str
    exchange: str
    shares: int
    first_trade: str
    first_here: str
    dividend: float

    def line(self, now: int, filed_by: str) -> str:
        """Write its record."""
        return (
            f"{stamp(now)}SEC{self.symbol:15}{self.issue:6}{self.status:4}{self.name:70}"
            f"{self.exchange:6}{self.shares:13}{self.first_trade}{self.first_here}"
            f"{self.dividend:12.2f}{filed_by}"
        )


class Filings:
    """What has been filed about companies and securities."""

    def __init__(self, scratch: Scratch, scale: float, seed: int) -> None:
        self.times = Column(scratch)
        """When each line was filed, in order."""
        self._order = Column(scratch)
        self._lines: Slots[str] = Slots(scratch, LINE_BYTES)
        self.kinds: Counter[str] = Counter()
        self.founded = Column(scratch)
        """The day on which each company filed first, since the first filing."""
        self.named = Column(scratch)
        """Company and day from which on its name is the one that `names` has here."""
        self.names = Column(scratch, f"S{NAME_WIDTH}")
        self._companies: Slots[tuple[Any, ...]] = Slots(scratch, COMPANY_BYTES)
        self._securities: Slots[tuple[Any, ...]] = Slots(scratch, SECURITY_BYTES)
        self._issuers = Column(scratch)
        self._issued = Column(scratch)
        self._last_named = Column(scratch)
        self._former: Company
        self._changes = 0
        self._dice = dice(seed, "companies")
        for moment, steps in self._planned(scratch, scale):
            company = security = None
            for number, step in enumerate(steps):
                now = moment + number * self._dice.randrange(60, 300)
                if step == "company":
                    self._found(now)
                elif step == "issue":
                    self._issue(now)
                elif step == "security":
                    security = self._change_security(now, company, security)
                else:
                    company = self._change_company(now, step, company, with_security=steps[-1])
        self._order.extend(np.argsort(self.times.values, kind="stable"))
        self.times.values.sort()
        cents = bulk(seed, "prices").integers(500, 30_000, len(self._issued))
        symbols = pa.array([symbol(number) for number in range(len(self._issued))])
        self.listing = Listing(symbols, self._issued.values, cents)

    def lines(self, first: int, last: int) -> list[str]:
        """Give the lines from one to before another, as they were filed."""
        return [self._lines[number] for number in self._order.values[first:last].tolist()]

    def _planned(self, scratch: Scratch, scale: float) -> Iterator[tuple[int, tuple[str, ...]]]:
        changes, of_securities = COMPANY_CHANGES(scale), SECURITY_CHANGES(scale)
        times = max(1, changes // 60)
        securities = times * sum(unit.count("security") for unit in SAME_DAY)
        companies = times * sum(len(unit) for unit in SAME_DAY) - securities
        units = itertools.chain(
            SAME_DAY * times,
            itertools.repeat(("change",), changes - companies),
            itertools.repeat(("security",), of_securities - securities),
        )
        start, last = FIRST_FILING + 2 * DAY_S, END - DAY_S
        plan = Column(scratch)
        for unit in units:
            plan.append(_planned_at(self._dice.randrange(start, last), unit))
        for born, law in (("company", COMPANIES), ("issue", SECURITIES)):
            # Evenly: how many there are by a day decides how many reports and prices there are.
            steps = map(int, np.linspace(start, last, law(scale)))
            for step in itertools.pairwise(steps):
                plan.append(_planned_at(self._dice.randrange(*step), (born,)))
        plan.values.sort()
        yield FIRST_FILING + 40_000, ("company",)
        yield FIRST_FILING + DAY_S, ("issue",)
        for number in range(len(plan)):
            moment, of_unit = divmod(plan[number], len(UNITS))
            yield moment, UNITS[of_unit]

    def _found(self, now: int) -> None:
        number = len(self._companies)
        dice = self._dice
        founded = (
            f"{1820 + dice.randrange(140)}{dice.randrange(1, 13):02}{dice.randrange(1, 29):02}"
        )
        company = Company(
            cik=number + 1,
            name=self._name(number + 1),
            status=ACTIVE,
            industry=dice.choice(INDUSTRIES)[0],
            rating=dice.choice(RATINGS) if number % 20 != 3 else dice.choice(BAD_RATINGS),
            founded=founded if number % 20 != 4 else "",
            address=self._address(),
            ceo=self._ceo(),
            description=text(dice, 14) if number % 20 != 5 else "",
        )
        self._companies.append(tuple(company))
        self._call(number, company.name, now)
        self._file(now, company.line(now))

    def _change_company(self, now: int, step: str, who: int | None, with_security: str) -> int:
        if who is None and with_security == "security" and self._issuers:
            who = self._dice.choice(self._issuers)
        who = self._dice.randrange(len(self._companies)) if who is None else who
        before = Company(*self._companies[who])
        match step:
            case "revert":
                after = self._former
            case "same":
                after = before
            case "rating":
                after = before._replace(rating=self._dice.choice(BAD_RATINGS))
            case "rename":
                after = before._replace(name=self._name(before.cik))
                self._call(who, after.name, now)
            case _:
                after = self._changed(before)
        self._former, self._companies[who] = before, tuple(after)
        self._file(now, after.line(now))
        return who

    def _changed(self, before: Company) -> Company:
        self._changes += 1
        match self._changes % 5:
            case 0:
                return before._replace(address=self._address(), ceo=self._ceo())
            case 1:
                rating = self._dice.choice([each for each in RATINGS if each != before.rating])
                return before._replace(rating=rating)
            case 2:
                return before._replace(status=ACTIVE if before.status == INACTIVE else INACTIVE)
            case 3:
                return before._replace(description=text(self._dice, 12), founded="")
            case _:
                return before._replace(ceo=f"{self._ceo()} {before.cik % 7 + 1}")

    def _issue(self, now: int) -> None:
        number, dice = len(self._securities), self._dice
        first = f"{datetime.fromtimestamp(now - dice.randrange(2_000) * DAY_S, UTC):%Y%m%d}"
        security = Security(
            company=dice.randrange(len(self._companies)),
            symbol=symbol(number),
            issue=dice.choice(ISSUES),
            status=ACTIVE,
            name=text(dice, 4),
            exchange=dice.choice(EXCHANGES),
            shares=dice.randrange(1_000_000, 900_000_000),
            first_trade=first,
            first_here=f"{datetime.fromtimestamp(now, UTC):%Y%m%d}",
            dividend=dice.randrange(0, 1_000) / 100,
        )
        self._securities.append(tuple(security))
        self._issuers.append(security.company)
        self._issued.append(now)
        self._file(now, security.line(now, self._filer(security.company, now)))

    def _change_security(self, now: int, company: int | None, number: int | None) -> int:
        if number is None:
            is_own = self._issuers.values == (NOBODY if company is None else company)
            own = np.flatnonzero(is_own).tolist()
            number = self._dice.choice(own or range(len(self._securities)))
        before = Security(*self._securities[number])
        shares, dividend = self._dice.randrange(1_000_000, 900_000_000), self._dice.randrange(1_000)
        status = INACTIVE if len(self._lines) % 10 == 0 else ACTIVE
        after = before._replace(shares=shares, dividend=dividend / 100, status=status)
        self._securities[number] = tuple(after)
        self._file(now, after.line(now, self._filer(after.company, now)))
        return number

    def _call(self, company: int, name: str, now: int) -> None:
        day = (now - FIRST_FILING) // DAY_S
        if company == len(self._last_named):
            self.founded.append(day)
            self._last_named.append(day)
        self._last_named[company] = day
        assert len(name) <= NAME_WIDTH, name
        self.named.append(company << 20 | day)
        self.names.append(name.encode())

    def _filer(self, company: int, now: int) -> str:
        """Name the filer as it is known on that day; on the day of a new name, by number."""
        who = Company(*self._companies[company])
        today = (now - FIRST_FILING) // DAY_S
        is_known = self._last_named[company] < today
        return f"{who.name:60}" if is_known and self._dice.random() < 0.5 else f"{who.cik:010}"

    def _file(self, now: int, line: str) -> None:
        self.times.append(now)
        self._lines.append(line)
        self.kinds[line[15:18]] += 1

    def _name(self, cik: int) -> str:
        """Make a name that no other company has had, nor this one."""
        words = text(self._dice, 2).title()
        return f"{words} {symbol(cik).lstrip('A')}{len(self.names)} Inc."

    def _address(self) -> tuple[str, ...]:
        postal, city, state, country = place(self._dice)
        line = street(self._dice, self._dice.randrange(99_999))
        second = f"Suite {self._dice.randrange(99)}" if self._dice.random() < 0.3 else ""
        return line, second, postal, city, state, country if self._dice.random() < 0.95 else ""

    def _ceo(self) -> str:
        return f"{self._dice.choice(FIRST_NAMES)} {self._dice.choice(LAST_NAMES)}"


def _planned_at(moment: int, unit: tuple[str, ...]) -> int:
    """Make a number by which units are in order."""
    # Nothing begins in the last minutes of a day: what is to be on one day is.
    moment = moment // DAY_S * DAY_S + int(moment % DAY_S * 0.97)
    return moment * len(UNITS) + UNITS.index(unit)


def stamp(now: int) -> str:
    """Write a moment as FINWIRE does."""
    return f"{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}"
