"""Finishing: the parts of a divided query become its answer, in DuckDB and in this process.

DuckDB sees what is handed to it and nothing else.
"""

from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import chain
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from api import duck
from api.answer import Column
from api.errors import CANCELLED, QueryCancelled, Unfinished
from api.joined import Source
from api.kinds import Kind, Sort
from api.pieces import Pieces
from api.split import Cell, Out, Split
from headrace.errors import HeadraceError

THERE, STAGED = "there", "staged"
CELLS = {
    Sort.INTEGER: "bigint",
    Sort.REAL: "double precision",
    Sort.TEXT: "text",
    Sort.BOOLEAN: "boolean",
    Sort.DATE: "date",
    Sort.TIMESTAMP: "timestamp without time zone",
    Sort.NUMERIC: "numeric",
}
"""PostgreSQL's types of cells."""
# PostgreSQL's rule for how many digits a quotient of decimals has: numeric.c, select_div_scale.
DIGITS_MIN, GROUP = 16, 4
EXACT = Context(prec=1_000, rounding=ROUND_HALF_UP)


class Finisher:
    """A DuckDB of its own, locked."""

    def __init__(self, memory_mb: int) -> None:
        self._connection = duck.locked(memory_mb)
        self._failed: HeadraceError | None = None

    def finish(
        self,
        split: Split,
        columns: Sequence[Column],
        there: Generator[pa.RecordBatch],
        staged: tuple[pa.Schema, Iterable[pa.Table]] | None,
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows of an answer: of what was asked there, and of what is staged."""
        schema = pa.schema([pa.field(column.name, column.arrow) for column in columns])
        with closing(there):
            given: dict[str, Any] = {}
            if staged is not None:
                schema_here, rows = staged
                batches = (batch for some in rows for batch in some.to_batches())
                given[STAGED] = pa.RecordBatchReader.from_batches(schema_here, self._heard(batches))
            if split.merged:
                # DuckDB's threads are busy while they wait: not as long as the warehouse computes.
                first = next(there, None)
                heard = self._heard(there if first is None else chain([first], there))
                given[THERE] = pa.RecordBatchReader.from_batches(_schema(split.cells), heard)
            else:
                for batch in there:
                    yield _record([batch[_number(out)] for out in split.outs], schema)
            if given:
                yield from self._rows(split.outs, columns, island_sql(split, given), given)

    def gather(
        self,
        split: Split,
        pieces: Pieces,
        columns: Sequence[Column],
        tables: Mapping[str, pa.Table],
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows of an answer, of all rows that may count."""
        yield from self._rows(split.outs, columns, gathered_sql(split, pieces, tables), tables)

    def read(self, rows: pa.Table) -> None:
        """Make one of rows and of a few others, as of parts: to see how long that takes."""
        given = {STAGED: rows, THERE: rows.slice(0, 1)}
        for name, part in given.items():
            self._connection.register(name, part)
        parts = f"SELECT * FROM {THERE} UNION ALL SELECT * FROM {STAGED}"  # noqa: S608 - names of ours
        text = f"SELECT t, sum(c), sum(s) FROM (SELECT t, count(*) c, sum(n) s FROM ({parts}) "  # noqa: S608
        self._connection.sql(text + "GROUP BY t) GROUP BY t").to_arrow_table()
        for name in given:
            self._connection.unregister(name)

    def interrupt(self) -> None:
        """Have what runs end. Another thread may ask for it."""
        self._connection.interrupt()

    def _heard(self, there: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give rows to DuckDB, which would tell what goes wrong with them as its own error."""
        try:
            yield from there
        except HeadraceError as error:
            self._failed = error
            raise

    def _rows(
        self,
        outs: Sequence[Out],
        columns: Sequence[Column],
        query: str,
        given: Mapping[str, Any],
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([pa.field(column.name, column.arrow) for column in columns])
        values = [duck.cast(f"o{n}", column.type) for n, column in enumerate(columns)]
        values += [f"n{n}" for n, out in enumerate(outs) if out.count]
        self._failed = None
        try:
            for name, rows in given.items():
                self._connection.register(name, rows)
            text = f"SELECT {', '.join(values)} FROM ({query}) AS outs"  # noqa: S608 - names of ours
            for batch in self._connection.sql(text).to_arrow_reader(duck.BATCH_ROWS):
                counts = iter(batch.columns[len(outs) :])
                made = [
                    _divided(batch[n], next(counts)) if out.count else batch[n]
                    for n, out in enumerate(outs)
                ]
                yield _record(made, schema)
        except duckdb.InterruptException as error:
            raise QueryCancelled(CANCELLED, hint="Ask it again.") from error
        except duckdb.Error as error:
            failed, self._failed = self._failed, None
            if failed is not None:
                raise failed from error
            raise Unfinished(
                f"the island cannot compute it: {error}", hint="Ask with the plan ship."
            ) from error
        finally:
            for name in given:
                self._connection.unregister(name)


def island_sql(split: Split, tables: Container[str]) -> str:
    """Write what DuckDB is asked of what is staged, and of the parts."""
    typed = _typed({f"c{n}": cell.kind for n, cell in enumerate(split.cells)})
    texts = []
    if THERE in tables:
        texts.append(f"SELECT {typed} FROM {THERE}")  # noqa: S608 - names of ours
    if STAGED in tables:
        (source,) = split.sources
        here = split.asked("duckdb").filled([_staged(source, source.shown.columns, STAGED)])
        if not split.merged:
            return _as_outs(split, here)
        texts.append(f"SELECT {typed} FROM ({here}) AS here")  # noqa: S608 - names of ours
    return f"WITH parts AS ({' UNION ALL '.join(texts)}) {split.merged}"


def gathered_sql(split: Split, pieces: Pieces, tables: Container[str]) -> str:
    """Write what DuckDB is asked of the rows of all tables."""
    texts = []
    for number, piece in enumerate(pieces.pieces):
        there, staged = gathered(number)
        text = f"SELECT {_typed(piece.columns)} FROM {there} AS there"  # noqa: S608 - names of ours
        if staged in tables:
            (source,) = piece.sources
            if source.shown.outlet.key:
                same = " AND ".join(f'staged."{k}" = there."{k}"' for k in source.shown.outlet.key)
                text += f" WHERE NOT EXISTS (SELECT 1 FROM {staged} AS staged WHERE {same})"  # noqa: S608
            text += f" UNION ALL {_staged(source, tuple(piece.columns), staged)}"
        texts.append(text)
    here = pieces.here.filled(texts)
    return f"WITH parts AS ({here}) {split.merged}" if split.merged else _as_outs(split, here)


def gathered(number: int) -> tuple[str, str]:
    """Name what is there of a table, and what is staged of it."""
    return f"{THERE}{number}", f"{STAGED}{number}"


def of_cells(cells: Sequence[Cell]) -> tuple[Column, ...]:
    """Give the columns of a part, as it comes from a warehouse."""
    return tuple(Column(f"c{n}", CELLS[cell.kind.sort]) for n, cell in enumerate(cells))


def _schema(cells: Sequence[Cell]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.arrow) for column in of_cells(cells)])


def _staged(source: Source, columns: Sequence[str], table: str) -> str:
    names = ", ".join(f'"{name}"' for name in columns)
    conditions = ["NOT _deleted"] if source.shown.outlet.key else []
    conditions += [source.restricted] if source.restricted else []
    where = " WHERE " + " AND ".join(conditions) if conditions else ""
    return f"SELECT {names} FROM {table}{where}"  # noqa: S608 - names of ours


def _as_outs(split: Split, here: str) -> str:
    text = ", ".join(f"c{_number(out)} AS o{n}" for n, out in enumerate(split.outs))
    return f"SELECT {text} FROM ({here}) AS parts"  # noqa: S608 - names of ours


def _typed(kinds: Mapping[str, Kind]) -> str:
    return ", ".join(f'CAST("{name}" AS {kind.duckdb}) AS "{name}"' for name, kind in kinds.items())


def _number(out: Out) -> int:
    return int(out.expression.name[1:])


def _record(given: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    cast = [
        values if values.type == field.type else pc.cast(values, field.type)
        for values, field in zip(given, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _divided(sums: pa.Array, counts: pa.Array) -> pa.Array:
    """Make averages."""
    pairs = zip(sums.to_pylist(), counts.to_pylist(), strict=True)
    return pa.array(
        [None if total is None else quotient(Decimal(total), count) for total, count in pairs],
        pa.string(),
    )


def quotient(total: Decimal, count: int) -> str:
    """Divide as PostgreSQL divides decimals, and write what comes out."""
    weight, first = _leading(total)
    by_weight, by_first = _leading(Decimal(count))
    weight -= by_weight + (first <= by_first)
    exponent = total.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(DIGITS_MIN - weight * GROUP, -exponent, 0)
    return format(
        EXACT.quantize(
            EXACT.divide(total, Decimal(count)),
            Decimal(1).scaleb(-scale, EXACT),
        ),
        "f",
    )


def _leading(value: Decimal) -> tuple[int, int]:
    """Tell the weight of the first group of four digits, and the group."""
    if not value:
        return 0, 0
    weight = value.adjusted() // GROUP
    return weight, int(abs(value.scaleb(-weight * GROUP, EXACT)))
