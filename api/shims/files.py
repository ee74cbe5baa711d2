"""Files: tables that are folders of Parquet files, which DuckDB reads and nobody here writes.

What a table has is in the files that are there when a query begins. Its columns are those that
they have when the API starts.
"""

import logging
import re
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
from sqlglot import parse_one

from api import duck, sources
from api.answer import Column
from api.catalogue import Flow, Shown
from api.costs import Estimate
from api.cut import Part, Seen, There
from api.errors import (
    CANCELLED,
    SLOW,
    NotReady,
    QueryCancelled,
    TooSlow,
    Unfinished,
)
from api.kinds import of_columns
from etl_procs import columns
from etl_procs.columns import Columns, Type
from etl_procs.model import Outlet
from headrace.config import Config
from headrace.errors import ConfigError

TYPES = {
    **dict.fromkeys(["TINYINT", "SMALLINT", "INTEGER", "BIGINT"], Type.INTEGER),
    **dict.fromkeys(["UTINYINT", "USMALLINT", "UINTEGER"], Type.INTEGER),
    **dict.fromkeys(["FLOAT", "DOUBLE"], Type.REAL),
    "VARCHAR": Type.TEXT,
    "BOOLEAN": Type.BOOLEAN,
    "DATE": Type.DATE,
    **dict.fromkeys(["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"], Type.TIMESTAMP),
}
"""What DuckDB's types of columns are to a query."""
DECIMAL = re.compile(r"DECIMAL\(([0-9]+),([0-9]+)\)")

LOOKING_MB = 128

ROWS_MOST = 2**63 - 1
"""As a limit it keeps nothing away, but has DuckDB decide first what is beneath it: what a query
computes of a row that is hidden could tell of it in an error."""

ROW_BYTES = 32
"""About: files do not say."""
UNITS_PER_ROW = 0.01
"""What a row costs that DuckDB touches, in the unit of PostgreSQL's planner."""
CARDINALITY = re.compile(r'"Estimated Cardinality": *"?([0-9]+)')

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of tables: a value that can be told to another process."""

    name: str
    path: Path
    outlets: tuple[Outlet, ...]
    """The tables, as outlets that no dataflow gives anything to."""

    def takes(self, outlet: Outlet) -> bool:
        """Tell whether a table is one of these."""
        return outlet in self.outlets


def folders(config: Config) -> tuple[Folder, ...]:
    """Look at the folders that are configured."""
    return tuple(folder(name, of.folder) for name, of in config.files.items())


def folder(name: str, path: Path) -> Folder:
    """Look at which tables a folder has, and at their columns."""
    if not path.is_dir():
        raise ConfigError(
            f"files.{name}.folder is {path}, and there is no such folder",
            hint="Make it, with a folder for each table in it.",
        )
    connection = duck.locked(LOOKING_MB, path)
    tables = []
    for inside in sorted(one for one in path.iterdir() if one.is_dir()):
        columns.check_name(inside.name, f"files.{name}")
        if files := _files(inside):
            tables.append(Outlet(name, inside.name, _columns(connection, inside, files)))
    connection.close()
    if not tables:
        raise ConfigError(
            f"files.{name}.folder is {path}, and no folder in it has a Parquet file",
            hint="Each table is a folder with at least one file *.parquet.",
        )
    return Folder(name, path, tuple(tables))


class Files:
    """A session with the files of a folder."""

    dialect = "duckdb"
    orders_text = True

    def __init__(self, place: Folder, memory_mb: int) -> None:
        self.name = place.name
        self._place = place
        self._connection = duck.locked(memory_mb, place.path)
        self._timeout_ms = 0
        self._files: dict[Outlet, list[Path]] = {}

    def limit(self, timeout_ms: int) -> None:
        """Have DuckDB end what takes longer."""
        self._timeout_ms = timeout_ms

    def snapshot(self, _flows: Sequence[Flow]) -> Seen:
        """Look at which files there are."""
        with self._reading():
            self._files = {o: _files(self._place.path / o.name) for o in self._place.outlets}
        return {}

    def there(self, shown: Shown, _part: Part) -> str:
        """Select what the files have, as values of the table's columns."""
        files = self._files[shown.outlet]
        if not files:
            none = Shown(shown.outlet, shown.columns)
            return sources.there(none, Part(There.NONE)).as_string(None)
        kinds = of_columns(shown.outlet)
        typed = ", ".join(f'CAST("{n}" AS {kinds[n].duckdb}) AS "{n}"' for n in kinds)
        names = ", ".join(f'"{name}"' for name in shown.columns)
        text = f"SELECT {names} FROM (SELECT {typed} FROM {_read(files)}) AS there"  # noqa: S608
        if shown.where:
            where = parse_one(shown.where, dialect="postgres").sql("duckdb", identify=True)
            text += f" WHERE {where} LIMIT {ROWS_MOST}"
        return text

    def estimate(self, query: str) -> Estimate:
        """Have DuckDB's planner say what it expects."""
        with self._reading():
            ((_, plan),) = self._connection.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchall()
        # The last is the root's. Where it sees that there can be no rows, it tells no number.
        rows = [int(found) for found in CARDINALITY.findall(plan)] or [0]
        return Estimate(max(rows[-1], 1), ROW_BYTES, sum(rows) * UNITS_PER_ROW)

    def rows(self, query: str, columns: Sequence[Column]) -> Generator[pa.RecordBatch]:
        """Ask, and give its rows as they come."""
        schema = pa.schema([pa.field(column.name, column.arrow) for column in columns])
        values = ", ".join(duck.cast(f'"{c.name}"', c.type) for c in columns)
        text = f"SELECT {values} FROM ({query}) AS rows"  # noqa: S608 - written here
        with self._reading():
            for batch in self._connection.sql(text).to_arrow_reader(duck.BATCH_ROWS):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def end(self) -> None:
        """Forget which files there were."""
        self._files = {}

    def cancel(self) -> None:
        """Have what runs end, unless it is closed already."""
        with suppress(duckdb.ConnectionException):
            self._connection.interrupt()

    def close(self) -> None:
        """Close DuckDB."""
        self._connection.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Bound what is done in time, and say what is wrong with it."""
        late = threading.Timer(self._timeout_ms / 1_000, self.cancel)
        late.daemon = True
        late.start()
        try:
            yield
        except duckdb.InterruptException as error:
            if late.finished.is_set():
                what = f"the query took longer than {self._timeout_ms} ms"
                raise TooSlow(what, hint=SLOW) from error
            raise QueryCancelled(CANCELLED, hint="Ask it again.") from error
        except (duckdb.IOException, OSError) as error:
            log.warning("reading the files of %s: %s", self.name, error)
            raise NotReady(
                f"a file of {self.name} that was there when the query began cannot be read",
                hint="Ask again. Add files whole and under new names, and change none.",
            ) from error
        except duckdb.Error as error:
            log.warning("computing over the files of %s: %s", self.name, error)
            raise Unfinished(
                f"the files of {self.name} have what the query cannot be computed of",
                hint="The API's log tells what it is: a value that is too large, or of another "
                "type than when the API was started.",
            ) from error
        finally:
            late.cancel()


def _files(inside: Path) -> list[Path]:
    """List the files of a table; one whose name begins with a dot is still being written."""
    return sorted(one for one in inside.glob("*.parquet") if not one.name.startswith("."))


def _read(files: Sequence[Path]) -> str:
    names = ", ".join(duck.quoted(str(file)) for file in files)
    return f"read_parquet([{names}], union_by_name = true, hive_partitioning = false)"


def _columns(connection: duckdb.DuckDBPyConnection, inside: Path, files: Sequence[Path]) -> Columns:
    try:
        found = connection.execute(f"DESCRIBE FROM {_read(files)}").fetchall()
    except duckdb.Error as error:
        raise ConfigError(
            f"the Parquet files in {inside} cannot be read: {error}",
            hint="Mend them, or move them.",
        ) from error
    made = [_column(name, type_) for name, type_, *_ in found if columns.NAME.fullmatch(name)]
    known = tuple(column for column in made if column is not None)
    if left := sorted({name for name, *_ in found} - {column.name for column in known}):
        log.warning("of %s, queries do not see: %s", inside, ", ".join(left))
    if not known:
        raise ConfigError(
            f"the Parquet files in {inside} have no column that a query can see",
            hint="See docs/querying.md for the names and types that columns may have.",
        )
    return Columns(", ".join(f"{column.name} {column.sql}" for column in known), known)


def _column(name: str, type_: str) -> columns.Column | None:
    if found := DECIMAL.fullmatch(type_):
        return columns.Column(name, Type.NUMERIC, False, int(found[1]), int(found[2]))
    return columns.Column(name, TYPES[type_], False) if type_ in TYPES else None
