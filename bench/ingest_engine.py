"""A real engine with its Spark, as a process of its own, over a given broker and PostgreSQL."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace import config
from headrace.cli.engine import ready_pid
from headrace.errors import HeadraceError
from headrace.local.home import Home

PATIENCE_S = 240.0
LOOK_EVERY_S = 0.02
END_S = 30.0


class Engine:
    """A data folder, and the engine in it, started as often as one likes."""

    def __init__(
        self, home: Path, flows: Sequence[Path], bootstrap: str, warehouse_url: str
    ) -> None:
        self.home = home
        self.warehouse_url = warehouse_url
        self._settings = {
            "home": str(home),
            "flows": config.joined_paths([str(flow) for flow in flows]),
            "broker.bootstrap": bootstrap,
            "warehouse.url": warehouse_url,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def running(
        self, environment: Mapping[str, str] | None = None, **settings: str
    ) -> Iterator["Engine"]:
        """Start it, with more settings as in testing__crash_at; end it in order, if it has not."""
        more = {name.replace("__", "."): value for name, value in settings.items()}
        self.home.mkdir(exist_ok=True)
        with (self.home.parent / "engine.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", "engine"],
                env={**config.child_environment(self._settings | more), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield self
        finally:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def until_ready(self) -> None:
        """Return when it takes tuples."""
        assert self._process is not None
        pid = self._process.pid
        self.until(lambda: ready_pid(Home(self.home)) == pid, "ready")

    def until(self, done: Callable[[], bool], what: str, *, every_s: float = LOOK_EVERY_S) -> None:
        """Return when something is done by a living engine."""
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = self.home.parent / "engine.log"
                last = log.read_text(errors="replace").splitlines()[-20:]
                raise HeadraceError(
                    f"the engine was not {what}: " + "\n".join(last), hint="Look why it ended."
                )
            time.sleep(every_s)

    def until_killed(self) -> None:
        """Return when it has ended at its crash point, or because a partition's process has."""
        assert self._process is not None
        code = self._process.wait(PATIENCE_S)
        log = (self.home.parent / "engine.log").read_text(errors="replace")
        last = "\n".join(log.splitlines()[-5:])
        of_worker = f"has ended by itself, with code {-signal.SIGKILL}" in last
        assert code == -signal.SIGKILL or of_worker, f"the engine ended with {code}: {last}"

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it, and its JVM and its partitions, stand still."""
        pids = (*self.pids(), self._pid())
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def pids(self, *, java: bool = True) -> list[int]:
        """List its child processes: the partitions', and the JVM's."""
        children = Path(f"/proc/{self._pid()}/task/{self._pid()}/children").read_text().split()
        return [
            int(pid)
            for pid in children
            if java or b"java" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        ]

    def peaks_mb(self) -> float:
        """Tell the most memory that its Python processes have had, together, since `forget`."""
        return sum(peak_mb(pid) for pid in (self._pid(), *self.pids(java=False)))

    def forget_peaks(self) -> None:
        """Measure from now on."""
        for pid in (self._pid(), *self.pids(java=False)):
            Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")

    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid


def peak_mb(pid: int) -> float:
    """Tell the most memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (kb,) = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(kb) / 1024
