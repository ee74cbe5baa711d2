"""One part without a supervisor: start it, use it, kill it, stop it."""

import os
import signal
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace import config
from headrace.clock import SystemClock
from headrace.config import Broker, Config
from headrace.errors import HeadraceError
from headrace.local import broker, child, jars, java, lock, ports, postgres
from headrace.local.home import Home
from headrace.local.part import Part
from ingest import topics

LOOPBACK = "127.0.0.1"
PROBE_EVERY_S = 0.1
FORMER_GONE_S = 30.0


class Alone:
    """Runs one part, in this process's care: it ends when this process does.

    with a_postgres(data_folder(path)) as server:
        psycopg.connect(server.url)
    """

    def __init__(self, part: Part, config: Config) -> None:
        self.part = part
        self._config = config
        self._home = Home(config.home)
        self._ready_timeout_s = config.supervisor.ready_timeout_s
        self._clock = SystemClock()
        self._child: child.Child | None = None

    @property
    def address(self) -> str:
        """The part's host:port."""
        return self.part.address

    @property
    def url(self) -> str:
        """The URL, if it is a PostgreSQL."""
        return postgres.url(self._config, int(self.address.rpartition(":")[2]))

    @property
    def pid(self) -> int:
        """The pid of its process."""
        assert self._child is not None
        return self._child.pid

    def start(self) -> None:
        """Start it, and return when it is ready."""
        self._home.create()
        lock.wait_until_free(self._home.part_lock(self.part.name), FORMER_GONE_S, self._clock)
        self._child = child.spawn(self.part, self._home, lambda _child: None)
        assert self._child is not None, f"{self.part.name} runs already"
        self._wait_until_ready(self._child)

    def stop(self) -> None:
        """Stop it in order, and return when it is gone."""
        if self._child is not None:
            self._child.stop()
            if not self._child.dead.wait(self.part.stop_timeout_s):
                self.kill()

    def kill(self) -> None:
        """End it with SIGKILL, and return when it is gone."""
        assert self._child is not None
        self._child.kill()
        self._child.dead.wait()

    def freeze(self) -> None:
        """Stop its process, with SIGSTOP: it answers nobody, and is not dead."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let its process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def _wait_until_ready(self, running: child.Child) -> None:
        deadline = self._clock.monotonic() + self._ready_timeout_s
        trouble = ""
        while self._clock.monotonic() < deadline:
            try:
                self.part.probe(running.pid)
            except Exception as error:  # noqa: BLE001 - anything, until it is ready
                trouble = str(error)
            else:
                return
            if running.dead.wait(PROBE_EVERY_S):
                trouble = running.ending()
                break
        log = self._home.log(self.part.name)
        self.kill()
        raise HeadraceError(
            f"{self.part.name} did not become ready: {trouble}", hint=f"Its log is {log}."
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def data_folder(path: Path, **more: str) -> Config:
    """Make a data folder, and give the configuration that names it; more keys as in api__port."""
    settings = {key.replace("__", "."): value for key, value in more.items()}
    loaded = config.load({"home": str(path), **settings}, environment={}).config
    Home(loaded.home).create()
    return loaded


def a_postgres(loaded: Config) -> Alone:
    return Alone(postgres.part(loaded, _ports(loaded, "postgres")["postgres"]), loaded)


def a_broker(loaded: Config) -> Alone:
    at = _ports(loaded, "broker", "controller")
    part = broker.part(
        loaded,
        port=at["broker"],
        controller_port=at["controller"],
        java=java.find(config.child_environment({})).program,
        classpath=jars.broker_classpath(loaded),
        probe=partial(topics.probe, Broker(bootstrap=f"{loaded.broker.host}:{at['broker']}")),
    )
    return Alone(part, loaded)


def _ports(loaded: Config, *names: str) -> dict[str, int]:
    return ports.choose([ports.Wanted(n, LOOPBACK) for n in names], Home(loaded.home).ports)
