"""Fitting: rows that a user hands over are kept as they are, or refused; never changed."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
import typed
from hypothesis import given
from hypothesis import strategies as st

from etl_procs.batch import table_of, tuples_of
from etl_procs.columns import OF_OUTLETS, Columns, parse_tuple
from etl_procs.errors import CoreError
from etl_procs.fitting import Fitter, Rows

COLUMNS = parse_tuple("n INTEGER NOT NULL, x REAL, t TEXT", "t")
NAMES = COLUMNS.names

values: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.text(),
    st.text(alphabet=st.characters()),  # surrogates too
    st.binary(max_size=3),
    st.sampled_from(["\0", "a\0b", "\ud800", 10**400, 2**53, 2**53 + 1, -0.0, math.inf]),
)


def fit(rows: Rows, columns: Columns = COLUMNS) -> Any:
    return Fitter(columns).fit(rows, "somebody emits")


def is_kept(column: str, value: Any) -> bool:
    """Whether a value can be kept without any change, as the documentation says."""
    match column, value:
        case _, None:
            return column != "n"
        case _, bool():
            return False
        case "n", int():
            return bool(-(2**63) <= value < 2**63)
        case "x", int():
            return abs(value) < 2**1023 and int(float(value)) == value
        case "x", float():
            return not math.isnan(value)
        case "t", str():
            return "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)
    return False


@given(st.tuples(values, values, values))
def test_a_row_is_kept_as_it_is_or_refused(row: tuple[Any, ...]) -> None:
    given_row = dict(zip(NAMES, row, strict=True))
    if all(is_kept(name, value) for name, value in given_row.items()):
        assert fit([given_row]) == [row]
        (kept,) = fit([given_row])
        assert [type(v) for v in kept[:1]] == [int]
        assert isinstance(kept[1], float | None)
    else:
        with pytest.raises(CoreError, match="somebody emits a "):
            fit([given_row])


kept_rows = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    )
)


@given(kept_rows)
def test_rows_and_an_arrow_table_of_them_are_the_same(rows: list[tuple[Any, ...]]) -> None:
    table = table_of(rows, COLUMNS.arrow)
    fitted = fit(table)
    assert fitted.schema.equals(COLUMNS.arrow)
    assert tuples_of(fitted) == fit([dict(zip(NAMES, row, strict=True)) for row in rows]) == rows


def test_what_may_be_null_may_be_left_out() -> None:
    assert fit([{"n": 1}, {"t": "a", "n": 2}]) == [(1, None, None), (2, None, "a")]
    fitted = fit(pa.table({"t": ["a"], "n": [2]}))
    assert fitted.schema.equals(COLUMNS.arrow)
    assert tuples_of(fitted) == [(2, None, "a")]


def test_the_order_of_the_keys_of_a_row_and_of_a_tables_columns_does_not_matter() -> None:
    assert fit([{"t": "a", "n": 1, "x": None}]) == [(1, None, "a")]
    assert tuples_of(fit(pa.table({"t": ["a"], "x": [1.0], "n": [1]}))) == [(1, 1.0, "a")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "row without n"),
        ({"x": 1.0}, "row without n"),
        ({"n": 1, "x": 1.0, "t": "a", "u": 1}, "there is no column u"),
        ({"n": 1, "x": 1.0, "u": "a"}, "there is no column u"),
        ("nxt", "'nxt' is no dict"),
        (7, "7 is no dict"),
        ({"n": None, "x": 1.0, "t": "a"}, "row without n"),
        ({"n": 2**63, "x": None, "t": None}, "n is 9223372036854775808, beyond 64 bits"),
        ({"n": 10**5000, "x": None, "t": None}, "n is an integer of 16610 bits"),
        ({"n": 1, "x": None, "t": 5}, "t is 5, no TEXT"),
        ({"n": "9" * 10_000, "x": None, "t": None}, r"n is '9{199}\.\.\., no INTEGER"),
        ({"n": 1, "x": math.nan, "t": None}, "x is NaN"),
        ({"n": 1, "x": None, "t": "\0"}, "t with a NUL character"),
    ],
)
def test_a_refusal_names_column_and_value_and_says_what_fits(
    row: dict[str, Any], message: str
) -> None:
    with pytest.raises(CoreError, match=rf"somebody emits a .*{message}") as raised:
        fit([row])
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    "columns",
    [
        {"n": pa.array([1], pa.int8()), "x": pa.array([1.5], pa.float32()), "t": ["a"]},
        {"n": pa.array([1], pa.uint64()), "x": [None], "t": pa.array(["a"], pa.large_string())},
        {"n": [1], "x": pa.array([1.5], pa.float16()), "t": pa.array([None], pa.string())},
    ],
)
def test_a_table_of_narrower_types_fits_without_a_change(columns: dict[str, Any]) -> None:
    table = pa.table(columns)
    fitted = fit(table)
    assert fitted.schema.equals(COLUMNS.arrow)
    assert fitted.to_pylist() == table.to_pylist()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [1.0], "t": ["a"]}, "without n"),
        ({"n": [None], "x": [1.0], "t": ["a"]}, "without n"),
        ({"n": pa.array([2**63], pa.uint64()), "x": [1.0], "t": ["a"]}, "9223372036854775808"),
        ({"n": [1.0], "x": [1.0], "t": ["a"]}, "n is double, and not int64"),
        ({"n": [True], "x": [1.0], "t": ["a"]}, "n is bool, and not int64"),
        ({"n": [1], "x": [1], "t": ["a"]}, "x is int64, and not double"),
        ({"n": [1], "x": [1.0], "t": [b"a"]}, "t is binary, and not string"),
        ({"n": [1], "x": [math.nan], "t": ["a"]}, "x is NaN"),
        ({"n": [1], "x": [None], "t": ["a\0"]}, "NUL"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(CoreError, match=f"somebody emits a .*{message}"):
        fit(pa.table(columns))


def test_a_table_with_a_column_too_many_is_refused_like_a_row() -> None:
    with pytest.raises(CoreError, match="there is no column u"):
        fit(pa.table({"n": [1], "x": [1.0], "t": ["a"], "u": [1]}))


def test_text_that_is_no_utf8_inside_a_table_is_refused() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    )
    with pytest.raises(CoreError, match="does not fit"):
        fit(pa.table({"n": [1], "x": [1.0], "t": bad}))


def test_columns_of_one_name_and_no_columns_are_tuples_too() -> None:
    assert fit([{"n": 5}], parse_tuple("n INTEGER", "t")) == [(5,)]
    assert fit([{}], Columns("", ())) == [()]
    with pytest.raises(CoreError, match="there is no column n"):
        fit([{"n": 5}], Columns("", ()))


# The types that only an outlet has

SOLD = parse_tuple(
    "is_sale BOOLEAN, day DATE, at TIMESTAMP, price NUMERIC(5,2), number NUMERIC(38,0)",
    "sold",
    OF_OUTLETS,
)
NOON, DAY = datetime(2026, 5, 6, 12), date(2026, 5, 6)  # noqa: DTZ001 - a timestamp has no zone

sold_rows = st.lists(
    st.tuples(
        st.none() | st.booleans(),
        st.none() | st.dates(),
        st.none() | typed.TIMESTAMPS,
        st.none() | typed.decimals(5, 2),
        st.none() | typed.decimals(38, 0),
    )
)


@given(sold_rows)
def test_rows_of_an_outlets_types_and_an_arrow_table_of_them_are_the_same(
    rows: list[tuple[Any, ...]],
) -> None:
    fitted = fit(table_of(rows, SOLD.arrow), SOLD)
    assert fitted.schema.equals(SOLD.arrow)
    given_rows = [dict(zip(SOLD.names, row, strict=True)) for row in rows]
    assert tuples_of(fitted) == fit(given_rows, SOLD) == rows


@given(st.decimals() | st.integers() | st.decimals(-1000, 1000, places=3))
def test_a_number_is_a_numeric_if_it_is_one_without_being_rounded(value: Decimal | int) -> None:
    cents = Fraction(value) * 100 if isinstance(value, int) or value.is_finite() else None
    if cents is not None and cents.denominator == 1 and -100_000 < cents < 100_000:
        ((_, _, _, kept, _),) = fit([{"price": value}], SOLD)
        assert isinstance(kept, Decimal)
        assert kept == value
        assert kept.as_tuple().exponent == -2
    else:
        with pytest.raises(CoreError, match=r"price is .*, no NUMERIC\(5,2\)"):
            fit([{"price": value}], SOLD)


@pytest.mark.parametrize(
    ("name", "given_value", "kept"),
    [
        ("price", 5, Decimal("5.00")),
        ("price", Decimal("1.5"), Decimal("1.50")),
        ("price", Decimal("1E+2"), Decimal("100.00")),
        ("price", Decimal("0.5000"), Decimal("0.50")),
        ("day", "2026-05-06", DAY),
        ("at", "2026-05-06 12:00:00", NOON),
        ("at", "2026-05-06T12:00:00.25", NOON.replace(microsecond=250_000)),
    ],
)
def test_a_value_that_says_the_same_in_other_words_is_taken(
    name: str, given_value: Any, kept: Any
) -> None:
    (row,) = fit([{name: given_value}], SOLD)
    assert repr(row[SOLD.names.index(name)]) == repr(kept)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("is_sale", 1, "is_sale is 1, no BOOLEAN"),
        ("is_sale", "true", "is_sale is 'true', no BOOLEAN"),
        ("day", NOON, r"day is datetime.*, no DATE"),
        ("day", "2026-02-30", "day is '2026-02-30', no DATE"),
        ("day", "20260506", "day is '20260506', no DATE"),
        ("day", 20_579, "day is 20579, no DATE"),
        ("at", DAY, r"at is datetime\.date.*, no TIMESTAMP"),
        ("at", NOON.replace(tzinfo=UTC), "at is .*utc.*, no TIMESTAMP"),
        ("at", "2026-05-06 12:00:00Z", "at is '2026-05-06 12:00:00Z', no TIMESTAMP"),
        ("at", "2026-05-06 12:00:00.1234567", "no TIMESTAMP"),
        ("at", "2026-05-06", "no TIMESTAMP"),
        ("price", 0.1, "price is 0.1, no NUMERIC.*\n.*A float is not exact"),
        ("price", True, "price is True, no NUMERIC"),
        ("price", "1.50", "price is '1.50', no NUMERIC"),
        ("price", Decimal("1000"), "price is Decimal\\('1000'\\), no NUMERIC"),
        ("price", Decimal("0.005"), "price is Decimal\\('0.005'\\), no NUMERIC"),
        ("price", Decimal("sNaN"), "price is Decimal\\('sNaN'\\), no NUMERIC"),
    ],
)
def test_what_is_no_value_of_an_outlets_type_is_refused(
    name: str, value: Any, message: str
) -> None:
    with pytest.raises(CoreError, match=f"somebody emits a .*{message}"):
        fit([{name: value}], SOLD)


def test_arrows_narrower_and_wider_types_fit_where_no_value_changes() -> None:
    table = pa.table(
        {
            "at": pa.array([NOON, None], pa.timestamp("ns")),
            "price": pa.array([5, -999], pa.int64()),
            "number": pa.array([Decimal("7.000"), None], pa.decimal256(50, 3)),
        }
    )
    assert fit(table, SOLD).drop_columns(["is_sale", "day"]).to_pylist() == [
        {"at": NOON, "price": Decimal("5.00"), "number": Decimal(7)},
        {"at": None, "price": Decimal("-999.00"), "number": None},
    ]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("is_sale", pa.array([1]), "is_sale is int64, and not bool"),
        ("day", pa.array(["2026-05-06"]), "day is string, and not date32"),
        ("day", pa.array([NOON], pa.date64()), "day is date64"),
        ("day", pa.array([3_000_000], pa.date32()), "day is 3000000 as date32.*the years 1 to"),
        ("at", pa.array([NOON], pa.timestamp("us", "UTC")), "at is timestamp.*tz=UTC.*, and not"),
        ("at", pa.array([1], pa.timestamp("ns")), "at: .* would lose data: 1"),
        ("at", pa.array([-(2**62)], pa.timestamp("us")), "at is -4611686018427387904 as .*years"),
        ("price", pa.array([1.5]), "price is double, and not decimal"),
        ("price", pa.array([1, None, 1000]), "price is 1000, no NUMERIC"),
        ("price", pa.array([Decimal("0.125")]), "price is Decimal.*0.125.*, no NUMERIC"),
    ],
)
def test_a_table_that_is_not_of_an_outlets_types_is_refused(
    name: str, values: pa.Array, message: str
) -> None:
    with pytest.raises(CoreError, match=f"somebody emits a .*{message}"):
        fit(pa.table({name: values}), SOLD)


def test_decimals_that_are_more_than_they_say_are_refused() -> None:
    """Arrow's own arithmetic does not look."""
    units = pa.array([Decimal(1_000_000)], pa.decimal128(38, 0)).buffers()
    beyond = pa.Array.from_buffers(pa.decimal128(5, 2), 1, units)
    with pytest.raises(CoreError, match=r"price is Decimal.*10000\.00.*, no NUMERIC"):
        fit(pa.table({"price": beyond}), SOLD)
