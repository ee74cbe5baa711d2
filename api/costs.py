"""Costs: what a plan would take, in milliseconds, from rows, bytes and rates of this machine.

The rates below were measured on two cores; `headrace calibrate` measures them anew, and keeps them
in the data folder.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast things are here, in microseconds; and of what is fixed, in milliseconds."""

    fetch_us_per_row: float = 0.25
    """A row from a warehouse as Arrow, and"""
    fetch_us_per_byte: float = 0.004
    ship_us_per_row: float = 0.9
    """A staged row into a warehouse's temporary table, and"""
    ship_us_per_byte: float = 0.004
    shipped_us_per_row: float = 0.15
    """A shipped row, where the query reads it."""
    island_us_per_row: float = 0.03
    """A staged row, where the island reads it."""
    unit_us: float = 2.0
    """What PostgreSQL's planner calls a cost of 1."""
    ship_ms: float = 1.5
    """To ship anything at all."""
    island_ms: float = 1.5
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
    """How much is staged of the tables of a query."""

    rows: int
    size: int
    tables: int
    keys_share: float
    """The part of the bytes that is keys, where rows that are there must be told apart."""


def in_warehouse(rates: Rates, query: Estimate) -> float:
    """Tell what a query takes that one warehouse answers alone."""
    return _asked(rates, query, query.rows)


def shipped(rates: Rates, query: Estimate, staged: Staged, *, adds_rows: bool) -> float:
    """Tell what it takes to ship what is staged, and ask there."""
    rows = query.rows + (staged.rows if adds_rows else 0)
    there = _us(staged.rows * rates.shipped_us_per_row) + _asked(rates, query, rows)
    return moved(rates, staged) + there


def moved(rates: Rates, staged: Staged) -> float:
    """Tell what it takes to send what is staged to a warehouse, for one query or for good."""
    return rates.ship_ms * staged.tables + _us(
        staged.rows * rates.ship_us_per_row + staged.size * rates.ship_us_per_byte
    )


def split(rates: Rates, part: Estimate, staged: Staged) -> float:
    """Tell what it takes to ask for parts, and finish here."""
    keys = 0.0
    if staged.keys_share:
        size = staged.size * staged.keys_share
        keys = rates.ship_ms + _us(
            staged.rows * (rates.ship_us_per_row + rates.shipped_us_per_row)
            + size * rates.ship_us_per_byte
        )
    here = rates.island_ms + _us(staged.rows * rates.island_us_per_row)
    return keys + here + _asked(rates, part, part.rows)


def gathered(rates: Rates, fetched: Iterable[Estimate], staged: Staged) -> float:
    """Tell what it takes to bring rows here, and compute here."""
    found = list(fetched)
    rows = staged.rows + sum(estimate.rows for estimate in found)
    here = rates.island_ms + _us(rows * rates.island_us_per_row)
    return here + sum(_asked(rates, estimate, estimate.rows) for estimate in found)


def _asked(rates: Rates, query: Estimate, rows: float) -> float:
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
        return Rates(**{field.name: float(found[field.name]) for field in fields(Rates)})
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} does not hold the rates of this machine: {error!r}",
            hint="Delete it, or measure them anew: `headrace calibrate`.",
        ) from error


def written(rates: Rates) -> Mapping[str, float]:
    """Give the rates as they are kept."""
    return asdict(rates)
