"""The command line, and the only place that wires concrete parts.

May import every room. Each module adds its commands to the parser; this one reads the flags,
loads the configuration, runs the command and prints errors.
"""

import argparse
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from headrace import config, keys
from headrace.cli import (
    airflow,
    api,
    api_keys,
    calibrate,
    call,
    core_query,
    dead_letters,
    engine,
    jars,
    migrate,
    produce,
    query,
    reset,
    settings,
    stack,
    subscribe,
    tpcdi,
    trace,
    warehouse,
    watch,
)
from headrace.cli.command import Adds, Command, Context
from headrace.errors import ConfigError, Exit, HeadraceError

HELP_WIDTH = 79

DESCRIPTION = """\
Headrace: streaming ETL for polystores.

Kafka collects tuples, Spark batches them into a transactional core, and what the core commits
is moved into PostgreSQL whole and once. One dataflow is one Python file; see docs/ and
examples/leaderboard.py.
"""

EPILOG = """\
configuration:
  headrace.toml < environment HEADRACE_* < flags. `headrace config` prints what is in force.

exit codes:
  0 done   1 failed   2 configuration or definition   3 not running
  4 something is missing on this machine   5 refused   70 a bug in Headrace   130 interrupted
  141 whoever read what it says has gone, and it ended there
"""


MODULES = (
    stack, reset, produce, query, subscribe, trace, watch, core_query, call, dead_letters,
    migrate, warehouse, engine, api, api_keys, calibrate, airflow, settings, jars, tpcdi
)  # fmt: skip
"""In the order of the help page."""


def commands() -> list[Command]:
    """List every command."""
    return [command for module in MODULES for command in module.COMMANDS]


class _Parser(argparse.ArgumentParser):
    """A command's parser: its flags may stand between its arguments.

    argparse would take a list of arguments to end, empty, at the first flag.
    """

    _is_within = False

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        if self._is_within or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._is_within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_within = False


def parser() -> argparse.ArgumentParser:
    """Build the parser with all commands."""
    top = argparse.ArgumentParser(
        prog="headrace",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"headrace {version('headrace')}")
    groups = top.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_Parser
    )
    for command in commands():
        sub = groups.add_parser(
            command.name,
            help=command.summary,
            description=_wrapped(command.description),
            epilog="examples:\n" + "\n".join(f"  {line}" for line in command.examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(command=command)
        if command.run is not None:
            _take(sub, command.run, command.arguments)
        if command.actions:
            _add_actions(sub, command)
    return top


def _add_actions(sub: argparse.ArgumentParser, command: Command) -> None:
    inner = sub.add_subparsers(
        title="actions", metavar="ACTION", dest="action", required=True, parser_class=_Parser
    )
    for action in command.actions:
        one = inner.add_parser(action.name, help=action.summary, description=action.summary)
        _take(one, action.run, action.arguments)


def _take(
    sub: argparse.ArgumentParser, run: Callable[[Context], int], arguments: Sequence[Adds]
) -> None:
    for adds in arguments:
        adds(sub)
    _shared_flags(sub)
    sub.set_defaults(run=run)


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.fill(line, HELP_WIDTH) for line in text.splitlines())


def _shared_flags(sub: argparse.ArgumentParser) -> None:
    shared = sub.add_argument_group("everywhere")
    shared.add_argument("--config", type=Path, metavar="FILE", help="configuration file to read")
    shared.add_argument("--home", metavar="DIR", help="data folder (HEADRACE_HOME)")
    shared.add_argument(
        "--flow", action="append", default=[], metavar="FILE", help="a file that defines dataflows"
    )
    shared.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set a configuration key"
    )
    shared.add_argument("--debug", action="store_true", help="show tracebacks")


def _flags(arguments: argparse.Namespace) -> dict[str, str]:
    flags = keys.flags_from(arguments.set)
    if arguments.home:
        flags["home"] = arguments.home
    if arguments.flow:
        flags["flows"] = config.joined_paths(arguments.flow)
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the process's exit code."""
    arguments = parser().parse_args(argv)
    try:
        return _run(arguments)
    except HeadraceError as error:
        return _report(error, error.exit, debug=arguments.debug)
    except (PermissionError, NotADirectoryError) as error:
        refusal = ConfigError(
            f"{error.filename} cannot be used: {error.strerror}",
            hint="Is that of the right data folder (--home DIR), and yours?",
        )
        return _report(refusal, refusal.exit, debug=arguments.debug)
    except KeyboardInterrupt:
        print("headrace: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())  # for the flush at the end
        return Exit.UNHEARD
    except Exception as error:  # noqa: BLE001 - the last place that can say something
        what = HeadraceError(
            f"this is a bug in Headrace: {type(error).__name__}: {error}",
            hint="Run it again with --debug and report what it prints.",
        )
        return _report(what, Exit.BUG, debug=arguments.debug)


def _run(arguments: argparse.Namespace) -> int:
    loaded = config.load(_flags(arguments), file=arguments.config)
    code = int(arguments.run(Context(arguments=arguments, loaded=loaded)))
    sys.stdout.flush()  # here, where a reader that has gone is no bug
    return code


def _report(error: HeadraceError, code: Exit, *, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"headrace: {error.what}\n  {error.hint}", file=sys.stderr)
    return code
