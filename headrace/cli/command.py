"""One command of the command line: its name, its page of help, and what it runs."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

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


def no_arguments(_parser: argparse.ArgumentParser) -> None:
    """Add nothing: for commands that have only the shared flags."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command; each has a summary for the overview, a description and an example."""

    name: str
    summary: str
    description: str
    examples: tuple[str, ...]
    run: Callable[[Context], int]
    arguments: Callable[[argparse.ArgumentParser], None] = no_arguments


def count(text: str) -> int:
    """Read a whole number that is not negative: a type of an argument."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)
