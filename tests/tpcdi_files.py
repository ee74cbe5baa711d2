"""Reads the source files of TPC-DI, by their rules alone: nothing here is the generator's."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

NAMESPACE = "{http://www.tpc.org/tpc-di}"
BATCH_DAYS = {1: date(2017, 7, 7), 2: date(2017, 7, 8), 3: date(2017, 7, 9)}

CMP_FIELDS = {"CompanyName": (19, 78), "CIK": (79, 88), "Status": (89, 92)}
CMP_FIELDS |= {"IndustryID": (93, 94), "SPrating": (95, 98), "FoundingDate": (99, 106)}
CMP_FIELDS |= {"Country": (324, 347), "CEOname": (348, 393), "Description": (394, 543)}
SEC_FIELDS = {"Symbol": (19, 33), "IssueType": (34, 39), "Status": (40, 43), "ExID": (114, 119)}
SEC_FIELDS |= {"ShOut": (120, 132), "FirstTradeDate": (133, 140), "Dividend": (149, 160)}
SEC_FIELDS |= {"CoNameOrCIK": (161, 220)}
FIN_FIELDS = {"Year": (19, 22), "Quarter": (23, 23), "QtrStartDate": (24, 31)}
FIN_FIELDS |= {"PostingDate": (32, 39), "Revenue": (40, 56), "Earnings": (57, 73), "EPS": (74, 85)}
FIN_FIELDS |= {"DilutedEPS": (86, 97), "Margin": (98, 109), "ShOut": (161, 173)}
FIN_FIELDS |= {"DilutedShOut": (174, 186), "CoNameOrCIK": (187, 246)}
FIELDS = {"CMP": CMP_FIELDS, "SEC": SEC_FIELDS, "FIN": FIN_FIELDS}

CUSTOMER_COLUMNS = {"C_ST_ID": 2, "C_L_NAME": 3, "C_F_NAME": 4, "C_TIER": 7, "C_DOB": 8}
CUSTOMER_COLUMNS |= {"C_ADLINE1": 9, "C_ADLINE2": 10, "C_ZIPCODE": 11}

PROSPECT_KEY = (1, 2, 5, 6, 7)
"""LastName, FirstName, AddressLine1, AddressLine2 and PostalCode."""


@dataclass
class Action:
    """An action on a customer: what is in it is a text, or empty; what is not in it is absent."""

    kind: str
    at: str
    customer: dict[str, str]
    account: dict[str, str]

    @property
    def day(self) -> str:
        return self.at[:10]

    @property
    def who(self) -> str:
        return self.customer["C_ID"]


@dataclass
class Record:
    """A record of FINWIRE."""

    kind: str
    at: str
    line: str
    fields: dict[str, str]
    file: str

    @property
    def day(self) -> str:
        return self.at[:8]

    @property
    def is_by_name(self) -> bool:
        return len(self.line) in {220, 246}


@dataclass
class Books:
    """The customers and accounts as their changes leave them, and each day's last image."""

    customers: dict[str, dict[str, str]] = field(default_factory=dict)
    accounts: dict[str, dict[str, str]] = field(default_factory=dict)
    versions: dict[int, dict[tuple[str, str], dict[str, str]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    account_days: set[tuple[str, str]] = field(default_factory=set)

    def act(self, action: Action) -> None:
        who = self.customers.setdefault(action.who, {"C_ST_ID": "ACTV"})
        if action.kind == "INACT":
            who["C_ST_ID"] = "INAC"
        who |= action.customer
        if action.account:
            number = action.account["CA_ID"]
            self.accounts.setdefault(number, {"CA_C_ID": action.who})
            self.accounts[number] |= action.account
            self.account_days.add((number, action.day))
        if action.kind in {"NEW", "UPDCUST", "INACT"}:
            self.versions[1][action.who, action.day] = dict(who)
            self.account_days |= {
                (number, action.day)
                for number, account in self.accounts.items()
                if account["CA_C_ID"] == action.who
            }


class Directory:
    """A directory that the generator has written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, batch: int, file: str) -> list[list[str]]:
        delimiter = "," if file.endswith(".csv") else "|"
        text = (self.path / f"Batch{batch}" / file).read_text()
        return [line.split(delimiter) for line in text.splitlines()]

    def changes(self, batch: int, file: str) -> list[list[str]]:
        """Read rows without the columns that an increment has before them."""
        return [row[2:] if batch > 1 else row for row in self.rows(batch, file)]

    def answers(self) -> dict[tuple[str, int, str], int]:
        found: dict[tuple[str, int, str], int] = {}
        for path in sorted(self.path.rglob("*_audit.csv")):
            head, *lines = path.read_text().splitlines()
            assert head == "DataSet, BatchID ,Date , Attribute , Value, DValue"
            for line in lines:
                data_set, batch, _, attribute, value, _ = line.split(",")
                if value:
                    assert (data_set, int(batch), attribute) not in found
                    found[data_set, int(batch), attribute] = int(value)
        return found

    @cached_property
    def actions(self) -> list[Action]:
        root = ElementTree.fromstring((self.path / "Batch1/CustomerMgmt.xml").read_bytes())  # noqa: S314
        assert root.tag == f"{NAMESPACE}Actions"
        return [self._action(element) for element in root]

    def _action(self, element: ElementTree.Element) -> Action:
        assert element.tag == f"{NAMESPACE}Action"
        (customer,) = element
        known = dict(customer.attrib)
        account: dict[str, str] = {}
        for block in customer:
            fields = account if block.tag == "Account" else known
            fields |= block.attrib
            for part in block:
                inside = {f"{part.tag}.{each.tag}": each.text or "" for each in part}
                fields |= inside or {part.tag: part.text or ""}
        return Action(element.attrib["ActionType"], element.attrib["ActionTS"], known, account)

    @cached_property
    def records(self) -> list[Record]:
        return [record for path in self.finwire() for record in self._records(path)]

    def finwire(self) -> list[Path]:
        return sorted((self.path / "Batch1").glob("FINWIRE????Q?"))

    def _records(self, path: Path) -> Iterator[Record]:
        for line in path.read_text().splitlines():
            kind = line[15:18]
            fields = {
                name: line[first - 1 : last].strip() for name, (first, last) in FIELDS[kind].items()
            }
            yield Record(kind, line[:15], line, fields, path.name)

    def books(self) -> Books:
        """Replay every change of a customer or an account."""
        books = Books()
        for action in self.actions:
            books.act(action)
        for batch in (2, 3):
            day = str(BATCH_DAYS[batch])
            for row in self.changes(batch, "Customer.txt"):
                image = {name: row[column] for name, column in CUSTOMER_COLUMNS.items()}
                books.customers[row[0]] = image
                books.versions[batch][row[0], day] = image
        return books


def prospect_key(row: list[str]) -> tuple[str, ...]:
    return tuple(row[column].upper() for column in PROSPECT_KEY)


def customer_key(customer: dict[str, str]) -> tuple[str, ...]:
    names = ("C_L_NAME", "C_F_NAME", "C_ADLINE1", "C_ADLINE2", "C_ZIPCODE")
    return tuple(customer.get(name, "").upper() for name in names)


def is_too_old(customer: dict[str, str], batch: int) -> bool:
    return customer["C_DOB"] < str(BATCH_DAYS[batch] - timedelta(36_525))


def is_unborn(customer: dict[str, str], batch: int) -> bool:
    return customer["C_DOB"] > str(BATCH_DAYS[batch])


def repeated(keys: list[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Tell which keys come more than once."""
    return {key for key, count in Counter(keys).items() if count > 1}
