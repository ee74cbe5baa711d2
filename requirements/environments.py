"""Make the virtual environments from their locks, and renew the locks.

    environments.py setup    check Java, then make .tools, .venv and .venv-airflow, fetch the jars
    environments.py lock     write *.txt anew from pyproject.toml and *.in, and the jars' digests

Standard library only. An environment is whole when its stamp, written last, names what it would be
made from today, and every file that its distributions recorded is there in its recorded size;
otherwise it is removed and made again. So a setup may be killed or fail at any moment.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before anything that an old Python could not read
    sys.stderr.write(
        f"setup: Python 3.11 or newer is needed, and {sys.executable} is "
        f"{sys.version.split()[0]}\n  Install one and name it: make setup PYTHON=python3.12\n"
    )
    sys.exit(4)

import argparse
import contextlib
import csv
import errno
import fcntl
import hashlib
import importlib.util
import json
import re
import shutil
import signal
import subprocess
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from headrace import config
from headrace.errors import Exit, HeadraceError, Missing
from headrace.local import java

STAMP = "made-from.json"
TICK_S = 0.2
TAIL_LINES = 30

# What an installer prints -> what happened, and what to do. The first that matches is the cause.
FAILURES: Sequence[tuple[str, str, str]] = (
    (
        "no space left on device|disk quota exceeded",
        "the disk is full",
        "About 4 GB are needed (environments 1.1 GB, the installer's cache 2 GB). Free some and "
        "run it again.",
    ),
    (
        "hash mismatch|do not match the hashes",
        "a downloaded package is not the one in the lock",
        "Run it again; if it stays so, the index or a proxy serves something else.",
    ),
    (
        "permission denied|read-only file system",
        "a file or folder may not be written",
        "Make the checkout and the home folder writable for this user and run it again.",
    ),
    (
        "connection refused|dns error|name resolution|error sending request|failed to fetch"
        "|timed out|newconnectionerror|network is unreachable|network connectivity is disabled"
        r"|certificate|\(from versions: none\)",
        "the package index could not be reached",
        "Check the network (behind a proxy: HTTPS_PROXY; an index of your own: UV_DEFAULT_INDEX "
        "and PIP_INDEX_URL) and run it again.",
    ),
)


@dataclass(frozen=True)
class Environment:
    """A virtual environment, what it is made from, and how."""

    folder: Path
    contents: str
    made_from: str
    make: Callable[[], None]

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"

    def is_whole(self) -> bool:
        """Tell whether a finished setup left it, from the same lock, and nothing is gone since."""
        try:
            stamp = json.loads((self.folder / STAMP).read_text())
            return (
                stamp["made_from"] == self.made_from
                and self.python.exists()
                and all(_is_recorded(self.folder / record) for record in stamp["records"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def stamp(self) -> None:
        """Write, last of all, what it was made from."""
        records = sorted(
            str(record.relative_to(self.folder))
            for record in self.folder.glob("lib/python*/site-packages/*.dist-info/RECORD")
        )
        text = json.dumps({"made_from": self.made_from, "records": records})
        (self.folder / STAMP).write_text(text)


def _is_recorded(record: Path) -> bool:
    """Tell whether every file of one distribution is there, in its size."""
    base = record.parent.parent
    with record.open(newline="") as lines:
        for name, _, size in csv.reader(lines):
            if name.endswith(".pyc"):  # Python makes them again
                continue
            found = (base / name).stat().st_size
            if size and int(size) != found:
                return False
    return True


def ensure(environment: Environment) -> None:
    """Leave a whole environment, or none."""
    if environment.is_whole():
        return
    _remove(environment.folder)
    with _progress(f"making {environment.folder.name} ({environment.contents})"):
        try:
            environment.make()
            environment.stamp()
        except BaseException:
            _remove(environment.folder)
            raise


def _remove(folder: Path) -> None:
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Checkout:
    """The checkout whose environments are made, by one setup at a time."""

    root: Path
    lock_fd: int

    @property
    def requirements(self) -> Path:
        """The folder of the locks."""
        return self.root / "requirements"

    @property
    def uv(self) -> Path:
        """The installer."""
        return self.root / ".tools" / "bin" / "uv"

    def tools(self) -> Environment:
        """Describe `.tools`: the installer, itself installed by Python's own."""
        folder = self.root / ".tools"

        def make() -> None:
            python = folder / "bin" / "python"
            self.run(_base_python(), "-m", "venv", "--without-pip", folder)
            self.run(python, "-m", "ensurepip")  # by itself: venv would hide why it failed
            self.run(
                *(python, "-m", "pip", "--disable-pip-version-check", "install", "--retries", "2"),
                *("--require-hashes", "-r", self.requirements / "uv.txt"),
            )

        return self._environment(folder, "the installer", "uv.txt", make)

    def venv(self) -> Environment:
        """Describe `.venv`: the product in place, what it needs, and what developing it takes."""
        folder = self.root / ".venv"

        def make() -> None:
            self._install(folder, "dev.txt")
            self.run(
                *(self.uv, "--offline", "pip", "install", "--python", folder),
                *("--no-deps", "--no-build-isolation", "--editable", self.root),
            )

        contents = "Headrace and its tools, 0.9 GB"
        return self._environment(folder, contents, "dev.txt", make, _project_tables(self.root))

    def airflow(self) -> Environment:
        """Describe `.venv-airflow`."""
        folder = self.root / ".venv-airflow"
        return self._environment(
            folder, "Airflow, 0.2 GB", "airflow.txt", lambda: self._install(folder, "airflow.txt")
        )

    def _environment(
        self, folder: Path, contents: str, lock: str, make: Callable[[], None], project: str = ""
    ) -> Environment:
        locked = (self.requirements / lock).read_text()
        source = "\0".join([str(sys.implementation.cache_tag), str(folder), locked, project])
        digest = hashlib.sha256(source.encode()).hexdigest()
        return Environment(folder, contents, made_from=digest, make=make)

    def _install(self, folder: Path, lock: str) -> None:
        self.run(self.uv, "venv", "--python", _base_python(), folder)
        # Copies, not links: a file that is damaged in place must not damage the cache that
        # mends it (2.0 s instead of 0.1 s for .venv).
        install: list[str | Path] = [
            *(self.uv, "--system-certs", "pip", "install", "--python", folder),
            *("--link-mode", "copy", "--build-constraints", self.requirements / "build.txt"),
            *("--require-hashes", "-r", self.requirements / lock),
        ]
        try:  # the cache is as good as the index: hashes are required of both
            self.run(*install, "--offline")
        except HeadraceError:
            self.run(*install)

    def run(self, *command: str | Path) -> None:
        """Run one step quietly; a failure becomes one sentence.

        The child holds the lock too: if this process is killed, the next waits for its orphan.
        """
        done = subprocess.run(
            command,
            cwd=self.root,
            env=_environment_of_children(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(self.lock_fd,),
            check=False,
        )
        if done.returncode != 0:
            raise _failure(Path(command[0]).name, done.stdout.decode(errors="replace"))


def _project_tables(root: Path) -> str:
    """Give what of pyproject.toml an installed project depends on."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    return json.dumps([project["build-system"], project["project"], project["tool"]["hatch"]])


def _base_python() -> str:
    """Name the interpreter outside of any virtual environment: ours may be about to be removed."""
    return getattr(sys, "_base_executable", None) or sys.executable


def _environment_of_children() -> dict[str, str]:
    kept = config.child_environment({})
    for misleading in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "PIP_USER", "PIP_TARGET"):
        kept.pop(misleading, None)
    return kept


def _failure(program: str, output: str) -> HeadraceError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for signs, what, hint in FAILURES:
        for line in reversed(lines):  # the last one is nearest to the cause
            if re.search(signs, line, re.IGNORECASE):
                return Missing(f"{what}: {program} says `{line[:300]}`", hint=hint)
    errors = [line for line in lines if line.lower().startswith("error")]
    cause = (errors or lines[-1:] or ["it said nothing"])[0]
    return HeadraceError(
        f"{program} failed: {cause}",
        hint="Its last lines:\n    " + "\n    ".join(lines[-TAIL_LINES:]),
    )


@contextlib.contextmanager
def _progress(text: str) -> Iterator[None]:
    started = time.monotonic()
    over = threading.Event()

    def tick() -> None:
        while not over.wait(TICK_S):
            sys.stderr.write(f"\rsetup: {text} ... {time.monotonic() - started:.0f} s")
            sys.stderr.flush()

    ticker = threading.Thread(target=tick, daemon=True)
    on_terminal = sys.stderr.isatty()
    if on_terminal:
        ticker.start()
    ended = "failed after"
    try:
        yield
        ended = "done in"
    finally:
        over.set()
        if on_terminal:
            ticker.join()
            sys.stderr.write("\r")
        _say(f"{text} ... {ended} {time.monotonic() - started:.0f} s")


def _say(text: str) -> None:
    sys.stderr.write(f"setup: {text}\n")


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[Checkout]:
    with (root / "requirements" / "uv.in").open() as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another setup is at work here; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield Checkout(root, held.fileno())


def setup(root: Path) -> None:
    """Prepare everything: the second run finds it whole and touches nothing."""
    java.find(config.child_environment({}))
    _require_venv()
    with _alone(root) as checkout:
        for environment in (checkout.tools(), checkout.venv(), checkout.airflow()):
            ensure(environment)
    jars = subprocess.run([root / ".venv" / "bin" / "headrace", "jars"], cwd=root, check=False)
    if jars.returncode != 0:
        sys.exit(jars.returncode)


def _require_venv() -> None:
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            raise Missing(
                f"{sys.executable} has no module {module}, without which it makes no environment",
                hint="Install it (Debian, Ubuntu: apt install python3-venv), or name another "
                "Python: make setup PYTHON=python3.12",
            )


def lock(root: Path) -> None:
    """Write the locks anew. Pins that are still allowed stay; delete a lock to move all of it."""
    requirements = root / "requirements"
    with _alone(root) as checkout:
        ensure(checkout.tools())
        for name, sources in _sources(requirements).items():
            with _progress(f"locking {name}"):
                checkout.run(
                    *(checkout.uv, "--system-certs", "pip", "compile", "--universal"),
                    *("--python-version", "3.11", "--generate-hashes", "--no-emit-index-url"),
                    *("--no-annotate", "--no-header"),
                    *sources,
                    *("--output-file", requirements / name),
                )
        venv = checkout.venv()
        ensure(venv)
        with _progress("pinning the jars"):
            checkout.run(venv.python, "-m", "headrace.local.jars")


def _sources(requirements: Path) -> Mapping[str, Sequence[str | Path]]:
    """Map each lock to what it is made from, in the order in which one constrains the next."""
    project = requirements.parent / "pyproject.toml"
    within_build: list[str | Path] = ["--constraints", requirements / "build.txt"]
    within_core: list[str | Path] = ["--constraints", requirements / "core.txt"]
    return {
        "uv.txt": [requirements / "uv.in"],
        "build.txt": [requirements / "build.in"],
        "core.txt": [project, *within_build],
        "dev.txt": [
            *(project, "--all-extras", requirements / "dev.in"),
            *within_build,
            *within_core,
        ],
        "airflow.txt": [requirements / "airflow.in"],
        "peers.txt": [requirements / "peers.in"],
    }


def main(arguments: Sequence[str]) -> int:
    """Run one command; errors become one sentence and an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("setup", "lock"))
    command = parser.parse_args(arguments).command
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        {"setup": setup, "lock": lock}[command](ROOT)
    except HeadraceError as error:
        _say(str(error))
        return error.exit
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        _say(str(_failure(Path(sys.executable).name, str(error))) if full else f"{error}")
        return Exit.MISSING
    except KeyboardInterrupt:
        _say("interrupted; nothing half-made is left, and the next run goes on")
        return Exit.INTERRUPTED
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
