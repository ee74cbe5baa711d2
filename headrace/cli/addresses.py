"""Where the parts are: as configured, or as the stack that runs in this data folder says."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.cli import parts
from headrace.config import Broker, Config
from headrace.errors import HeadraceError, NotRunning
from headrace.local import postgres, state
from headrace.local.home import Home

if TYPE_CHECKING:
    from migrations.warehouse import Warehouse


def broker(config: Config) -> Broker:
    """Tell which broker it is, and how clients come in."""
    bootstrap = config.broker.bootstrap or _running(config, parts.BROKER, "broker.bootstrap")
    return replace(config.broker, bootstrap=bootstrap)


def warehouse(config: Config) -> Config:
    """Give the configuration with the URL of the warehouse that a running stack has started."""
    if config.warehouse.url:
        return config
    port = _running(config, parts.POSTGRES, "warehouse.url").rpartition(":")[2]
    there = replace(config.warehouse, url=postgres.url(config, int(port)))
    return replace(config, warehouse=there)


def warehouses(config: Config, name: str = "") -> "tuple[Warehouse, ...]":
    """Give the warehouses that are configured, or the one of this name."""
    # Here, because every other command would pay for importing PostgreSQL's library.
    from migrations import warehouse as of

    found = of.warehouses(warehouse(config))
    return (of.named(found, name),) if name else found


def at_each_warehouse(config: Config, name: str, do: "Callable[[Warehouse], None]") -> None:
    """Do something in each warehouse, or in the one of this name; one that fails keeps no other
    back. What the last says that failed is raised, what others say is printed.
    """
    failed: list[HeadraceError] = []
    for place in warehouses(config, name):
        try:
            do(place)
        except HeadraceError as error:
            failed.append(error)
    for other in failed[:-1]:
        print(f"headrace: {other.what}\n  {other.hint}", file=sys.stderr)
    if failed:
        raise failed[-1]


def _running(config: Config, part: str, key: str) -> str:
    stack = state.running(Home(config.home))
    if stack is None or part not in stack.parts:
        raise NotRunning(
            f"no {part} is known: no stack runs in {config.home}, and {key} is not set",
            hint=f"Run `headrace up`, or name one with --set {key}=...",
        )
    return stack.parts[part].address
