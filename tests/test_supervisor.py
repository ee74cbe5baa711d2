"""The supervisor, over tiny children: order, healing, giving up, stopping, no orphans."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import fakes
import pytest
from fakes import Run, is_gone, part, server, until

from headrace.clock import SystemClock
from headrace.local import child, lock, logs
from headrace.local.deaths import DELAY_MAX_S, HEALTHY_S, Deaths
from headrace.local.home import Home
from headrace.local.state import State
from headrace.local.supervisor import StackFailed

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
    hopeless = part(home, "first", DIES, final_exits=frozenset({9}))
    with Run(home, hopeless, restarts_max=99) as run:
        run.finish()
    assert isinstance(run.error, StackFailed)
    assert "first cannot run (exit code 9)" in run.error.what


def test_a_part_that_does_not_get_ready_stops_the_stack(home: Home) -> None:
    with Run(home, part(home, "first", "import time; time.sleep(600)"), ready_timeout_s=1) as run:
        run.finish()
    assert isinstance(run.error, StackFailed)
    assert "first was not ready after 1 s" in run.error.what


def test_a_part_that_does_not_stop_is_killed(home: Home) -> None:
    with Run(home, part(home, "first", DEAF, stop_timeout_s=0.2)) as run:
        until(run.was_ready.is_set, "ready")
        pid = run.seen("first").pid
    assert pid is not None
    assert is_gone(pid)
    assert any("it is killed" in line for line in run.said)


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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
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
