"""Consulting the oracle in a test: files in, rows out."""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

from digen import Digen

from tpcdi import oracle

Rows = list[tuple[object, ...]]
Ask = Callable[[str], Rows]
Consult = Callable[..., Ask]


def consulted(folder: Path) -> Consult:
    """Give a function that computes what a benchmark's files lead to, after a batch."""

    def consult(made: Digen, batches: int = 3) -> Ask:
        computed = oracle.compute(made.write(folder), batches)
        computed.execute("SET search_path = oracle")

        def ask(query: str) -> Rows:
            return [tuple(map(_plain, row)) for row in computed.execute(query).fetchall()]

        return ask

    return consult


def _plain(value: object) -> object:
    return str(value) if isinstance(value, date | Decimal) else value
