"""Records of FINWIRE: where their fields are, and what these have to look like."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs import Batch, Transaction
from tpcdi.dataflow.forms import (
    DAY,
    FILLED,
    WHOLE,
    Form,
    Wrong,
    decimal,
    one_of,
    or_empty,
    without,
    wrong,
)
from tpcdi.dataflow.outlets import SEVERAL

WRITTEN, KIND = slice(0, 8), slice(15, 18)
CIK_DIGITS = 10
DIGITS = "^([0-9]{4})([0-9]{2})([0-9]{2})$"
"""Of a day."""

COMPANY: Mapping[str, slice] = {
    "name": slice(18, 78),
    "companyid": slice(78, 88),
    "status": slice(88, 92),
    "industry": slice(92, 94),
    "sprating": slice(94, 98),
    "foundingdate": slice(98, 106),
    "addressline1": slice(106, 186),
    "addressline2": slice(186, 266),
    "postalcode": slice(266, 278),
    "city": slice(278, 303),
    "stateprov": slice(303, 323),
    "country": slice(323, 347),
    "ceo": slice(347, 393),
    "description": slice(393, 543),
}
SECURITY: Mapping[str, slice] = {
    "symbol": slice(18, 33),
    "issue": slice(33, 39),
    "status": slice(39, 43),
    "name": slice(43, 113),
    "exchangeid": slice(113, 119),
    "sharesoutstanding": slice(119, 132),
    "firsttrade": slice(132, 140),
    "firsttradeonexchange": slice(140, 148),
    "dividend": slice(148, 160),
}
SECURITY_OF = slice(160, 220)
REPORT: Mapping[str, slice] = {
    "fi_year": slice(18, 22),
    "fi_qtr": slice(22, 23),
    "fi_qtr_start_date": slice(23, 31),
    "fi_revenue": slice(39, 56),
    "fi_net_earn": slice(56, 73),
    "fi_basic_eps": slice(73, 85),
    "fi_dilut_eps": slice(85, 97),
    "fi_margin": slice(97, 109),
    "fi_inventory": slice(109, 126),
    "fi_assets": slice(126, 143),
    "fi_liability": slice(143, 160),
    "fi_out_basic": slice(160, 173),
    "fi_out_dilut": slice(173, 186),
}
REPORT_OF = slice(186, 246)

DAYS = {"written", "foundingdate", "firsttrade", "firsttradeonexchange", "fi_qtr_start_date"}
"""Which fields are days, as digits."""

FORMS: Mapping[str, tuple[Mapping[str, slice], Mapping[str, Form]]] = {
    "CMP": (
        COMPANY,
        {
            **dict.fromkeys(("name", "status", "industry"), FILLED),
            "companyid": WHOLE,
            "foundingdate": or_empty(DAY),
        },
    ),
    "SEC": (
        {**SECURITY, "company": SECURITY_OF},
        {
            **dict.fromkeys(("symbol", "issue", "status", "name", "exchangeid", "company"), FILLED),
            "sharesoutstanding": WHOLE,
            "firsttrade": DAY,
            "firsttradeonexchange": DAY,
            "dividend": decimal(10, 2),
        },
    ),
    "FIN": (
        {**REPORT, "company": REPORT_OF},
        {
            **dict.fromkeys(("fi_year", "fi_out_basic", "fi_out_dilut"), WHOLE),
            "fi_qtr": one_of("1", "2", "3", "4"),
            "fi_qtr_start_date": DAY,
            **dict.fromkeys(("fi_revenue", "fi_net_earn"), decimal(15, 2)),
            **dict.fromkeys(("fi_inventory", "fi_assets", "fi_liability"), decimal(15, 2)),
            **dict.fromkeys(("fi_basic_eps", "fi_dilut_eps", "fi_margin"), decimal(10, 2)),
            "company": FILLED,
        },
    ),
}
"""By kind of record: its fields, and their forms."""


def readable(tx: Transaction, batch: Batch) -> pa.Table:
    """Give the records that can be read, and reject the others."""
    if not len(batch.table):
        return batch.table
    lines = batch.table["line"].combine_chunks()
    kinds = pc.utf8_slice_codeunits(lines, KIND.start, KIND.stop)
    reasons: Wrong = {}
    for kind, (where, forms) in FORMS.items():
        rows = np.flatnonzero(pc.equal(kinds, kind).to_numpy(zero_copy_only=False))
        of_kind = lines.take(rows)
        texts = columns(of_kind, {**where, "written": WRITTEN})
        found = wrong(texts, {"written": DAY, **forms})
        reasons |= {int(rows[index]): reason for index, reason in found.items()}
    of_none = pc.invert(pc.is_in(kinds, pa.array(FORMS))).to_numpy(zero_copy_only=False)
    for index in np.flatnonzero(of_none).tolist():
        reasons[index] = f"it is a record of no known type: {kinds[index].as_py()!r}"
    return without(tx, batch, reasons)


def columns(lines: pa.Array, where: Mapping[str, slice]) -> dict[str, SEVERAL]:
    """Take fields of several records of a kind, as texts: days as they are written elsewhere."""
    return {name: _column(lines, name, at) for name, at in where.items()}


def _column(lines: pa.Array, name: str, at: slice) -> SEVERAL:
    texts = pc.utf8_trim_whitespace(pc.utf8_slice_codeunits(lines, at.start, at.stop))
    if name not in DAYS:
        return texts
    dashed: SEVERAL = pc.replace_substring_regex(texts, DIGITS, r"\1-\2-\3")
    return dashed


def fields(line: str, where: Mapping[str, slice]) -> dict[str, Any]:
    """Take the fields of a record; what is blank is NULL."""
    return {name: line[at].strip() or None for name, at in where.items()}


def date_of(digits: str | None) -> str | None:
    """Write the digits of a day as a date."""
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}" if digits else None


def number_of(company: str) -> int | None:
    """Give the number by which a record refers to a company: a short one has it, a long one a
    name.
    """
    return int(company) if len(company) <= CIK_DIGITS and company.isdecimal() else None
