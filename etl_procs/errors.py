"""What can go wrong in the core.

HeadraceError
├── CoreError               the core could not do it; nothing was changed
│   ├── ProcedureFailed     a procedure raised
│   ├── Aborted             a procedure gave its batch up
│   ├── GivenUp             a trial's batch is a dead letter: a unit has used its attempts up
│   ├── AccessDenied        a procedure touched what it does not declare
│   ├── Superseded          another engine holds this core
│   └── Passing             the same may succeed later
│       ├── OutOfRoom       a disk is full, or cannot be written
│       ├── Locked          somebody keeps the core's write lock
│       ├── LettersFull     the dead letters have reached their limit
│       ├── Unanswered      a warehouse did not answer a lookup
│       └── StagedFull      what waits for warehouses has reached its limit
├── Refused
│   ├── BadCall             a call whose arguments or key do not fit
│   │   ├── NoSuchCall      a call that is not there
│   │   └── KeyReused       a key that was used for other arguments
│   ├── BadQuery            SQL that is no query, or that the core cannot answer
│   ├── NoSuchDataflow      a dataflow that is not loaded
│   ├── NoSuchLetter        a dead letter that is not there
│   └── NotReplayable       a dead letter that cannot run again as it is
└── DefinitionError
    └── DefinitionChanged   what is declared is not what the core holds
"""

import inspect
import sqlite3
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from headrace.errors import DefinitionError, HeadraceError, Refused

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


def is_of_the_machine(error: BaseException) -> bool:
    """Tell whether an error is no fault of the code that met it."""
    if isinstance(error, sqlite3.Error):
        return primary_code(error) in OF_THE_MACHINE
    return isinstance(error, MemoryError | Passing)


def storable(text: str) -> str:
    """Make a text that can be stored: half a surrogate pair, for one, is written out."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def text_of(error: BaseException) -> str:
    """Say what an error of a user's code says, even if it cannot say it."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - its __str__ is a user's code too
        said = "(it cannot be written)"
    return storable(f"{type(error).__name__}: {said}")


def line_of(file: str, error: BaseException) -> str:
    """Tell where in a user's own file an error came from: file:line."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f"{file}:{lines[-1]}" if lines else file


def blamed(
    what: str, error: BaseException, bodies: Iterable[Callable[..., Any]], hint: str
) -> "ProcedureFailed":
    """Make of an error in a user's code one that names its line, after `what` failed.

    One of ours says what it is by itself, and the machine's is nobody's fault: they are raised.
    """
    if isinstance(error, HeadraceError) or is_of_the_machine(error):
        raise error
    files = dict.fromkeys(inspect.unwrap(body).__code__.co_filename for body in bodies)
    lines = ", ".join(line_of(file, error) for file in files)
    return ProcedureFailed(f"{what}: {text_of(error)} ({lines})", hint=hint)


class CoreError(HeadraceError):
    """The core could not do it; nothing was changed."""


class ProcedureFailed(CoreError):
    """A procedure raised; its batch was rolled back."""


class Aborted(CoreError):
    """A procedure gave its batch up, with a reason."""


def reason_of(error: HeadraceError) -> str:
    """Say what happened, and what to do where the error itself knows it."""
    known = isinstance(error, ProcedureFailed | Aborted)
    return storable(error.what if known else f"{error.what}. {error.hint}")


class GivenUp(CoreError):
    """A batch of a trial is a dead letter: a unit has used its attempts up."""


class AccessDenied(CoreError):
    """A procedure touched something that it does not declare."""


class Superseded(CoreError):
    """Another engine holds this core; this one changed nothing."""


class Passing(CoreError):
    """The same may succeed later: whoever runs the core waits, visibly, and tries again."""


class OutOfRoom(Passing):
    """A disk is full, or cannot be written for now."""


class Locked(Passing):
    """Somebody keeps the core's write lock."""


class StagedFull(Passing):
    """What waits for warehouses has reached its limit."""


class LettersFull(Passing):
    """The dead letters have reached their limit, and one more would be needed."""


class Unanswered(Passing):
    """A warehouse did not answer a lookup: it is away, or somebody has to mend something there."""


class BadCall(Refused):
    """A call that cannot be made as it was asked for."""


class NoSuchCall(BadCall):
    """A call that no dataflow declares."""


class KeyReused(BadCall):
    """A call whose key was used before, with other arguments."""


class NoSuchDataflow(Refused):
    """A dataflow that is not loaded."""


class NoSuchLetter(Refused):
    """A dead letter that is not there: it never was, or has run again, or was dropped."""


class NotReplayable(Refused):
    """A dead letter that cannot run again as it is, or as the definitions are now."""


class BadQuery(Refused):
    """SQL that is no query, or that the core cannot answer."""


class DefinitionChanged(DefinitionError):
    """What is declared is not what the core holds, and something would be lost between."""
