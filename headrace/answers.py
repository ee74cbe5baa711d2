"""Answers: the rows of a query as a client has them, and all of them or none."""

import json
from collections.abc import Iterator
from decimal import Decimal
from http.client import HTTPException
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from headrace.errors import Missing
from headrace.replies import BrokenOff, ClientError, Reply, problem_of

if TYPE_CHECKING:
    import pyarrow as pa

END = b"headrace"
"""The key of what Arrow's schema and last batch say of the answer."""
TYPE, NUMERIC = b"headrace.type", (b"numeric", b"numeric[]")
DIGITS_MOST = 38
"""Of a decimal that Arrow, pandas and polars all have."""


class Answer:
    """The rows of one SELECT: all at once, or batch by batch, which takes no more memory than one
    of them. Only once can they be read batch by batch.
    """

    def __init__(self, reply: Reply) -> None:
        import pyarrow as pa  # here, because most clients need it and some do not

        self._reply = reply
        self._lost = (OSError, HTTPException, pa.ArrowException, ValueError)
        self._is_begun = False
        self._table: pa.Table | None = None
        try:
            self._stream = pa.ipc.open_stream(reply.response)
            head = json.loads(self._stream.schema.metadata[END])
        except (*self._lost, LookupError, TypeError) as error:
            raise self._broken() from error
        self.schema: pa.Schema = self._stream.schema.remove_metadata()
        self.as_of: dict[str, int] = head["as_of"]
        """The batch of each dataflow, or of each of its partitions, that the answer is as of."""
        self.freshness: str = head["freshness"]
        self.plan: str = head["plan"]

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        """Give the rows, batch by batch."""
        if self._table is not None:
            return iter(self._table.to_batches())
        if self._is_begun:
            raise ClientError(
                "the rows of this answer have been read already", hint="Ask the query again."
            )
        self._is_begun = True
        return self._batches()

    def arrow(self) -> "pa.Table":
        """Give all rows. A numeric of unknown digits is its text."""
        import pyarrow as pa

        if self._table is None:
            self._table = pa.Table.from_batches(iter(self), self.schema)
        return self._table

    def rows(self) -> list[tuple[Any, ...]]:
        """Give all rows as Python's values, decimals as Decimal."""
        table = self.arrow()
        columns = [_values(field, table[n]) for n, field in enumerate(table.schema)]
        return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows

    def pandas(self) -> Any:
        """Give all rows as a DataFrame with Arrow's types: integers are exact, and NULL is no NaN.

        A numeric is a decimal; one that holds NaN, infinities or more than 38 digits is its text.
        """
        pandas = _imported("pandas")
        return _exact(self.arrow()).to_pandas(types_mapper=pandas.ArrowDtype)

    def polars(self) -> Any:
        """Give all rows as a DataFrame of polars, with decimals as `pandas` has them."""
        return _imported("polars").from_arrow(_exact(self.arrow()))

    def close(self) -> None:
        """Leave what has not been read; the query ends."""
        self._reply.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _batches(self) -> "Iterator[pa.RecordBatch]":
        rows = 0
        while True:
            try:
                batch, told = self._stream.read_next_batch_with_custom_metadata()
            except (*self._lost, StopIteration) as error:
                raise self._broken() from error
            if told is not None and END in told:
                break
            rows += batch.num_rows
            yield batch.replace_schema_metadata(None)
        end = json.loads(told[END])
        if "error" in end:
            self._reply.close()
            raise problem_of(end["error"])
        try:
            self._reply.finish()
        except self._lost as error:
            raise self._broken() from error
        if end["end"]["rows"] != rows:
            raise self._broken()

    def _broken(self) -> BrokenOff:
        self._reply.close()
        return BrokenOff(
            "the answer has ended before it was whole",
            hint="Ask the query again; `headrace logs api` may tell more.",
        )


def _imported(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise Missing(
            f"{package} is not installed", hint="pip install 'headrace[analysis]'"
        ) from error


def _values(field: "pa.Field", column: "pa.ChunkedArray") -> list[Any]:
    found: list[Any] = column.to_pylist()
    return [_decimal(value) for value in found] if _is_text(field) else found


def _decimal(value: Any) -> Any:
    if isinstance(value, list):
        return [_decimal(one) for one in value]
    return None if value is None else Decimal(value)


def _is_text(field: "pa.Field") -> bool:
    """Tell whether a numeric is its text."""
    of_list = str(field.type).startswith("list")
    inner = field.type.value_type if of_list else field.type
    return (field.metadata or {}).get(TYPE) in NUMERIC and str(inner) == "string"


def _exact(table: "pa.Table") -> "pa.Table":
    """Make decimals of numerics that are texts, where all values of a column are such."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if not _is_text(field) or field.metadata[TYPE] != NUMERIC[0]:
            continue
        values = _values(field, table[place])
        there = [value.as_tuple() for value in values if value is not None]
        if not all(isinstance(one.exponent, int) for one in there):
            continue
        scale = max((max(-one.exponent, 0) for one in there), default=0)
        whole = max(
            (len(one.digits) + max(one.exponent, -len(one.digits)) for one in there), default=0
        )
        if whole + scale <= DIGITS_MOST:
            typed = pa.array(values, pa.decimal128(DIGITS_MOST, scale))
            table = table.set_column(place, field.name, typed)
    return table
