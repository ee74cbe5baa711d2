"""Resources: what runs and what is declared, as REST shows it and lets it be changed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from etl_procs.dataflow import Dataflow
from etl_procs.measured import Measured
from etl_procs.model import Outlet
from headrace.config import Core as Settings
from headrace.crash import CrashPoints
from migrations.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Resources:
    """What the routes of flows, lookups, tables and dead letters are over."""

    dataflows: Mapping[str, Dataflow]
    warehouses: Sequence[Warehouse]
    cores: Sequence[Path]
    """The core of each partition."""
    living: Callable[[], Sequence[Measured | None]]
    """Tells what a living engine measures of each partition."""
    files: Sequence[Outlet] = ()
    """The tables that are files."""
    settings: Settings = field(default_factory=Settings)
    crash: CrashPoints = field(default_factory=CrashPoints)
