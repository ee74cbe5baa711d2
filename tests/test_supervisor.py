"""The supervisor, over tiny children: order, healing, giving up, stopping, no orphans."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import fakes
import pytest
from fakes import Run, is_gone, part, server, until

from headrace.cli import parts as wiring
from headrace.clock import SystemClock
from headrace.errors import Exit, NotRunning
from headrace.local import child, lock, logs, state, supervisor
from headrace.local.home import Home
from headrace.local.state import State
from headrace.local.supervisor import DELAY_MAX_S, HEALTHY_S, Deaths, StackFailed

DIES = "import sys; print('cannot go on:', 6 * 7); sys.exit(9)"
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + fakes.SERVE.replace(
    "signal.signal(signal.SIGTERM, end)", ""
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


def test_a_part_starts_after_those_it_needs_and_stops_before_them(home: Home) -> None:
    parts = (server(home, "first"), server(home, "second", after=("first",)))
    with Run(home, *parts) as run:
        until(run.was_ready.is_set, "all parts are ready")
        assert run.seen("first").state is run.seen("second").state is State.READY
    said = " ".join(" ".join(run.said).split())
    assert said.index("first ready") < said.index("second starting")
    assert (home.root / "stopped").read_text().split() == ["second", "first"]
    assert run.seen("first").state is State.STOPPED
    assert run.error is None


def test_a_part_that_is_killed_is_started_again_and_it_is_said(home: Home) -> None:
    with Run(home, server(home, "first")) as run:
        until(run.was_ready.is_set, "ready")
        killed = run.kill("first")
        until(lambda: run.seen("first").restarts == 1, "a restart is counted")
        until(lambda: run.seen("first").state is State.READY, "ready again")
        assert run.seen("first").pid != killed
    assert any("died" in line and "SIGKILL" in line for line in run.said)


def test_what_needs_a_part_is_left_alone_when_that_part_is_started_again(home: Home) -> None:
    parts = (server(home, "first"), server(home, "second", after=("first",)))
    with Run(home, *parts) as run:
        until(run.was_ready.is_set, "ready")
        second = run.seen("second").pid
        run.kill("first")
        until(lambda: run.seen("first").restarts == 1, "a restart is counted")
        until(lambda: run.seen("first").state is State.READY, "ready again")
        assert run.seen("second").pid == second


def test_a_part_that_keeps_dying_stops_the_stack_with_its_last_lines(home: Home) -> None:
    parts = (server(home, "first"), part(home, "second", DIES, after=("first",)))
    with Run(home, *parts, restarts_max=2) as run:
        run.finish()
    assert isinstance(run.error, StackFailed)
    assert "second died 2 times in a row (last: exit code 9)" in run.error.what
    assert "cannot go on: 42" in run.error.what
    assert (home.root / "stopped").read_text().split() == ["first"]
    assert run.seen("second").state is State.FAILED
    assert run.seen("first").state is State.STOPPED


def test_a_part_that_says_that_it_never_can_is_not_tried_again(home: Home) -> None:
    hopeless = part(home, "first", "exit(5)", final_exits=frozenset({Exit.REFUSED}))
    with Run(home, hopeless, restarts_max=99) as run:
        run.finish()
    assert isinstance(run.error, StackFailed)
    assert "first cannot run (exit code 5)" in run.error.what
    assert run.error.exit is Exit.REFUSED


def test_of_a_part_that_told_its_error_only_that_is_shown(home: Home) -> None:
    code = (
        "print(*['    at scala.Iterator'] * 13, 'headrace: boom', '  Mend it.', sep='\\n'); exit(9)"
    )
    with Run(home, part(home, "first", code), restarts_max=0) as run:
        run.finish()
    assert isinstance(run.error, StackFailed)
    assert run.error.what.endswith("its last log lines:\n  | headrace: boom\n  |   Mend it.")


def test_a_full_disk_is_named_when_a_part_dies(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    full = shutil.disk_usage(home.root)._replace(free=1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: full)
    with Run(home, part(home, "first", DIES), restarts_max=1) as run:
        run.finish()
    assert isinstance(run.error, StackFailed)
    assert f"the disk of {home.root} is full" in run.error.what


def test_a_part_that_does_not_get_ready_stops_the_stack(home: Home) -> None:
    with Run(home, part(home, "first", "import time; time.sleep(600)"), ready_timeout_s=1) as run:
        run.finish()
    assert isinstance(run.error, StackFailed)
    assert "first was not ready after 1 s" in run.error.what


def test_why_a_part_is_not_ready_is_one_plain_sentence(home: Home) -> None:
    def probe(_pid: int) -> None:
        raise NotRunning("it has a cold\n\tand a cough", hint="Wait for it.")

    ill = replace(part(home, "first", "import time; time.sleep(600)"), probe=probe)
    with Run(home, ill, ready_timeout_s=1) as run:
        run.finish()
    assert isinstance(run.error, StackFailed)
    assert run.error.what == "first was not ready after 1 s (it has a cold); its log is empty"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            b'{"ready": false, "core": "is not there yet", "warehouses": {"default": "ok"}}',
            "the API is not ready: is not there yet",
        ),
        (
            b'{"core": "ok", "warehouses": {"a": "does not answer", "b": "refuses"}}',
            "the API is not ready: a does not answer; b refuses",
        ),
        (b"<html>", "the API is not ready"),
    ],
)
def test_why_the_api_is_not_ready_is_told_in_words(body: bytes, said: str) -> None:
    with pytest.raises(NotRunning) as caught:
        probe_unready(body)
    assert caught.value.what == said


def test_a_warehouse_that_is_away_does_not_keep_the_api_from_being_up_for_the_others() -> None:
    probe_unready(b'{"core": "ok", "warehouses": {"here": "ok", "there": "does not answer"}}')


def probe_unready(body: bytes) -> None:
    """Probe an API that says that it is not ready."""

    class Unready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.end_headers()
            self.wfile.write(body)

    with HTTPServer(("127.0.0.1", 0), Unready) as api:
        threading.Thread(target=api.handle_request).start()
        wiring._api_is_ready(f"127.0.0.1:{api.server_port}")


class Skewed(SystemClock):
    """A clock that jumps when it is told to."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s

    def jump(self) -> None:
        self.ahead_s += 100.0


def test_what_is_prepared_for_a_part_counts_as_its_start(home: Home) -> None:
    clock = Skewed()
    run = Run(home, server(home, "first", prepare=clock.jump))
    run.supervisor.clock = clock
    with run:
        until(run.was_ready.is_set, "ready")
    ready = next(line.split() for line in run.said if " ready " in line)
    assert float(ready[-2]) >= 100.0


def test_a_part_that_does_not_stop_is_killed(home: Home) -> None:
    with Run(home, part(home, "first", DEAF, stop_timeout_s=0.2)) as run:
        until(run.was_ready.is_set, "ready")
        pid = run.seen("first").pid
    assert pid is not None
    assert is_gone(pid)
    assert any("it is killed" in line for line in run.said)


def test_a_part_that_takes_its_time_to_stop_is_said_to(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    with Run(home, part(home, "first", DEAF, stop_timeout_s=1.0)) as run:
        until(run.was_ready.is_set, "ready")
    assert "first     not stopped yet (0 s)" in run.said


def test_a_second_wish_to_stop_kills_what_takes_its_time(home: Home) -> None:
    with Run(home, part(home, "first", DEAF, stop_timeout_s=600)) as run:
        until(run.was_ready.is_set, "ready")
        run.supervisor.ask_to_stop()
        run.supervisor.ask_to_stop()
        run.finish()
    assert run.seen("first").state is State.STOPPED


def test_what_a_part_started_ends_with_it(home: Home) -> None:
    code = "import subprocess\nsubprocess.Popen(['sleep', '600'])\n" + fakes.SERVE
    with Run(home, part(home, "first", code)) as run:
        until(run.was_ready.is_set, "ready")
        grandchild = _children(run.seen("first").pid)[0]
        run.kill("first")
        until(lambda: is_gone(grandchild), "its own child is gone too")


def test_no_part_outlives_a_supervisor_that_is_killed(home: Home) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom headrace.local.home import Home\n"
        "from fakes import Run, server\nhome = Home(Path(sys.argv[1]))\n"
        "with Run(home, server(home, 'first'), server(home, 'second')) as run:\n"
        "    run.was_ready.wait()\n    print(run.seen('first').pid, run.seen('second').pid,"
        " flush=True)\n    run.finish()\n"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, str(home.root)],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdout is not None
    pids = [int(pid) for pid in supervisor.stdout.readline().split()]
    assert len(pids) == 2
    supervisor.kill()
    supervisor.wait()
    until(lambda: all(is_gone(pid) for pid in pids), "the parts are gone")
    with Run(home, server(home, "first"), server(home, "second")) as run:
        until(run.was_ready.is_set, "ready over what the killed one left")


def test_nothing_is_started_beside_the_remains_of_its_former_self(home: Home) -> None:
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen(['sleep', '600'], close_fds=False, start_new_session=True)\n"
        + fakes.SERVE
    )
    with Run(home, part(home, "first", code)) as run:
        until(run.was_ready.is_set, "ready")
        remains = _children(run.seen("first").pid)[0]
        run.kill("first")
        until(lambda: run.seen("first").restarts == 1, "the death was seen")
        assert lock.is_held(home.part_lock("first"))
        assert child.spawn(server(home, "first"), home, lambda _child: None) is None
        os.kill(remains, signal.SIGKILL)
        until(lambda: run.seen("first").state is State.READY, "started when the remains are gone")
        os.kill(_children(run.seen("first").pid)[0], signal.SIGKILL)


CLI = """
import sys
from pathlib import Path
from fakes import SERVE, part
from headrace.cli import main, parts, stack
from headrace.errors import Exit
from headrace.local import lock
from headrace.local.home import Home
home = Home(Path(sys.argv[1]))
waits = '''
import pathlib, sys, time
folder = pathlib.Path(sys.argv[2]).parent
if (folder / "no-more").exists():
    print("headrace: it cannot")
    sys.exit(5)
while not (folder / "go").exists():
    time.sleep(0.05)
'''
wired = (
    part(home, "engine", waits + SERVE, final_exits=frozenset({Exit.REFUSED})),
    part(home, "api", SERVE, after=("engine",)),
)
parts.check_machine = lambda config: None
parts.wire = lambda config, machine: parts.Wired(wired, {})
parts.probes = lambda config, stack: dict.fromkeys(stack.parts, lambda pid: None)
parts.lags = lambda *_: {}
free = lock.wait_until_free
def says_that_it_waits(path, *limits):
    if path == home.supervisor_lock:
        (home.root / "go").touch()
    return free(path, *limits)
lock.wait_until_free = says_that_it_waits
stack.TELL_EVERY_S = 0.5
sys.exit(main([*sys.argv[2:], "--home", sys.argv[1]]))
"""


class Cli:
    """The command line over tiny parts; the engine gets ready when there is a file `go`."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", CLI, str(self.home.root), *arguments],
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        told, _ = process.communicate(timeout=fakes.PATIENCE_S)
        return process.returncode, told


@pytest.fixture
def cli(home: Home) -> Iterator[Cli]:
    made = Cli(home)
    yield made
    made.run("down")


def test_an_up_beside_another_waits_for_it_and_says_that_its_settings_do_not_count(
    cli: Cli,
) -> None:
    first = cli.start("up", "--detach")
    until(lambda: state.running(cli.home) is not None, "the first starts")
    code, told = cli.run("up", "--detach")
    assert code == Exit.OK, told
    assert "up already, as it was started (flows and settings of this command are not" in told
    first.communicate(timeout=fakes.PATIENCE_S)
    assert first.returncode == Exit.OK


def test_down_names_every_part_that_it_stops(cli: Cli) -> None:
    (cli.home.root / "go").touch()
    assert cli.run("up", "--detach")[0] == Exit.OK
    code, told = cli.run("down")
    assert code == Exit.OK
    assert told.split()[:4] == ["api", "stopping", "engine", "stopping"]


def test_down_says_which_part_it_waits_for(cli: Cli) -> None:
    (cli.home.root / "go").touch()
    assert cli.run("up", "--detach")[0] == Exit.OK
    found = state.running(cli.home)
    assert found is not None
    os.kill(found.parts["engine"].pid or 0, signal.SIGSTOP)
    down = cli.start("down")
    assert down.stdout is not None
    told = ""
    while "not stopped yet" not in told:
        told = down.stdout.readline()
        assert told, "down has ended"
    os.kill(found.parts["engine"].pid or 0, signal.SIGCONT)
    down.communicate(timeout=fakes.PATIENCE_S)
    assert down.returncode == Exit.OK
    assert told.startswith("engine    not stopped yet (")


def test_why_the_stack_was_given_up_stands_once_in_its_log(cli: Cli) -> None:
    (cli.home.root / "go").touch()
    assert cli.run("up", "--detach")[0] == Exit.OK
    (cli.home.root / "no-more").touch()
    found = state.running(cli.home)
    assert found is not None
    os.kill(found.parts["engine"].pid or 0, signal.SIGKILL)
    until(lambda: not lock.is_held(cli.home.supervisor_lock), "it was given up")
    log = cli.home.log(logs.SUPERVISOR).read_text()
    assert log.count("headrace: it cannot") == 1, log


def test_a_minute_of_health_forgives_earlier_deaths() -> None:
    deaths = Deaths(limit=3)
    assert deaths.next_delay_s(0.0) is not None
    assert deaths.next_delay_s(0.0) is not None
    assert deaths.next_delay_s(HEALTHY_S) is not None
    assert deaths.next_delay_s(HEALTHY_S - 1) is not None
    assert deaths.next_delay_s(0.0) is None


def test_the_wait_before_a_restart_grows_to_a_limit() -> None:
    deaths = Deaths(limit=100)
    delays = [deaths.next_delay_s(0.0) or 0.0 for _ in range(20)]
    assert delays == sorted(delays)
    assert delays[0] < delays[1]
    assert delays[-1] == DELAY_MAX_S


def test_a_long_log_is_turned_over_under_its_writer(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"old\n" * 100)
        logs.turn_over(log, bytes_max=100)
        writer.write(b"new\n")
        assert log.read_bytes() == b"new\n"
        assert (tmp_path / "part.log.1").read_bytes() == b"old\n" * 100


def test_a_lock_whose_holder_was_killed_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys, pathlib, signal\nfrom headrace.local import lock\n"
        "held = lock.take(pathlib.Path(sys.argv[1]))\nlock.sign_for(held, 4711)\n"
        "print('held', flush=True)\nsignal.pause()\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert lock.holder(path) == 4711
    assert not lock.wait_until_free(path, 0.0, SystemClock())
    holder.kill()
    holder.wait()
    assert lock.holder(path) is None


def _children(pid: int | None) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
