"""What can go wrong in the core.

HeadraceError
├── CoreError               the core could not do it; nothing was changed
│   ├── ProcedureFailed     a procedure raised
│   ├── AccessDenied        a procedure touched what it does not declare
│   └── Superseded          another engine committed this batch
└── DefinitionError
    └── DefinitionChanged   what is declared is not what the core holds
"""

import sqlite3
import traceback

from headrace.errors import DefinitionError, HeadraceError

# The primary codes of what is no fault of a statement's: the same one may succeed later.
OF_THE_MACHINE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
}


def primary_code(error: sqlite3.Error) -> int:
    """Give SQLite's primary result code; 0 for an error that Python itself raised."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def line_of(file: str, error: Exception) -> str:
    """Tell where in a user's own file an error came from: file:line."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f"{file}:{lines[-1]}" if lines else file


class CoreError(HeadraceError):
    """The core could not do it; nothing was changed."""


class ProcedureFailed(CoreError):
    """A procedure raised; its batch was rolled back."""


class AccessDenied(CoreError):
    """A procedure touched something that it does not declare."""


class Superseded(CoreError):
    """Another engine committed this batch; this one changed nothing."""


class DefinitionChanged(DefinitionError):
    """What is declared is not what the core holds, and something would be lost between."""
