"""`headrace api` as a process of a test's own, which may be killed."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from serving import KEY, Client
from waiting import until

from headrace.local.home import MARKER

TESTS = Path(__file__).parent
PATIENCE_S = 120
LISTENING = re.compile(r"listening on http://[0-9.]+:([0-9]+)\n")


class ApiProcess:
    """It serves when it is made. What it says goes to a file: a pipe that nobody reads stops it."""

    def __init__(
        self, home: Path, flow: Path, warehouse: str, *options: str, **environment: str
    ) -> None:
        (home / MARKER).touch()
        words = ["api", "--home", str(home), "--flow", str(flow), *options]
        given = {"HEADRACE_WAREHOUSE_URL": warehouse, "HEADRACE_API_KEY": KEY, **environment}
        self._log = home / f"api-of-test-{len(list(home.glob('api-of-test-*')))}.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", *words],
                cwd=TESTS,
                env={**os.environ, **given},
                stderr=log,
            )
        until(lambda: self._port() is not None or self._is_over(), PATIENCE_S, self._log.read_text)
        port = self._port()
        assert port is not None, self._log.read_text()
        self.client = Client(port)

    def end(self, signal_: int = signal.SIGKILL) -> int:
        self.process.send_signal(signal_)
        return self.process.wait(PATIENCE_S)

    def _port(self) -> int | None:
        found = LISTENING.search(self._log.read_text())
        return int(found[1]) if found else None

    def _is_over(self) -> bool:
        return self.process.poll() is not None


def workers_of(api: int) -> list[int]:
    """Name the processes that answer: the API forks them off a child of its own."""
    return [pid for child in _children(api) for pid in _children(child)]


def _children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
