"""The error tree. An error says what happened, to what, and what to do next.

    HeadraceError                 exit code 1
    ├── ConfigError               2   a configuration key, a flag or a flow's definition is wrong
    │   └── DefinitionError       2
    ├── NotRunning                3   what was asked for is not up
    ├── Missing                   4   a prerequisite of this machine is missing
    ├── Refused                   5   it was understood, and it will not be done
    └── Interrupted               130 the user ended it before it was done

Rooms derive their own errors from these. Python's own mistakes (a bug) exit with code 70.
"""

from enum import IntEnum
from functools import partial
from typing import Any


class Exit(IntEnum):
    """What the command line's exit codes mean."""

    OK = 0
    FAILED = 1
    CONFIG = 2
    NOT_RUNNING = 3
    MISSING = 4
    REFUSED = 5
    BUG = 70
    INTERRUPTED = 130
    UNHEARD = 141


class HeadraceError(Exception):
    """`what` happened, and the `hint` that says what to do next."""

    exit = Exit.FAILED

    def __init__(self, what: str, *, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are sent between processes; by itself, Python would leave out the hint.
        return partial(type(self), hint=self.hint), (self.what,)

    def __str__(self) -> str:
        return f"{self.what}\n  {self.hint}"


class ConfigError(HeadraceError):
    """A configuration key or a flag is unknown or has a bad value."""

    exit = Exit.CONFIG


class DefinitionError(ConfigError):
    """A dataflow is not defined as it must be."""


class NotRunning(HeadraceError):
    """What was asked for is not up."""

    exit = Exit.NOT_RUNNING


class Missing(HeadraceError):
    """Something that this machine must have is missing: Java, jars, room on the disk."""

    exit = Exit.MISSING


class Interrupted(HeadraceError):
    """The user ended it before it was done."""

    exit = Exit.INTERRUPTED


class Refused(HeadraceError):
    """The request was understood and will not be done."""

    exit = Exit.REFUSED
