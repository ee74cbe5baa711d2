"""One command of the command line: its name, its page of help, and what it runs."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.config import Config, Loaded


@dataclass(frozen=True, slots=True)
class Context:
    """What a command is run with."""

    arguments: argparse.Namespace
    loaded: Loaded

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.loaded.config


Adds = Callable[[argparse.ArgumentParser], object]
"""Adds an argument to a parser."""


def argument(*names: str, **options: Any) -> Adds:
    """Declare an argument, as argparse's `add_argument` does."""
    return lambda parser: parser.add_argument(*names, **options)


JSON = argument("--json", action="store_true", help="print JSON")


@dataclass(frozen=True, slots=True)
class Action:
    """One of a command's actions, with arguments of its own: what it would pass over is refused."""

    name: str
    summary: str
    run: Callable[[Context], int]
    arguments: tuple[Adds, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command; each has a summary for the overview, a description and an example."""

    name: str
    summary: str
    description: str
    examples: tuple[str, ...]
    run: Callable[[Context], int] | None = None
    arguments: tuple[Adds, ...] = ()
    actions: tuple[Action, ...] = ()
    """In place of `run`."""


def count(text: str) -> int:
    """Read a whole number that is not negative: a type of an argument."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)
