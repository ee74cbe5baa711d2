"""Listing: companies, their securities and their reports, as FINWIRE brings them.

They come in many files, each with its own quarter: so all have to be there. A day is taken as a
whole: first its companies, then what refers to them.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs import Batch, Table, Transaction
from tpcdi.dataflow.messages import alert
from tpcdi.dataflow.outlets import OUTLETS, table
from tpcdi.dataflow.phases import Held, Phase, complete, current, finish, has, phases
from tpcdi.dataflow.records import (
    COMPANY,
    KIND,
    REPORT,
    REPORT_OF,
    SECURITY,
    SECURITY_OF,
    columns,
    date_of,
    fields,
    number_of,
    readable,
)
from tpcdi.dataflow.reference import COMPLETE, industry_names, referred, status_names
from tpcdi.dataflow.sources import finwire, flow
from tpcdi.dataflow.versions import Image, Versions

STAGE = "listing"
RATINGS = {
    *("AAA", "AA+", "AA", "AA-", "A+", "A", "A-", "BBB+", "BBB", "BBB-", "BB+", "BB", "BB-"),
    *("B+", "B", "B-", "CCC+", "CCC", "CCC-", "CC", "C", "D"),
}

companies = Versions("dimcompany", "companyid", more="record TEXT NOT NULL")
"""With the record as it came: two that differ may come to the same row, and are two versions."""
securities = Versions(
    "dimsecurity",
    "symbol",
    more="companyid INTEGER NOT NULL",
    unique="UNIQUE (companyid, iscurrent, sk_securityid)",
)
names = flow.table("company_names", "name TEXT PRIMARY KEY, companyid INTEGER NOT NULL")
earnings = flow.table(
    "earnings",
    "companyid INTEGER NOT NULL, quarter INTEGER NOT NULL, cents INTEGER NOT NULL, "
    "written TEXT NOT NULL, PRIMARY KEY (companyid, quarter)",
)
REPORTED = """\
INSERT INTO earnings VALUES (?, ?, ?, ?)
ON CONFLICT (companyid, quarter) DO UPDATE SET cents = excluded.cents, written = excluded.written
WHERE excluded.written >= earnings.written"""
held, parked = Held(finwire), Held(finwire, "parked_finwire")
"""What has come before all are there; what refers to a company that is not there."""
listed = flow.stream("listed", "batch INTEGER NOT NULL")


@flow.procedure(
    takes=[referred, finwire],
    reads=[phases, industry_names, status_names],
    writes=[companies.table, securities.table, names, earnings, held.table, parked.table, complete],
    gives=[
        listed,
        *(OUTLETS[name] for name in ("dimcompany", "dimsecurity", "financial", "dimessages")),
    ],
)
def list_(tx: Transaction, _said: Batch, batch: Batch) -> None:
    """Take all days."""
    phase = current(tx)
    is_due = has(tx, phase, *COMPLETE, "FINWIRE") and not has(tx, phase, STAGE)
    lines = held.admit(tx, readable(tx, batch), when=is_due)["line"].to_pylist()
    if phase is None or not is_due:
        return
    Listing(tx, phase).take(sorted(lines, key=_time))
    finish(tx, phase, STAGE)
    tx.emit(listed, [{"batch": phase.batch}])


def _time(line: str) -> str:
    return line[:15]


def _day(line: str) -> str:
    return line[:8]


class Listing:
    """What one batch does."""

    def __init__(self, tx: Transaction, phase: Phase) -> None:
        self.tx = tx
        self.phase = phase
        self._industries = names_of(tx, industry_names)
        self._statuses = names_of(tx, status_names)
        self._ids = {
            row["name"]: row["companyid"] for row in tx.query("SELECT * FROM company_names")
        }
        self._keys: dict[int, int] = {}
        self._reports: list[tuple[str, int, int]] = []
        """Records, each with its company and the surrogate key of that."""

    def take(self, lines: Iterable[str]) -> None:
        """Take whole days."""
        waiting = parked.take(self.tx)["line"].to_pylist()
        for written, records in groupby(lines, key=_day):
            of_day = [*waiting, *records]
            companies, listings, reports = (
                [line for line in of_day if line[KIND] == kind] for kind in ("CMP", "SEC", "FIN")
            )
            day = self._day_of(written)
            changed, unknown = self._companies(companies, day)
            waiting = [
                *unknown,
                *self._securities(listings, changed, day),
                *self._reported(reports),
            ]
        parked.put(self.tx, pa.table({"line": waiting}))
        self._enter_reports()

    def _day_of(self, written: str) -> int:
        """Give the day of a version: what comes after the historical load changes no history."""
        return int(written) if self.phase.batch == 1 else self.phase.day

    def _companies(self, lines: list[str], day: int) -> tuple[Mapping[int, int], list[str]]:
        """Make a version of each company that is now another; give their surrogate keys, and the
        records of a status or an industry that is not known.
        """
        images: dict[int, Image] = {}
        unknown = []
        for line in lines:
            image = self._company(line)
            if image["status"] and image["industry"]:
                images.pop(image["companyid"], None)  # a name is whose record of a day comes last
                images[image["companyid"]] = image
            else:
                unknown.append(line)
        new = [image for image in images.values() if self._is_new(image)]
        keys: dict[int, int] = companies.write(self.tx, new, self.phase, day)
        for image in new:
            self._ids[image["name"]] = image["companyid"]
            if image["islowgrade"] is None and image["rating"] is not None:
                data = f"CO_ID = {image['companyid']}, CO_SP_RATE = {image['rating']}"
                alert(self.tx, self.phase, "DimCompany", "Invalid SPRating", data)
        self.tx.executemany("INSERT OR REPLACE INTO company_names VALUES (:name, :companyid)", new)
        self._keys |= keys
        return keys, unknown

    def _is_new(self, image: Image) -> bool:
        before = companies.latest(self.tx, image["companyid"])
        return before is None or before["record"] != image["record"]

    def _company(self, line: str) -> Image:
        image = fields(line, COMPANY)
        rating = image["sprating"]
        is_rating = rating in RATINGS
        return {
            **image,
            "companyid": int(image["companyid"]),
            "status": self._statuses.get(image["status"]),
            "industry": self._industries.get(image["industry"]),
            "foundingdate": date_of(image["foundingdate"]),
            "rating": rating,
            "record": line[KIND.stop :].rstrip(),
            "sprating": rating if is_rating else None,
            "islowgrade": not rating.startswith(("A", "BBB")) if is_rating else None,
        }

    def _securities(self, lines: list[str], changed: Mapping[int, int], day: int) -> list[str]:
        """Make a version of each security that is listed or whose company is now another; give
        the records of companies or of a status that are not known.
        """
        images = {
            image["symbol"]: image
            for id_ in changed
            for image in self.tx.query(
                "SELECT * FROM dimsecurity WHERE companyid = ? AND iscurrent = 1", [id_]
            )
        }
        unknown = []
        for line in lines:
            id_, image = self._company_of(line, SECURITY_OF), fields(line, SECURITY)
            status = self._statuses.get(image["status"])
            if id_ is None or status is None:
                unknown.append(line)
                continue
            images[image["symbol"]] = {
                **image,
                "companyid": id_,
                "status": status,
                "sharesoutstanding": int(image["sharesoutstanding"]),
                "firsttrade": date_of(image["firsttrade"]),
                "firsttradeonexchange": date_of(image["firsttradeonexchange"]),
            }
        for image in images.values():
            image["sk_companyid"] = self._key(image["companyid"])
        securities.write(self.tx, images.values(), self.phase, day)
        return unknown

    def _reported(self, lines: list[str]) -> list[str]:
        """Note reports to be entered; give those of companies that are not known."""
        unknown = []
        for line in lines:
            id_ = self._company_of(line, REPORT_OF)
            if id_ is None:
                unknown.append(line)
            else:
                self._reports.append((line, id_, self._key(id_)))
        return unknown

    def _enter_reports(self) -> None:
        if not self._reports:
            return
        lines, ids, keys = zip(*self._reports, strict=True)
        rows = table("financial", sk_companyid=keys, **columns(pa.array(lines), REPORT))
        self.tx.emit(OUTLETS["financial"], rows)
        quarters = pc.add(pc.multiply(rows["fi_year"], 4), pc.subtract(rows["fi_qtr"], 1))
        cents = [int(share * 100) for share in rows["fi_basic_eps"].to_pylist()]
        written = map(_time, lines)
        self.tx.executemany(REPORTED, zip(ids, quarters.to_pylist(), cents, written, strict=True))

    def _company_of(self, line: str, where: slice) -> int | None:
        """Find whom a record refers to."""
        said = line[where]
        id_ = number_of(said)
        id_ = self._ids.get(said.strip()) if id_ is None else id_
        return id_ if id_ is not None and self._key(id_) else None

    def _key(self, id_: int) -> int:
        if id_ not in self._keys:
            latest = companies.latest(self.tx, id_)
            self._keys[id_] = latest["sk_companyid"] if latest else 0
        return self._keys[id_]


def names_of(tx: Transaction, table: Table) -> dict[Any, str]:
    """Give the names that a table of them has, by id."""
    return {row["id"]: row["name"] for row in tx.query(f"SELECT id, name FROM {table.name}")}
