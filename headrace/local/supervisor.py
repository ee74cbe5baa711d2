"""The supervisor: starts the parts in order, restarts what dies, gives up what keeps dying.

One thread, the main one, decides everything. It sleeps until an event comes - a death, a part that
became ready, a wish to stop - or until the next thing is due. Other threads only wait, for a
process to end or for a probe to answer, and send what they saw as an event.
"""

import contextlib
import queue
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from headrace import config
from headrace.clock import Clock
from headrace.errors import Exit, HeadraceError
from headrace.local import child, logs
from headrace.local.child import Child
from headrace.local.home import Home
from headrace.local.part import Part
from headrace.local.state import PartState, StackState, State

PROBE_EVERY_S = 0.1
TICK_S = 5.0
FORMER_RETRY_S = 0.1
LAST_LINES = 15
DISK_FREE_MIN = 16 * 2**20
HEALTHY_S = 60.0
DELAY_FIRST_S = 0.25
DELAY_MAX_S = 10.0
"""Between a death and the next start: doubled with each death in a row."""

Report = Callable[[str], None]


class StackFailed(HeadraceError):
    """A part was given up, and the stack was stopped; it exits as the part did, if for good."""

    def __init__(self, what: str, *, hint: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(what, hint=hint)
        self.exit = code


Event = Callable[[], None]
"""What is to be done about something that has happened."""


@dataclass(slots=True)
class Deaths:
    """The deaths of one part in a row, without a minute of health between."""

    limit: int
    in_a_row: int = 0

    def next_delay_s(self, healthy_s: float) -> float | None:
        """Count a death after so long a time of health; give the wait before a restart, or None."""
        if healthy_s >= HEALTHY_S:
            self.in_a_row = 0
        self.in_a_row += 1
        if self.in_a_row >= self.limit:
            return None
        return min(DELAY_FIRST_S * 2.0 ** (self.in_a_row - 1), DELAY_MAX_S)


@dataclass(slots=True)
class Runner:
    """One part and what has become of it."""

    part: Part
    deaths: Deaths
    state: State = State.WAITING
    child: Child | None = None
    started: str | None = None
    restarts: int = 0
    was_ready: bool = False
    since: float = 0.0
    """When it was started, became ready, or died."""
    begun: float = 0.0
    """When its start began, with what is prepared for it."""
    start_at: float | None = None
    """When to start it; None: not now."""
    trouble: str = ""
    """What its last probe said."""

    def seen(self) -> PartState:
        """Tell what a reader of the state file may know."""
        return PartState(
            state=self.state,
            address=self.part.address,
            pid=self.child.pid if self.child and self.child.code is None else None,
            started=self.started,
            restarts=self.restarts,
        )


@dataclass(slots=True)
class Supervisor:
    """Runs the parts of one data folder until it is asked to stop or gives up."""

    home: Home
    parts: Sequence[Part]
    limits: config.Supervisor
    clock: Clock
    report: Report
    on_ready: Callable[[], None]
    """Called when all parts are ready for the first time."""
    pid: int
    external: dict[str, PartState] = field(default_factory=dict)
    """Parts that are somebody else's, for the state file."""
    _events: "queue.SimpleQueue[Event | None]" = field(default_factory=queue.SimpleQueue)
    """None: somebody wants the stack to stop; the second time: at once."""
    _runners: dict[str, Runner] = field(default_factory=dict)
    _state: State = State.STARTING
    _why: str = ""
    _started: str = field(init=False)
    _tick_due: float = 0.0

    def __post_init__(self) -> None:
        self._started = self._now()
        for part in self.parts:
            self._runners[part.name] = Runner(part, Deaths(self.limits.restarts_max))

    def ask_to_stop(self) -> None:
        """Have `run` stop everything and return; safe to call from a signal handler."""
        self._events.put(None)

    def run(self) -> None:
        """Start everything and look after it; returns when stopped, raises when it gives up."""
        try:
            self._look_after()
        except HeadraceError as error:
            self._why = error.what
            raise
        except Exception as error:
            self._why = f"a bug in Headrace: {error!r}"
            raise
        finally:
            self._stop_all()

    def _look_after(self) -> None:
        while True:
            self._start_what_is_due()
            self._give_up_what_is_late()
            self._tick()
            event = self._next_event(self._next_due())
            if event is None:
                return
            event()

    def _next_event(self, due: float) -> Event | None:
        try:
            return self._events.get(timeout=max(0.0, due - self.clock.monotonic()))
        except queue.Empty:
            return lambda: None

    def _next_due(self) -> float:
        dues = [self._tick_due]
        for runner in self._runners.values():
            if runner.start_at is not None:
                dues.append(runner.start_at)
            if runner.state not in (State.WAITING, State.READY):
                dues.append(runner.since + self.limits.ready_timeout_s)
        return min(dues)

    # starting

    def _start_what_is_due(self) -> None:
        now = self.clock.monotonic()
        for runner in self._runners.values():
            if runner.state is State.WAITING and self._may_start(runner.part):
                runner.state, runner.start_at, runner.since = State.STARTING, now, now
                self.report(f"{runner.part.name:<9} starting")
            if runner.start_at is not None and runner.start_at <= now:
                self._start(runner)
        self._write()

    def _may_start(self, part: Part) -> bool:
        needed = (self._runners[name] for name in part.after if name in self._runners)
        return all(runner.was_ready for runner in needed)

    def _start(self, runner: Runner) -> None:
        runner.begun = self.clock.monotonic()
        started = child.spawn(
            runner.part, self.home, lambda _: self._events.put(partial(self._died, runner))
        )
        if started is None:  # a former one's last processes are still going down
            runner.start_at = self.clock.monotonic() + FORMER_RETRY_S
            return
        runner.child, runner.start_at = started, None
        runner.started, runner.since = self._now(), self.clock.monotonic()
        threading.Thread(target=self._probe, args=(runner, started), daemon=True).start()

    def _probe(self, runner: Runner, started: Child) -> None:
        while True:
            try:
                runner.part.probe(started.pid)
            except Exception as error:  # noqa: BLE001 - anything, until the part is ready
                runner.trouble = _in_one_line(error)
            else:
                self._events.put(partial(self._ready, runner, started))
                return
            if started.dead.wait(PROBE_EVERY_S):
                return

    def _ready(self, runner: Runner, ready: Child) -> None:
        if runner.child is not ready or ready.dead.is_set():
            return  # it died right after its answer: its death is on the way
        now = self.clock.monotonic()
        self.report(
            f"{runner.part.name:<9} ready     {runner.part.address:<22}{now - runner.begun:.1f} s"
        )
        runner.state, runner.since, runner.was_ready = State.READY, now, True
        if all(other.state is State.READY for other in self._runners.values()):
            first = self._state is State.STARTING
            self._state = State.READY
            self._write()
            if first:
                self.on_ready()

    def _give_up_what_is_late(self) -> None:
        now = self.clock.monotonic()
        for runner in self._runners.values():
            late = now - runner.since >= self.limits.ready_timeout_s
            if runner.state in (State.WAITING, State.READY) or not late:
                continue
            what = f"{runner.part.name} was not ready after {self.limits.ready_timeout_s} s"
            if not runner.was_ready:
                raise self._failed(runner, f"{what} ({runner.trouble or 'no answer'})")
            self.report(f"{what}: it is ended and started again")
            runner.since = now
            if runner.child is not None:
                runner.child.kill()

    # dying

    def _died(self, runner: Runner) -> None:
        assert runner.child is not None
        ending, code = runner.child.ending(), runner.child.code
        now = self.clock.monotonic()
        healthy_s = now - runner.since if runner.state is State.READY else 0.0
        delay_s = runner.deaths.next_delay_s(healthy_s)
        if code in runner.part.final_exits:
            what = f"{runner.part.name} cannot run ({ending})"
            raise self._failed(runner, what, Exit(code))
        if delay_s is None:
            raise self._failed(
                runner,
                f"{runner.part.name} died {runner.deaths.in_a_row} times in a row (last: {ending})",
            )
        self.report(
            f"{runner.part.name:<9} died      {ending}{self._full_disk()}; "
            f"starts again in {delay_s:g} s"
        )
        runner.child, runner.state = None, State.HEALING if runner.was_ready else State.STARTING
        runner.since, runner.start_at = now, now + delay_s
        runner.restarts += 1
        if self._state is State.READY:
            self._state = State.HEALING

    def _failed(self, runner: Runner, what: str, code: Exit = Exit.FAILED) -> StackFailed:
        runner.state = State.FAILED
        start = runner.child.log_start if runner.child else 0
        lines = logs.last_words(self.home.log(runner.part.name), LAST_LINES, after=start)
        told = "; its log is empty" if not lines else "; its last log lines:\n"
        return StackFailed(
            what + self._full_disk() + told + "\n".join(f"  | {line}" for line in lines),
            hint=f"The stack was stopped. `headrace logs {runner.part.name}` shows more; mend the "
            "cause and run `headrace up` again.",
            code=code,
        )

    def _full_disk(self) -> str:
        """Say so where the disk may be why a part died."""
        with contextlib.suppress(OSError):
            if shutil.disk_usage(self.home.root).free < DISK_FREE_MIN:
                return f", and the disk of {self.home.root} is full"
        return ""

    # stopping

    def _stop_all(self) -> None:
        self._state = State.STOPPING
        for runner in reversed(self._runners.values()):
            if runner.child is not None and not runner.child.dead.is_set():
                self.report(f"{runner.part.name:<9} stopping")
                self._stop(runner, runner.child)
            runner.child = None
            if runner.state is not State.FAILED:
                runner.state = State.STOPPED
        self._state = State.FAILED if self._why else State.STOPPED
        self._write()

    def _stop(self, runner: Runner, running: Child) -> None:
        """Ask the part to end; kill it when it takes too long or somebody asks a second time."""
        runner.state = State.STOPPING if runner.state is not State.FAILED else State.FAILED
        self._write()
        running.stop()
        began = told = self.clock.monotonic()
        deadline = began + runner.part.stop_timeout_s
        while not running.dead.is_set():
            event = self._next_event(min(deadline, told + TICK_S))
            now = self.clock.monotonic()
            if event is None or now >= deadline:
                self.report(f"{runner.part.name:<9} does not stop: it is killed")
                running.kill()
                running.dead.wait()
            elif now >= told + TICK_S:
                told = now
                self.report(not_stopped(runner.part.name, now - began))

    # telling

    def _tick(self) -> None:
        """Now and then: say what is still awaited, and turn over logs that got long."""
        now = self.clock.monotonic()
        if now < self._tick_due:
            return
        self._tick_due = now + TICK_S
        for runner in self._runners.values():
            waited_s = now - runner.since
            if runner.state in (State.STARTING, State.HEALING) and waited_s >= TICK_S:
                self.report(f"{runner.part.name:<9} not ready yet ({waited_s:.0f} s)")
        for name in (*self._runners, logs.SUPERVISOR):
            logs.turn_over(self.home.log(name), self.limits.log_mb_max * 2**20)

    def _now(self) -> str:
        return self.clock.now().isoformat(timespec="milliseconds")

    def _write(self) -> None:
        seen = {name: runner.seen() for name, runner in self._runners.items()}
        state = StackState(
            pid=self.pid,
            state=self._state,
            started=self._started,
            why=self._why,
            parts=self.external | seen,
        )
        with contextlib.suppress(OSError):  # a full disk must not stop what runs
            state.write(self.home.state)


def not_stopped(name: str, waited_s: float) -> str:
    """Say that a part is being stopped, and is waited for."""
    return f"{name:<9} not stopped yet ({waited_s:.0f} s)"


def _in_one_line(error: Exception) -> str:
    """Say what a probe met, without hints and without what follows the first line."""
    said = error.what if isinstance(error, HeadraceError) else str(error)
    return (said.strip() or type(error).__name__).splitlines()[0].rstrip(":.")
