"""Costs: what a plan would take, in milliseconds, from rows, bytes and rates of this machine.

The rates below were measured on two cores; `headrace calibrate` measures them anew, and keeps them
in the data folder.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from headrace.errors import ConfigError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast things are here, in microseconds; and of what is fixed, in milliseconds."""

    fetch_us_per_row: float = 0.25
    """A row from a warehouse as Arrow, and"""
    fetch_us_per_byte: float = 0.004
    ship_us_per_row: float = 0.5
    """A staged row into a warehouse's temporary table, and"""
    ship_us_per_value: float = 0.2
    ship_us_per_byte: float = 0.004
    write_us_per_value: float = 0.5
    """A staged value written into a query, and"""
    write_us_per_byte: float = 0.01
    shipped_us_per_row: float = 0.15
    """A shipped or written row, where the query reads it."""
    island_us_per_row: float = 0.03
    """A staged row, where the island reads it."""
    unit_us: float = 2.0
    """What PostgreSQL's planner calls a cost of 1."""
    ship_ms: float = 1.5
    """To ship anything at all."""
    island_ms: float = 5.0
    """To have the island finish a query."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What PostgreSQL's planner expects of a query."""

    rows: float
    width: float
    """Bytes of a row."""
    cost: float


@dataclass(frozen=True, slots=True)
class Staged:
    """How much is staged of a table of a query."""

    rows: int
    size: int
    copied: int
    """So many values of a row are sent into a temporary table: all."""
    written: int
    """Or into the query: those that it reads, and the key once more."""
    keys: int
    """Those of its key; 0 for rows that nothing replaces."""
    keys_share: float
    """The part of the bytes that is the key."""
    is_written: bool
    """They are so few that they are written into a query."""


def shipped(rates: Rates, query: Estimate, held: Sequence[Staged], *, adds_rows: bool) -> float:
    """Tell what it takes to send what is staged, and ask there."""
    staged = sum(one.rows for one in held)
    rows = query.rows + (staged if adds_rows else 0)
    return sent(rates, held) + asked(rates, query, rows)


def sent(rates: Rates, held: Iterable[Staged]) -> float:
    """Tell what it takes to send what is staged to a warehouse for one query, and read it there."""
    return sum(_sent(rates, one) for one in held)


def moved(rates: Rates, held: Iterable[Staged]) -> float:
    """Tell what it takes to send what is staged to a warehouse for good."""
    return sum(_copied(rates, one) for one in held)


def split(rates: Rates, part: Estimate, staged: Staged | None) -> float:
    """Tell what it takes to ask for parts, and finish here."""
    keys = here = 0.0
    if staged is not None:
        here = _us(staged.rows * rates.island_us_per_row)
        if staged.keys:
            size = round(staged.size * staged.keys_share)
            only = replace(staged, size=size, copied=staged.keys, written=staged.keys)
            keys = _sent(rates, only)
    return keys + rates.island_ms + here + asked(rates, part)


def _sent(rates: Rates, staged: Staged) -> float:
    read = _us(staged.rows * rates.shipped_us_per_row)
    if not staged.is_written:
        return _copied(rates, staged) + read
    values = staged.rows * staged.written
    return _us(values * rates.write_us_per_value + staged.size * rates.write_us_per_byte) + read


def _copied(rates: Rates, staged: Staged) -> float:
    by_row = rates.ship_us_per_row + staged.copied * rates.ship_us_per_value
    return rates.ship_ms + _us(staged.rows * by_row + staged.size * rates.ship_us_per_byte)


def gathered(rates: Rates, fetched: Iterable[Estimate], held: Iterable[Staged]) -> float:
    """Tell what it takes to bring rows here, and compute here."""
    found = list(fetched)
    rows = sum(one.rows for one in held) + sum(estimate.rows for estimate in found)
    here = rates.island_ms + _us(rows * rates.island_us_per_row)
    return here + sum(asked(rates, estimate) for estimate in found)


def lent(rates: Rates, fetched: Iterable[tuple[Estimate, int]], held: Iterable[Staged]) -> float:
    """Tell what it takes to bring rows of so many columns from other engines to a warehouse, and to
    read them there.
    """
    return sent(rates, held) + sum(
        asked(rates, each)
        + rates.ship_ms
        + _us(each.rows * (rates.ship_us_per_row + columns * rates.ship_us_per_value))
        + _us(each.rows * (each.width * rates.ship_us_per_byte + rates.shipped_us_per_row))
        for each, columns in fetched
    )


def asked(rates: Rates, query: Estimate, rows: float | None = None) -> float:
    """Tell what it takes to ask for so many rows, or as many as are expected."""
    rows = query.rows if rows is None else rows
    per_row = rates.fetch_us_per_row + query.width * rates.fetch_us_per_byte
    return _us(query.cost * rates.unit_us + rows * per_row)


def _us(microseconds: float) -> float:
    return microseconds / 1_000


def load(path: Path) -> Rates:
    """Give the rates that were measured here, or those that are known of another machine."""
    if not path.is_file():
        return Rates()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rates = {name: float(rate) for name, rate in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} does not hold the rates of this machine: {error!r}",
            hint="Delete it, or measure them anew: `headrace calibrate`.",
        ) from error
    if rates.keys() != {field.name for field in fields(Rates)}:
        log.warning("%s has other rates than are in use: run `headrace calibrate` anew", path)
        return Rates()
    return Rates(**rates)


def written(rates: Rates) -> Mapping[str, float]:
    """Give the rates as they are kept."""
    return asdict(rates)
