"""Facts: what their procedures have in common. They work by column; amounts are hundredths, days
are numbers as 20170707, times of day as 93000.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs import Batch, Transaction
from tpcdi.dataflow.customers import customers
from tpcdi.dataflow.forms import CHANGE, Form, formed
from tpcdi.dataflow.listing import STAGE as LISTING
from tpcdi.dataflow.listing import listed, securities
from tpcdi.dataflow.outlets import SEVERAL
from tpcdi.dataflow.people import STAGE as PEOPLE
from tpcdi.dataflow.people import accounts, enrolled
from tpcdi.dataflow.phases import Held, Phase, complete, current, has, phases
from tpcdi.dataflow.reference import calendar
from tpcdi.dataflow.sources import flow

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

READS = (phases, complete, calendar)
AFTER = (listed, enrolled)
READY = (LISTING, PEOPLE)
"""The dimensions: facts are held until they are complete, and come after them in each batch."""

security_at = flow.lookup(
    "security_at",
    securities.table,
    key="symbol",
    at="effectivedate",
    gives=("sk_securityid", "sk_companyid", "companyid", "dividend"),
    or_earliest=True,
)
account_at = flow.lookup(
    "account_at",
    accounts.table,
    key="accountid",
    at="effectivedate",
    gives=("sk_accountid", "sk_customerid", "sk_brokerid"),
    or_earliest=True,
)
customer_at = flow.lookup(
    "customer_at",
    customers.table,
    key="customerid",
    at="effectivedate",
    gives=("sk_customerid",),
    or_earliest=True,
)


LACKING = """\
SELECT value AS day FROM json_each(?) AS asked WHERE EXISTS (SELECT 1 FROM calendar)
AND NOT EXISTS (SELECT 1 FROM calendar WHERE calendar.day = asked.value)"""


def in_calendar(tx: Transaction, on: Numbers) -> Flags:
    """Tell which days the calendar has; where there is none, it is not asked for them."""
    lacking = tx.query(LACKING, [json.dumps(np.unique(on).tolist())]) if len(on) else []
    return ~np.isin(on, [row["day"] for row in lacking])


def dated(tx: Transaction, forms: Mapping[str, Form], on: str) -> Mapping[str, Form]:
    """Give forms by which a column has days of the calendar only, once that is complete."""
    if not has(tx, current(tx), "Date"):
        return forms
    form = forms[on]

    def fits(texts: SEVERAL) -> SEVERAL:
        fit: Flags = pc.fill_null(form.fits(texts), False).to_numpy(zero_copy_only=False).copy()
        fit[fit] = in_calendar(tx, days(texts.filter(pa.array(fit))))
        return pa.array(fit)

    return {**forms, on: Form(f"{form.name} in the calendar", fits)}


def joined(
    tx: Transaction, first: Batch, then: Batch, forms: Mapping[str, Form], on: str = ""
) -> pa.Table:
    """Give the rows of a source, which come in one of two streams, without what CDC adds; those
    that are not of these forms, or on a day that the calendar lacks, are rejected.
    """
    if on:
        forms = dated(tx, forms, on)
    changes = formed(tx, then, {"cdc_flag": CHANGE, **forms})
    return pa.concat_tables([formed(tx, first, forms), changes.select(first.stream.columns.names)])


def due(
    tx: Transaction, rows: pa.Table, held: Held, parked: Held, on: str
) -> tuple[Phase, pa.Table] | tuple[None, pa.Table]:
    """Give what can be entered now, with what waited for it, and the phase; none, while the
    dimensions are not complete or there is nothing. What came before the calendar, and is on a day
    that it lacks, waits on.
    """
    phase = current(tx)
    ready = has(tx, phase, *READY)
    rows = held.admit(tx, rows, when=ready)
    if phase is None or not ready:
        return None, rows
    rows = pa.concat_tables([parked.take(tx, phase.batch), rows])
    is_dated = in_calendar(tx, days(rows[on]))
    if not is_dated.all():
        parked.put(tx, rows.filter(pa.array(~is_dated)), phase.batch)
        rows = rows.filter(pa.array(is_dated))
    return (phase, rows) if rows.num_rows else (None, rows)


def at(phase: Phase, days: Numbers) -> Numbers:
    """Give the days as of which dimensions are looked up: later, what is current counts."""
    return days if phase.batch == 1 else np.full(len(days), phase.day)


def days(texts: pa.ChunkedArray) -> Numbers:
    """Give the days of dates, or of times."""
    dates = pc.cast(pc.utf8_slice_codeunits(texts, 0, 10), pa.date32())
    return _digits(pc.year(dates), pc.month(dates), pc.day(dates))


def times(texts: pa.ChunkedArray) -> Numbers:
    """Give the times of day of times."""
    moments = pc.cast(texts, pa.timestamp("s"))
    return _digits(pc.hour(moments), pc.minute(moments), pc.second(moments))


def _digits(*parts: pa.ChunkedArray) -> Numbers:
    numbers: list[Numbers] = [part.to_numpy().astype(np.int64) for part in parts]
    first, second, third = numbers
    return first * 10_000 + second * 100 + third


def hundredths(amounts: pa.ChunkedArray) -> pa.Array:
    """Make integers of amounts with two decimals."""
    return pc.cast(pc.round(pc.multiply(amounts, 100.0)), pa.int64())


def ratio(above: Numbers, below: Numbers) -> Numbers:
    """Divide, and round half away from zero, as PostgreSQL does; by zero, it gives zero."""
    divisor = np.where(below == 0, 1, np.abs(below))
    rounded = (2 * np.abs(above) + divisor) // (2 * divisor)
    signed: Numbers = rounded * np.sign(above) * np.sign(below)
    return np.where(below == 0, 0, signed)


def asked(*columns: Iterable[Any]) -> list[str]:
    """Give what a statement asks about, as the parameter of its json_each."""
    return [json.dumps(list(zip(*columns, strict=True)))]
