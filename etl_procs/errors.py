"""What can go wrong in the core.

HeadraceError
├── CoreError               the core could not do it; nothing was changed
│   ├── ProcedureFailed     a procedure raised
│   ├── AccessDenied        a procedure touched what it does not declare
│   └── Superseded          another engine committed this batch
└── DefinitionError
    └── DefinitionChanged   a table is not what the core holds
"""

import traceback

from headrace.errors import DefinitionError, HeadraceError


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
    """A table's definition is not the one that the core was made with."""
