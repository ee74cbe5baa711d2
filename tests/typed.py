"""Values of the types that only an outlet has, and these types in SQL and in Arrow."""

import operator
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

NUMERICS = [
    *((1, 0), (1, 1), (8, 2), (9, 9), (15, 2), (15, 5), (18, 0), (18, 2), (19, 3)),
    *((38, 0), (38, 19), (38, 37), (38, 38)),
]
"""Precisions and scales: around what fits into 64 bits, and at the limits."""


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    """Decimals of every length, and those that end with zeros."""
    most = 10**precision - 1
    some = st.integers(0, precision).flatmap(lambda places: st.integers(0, 10**places - 1))
    zeros = st.integers(0, precision).map(lambda places: 10**places)
    amounts = st.builds(operator.mul, some, zeros).filter(lambda amount: amount <= most)
    signed = st.builds(operator.mul, amounts | st.just(most), st.sampled_from([1, -1]))
    return signed.map(lambda units: decimal(units, scale))


def decimal(units: int, scale: int) -> Decimal:
    """Make one of so many units of its last place."""
    return Decimal(units).scaleb(-scale, Context(prec=38))


TIMESTAMPS = st.datetimes().map(lambda time: time.replace(fold=0))

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), TIMESTAMPS),
    **{f"numeric({p},{s})": (pa.decimal128(p, s), decimals(p, s)) for p, s in NUMERICS},
}
