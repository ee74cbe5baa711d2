"""Forms: what a field has to look like. A row in which one does not is set aside where it comes in,
before any is held: so what is held can be worked with.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs import Batch, Transaction
from tpcdi.dataflow.outlets import SEVERAL

SHOWN_CHARACTERS = 100


class Form(NamedTuple):
    """What a field has to be; NULL is of any form."""

    name: str
    fits: Callable[[SEVERAL], SEVERAL]
    """Tells of each value if it is so."""


def _castable(type_: pa.DataType, least: str = "") -> Callable[[SEVERAL], SEVERAL]:
    """Make the test for texts of a type, and of the same length as the least one, if one is said:
    Arrow makes out shorter ones, too.
    """

    def is_one(text: str | None) -> bool:
        try:
            pc.cast(pa.scalar(text, pa.string()), type_)
        except pa.ArrowInvalid:
            return False
        return True

    def fits(texts: SEVERAL) -> SEVERAL:
        try:
            pc.cast(texts, type_)
            fit: SEVERAL = pc.equal(texts, texts)
        except pa.ArrowInvalid:
            fit = pa.array(map(is_one, texts.to_pylist()), pa.bool_())
        if not least:
            return fit
        is_long = pc.equal(pc.utf8_length(texts), len(least))
        return pc.and_(fit, pc.and_(is_long, pc.greater_equal(texts, least)))

    return fits


def _like(pattern: str) -> Callable[[SEVERAL], SEVERAL]:
    return lambda texts: pc.match_substring_regex(texts, f"^(?:{pattern})$")


def within(least: float, most: float) -> Form:
    """Make the form of a number between two."""
    return Form(
        f"a number from {least} to {most}",
        lambda values: pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most)),
    )


def one_of(*texts: str) -> Form:
    """Make the form of one of a few texts."""
    among = pa.array(texts)

    def fits(values: SEVERAL) -> SEVERAL:
        return pc.or_(pc.is_null(values), pc.is_in(values, among))

    return Form(f"one of {', '.join(texts)}", fits)


def decimal(digits: int, places: int) -> Form:
    """Make the form of a decimal number that is written."""
    type_ = pa.decimal128(digits, places)
    return Form(f"a number with {places} places", _castable(type_))


def or_empty(form: Form) -> Form:
    """Make a form of which an empty text is, too: that says that there is no value."""

    def fits(texts: SEVERAL) -> SEVERAL:
        return form.fits(pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts))

    return Form(form.name, fits)


DAY = Form("a day", _castable(pa.date32(), "0001-01-01"))
TIME = Form("a time", _castable(pa.timestamp("s"), "0001-01-01 00:00:00"))
WHOLE = Form("a whole number", _like("-?[0-9]{1,18}"))
TRUTH = Form("true or false", _castable(pa.bool_()))
FILLED = Form("there", _like("[\\s\\S]+"))
PRICE = within(0, 999_999.99)
AMOUNT = within(-99_999_999.99, 99_999_999.99)
ID = within(0, 90_000_000_000)
"""Of one, a number is made with more digits behind it."""
CHANGE = one_of("I", "U")
"""The flag of a change; there are no deletes."""

Wrong = dict[int, str]


def wrong(columns: Mapping[str, SEVERAL], forms: Mapping[str, Form]) -> Wrong:
    """Tell of each row that is not of these forms what is wrong with it."""
    found: Wrong = {}
    for name, form in forms.items():
        values = columns[name]
        fit = pc.fill_null(form.fits(values), True).to_numpy(zero_copy_only=False)
        for index in np.flatnonzero(~fit).tolist():
            said = f"{name} is not {form.name}: {values[index].as_py()!r:.{SHOWN_CHARACTERS}}"
            found.setdefault(index, said)
    return found


def without(tx: Transaction, batch: Batch, reasons: Wrong) -> pa.Table:
    """Give the rows of a batch without those that are wrong, and reject these."""
    rows = batch.table
    if not reasons:
        return rows
    for index, reason in reasons.items():
        tx.reject(batch.row(index), reason)
    is_right = np.ones(rows.num_rows, bool)
    is_right[list(reasons)] = False
    return rows.filter(pa.array(is_right))


def formed(tx: Transaction, batch: Batch, forms: Mapping[str, Form]) -> pa.Table:
    """Give the rows of a batch that are of these forms, and reject the others."""
    columns: Mapping[str, Any] = batch.table
    # Most batches of most streams are empty: a round has one of each.
    return without(tx, batch, wrong(columns, forms)) if len(batch.table) else batch.table
