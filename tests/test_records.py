"""Records: what lies side by side comes out as it was put in."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_procs import records
from etl_procs.records import PIECE, Records, compact, expanded

INTEGERS = st.one_of(st.none(), st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1))
REALS = st.one_of(st.none(), st.floats(allow_nan=False))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "u", "\u6c34", "v\0"]))
KINDS = st.sampled_from([(INTEGERS, pa.int64()), (REALS, pa.float64()), (TEXTS, pa.large_string())])


@st.composite
def columns(draw: st.DrawFn) -> list[pa.Array]:
    count = draw(st.integers(0, 6))
    kinds = draw(st.lists(KINDS, max_size=6))
    return [
        pa.array(draw(st.lists(values, min_size=count, max_size=count)), type_)
        for values, type_ in [(st.integers(0, 9), pa.int64()), *kinds]
    ]


@given(put=columns(), of=st.sampled_from([None, np.int32, np.int64]), seed=st.integers(0, 9))
def test_columns_come_out_as_they_were_put_in(put: list[pa.Array], of: Any, seed: int) -> None:
    count = len(put[0])
    order = np.random.default_rng(seed).permutation(count)
    codes = np.array([2**64 - 1 - n for n in range(count)], np.uint64)
    moments = None if of is None else np.array(range(count), of) - 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "FEW_TEXTS", 2)
        made = Records.of(codes, moments, [compact(column) for column in put], order)
    assert made.rows.itemsize % PIECE == 0
    for number, column in enumerate(put):
        found = expanded(made.column(number, made.rows, np.arange(count)))
        assert found.equals(column.take(pa.array(order)))
    if count:
        heads = made.head(np.arange(count + 2))
        ranks = [*order, order[-1], order[-1]]
        assert heads["code"].tolist() == codes[ranks].tolist()
        assert moments is None or heads["moment"].tolist() == moments[ranks].tolist()


def test_numbers_that_fit_take_half_the_memory() -> None:
    codes, order = np.arange(100, dtype=np.uint64), np.arange(100)
    for most, size in ((2**31 - 1, 16), (2**31, 32)):
        column = pa.array([*range(99), most])
        assert Records.of(codes, None, [column, column], order).rows.itemsize == size
