"""Programs that an experiment starts and that are killed: by themselves, or by it."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace import config


def run(argv: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> str:
    """Let a program end; give what it printed."""
    done = _run(argv, environment or {})
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def ends_well(argv: Sequence[str | Path]) -> bool:
    """Let a program end; tell whether it did without an error."""
    return _run(argv, {}).returncode == 0


def run_until_killed(
    argv: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> None:
    """Let a program kill itself."""
    done = _run(argv, environment or {})
    assert done.returncode == -signal.SIGKILL, done.stderr[-2_000:]


def module(name: str, *arguments: str | Path) -> list[str | Path]:
    """Name a module of this package as a program."""
    return [sys.executable, "-m", name, *arguments]


def _run(
    argv: Sequence[str | Path], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        env={**config.child_environment({}), **environment},
    )
