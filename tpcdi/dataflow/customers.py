"""Customers: their images, as actions and changes make them."""

from collections.abc import Iterable, Mapping
from datetime import date, timedelta

from etl_procs import Transaction
from tpcdi.dataflow.messages import alert
from tpcdi.dataflow.outlets import date as written
from tpcdi.dataflow.phases import Phase
from tpcdi.dataflow.prospects import DEMOGRAPHICS, demographics, match
from tpcdi.dataflow.versions import Image, Versions

ACTIVE, INACTIVE = "Active", "Inactive"
OLDEST = timedelta(days=36_525)
"""A hundred years, as the generator counts them."""
TIERS = (1, 2, 3)

FIELDS = {
    "taxid": "c_tax_id",
    "lastname": "c_l_name",
    "firstname": "c_f_name",
    "middleinitial": "c_m_name",
    "gender": "c_gndr",
    "tier": "c_tier",
    "dob": "c_dob",
    "addressline1": "c_adline1",
    "addressline2": "c_adline2",
    "postalcode": "c_zipcode",
    "city": "c_city",
    "stateprov": "c_state_prov",
    "country": "c_ctry",
    "email1": "c_email_1",
    "email2": "c_email_2",
}
PHONES = (1, 2, 3)
TAXES = {"nationaltaxrate": "c_nat_tx_id", "localtaxrate": "c_lcl_tx_id"}

customers = Versions(
    "dimcustomer",
    "customerid",
    more="match TEXT",
    unique="UNIQUE (match, iscurrent, sk_customerid)",
)


class Customers:
    """The customers that one batch changes."""

    def __init__(self, tx: Transaction, phase: Phase) -> None:
        self._tx = tx
        self._phase = phase
        self._taxes = {row["id"]: row for row in tx.query("SELECT id, name, rate FROM taxes")}

    def new(self, row: Mapping[str, str | None], status: str) -> Image:
        """Make an image of all that a row says; what it lacks is NULL."""
        said = self._said({name: value or "" for name, value in row.items()})
        return {**said, "customerid": row["c_id"], "status": status}

    def changed(self, before: Image, row: Mapping[str, str | None]) -> Image:
        """Change what a row says; what it says nothing about stays."""
        return before | self._said(row)

    def _said(self, row: Mapping[str, str | None]) -> Image:
        said: Image = {}
        for name, field in FIELDS.items():
            if row[field] is not None:
                said[name] = row[field] or None
        if "gender" in said:
            gender = (said["gender"] or "").upper()
            said["gender"] = gender if gender in ("M", "F") else "U"
        if said.get("tier") is not None:
            said["tier"] = int(said["tier"])
        for number in PHONES:
            parts = [row[f"c_{part}_{number}"] for part in ("ctry", "area", "local", "ext")]
            if parts != [None] * len(parts):
                said[f"phone{number}"] = phone(*parts)
        for name, field in TAXES.items():
            if row[field] is not None:
                tax = self._taxes.get(row[field], {"name": None, "rate": None})
                said |= {f"{name}desc": tax["name"], name: tax["rate"]}
        return said

    def write(self, images: Iterable[Image], on: int) -> dict[int, int]:
        """Make each the version of its customer from a day on, with what is known of it as a
        prospect; tell their surrogate keys.
        """
        whole = []
        for image in images:
            matched = match(image)
            whole.append({**image, "match": matched, **demographics(self._tx, matched)})
        self._warn(whole)
        # The historical load knows of whom each customer is the last to be; an increment does not
        # change what was.
        ending = dict.fromkeys(DEMOGRAPHICS) if self._phase.batch == 1 else None
        return customers.write(self._tx, whole, self._phase, on, ending)

    def _warn(self, images: Iterable[Image]) -> None:
        today = date.fromisoformat(written(self._phase.day))
        for image in images:
            id_, tier, born = (image[name] for name in ("customerid", "tier", "dob"))
            if tier not in TIERS:
                data = f"C_ID = {id_}, C_TIER = {'' if tier is None else tier}"
                alert(self._tx, self._phase, "DimCustomer", "Invalid customer tier", data)
            if born and not today - OLDEST <= date.fromisoformat(born) <= today:
                data = f"C_ID = {id_}, C_DOB = {born}"
                alert(self._tx, self._phase, "DimCustomer", "DOB out of range", data)


def phone(
    country: str | None, area: str | None, local: str | None, extension: str | None
) -> str | None:
    """Write a phone number of its parts."""
    if not local:
        return None
    number = f"({area}) {local}" if area else local
    if area and country:
        number = f"+{country} {number}"
    return number + (extension or "")
