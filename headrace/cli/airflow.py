"""`headrace airflow`: Airflow standalone with Headrace's DAGs, against the stack that runs."""

import contextlib
import json
import os
import signal
import socket
import time
from http.client import HTTPConnection
from pathlib import Path

from headrace.cli.command import Command, Context, argument, count
from headrace.cli.stack import STOP_SIGNALS
from headrace.client import address_of, key_of
from headrace.config import Config, child_environment
from headrace.errors import Exit, HeadraceError, Missing, NotRunning, Refused
from headrace.local import child, logs, ports
from headrace.local.child import Child
from headrace.local.home import Home
from headrace.local.part import PROBE_TIMEOUT_S, Part

NAME = "airflow"
LOOPBACK = "127.0.0.1"
CHECKOUT = Path(__file__).parents[2]
DAGS = CHECKOUT / "dags"
PROGRAM = CHECKOUT / ".venv-airflow" / "bin" / "airflow"
PASSWORD_FILE = "simple_auth_manager_passwords.json.generated"  # noqa: S105 - its name
HEALTH = "/api/v2/monitor/health"
COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
TASKS_MAX = 8  # Airflow starts a process for each; what waits is in none
WATCH_S = 0.5
STOP_S = 60.0  # it took 20 s

# Airflow standalone calls itself by name. What would serve its logs to other machines listens on
# every address of this one, and on one machine nobody needs it.
SHIM = """\
#!/bin/sh
case "$1" in scheduler | triggerer) set -- "$@" --skip-serve-logs ;; esac
exec '{program}' "$@"
"""


def run_airflow(context: Context) -> int:
    """Run Airflow until told to stop."""
    config = context.config
    address = address_of(config)
    _require_answer(address)
    Home(config.home).create()
    part = _part(config, address, context.arguments.port)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.default_int_handler)  # all of them end it in order
    running = child.spawn(part, Home(config.home), lambda _: None)
    if running is None:
        raise Refused(
            f"Airflow runs already on the data folder {config.home}",
            hint="End that `headrace airflow` first, with Ctrl-C.",
        )
    return _watch(running, config)


def _watch(running: Child, config: Config) -> int:
    """Wait for its end, or for Ctrl-C."""
    log = Home(config.home).log(NAME)
    print(f"Airflow is starting (half a minute); its log is {log}", flush=True)
    try:
        _await_ready(running, config)
        _tell(running.part.address, Home(config.home).airflow)
        while not running.dead.wait(WATCH_S):
            logs.turn_over(log, config.supervisor.log_mb_max * 2**20)
    except KeyboardInterrupt:
        print("Airflow is being stopped.", flush=True)
        return Exit.OK
    finally:
        _stop(running)
    raise _ended(running, log)


def _await_ready(running: Child, config: Config) -> None:
    log = Home(config.home).log(NAME)
    deadline = time.monotonic() + config.supervisor.ready_timeout_s
    while not running.dead.wait(WATCH_S):
        try:
            running.part.probe(running.pid)
        except (OSError, ValueError, LookupError, NotRunning) as error:
            if time.monotonic() > deadline:
                raise HeadraceError(
                    f"Airflow did not become ready: {error}", hint=f"Its log is {log}."
                ) from error
        else:
            return
    raise _ended(running, log)


def _ended(running: Child, log: Path) -> HeadraceError:
    return HeadraceError(f"Airflow ended: {running.ending()}", hint=f"Its log is {log}.")


def _stop(running: Child) -> None:
    """End it in order; at once, if that takes long or somebody presses Ctrl-C again."""
    with contextlib.suppress(KeyboardInterrupt):
        running.stop()
        running.dead.wait(running.part.stop_timeout_s)
    if not running.dead.is_set():
        running.kill()
    running.dead.wait()


def _tell(address: str, folder: Path) -> None:
    print(
        f"Airflow is up.\n  http://{address}  (user admin, password: {folder / PASSWORD_FILE})\n"
        "Ctrl-C stops it.",
        flush=True,
    )


def _part(config: Config, api: str, port: int) -> Part:
    """Describe Airflow as a part; all it keeps is in the data folder."""
    if not PROGRAM.is_file():
        raise Missing(
            f"Airflow is not installed: there is no {PROGRAM}",
            hint="Run `make setup` in a checkout of Headrace.",
        )
    home = Home(config.home)
    own = ports.choose([ports.Wanted(NAME, LOOPBACK, port)], home.ports)[NAME]
    address = f"{LOOPBACK}:{own}"
    shims = home.airflow / "bin"
    variables = _settings(home.airflow, address) | {
        "AIRFLOW_CONN_HEADRACE_DEFAULT": _connection(api, key_of(config)),
        "AIRFLOW_VAR_HEADRACE_WAREHOUSES": json.dumps(["default", *config.warehouses]),
        "PYTHONPATH": str(DAGS),
        "PATH": os.pathsep.join([str(shims), str(PROGRAM.parent), os.defpath]),
    }
    return Part(
        name=NAME,
        argv=(str(PROGRAM), "standalone"),
        environment=child_environment({}) | variables,
        address=address,
        probe=lambda _pid: _is_ready(address),
        prepare=lambda: _prepare(shims),
        stop_signal=signal.SIGINT,
        stop_timeout_s=STOP_S,
        orphan_signal=signal.SIGINT,
    )


def _settings(folder: Path, address: str) -> dict[str, str]:
    """Give Airflow's own settings: nothing of others, nothing beyond this machine."""
    return {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__API__BASE_URL": f"http://{address}",
        "AIRFLOW__API__HOST": LOOPBACK,
        "AIRFLOW__API__PORT": address.rpartition(":")[2],
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{address}/execution/",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": str(TASKS_MAX),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def _connection(api: str, key: str) -> str:
    host, _, port = api.rpartition(":")
    named = {"conn_type": "generic", "schema": "http", "host": host, "port": int(port)}
    return json.dumps(named | {"password": key})


def _prepare(shims: Path) -> None:
    shims.mkdir(parents=True, exist_ok=True)
    shim = shims / "airflow"
    shim.write_text(SHIM.format(program=PROGRAM))
    shim.chmod(0o700)


def _require_answer(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S).close()
    except OSError as error:
        raise NotRunning(
            f"the API at {address} does not answer: {error.strerror or error}",
            hint="Run `headrace up`; `headrace status` shows how it is.",
        ) from error


def _is_ready(address: str) -> None:
    connection = HTTPConnection(address, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", HEALTH)
        health = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    ill = [name for name in COMPONENTS if health[name]["status"] != "healthy"]
    if ill:
        raise NotRunning(f"not healthy yet: {', '.join(ill)}", hint="Wait for it.")


COMMANDS = [
    Command(
        name="airflow",
        summary="run Airflow with Headrace's DAGs against the running stack",
        description="Run Airflow standalone, from the environment that `make setup` has made, with "
        "the DAGs of this checkout and a connection to the API of the stack that runs. What it "
        "keeps is in the data folder; it listens on 127.0.0.1 alone. Ctrl-C ends all of it.",
        examples=("headrace airflow", "headrace airflow --port 8081 --home /srv/headrace"),
        run=run_airflow,
        arguments=(
            argument(
                "--port",
                type=count,
                default=0,
                metavar="PORT",
                help="its port on 127.0.0.1; 0: a free one",
            ),
        ),
    )
]
