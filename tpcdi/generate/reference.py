"""The files that are the same at every scale: kinds of things, and the calendar."""

from collections.abc import Iterator
from datetime import date, timedelta

from tpcdi.generate.pools import CANADA, REGIONS, USA

STATUSES = (
    "ACTV|Active",
    "CMPT|Completed",
    "CNCL|Canceled",
    "PNDG|Pending",
    "SBMT|Submitted",
    "INAC|Inactive",
)
TRADE_TYPES = (
    "TMB|Market Buy|0|1",
    "TMS|Market Sell|1|1",
    "TSL|Stop Loss|1|0",
    "TLS|Limit Sell|1|0",
    "TLB|Limit Buy|0|0",
)

SECTORS = {
    "BM": "Chemicals,Steel,Aluminum,Copper,Gold,Paper,Forestry,Containers & Packaging,Plastics",
    "CG": "Aircraft,Machinery,Construction Supplies,Misc. Capital Goods,Mobile Homes,Tools",
    "CO": "Conglomerates,Holding Companies",
    "CC": "Apparel,Appliances,Audio & Video,Auto Parts,Cars & Trucks,Footwear,Furniture,Jewelry,"
    "Photography,Recreational Goods,Textiles,Tires,Toys",
    "NC": "Beverages,Crops,Fish & Livestock,Food Processing,Household Goods,Office Supplies,"
    "Personal Care,Tobacco",
    "EN": "Coal,Oil & Gas,Oil Services,Pipelines",
    "FN": "Consumer Finance,Insurance,Investment Services,Life Insurance,Misc. Finance,"
    "Money Banks,Regional Banks,Savings Banks",
    "HC": "Biotechnology,Drugs,Health Facilities,Medical Equipment",
    "SV": "Advertising,Broadcasting,Business Services,Casinos,Construction,Hotels,Motion Pictures,"
    "Personal Services,Printing,Publishing,Real Estate,Recreation,Rental,Restaurants,Retail,"
    "Grocery,Home Improvement,Department Stores,Schools,Security,Waste,Drugs,Software",
    "TE": "Communications,Computers,Computer Networks,Computer Services,Peripherals,Storage,"
    "Electronics,Instruments,Office Equipment,Scientific Equipment,Semiconductors,Photonics",
    "TR": "Air Courier,Airlines,Railroads,Trucking,Water Transport,Misc. Transport",
    "UT": "Electric Utilities,Gas Utilities,Water Utilities,Pipelines,Solar Power,Wind Power,Heat",
}
INDUSTRIES = [
    (chr(65 + number // 26) + chr(65 + number % 26), name, sector)
    for number, (sector, name) in enumerate(
        (sector, name) for sector, names in SECTORS.items() for name in names.split(",")
    )
]
"""Code, name and sector; names are not unique: Drugs and Pipelines are in two sectors."""

NATIONAL_TAXES = [f"US{n}" for n in range(1, 6)] + [f"CN{n}" for n in range(1, 5)]
LOCAL_TAXES = [f"{code}{n}" for code, _, _ in REGIONS for n in range(1, 6)][:311]

FIRST_DATE, LAST_DATE = date(1950, 1, 1), date(2020, 12, 31)


def tax_rates() -> Iterator[str]:
    """Write TaxRate: no two rates have the same name."""
    names = {code: name for code, name, _ in REGIONS} | {"US": USA, "CN": CANADA}
    for number, tax in enumerate((*NATIONAL_TAXES, *LOCAL_TAXES)):
        rate = (1 + number * 7 % 45) / 100 if number < 9 else number * 13 % 1200 / 10_000
        yield f"{tax}|{names[tax[:2]]} Income Tax, bracket {tax[2:]}|{rate:.5f}"


def dates(first: date = FIRST_DATE, last: date = LAST_DATE) -> Iterator[str]:
    """Write Date: the fiscal year begins in July, a week on Sunday."""
    for number in range((last - first).days + 1):
        day = first + timedelta(number)
        quarter, year = (day.month + 2) // 3, day.year
        fiscal_year, fiscal_quarter = (
            (year + 1, quarter - 2) if quarter > 2 else (year, quarter + 2)
        )
        week = (day.timetuple().tm_yday - 1 + date(year, 1, 1).isoweekday() % 7) // 7 + 1
        yield (
            f"{day:%Y%m%d}|{day}|{day:%B} {day.day}, {year}|{year}|{year}"
            f"|{year}{quarter}|{year} Q{quarter}|{year}{day.month}|{year} {day:%B}"
            f"|{year}{week}|{year}-W{week}|{day.isoweekday()}|{day:%A}"
            f"|{fiscal_year}|{fiscal_year}|{fiscal_year}{fiscal_quarter}"
            f"|{fiscal_year} Q{fiscal_quarter}|{_flag(is_holiday(day))}"
        )


def is_holiday(day: date) -> bool:
    """Tell whether a day is one of those on which banks in the US have long been closed."""
    nth = (day.day + 6) // 7
    monday = day.isoweekday() == 1
    return (
        (day.month, day.day) in {(1, 1), (7, 4), (11, 11), (12, 25)}
        or (monday and (day.month, nth) in {(1, 3), (2, 3), (9, 1), (10, 2)})
        or (monday and day.month == 5 and day.day > 24)
        or (day.isoweekday() == 4 and (day.month, nth) == (11, 4))
    )


def times() -> Iterator[str]:
    """Write Time."""
    for number in range(86_400):
        hour, minute, second = number // 3600, number // 60 % 60, number % 60
        clock = f"{hour:02}:{minute:02}:{second:02}"
        yield (
            f"{hour:02}{minute:02}{second:02}|{clock}|{hour:02}|{hour:02}|{minute:02}|{clock[:5]}"
            f"|{second:02}|{clock}|{_flag('09:30:00' <= clock <= '16:00:00')}"
            f"|{_flag('08:00:00' <= clock <= '17:00:00')}"
        )


def _flag(is_so: bool) -> str:
    return "true" if is_so else "false"
