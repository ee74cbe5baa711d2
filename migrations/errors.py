"""What can go wrong between the core and a warehouse, and with a migration that is asked for.

HeadraceError
├── NotRunning
│   └── Away            the warehouse cannot be used just now; the same attempt may succeed later
├── WarehouseError      the warehouse will say the same again until somebody acts
│   └── NotAlike        what the warehouse has of what was sent is not what was sent
├── Cancelled           somebody has asked that a migration stops
├── ConfigError
│   └── Twins           two warehouses are one database
├── DefinitionError
│   └── Drift           the warehouse's tables are not those that the dataflow defines
└── Refused
    ├── MigrationConflict   the id is that of another migration
    ├── MigrationUnknown    there is no migration of that id
    ├── MigrationEnded      the migration has ended
    ├── NoSuchWarehouse     there is no warehouse of that name
    ├── NotFed          the core does not keep batches for that warehouse
    └── LedgerMismatch  the warehouse's ledger does not continue from this core
        └── Gap         the core has forgotten batches that the warehouse lacks
            └── Unfilled    it lacks those of tables that were not routed to it before
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from headrace.errors import ConfigError, DefinitionError, HeadraceError, NotRunning, Refused


class Away(NotRunning):
    """The warehouse cannot be used just now: gone, restarting, full, or in a deadlock."""


class WarehouseError(HeadraceError):
    """The warehouse refused, and will again until somebody acts."""


class NotAlike(WarehouseError):
    """What the warehouse has of what was sent is not what was sent."""


class Cancelled(HeadraceError):
    """Somebody has asked that a migration stops."""


class Drift(DefinitionError):
    """The warehouse's tables are not those that the dataflow defines."""


class Twins(ConfigError):
    """Two warehouses are one database."""


class NotFed(Refused):
    """The core does not keep batches for that warehouse."""


class LedgerMismatch(Refused):
    """The warehouse's ledger does not continue from this core."""


class Gap(LedgerMismatch):
    """The core has forgotten batches that the warehouse lacks."""


class Unfilled(Gap):
    """The warehouse lacks what tables held before they were routed to it."""


class MigrationConflict(Refused):
    """The id is that of another migration."""


class MigrationUnknown(Refused):
    """There is no migration of this id."""


class MigrationEnded(Refused):
    """The migration has ended."""


class NoSuchWarehouse(Refused):
    """There is no warehouse of this name."""


PASSING = (
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
)
"""A server that has lost its place to another one, and a session of ours that hung for long."""


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Tell a failure that may pass (`Away`) from one that will not (`WarehouseError`)."""
    try:
        yield
    except (psycopg.OperationalError, *PASSING) as error:
        # PostgreSQL's word for it: the server's state, not what it was asked to do. Covers lost
        # connections, restarts, deadlocks, serialization failures and full disks.
        raise Away(
            f"{doing}: the warehouse could not do it: {_said(error)}",
            hint="Check that PostgreSQL runs and takes connections, and that user, password and "
            "database of the URL are right; nothing was half-done, and trying again is safe.",
        ) from error
    except psycopg.Error as error:
        raise WarehouseError(
            f"{doing}: the warehouse refused: {_said(error)}",
            hint="Mend what it says; nothing was half-done, and trying again is safe.",
        ) from error


def _said(error: psycopg.Error) -> str:
    return error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
