"""The files of a batch: written whole, counted, with the audit's answers beside them."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path

import pyarrow as pa

from tpcdi.generate import columns
from tpcdi.generate.columns import Table
from tpcdi.generate.crm import Answers

AUDIT_HEAD = "DataSet, BatchID ,Date , Attribute , Value, DValue"

Tell = Callable[[int], None]
"""Is told of rows as they are written."""


def delimiter(name: str) -> str:
    """Tell what is between the fields of a file."""
    return "," if name.endswith(".csv") else "|"


class Batch:
    """A batch's folder."""

    def __init__(self, root: Path, number: int, eol: str, tell: Tell) -> None:
        self.path = root / f"Batch{number}"
        self.path.mkdir()
        self.number = number
        self.rows: Counter[str] = Counter()
        self._eol = eol
        self._tell = tell

    def lines(self, name: str, lines: Iterable[str], *, are_rows: bool = True) -> None:
        """Append lines to a file."""
        with (self.path / name).open("a", encoding="utf-8", newline=self._eol) as file:
            rows = 0
            for line in lines:
                file.write(f"{line}\n")
                rows += are_rows
            self.count(name, rows)

    def table(self, name: str, table: Table) -> None:
        """Append rows to a file."""
        with pa.OSFile(str(self.path / name), "ab") as file:
            columns.write(table, file, delimiter(name), self._eol)
        self.count(name, table.num_rows)

    def count(self, name: str, rows: int) -> None:
        """Count rows."""
        self.rows[name] += rows
        self._tell(rows)

    def answer(self, answers: Answers) -> None:
        """Write the audit's answers."""
        files: dict[str, list[str]] = {}
        for (file, table, attribute), value in answers.items():
            line = f"{table},{self.number},,{attribute},{value},"
            files.setdefault(file, [AUDIT_HEAD]).append(line)
        for file, lines in files.items():
            self.lines(f"{file}_audit.csv", lines, are_rows=False)


def batch_dates(number: int, first: date, last: date) -> list[str]:
    """Say which days a batch may speak of."""
    days = {"FirstDay": first, "LastDay": last}
    return [AUDIT_HEAD, *(f"Batch,{number},{day},{name},," for name, day in days.items())]
