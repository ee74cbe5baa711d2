"""A directory of source files as DIGen writes one, made by hand: a few rows, each with a reason."""

from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path
from xml.sax.saxutils import quoteattr

Field = str | int | date | None

CMP = {
    "cik": 10, "status": 4, "industry": 2, "rating": 4, "founded": 8, "line1": 80, "line2": 80,
    "postal": 12, "city": 25, "state": 20, "country": 24, "ceo": 46, "description": 150,
}  # fmt: skip
SEC = {
    "issue": 6, "status": 4, "name": 70, "exchange": 6, "shares": 13, "traded": 8, "listed": 8,
    "dividend": 12,
}  # fmt: skip
FIN = {
    "starts": 8, "posted": 8, "revenue": 17, "earnings": 17, "eps": 12, "diluted": 12, "margin": 12,
    "inventory": 17, "assets": 17, "liabilities": 17, "shares": 13, "diluted_shares": 13,
}  # fmt: skip
A_COMPANY: dict[str, Field] = {"status": "ACTV", "industry": "SL", "rating": "A+"}
A_SECURITY: dict[str, Field] = {
    "issue": "COMMON", "status": "ACTV", "name": "Shares", "exchange": "NYSE", "shares": 1000,
    "traded": "20000103", "listed": "20000104", "dividend": "1.50",
}  # fmt: skip
A_REPORT: dict[str, Field] = {
    "posted": "20170101", "revenue": "4000.00", "earnings": "1000.00", "eps": "1.00",
    "diluted": "1.00", "margin": "0.25", "inventory": "1.00", "assets": "2.00",
    "liabilities": "3.00", "shares": 1000, "diluted_shares": 1000,
}  # fmt: skip
PEOPLE = (
    "agency last first mi gender line1 line2 postal city state country phone income cars children "
    "marital age rating own employer cards worth"
)
CUSTOMER = (
    "id tax_id status last first mi gender tier dob line1 line2 zip city state country "
    "ctry_1 area_1 local_1 ext_1 ctry_2 area_2 local_2 ext_2 ctry_3 area_3 local_3 ext_3 "
    "email_1 email_2 local_tax national_tax"
)


class Digen:
    """Gathers the rows; `write` makes the directory."""

    def __init__(self, newline: str = "\n") -> None:
        self.newline = newline
        self.files: dict[str, list[str]] = defaultdict(list)
        self.serial = 0
        for batch, day in ((1, "2017-07-07"), (2, "2017-07-08"), (3, "2017-07-09")):
            self.row(batch, "BatchDate.txt", day)
        for status in ("ACTV|Active", "CMPT|Completed", "CNCL|Canceled", "PNDG|Pending",
                       "SBMT|Submitted", "INAC|Inactive"):  # fmt: skip
            self.row(1, "StatusType.txt", status)
        for kind in ("TMB|Market Buy|0|1", "TMS|Market Sell|1|1", "TSL|Stop Loss|1|0",
                     "TLS|Limit Sell|1|0", "TLB|Limit Buy|0|0"):  # fmt: skip
            self.row(1, "TradeType.txt", kind)
        self.row(1, "Industry.txt", "SL", "Steel", "BM")
        self.row(1, "TaxRate.txt", "US1", "U.S. Income Tax Bracket 1", "0.15000")
        self.row(1, "TaxRate.txt", "NY1", "New York 1", "0.04")
        self.row(1, "HR.csv", "7,1,Ann,Broker,B,314,Main,OFFICE1,(111) 111-1111")

    def row(self, batch: int, file: str, *fields: Field) -> None:
        """Add a row to a file of a batch."""
        comma = "," if file.endswith(".csv") else "|"
        text = comma.join("" if field is None else str(field) for field in fields)
        self.files[f"Batch{batch}/{file}"].append(text)

    def cdc(self, batch: int, file: str, flag: str, *fields: Field) -> None:
        """Add a row to a file of the source database, in batch 2 or 3."""
        self.serial += 1
        self.row(batch, file, flag, self.serial, *fields)

    def company(self, pts: str, name: str, cik: int, **more: Field) -> None:
        """Add a CMP record."""
        fields: dict[str, Field] = A_COMPANY | {"cik": f"{cik:010}"} | more
        self._finwire(f"{pts}CMP{name:60}{_fixed(CMP, fields)}")

    def security(self, pts: str, symbol: str, company: int | str, **more: Field) -> None:
        """Add a SEC record, of a company named by its CIK or by its name."""
        self._finwire(f"{pts}SEC{symbol:15}{_fixed(SEC, A_SECURITY | more)}{_co(company)}")

    def report(self, pts: str, quarter: str, company: int | str, **more: Field) -> None:
        """Add a FIN record, of a quarter as in 2017Q2."""
        year, number = int(quarter[:4]), int(quarter[5])
        fields = A_REPORT | {"starts": f"{year}{number * 3 - 2:02}01"} | more
        self._finwire(f"{pts}FIN{year}{number}{_fixed(FIN, fields)}{_co(company)}")

    def _finwire(self, line: str) -> None:
        quarter = (int(line[4:6]) + 2) // 3
        self.files[f"Batch1/FINWIRE{line[:4]}Q{quarter}"].append(line)

    def action(
        self,
        kind: str,
        when: str,
        customer: int,
        *,
        account: dict[str, Field] | None = None,
        inside: str = "",
        attributes: dict[str, Field] | None = None,
    ) -> None:
        """Add an action. `inside` is what is in the customer's element, but for its account."""
        of_account = ""
        if account is not None:
            named = ("CA_B_ID", "CA_NAME")
            leaves = "".join(
                f"<{name}>{of or ''}</{name}>" for name, of in account.items() if name in named
            )
            others = {name: of for name, of in account.items() if name not in named}
            of_account = f"<Account{_attributes(others)}>{leaves}</Account>"
        of_customer: dict[str, Field] = {"C_ID": customer}
        self.files["Batch1/CustomerMgmt.xml"].append(
            f'<TPCDI:Action ActionType="{kind}" ActionTS="{when}">'
            f"<Customer{_attributes(of_customer | (attributes or {}))}>{inside}{of_account}"
            "</Customer></TPCDI:Action>"
        )

    def new(
        self, when: str, customer: int, account: int, taxes: str = "NY1 US1", **more: Field
    ) -> None:
        """Add a customer and an account, both without anything special."""
        local, national = taxes.split()
        who: dict[str, Field] = {
            "C_TAX_ID": "123-45-6789",
            "C_GNDR": "F",
            "C_TIER": 2,
            "C_DOB": "1980-05-06",
        }
        self.action(
            *("NEW", when, customer),
            account={"CA_ID": account, "CA_TAX_ST": 1, "CA_B_ID": 7, "CA_NAME": "Savings"},
            inside=f"<Name><C_L_NAME>Last{customer}</C_L_NAME><C_F_NAME>First</C_F_NAME></Name>"
            "<Address><C_ADLINE1>1 Street</C_ADLINE1><C_ADLINE2/><C_ZIPCODE>11111</C_ZIPCODE>"
            f"<C_CITY>City</C_CITY></Address><TaxInfo><C_LCL_TX_ID>{local}</C_LCL_TX_ID>"
            f"<C_NAT_TX_ID>{national}</C_NAT_TX_ID></TaxInfo>",
            attributes=who | more,
        )

    def customer(self, batch: int, flag: str, customer: int, **more: Field) -> None:
        """Add a row to Customer.txt: as `new` would have it, but for what is said."""
        fields: dict[str, Field] = {
            "id": customer, "tax_id": "123-45-6789", "status": "ACTV", "last": f"Last{customer}",
            "first": "First", "gender": "F", "tier": 2, "dob": "1980-05-06", "line1": "1 Street",
            "zip": "11111", "city": "City", "local_tax": "NY1", "national_tax": "US1",
        }  # fmt: skip
        fields |= more
        self.cdc(batch, "Customer.txt", flag, *(fields.get(name) for name in CUSTOMER.split()))

    def prospect(self, batch: int, agency: str, **more: Field) -> None:
        """Add a prospect, nothing of whom calls for a tag."""
        fields: dict[str, Field] = {
            "agency": agency, "last": "Prospect", "first": agency, "line1": "1 Street",
            "postal": "11111", "income": 60000, "cars": 1, "children": 1, "age": 40,
            "rating": 700, "cards": 1, "worth": 200000,
        }  # fmt: skip
        fields |= more
        self.row(batch, "Prospect.csv", *(fields.get(name) for name in PEOPLE.split()))

    def days(self, first: date, last: date) -> None:
        """Add days to Date.txt: what is told of them is not asked for."""
        for n in range((last - first).days + 1):
            day = first + timedelta(n)
            many = ("x", 1) * 7
            self.row(1, "Date.txt", f"{day:%Y%m%d}", day, "x", *many[1:], "x", "false")

    def write(self, directory: Path) -> Path:
        """Write the files."""
        for name, lines in self.files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = "".join(line + self.newline for line in lines)
            if name.endswith(".xml"):
                space = 'xmlns:TPCDI="http://www.tpc.org/tpc-di"'
                text = f'<?xml version="1.0"?><TPCDI:Actions {space}>{text}</TPCDI:Actions>'
            path.write_bytes(text.encode())
        return directory


def _fixed(widths: dict[str, int], fields: dict[str, Field]) -> str:
    """Lay fields side by side: texts to the left, numbers to the right."""
    assert fields.keys() <= widths.keys(), fields.keys() - widths.keys()
    laid = ""
    for name, width in widths.items():
        value = fields.get(name)
        text = "" if value is None else str(value)
        number = text[-1:].isdigit() and name not in ("line1", "line2", "name", "description")
        laid += text.rjust(width) if number else text.ljust(width)
    return laid


def _co(company: int | str) -> str:
    return f"{company:010}" if isinstance(company, int) else f"{company:60}"


def _attributes(values: dict[str, Field]) -> str:
    return "".join(
        f" {name}={quoteattr(str('' if value is None else value))}"
        for name, value in values.items()
    )
