"""`headrace up | status | down | reset`, with all parts real; any of them killed at any moment."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import is_gone
from flows import EXAMPLE
from waiting import until

from headrace import config
from headrace.cli import parts
from headrace.errors import ConfigError, Exit
from headrace.local import lock, logs, state
from headrace.local.home import Home
from headrace.local.state import State

PARTS = ("broker", "postgres", "engine", "api")
START_S = 180.0


class Stack:
    """One data folder, and the command line on it."""

    limit_s = START_S

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self._environment = config.child_environment({"home": self.home.root, "flows": EXAMPLE})

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", *arguments],
            env=self._environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        process = self.start(*arguments, **variables)
        told, _ = process.communicate(timeout=self.limit_s)
        return process.returncode, told

    def status(self) -> dict[str, Any]:
        _, told = self.run("status", "--json")
        found: dict[str, Any] = json.loads(told)
        return found

    def pid(self, name: str) -> int:
        status = self.status()
        found: int = (status | status["parts"])[name]["pid"]
        return found

    def is_ready(self, *, former: int = 0) -> bool:
        """Whether the stack is ready, under another supervisor than the former one."""
        found = state.running(self.home)
        return found is not None and found.state is State.READY and found.pid != former

    def restarts(self, name: str) -> int:
        found = state.running(self.home)
        return found.parts[name].restarts if found else 0

    def until_ready(self, *, former: int = 0) -> None:
        """Wait on the state file, and then ask as a user does."""
        until(lambda: self.is_ready(former=former), self.limit_s, self.log)
        assert self.status()["supervisor"]["state"] == "ready"

    def log(self) -> str:
        return self.run("logs", "-n", "40")[1]

    def processes(self) -> list[int]:
        """List what lives of this stack: by its locks, and by the folder in its environment."""
        mark = f"HEADRACE_HOME={self.home.root}\0".encode()
        held = [lock.holder(self.home.part_lock(name)) for name in PARTS]
        found = [pid for pid in held if pid is not None]
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # gone meanwhile, or somebody else's
                continue
        return [pid for pid in found if not is_gone(pid)]

    def until_no_process(self) -> None:
        until(lambda: not self.processes(), self.limit_s, lambda: str(self.processes()))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("stack"))
    yield made
    made.run("down")


@pytest.fixture
def up(stack: Stack) -> Stack:
    """The stack, with all parts ready."""
    code, told = stack.run("up", "--detach")
    assert code == Exit.OK, told
    return stack


@pytest.fixture
def fresh(tmp_path: Path) -> Stack:
    """A stack that was never started."""
    return Stack(tmp_path)


def test_after_up_everything_is_ready_and_after_down_nothing_is_left(up: Stack) -> None:
    code, told = up.run("status")
    assert code == Exit.OK, told
    status = up.status()
    assert set(status["parts"]) == set(PARTS)
    assert all(part["state"] == "ready" and part["pid"] for part in status["parts"].values())
    addresses = {name: part["address"] for name, part in status["parts"].items()}

    code, told = up.run("down")
    assert code == Exit.OK, told
    assert not up.processes()
    assert up.run("status")[0] == Exit.NOT_RUNNING
    code, told = up.run("down")
    assert code == Exit.OK
    assert "not running" in told

    assert up.run("up", "--detach")[0] == Exit.OK
    again = {name: part["address"] for name, part in up.status()["parts"].items()}
    assert again == addresses


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_is_killed_comes_back(up: Stack, name: str) -> None:
    before = up.status()["parts"][name]
    os.kill(before["pid"], signal.SIGKILL)
    killed = up.status()["parts"][name]
    assert killed["state"] != "ready" or killed["pid"] != before["pid"]
    until(lambda: up.restarts(name) > before["restarts"], START_S, up.log)
    up.until_ready()
    after = up.status()["parts"][name]
    assert after["pid"] != before["pid"]
    assert after["address"] == before["address"]


def test_a_part_that_lives_and_does_not_answer_is_not_called_ready(up: Stack) -> None:
    api = up.pid("api")
    os.kill(api, signal.SIGSTOP)
    try:
        assert up.status()["parts"]["api"]["state"] == "silent"
        assert up.run("status")[0] == Exit.NOT_RUNNING
    finally:
        os.kill(api, signal.SIGCONT)
    up.until_ready()


def test_a_second_up_says_that_it_is_up_already(up: Stack) -> None:
    supervisor = up.pid("supervisor")
    code, told = up.run("up")
    assert code == Exit.OK
    assert "up already" in told
    assert up.pid("supervisor") == supervisor


def test_no_secret_is_shown(up: Stack) -> None:
    secrets = [up.home.postgres_password.read_text(), up.home.api_key.read_text()]
    shown = up.log() + up.run("status")[1] + up.home.state.read_text()
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in up.processes()]
    assert not any(secret in shown for secret in secrets)
    assert not any(secret.encode() in command for secret in secrets for command in commands)


def test_reset_refuses_while_the_stack_runs(up: Stack) -> None:
    code, told = up.run("reset", "--yes")
    assert code == Exit.REFUSED
    assert "headrace down" in told
    assert up.is_ready()


def test_a_killed_supervisor_leaves_no_process(up: Stack) -> None:
    os.kill(up.pid("supervisor"), signal.SIGKILL)
    up.until_no_process()
    code, told = up.run("status")
    assert code == Exit.NOT_RUNNING
    assert "ended without stopping its parts" in told


def test_up_works_over_children_that_are_still_going_down_and_ctrl_c_stops_it_in_order(
    up: Stack,
) -> None:
    former = up.pid("supervisor")
    os.kill(former, signal.SIGKILL)
    foreground = up.start("up")
    up.until_ready(former=former)
    foreground.send_signal(signal.SIGINT)
    told, _ = foreground.communicate(timeout=START_S)
    assert foreground.returncode == Exit.OK
    places = [told.index(f"{name:<9} stopping") for name in reversed(PARTS)]
    assert places == sorted(places)
    assert not up.processes()


def test_ctrl_c_while_up_waits_in_front_of_the_background_stops_what_it_started(
    stack: Stack,
) -> None:
    waiting = stack.start("up", "--detach")
    assert waiting.stdout is not None
    assert "starting" in waiting.stdout.readline()
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=START_S)
    assert waiting.returncode == Exit.INTERRUPTED
    assert not stack.processes()


def test_up_goes_on_when_the_command_that_waits_for_it_is_killed(stack: Stack) -> None:
    waiting = stack.start("up", "--detach")
    assert waiting.stdout is not None
    assert "starting" in waiting.stdout.readline()
    waiting.kill()
    waiting.wait()
    waiting.stdout.close()
    stack.until_ready()


def test_reset_deletes_all_of_it(stack: Stack) -> None:
    stack.run("down")
    code, told = stack.run("reset")
    assert code == Exit.REFUSED
    assert "--yes" in told
    assert stack.home.root.exists()
    assert stack.run("reset", "--yes")[0] == Exit.OK
    assert not stack.home.root.exists()


def test_a_start_that_fails_in_the_background_is_told_and_leaves_nothing(fresh: Stack) -> None:
    code, told = fresh.run("up", "--detach", "--set", "testing.crash_at=nowhere")
    assert code == Exit.CONFIG
    assert "is not a crash point" in told
    assert not fresh.processes()
    code, told = fresh.run("status")
    assert code == Exit.NOT_RUNNING
    assert "is not a crash point" in told


def test_without_java_or_jars_nothing_is_made(fresh: Stack, tmp_path: Path) -> None:
    code, told = fresh.run("up", "--set", f"jars={tmp_path / 'none'}")
    assert code == Exit.MISSING
    assert "headrace jars" in told
    code, told = fresh.run("up", JAVA_HOME=str(tmp_path / "none"))
    assert code == Exit.MISSING
    assert "JDK" in told
    assert not fresh.home.root.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "is not a Python file that is there"), ("raise RuntimeError('broken')", "broken")],
)
def test_a_flow_that_cannot_be_loaded_stops_up_before_anything_is_made(
    fresh: Stack, tmp_path: Path, text: str | None, message: str
) -> None:
    flow = tmp_path / "flow.py"
    if text is not None:
        flow.write_text(text)
    code, told = fresh.run("up", "--detach", "--flow", str(flow))
    assert code == Exit.CONFIG
    assert message in told
    assert not fresh.home.root.exists()


def test_every_setting_reaches_the_children(tmp_path: Path) -> None:
    given = config.load(
        {
            "home": str(tmp_path / "home"),
            "flows": config.joined_paths([str(EXAMPLE), str(tmp_path / "other.py")]),
            "broker.bootstrap": "kafka:9092",
            "warehouse.url": "postgresql://me:secret@warehouse/db",
            "push.every_ms": "77",
            "api.key": "given",
        },
        environment={},
    ).config
    Home(given.home).create()
    wired = parts.wire(given, parts.Machine(java=Path("java"), broker_classpath=""))
    assert [part.name for part in wired.parts] == ["engine", "api"]
    assert set(wired.external) == {"broker", "postgres"}
    engine, api = (config.load(environment=part.environment).config for part in wired.parts)
    assert engine == given
    assert api == replace(given, api=replace(given.api, port=api.api.port))
    assert api.api.port


def test_a_local_broker_is_at_the_address_that_is_configured(tmp_path: Path) -> None:
    asked = {"home": str(tmp_path / "home"), "broker.host": "127.0.0.2", "broker.port": "20321"}
    given = config.load(asked, environment={}).config
    Home(given.home).create()
    machine = parts.Machine(java=Path("java"), broker_classpath="")
    broker, *_, engine, _api = parts.wire(given, machine).parts
    assert broker.address == "127.0.0.2:20321"
    told = config.load(environment=engine.environment).config
    assert told.broker.bootstrap == "127.0.0.2:20321"
    nowhere = replace(given, broker=replace(given.broker, host="0.0.0.0"))  # noqa: S104
    with pytest.raises(ConfigError, match="a broker tells its clients that address"):
        parts.wire(nowhere, machine)


def test_a_configured_port_that_is_taken_stops_up_before_anything_is_started(fresh: Stack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, told = fresh.run("up", "--set", f"api.port={port}")
    assert code == Exit.REFUSED
    assert f"api.port is {port}" in told
    assert not fresh.home.log("broker").exists()


def test_what_was_never_started_has_a_status_too(fresh: Stack) -> None:
    code, told = fresh.run("status", "--json")
    assert code == Exit.NOT_RUNNING
    status = json.loads(told)
    assert status["supervisor"]["state"] == "stopped"
    assert set(status["parts"]) == set(PARTS)
    code, told = fresh.run("status")
    assert code == Exit.NOT_RUNNING
    assert "Nothing runs here yet: start it with `headrace up`." in told
    assert not fresh.home.root.exists()
    assert fresh.run("down")[0] == Exit.OK
    assert fresh.run("logs")[0] == Exit.NOT_RUNNING
    assert fresh.run("reset", "--yes")[0] == Exit.OK


@pytest.mark.parametrize("text", ["", "{}", '{"pid": 1'])
def test_a_state_file_that_cannot_be_read_is_as_none(fresh: Stack, text: str) -> None:
    fresh.home.create()
    fresh.home.state.write_text(text)
    code, told = fresh.run("status")
    assert code == Exit.NOT_RUNNING
    assert "start it with `headrace up`" in told


def test_logs_shows_last_lines_and_follows_a_log_that_is_turned_over(fresh: Stack) -> None:
    fresh.home.create()
    log = fresh.home.log("api")
    log.write_text("one\ntwo\n")
    assert fresh.run("logs", "-n", "1") == (Exit.OK, "two\n")
    assert fresh.run("logs", "engine")[0] == Exit.NOT_RUNNING
    assert fresh.run("logs", "-n", "few")[0] == Exit.CONFIG
    assert fresh.run("logs", "-n", "-2")[0] == Exit.CONFIG
    following = fresh.start("logs", "api", "-f")
    assert following.stdout is not None
    assert [following.stdout.readline() for _ in range(2)] == ["one\n", "two\n"]
    logs.turn_over(log, bytes_max=1)
    with log.open("a") as writer:
        writer.write("new\n")
    assert "new\n" in following.stdout  # after a word of tail's about the turn
    following.kill()
    following.communicate()


def test_reset_does_not_touch_a_folder_of_somebody_else(fresh: Stack) -> None:
    fresh.home.root.mkdir()
    kept = fresh.home.root / "thesis.tex"
    kept.write_text("chapter one")
    for command in ("reset", "--yes"), ("up",):
        assert fresh.run(*command)[0] == Exit.REFUSED
    assert list(fresh.home.root.iterdir()) == [kept]
