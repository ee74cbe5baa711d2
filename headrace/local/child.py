"""A running part: a process in a session of its own, tied to the life of the one that made it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace.errors import HeadraceError, Missing
from headrace.local import leash, lock
from headrace.local.home import Home
from headrace.local.part import Part

LEASH = Path(leash.__file__)


def leashed(argv: Sequence[str], *, orphan_signal: signal.Signals, not_as_root: bool) -> list[str]:
    """Put the leash before a program."""
    user = "user" if not_as_root and os.geteuid() == 0 else "root"
    interpreter = [sys.executable, "-I", "-S", str(LEASH)]
    return [*interpreter, str(os.getpid()), str(int(orphan_signal)), user, *argv]


class Child:
    """The process of a part; `dead` is set as soon as it has ended and its group is gone."""

    def __init__(self, part: Part, process: subprocess.Popen[bytes], log_start: int) -> None:
        self.part = part
        self.pid = process.pid
        self.log_start = log_start
        self.dead = threading.Event()
        self.code: int | None = None
        self._process = process

    def watch(self, on_death: Callable[["Child"], None]) -> None:
        """Call `on_death`, on a thread, when the process has ended."""
        threading.Thread(target=self._wait, args=(on_death,), daemon=True).start()

    def _wait(self, on_death: Callable[["Child"], None]) -> None:
        with contextlib.suppress(ChildProcessError):  # reaped already, by who signalled it
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        # What it started itself must not outlive it; until it is reaped, the number is its own.
        self._signal_group(signal.SIGKILL)
        self.code = self._process.wait()
        self.dead.set()
        on_death(self)

    def stop(self) -> None:
        """Ask it to end in order."""
        self._signal(self.part.stop_signal)

    def kill(self) -> None:
        """End it, and what it started, at once."""
        self._signal_group(signal.SIGKILL)

    def ending(self) -> str:
        """Say how it ended."""
        assert self.code is not None
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        return f"exit code {self.code}"

    def _signal(self, number: signal.Signals) -> None:
        if not self.dead.is_set():
            self._process.send_signal(number)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def spawn(part: Part, home: Home, on_death: Callable[[Child], None]) -> Child | None:
    """Prepare and start a part, or give None while something of its former process still lives.

    The process inherits the part's lock, and so do PostgreSQL's own; it is free when they are gone.
    (The engine's JVM does not; it ends by itself within two seconds of the engine.) Call from the
    main thread: the kernel ties the child to the thread that made it.
    """
    held = lock.take(home.part_lock(part.name))
    if held is None:
        return None
    try:
        part.prepare()
        child = _start(part, home.log(part.name), held)
    finally:
        os.close(held)
    child.watch(on_death)
    return child


def _start(part: Part, log_path: Path, held: int) -> Child:
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        log_start = os.fstat(log).st_size
        process = subprocess.Popen(
            leashed(part.argv, orphan_signal=part.orphan_signal, not_as_root=part.not_as_root),
            env=part.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(held,),
            start_new_session=True,  # Ctrl-C in the terminal reaches the supervisor alone
        )
    finally:
        os.close(log)
    lock.sign_for(held, process.pid)
    return Child(part, process, log_start)


def run_to_end(
    what: str,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    not_as_root: bool = False,
    entered: str = "",
) -> None:
    """Run a helper program to its end; refuse to go on if it fails."""
    done = subprocess.run(
        leashed(argv, orphan_signal=signal.SIGKILL, not_as_root=not_as_root),
        env=environment,
        input=entered,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        check=False,
    )
    if done.returncode == leash.NO_NAMESPACE:
        raise Missing(
            "PostgreSQL does not run as root, and this machine grants root no user namespace",
            hint="Run Headrace as an ordinary user, or give warehouse.url of a PostgreSQL that is "
            "there already.",
        )
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-10:])
        raise HeadraceError(
            f"{what} (exit code {done.returncode}):\n{last}",
            hint="Mend what it names, and run `headrace up` again.",
        )
