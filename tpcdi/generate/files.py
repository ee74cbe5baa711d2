"""The files of a batch: written whole, counted, with the audit's answers beside them."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path

from tpcdi.generate.columns import Table, Writer
from tpcdi.generate.crm import Answers

AUDIT_HEAD = "DataSet, BatchID ,Date , Attribute , Value, DValue"

Tell = Callable[[int], None]
"""Is told of rows as they are written."""


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
        """Write a file of lines."""
        with (self.path / name).open("w", encoding="utf-8", newline=self._eol) as file:
            rows = 0
            for line in lines:
                file.write(f"{line}\n")
                rows += are_rows
            self.count(name, rows)

    def writer(self, name: str, delimiter: str = "|") -> Writer:
        """Open a file of tables; the caller closes it."""
        return Writer(self.path / name, delimiter, self._eol, lambda rows: self.count(name, rows))

    def tables(self, name: str, tables: Iterable[Table], delimiter: str = "|") -> None:
        """Write a file of tables."""
        with self.writer(name, delimiter) as writer:
            for table in tables:
                writer.write(table)

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
