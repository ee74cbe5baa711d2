"""The companies that file with FINWIRE and the securities they issue, as they change."""

import itertools
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from tpcdi.generate.columns import Ints
from tpcdi.generate.crm import ACTIVE, INACTIVE
from tpcdi.generate.listing import Listing, symbol
from tpcdi.generate.pools import FIRST_NAMES, LAST_NAMES, bulk, dice, place, street, text, words
from tpcdi.generate.reference import INDUSTRIES
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

RATINGS = words("AAA AA+ AA AA- A+ A A- BBB+ BBB BBB- BB+ BB BB- B+ B B- CCC+ CCC CCC- CC C D")
BAD_RATINGS = ("FFFF", "EE", "ABC", "aa", "BBBB")
EXCHANGES = ("NYSE", "NASDAQ", "AMEX", "PCX")
ISSUES = ("COMMON", "COMMON", "PREF_A", "PREF_B", "PREF_C", "PREF_D")


@dataclass(frozen=True, slots=True)
class Company:
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


@dataclass(frozen=True, slots=True)
class Security:
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

    def __init__(self, scale: float, seed: int) -> None:
        self.times: list[int] = []
        self.lines: list[str] = []
        self.companies: list[Company] = []
        self.securities: list[Security] = []
        self.names: list[tuple[int, int, str]] = []
        """Company, day since the first filing, and the company's name from then on."""
        self._last: dict[int, Company] = {}
        self._named: dict[int, int] = {}
        self._changes = 0
        self._issued: list[int] = []
        self._dice = dice(seed, "companies")
        for moment, steps in self._planned(scale):
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
        order = np.argsort(np.array(self.times), kind="stable")
        self.times = [self.times[each] for each in order]
        self.lines = [self.lines[each] for each in order]
        cents = bulk(seed, "prices").integers(500, 30_000, len(self._issued))
        symbols = pa.array([each.symbol for each in self.securities])
        self.listing = Listing(symbols, np.array(self._issued, np.int64), cents)

    @property
    def founded(self) -> Ints:
        """List the day on which each company filed first, since the first filing."""
        days: dict[int, int] = {}
        for company, day, _ in self.names:
            days.setdefault(company, day)
        return np.array([days[number] for number in range(len(days))], np.int64)

    def _planned(self, scale: float) -> list[tuple[int, tuple[str, ...]]]:
        changes, of_securities = COMPANY_CHANGES(scale), SECURITY_CHANGES(scale)
        units = list(SAME_DAY * max(1, changes // 60))
        securities = sum(unit.count("security") for unit in units)
        companies = sum(len(unit) for unit in units) - securities
        units += [("change",)] * (changes - companies)
        units += [("security",)] * (of_securities - securities)
        start, last = FIRST_FILING + 2 * DAY_S, END - DAY_S
        moments = [self._dice.randrange(start, last) for _ in units]
        for born, law in (("company", COMPANIES), ("issue", SECURITIES)):
            # Evenly: how many there are by a day decides how many reports and prices there are.
            steps = np.linspace(start, last, law(scale)).astype(int).tolist()
            units += [(born,)] * (len(steps) - 1)
            moments += [self._dice.randrange(*step) for step in itertools.pairwise(steps)]
        # Nothing begins in the last minutes of a day: what is to be on one day is.
        moments = [moment // DAY_S * DAY_S + int(moment % DAY_S * 0.97) for moment in moments]
        first = [(FIRST_FILING + 40_000, ("company",)), (FIRST_FILING + DAY_S, ("issue",))]
        return first + sorted(zip(moments, units, strict=True))

    def _found(self, now: int) -> None:
        number = len(self.companies)
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
        self.companies.append(company)
        self._call(number, company.name, now)
        self._file(now, company.line(now))

    def _change_company(self, now: int, step: str, who: int | None, with_security: str) -> int:
        if who is None and with_security == "security" and self.securities:
            who = self._dice.choice(self.securities).company
        who = self._dice.randrange(len(self.companies)) if who is None else who
        before = self.companies[who]
        match step:
            case "revert":
                after = self._last[who]
            case "same":
                after = before
            case "rating":
                after = replace(before, rating=self._dice.choice(BAD_RATINGS))
            case "rename":
                after = replace(before, name=self._name(before.cik))
                self._call(who, after.name, now)
            case _:
                after = self._changed(before)
        self._last[who], self.companies[who] = before, after
        self._file(now, after.line(now))
        return who

    def _changed(self, before: Company) -> Company:
        self._changes += 1
        match self._changes % 5:
            case 0:
                return replace(before, address=self._address(), ceo=self._ceo())
            case 1:
                rating = self._dice.choice([each for each in RATINGS if each != before.rating])
                return replace(before, rating=rating)
            case 2:
                return replace(before, status=ACTIVE if before.status == INACTIVE else INACTIVE)
            case 3:
                return replace(before, description=text(self._dice, 12), founded="")
            case _:
                return replace(before, ceo=f"{self._ceo()} {before.cik % 7 + 1}")

    def _issue(self, now: int) -> None:
        number, dice = len(self.securities), self._dice
        first = f"{datetime.fromtimestamp(now - dice.randrange(2_000) * DAY_S, UTC):%Y%m%d}"
        security = Security(
            company=dice.randrange(len(self.companies)),
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
        self.securities.append(security)
        self._issued.append(now)
        self._file(now, security.line(now, self._filer(security.company, now)))

    def _change_security(self, now: int, company: int | None, number: int | None) -> int:
        if number is None:
            own = [n for n, each in enumerate(self.securities) if each.company == company]
            number = self._dice.choice(own or range(len(self.securities)))
        before = self.securities[number]
        shares, dividend = self._dice.randrange(1_000_000, 900_000_000), self._dice.randrange(1_000)
        status = INACTIVE if len(self.lines) % 10 == 0 else ACTIVE
        after = replace(before, shares=shares, dividend=dividend / 100, status=status)
        self.securities[number] = after
        self._file(now, after.line(now, self._filer(after.company, now)))
        return number

    def _call(self, company: int, name: str, now: int) -> None:
        self._named[company] = (now - FIRST_FILING) // DAY_S
        self.names.append((company, self._named[company], name))

    def _filer(self, company: int, now: int) -> str:
        """Name the filer as it is known on that day; on the day of a new name, by number."""
        who = self.companies[company]
        today = (now - FIRST_FILING) // DAY_S
        is_known = self._named[company] < today
        return f"{who.name:60}" if is_known and self._dice.random() < 0.5 else f"{who.cik:010}"

    def _file(self, now: int, line: str) -> None:
        self.times.append(now)
        self.lines.append(line)

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


def stamp(now: int) -> str:
    """Write a moment as FINWIRE does."""
    return f"{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}"
